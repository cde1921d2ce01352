//! DEPTHWISE_CONV_2D by rows: what all outputs of a row need lies in a few rows of the input.

mod float;
mod instructions;
mod layout;
mod neighbours;
mod packed;
mod packing;
mod pixels;
mod quads;
#[cfg(target_arch = "aarch64")]
mod quads_neon;
mod quantised;
mod rows;
#[cfg(target_arch = "aarch64")]
mod slide;
mod strips;
#[cfg(test)]
mod tests;
mod under;
mod whole;
#[cfg(target_arch = "x86_64")]
mod wide;
#[cfg(target_arch = "x86_64")]
mod words;
#[cfg(target_arch = "x86_64")]
mod words_packing;

use super::isa::Isa;
use super::{Kernel, Source};
use crate::ops::conv::{ConvGeometry, DepthwiseGeometry};
use crate::ops::Args;
use crate::tensor::OperandType;

/// A kernel for this call of GROUPED_CONV_2D if each of its groups is one channel, which has one output, and of floats.
pub(super) fn select_grouped(isa: Isa, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    let ConvGeometry { input, height, width, out_channels, groups, activation, nchw } =
        ConvGeometry::from_grouped_args(args).ok()?;
    let is_float = args.get(0).ok()?.ty() == OperandType::TENSOR_FLOAT32;
    if !is_float || [groups, out_channels] != [input.channels; 2] {
        return None;
    }
    let geometry = DepthwiseGeometry { input, height, width, multiplier: 1, activation, nchw };
    float::select(isa, Some(geometry).filter(rows::are_small)?, true, args, source)
}

/// A kernel for this call of DEPTHWISE_CONV_2D.
pub(super) fn select(isa: Isa, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    let geometry = DepthwiseGeometry::from_args(args).ok().filter(rows::are_small)?;
    match args.get(0).ok()?.ty() {
        OperandType::TENSOR_FLOAT32 => float::select(isa, geometry, false, args, source),
        ty if ty.is_quant8_asymm() => {
            if let Some(column) = whole::column(&geometry) {
                return Some(Box::new(whole::Whole(quantised::kernel(column, true, args, source)?)));
            }
            Some(Box::new(quantised::kernel(geometry, false, args, source)?))
        }
        _ => None,
    }
}
