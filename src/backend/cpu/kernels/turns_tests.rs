//! Tests that kernels give their turn up by the bytes that they move, however little arithmetic there is to it: pages that are
//! touched for the first time take long. What is counted is yield points, not time.

use super::*;
use crate::backend::cpu::pool::ThreadPool;
use crate::memory::{AlignedBuf, Budget, Slab, Target, View};
use crate::ops::movement::Axis;
use crate::ops::testing::{boolean, f32s, float, i32s, int, tensor, Counting, Tensor};
use crate::ops::{evaluate, signature, Arg};
use crate::tensor::TensorInfo;
use smallvec::smallvec;
use OperandType::*;

/// Bytes that may be moved between two yield points.
const MOST: usize = 1 << 20;
/// Bytes of a tensor.
const MANY: usize = 8 << 20;

/// Checks that there is a kernel for a call, and that it comes by as many yield points as its outputs want.
fn gives_way(ty: OperationType, inputs: &[Tensor], outputs: &[TensorInfo]) {
    let Ran { passed, moved, .. } = run(ty, inputs, outputs).expect("a kernel");
    assert!(passed >= moved / MOST, "{ty}: {passed} yield points in {moved} bytes");
}

/// What a kernel came by.
struct Ran {
    /// Yield points while it was made, and in its run.
    made: usize,
    passed: usize,
    /// Bytes of its client's that it holds.
    held: u64,
    /// Bytes of its outputs.
    moved: usize,
}

/// Runs the kernel for a call, if there is one.
fn run(ty: OperationType, inputs: &[Tensor], outputs: &[TensorInfo]) -> Option<Ran> {
    let operation = ty.operation().expect("an operation");
    let interrupt = Counting::default();
    let args: Vec<_> = inputs.iter().map(|t| Some(Arg { info: &t.info, data: Some(&t.data) })).collect();
    let present: Vec<_> = inputs.iter().map(|t| signature::Operand::Present(&t.info)).collect();
    let declared: Vec<_> = outputs.iter().map(signature::Operand::Present).collect();
    let found = signature::find(operation.signatures, &present, &declared).expect("a signature");
    let call = Args { signature_index: found.signature_index, inputs: &args, outputs, interrupt: &interrupt };
    let dims = evaluate::shapes(operation, &call).expect("known dimensions");
    let outputs: Vec<_> =
        outputs.iter().zip(&dims).map(|(info, dims)| evaluate::with_dims(info, dims)).collect();
    let call = Args { outputs: &outputs, ..call };
    interrupt.take();
    let budget = Budget::new(1 << 30);
    let account = budget.on_account_of(1);
    let kernel = select(operation, &call, &mut Source::pack(&Slab::default()))?;
    let (made, held) = (interrupt.take(), budget.private().held());
    drop(account);
    let sizes: Vec<usize> = outputs.iter().map(|info| info.byte_size().expect("a size")).collect();
    let mut data: Vec<_> = sizes.iter().map(|&size| AlignedBuf::zeroed(size).expect("memory")).collect();
    let mut targets: Vec<_> = data.iter_mut().map(|data| Target::of(data)).collect();
    let views: Vec<_> = inputs.iter().map(|t| Some(View::of(&t.data))).collect();
    let pool = ThreadPool::new(1).expect("threads");
    kernel.run(&views, &mut targets, Work::new(pool.team(1), &interrupt)).expect("run");
    Some(Ran { made, held, passed: interrupt.take(), moved: sizes.iter().sum() })
}

fn bytes(ty: OperandType, dims: &[u32]) -> Tensor {
    let scale = if ty == TENSOR_BOOL8 { 0.0 } else { 0.5 };
    let count = dims.iter().product::<u32>() as usize;
    tensor(TensorInfo::quantised(ty, dims, scale, 0), &vec![1u8; count])
}

fn floats(dims: &[u32]) -> Tensor {
    f32s(dims, &vec![1.0; dims.iter().product::<u32>() as usize])
}

