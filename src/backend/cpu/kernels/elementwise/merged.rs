//! One kernel for several elementwise calls that all go back to the elements of one operand.
//!
//! Bytes have but 256 values: whatever a list of calls makes bytes of them, be it by floats, their plain evaluations on all of
//! these make a table. Of floats what networks write most often, `x * logistic(x)`, is one loop; the rest goes in blocks.

use super::blocks::Blocks;
use super::loops::map;
use super::math::swish;
use super::table::Table;
use super::unary::is_unary;
use super::Kernel;
use crate::backend::cpu::kernels::vector::{fused, Level};
use crate::ops::{evaluate, Arg, Args, NeverInterrupted, Operation, OperationType};
use crate::tensor::requant::Activation;
use crate::tensor::{OperandType, TensorInfo};

/// An elementwise call, with one output, of bytes or floats if the operand is of bytes, else of floats.
pub struct Call<'a> {
    pub operation: &'static Operation,
    pub signature_index: usize,
    pub inputs: Vec<Option<Input<'a>>>,
    pub output: &'a TensorInfo,
}

/// Where an input of a call comes from.
#[derive(Clone, Copy)]
pub enum Input<'a> {
    /// It is the operand.
    Operand,
    /// It is what the call with this index made.
    Made(usize),
    /// It has one element, which is known.
    Constant(&'a TensorInfo, &'a [u8]),
}

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

/// A tensor of so many elements in a row.
fn row(info: &TensorInfo, count: usize) -> TensorInfo {
    TensorInfo { dims: vec![count as u32], ..info.clone() }
}

impl<'a> Input<'a> {
    /// The argument that it is; `made` are the operand and what the calls before made of it, as far as they are known.
    fn arg(self, made: &'a [(TensorInfo, Option<Vec<u8>>)]) -> Option<Arg<'a>> {
        let known = |i: usize| made.get(i).map(|(info, data)| Arg { info, data: data.as_deref() });
        match self {
            Input::Operand => known(0),
            Input::Made(i) => known(i + 1),
            Input::Constant(info, data) => Some(Arg { info, data: Some(data) }),
        }
    }
}

impl Call<'_> {
    /// Calls `f` with the arguments, of which the output has `count` elements.
    fn with<T>(
        &self,
        made: &[(TensorInfo, Option<Vec<u8>>)],
        count: usize,
        f: impl FnOnce(&Args) -> Option<T>,
    ) -> Option<T> {
        let inputs: Vec<_> =
            self.inputs.iter().map(|input| input.and_then(|input| input.arg(made))).collect();
        let (signature_index, outputs) = (self.signature_index, [row(self.output, count)]);
        f(&Args { signature_index, inputs: &inputs, outputs: &outputs, interrupt: &NeverInterrupted })
    }

    /// Calls `f` with the arguments as far as they are known before a run: `infos` are of the operand and of what each call
    /// makes, which have `count` elements.
    pub fn declared<T>(
        &self,
        infos: &[&TensorInfo],
        count: usize,
        f: impl FnOnce(&Args) -> Option<T>,
    ) -> Option<T> {
        let made: Vec<_> = infos.iter().map(|info| (row(info, count), None)).collect();
        self.with(&made, count, f)
    }

    /// Whether it reads what the call with this index makes.
    pub fn reads(&self, made: usize) -> bool {
        self.inputs.iter().flatten().any(|input| matches!(input, Input::Made(i) if *i == made))
    }
}
