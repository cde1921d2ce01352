//! A compiled model, ready to run.

use super::frame::Frame;
use super::pool::ThreadPool;
use super::routine::Routine;
use super::run::Machine;
use crate::backend::{BackendError, Control, Executable, InputTensor, Interface, OutputShape, OutputTensor};
use crate::model::Model;
use std::sync::{Arc, Mutex, PoisonError};

/// Frames kept for the next run: more than this many runs at once allocate their own.
const MAX_IDLE_FRAMES: usize = 4;

/// A compiled model.
pub struct Program {
    interface: Interface,
    /// The main routine first, then one per referenced subgraph.
    routines: Vec<Routine>,
    pool: Arc<ThreadPool>,
    idle: Mutex<Vec<Frame>>,
}

impl Program {
    /// Compiles a model of which every operation is supported.
    pub fn compile(model: &Model, pool: Arc<ThreadPool>, control: &Control) -> Result<Program, BackendError> {
        let mut routines = Vec::with_capacity(1 + model.referenced.len());
        for subgraph in std::iter::once(&model.main).chain(&model.referenced) {
            routines.push(Routine::compile(subgraph, control)?);
        }
        let infos = |list: &[usize]| list.iter().map(|&i| model.main.operands[i].info.clone()).collect();
        let interface = Interface { inputs: infos(&model.main.inputs), outputs: infos(&model.main.outputs) };
        Ok(Program { interface, routines, pool, idle: Mutex::default() })
    }

    /// A frame for the main routine, one that an earlier run left where there is one.
    fn frame(&self) -> Result<Frame, BackendError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| Frame::new(&self.routines[0]), Ok)
    }
}

impl Executable for Program {
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn run(
        &self,
        inputs: &[Option<InputTensor>],
        outputs: &[Option<OutputTensor>],
        control: &Control,
    ) -> Result<Vec<OutputShape>, BackendError> {
        let mut frame = self.frame()?;
        let machine = Machine { routines: &self.routines, pool: &self.pool, control };
        let shapes = machine.run_main(&mut frame, inputs, outputs);
        frame.clear();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE_FRAMES {
            idle.push(frame);
        }
        shapes
    }
}