#[test]
fn elementwise_kernels_give_way_by_bytes() {
    use OperationType::*;
    let truths = bytes(TENSOR_BOOL8, &[MANY as u32]);
    let truth = TensorInfo { dims: smallvec![], ..truths.info.clone() };
    for ty in [LOGICAL_AND, LOGICAL_OR, EQUAL] {
        gives_way(ty, &[truths.clone(), truths.clone()], std::slice::from_ref(&truth));
    }
    gives_way(LOGICAL_NOT, &[truths], &[truth]);
    let pixels = bytes(TENSOR_QUANT8_ASYMM, &[MANY as u32]);
    let pixel = TensorInfo { dims: smallvec![], ..pixels.info.clone() };
    for ty in [MAXIMUM, MINIMUM] {
        gives_way(ty, &[pixels.clone(), pixels.clone()], std::slice::from_ref(&pixel));
    }
    gives_way(RELU, &[pixels], &[pixel]);
    let (numbers, number) = (floats(&[MANY as u32 / 4]), TensorInfo::new(TENSOR_FLOAT32, &[]));
    gives_way(ADD, &[numbers.clone(), numbers.clone(), int(0)], std::slice::from_ref(&number));
    gives_way(RSQRT, &[numbers], &[number]);
}

#[test]
fn movement_gives_way_by_bytes() {
    use OperationType::*;
    let (row, number) = (floats(&[1, MANY as u32 / 4]), TensorInfo::new(TENSOR_FLOAT32, &[]));
    let all = |n: i32| i32s(&[2], &[n, MANY as i32 / 4]);
    gives_way(SLICE, &[row.clone(), i32s(&[2], &[0, 0]), all(1)], std::slice::from_ref(&number));
    gives_way(CONCATENATION, &[row.clone(), row.clone(), int(0)], std::slice::from_ref(&number));
    gives_way(PACK, &[int(0), row.clone(), row.clone()], std::slice::from_ref(&number));
    gives_way(SPLIT, &[row.clone(), int(1), int(2)], &[number.clone(), number.clone()]);
    gives_way(EMBEDDING_LOOKUP, &[i32s(&[1], &[0]), row.clone()], std::slice::from_ref(&number));
    gives_way(GATHER, &[row, int(0), i32s(&[1], &[0])], std::slice::from_ref(&number));
    let pixels = floats(&[MANY as u32 / 4 / 32, 32]);
    gives_way(TRANSPOSE, &[pixels, i32s(&[2], &[1, 0])], &[number]);
}

#[test]
fn images_give_way_by_bytes() {
    use OperationType::*;
    let (pixels, number) = (floats(&[1, 256, 256, 32]), TensorInfo::new(TENSOR_FLOAT32, &[]));
    gives_way(
        RESIZE_NEAREST_NEIGHBOR,
        &[pixels.clone(), int(300), int(256), boolean(false)],
        std::slice::from_ref(&number),
    );
    let pool = [1, 1, 1, 1, 1, 0].map(int);
    gives_way(MAX_POOL_2D, &[&[pixels.clone()][..], &pool].concat(), std::slice::from_ref(&number));
    gives_way(L2_NORMALIZATION, &[pixels], &[number]);
}

#[test]
fn elements_on_pages_of_their_own_give_way_by_how_many_they_are() {
    use OperationType::*;
    const APART: u32 = 1 << 15;
    let number = TensorInfo::new(TENSOR_FLOAT32, &[]);
    let column = floats(&[APART, 20]);
    let indices = i32s(&[APART], &vec![1; APART as usize]);
    for (ty, inputs, output) in [
        (MEAN, vec![column.clone(), i32s(&[1], &[0]), int(0)], &number),
        (ARGMAX, vec![column, int(0)], &TensorInfo::new(TENSOR_INT32, &[])),
        (GATHER, vec![floats(&[2]), int(0), indices], &number),
    ] {
        let Ran { passed, .. } = run(ty, &inputs, std::slice::from_ref(output)).expect("a kernel");
        assert!(passed >= APART as usize >> 11, "{ty}: {passed} yield points");
    }
    // One byte of each page, and two.
    let (pages, byte) =
        (bytes(TENSOR_QUANT8_ASYMM, &[APART / 2, 4096]), bytes(TENSOR_QUANT8_ASYMM, &[1]).info);
    for width in [1, 2] {
        let part = i32s(&[2], &[APART as i32 / 2, width]);
        let inputs = [pages.clone(), i32s(&[2], &[0, 7]), part];
        let Ran { passed, .. } = run(SLICE, &inputs, std::slice::from_ref(&byte)).expect("a kernel");
        assert!(passed >= APART as usize >> 9, "{width} of a page: {passed} yield points");
    }
}

