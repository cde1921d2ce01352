//! A call of an elementwise operation: its kernel, and what is known of it where several calls are merged.

use super::{binary, unary, Kernel, Source};
use crate::ops::{Arg, Args, NeverInterrupted, Operation};
use crate::tensor::TensorInfo;

/// A kernel for this call, if it is of an elementwise operation.
pub fn select(operation: &Operation, args: &Args, source: &Source) -> Option<Box<dyn Kernel>> {
    binary::select(operation.ty, args).or_else(|| unary::select(operation, args, source))
}

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

/// A tensor of so many elements in a row.
pub fn row(info: &TensorInfo, count: usize) -> TensorInfo {
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
    pub fn with<T>(
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
