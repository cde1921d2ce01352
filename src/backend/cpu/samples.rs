//! Models that unit tests make, and what they make of compiled ones.

use super::arguments::{Bound, Held, Memories};
use super::compile::compile_for;
use super::kernels::Work;
use super::pool::ThreadPool;
use super::program::Program;
use super::routine::{Place, Routine};
use crate::backend::{Artifact, Control, Preference, Saved};
use crate::memory::{AlignedBuf, ClientSlice, Mapping, Target, View};
use crate::model::{Constant, Lifetime, Operand, Operation, OperationKind, Subgraph};
use crate::ops::{evaluate, Arg, Args, NeverInterrupted, OperationType};
use crate::tensor::{OperandType, TensorInfo};
use std::collections::BTreeMap;
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

    /// The same in a client's memory.
    pub fn clients<T: bytemuck::NoUninit>(&mut self, info: TensorInfo, values: &[T]) -> usize {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let mapping = Arc::new(Mapping::anonymous(bytes.len() + 3).unwrap());
        let slice = ClientSlice::new(mapping, 3, bytes.len()).unwrap();
        slice.write(bytes).unwrap();
        self.operand(info, Lifetime::Constant(Constant::Client(slice)))
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
        self.call_of_many(ty, signature_index, inputs, &[info])[0]
    }

    /// The same with an output of each of these types.
    pub fn call_of_many(
        &mut self,
        ty: OperationType,
        signature_index: usize,
        inputs: &[usize],
        infos: &[TensorInfo],
    ) -> Vec<usize> {
        let outputs: Vec<_> =
            infos.iter().map(|info| self.operand(info.clone(), Lifetime::Temporary)).collect();
        let kind = OperationKind::Known { operation: ty.operation().unwrap(), signature_index };
        self.0.operations.push(Operation { kind, inputs: inputs.to_vec(), outputs: outputs.clone() });
        outputs
    }

    pub fn info(&self, v: usize) -> TensorInfo {
        self.0.operands[v].info.clone()
    }

    /// What the last call writes.
    pub fn last(&self) -> usize {
        self.0.operands.len() - 1
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
    run_by(program, &Control::default())
}

/// The same, by these terms.
pub fn run_by(program: &Program, control: &Control) -> Vec<u8> {
    let whole = |len: usize| ClientSlice::new(Arc::new(Mapping::anonymous(len).unwrap()), 0, len).unwrap();
    let bound = |info: &TensorInfo| Bound { data: whole(info.byte_size().unwrap()), dims: info.dims.clone() };
    let interface = program.interface();
    let (input, output) = (bound(&interface.inputs[0]), bound(&interface.outputs[0]));
    input.data.write(&made_up(&interface.inputs[0])).unwrap();
    let (inputs, outputs) = ([Some(input)], [Some(output.clone())]);
    let memories = Memories::of(&inputs, &outputs);
    program.run(Held::new(&inputs, &outputs, &memories).unwrap(), control).unwrap();
    output.data.to_private().unwrap().to_vec()
}

/// A program of `model`, with bytes between operations of a type, where that is given.
pub fn compile(model: &Subgraph, threads: usize, bytes: Option<OperandType>) -> Program {
    compile_as(model, threads, (bytes, false))
}

/// The same, and whether rows of floats [may become bytes](super::dynamic).
pub fn compile_as(model: &Subgraph, threads: usize, how: (Option<OperandType>, bool)) -> Program {
    let pool = Arc::new(ThreadPool::new(threads).unwrap());
    let routine = compile_for(model, how, pool.team(threads), &Control::default()).unwrap();
    Program::of_routine(routine, pool)
}

/// Programs of `model`, compiled, and loaded from what is saved of it.
pub fn programs_of(model: &Subgraph, threads: usize) -> [Program; 2] {
    let program = compile(model, threads, None);
    let loaded = loaded(&program, threads);
    [program, loaded]
}

/// A program loaded from what is saved of another one.
pub fn loaded(program: &Program, threads: usize) -> Program {
    let artifact = program.artifact(&NeverInterrupted).unwrap();
    let saved = Saved { models: artifact.models.clone(), data: vec![data_of(&artifact)] };
    let pool = Arc::new(ThreadPool::new(threads).unwrap());
    Program::load(saved, Preference::default(), pool, &Control::default()).unwrap()
}

/// What the steps make one by one, by their kernels where they have some, or by their plain evaluations.
pub fn step_by_step(routine: &Routine, by_kernels: bool) -> Vec<u8> {
    let (pool, mut made) = (ThreadPool::new(1).unwrap(), BTreeMap::new());
    made.insert(routine.inputs[0], made_up(routine.values[routine.inputs[0]].info()));
    for step in &routine.steps {
        let bytes = |v: usize| match &routine.values[v].place {
            Place::Constant(_, bytes) => Some(&bytes[..]),
            Place::Packed(_) => None,
            _ => Some(&made[&v][..]),
        };
        let mut outs: Vec<_> =
            step.output_infos.iter().map(|info| vec![0; info.byte_size().unwrap()]).collect();
        if let Some(kernel) = step.kernel.as_ref().filter(|_| by_kernels) {
            let view = |v: &Option<usize>| v.and_then(bytes).map(View::of);
            let inputs: Vec<_> = step.inputs.iter().map(view).collect();
            let work = Work::new(pool.team(1), &NeverInterrupted);
            let mut targets: Vec<_> = outs.iter_mut().map(|out| Target::of(&mut out[..])).collect();
            kernel.run(&inputs, &mut targets, work).unwrap();
        } else {
            let arg = |v: usize| Arg { info: routine.values[v].info(), data: bytes(v) };
            let inputs: Vec<_> = step.inputs.iter().map(|v| v.map(arg)).collect();
            let (signature_index, outputs) = (step.signature_index, &step.output_infos[..]);
            let args = Args { signature_index, inputs: &inputs, outputs, interrupt: &NeverInterrupted };
            let results = evaluate::run(step.operation, &args).unwrap();
            outs = results.into_iter().map(|result| result.data.to_vec()).collect();
        }
        made.extend(step.outputs.iter().copied().zip(outs));
    }
    made.remove(&routine.outputs[0]).unwrap()
}
