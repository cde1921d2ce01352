//! One kernel for several calls that all go back to one operand, and each make an element of the same element, or a row of the
//! same row.
//!
//! Bytes have but 256 values: whatever a list of calls makes bytes of them, be it by floats, their plain evaluations on all of
//! these make a table. Of floats what networks write most often, `x * logistic(x)` and the same with a polynomial of `x` in it, is
//! one loop; the rest goes tile by tile.

mod bent;
mod call;
mod tiles;

use super::elementwise::loops::map;
use super::elementwise::math::swish;
use super::elementwise::table::Table;
use super::vector::{fused, Level};
use super::Kernel;
use crate::ops::{evaluate, OperationType};
use crate::tensor::requant::Activation;
use crate::tensor::{OperandType, TensorInfo};
pub use call::{Call as MergedCall, Input};
use call::{Call, Tile};
use tiles::Tiles;

/// Elements that a row may have whose calls are merged: it is done at one go, and is to stay in a near cache.
pub const LONGEST_ROW: usize = 4096;

/// Whether the operation makes of each lane, which may be a row, one element or as many.
pub fn is_of_lanes(ty: OperationType) -> bool {
    use OperationType::{LOG_SOFTMAX, MEAN, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM, SOFTMAX};
    [LOG_SOFTMAX, MEAN, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM, SOFTMAX].contains(&ty)
}

/// A kernel that makes of `operand` what the last of these calls does, which has the operand's dimensions. All others have
/// them, too, or of floats but one element for each row. The last makes bytes if the operand is of bytes.
pub fn merge(operand: &TensorInfo, calls: &[Call]) -> Option<Box<dyn Kernel>> {
    match operand.ty {
        OperandType::TENSOR_FLOAT32 if is_swish(calls) => fused!(Level::detect(), map(SWISH, swish::<FUSED>)),
        OperandType::TENSOR_FLOAT32 => {
            bent::select(calls).or_else(|| Some(Box::new(Tiles::new(operand, calls)?)))
        }
        ty if ty.is_quant8_asymm() => Some(Box::new(Table::new(table(operand, calls)?))),
        _ => None,
    }
}

/// What an element takes, in picoseconds.
const SWISH: usize = 700;

fn is_swish(calls: &[Call]) -> bool {
    let [sigmoid, product] = calls else { return false };
    let types = [sigmoid.operation.ty, product.operation.ty];
    let [Some(a), Some(b), ..] = product.inputs[..] else { return false };
    let both = matches!((a, b), (Input::Operand, Input::Made(0)) | (Input::Made(0), Input::Operand));
    types == [OperationType::LOGISTIC, OperationType::MUL]
        && both
        && matches!(sigmoid.inputs[..], [Some(Input::Operand)])
        && product.with(&[], Tile::Elements(1), |args| args.activation(2).ok()) == Some(Activation::None)
}

/// What the calls, the last of which gives bytes, make of each byte.
fn table(operand: &TensorInfo, calls: &[Call]) -> Option<[u8; 256]> {
    const ALL: Tile = Tile::Elements(256);
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    let mut made = vec![(ALL.of(operand), Some(bytes))];
    for call in calls {
        let results = call.with(&made, ALL, |args| evaluate::run(call.operation, args).ok())?;
        made.push((ALL.of(call.output), Some(results.into_iter().next()?.data.to_vec())));
    }
    made.pop()?.1?.try_into().ok()
}