#[test]
fn pixels_on_pages_of_their_own_give_way_by_how_many_they_are() {
    use OperationType::*;
    const ROWS: u32 = 1 << 13;
    const ROW: u32 = 4096;
    let pages = bytes(TENSOR_QUANT8_ASYMM, &[1, ROWS, ROW, 1]);
    let pixel = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], 0.5, 0);
    let check = |ty: OperationType, more: &[Tensor], output: &TensorInfo| {
        let inputs = [&[pages.clone()][..], more].concat();
        let Ran { passed, .. } = run(ty, &inputs, std::slice::from_ref(output)).expect("a kernel");
        assert!(passed >= ROWS as usize >> 9, "{ty}: {passed} yield points");
    };
    for ty in [RESIZE_NEAREST_NEIGHBOR, RESIZE_BILINEAR] {
        check(ty, &[int(1), int(ROWS as i32), boolean(false)], &pixel);
    }
    for ty in [MAX_POOL_2D, AVERAGE_POOL_2D] {
        check(ty, &[0, 0, 0, 0, ROW as i32, 1, 1, 1, 0].map(int), &pixel);
    }
    let of_one = |ty, scale| TensorInfo::quantised(ty, &[1], scale, 0);
    let bias = tensor(of_one(TENSOR_INT32, 0.25), &[0i32]);
    let layer = [bytes(TENSOR_QUANT8_ASYMM, &[1, 1, 1, 1]), bias];
    let sum = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], 1.0, 0);
    let steps = [0, 0, 0, 0, ROW as i32, 1].map(int);
    check(CONV_2D, &[&layer[..], &steps, &[int(0)]].concat(), &sum);
    check(DEPTHWISE_CONV_2D, &[&layer[..], &steps, &[1, 0].map(int)].concat(), &sum);
}

#[test]
fn rows_of_which_each_element_is_better_give_way_by_what_is_moved() {
    const ROWS: u32 = 32;
    const ROW: u32 = 1 << 12;
    const K: i32 = 64;
    let ascending: Vec<f32> = (0..ROWS * ROW).map(|i| i as f32).collect();
    let inputs = [f32s(&[ROWS, ROW], &ascending), int(K)];
    let outputs = [TensorInfo::new(TENSOR_FLOAT32, &[]), TensorInfo::new(TENSOR_INT32, &[])];
    let Ran { passed, .. } = run(OperationType::TOPK_V2, &inputs, &outputs).expect("a kernel");
    assert!(passed >= (ROWS * ROW * K as u32) as usize >> 20, "{passed} yield points");
}

#[test]
fn many_lanes_of_one_element_give_way_by_what_a_lane_takes() {
    const LANES: usize = 1 << 18;
    let (pixel, number) = (floats(&[1, 1, 1, LANES as u32]), TensorInfo::new(TENSOR_FLOAT32, &[]));
    let inputs = [pixel, float(1.0), float(0.0), float(1e-5), boolean(false)];
    let Ran { passed, .. } =
        run(OperationType::INSTANCE_NORMALIZATION, &inputs, &[number]).expect("a kernel");
    assert!(passed >= LANES >> 12, "{passed} yield points");
}

#[test]
fn products_of_few_inputs_give_way_by_their_outputs() {
    const ROWS: u32 = 1 << 18;
    let inputs = [floats(&[ROWS, 1]), floats(&[32, 1]), floats(&[32]), int(0)];
    let Ran { passed, moved, .. } =
        run(OperationType::FULLY_CONNECTED, &inputs, &[TensorInfo::new(TENSOR_FLOAT32, &[])])
            .expect("a kernel");
    // Some milliseconds where each page is touched for the first time.
    assert!(passed >= moved >> 23, "{passed} yield points in {moved} bytes");
}

