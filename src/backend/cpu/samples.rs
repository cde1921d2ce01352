//! Models that unit tests make, and what they make of compiled ones.

use super::arguments::{Bound, Held};
use super::program::Program;
use crate::backend::{Artifact, Control};
use crate::memory::{AlignedBuf, ClientSlice, Mapping};
use crate::model::{Constant, Lifetime, Operand, Operation, OperationKind, Subgraph};
use crate::ops::OperationType;
use crate::tensor::{OperandType, TensorInfo};
use std::sync::Arc;
use OperandType::*;

/// A subgraph under construction.
pub struct Build(Subgraph);

impl Build {
    pub fn new() -> Self {
        Build(Subgraph { operands: vec![], operations: vec![], inputs: vec![], outputs: vec![] })
    }

    pub fn operand(&mut self, info: TensorInfo, lifetime: Lifetime) -> usize {
        self.0.operands.push(Operand { info, lifetime, extension: None });
        self.0.operands.len() - 1
    }

    pub fn input(&mut self, info: TensorInfo) -> usize {
        let v = self.operand(info, Lifetime::Input);
        self.0.inputs.push(v);
        v
    }

    pub fn constant<T: bytemuck::NoUninit>(&mut self, info: TensorInfo, values: &[T]) -> usize {
        let bytes = AlignedBuf::copy_of(bytemuck::cast_slice(values)).unwrap();
        assert_eq!(info.byte_size(), Some(bytes.len()));
        self.operand(info, Lifetime::Constant(Constant::Private(Arc::new(bytes))))
    }

    pub fn ints(&mut self, values: &[i32]) -> Vec<usize> {
        values.iter().map(|&value| self.constant(TensorInfo::new(INT32, &[]), &[value])).collect()
    }

    /// Adds a call, which writes a new operand of type `info`.
    pub fn call(
        &mut self,
        ty: OperationType,
        signature_index: usize,
        inputs: &[usize],
        info: TensorInfo,
    ) -> usize {
        let output = self.operand(info, Lifetime::Temporary);
        let kind = OperationKind::Known { operation: ty.operation().unwrap(), signature_index };
        self.0.operations.push(Operation { kind, inputs: inputs.to_vec(), outputs: vec![output] });
        output
    }

    pub fn info(&self, v: usize) -> TensorInfo {
        self.0.operands[v].info.clone()
    }

    pub fn finish(mut self, output: usize) -> Subgraph {
        self.0.outputs.push(output);
        self.0
    }
}

pub fn floats(count: usize, seed: f32) -> Vec<f32> {
    (0..count).map(|i| ((i as f32 + seed) * 0.37).sin()).collect()
}

pub fn f32_info(dims: &[u32]) -> TensorInfo {
    TensorInfo::new(TENSOR_FLOAT32, dims)
}

/// The data bytes as a file would have them.
pub fn data_of(artifact: &Artifact) -> Arc<Mapping> {
    let len = artifact.data[0].last().map_or(0, |(start, part)| *start as usize + part.len());
    let mapping = Arc::new(Mapping::anonymous(len).unwrap());
    for (start, part) in &artifact.data[0] {
        let slice = ClientSlice::new(mapping.clone(), *start as usize, part.len()).unwrap();
        slice.write(&part.to_private().unwrap()).unwrap();
    }
    mapping
}

/// Bytes of an input of this type.
pub fn made_up(info: &TensorInfo) -> Vec<u8> {
    let len = info.byte_size().unwrap();
    match info.ty {
        OperandType::TENSOR_FLOAT32 => bytemuck::cast_slice(&floats(len / 4, 9.0)).to_vec(),
        _ => (0..len).map(|i| (i * i / 7) as u8).collect(),
    }
}

/// What a program of one input and one output makes of what is [`made_up`].
pub fn run(program: &Program) -> Vec<u8> {
    let whole = |len: usize| ClientSlice::new(Arc::new(Mapping::anonymous(len).unwrap()), 0, len).unwrap();
    let bound = |info: &TensorInfo| Bound { data: whole(info.byte_size().unwrap()), dims: info.dims.clone() };
    let interface = program.interface();
    let (input, output) = (bound(&interface.inputs[0]), bound(&interface.outputs[0]));
    input.data.write(&made_up(&interface.inputs[0])).unwrap();
    let (inputs, outputs) = ([Some(input)], [Some(output.clone())]);
    program.run(Held::new(&inputs, &outputs).unwrap(), &Control::default()).unwrap();
    output.data.to_private().unwrap().to_vec()
}
