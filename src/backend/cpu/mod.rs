//! The CPU backend: model -> graph -> passes -> program with one planned arena and kernels that pack their weights when
//! they are first needed -> run on a pool.

mod arguments;
mod artifact;
mod deferred;
mod frame;
mod graph;
pub mod kernels;
mod late;
mod packing;
mod passes;
mod plan;
pub mod pool;
mod program;
mod routine;
mod run;

use super::{Backend, BackendError, Capabilities, CompileOptions, Control, Executable, Performance};
use crate::memory::Mapping;
use crate::model::{Lifetime, Model, OperationKind, Subgraph};
use crate::tensor::OperandType;
use deferred::Deferred;
use pool::ThreadPool;
use program::Program;
use std::sync::Arc;

/// Compiles for, and runs on, the cores of this machine.
pub struct CpuBackend {
    pool: Arc<ThreadPool>,
}

impl CpuBackend {
    /// A backend that computes on `threads` threads, the caller's included.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        Ok(CpuBackend { pool: Arc::new(ThreadPool::new(threads)?) })
    }
}

impl Backend for CpuBackend {
    fn version(&self) -> String {
        format!("cpu-{}", kernels::instruction_set())
    }

    fn capabilities(&self) -> Capabilities {
        // The runtime's own CPU code has cost 1.0: one thread and reference loops.
        let fast = Performance { exec_time: 0.2, power_usage: 0.3 };
        Capabilities {
            relaxed_scalar: fast,
            relaxed_tensor: fast,
            operands: OperandType::ALL
                .into_iter()
                .filter(|&ty| ty != OperandType::SUBGRAPH)
                .map(|ty| (ty, fast))
                .collect(),
            if_performance: fast,
            while_performance: fast,
        }
    }

    fn support(&self, model: &Model) -> Vec<Result<(), String>> {
        // A subgraph may be referred to many times: decide on each once. References lead to no cycle, but in any order.
        let mut verdicts = vec![None; model.referenced.len()];
        (0..model.referenced.len()).for_each(|i| decide(model, i, &mut verdicts));
        graph_support(&model.main, &verdicts)
    }

    fn compile(
        &self,
        model: &Model,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        if let Some(why) = self.support(model).into_iter().find_map(Result::err) {
            return Err(BackendError::Unsupported(why));
        }
        let pool = self.pool.clone();
        Ok(match options.just_in_time {
            true => Arc::new(Deferred::new(model, options, pool)?),
            false => Arc::new(Program::compile(model, options, pool, control)?),
        })
    }

    fn load(&self, model: &[u8], data: Arc<Mapping>) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(Program::load(model, data, self.pool.clone())?))
    }
}

/// Fills in the verdict on subgraph `index` and on all that it refers to.
fn decide(model: &Model, index: usize, verdicts: &mut [Option<Result<(), String>>]) {
    if verdicts[index].is_some() {
        return;
    }
    let graph = &model.referenced[index];
    for operand in &graph.operands {
        if let Lifetime::Subgraph(next) = operand.lifetime {
            decide(model, next, verdicts); // as deep as references nest, which is limited
        }
    }
    verdicts[index] = Some(graph_support(graph, verdicts).into_iter().collect());
}

fn graph_support(graph: &Subgraph, verdicts: &[Option<Result<(), String>>]) -> Vec<Result<(), String>> {
    let support = |operation: &crate::model::Operation| match &operation.kind {
        OperationKind::Unsupported(why) => Err(why.clone()),
        OperationKind::Known { .. } => operation
            .inputs
            .iter()
            .filter_map(|&input| match graph.operands[input].lifetime {
                Lifetime::Subgraph(index) => verdicts[index].clone(),
                _ => None,
            })
            .collect(),
    };
    graph.operations.iter().map(support).collect()
}
