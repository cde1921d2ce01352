//! Calls that must fail: each is a good call with one operand made bad, and the good one must succeed.

use crate::support::*;
use smallvec::smallvec;
use OperandType::*;
use OperationType::*;

fn f32s(dims: &[usize]) -> Value {
    Random::new(1).floats(TENSOR_FLOAT32, dims, 0.0, 1.0)
}

fn matrix(rows: u32, values: &[i32]) -> Value {
    let mut value = ints(values);
    value.info.dims = smallvec![rows, values.len() as u32 / rows];
    value
}

fn floats(dims: &[u32], values: &[f64]) -> Value {
    Value::of_reals(TensorInfo::new(TENSOR_FLOAT32, dims), values)
}

/// Calls `operation` with `good` inputs, then with each of `bad` in the place of one. Outputs are TENSOR_FLOAT32 but
/// where said otherwise.
#[track_caller]
fn refuses(operation: OperationType, good: &[Value], outputs: &[OperandType], bad: &[(usize, Value)]) {
    let outputs: Vec<TensorInfo> = outputs.iter().map(|&ty| TensorInfo::new(ty, &[])).collect();
    let call = |inputs: &[Value]| try_call(operation, &inputs.iter().map(Some).collect::<Vec<_>>(), &outputs);
    call(good).unwrap_or_else(|e| panic!("{operation:?}: {e}"));
    for (at, value) in bad {
        let mut inputs = good.to_vec();
        inputs[*at] = value.clone();
        assert!(call(&inputs).is_err(), "{operation:?} takes {value:?} as input {at}");
    }
}

const OUT: &[OperandType] = &[TENSOR_FLOAT32];

#[test]
fn shapes_that_do_not_fit() {
    refuses(ADD, &[f32s(&[2, 3]), f32s(&[3]), int(0)], OUT, &[(1, f32s(&[2])), (2, int(4)), (2, int(-1))]);
    refuses(MAXIMUM, &[f32s(&[2, 3]), f32s(&[3])], OUT, &[(1, f32s(&[4])), (0, f32s(&[2, 2]))]);
    let condition = Value::of_raw(TensorInfo::new(TENSOR_BOOL8, &[2]), &[0, 1]);
    refuses(SELECT, &[condition, f32s(&[2]), f32s(&[2])], OUT, &[(1, f32s(&[1])), (2, f32s(&[3]))]);
    let parts = [f32s(&[2, 3]), f32s(&[2, 1]), int(1)];
    refuses(CONCATENATION, &parts, OUT, &[(1, f32s(&[1, 3])), (1, f32s(&[2])), (2, int(0)), (2, int(2))]);
    let parts = [int(2), f32s(&[2, 3]), f32s(&[2, 3])];
    refuses(PACK, &parts, OUT, &[(0, int(3)), (0, int(-1)), (2, f32s(&[2, 2])), (2, f32s(&[2, 3, 1]))]);
    let operands = [f32s(&[2, 3]), f32s(&[4, 3]), f32s(&[4]), int(0)];
    refuses(
        FULLY_CONNECTED,
        &operands,
        OUT,
        &[(0, f32s(&[2, 4])), (1, f32s(&[4, 4])), (2, f32s(&[3])), (3, int(7))],
    );
    let operands = [f32s(&[2, 3, 4]), f32s(&[2, 4, 5]), boolean(false), boolean(false)];
    let bad = [(0, f32s(&[2, 4, 3])), (1, f32s(&[3, 4, 5])), (1, f32s(&[4, 5])), (2, boolean(true))];
    refuses(BATCH_MATMUL, &operands, OUT, &bad);
}

