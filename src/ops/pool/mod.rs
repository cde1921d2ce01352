//! Pools: each channel of a window reduced to one value.
//!
//! A backend with fast kernels reads a call through [`PoolGeometry`]; only the loops are its own.

mod average;
mod geometry;
mod l2;
mod max;

pub use average::AVERAGE_POOL_2D;
pub use geometry::PoolGeometry;
pub use l2::L2_POOL_2D;
pub use max::MAX_POOL_2D;

use super::image::{EXPLICIT_STRIDES, IMPLICIT_STRIDES};
use super::signature::{boolean, int, join, var, Row, Slot};
use super::Signature;
use crate::tensor::OperandType::*;

/// Index of the signature with a padding scheme; the other one has explicit paddings.
const IMPLICIT: usize = 0;

/// Types of pools that work on quantised types too.
const ROWS: &[Row] = &[
    Row(1, &[TENSOR_FLOAT32]),
    Row(3, &[TENSOR_FLOAT16]),
    Row(1, &[TENSOR_QUANT8_ASYMM]),
    Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
];

const INPUT: [Slot; 1] = [var("input", 0)];
const REST: [Slot; 4] = [int("filter width"), int("filter height"), int("activation"), boolean("nchw")];
const OUTPUT: &[Slot] = &[var("output", 0)];

/// The two ways to call any pool.
const fn signatures(rows: &'static [Row]) -> [Signature; 2] {
    const IMPLICIT: [Slot; 8] = join(&[&INPUT, &IMPLICIT_STRIDES, &REST]);
    const EXPLICIT: [Slot; 11] = join(&[&INPUT, &EXPLICIT_STRIDES, &REST]);
    [
        Signature::new(rows, &IMPLICIT, OUTPUT).input_counts(&[7, 8]),
        Signature::new(rows, &EXPLICIT, OUTPUT).input_counts(&[10, 11]),
    ]
}
