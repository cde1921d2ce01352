//! Tests that plain evaluations give their turn up amid one long unit: a row, a region, a heatmap. What is counted is yield
//! points, not time.

use super::conv::{CONV_2D, DEPTHWISE_CONV_2D, GROUPED_CONV_2D};
use super::detection::*;
use super::elementwise::EQUAL;
use super::evaluate::evaluate;
use super::lookup::HASHTABLE_LOOKUP;
use super::matmul::{BATCH_MATMUL, FULLY_CONNECTED};
use super::movement::MIRROR_PAD;
use super::pool::MAX_POOL_2D;
use super::random::{LSH_PROJECTION, RANDOM_MULTINOMIAL};
use super::resize::{RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR};
use super::search::{ARGMAX, TOPK_V2};
use super::testing::{boolean, f32s, float, i32s, int, tensor, Counting, Tensor};
use super::{Arg, Operation, OperationType};
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
        TENSOR_QUANT8_ASYMM | TENSOR_QUANT8_ASYMM_SIGNED => TensorInfo::quantised(ty, &[], 1.0, 0),
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
    let lanes = i32s(&[1, MANY as u32], &vec![1; MANY]);
    // To make room for the best of each lane, to take the first, and to compare: each comes by as many.
    assert!(yield_points(&ARGMAX, &[lanes, int(0)], &[TENSOR_INT32]) >= 3 * (MANY >> 16));
    let (key, hit) = (i32s(&[1], &[7]), TENSOR_QUANT8_ASYMM);
    gives_way(&HASHTABLE_LOOKUP, &[key.clone(), key, row], &[TENSOR_FLOAT32, hit]);
}

#[test]
fn units_of_nothing() {
    let many = MANY as u32;
    let (hash, hashed) = (f32s(&[many, 0], &[]), i32s(&[0, 1], &[]));
    let sparse =
        yield_points(&LSH_PROJECTION, &[hash, hashed.clone(), f32s(&[0], &[]), int(1)], &[TENSOR_INT32]);
    assert!(sparse >= MANY >> 16, "{sparse} yield points");
    let hash = f32s(&[many / 32, 32], &scores(MANY));
    let dense = yield_points(&LSH_PROJECTION, &[hash, hashed, f32s(&[0], &[]), int(2)], &[TENSOR_INT32]);
    assert!(dense >= MANY >> 16, "{dense} yield points");
    let heat = [f32s(&[many, 2, 2, 0], &[]), f32s(&[many, 4], &vec![0.0; 4 * MANY]), boolean(false)];
    gives_way(&HEATMAP_MAX_KEYPOINT, &heat, &[TENSOR_FLOAT32, TENSOR_FLOAT32]);
    let info = |dims: &[u32]| TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, dims, 1.0, 7);
    let [left, right] = [[many, 0], [0, 2]].map(|dims| tensor(info(&dims), &[0i8; 0]));
    let product = [left, right, boolean(false), boolean(false)];
    gives_way(&BATCH_MATMUL, &product, &[TENSOR_QUANT8_ASYMM_SIGNED]);
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
fn pixels_on_pages_of_their_own() {
    const ROWS: usize = 1 << 13;
    const ROW: usize = 1024;
    let image = f32s(&[1, ROWS as u32, ROW as u32, 1], &vec![1.0; ROWS * ROW]);
    let one = |rank| f32s(&vec![1; rank], &[1.0]);
    let (size, steps) = ([int(1), int(ROWS as i32), boolean(false)], [0, 0, 0, 0, ROW as i32, 1].map(int));
    let pool = [&steps[..], &[1, 1, 0].map(int)].concat();
    let conv = [&[one(4), one(1)][..], &steps, &[int(0)]].concat();
    let depthwise = [&[one(4), one(1)][..], &steps, &[1, 0].map(int)].concat();
    for (operation, rest) in [
        (&RESIZE_NEAREST_NEIGHBOR, &size[..]),
        (&RESIZE_BILINEAR, &size),
        (&MAX_POOL_2D, &pool),
        (&CONV_2D, &conv),
        (&DEPTHWISE_CONV_2D, &depthwise),
    ] {
        let passed = yield_points(operation, &[&[image.clone()][..], rest].concat(), &[TENSOR_FLOAT32]);
        assert!(passed >= ROWS >> 7, "{}: {passed} yield points", operation.ty);
    }
}

