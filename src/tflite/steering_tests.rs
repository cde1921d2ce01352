//! What steers an operator: read as the format says, told to NNAPI as it wants it, or refused before any run.

use super::graph::Graph;
use super::tests::{
    custom_file, file, operations, refusal, tensor, TestOperator, TestTensor, BOOL, F32, INT32,
};
use super::*;
use crate::model::{Lifetime, Model};
use crate::ops::OperationType::{self, *};

fn float(shape: &[i32]) -> TestTensor {
    tensor(F32, shape, None, None)
}

/// A constant of integers.
fn ints(shape: &[i32], values: &[i32]) -> TestTensor {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(INT32, shape, Some(&bytes), None)
}

fn list(values: &[i32]) -> TestTensor {
    ints(&[values.len() as i32], values)
}

fn one(tensors: Vec<TestTensor>, given: &[i32], operator: TestOperator) -> Vec<u8> {
    file(tensors, given, operator.2, &[operator])
}

/// The operations that one operator becomes, which reads the first tensors, of which the first is given.
fn becomes(tensors: Vec<TestTensor>, code: i32, options: Option<schema::Options>) -> Vec<OperationType> {
    operations(&import(&with_first(tensors, code, options)).unwrap())
}

fn with_first(tensors: Vec<TestTensor>, code: i32, options: Option<schema::Options>) -> Vec<u8> {
    let output = tensors.len() as i32 - 1;
    one(tensors, &[0], (code, &(0..output).collect::<Vec<_>>(), &[output], options))
}

/// What one operator gives whose inputs, the first tensors, are constants; the output is the last.
fn values(tensors: Vec<TestTensor>, code: i32, options: Option<schema::Options>) -> Vec<i32> {
    let output = tensors.len() as i32 - 1;
    results((tensors, &[output]), code, options).remove(0)
}

fn results(
    (tensors, outputs): (Vec<TestTensor>, &[i32]),
    code: i32,
    options: Option<schema::Options>,
) -> Vec<Vec<i32>> {
    let bytes = one(tensors, &[], (code, &(0..outputs[0]).collect::<Vec<_>>(), outputs, options));
    let graph = Graph::read(&bytes).unwrap().remove(0);
    let integers = |bytes: &[u8]| i32::from_le_bytes(bytes.try_into().unwrap());
    let results = folding::results(&graph, &graph.operators[0]).unwrap();
    results.iter().map(|bytes| bytes.chunks_exact(4).map(integers).collect()).collect()
}

/// The constants that the first operation of a model reads, as integers.
fn steering(imported: &Imported) -> Vec<Vec<i32>> {
    let model = Model::new(&imported.model).unwrap();
    let inputs = model.main.operations[0].inputs.iter();
    let constants = inputs.filter_map(|&i| match &model.main.operands[i].lifetime {
        Lifetime::Constant(constant) => Some(constant.bytes().unwrap().to_vec()),
        _ => None,
    });
    let integers = |bytes: &[u8]| i32::from_le_bytes(bytes.try_into().unwrap());
    constants.map(|bytes| bytes.chunks_exact(4).map(integers).collect()).collect()
}

const ADD_CODE: i32 = 0;
const FLOOR_CODE: i32 = 8;
const CONCATENATION_CODE: i32 = 2;
const TOPK_CODE: i32 = 48;
const TRANSPOSE_CONV_CODE: i32 = 67;
const RESHAPE_CODE: i32 = 22;
const SPLIT_V_CODE: i32 = 102;
const SHAPE_CODE: i32 = 77;
const PACK_CODE: i32 = 83;
const BATCH_TO_SPACE_CODE: i32 = 37;
const SPACE_TO_BATCH_CODE: i32 = 38;
const STRIDED_SLICE_CODE: i32 = 45;
const REVERSE_CODE: i32 = 105;
const TILE_CODE: i32 = 69;
const BROADCAST_TO_CODE: i32 = 130;
const FILL_CODE: i32 = 94;
const RESIZE_BILINEAR_CODE: i32 = 23;
const ONE_HOT_CODE: i32 = 85;

