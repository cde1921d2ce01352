//! FULLY_CONNECTED: rows of the input times the packed weights.

use super::conv::{dynamic, float, quant};
use super::gemm::{Product, Rows, Shape};
use super::isa::Isa;
use super::{Kernel, Source};
use crate::ops::Args;
use crate::tensor::OperandType;

/// A kernel for this call of FULLY_CONNECTED.
pub(super) fn select(isa: Isa, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    let (input, weights) = (args.get(0).ok()?, args.get(1).ok()?);
    let activation = args.activation(3).ok()?;
    let (columns, depth) = (weights.dim(0) as usize, weights.dim(1) as usize);
    if columns == 0 || depth == 0 {
        return None;
    }
    let shape = Shape { columns, segments: 1, depth };
    match input.ty() {
        OperandType::TENSOR_FLOAT32 => {
            if let Some(packed) = dynamic(isa, args, shape, activation, source) {
                return Some(Box::new(Product { packed, rows: Rows::Matrix }));
            }
            let rows = input.count().ok()? / depth;
            let packed = float(isa, args, (rows, shape), activation, None, source)?;
            Some(Box::new(Product { packed, rows: Rows::Matrix }))
        }
        ty if ty.is_quant8_asymm() => {
            let packed = quant(isa, args, shape, activation, (false, 0), None, source)?;
            Some(Box::new(Product { packed, rows: Rows::Matrix }))
        }
        _ => None,
    }
}