#[test]
fn steps_along_many_dimensions() {
    let (rows, rank) = (1 << 14, 255);
    let zeros =
        |rows: usize, rank: usize| f32s(&[&[rows as u32][..], &vec![1; rank - 1]].concat(), &vec![0.0; rows]);
    let passed = yield_points(&EQUAL, &[zeros(rows, rank), zeros(1, 1)], &[TENSOR_BOOL8]);
    assert!(passed >= (rows * rank) >> 18, "{passed} yield points");
}

#[test]
fn one_long_region() {
    let side = MANY.isqrt() as u32;
    let (features, last) = (f32s(&[1, side, side, 1], &scores(MANY)), side as f32 - 1.0);
    let region = f32s(&[1, 4], &[0.0, 0.0, last, last]);
    let heat = [features.clone(), region.clone(), boolean(false)];
    gives_way(&HEATMAP_MAX_KEYPOINT, &heat, &[TENSOR_FLOAT32, TENSOR_FLOAT32]);
    let grid = [i32s(&[1], &[0]), int(1), int(1), float(1.0), float(1.0)];
    let row = [f32s(&[1, 1, MANY as u32, 1], &scores(MANY)), f32s(&[1, 4], &[0.0, 0.0, MANY as f32, 0.0])];
    let pooled = [&row[..], &grid, &[boolean(false)]].concat();
    gives_way(&ROI_POOLING, &pooled, &[TENSOR_FLOAT32]);
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

/// Yield points of a vector that is filled.
const FILLED: usize = (MANY >> 15) - 1;
/// Yield points of a pass over `MANY` elements, each of which is a step.
const PASS: usize = MANY >> 16;

fn flat(dims: &[u32]) -> Tensor {
    f32s(dims, &vec![0.5; dims.iter().product::<u32>() as usize])
}

/// Checks that a call fills so many vectors of `MANY` elements, and goes over them so many times.
fn goes_over(operation: &Operation, inputs: &[Tensor], filled: usize, passes: usize) {
    let output = if operation.ty == OperationType::LSH_PROJECTION { TENSOR_INT32 } else { TENSOR_FLOAT32 };
    let passed = yield_points(operation, inputs, &[output]);
    assert!(passed >= filled * FILLED + passes * PASS, "{}: {passed} yield points", operation.ty);
}

#[test]
fn one_sum_of_very_many_products() {
    const HALF: u32 = MANY as u32 / 2;
    let row = flat(&[1, MANY as u32]);
    goes_over(&FULLY_CONNECTED, &[row.clone(), row.clone(), f32s(&[1], &[0.0]), int(0)], 0, 1);
    let flags = [boolean(false), boolean(true)];
    goes_over(&BATCH_MATMUL, &[&[row.clone(), row][..], &flags].concat(), 0, 2);
    // The filter is put in order, and then multiplied within the only pixel.
    let grouped = [flat(&[1, 1, 1, MANY as u32]), flat(&[2, 1, 1, HALF]), f32s(&[2], &[0.0; 2])];
    let rest = [1, 1, 1, 2, 0].map(int);
    goes_over(&GROUPED_CONV_2D, &[&grouped[..], &rest, &[boolean(false)]].concat(), 0, 2);
}

#[test]
fn one_pixel_of_very_many_channels() {
    let pixel = flat(&[1, 1, 1, MANY as u32]);
    let sized = [pixel.clone(), int(1), int(1), boolean(false)];
    goes_over(&RESIZE_NEAREST_NEIGHBOR, &sized, 0, 1);
    goes_over(&RESIZE_BILINEAR, &sized, 1, 2);
    let window = [1, 1, 1, 1, 1, 0].map(int);
    // Started, folded, finished, stored.
    goes_over(&MAX_POOL_2D, &[&[pixel.clone()][..], &window].concat(), 2, 4);
    let tensors = [pixel.clone(), pixel, flat(&[MANY as u32])];
    let rest = [1, 1, 1, 1, 0].map(int);
    goes_over(&DEPTHWISE_CONV_2D, &[&tensors[..], &rest].concat(), 2, 4);
}

#[test]
fn one_item_of_very_many_bytes() {
    let seeds = f32s(&[1, 1], &[0.5]);
    goes_over(&LSH_PROJECTION, &[seeds, flat(&[1, MANY as u32]), f32s(&[1], &[1.0]), int(2)], 0, 3);
}