#[test]
fn what_would_fail_in_each_run_is_refused() {
    let why = refusal(&with_first(vec![float(&[2]), float(&[3])], FLOOR_CODE, None));
    assert!(why.contains("operator 0 (FLOOR)") && why.contains("as FLOOR: output 0 has dimensions"), "{why}");
    let tensors = vec![float(&[3, 2, 2, 1]), list(&[2, 2]), ints(&[2, 2], &[0; 4]), float(&[1, 4, 4, 1])];
    let why = refusal(&with_first(tensors, BATCH_TO_SPACE_CODE, None));
    assert!(why.contains("operator 0 (BATCH_TO_SPACE_ND)") && why.contains("multiple of 4"), "{why}");
}

fn strided(begin: i32, end: i32, shrink: i32) -> Option<schema::Options> {
    let options = schema::StridedSliceOptions {
        begin_mask: begin,
        end_mask: end,
        shrink_axis_mask: shrink,
        ..Default::default()
    };
    Some(schema::Options::StridedSlice(Box::new(options)))
}

#[test]
fn a_slice_takes_dimensions_that_it_does_not_name_as_a_whole() {
    let lists = || [list(&[1]), list(&[-1]), list(&[2])];
    let tensors =
        |out: &[i32]| [float(&[6, 3, 2])].into_iter().chain(lists()).chain([float(out)]).collect::<Vec<_>>();
    let imported = import(&with_first(tensors(&[2, 3, 2]), STRIDED_SLICE_CODE, strided(0, 0, 0))).unwrap();
    assert_eq!(operations(&imported), [STRIDED_SLICE]);
    assert_eq!(steering(&imported)[..3], [vec![1, 0, 0], vec![-1, 3, 2], vec![2, 1, 1]]);
    assert_eq!(becomes(tensors(&[3, 2]), STRIDED_SLICE_CODE, strided(0, 0, 1)), [STRIDED_SLICE]);
    let mut wrong = tensors(&[2, 3, 2]);
    wrong[3] = list(&[2, 1]);
    let why = refusal(&with_first(wrong, STRIDED_SLICE_CODE, strided(0, 0, 0)));
    assert!(why.contains("1 begins, 1 ends and 2 strides"), "{why}");
}