#[test]
fn axes_and_shapes_out_of_range() {
    let x = || f32s(&[2, 6]);
    refuses(
        SOFTMAX,
        &[x(), float(1.0), int(-2)],
        OUT,
        &[(2, int(2)), (2, int(-3)), (1, float(0.0)), (1, float(-1.0))],
    );
    refuses(LOG_SOFTMAX, &[x(), float(1.0), int(1)], OUT, &[(2, int(2)), (2, int(i32::MIN))]);
    refuses(L2_NORMALIZATION, &[x(), int(-1)], OUT, &[(1, int(2)), (1, int(-3))]);
    refuses(MEAN, &[x(), ints(&[-1]), int(0)], OUT, &[(1, ints(&[2])), (1, ints(&[-3]))]);
    refuses(REDUCE_SUM, &[x(), ints(&[0]), boolean(true)], OUT, &[(1, ints(&[2])), (1, ints(&[0, -3]))]);
    refuses(ARGMAX, &[x(), int(-2)], &[TENSOR_INT32], &[(1, int(2)), (1, int(-3))]);
    refuses(EXPAND_DIMS, &[x(), int(2)], OUT, &[(1, int(3)), (1, int(-4))]);
    refuses(REVERSE, &[x(), ints(&[1])], OUT, &[(1, ints(&[2])), (1, ints(&[-1]))]);
    refuses(SQUEEZE, &[f32s(&[1, 6]), ints(&[0])], OUT, &[(1, ints(&[1])), (1, ints(&[2]))]);
    let bad = [ints(&[4]), ints(&[-1, -1]), ints(&[-1, 5]), ints(&[-2, -6]), ints(&[0, -1])]
        .map(|shape| (1, shape));
    refuses(RESHAPE, &[x(), ints(&[3, -1])], OUT, &bad);
    let bad =
        [ints(&[0, 0]), ints(&[0]), ints(&[0, 2]), ints(&[-1, 0]), ints(&[0, 1, 2])].map(|perm| (1, perm));
    refuses(TRANSPOSE, &[x(), ints(&[1, 0])], OUT, &bad);
    refuses(
        CHANNEL_SHUFFLE,
        &[x(), int(3), int(1)],
        OUT,
        &[(1, int(4)), (1, int(0)), (1, int(-3)), (2, int(2))],
    );
    refuses(
        SPLIT,
        &[x(), int(1), int(2)],
        &[TENSOR_FLOAT32; 2],
        &[(1, int(2)), (2, int(3)), (2, int(0)), (2, int(-2))],
    );
    refuses(TOPK_V2, &[x(), int(6)], &[TENSOR_FLOAT32, TENSOR_INT32], &[(1, int(7)), (1, int(-1))]);
    refuses(FILL, &[ints(&[2, 3]), float(1.0)], OUT, &[(0, ints(&[2, -3])), (0, ints(&[1 << 20, 1 << 20]))]);
    refuses(
        TILE,
        &[x(), ints(&[1, 2])],
        OUT,
        &[(1, ints(&[1])), (1, ints(&[1, -1])), (1, ints(&[i32::MAX, 2]))],
    );
}

#[test]
fn places_outside() {
    let x = || f32s(&[2, 6]);
    let bad =
        [(1, ints(&[0, 7])), (1, ints(&[-1, 0])), (2, ints(&[2, 6])), (2, ints(&[2, -2])), (2, ints(&[2]))];
    refuses(SLICE, &[x(), ints(&[0, 1]), ints(&[2, -1])], OUT, &bad);
    let whole = [x(), ints(&[0, 1]), ints(&[1, 6]), ints(&[1, 2]), int(0), int(0), int(1)];
    let bad = [(3, ints(&[1, 0])), (3, ints(&[-1, 1])), (2, ints(&[2, 6])), (1, ints(&[0])), (6, int(3))];
    refuses(STRIDED_SLICE, &whole, OUT, &bad);
    refuses(
        GATHER,
        &[x(), int(1), ints(&[5])],
        OUT,
        &[(2, ints(&[6])), (2, ints(&[-1])), (1, int(2)), (1, int(-3))],
    );
    refuses(EMBEDDING_LOOKUP, &[ints(&[1]), x()], OUT, &[(0, ints(&[2])), (0, ints(&[-1]))]);
    let hits = &[TENSOR_FLOAT32, TENSOR_QUANT8_ASYMM];
    let outputs = [TensorInfo::new(hits[0], &[]), TensorInfo::quantised(hits[1], &[], 1.0, 0)];
    let call =
        |keys: &Value| try_call(HASHTABLE_LOOKUP, &[Some(&ints(&[1])), Some(keys), Some(&x())], &outputs);
    assert!(call(&ints(&[1, 2])).is_ok() && call(&ints(&[1])).is_err());
    refuses(
        PAD,
        &[x(), matrix(2, &[0, 1, 2, 3])],
        OUT,
        &[(1, matrix(2, &[0, -1, 0, 0])), (1, matrix(1, &[0, 0]))],
    );
    let bad = [
        (1, matrix(2, &[2, 0, 0, 0])),
        (1, matrix(2, &[0, 0, 0, 6])),
        (1, matrix(2, &[-1, 0, 0, 0])),
        (2, int(2)),
    ];
    refuses(MIRROR_PAD, &[x(), matrix(2, &[1, 0, 0, 5]), int(0)], OUT, &bad);
    refuses(MIRROR_PAD, &[x(), matrix(2, &[2, 0, 0, 6]), int(1)], OUT, &[(1, matrix(2, &[3, 0, 0, 0]))]);
}

