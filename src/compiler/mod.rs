//! Compilations: from a checked model to an executable, on a few threads of their own, and further in stages.
//!
//! The first stage is quick, and is all that a client waits for: passes, the memory plan, and which kernel each operation
//! has. A run packs what it is the first to need. Once a model has been used, the rest is done in the background and
//! what was compiled is kept: in the driver's own store, or in the client's cache files in place of the first stage.
//! Just in time, even the first stage is left to the first run. No stage changes results.
//!
//! Jobs are bounded, in all and per client, and no client has every thread. Nothing here knows of binder: whoever asks
//! for a compilation says in a closure what to do with its outcome.

mod caching;
mod content;
mod error;
mod finishing;
mod storing;

pub use caching::{CachePlace, CachingError};
pub use error::CompileError;
pub use finishing::{Keep, Rest, StorePlace};
pub use storing::LEAST_CONSTANTS;

use crate::backend::{Backend, CompileOptions, Executable};
use crate::cache::Store;
use crate::model::Model;
use crate::ops::Interrupt;
use crate::scheduler::{boottime_ns, Control, Quota, Turns, Workers};
use finishing::Saves;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

/// What became of a compilation.
pub type Outcome = Result<Compiled, CompileError>;

/// A model that can be run.
pub struct Compiled {
    pub executable: Arc<dyn Executable>,
    /// Where to store it once it has been used, if that is worth while.
    pub store_as: Option<StorePlace>,
}

/// A compilation to do.
pub struct Job {
    /// Whose job it is: a uid.
    pub client: u32,
    pub model: Model,
    pub options: CompileOptions,
    pub control: Control,
    /// Whether the driver's own store is of use: not to a client that keeps the compilation itself.
    pub stored: bool,
    /// Told the outcome, once, on a compiling thread: must not wait for anybody. Dropped untold where the compiler
    /// stops first.
    pub done: Box<dyn FnOnce(Outcome) + Send>,
}

/// How much is compiled at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Threads that compile; at least two, as one is kept from any single client.
    pub threads: usize,
    /// Jobs waiting or compiling, in all and of one client.
    pub jobs: u64,
    pub jobs_per_client: u64,
}

impl Default for Limits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, |n| n.get());
        Limits { threads: cores.clamp(2, 8) + 1, jobs: 256, jobs_per_client: 64 }
    }
}

/// Compiles in the background, until it is dropped.
pub struct Compiler {
    backend: Arc<dyn Backend>,
    store: Option<Arc<Store>>,
    turns: Arc<Turns>,
    workers: Workers,
    jobs: Arc<Quota>,
    saves: Arc<Saves>,
}

impl Compiler {
    /// Starts the threads that compile with `backend`, in `turns` with all that computes, and keep what they compiled in
    /// `store`.
    pub fn new(
        backend: Arc<dyn Backend>,
        turns: Arc<Turns>,
        limits: Limits,
        store: Option<Store>,
    ) -> std::io::Result<Self> {
        let workers = Workers::new("nnhal-compile", limits.threads)?;
        let jobs = Quota::new(limits.jobs, limits.jobs_per_client);
        let (store, saves) = (store.map(Arc::new), Arc::default());
        Ok(Compiler { backend, store, turns, workers, jobs, saves })
    }

    /// Puts `job` in line. Where that fails, its closure is dropped untold.
    pub fn submit(&self, job: Job) -> Result<(), CompileError> {
        let permit = self.jobs.take(job.client, 1).map_err(CompileError::TooManyJobs)?;
        let expired = job.control.deadline_ns.is_some_and(|deadline| boottime_ns() >= deadline);
        // What is compiled just in time must not be looked at before.
        let store = self.store.clone().filter(|_| job.stored && !job.options.just_in_time);
        let (backend, turns) = (self.backend.clone(), self.turns.clone());
        let (client, priority) = (job.client, job.options.priority);
        let task = move || {
            let Job { model, options, mut control, done, .. } = job;
            let compiled = match expired {
                true => Err(CompileError::Expired),
                false => turns.take(client, priority, &control).map_err(|e| CompileError::Backend(e.into())),
            };
            let compiled = compiled.and_then(|turn| {
                control.turn = Some(Arc::new(turn));
                compile(store.as_ref(), client, &*backend, (&model, &options), &control)
            });
            // Nor does it compute any more.
            control.turn = None;
            // The client's memory and its place are free before it hears of the outcome.
            drop((model, permit));
            done(compiled);
        };
        self.workers.submit(client, priority, Box::new(task));
        Ok(())
    }
}

fn compile(
    store: Option<&Arc<Store>>,
    client: u32,
    backend: &dyn Backend,
    what: (&Model, &CompileOptions),
    control: &Control,
) -> Result<Compiled, CompileError> {
    let compiled = catch_unwind(AssertUnwindSafe(|| {
        control.check()?;
        storing::compile(store, client, backend, what, control)
    }));
    compiled.map_err(|_| CompileError::Panicked)?.map_err(CompileError::Backend)
}

#[cfg(test)]
mod tests;