#[test]
fn products_of_more_inputs_than_can_be_multiplied_quickly_have_no_kernel() {
    let call = |inputs: u32| {
        let inputs = [floats(&[1, inputs]), floats(&[1, inputs]), floats(&[1]), int(0)];
        run(OperationType::FULLY_CONNECTED, &inputs, &[TensorInfo::new(TENSOR_FLOAT32, &[])])
    };
    assert!(call(1 << 18).is_some());
    assert!(call((1 << 18) + 1).is_none());
}

#[test]
fn pairs_of_longer_rows_than_can_be_multiplied_quickly_have_no_kernel() {
    let call = |inner| {
        let matrix = |dims| bytes(TENSOR_QUANT8_ASYMM_SIGNED, dims);
        let inputs = [matrix(&[1, inner]), matrix(&[inner, 1]), boolean(false), boolean(false)];
        let output = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[], 0.5, 0);
        run(OperationType::BATCH_MATMUL, &inputs, &[output])
    };
    assert!(call(1 << 18).is_some() && call((1 << 18) + 1).is_none());
}

#[test]
fn pixels_of_more_channels_than_can_be_made_quickly_have_no_kernel() {
    use OperationType::*;
    let number = TensorInfo::new(TENSOR_FLOAT32, &[]);
    for ty in [RESIZE_NEAREST_NEIGHBOR, RESIZE_BILINEAR] {
        let call = |channels| {
            let inputs = [floats(&[1, 1, 1, channels]), int(1), int(1), boolean(false)];
            run(ty, &inputs, std::slice::from_ref(&number))
        };
        assert!(call(1 << 18).is_some() && call((1 << 18) + 1).is_none(), "{ty}");
    }
}

#[test]
fn layers_of_more_units_than_can_be_made_quickly_have_no_kernel() {
    let number = TensorInfo::new(TENSOR_FLOAT32, &[]);
    let svdf = |memory| {
        let (one, row) = (floats(&[1, 1]), floats(&[1, memory]));
        let inputs = [one.clone(), one, row.clone(), floats(&[1]), row, int(1), int(0)];
        run(OperationType::SVDF, &inputs, &[number.clone(), number.clone()])
    };
    assert!(svdf(1 << 16).is_some() && svdf((1 << 16) + 1).is_none());
}

#[test]
fn lanes_of_more_powers_than_can_be_made_quickly_have_no_kernel() {
    let call = |beta| {
        let inputs = [floats(&[1, 1, 1, 1 << 16]), int(0), float(1.0), float(1.0), float(beta)];
        run(OperationType::LOCAL_RESPONSE_NORMALIZATION, &inputs, &[TensorInfo::new(TENSOR_FLOAT32, &[])])
    };
    assert!(call(0.5).is_some() && call(0.3).is_none());
}

#[test]
fn cells_of_more_samples_of_one_channel_than_can_be_read_quickly_have_no_kernel() {
    let call = |samples| {
        let regions = [floats(&[1, 8, 8, 1]), f32s(&[1, 4], &[0.0, 0.0, 4.0, 4.0]), i32s(&[1], &[0])];
        let numbers = [int(1), int(1), float(1.0), float(1.0), int(samples), int(samples), boolean(false)];
        let inputs = [&regions[..], &numbers].concat();
        run(OperationType::ROI_ALIGN, &inputs, &[TensorInfo::new(TENSOR_FLOAT32, &[])])
    };
    assert!(call(64).is_some() && call(512).is_none());
}

#[test]
fn filters_of_more_taps_than_can_be_multiplied_quickly_have_no_kernel() {
    let call = |width| {
        let inputs = [floats(&[1, 1024, width, 1]), floats(&[1, 1024, width, 1]), floats(&[1])];
        let inputs = [&inputs[..], &[0, 0, 0, 0, 1, 1, 1, 0].map(int)].concat();
        run(OperationType::DEPTHWISE_CONV_2D, &inputs, &[TensorInfo::new(TENSOR_FLOAT32, &[])])
    };
    assert!(call(1024).is_some() && call(1025).is_none());
}

