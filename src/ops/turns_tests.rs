//! Tests that plain evaluations give their turn up amid one long unit: a row, a region, a heatmap. What is counted is yield
//! points, not time.

use super::detection::*;
use super::evaluate::evaluate;
use super::lookup::HASHTABLE_LOOKUP;
use super::movement::MIRROR_PAD;
use super::random::RANDOM_MULTINOMIAL;
use super::search::TOPK_V2;
use super::testing::{boolean, f32s, float, i32s, int, Counting, Tensor};
use super::{Arg, Operation};
use crate::tensor::OperandType::{self, *};
use crate::tensor::TensorInfo;

/// Elements of the long unit.
const MANY: usize = 1 << 20;
/// Elements that may be worked on between two yield points.
const MOST: usize = 1 << 17;

/// Checks that a call over `MANY` elements comes by as many yield points as it must.
fn gives_way(operation: &Operation, inputs: &[Tensor], outputs: &[OperandType]) {
    let passed = yield_points(operation, inputs, outputs);
    assert!(passed >= MANY / MOST, "{}: {passed} yield points", operation.ty);
}

fn yield_points(operation: &Operation, inputs: &[Tensor], outputs: &[OperandType]) -> usize {
    let args: Vec<_> = inputs.iter().map(|t| Some(Arg { info: &t.info, data: Some(&t.data) })).collect();
    let output = |&ty: &OperandType| match ty {
        TENSOR_QUANT8_ASYMM => TensorInfo::quantised(ty, &[], 1.0, 0),
        _ => TensorInfo::new(ty, &[]),
    };
    let outputs: Vec<_> = outputs.iter().map(output).collect();
    let interrupt = Counting::default();
    evaluate(operation, &args, &outputs, &interrupt).expect("evaluated");
    interrupt.take()
}

fn scores(count: usize) -> Vec<f32> {
    (0..count as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 12) as f32 / (1 << 20) as f32).collect()
}

#[test]
fn one_long_row() {
    let row = f32s(&[1, MANY as u32], &scores(MANY));
    for k in [1, 1000, 100_000] {
        gives_way(&TOPK_V2, &[row.clone(), int(k)], &[TENSOR_FLOAT32, TENSOR_INT32]);
    }
    gives_way(&RANDOM_MULTINOMIAL, &[row.clone(), int(1), i32s(&[2], &[1, 2])], &[TENSOR_INT32]);
    let (key, hit) = (i32s(&[1], &[7]), TENSOR_QUANT8_ASYMM);
    gives_way(&HASHTABLE_LOOKUP, &[key.clone(), key, row], &[TENSOR_FLOAT32, hit]);
}

#[test]
fn elements_that_lie_apart() {
    let mirrored = |dims: &[u32], pads: [i32; 4]| {
        let input = f32s(dims, &vec![1.0; MANY]);
        yield_points(&MIRROR_PAD, &[input, i32s(&[2, 2], &pads), int(1)], &[TENSOR_FLOAT32])
    };
    // Each may lie on a page that was not touched yet.
    let apart = mirrored(&[MANY as u32, 1], [0, 0, 1, 1]);
    assert!(apart >= (2 * MANY) >> 12, "{apart} yield points");
    // Copied whole at the end: half a megabyte or less at a time.
    let rows = mirrored(&[8, MANY as u32 / 8], [1, 0, 0, 0]);
    assert!(rows >= ((MANY + MANY / 8) * 5) >> 17, "{rows} yield points");
}

#[test]
fn one_long_region() {
    let side = MANY.isqrt() as u32;
    let (features, last) = (f32s(&[1, side, side, 1], &scores(MANY)), side as f32 - 1.0);
    let region = f32s(&[1, 4], &[0.0, 0.0, last, last]);
    let heat = [features.clone(), region.clone(), boolean(false)];
    gives_way(&HEATMAP_MAX_KEYPOINT, &heat, &[TENSOR_FLOAT32, TENSOR_FLOAT32]);
    let grid = [i32s(&[1], &[0]), int(1), int(1), float(1.0), float(1.0)];
    let pooled = [&[features, region][..], &grid, &[boolean(false)]].concat();
    gives_way(&ROI_POOLING, &pooled, &[TENSOR_FLOAT32]);
    let deep = [f32s(&[1, 1, 1, MANY as u32], &scores(MANY)), f32s(&[1, 4], &[0.0, 0.0, 1.0, 1.0])];
    let aligned = [&deep[..], &grid, &[int(1), int(1), boolean(false)]].concat();
    gives_way(&ROI_ALIGN, &aligned, &[TENSOR_FLOAT32]);
}

#[test]
fn many_boxes_of_one_image() {
    let count = MANY as u32;
    let boxes = f32s(&[count, 4], &[0.0, 0.0, 1.0, 1.0].repeat(MANY));
    let transformed = [
        boxes.clone(),
        f32s(&[count, 4], &vec![0.0; 4 * MANY]),
        i32s(&[count], &vec![0; MANY]),
        f32s(&[1, 2], &[2.0; 2]),
    ];
    gives_way(&AXIS_ALIGNED_BBOX_TRANSFORM, &transformed, &[TENSOR_FLOAT32]);
    // All of a score that is below the threshold: what takes long is to look at them.
    let postprocessed = [
        f32s(&[1, count, 2], &vec![0.0; 2 * MANY]),
        f32s(&[1, count, 4], &vec![0.0; 4 * MANY]),
        boxes,
        float(1.0),
        float(1.0),
        float(1.0),
        float(1.0),
        boolean(false),
        int(1),
        int(1),
        int(1),
        float(0.5),
        float(0.5),
        boolean(false),
    ];
    let outputs = [TENSOR_FLOAT32, TENSOR_FLOAT32, TENSOR_INT32, TENSOR_INT32];
    gives_way(&DETECTION_POSTPROCESSING, &postprocessed, &outputs);
    let limited = [
        f32s(&[count, 2], &vec![0.0; 2 * MANY]),
        f32s(&[count, 8], &[0.0, 0.0, 1.0, 1.0].repeat(2 * MANY)),
        i32s(&[count], &vec![0; MANY]),
        float(0.5),
        int(-1),
        int(0),
        float(0.5),
        float(1.0),
        float(0.5),
    ];
    gives_way(&BOX_WITH_NMS_LIMIT, &limited, &outputs);
    // None is large enough.
    let proposed = [
        f32s(&[1, 1, 1, count], &scores(MANY)),
        f32s(&[1, 1, 1, 4 * count], &vec![0.0; 4 * MANY]),
        f32s(&[count, 4], &[0.0, 0.0, 1.0, 1.0].repeat(MANY)),
        f32s(&[1, 2], &[2.0; 2]),
        float(1.0),
        float(1.0),
        int(1000),
        int(1),
        float(0.5),
        float(9.0),
        boolean(false),
    ];
    gives_way(&GENERATE_PROPOSALS, &proposed, &[TENSOR_FLOAT32, TENSOR_FLOAT32, TENSOR_INT32]);
}
