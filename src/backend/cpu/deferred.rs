//! A model that is compiled by its first run, just in time.
//!
//! It has private copies of the model's constants, as the client's may be gone by then.

use super::late::Late;
use super::pool::ThreadPool;
use super::program::Program;
use crate::backend::{
    Artifact, BackendError, CompileOptions, Control, Executable, InputTensor, Interface, OutputShape,
    OutputTensor, Preference,
};
use crate::model::{Model, OperationKind};
use crate::ops::OperationType;
use std::sync::Arc;

pub struct Deferred {
    interface: Interface,
    options: CompileOptions,
    pool: Arc<ThreadPool>,
    loops: bool,
    program: Late<Model, Program>,
}

impl Deferred {
    /// Takes over a model of which every operation is supported.
    pub fn new(model: &Model, options: &CompileOptions, pool: Arc<ThreadPool>) -> Result<Self, BackendError> {
        let model = model
            .to_private()
            .map_err(|source| BackendError::Memory { what: "a constant".into(), source })?;
        let infos = |list: &[usize]| list.iter().map(|&v| model.main.operands[v].info.clone()).collect();
        let interface = Interface { inputs: infos(&model.main.inputs), outputs: infos(&model.main.outputs) };
        let subgraphs = std::iter::once(&model.main).chain(&model.referenced);
        let is_loop = |kind: &OperationKind| matches!(kind, OperationKind::Known { operation, .. } if operation.ty == OperationType::WHILE);
        let loops = subgraphs.flat_map(|graph| &graph.operations).any(|op| is_loop(&op.kind));
        Ok(Deferred { interface, options: *options, pool, loops, program: Late::of(model) })
    }

    fn program(&self, control: &Control) -> Result<&Program, BackendError> {
        self.program.get_or_make(control, |model| {
            // Who waits for this may hold the turn that it would wait for.
            let control = Control { turn: None, ..control.clone() };
            Program::compile(model, &self.options, self.pool.clone(), &control)
        })
    }
}

impl Executable for Deferred {
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn preference(&self) -> Preference {
        self.options.preference
    }

    fn may_loop(&self) -> bool {
        self.loops
    }

    fn is_finished(&self) -> bool {
        self.program.get().is_some_and(Program::is_finished)
    }

    fn finish(&self, control: &Control) -> Result<(), BackendError> {
        self.program(control)?.finish(control)
    }

    fn artifact(&self) -> Option<Artifact> {
        self.program.get()?.artifact()
    }

    fn keep_ready(&self) -> Option<Box<dyn Send + Sync>> {
        Program::keep_ready_for(self.options.preference, &self.pool)
    }

    fn run(
        &self,
        inputs: &[Option<InputTensor>],
        outputs: &[Option<OutputTensor>],
        control: &Control,
    ) -> Result<Vec<OutputShape>, BackendError> {
        self.program(control)?.run(inputs, outputs, control)
    }
}
