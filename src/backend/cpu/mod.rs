//! The CPU backend: model -> graph -> passes -> program with one planned arena and kernels that pack their weights when
//! they are first needed -> run on a pool.

mod alike;
mod arguments;
mod artifact;
#[cfg(test)]
mod branch_tests;
mod calls;
mod chain;
#[cfg(test)]
mod chain_tests;
#[cfg(test)]
mod common_tests;
mod compile;
mod constant;
mod describe;
mod dynamic;
mod executable;
mod find_chains;
mod follow;
#[cfg(test)]
mod follow_tests;
mod frame;
mod graph;
mod idle;
pub mod kernels;
mod little;
mod measured;
mod merge;
#[cfg(test)]
mod merge_rows_tests;
#[cfg(test)]
mod merge_tests;
mod near;
mod on_demand;
mod packing;
mod passes;
mod performance;
mod places;
mod plan;
pub mod pool;
mod program;
mod routine;
mod run;
#[cfg(test)]
mod samples;
mod signs;
#[cfg(test)]
mod storm_tests;
#[cfg(test)]
mod turns_tests;
mod views;
#[cfg(test)]
mod views_tests;
mod watch;

use super::{
    Backend, BackendError, CacheFileCounts, CompileOptions, Control, DeviceType, Executable, Info, Load,
    Peaks, Saved,
};
use crate::model::{Lifetime, Model, OperationKind, Subgraph};
use executable::{Cores, CpuExecutable};
use std::sync::Arc;

/// Compiles for, and runs on, the cores of this machine.
pub struct CpuBackend {
    cores: Arc<Cores>,
}

impl CpuBackend {
    /// A backend that computes on `threads` threads, the caller's included. So many executions and compilations compute
    /// at once, and take turns at it.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        Ok(CpuBackend { cores: Arc::new(Cores::new(threads)?) })
    }

    /// A backend that computes on every core.
    pub fn on_all_cores() -> std::io::Result<Self> {
        CpuBackend::new(std::thread::available_parallelism().map_or(1, |n| n.get()))
    }
}

impl Backend for CpuBackend {
    fn info(&self) -> Info {
        Info {
            version: format!("cpu-{}", kernels::instruction_set()),
            device_type: DeviceType::Cpu,
            extensions: Vec::new(),
            capabilities: performance::capabilities(kernels::isa::Isa::detect()),
            cache_files: CacheFileCounts { models: 1, data: 1 },
            // Turns at the cores are shared out here, between operations.
            depth: None,
            waits_for_fences: false,
        }
    }

    fn load_now(&self) -> Option<Load> {
        Some(self.cores.turns.load())
    }

    fn support(&self, model: &Model, _: &Control) -> Vec<Result<(), String>> {
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
        if let Some(why) = self.support(model, control).into_iter().find_map(Result::err) {
            return Err(BackendError::Unsupported(why));
        }
        Ok(Arc::new(CpuExecutable::compile(model, options, &self.cores, control)?))
    }

    fn load(
        &self,
        saved: Saved,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(CpuExecutable::load(saved, options, &self.cores, control)?))
    }

    fn peaks(&self, control: &Control) -> Option<Peaks> {
        let control = self.cores.take_turn(control).ok()?;
        let threads = self.cores.pool.team(control.threads()).threads();
        kernels::peaks(threads)
    }

    fn only_computes() -> bool {
        true
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
        OperationKind::Extension { extension, code } => Err(format!("operation {code} of {extension}")),
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
