//! BATCH_MATMUL: pairs of matrices, of which neither need be constant.

use super::gemm::{Pairs, Requantisation, Zeros};
use super::isa::Isa;
use super::Kernel;
use crate::ops::conv::ChannelRequant;
use crate::ops::matmul::BatchMatmulGeometry;
use crate::ops::Args;
use crate::tensor::requant::Activation;
use crate::tensor::OperandType;

/// A kernel for this call of BATCH_MATMUL.
pub(super) fn select(isa: Isa, args: &Args) -> Option<Box<dyn Kernel>> {
    let geometry = BatchMatmulGeometry::from_args(args).ok()?;
    let (left, right, output) = (args.get(0).ok()?, args.get(1).ok()?, args.output(0).ok()?);
    if left.count().ok()? == 0 || right.count().ok()? == 0 {
        return None;
    }
    match left.ty() {
        OperandType::TENSOR_FLOAT32 => Some(Box::new(Pairs::float(isa, geometry)?)),
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => {
            let requant =
                ChannelRequant::new(left.info, right.info, output, 1, Activation::None, args.interrupt)
                    .ok()?;
            let requantisation = Requantisation {
                multipliers: &requant.multipliers,
                ty: output.ty,
                zero: requant.zero_point,
                range: requant.range,
                once: false,
                interrupt: args.interrupt,
            };
            let zeros = Zeros {
                signed_inputs: true,
                input: left.zero_point(),
                signed_weights: true,
                weight: right.zero_point(),
            };
            Some(Box::new(Pairs::quant(isa, geometry, zeros, &requantisation)?))
        }
        _ => None,
    }
}