#[test]
fn images_that_do_not_fit() {
    let image = |h, w, c| f32s(&[1, h, w, c]);
    refuses(
        DEPTH_TO_SPACE,
        &[image(2, 2, 4), int(2)],
        OUT,
        &[(0, image(2, 2, 6)), (1, int(0)), (1, int(-2))],
    );
    refuses(
        SPACE_TO_DEPTH,
        &[image(4, 2, 1), int(2)],
        OUT,
        &[(0, image(3, 2, 1)), (1, int(0)), (1, int(-1))],
    );
    let batches = [f32s(&[4, 1, 1, 1]), ints(&[2, 2])];
    let bad = [(0, f32s(&[6, 1, 1, 1])), (1, ints(&[0, 2])), (1, ints(&[2])), (1, ints(&[-2, -2]))];
    refuses(BATCH_TO_SPACE_ND, &batches, OUT, &bad);
    let space = [image(3, 4, 1), ints(&[2, 2]), matrix(2, &[0, 1, 0, 0])];
    let bad = [
        (2, matrix(2, &[0, 0, 0, 0])),
        (2, matrix(2, &[0, -1, 0, 0])),
        (1, ints(&[0, 1])),
        (1, ints(&[2, 3])),
    ];
    refuses(SPACE_TO_BATCH_ND, &space, OUT, &bad);
    for operation in [RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR] {
        let no = || boolean(false);
        let good = [image(2, 2, 1), int(3), int(3), no(), no(), boolean(true)];
        refuses(
            operation,
            &good,
            OUT,
            &[(1, int(0)), (2, int(-1)), (4, boolean(true)), (0, f32s(&[2, 2, 1]))],
        );
        let good = [image(2, 2, 1), float(1.5), float(1.5), no()];
        refuses(operation, &good, OUT, &[(1, float(0.4)), (2, float(-1.0)), (2, float(f64::NAN))]);
    }
    for operation in [AVERAGE_POOL_2D, MAX_POOL_2D, L2_POOL_2D] {
        let good = [vec![image(4, 4, 1)], [1, 1, 1, 1, 1, 1, 2, 2, 0].map(int).to_vec()].concat();
        // Paddings as large as the window, negative ones, no stride, no window, no activation.
        let bad =
            [(1, 2), (4, 2), (2, -1), (5, 0), (6, -1), (7, 0), (8, -2), (9, 5)].map(|(at, n)| (at, int(n)));
        refuses(operation, &good, OUT, &bad);
        refuses(operation, &good, OUT, &[(0, image(0, 4, 1)), (0, f32s(&[4, 4, 1]))]);
    }
}

#[test]
fn convolutions_that_do_not_fit() {
    let image = || f32s(&[1, 4, 4, 2]);
    let numbers = |n: &[i32]| n.iter().map(|&n| int(n)).collect::<Vec<_>>();
    let conv = [vec![image(), f32s(&[3, 2, 2, 2]), f32s(&[3])], numbers(&[1, 0, 0, 1, 1, 1, 0])].concat();
    let operands =
        [(0, f32s(&[1, 4, 4, 3])), (1, f32s(&[3, 2, 2, 3])), (2, f32s(&[2])), (1, f32s(&[3, 5, 6, 2]))];
    refuses(CONV_2D, &conv, OUT, &operands);
    let scalars = [(3, -1), (3, 2), (6, 2), (7, 0), (8, -1), (9, 4)].map(|(at, n)| (at, int(n)));
    refuses(CONV_2D, &conv, OUT, &scalars);
    let dilated = [conv, vec![boolean(false)], numbers(&[1, 2])].concat();
    refuses(CONV_2D, &dilated, OUT, &[(11, int(0)), (12, int(-1)), (12, int(9))]);
    let same = [vec![image(), f32s(&[3, 2, 2, 2]), f32s(&[3])], numbers(&[1, 1, 1, 0])].concat();
    refuses(CONV_2D, &same, OUT, &[(3, int(0)), (3, int(3)), (4, int(0)), (6, int(-1))]);

    let depthwise =
        [vec![image(), f32s(&[1, 2, 2, 4]), f32s(&[4])], numbers(&[1, 0, 0, 1, 1, 1, 2, 0])].concat();
    let operands =
        [(1, f32s(&[2, 2, 2, 4])), (1, f32s(&[1, 2, 2, 5])), (2, f32s(&[3])), (0, f32s(&[1, 4, 4, 3]))];
    refuses(DEPTHWISE_CONV_2D, &depthwise, OUT, &operands);
    let scalars = [(9, 1), (9, 0), (9, -2), (7, 0), (3, -1), (4, 2)].map(|(at, n)| (at, int(n)));
    refuses(DEPTHWISE_CONV_2D, &depthwise, OUT, &scalars);

    let grouped =
        [vec![image(), f32s(&[4, 2, 2, 1]), f32s(&[4])], numbers(&[1, 1, 1, 2, 0]), vec![boolean(false)]]
            .concat();
    let bad = [
        (6, int(0)),
        (6, int(-2)),
        (6, int(3)),
        (6, int(1)),
        (1, f32s(&[3, 2, 2, 1])),
        (2, f32s(&[3])),
        (4, int(0)),
    ];
    refuses(GROUPED_CONV_2D, &grouped, OUT, &bad);

    let filter = || vec![image(), f32s(&[3, 2, 2, 2]), f32s(&[3])];
    let transposed = [filter(), numbers(&[0, 0, 0, 0, 2, 2, 0]), vec![boolean(false)]].concat();
    let bad = [
        (3, int(-1)),
        (5, int(-1)),
        (4, int(9)),
        (7, int(0)),
        (1, f32s(&[3, 2, 2, 1])),
        (2, f32s(&[2])),
        (9, int(4)),
    ];
    refuses(TRANSPOSE_CONV_2D, &transposed, OUT, &bad);
    let shaped = [filter(), vec![ints(&[1, 8, 8, 3])], numbers(&[1, 2, 2, 0]), vec![boolean(false)]].concat();
    let bad = [(3, ints(&[1, 8, 8])), (3, ints(&[1, -8, 8, 3])), (4, int(0)), (5, int(0))];
    refuses(TRANSPOSE_CONV_2D, &shaped, OUT, &bad);
}

