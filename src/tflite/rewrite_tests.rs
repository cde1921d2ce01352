//! What becomes of operators and tensors that NNAPI lacks. That they compute what LiteRT's do, tests/peer shows.

use super::tests::{
    file, operations, refusal, tensor, TestOperator, TestTensor, BOOL, F32, INT32, INT4, INT8,
};
use super::*;
use crate::model::{Lifetime, Model};
use crate::ops::OperationType::{self, *};
use crate::tensor::OperandType;

fn float(shape: &[i32]) -> TestTensor {
    tensor(F32, shape, None, None)
}

fn ints(values: &[i32]) -> TestTensor {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(INT32, &[values.len() as i32], Some(&bytes), None)
}

/// The operations that one operator becomes; its inputs are the first tensors, and the model's those that `given` says.
fn becomes(tensors: Vec<TestTensor>, given: &[i32], operator: TestOperator) -> Vec<OperationType> {
    operations(&import(&file(tensors, given, operator.2, &[operator])).unwrap())
}

const GELU: i32 = 150;

fn gelu(approximate: bool) -> Option<schema::Options> {
    Some(schema::Options::Gelu(Box::new(schema::GeluOptions { approximate })))
}

#[test]
fn gelu_is_a_logistic_function_of_a_polynomial() {
    let pair = || vec![float(&[2, 3]), float(&[2, 3])];
    let steps = |count: usize| [&[MUL][..], &[MUL, ADD].repeat(count), &[MUL, LOGISTIC, MUL]].concat();
    assert_eq!(becomes(pair(), &[0], (GELU, &[0], &[1], gelu(true))), steps(1));
    assert_eq!(becomes(pair(), &[0], (GELU, &[0], &[1], gelu(false))), steps(6));
    let bytes = |zero| tensor(INT8, &[2, 3], None, Some((&[0.1], zero)));
    let quantised = becomes(vec![bytes(0), bytes(-100)], &[0], (GELU, &[0], &[1], gelu(true)));
    assert_eq!(quantised, [&[DEQUANTIZE][..], &steps(1), &[QUANTIZE]].concat());
}

const TRANSPOSE_CODE: i32 = 39;

#[test]
fn a_transposition_of_many_dimensions_takes_few_of_at_most_four() {
    let transposed = |dims: &[i32], order: &[i32]| {
        let to: Vec<i32> = order.iter().map(|&axis| dims[axis as usize]).collect();
        let tensors = vec![float(dims), ints(order), float(&to)];
        becomes(tensors, &[0], (TRANSPOSE_CODE, &[0, 1], &[2], None))
    };
    assert_eq!(transposed(&[1, 9, 3, 4, 8], &[2, 0, 3, 1, 4]), [RESHAPE, TRANSPOSE, RESHAPE]);
    assert_eq!(
        transposed(&[2, 3, 4, 5, 6], &[4, 2, 0, 3, 1]),
        [[RESHAPE, TRANSPOSE].repeat(3), vec![RESHAPE]].concat()
    );
    // No element moves.
    assert_eq!(transposed(&[1, 3, 1, 4, 1], &[4, 1, 0, 3, 2]), [RESHAPE]);
    let wrong = vec![float(&[1, 2, 3, 4, 5]), ints(&[0, 1, 2, 3, 3]), float(&[1, 2, 3, 4, 4])];
    let why = refusal(&file(wrong, &[0], &[2], &[(TRANSPOSE_CODE, &[0, 1], &[2], None)]));
    assert!(why.contains("is no order of 5 dimensions"), "{why}");
}

#[test]
fn operators_see_many_dimensions_as_few() {
    let add = || Some(schema::Options::Add(Default::default()));
    let tensors = vec![float(&[2, 3, 4, 5, 6]), float(&[4, 1, 6]), float(&[2, 3, 4, 5, 6])];
    assert_eq!(becomes(tensors, &[0, 1], (0, &[0, 1], &[2], add())), [RESHAPE, RESHAPE, ADD, RESHAPE]);
    let three = || vec![float(&[2, 1, 2, 1, 2]), float(&[1, 2, 1, 2, 1]), float(&[2, 2, 2, 2, 2])];
    let why = refusal(&file(three(), &[0, 1], &[2], &[(0, &[0, 1], &[2], add())]));
    assert!(why.contains("operator 0 (ADD)") && why.contains("as ADD: input 0"), "{why}");
    // A truth value of each element: no operation reshapes those, so that numbers stand for them.
    let tensors = vec![float(&[2, 3, 4, 5, 6]), float(&[5, 6]), tensor(BOOL, &[2, 3, 4, 5, 6], None, None)];
    let expected = [RESHAPE, RESHAPE, EQUAL, SELECT, RESHAPE, NOT_EQUAL];
    assert_eq!(becomes(tensors, &[0, 1], (71, &[0, 1], &[2], None)), expected);
    // What no mapping knows how to join.
    let pads = tensor(INT32, &[5, 2], Some(&[0; 40]), None);
    let tensors = vec![float(&[1, 2, 3, 4, 5]), pads, float(&[1, 2, 3, 4, 5])];
    let why = refusal(&file(tensors, &[0], &[2], &[(34, &[0, 1], &[2], None)]));
    assert!(why.contains("operator 0 (PAD)") && why.contains("at most 4 dimensions"), "{why}");
}

#[test]
fn ports_of_many_dimensions_are_rows() {
    let tensors = vec![float(&[1, 2, 3, 4, 5]), float(&[1, 2, 3, 4, 5])];
    let imported = import(&file(tensors, &[0], &[1], &[(101, &[0], &[1], None)])).unwrap();
    assert_eq!(operations(&imported), [ABS, RESHAPE]);
    for port in [&imported.inputs[0], &imported.outputs[0]] {
        assert_eq!((&port.dims[..], &port.info.dims[..]), (&[1, 2, 3, 4, 5][..], &[120][..]));
    }
}

