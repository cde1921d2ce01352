//! A compiled subgraph: steps in order, constants, packed weights, and where each value lives. Plain data; `run` runs it.

use super::graph::{Graph, Node};
use super::kernels::{self, Kernel};
use super::passes;
use super::plan::plan;
use crate::backend::{BackendError, Control};
use crate::memory::AlignedBuf;
use crate::model::Subgraph;
use crate::ops::{Args, Operation};
use crate::tensor::TensorInfo;
use std::ops::Range;
use std::sync::Arc;

/// A compiled subgraph.
pub struct Routine {
    pub values: Vec<Value>,
    pub steps: Vec<Step>,
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
    /// Bytes of arena that a run needs.
    pub arena: usize,
}

pub struct Value {
    /// As the model declares it; unknown dimensions are 0.
    pub declared: TensorInfo,
    pub place: Place,
}

/// Where a value lives during a run.
pub enum Place {
    Constant(TensorInfo, Arc<AlignedBuf>),
    /// In the arena, with dimensions known ahead.
    Arena(TensorInfo, Range<usize>),
    /// In a buffer of its own: its dimensions are known only during a run.
    Dynamic,
}

pub struct Step {
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

impl Routine {
    /// Compiles a subgraph: passes, memory plan, kernels.
    pub fn compile(subgraph: &Subgraph, control: &Control) -> Result<Routine, BackendError> {
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