#[test]
fn rows_that_are_repeated_for_few_pixels_give_way_by_what_is_copied() {
    const ROWS: u32 = 64;
    let inputs = [floats(&[1, ROWS, 1 << 17, 1]), floats(&[1, 1, 1, 2]), floats(&[2])];
    let inputs = [&inputs[..], &[0, 0, 0, 0, 1 << 17, 1, 2, 0].map(int)].concat();
    let Ran { passed, .. } =
        run(OperationType::DEPTHWISE_CONV_2D, &inputs, &[TensorInfo::new(TENSOR_FLOAT32, &[])])
            .expect("a kernel");
    assert!(passed >= ROWS as usize / 8, "{passed} yield points");
}

#[test]
fn tables_of_inputs_that_are_rescaled_are_made_with_pauses() {
    const COUNT: usize = 1000;
    let made = |scale| {
        let info = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[1], scale, 0);
        let mut inputs = vec![tensor(info, &[1u8]); COUNT];
        inputs.push(int(0));
        let output = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], 0.5, 0);
        run(OperationType::CONCATENATION, &inputs, &[output]).expect("a kernel").made
    };
    // A table of 256 bytes takes a microsecond or more.
    let (moved, rescaled) = (made(0.5), made(0.25));
    assert!(rescaled >= moved + COUNT / 50, "{moved} and {rescaled} yield points");
}

#[test]
fn what_kernels_note_of_each_row_and_input_is_on_the_clients_account() {
    const SIDE: u32 = 4000;
    let inputs = [bytes(TENSOR_QUANT8_ASYMM, &[1, 2, 1, 1]), int(1), int(SIDE as i32), boolean(false)];
    let output = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], 0.5, 0);
    for ty in [OperationType::RESIZE_NEAREST_NEIGHBOR, OperationType::RESIZE_BILINEAR] {
        let Ran { held, .. } = run(ty, &inputs, std::slice::from_ref(&output)).expect("a kernel");
        assert!(held >= u64::from(SIDE) * 20, "{ty:?}: {held} bytes");
    }
    const COUNT: usize = 1000;
    for (scale, each) in [(0.5, 64), (0.25, 64 + 256)] {
        let info = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[1], scale, 0);
        let mut inputs = vec![tensor(info, &[1u8]); COUNT];
        inputs.push(int(0));
        let Ran { held, .. } =
            run(OperationType::CONCATENATION, &inputs, std::slice::from_ref(&output)).expect("a kernel");
        assert!(held >= COUNT as u64 * each, "{scale}: {held} bytes");
    }
}

#[test]
fn pools_of_few_channels_give_way_by_what_a_window_takes() {
    const KERNEL: i32 = 128;
    const WINDOWS: u32 = 64;
    for (channels, least) in [(1, WINDOWS / 4), (3, WINDOWS / 4), (64, 0)] {
        let image = floats(&[1, KERNEL as u32, KERNEL as u32 + WINDOWS - 1, channels]);
        let pool = [0, 0, 0, 0, 1, 1, KERNEL, KERNEL, 0].map(int);
        let inputs = [&[image][..], &pool].concat();
        let Ran { passed, .. } =
            run(OperationType::AVERAGE_POOL_2D, &inputs, &[TensorInfo::new(TENSOR_FLOAT32, &[])])
                .expect("a kernel");
        assert!(passed >= least as usize, "{channels} channels: {passed} yield points");
    }
}

/// A convolution of bytes, `dims` of the filter and its steps: strides and dilations.
fn convolution(input: &[u32], filter: &[u32], [stride, dilation]: [[i32; 2]; 2]) -> Ran {
    let info = |ty, dims: &[u32], scale| TensorInfo::quantised(ty, dims, scale, 0);
    let channels = filter[0];
    let bias = tensor(info(TENSOR_INT32, &[channels], 0.25), &vec![0i32; channels as usize]);
    let tensors = [bytes(TENSOR_QUANT8_ASYMM, input), bytes(TENSOR_QUANT8_ASYMM, filter), bias];
    let steps = [0, 0, 0, 0, stride[1], stride[0], 0].map(int);
    let inputs = [&tensors[..], &steps, &[boolean(false)], &dilation.map(int)].concat();
    run(OperationType::CONV_2D, &inputs, &[info(TENSOR_QUANT8_ASYMM, &[], 1.0)]).expect("a kernel")
}

