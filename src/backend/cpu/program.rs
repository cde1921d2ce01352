//! A compiled model: steps in order, constants, packed weights, and where each value lives.

use super::graph::{Graph, Node};
use super::kernels::{self, Kernel};
use super::passes;
use super::plan::plan;
use super::pool::ThreadPool;
use super::run::Frame;
use crate::backend::{BackendError, Control, Executable, InputTensor, Interface, OutputShape, OutputTensor};
use crate::memory::AlignedBuf;
use crate::model::{Model, Subgraph};
use crate::ops::{Args, OpError, Operation};
use crate::tensor::TensorInfo;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Frames kept for the next run: more than this many runs at once allocate their own.
const MAX_IDLE_FRAMES: usize = 4;

/// A compiled model.
pub struct Program {
    interface: Interface,
    /// The main routine first, then one per referenced subgraph.
    pub(super) routines: Vec<Routine>,
    pub(super) pool: Arc<ThreadPool>,
    idle: Mutex<Vec<Frame>>,
}

/// A compiled subgraph.
pub(super) struct Routine {
    pub values: Vec<Value>,
    pub steps: Vec<Step>,
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
    /// Bytes of arena that a run needs.
    pub arena: usize,
}

pub(super) struct Value {
    /// As the model declares it; unknown dimensions are 0.
    pub declared: TensorInfo,
    pub place: Place,
}

/// Where a value lives during a run.
pub(super) enum Place {
    Constant(TensorInfo, Arc<AlignedBuf>),
    /// In the arena, with dimensions known ahead.
    Arena(TensorInfo, Range<usize>),
    /// In a buffer of its own: its dimensions are known only during a run.
    Dynamic,
}

pub(super) struct Step {
    pub operation: &'static Operation,
    pub form: usize,
    pub inputs: Vec<Option<usize>>,
    pub outputs: Vec<usize>,
    /// Declared outputs, with resolved dimensions where all are known ahead.
    pub output_infos: Vec<TensorInfo>,
    /// Routines of IF and WHILE.
    pub routines: Vec<usize>,
    pub kernel: Option<Box<dyn Kernel>>,
    /// What to call it in messages.
    pub name: String,
}

impl Program {
    /// Compiles a model of which every operation is supported.
    pub fn compile(model: &Model, pool: Arc<ThreadPool>, control: &Control) -> Result<Program, BackendError> {
        let mut routines = Vec::with_capacity(1 + model.referenced.len());
        for subgraph in std::iter::once(&model.main).chain(&model.referenced) {
            routines.push(compile_subgraph(subgraph, control)?);
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
        let shapes = super::run::run_main(self, &mut frame, inputs, outputs, control);
        frame.clear();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE_FRAMES {
            idle.push(frame);
        }
        shapes
    }
}

fn compile_subgraph(subgraph: &Subgraph, control: &Control) -> Result<Routine, BackendError> {
    let mut graph = Graph::new(subgraph)?;
    passes::optimise(&mut graph, control)?;
    let plan = plan(&graph).ok_or(BackendError::OutOfMemory(usize::MAX))?;
    let steps =
        std::mem::take(&mut graph.nodes).into_iter().map(|node| step(&graph, node)).collect::<Vec<_>>();
    let places = graph.values.into_iter().zip(plan.parts).map(|(value, part)| Value {
        place: match (value.constant, value.resolved, part) {
            (Some(bytes), resolved, _) => {
                Place::Constant(resolved.unwrap_or_else(|| value.declared.clone()), bytes)
            }
            (None, Some(info), Some(part)) => Place::Arena(info, part),
            _ => Place::Dynamic,
        },
        declared: value.declared,
    });
    Ok(Routine {
        values: places.collect(),
        steps,
        inputs: graph.inputs,
        outputs: graph.outputs,
        arena: plan.size,
    })
}

fn step(graph: &Graph, node: Node) -> Step {
    let output_infos = passes::output_infos(graph, &node);
    let resolved = node.outputs.iter().all(|&o| graph.values[o].resolved.is_some());
    let kernel = match passes::arguments(graph, &node) {
        Some(inputs) if resolved => {
            let interrupt: &dyn crate::ops::Interrupt = &crate::ops::NeverInterrupted;
            kernels::select(
                node.operation,
                &Args { form: node.form, inputs: &inputs, outputs: &output_infos, interrupt },
            )
        }
        _ => None,
    };
    Step {
        operation: node.operation,
        form: node.form,
        inputs: node.inputs,
        outputs: node.outputs,
        output_infos,
        routines: node.subgraphs.into_iter().map(|subgraph| subgraph + 1).collect(),
        kernel,
        name: node.name,
    }
}

impl Step {
    /// `error` with this operation's name.
    pub fn failed(&self, error: OpError) -> BackendError {
        BackendError::of_operation(&self.name, error)
    }
}