#[test]
fn an_axis_to_reverse_may_be_counted_from_the_end() {
    let reversed = |axis| with_first(vec![float(&[2, 3]), list(&[axis]), float(&[2, 3])], REVERSE_CODE, None);
    let imported = import(&reversed(-1)).unwrap();
    assert_eq!((operations(&imported), steering(&imported)), (vec![REVERSE], vec![vec![1]]));
    assert!(refusal(&reversed(2)).contains("operator 0 (REVERSE_V2)"));
    let data = ints(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    let tensors = vec![data, list(&[-2]), tensor(INT32, &[2, 3], None, None)];
    assert_eq!(values(tensors, REVERSE_CODE, None), [4, 5, 6, 1, 2, 3]);
}

#[test]
fn sums_of_integers_are_clamped_after() {
    let sums = |activation| {
        let tensors = vec![list(&[-9, -1, 3, 9]), list(&[0]), tensor(INT32, &[4], None, None)];
        let options = schema::ActivationOptions { activation };
        values(tensors, ADD_CODE, Some(schema::Options::Add(Box::new(options))))
    };
    assert_eq!(sums(0), [-9, -1, 3, 9]);
    assert_eq!(sums(1), [0, 0, 3, 9]);
    assert_eq!(sums(2), [-1, -1, 1, 1]);
    assert_eq!(sums(3), [0, 0, 3, 6]);
}

#[test]
fn rows_of_pixels_move_to_batches_as_images_do() {
    let there = |dims: [&[i32]; 2], pads: &[i32]| {
        vec![float(dims[0]), list(&[2]), ints(&[1, 2], pads), float(dims[1])]
    };
    let split = there([&[1, 99, 16], &[2, 52, 16]], &[2, 3]);
    let imported = import(&with_first(split, SPACE_TO_BATCH_CODE, None)).unwrap();
    assert_eq!(operations(&imported), [RESHAPE, SPACE_TO_BATCH_ND, RESHAPE]);
    let joined = there([&[2, 52, 16], &[1, 104, 16]], &[0, 0]);
    assert_eq!(becomes(joined, BATCH_TO_SPACE_CODE, None), [RESHAPE, BATCH_TO_SPACE_ND, RESHAPE]);
    let cropped = there([&[2, 52, 16], &[1, 99, 16]], &[2, 3]);
    assert_eq!(becomes(cropped, BATCH_TO_SPACE_CODE, None), [RESHAPE, BATCH_TO_SPACE_ND, SLICE, RESHAPE]);
    let why = refusal(&with_first(there([&[2, 52, 16], &[1, 99, 16]], &[2, 2]), BATCH_TO_SPACE_CODE, None));
    assert!(why.contains("operator 0 (BATCH_TO_SPACE_ND)"), "{why}");
}

#[test]
fn integers_are_sliced_by_an_operation_that_takes_them() {
    let sliced = |[begin, end, step]: [i32; 3], shrink, out: &[i32]| {
        let lists = [list(&[begin]), list(&[end]), list(&[step])];
        let data = [ints(&[3, 2], &[1, 2, 3, 4, 5, 6])];
        let tensors = data.into_iter().chain(lists).chain([tensor(INT32, out, None, None)]);
        (tensors.collect::<Vec<_>>(), STRIDED_SLICE_CODE, strided(0, 0, shrink))
    };
    let value_of = |(tensors, code, options)| values(tensors, code, options);
    assert_eq!(value_of(sliced([1, 3, 1], 0, &[2, 2])), [3, 4, 5, 6]);
    assert_eq!(value_of(sliced([-1, 0, 1], 1, &[2])), [5, 6]);
    let (mut tensors, code, options) = sliced([0, 3, 2], 0, &[2, 2]);
    tensors[0] = tensor(INT32, &[3, 2], None, None);
    let why = refusal(&with_first(tensors, code, options));
    assert!(why.contains("operator 0 (STRIDED_SLICE)") && why.contains("INT32"), "{why}");
}

#[test]
fn a_shape_that_is_computed_leaves_no_operations() {
    let number = |dims: &[i32]| tensor(INT32, dims, None, None);
    let tensors = || {
        let lists = [list(&[0]), list(&[1]), list(&[1])];
        let shapes = [number(&[3]), number(&[]), ints(&[], &[6]), number(&[2]), number(&[3])];
        let floats = [float(&[1, 2, 3]), float(&[1, 6])];
        floats.into_iter().chain(lists).chain(shapes).chain([float(&[1, 6, 1])]).collect::<Vec<_>>()
    };
    let operators = || {
        [
            (SHAPE_CODE, &[0][..], &[5][..], None),
            (STRIDED_SLICE_CODE, &[5, 2, 3, 4], &[6], strided(0, 0, 1)),
            (PACK_CODE, &[6, 7], &[8], Some(schema::Options::Pack(Default::default()))),
            (RESHAPE_CODE, &[0, 8], &[1], None),
        ]
    };
    let imported = import(&file(tensors(), &[0], &[1], &operators())).unwrap();
    assert_eq!(operations(&imported), [RESHAPE]);
    assert_eq!(imported.operations, [0..0, 0..0, 0..0, 0..1]);
    // What the model gives is made by an operation.
    let both = [&operators()[..3], &[(RESHAPE_CODE, &[0, 8][..], &[1][..], None)]].concat();
    let imported = import(&file(tensors(), &[0], &[1, 8], &both)).unwrap();
    assert_eq!(operations(&imported), [PACK, RESHAPE, RESHAPE]);
    // NNAPI's CONCATENATION takes no integers.
    let plain = Some(schema::Options::Concatenation(Default::default()));
    let joined = [&operators()[..3], &[(CONCATENATION_CODE, &[8, 3][..], &[9][..], plain)]].concat();
    let reshaped = [&joined[..], &[(RESHAPE_CODE, &[0, 9][..], &[10][..], None)]].concat();
    assert_eq!(operations(&import(&file(tensors(), &[0], &[10], &reshaped)).unwrap()), [RESHAPE]);
}

/// An operator that finds things among 30 boxes of four classes, with these options beside those that all have.
fn detections(options: &[(&str, f32)], rows: i32) -> Imported {
    let plain = [
        ("detections_per_class", 20.0),
        ("h_scale", 5.0),
        ("max_classes_per_detection", 1.0),
        ("max_detections", 10.0),
        ("nms_iou_threshold", 0.5),
        ("nms_score_threshold", 0.25),
        ("num_classes", 4.0),
        ("use_regular_nms", 0.0),
        ("w_scale", 5.0),
        ("x_scale", 10.0),
        ("y_scale", 10.0),
    ];
    let chosen = plain.map(|(name, value)| {
        let own = options.iter().find(|(own, _)| *own == name);
        (name, own.map_or(value, |&(_, value)| value))
    });
    let inputs = [float(&[1, 30, 4]), float(&[1, 30, 5]), float(&[30, 4])];
    let tensors = inputs.into_iter().chain((0..4).map(|_| float(&[]))).collect();
    let operators: &[TestOperator] = &[(names::CUSTOM, &[0, 1, 2], &[3, 4, 5, 6], None)];
    let custom = (detection::NAME.trim_start_matches("custom "), &flexbuffer::tests::map(&chosen)[..]);
    let imported = import(&custom_file(tensors, &[0, 1, 2], &[3, 4, 5, 6], operators, custom)).unwrap();
    let dims: Vec<&[u32]> = imported.outputs.iter().map(|port| &port.dims[..]).collect();
    let rows = rows as u32;
    assert_eq!(dims, [&[1, rows, 4][..], &[1, rows], &[1, rows], &[1]]);
    imported
}

#[test]
fn detections_may_reach_their_thresholds() {
    let thresholds = |score: f32| {
        let imported = detections(&[("nms_score_threshold", score)], 10);
        let scalars: Vec<i32> =
            steering(&imported).into_iter().filter_map(|bits| bits.first().copied()).collect();
        // Before them come the scales, three counts, and the flags, which are shorter.
        [scalars[7], scalars[8]].map(|bits| f32::from_bits(bits as u32))
    };
    let [score, overlap] = thresholds(0.25);
    assert!(0.25 > score && score.next_up() == 0.25 && 0.5 < overlap && overlap.next_down() == 0.5);
    assert_eq!(thresholds(0.0)[0], 0.0);
}

#[test]
fn detections_by_class_leave_rows_empty() {
    let options = |by_class| [("use_regular_nms", by_class), ("max_classes_per_detection", 3.0)];
    let plain = [DETECTION_POSTPROCESSING, CAST, CAST];
    // Classes of boxes are counted there.
    let counted = [DETECTION_POSTPROCESSING, CAST, DIV, CAST];
    assert_eq!(operations(&detections(&options(0.0), 30)), counted);
    assert_eq!(operations(&detections(&options(1.0), 30)), [&plain[..], &[PAD; 3]].concat());
    assert_eq!(operations(&detections(&options(1.0)[..1], 10)), plain);
}

#[test]
fn a_transposed_convolution_may_give_more_than_it_reaches() {
    let spread = |padding, out: i32| {
        let shape = list(&[1, out, out, 8]);
        let tensors = vec![shape, float(&[8, 2, 2, 3]), float(&[1, 4, 4, 3]), float(&[1, out, out, 8])];
        let options = schema::TransposeConvOptions { padding, stride_w: 3, stride_h: 3, activation: 0 };
        let options = Some(schema::Options::TransposeConv(Box::new(options)));
        one(tensors, &[1, 2], (TRANSPOSE_CONV_CODE, &[0, 1, 2], &[3], options))
    };
    let [valid, same] = [1, 0];
    for (out, beyond) in [(11, 0), (12, -1), (10, 1)] {
        let imported = import(&spread(valid, out)).unwrap();
        assert_eq!(operations(&imported), [TRANSPOSE_CONV_2D]);
        let zero = vec![0];
        assert_eq!(steering(&imported)[1..5], [zero.clone(), vec![beyond], zero, vec![beyond]], "{out}");
    }
    assert_eq!(operations(&import(&spread(same, 12)).unwrap()), [TRANSPOSE_CONV_2D]);
    assert!(refusal(&spread(same, 13)).contains("operator 0 (TRANSPOSE_CONV)"));
}

#[test]
fn of_equal_elements_the_first_are_the_largest() {
    let largest = |count: i32| {
        let out = || tensor(INT32, &[2, count], None, None);
        let data = ints(&[2, 4], &[3, 7, 7, 3, 5, 5, 5, 5]);
        results((vec![data, ints(&[], &[count]), out(), out()], &[2, 3]), TOPK_CODE, None)
    };
    assert_eq!(largest(1), [[7, 5], [1, 0]]);
    assert_eq!(largest(3), [[7, 7, 3, 5, 5, 5], [1, 2, 0, 0, 1, 2]]);
}

#[test]
fn a_part_without_elements_is_left_out() {
    let number = |dims: &[i32]| tensor(INT32, dims, None, None);
    let parts = |rest: i32| {
        let sizes = list(&[1, 1, rest]);
        vec![float(&[2, 3]), sizes, ints(&[], &[0]), float(&[1, 3]), float(&[1, 3]), float(&[rest, 3])]
    };
    let split =
        |outputs: &[i32]| file(parts(0), &[0], outputs, &[(SPLIT_V_CODE, &[0, 1, 2], &[3, 4, 5], None)]);
    assert_eq!(operations(&import(&split(&[3, 4])).unwrap()), [RESHAPE, SLICE, RESHAPE].repeat(2));
    assert!(refusal(&split(&[3, 5])).contains("[0, 3]"));
    let reader = (FLOOR_CODE, &[5][..], &[6][..], None);
    let tensors = parts(0).into_iter().chain([float(&[0, 3])]).collect();
    let operators = [(SPLIT_V_CODE, &[0, 1, 2][..], &[3, 4, 5][..], None), reader];
    let why = refusal(&file(tensors, &[0], &[3, 4], &operators));
    assert!(why.contains("operator 1 (FLOOR)") && why.contains("[0, 3]"), "{why}");
    // What it is told a shape by may have none.
    let tensors =
        vec![list(&[7, 8]), list(&[1, 1, 0]), ints(&[], &[0]), number(&[1]), number(&[1]), number(&[0])];
    assert_eq!(results((tensors, &[3, 4, 5]), SPLIT_V_CODE, None), [vec![7], vec![8], vec![]]);
    assert_eq!(values(vec![list(&[7]), number(&[0]), number(&[])], RESHAPE_CODE, None), [7]);
}

#[test]
fn constants_that_a_small_file_makes_huge_are_refused_before_they_are_made() {
    // Truth values take numbers of as many elements on their way.
    let truths = |shape: &[i32]| tensor(BOOL, shape, None, None);
    let reshaped = |from: &[i32], to: &[i32]| with_first(vec![truths(from), truths(to)], RESHAPE_CODE, None);
    let why = refusal(&reshaped(&[65535, 65535], &[65535, 1, 65535]));
    assert!(why.contains("as SELECT: it takes too large a constant"), "{why}");
    assert_eq!(operations(&import(&reshaped(&[2, 100], &[200])).unwrap()), [SELECT, RESHAPE, NOT_EQUAL]);
    // State that nobody keeps is a constant of zeroes.
    let mut state = float(&[1 << 14, 1 << 14]);
    state.tensor.is_variable = true;
    let why = refusal(&one(vec![state, float(&[1 << 14, 1 << 14])], &[], (FLOOR_CODE, &[0], &[1], None)));
    assert!(why.contains("as FLOOR: it takes too large a constant"), "{why}");
}

/// An operator whose input `at` tells it what its output is, the last of the tensors, and which right and wrong numbers that
/// input may hold. What only a run knows is taken where the run looks at it: by the operation `run`.
struct Told {
    code: i32,
    options: Option<schema::Options>,
    tensors: fn(TestTensor) -> Vec<TestTensor>,
    given: &'static [i32],
    at: i32,
    right: TestTensor,
    wrong: TestTensor,
    run: Option<OperationType>,
}

impl Told {
    fn check(self) {
        let count = (self.tensors)(list(&[])).len() as i32;
        let inputs: Vec<i32> = (0..count - 1).collect();
        let file = |given: &[i32], steering| {
            let operator = (self.code, &inputs[..], &[count - 1][..], self.options.clone());
            one((self.tensors)(steering), given, operator)
        };
        let open = tensor(INT32, self.right.tensor.shape.as_ref().unwrap(), None, None);
        let open = file(&[self.given, &[self.at]].concat(), open);
        import(&file(self.given, self.right)).unwrap();
        let why = refusal(&file(self.given, self.wrong));
        assert!(why.contains("operator 0"), "{why}");
        match self.run {
            Some(ty) => assert_eq!(operations(&import(&open).unwrap()), [ty]),
            None => {
                let why = refusal(&open);
                assert!(why.contains(&format!("input {} must be a constant", self.at)), "{why}");
            }
        }
    }
}

#[test]
fn outputs_are_what_their_operators_are_told_to_make() {
    let told = |code, tensors, (given, at), [right, wrong]: [TestTensor; 2], run| Told {
        code,
        options: None,
        tensors,
        given,
        at,
        right,
        wrong,
        run,
    };
    let lists = |right: &[i32], wrong: &[i32]| [list(right), list(wrong)];
    let reshape = |shape| vec![float(&[6]), shape, float(&[3, 2])];
    told(RESHAPE_CODE, reshape, (&[0], 1), lists(&[3, 2], &[2, 3]), Some(RESHAPE)).check();
    told(RESHAPE_CODE, reshape, (&[0], 1), lists(&[-1, 2], &[-1, 3]), Some(RESHAPE)).check();
    told(RESHAPE_CODE, reshape, (&[0], 1), lists(&[3, -1], &[6]), Some(RESHAPE)).check();
    let tile = |times| vec![float(&[3]), times, float(&[6])];
    told(TILE_CODE, tile, (&[0], 1), lists(&[2], &[3]), Some(TILE)).check();
    let broadcast = |shape| vec![float(&[3]), shape, float(&[2, 3])];
    told(BROADCAST_TO_CODE, broadcast, (&[0], 1), lists(&[2, 3], &[4, 3]), None).check();
    let fill = |shape| vec![shape, float(&[]), float(&[4])];
    told(FILL_CODE, fill, (&[1], 0), lists(&[4], &[3]), None).check();
    let resize = |size| vec![float(&[1, 2, 2, 1]), size, float(&[1, 4, 6, 1])];
    let bilinear = Some(schema::Options::ResizeBilinear(Default::default()));
    let resized = told(RESIZE_BILINEAR_CODE, resize, (&[0], 1), lists(&[4, 6], &[6, 4]), None);
    Told { options: bilinear, ..resized }.check();
    let one_hot = |depth| {
        let number = |value: f32| tensor(F32, &[], Some(&value.to_le_bytes()), None);
        vec![tensor(INT32, &[3], None, None), depth, number(1.0), number(0.0), float(&[3, 2])]
    };
    let depths = [ints(&[], &[2]), ints(&[], &[3])];
    let options = schema::OneHotOptions { axis: -1 };
    let options = Some(schema::Options::OneHot(Box::new(options)));
    Told { options, ..told(ONE_HOT_CODE, one_hot, (&[0], 1), depths, None) }.check();
    let spread = |shape| vec![shape, float(&[1, 2, 2, 1]), float(&[1, 2, 2, 1]), float(&[1, 3, 3, 1])];
    let options = schema::TransposeConvOptions { padding: 1, stride_w: 1, stride_h: 1, activation: 0 };
    let options = Some(schema::Options::TransposeConv(Box::new(options)));
    let shapes = lists(&[1, 3, 3, 1], &[1, 4, 4, 1]);
    Told { options, ..told(TRANSPOSE_CONV_CODE, spread, (&[1, 2], 0), shapes, None) }.check();
}

#[test]
fn parts_are_as_long_as_they_are_told_to_be() {
    let split = |sizes: TestTensor, given: &[i32]| {
        let tensors = vec![float(&[4]), sizes, ints(&[], &[0]), float(&[1]), float(&[3])];
        file(tensors, given, &[3, 4], &[(SPLIT_V_CODE, &[0, 1, 2], &[3, 4], None)])
    };
    for right in [[1, 3], [-1, 3], [1, -1]] {
        import(&split(list(&right), &[0])).unwrap();
    }
    for wrong in [&[3, 1][..], &[2, -1], &[1], &[1, 2, 1]] {
        let why = refusal(&split(list(wrong), &[0]));
        assert!(why.contains("operator 0 (SPLIT_V)"), "{why}");
    }
    let why = refusal(&split(tensor(INT32, &[2], None, None), &[0, 1]));
    assert!(why.contains("input 1 must be a constant"), "{why}");
}