#[test]
fn lines_with_gaps_give_way_by_what_is_copied() {
    const ROWS: u32 = 1 << 16;
    // Of each line two taps are touched, which are so far from each other that as much as may be is between them.
    let (width, channels) = (17, 63);
    let Ran { passed, .. } =
        convolution(&[1, ROWS, width, channels], &[1, 1, 2, channels], [[1, 1], [width as i32 - 1, 1]]);
    let copied = (ROWS * width * channels) as usize;
    assert!(passed >= copied >> 24, "{passed} yield points for {copied} bytes");
}

/// Each group's channels of all rows that a band is made from, those between two of them, too.
#[test]
fn groups_give_way_by_what_is_copied() {
    const ROWS: u32 = 1 << 13;
    const WIDTH: u32 = 1 << 12;
    let info = |ty, dims: &[u32], scale| TensorInfo::quantised(ty, dims, scale, 0);
    let tensors = [
        bytes(TENSOR_QUANT8_ASYMM, &[1, ROWS, WIDTH, 2]),
        bytes(TENSOR_QUANT8_ASYMM, &[2, 1, 1, 1]),
        tensor(info(TENSOR_INT32, &[2], 0.25), &[0i32; 2]),
    ];
    let inputs = [&tensors[..], &[2, 8, 64, 2, 0].map(int), &[boolean(false)]].concat();
    let Ran { passed, .. } =
        run(OperationType::GROUPED_CONV_2D, &inputs, &[info(TENSOR_QUANT8_ASYMM, &[], 1.0)])
            .expect("a kernel");
    let copied = (ROWS * WIDTH * 2) as usize;
    assert!(passed >= copied >> 20, "{passed} yield points for {copied} bytes");
}

#[test]
fn a_row_of_a_group_gives_way_by_its_products() {
    const WIDTH: u32 = 128;
    const CHANNELS: u32 = 1 << 11;
    let tensors =
        [floats(&[1, 1, WIDTH, CHANNELS]), floats(&[CHANNELS, 1, 1, CHANNELS / 2]), floats(&[CHANNELS])];
    let inputs = [&tensors[..], &[2, 1, 1, 2, 0].map(int), &[boolean(false)]].concat();
    let Ran { passed, .. } =
        run(OperationType::GROUPED_CONV_2D, &inputs, &[TensorInfo::new(TENSOR_FLOAT32, &[])])
            .expect("a kernel");
    // Each of two groups has over a hundred million products.
    assert!(passed >= 5, "{passed} yield points");
}

#[test]
fn what_walks_go_along_is_on_the_clients_account() {
    use OperationType::TRANSPOSE;
    let held = |dims: &[u32], order: &[i32]| {
        let inputs = [floats(dims), i32s(&[order.len() as u32], order)];
        run(TRANSPOSE, &inputs, &[TensorInfo::new(TENSOR_FLOAT32, &[])]).expect("a kernel").held
    };
    let (row, rows) = (held(&[4], &[0]), held(&[2, 3, 5, 7], &[2, 1, 0, 3]));
    assert!(rows >= row + 2 * size_of::<Axis>() as u64, "{row} and {rows} bytes");
}

#[test]
fn groups_of_channels_are_packed_with_pauses() {
    const GROUPS: u32 = 32;
    let info = |ty, dims: &[u32], scale| TensorInfo::quantised(ty, dims, scale, 0);
    let filter = info(TENSOR_QUANT8_ASYMM, &[2 * GROUPS, 1, 1, 2], 0.5);
    let tensors = [
        bytes(TENSOR_QUANT8_ASYMM, &[1, 1, 1, 2 * GROUPS]),
        tensor(filter, &vec![1u8; 4 * GROUPS as usize]),
        tensor(info(TENSOR_INT32, &[2 * GROUPS], 0.25), &vec![0i32; 2 * GROUPS as usize]),
    ];
    let rest = [1, 1, 1, GROUPS as i32, 0].map(int);
    let inputs = [&tensors[..], &rest, &[boolean(false)]].concat();
    let output = info(TENSOR_QUANT8_ASYMM, &[], 1.0);
    let Ran { made, .. } = run(OperationType::GROUPED_CONV_2D, &inputs, &[output]).expect("a kernel");
    // Each group looks at the scales of all channels.
    assert!(made >= GROUPS as usize, "{made} yield points");
}
