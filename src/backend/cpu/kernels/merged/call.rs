//! A call of an operation: its kernel, and what is known of it where several calls are merged.

use crate::backend::cpu::kernels::{elementwise, reduce, softmax, Kernel, Source};
use crate::memory::AlignedBuf;
use crate::ops::{Arg, Args, NeverInterrupted, Operation};
use crate::tensor::Dims;
use crate::tensor::TensorInfo;
use smallvec::smallvec;
use std::sync::Arc;

/// A call of an elementwise operation, or of one on lanes, with one output: of bytes or floats if the operand is of bytes, else
/// of floats.
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
    /// It has one element, or one for each of a row's, and is known.
    Constant(&'a TensorInfo, &'a Arc<AlignedBuf>),
}

/// A part of a tensor.
#[derive(Clone, Copy)]
pub enum Tile {
    /// So many elements in a row.
    Elements(usize),
    /// So many of its rows, which are along the last dimension.
    Rows(usize),
}

impl Tile {
    /// Such a part, which has as many dimensions.
    pub fn of(self, info: &TensorInfo) -> TensorInfo {
        let mut dims: Dims = smallvec![1; info.dims.len().max(1)];
        let last = dims.len() - 1;
        match self {
            Tile::Elements(count) => dims[last] = count as u32,
            Tile::Rows(count) => {
                dims[last.saturating_sub(1)] = count as u32;
                dims[last] = *info.dims.last().unwrap_or(&1);
            }
        }
        TensorInfo { dims, ..info.clone() }
    }

    /// How many elements of it each row has; an element is a row where there are none.
    pub fn width(self, info: &TensorInfo) -> usize {
        match self {
            Tile::Elements(_) => 1,
            Tile::Rows(_) => *info.dims.last().unwrap_or(&1) as usize,
        }
    }
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
    /// Calls `f` with the arguments for such a tile.
    pub fn with<T>(
        &self,
        made: &[(TensorInfo, Option<Vec<u8>>)],
        tile: Tile,
        f: impl FnOnce(&Args) -> Option<T>,
    ) -> Option<T> {
        let inputs: Vec<_> =
            self.inputs.iter().map(|input| input.and_then(|input| input.arg(made))).collect();
        let (signature_index, outputs) = (self.signature_index, [tile.of(self.output)]);
        f(&Args { signature_index, inputs: &inputs, outputs: &outputs, interrupt: &NeverInterrupted })
    }

    /// Its kernel for such a tile; `infos` are of the operand and of what each call makes.
    pub fn kernel(&self, infos: &[&TensorInfo], tile: Tile) -> Option<Box<dyn Kernel>> {
        let made: Vec<_> = infos.iter().map(|info| (tile.of(info), None)).collect();
        self.with(&made, tile, |args| {
            elementwise::select(self.operation, args, &Source::later())
                .or_else(|| reduce::select(self.operation.ty, args))
                .or_else(|| softmax::select(self.operation.ty, args))
        })
    }

    /// Whether it reads what the call with this index makes.
    pub fn reads(&self, made: usize) -> bool {
        self.inputs.iter().flatten().any(|input| matches!(input, Input::Made(i) if *i == made))
    }
}
