//! One kernel for several elementwise calls that all go back to the elements of one operand.
//!
//! Bytes have but 256 values: whatever a list of calls makes bytes of them, be it by floats, their plain evaluations on all of
//! these make a table. Of floats what networks write most often, `x * logistic(x)`, is one loop; the rest goes in blocks.

use super::blocks::Blocks;
use super::call::{row, Call, Input};
use super::loops::map;
use super::math::swish;
use super::table::Table;
use super::unary::is_unary;
use super::Kernel;
use crate::backend::cpu::kernels::vector::{fused, Level};
use crate::ops::{evaluate, OperationType};
use crate::tensor::requant::Activation;
use crate::tensor::{OperandType, TensorInfo};

/// Whether the operation makes each element of its output of one element of each input, or of that of an input which has
/// no other.
pub fn is_elementwise(ty: OperationType) -> bool {
    use OperationType::{ADD, DIV, MAXIMUM, MINIMUM, MUL, POW, PRELU, SUB};
    is_unary(ty) || [ADD, DIV, MAXIMUM, MINIMUM, MUL, POW, PRELU, SUB].contains(&ty)
}

/// A kernel that makes of `operand` what the last of these calls does, all of which are of elementwise operations on tensors
/// of the operand's dimensions. The last makes bytes if the operand is of bytes.
pub fn merge(operand: &TensorInfo, calls: &[Call]) -> Option<Box<dyn Kernel>> {
    match operand.ty {
        OperandType::TENSOR_FLOAT32 if is_swish(calls) => fused!(Level::detect(), map(SWISH, swish::<FUSED>)),
        OperandType::TENSOR_FLOAT32 => Some(Box::new(Blocks::new(operand, calls)?)),
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
        && product.with(&[], 1, |args| args.activation(2).ok()) == Some(Activation::None)
}

/// What the calls, the last of which gives bytes, make of each byte.
fn table(operand: &TensorInfo, calls: &[Call]) -> Option<[u8; 256]> {
    const ALL: usize = 256;
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    let mut made = vec![(row(operand, ALL), Some(bytes))];
    for call in calls {
        let results = call.with(&made, ALL, |args| evaluate::run(call.operation, args).ok())?;
        made.push((row(call.output, ALL), Some(results.into_iter().next()?.data.to_vec())));
    }
    made.pop()?.1?.try_into().ok()
}