#[test]
fn what_is_known_becomes_a_constant() {
    // SHAPE, as a model's output, of which a copy is made.
    let tensors = vec![float(&[1, 2, 3]), tensor(INT32, &[3], None, None)];
    assert_eq!(becomes(tensors, &[0], (77, &[0], &[1], None)), [RESHAPE]);
    let tensors = vec![float(&[2, 3]), float(&[2, 3]), float(&[2, 3])];
    let add = Some(schema::Options::Add(Default::default()));
    let bytes = file(tensors, &[0], &[2], &[(93, &[0], &[1], None), (0, &[0, 1], &[2], add)]);
    assert_eq!(operations(&import(&bytes).unwrap()), [ADD]);
}

#[test]
fn weights_of_4_bits_become_such_of_8() {
    // -8 and 7, 1 and -1, 2 and 0.
    let weights = tensor(INT4, &[2, 3], Some(&[0x78, 0xf1, 0x02]), Some((&[0.5, 0.25], 0)));
    let tensors = vec![float(&[1, 3]), weights, float(&[1, 2])];
    let options = schema::Options::FullyConnected(Default::default());
    let imported = import(&file(tensors, &[0], &[2], &[(9, &[0, 1], &[2], Some(options))])).unwrap();
    assert_eq!(operations(&imported), [DEQUANTIZE, FULLY_CONNECTED]);
    let model = Model::new(&imported.model).unwrap();
    let weights = &model.main.operands[model.main.operations[0].inputs[0]];
    assert_eq!(weights.info.ty, OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL);
    let Lifetime::Constant(constant) = &weights.lifetime else { panic!("no constant") };
    assert_eq!(constant.bytes().unwrap()[..], [-8i8, 7, 1, -1, 2, 0].map(|value| value as u8));
}

#[test]
fn detections_are_chosen_by_one_operation() {
    let options = super::flexbuffer::tests::map(&[
        ("h_scale", 5.0),
        ("max_classes_per_detection", 1.0),
        ("max_detections", 10.0),
        ("nms_iou_threshold", 0.5),
        ("nms_score_threshold", 0.25),
        ("num_classes", 4.0),
        ("w_scale", 5.0),
        ("x_scale", 10.0),
        ("y_scale", 10.0),
    ]);
    let import_of = |classes: i32, custom: &[u8]| {
        let inputs = [float(&[1, 30, 4]), float(&[1, 30, classes]), float(&[30, 4])];
        // Files leave the outputs' dimensions out.
        let tensors = inputs.into_iter().chain((0..4).map(|_| float(&[]))).collect();
        let name = detection::NAME.trim_start_matches("custom ");
        let operators: &[TestOperator] = &[(names::CUSTOM, &[0, 1, 2], &[3, 4, 5, 6], None)];
        import(&super::tests::custom_file(tensors, &[0, 1, 2], &[3, 4, 5, 6], operators, (name, custom)))
    };
    let with_background = import_of(5, &options).unwrap();
    assert_eq!(operations(&with_background), [DETECTION_POSTPROCESSING, CAST, CAST]);
    let dims: Vec<&[u32]> = with_background.outputs.iter().map(|port| &port.dims[..]).collect();
    assert_eq!(dims, [&[1, 10, 4][..], &[1, 10], &[1, 10], &[1]]);
    assert_eq!(operations(&import_of(4, &options).unwrap()), [PAD, DETECTION_POSTPROCESSING, CAST, CAST]);
    assert!(import_of(7, &options).is_err());
    let why = import_of(5, &options[..20]).err().unwrap().to_string();
    assert!(why.contains("its options are damaged"), "{why}");
}

#[test]
fn a_state_that_two_operators_write_is_refused() {
    let zeros = |shape: &[i32]| {
        let count = shape.iter().product::<i32>() as usize;
        tensor(F32, shape, Some(&vec![0; 4 * count]), None)
    };
    let state = || {
        let mut state = float(&[1, 3]);
        state.tensor.is_variable = true;
        state
    };
    let options = schema::SequenceLstmOptions { activation: 4, ..Default::default() };
    let options = Some(schema::Options::SequenceLstm(Box::new(options)));
    // Two layers, of the weights 1 and the biases 2, one after the other.
    let layers = |second: [i32; 2]| {
        let list = |input: i32, states: [i32; 2]| {
            [&[input][..], &[1; 8], &[-1; 3], &[2; 4], &[-1; 2], &states].concat()
        };
        let states = [state(), state(), state(), state()];
        let values = [float(&[1, 2, 3]), float(&[1, 2, 3])];
        let tensors =
            [float(&[1, 2, 3]), zeros(&[3, 3]), zeros(&[3])].into_iter().chain(states).chain(values);
        let (a, b) = (list(0, [3, 4]), list(7, second));
        let operators = [(44, &a[..], &[7][..], options.clone()), (44, &b[..], &[8][..], options.clone())];
        file(tensors.collect(), &[0], &[8], &operators)
    };
    let expected = [UNIDIRECTIONAL_SEQUENCE_LSTM; 2];
    assert_eq!(operations(&import(&layers([5, 6])).unwrap()), expected);
    let why = refusal(&layers([5, 4]));
    assert!(why.contains("operator 1 (UNIDIRECTIONAL_SEQUENCE_LSTM)"), "{why}");
    assert!(why.contains("another operator's as well"), "{why}");
}
