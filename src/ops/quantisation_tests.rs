//! Tests that operations which take bytes over as they are give no output of other units.

use super::lookup::{EMBEDDING_LOOKUP, HASHTABLE_LOOKUP};
use super::movement::*;
use super::pool::{AVERAGE_POOL_2D, MAX_POOL_2D};
use super::resize::{RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR};
use super::search::TOPK_V2;
use super::testing::{boolean, call, i32s, int, tensor, Tensor};
use super::{OpError, Operation};
use crate::tensor::OperandType::*;
use crate::tensor::TensorInfo;

/// Bytes in the units of inputs.
fn bytes(dims: &[u32]) -> Tensor {
    let count = dims.iter().product::<u32>() as usize;
    tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM, dims, 0.5, 3), &vec![7u8; count])
}

fn info(scale: f32, zero_point: i32) -> TensorInfo {
    TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], scale, zero_point)
}

/// Calls `operation` for a first output of these units.
fn called(
    operation: &Operation,
    inputs: &[Tensor],
    units: (f32, i32),
    others: &[TensorInfo],
) -> Result<(), OpError> {
    let inputs: Vec<_> = inputs.iter().cloned().map(Some).collect();
    call(operation, &inputs, &[&[info(units.0, units.1)][..], others].concat()).map(drop)
}

fn keeps(operation: &Operation, inputs: &[Tensor], others: &[TensorInfo]) {
    assert_eq!(called(operation, inputs, (0.5, 3), others), Ok(()), "{}", operation.ty);
    for units in [(0.25, 3), (0.5, 4)] {
        let result = called(operation, inputs, units, others);
        let differ = result.as_ref().is_err_and(|why| why.to_string().contains("differ"));
        assert!(differ, "{} of {units:?}: {result:?}", operation.ty);
    }
}

#[test]
fn movements_keep_units() {
    let square = bytes(&[2, 2]);
    let image = bytes(&[1, 2, 2, 1]);
    keeps(&RESHAPE, &[square.clone(), i32s(&[1], &[4])], &[]);
    keeps(&SQUEEZE, &[bytes(&[1, 2]), i32s(&[1], &[0])], &[]);
    keeps(&EXPAND_DIMS, &[square.clone(), int(0)], &[]);
    keeps(&TRANSPOSE, &[square.clone(), i32s(&[2], &[1, 0])], &[]);
    keeps(&PAD, &[bytes(&[2]), i32s(&[1, 2], &[1, 1])], &[]);
    keeps(&PAD_V2, &[bytes(&[2]), i32s(&[1, 2], &[1, 1]), int(0)], &[]);
    keeps(&BATCH_TO_SPACE_ND, &[bytes(&[4, 1, 1, 1]), i32s(&[2], &[2, 2])], &[]);
    keeps(&SPACE_TO_BATCH_ND, &[image.clone(), i32s(&[2], &[2, 2]), i32s(&[2, 2], &[0; 4])], &[]);
    keeps(&DEPTH_TO_SPACE, &[bytes(&[1, 1, 1, 4]), int(2)], &[]);
    keeps(&SPACE_TO_DEPTH, &[image, int(2)], &[]);
    keeps(&TILE, &[bytes(&[2]), i32s(&[1], &[2])], &[]);
    keeps(&CHANNEL_SHUFFLE, &[bytes(&[1, 4]), int(2), int(1)], &[]);
    keeps(&GATHER, &[bytes(&[2]), int(0), i32s(&[1], &[1])], &[]);
    let one = || i32s(&[1], &[1]);
    keeps(&STRIDED_SLICE, &[bytes(&[2]), i32s(&[1], &[0]), one(), one(), int(0), int(0), int(0)], &[]);
    // Each part: one of other units is enough.
    let parts = [square, int(0), int(2)];
    keeps(&SPLIT, &parts, &[info(0.5, 3)]);
    assert!(called(&SPLIT, &parts, (0.5, 3), &[info(0.5, 4)]).is_err());
    // The interface does not ask it of SLICE.
    assert_eq!(called(&SLICE, &[bytes(&[2]), i32s(&[1], &[0]), one()], (0.25, 4), &[]), Ok(()));
}

#[test]
fn pools_and_searches_keep_units() {
    let image = || bytes(&[1, 2, 2, 1]);
    let pooled = [image(), int(1), int(1), int(1), int(2), int(2), int(0)];
    keeps(&AVERAGE_POOL_2D, &pooled, &[]);
    keeps(&MAX_POOL_2D, &pooled, &[]);
    keeps(&RESIZE_BILINEAR, &[image(), int(3), int(3)], &[]);
    keeps(&RESIZE_NEAREST_NEIGHBOR, &[image(), int(3), int(3), boolean(false)], &[]);
    keeps(&TOPK_V2, &[bytes(&[2]), int(1)], &[TensorInfo::new(TENSOR_INT32, &[])]);
    let first = || i32s(&[1], &[0]);
    keeps(&EMBEDDING_LOOKUP, &[first(), bytes(&[2, 2])], &[]);
    let found = [first(), first(), bytes(&[1, 2])];
    keeps(&HASHTABLE_LOOKUP, &found, &[info(1.0, 0)]);
    for (scale, zero_point) in [(0.5, 0), (1.0, 1)] {
        assert!(called(&HASHTABLE_LOOKUP, &found, (0.5, 3), &[info(scale, zero_point)]).is_err());
    }
}
