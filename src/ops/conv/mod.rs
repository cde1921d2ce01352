//! Convolutions, and the weighted sums they share with fully connected layers.
//!
//! A backend with fast kernels reads a call through the same geometry structs ([`ConvGeometry`], [`DepthwiseGeometry`],
//! [`TransposeGeometry`]) and rescales by the same [`ChannelRequant`]; only the loops are its own.

mod conv_2d;
mod depthwise;
mod geometry;
mod grouped;
mod requant;
mod transpose;
mod weighted_sums;

pub use conv_2d::CONV_2D;
pub use depthwise::{DepthwiseGeometry, DEPTHWISE_CONV_2D};
pub use geometry::ConvGeometry;
pub use grouped::GROUPED_CONV_2D;
pub use requant::ChannelRequant;
pub use transpose::{TransposeGeometry, TransposeWindow, TRANSPOSE_CONV_2D};
pub use weighted_sums::{accumulate_rows, dot, evaluate, Number, WeightedSums};

use super::signature::{var, Row, Slot};
use super::{Args, OpError};
use crate::ops::image::expect_rank;
use crate::tensor::OperandType::*;

/// Index of the signature with a padding scheme; the other one has explicit paddings.
const IMPLICIT: usize = 0;

const TENSORS: [Slot; 3] = [var("input", 0), var("filter", 1), var("bias", 2)];

const OUTPUT: &[Slot] = &[var("output", 0)];

/// Types of input, filter and bias (the output has the input's) of operations that came with feature level 1.
const ROWS: &[Row] = &[
    Row(1, &[TENSOR_FLOAT32, TENSOR_FLOAT32, TENSOR_FLOAT32]),
    Row(3, &[TENSOR_FLOAT16, TENSOR_FLOAT16, TENSOR_FLOAT16]),
    Row(1, &[TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM, TENSOR_INT32]),
    Row(3, &[TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_SYMM_PER_CHANNEL, TENSOR_INT32]),
    Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED, TENSOR_QUANT8_ASYMM_SIGNED, TENSOR_INT32]),
    Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED, TENSOR_QUANT8_SYMM_PER_CHANNEL, TENSOR_INT32]),
];

/// The same of operations that came with feature level 3.
const ROWS_FROM_3: &[Row] = &[
    Row(3, ROWS[0].1),
    Row(3, ROWS[1].1),
    Row(3, ROWS[2].1),
    Row(3, ROWS[3].1),
    Row(4, ROWS[4].1),
    Row(4, ROWS[5].1),
];

/// An error if the filter's scales do not run along its dimension `dim`.
fn check_channel_dim(args: &Args, dim: u32) -> Result<(), OpError> {
    match args.get(1)?.channel_quant() {
        Some(quant) if quant.dim != dim => Err(OpError::failed(format!(
            "the filter's scales run along dimension {}, expected {dim}",
            quant.dim
        ))),
        _ => Ok(()),
    }
}

/// Sizes of the filter (rank 4) in order, after checks that no size is 0, and that the bias and the scales go with the
/// filter's output channels, its dimension `channel_dim`.
fn filter_dims(args: &Args, channel_dim: usize) -> Result<[u32; 4], OpError> {
    let (input, filter, bias) = (args.get(0)?, args.get(1)?, args.get(2)?);
    expect_rank(&filter, "filter", 4)?;
    expect_rank(&bias, "bias", 1)?;
    let dims = [filter.dim(0), filter.dim(1), filter.dim(2), filter.dim(3)];
    if dims.contains(&0) {
        return Err(OpError::failed(format!("filter of {dims:?}: no dimension may be zero")));
    }
    if bias.dim(0) != dims[channel_dim] {
        return Err(OpError::failed(format!(
            "{} bias elements for {} output channels",
            bias.dim(0),
            dims[channel_dim]
        )));
    }
    if !input.ty().is_float() {
        ChannelRequant::check(input.info, filter.info, bias.info, dims[channel_dim] as usize)?;
    }
    Ok(dims)
}
