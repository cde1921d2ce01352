//! DEPTHWISE_CONV_2D by rows: what all outputs of a row need lies in a few rows of the input.

mod float;
mod instructions;
mod layout;
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

use super::isa::Isa;
use super::{Kernel, Source};
use crate::ops::conv::DepthwiseGeometry;
use crate::ops::Args;
use crate::tensor::OperandType;

/// A kernel for this call of DEPTHWISE_CONV_2D.
pub(super) fn select(isa: Isa, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    let geometry = DepthwiseGeometry::from_args(args).ok().filter(rows::are_small)?;
    match args.get(0).ok()?.ty() {
        OperandType::TENSOR_FLOAT32 => float::select(isa, geometry, args, source),
        ty if ty.is_quant8_asymm() => {
            if let Some(column) = whole::column(&geometry) {
                return Some(Box::new(whole::Whole(quantised::kernel(column, true, args, source)?)));
            }
            Some(Box::new(quantised::kernel(geometry, false, args, source)?))
        }
        _ => None,
    }
}