#[test]
fn regions_and_boxes_that_are_none() {
    let box_at = |corners: [f64; 4]| floats(&[1, 4], &corners);
    let wrong = || [[3.0, 0.0, 1.0, 1.0], [0.0, 3.0, 1.0, 1.0], [f64::NAN, 0.0, 1.0, 1.0]].map(box_at);
    let outside = || [[-1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 9.0, 1.0], [0.0, 0.0, 1.0, 9.0]].map(box_at);
    let features = || {
        vec![
            f32s(&[1, 4, 4, 2]),
            box_at([0.0, 0.0, 4.0, 4.0]),
            ints(&[0]),
            int(2),
            int(2),
            float(1.0),
            float(1.0),
        ]
    };
    let bad: Vec<(usize, Value)> = wrong()
        .into_iter()
        .chain(outside())
        .map(|value| (1, value))
        .chain([
            (2, ints(&[1])),
            (2, ints(&[-1])),
            (3, int(0)),
            (4, int(-1)),
            (5, float(0.0)),
            (6, float(-1.0)),
        ])
        .collect();
    refuses(ROI_POOLING, &[features(), vec![boolean(false)]].concat(), OUT, &bad);
    let align = [features(), vec![int(0), int(2), boolean(false)]].concat();
    refuses(ROI_ALIGN, &align, OUT, &bad);
    refuses(ROI_ALIGN, &align, OUT, &[(7, int(-1)), (8, int(-2))]);

    let heat = [f32s(&[1, 3, 3, 1]), box_at([0.0, 0.0, 4.0, 4.0]), boolean(false)];
    let pair = &[TENSOR_FLOAT32; 2];
    refuses(HEATMAP_MAX_KEYPOINT, &heat, pair, &wrong().map(|value| (1, value)));
    refuses(
        HEATMAP_MAX_KEYPOINT,
        &heat,
        pair,
        &[(0, f32s(&[1, 3, 2, 1])), (0, f32s(&[1, 1, 1, 1])), (0, f32s(&[2, 3, 3, 1]))],
    );

    let transform = [box_at([0.0, 0.0, 4.0, 4.0]), f32s(&[1, 8]), ints(&[0]), f32s(&[1, 2])];
    refuses(AXIS_ALIGNED_BBOX_TRANSFORM, &transform, OUT, &wrong().map(|value| (0, value)));
    let bad = [(1, f32s(&[1, 6])), (1, f32s(&[2, 8])), (2, ints(&[1])), (2, ints(&[-1])), (3, f32s(&[1, 3]))];
    refuses(AXIS_ALIGNED_BBOX_TRANSFORM, &transform, OUT, &bad);

    let boxes = |last: [f64; 4]| floats(&[1, 8], &[[0.0, 0.0, 1.0, 1.0], last].concat());
    let numbers = [float(0.1), int(-1), int(0), float(0.5), float(0.5), float(0.1)];
    let nms = [vec![f32s(&[1, 2]), boxes([0.0; 4]), ints(&[0])], numbers.to_vec()].concat();
    let outputs = &[TENSOR_FLOAT32, TENSOR_FLOAT32, TENSOR_INT32, TENSOR_INT32];
    let bad =
        [(1, boxes([2.0, 0.0, 1.0, 1.0])), (5, int(3)), (5, int(-1)), (0, f32s(&[1, 3])), (2, ints(&[0, 0]))];
    refuses(BOX_WITH_NMS_LIMIT, &nms, outputs, &bad);
}
