//! Compilations: from a checked model to an executable, on a few threads of their own.
//!
//! Jobs are bounded, in all and per client, and no client has every thread. Nothing here knows of binder: whoever asks
//! for a compilation says in a closure what to do with its outcome.

mod caching;
mod error;
mod quota;
mod storing;
mod turns;
mod workers;

pub use caching::{CachePlace, CachingError};
pub use error::CompileError;
pub use quota::{Exhausted, Permit, Quota};
pub use storing::LEAST_CONSTANTS;
pub use turns::{Start, Turn, Turns};

use crate::backend::{boottime_ns, Backend, CompileOptions, Control, Executable, Priority};
use crate::cache::Store;
use crate::model::Model;
use crate::ops::Interrupt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use storing::Compiled;
use workers::Workers;

/// What became of a compilation.
pub type Outcome = Result<Arc<dyn Executable>, CompileError>;

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
    workers: Arc<Workers>,
    jobs: Arc<Quota>,
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
        let workers = Arc::new(Workers::new("nnhal-compile", limits.threads)?);
        let jobs = Quota::new(limits.jobs, limits.jobs_per_client);
        Ok(Compiler { backend, store: store.map(Arc::new), turns, workers, jobs })
    }

    /// Puts `job` in line. Where that fails, its closure is dropped untold.
    pub fn submit(&self, job: Job) -> Result<(), CompileError> {
        let permit = self.jobs.take(job.client, 1).map_err(CompileError::TooManyJobs)?;
        let expired = job.control.deadline_ns.is_some_and(|deadline| boottime_ns() >= deadline);
        let store = self.store.clone().filter(|_| job.stored);
        let (backend, turns) = (self.backend.clone(), self.turns.clone());
        let (workers, jobs) = (Arc::downgrade(&self.workers), self.jobs.clone());
        let (client, priority) = (job.client, job.options.priority);
        let task = move || {
            let Job { model, options, mut control, done, .. } = job;
            let compiled = match expired {
                true => Err(CompileError::Expired),
                false => turns.take(client, priority, &control).map_err(|e| CompileError::Backend(e.into())),
            };
            let compiled = compiled.and_then(|turn| {
                control.turn = Some(Arc::new(turn));
                compile(store.as_deref(), client, &*backend, (&model, &options), &control)
            });
            // Nor does it compute any more.
            control.turn = None;
            let save = compiled.as_ref().ok().and_then(|compiled| {
                let (key, store, executable) = (compiled.save_as?, store?, compiled.executable.clone());
                Some(move || storing::save(&store, &key, &*executable))
            });
            // The client's memory and its place are free before it hears of the outcome.
            drop((model, permit));
            done(compiled.map(|compiled| compiled.executable));
            if let (Some(save), Ok(permit), Some(workers)) = (save, jobs.take(client, 1), workers.upgrade()) {
                let task = move || {
                    save();
                    drop(permit);
                };
                workers.submit(client, Priority::Low, Box::new(task));
            }
        };
        self.workers.submit(client, priority, Box::new(task));
        Ok(())
    }
}

fn compile(
    store: Option<&Store>,
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
