//! Compilations: from a checked model to an executable, on a few threads of their own.
//!
//! Jobs are bounded, in all and per client, and no client has every thread. Nothing here knows of binder: whoever asks
//! for a compilation says in a closure what to do with its outcome.

mod error;
mod quota;

pub use error::CompileError;
pub use quota::{Exhausted, Permit, Quota};

use crate::backend::{boottime_ns, Backend, CompileOptions, Control, Executable};
use crate::model::Model;
use crate::ops::Interrupt;
use std::collections::VecDeque;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What became of a compilation.
pub type Outcome = Result<Arc<dyn Executable>, CompileError>;

/// A compilation to do.
pub struct Job {
    /// Whose job it is: a uid.
    pub client: u32,
    pub model: Model,
    pub options: CompileOptions,
    pub control: Control,
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
    shared: Arc<Shared>,
    jobs: Arc<Quota>,
}

struct Shared {
    backend: Arc<dyn Backend>,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Jobs of one client that may compile at the same time.
    most_running: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Clients of the jobs that are being compiled.
    running: Vec<u32>,
    stop: bool,
}

struct Waiting {
    job: Job,
    /// Whether the deadline had passed when the job came.
    expired: bool,
    _permit: Permit,
}

impl Compiler {
    /// Starts the threads that compile with `backend`.
    pub fn new(backend: Arc<dyn Backend>, limits: Limits) -> std::io::Result<Self> {
        let threads = limits.threads.max(2);
        let shared = Arc::new(Shared {
            backend,
            queue: Mutex::default(),
            changed: Condvar::new(),
            most_running: threads - 1,
        });
        let compiler = Compiler { shared, jobs: Quota::new(limits.jobs, limits.jobs_per_client) };
        for i in 0..threads {
            let shared = compiler.shared.clone();
            std::thread::Builder::new().name(format!("nnhal-compile-{i}")).spawn(move || shared.work())?;
        }
        Ok(compiler)
    }

    /// Puts `job` in line. Where that fails, its closure is dropped untold.
    pub fn submit(&self, job: Job) -> Result<(), CompileError> {
        let permit = self.jobs.take(job.client, 1).map_err(CompileError::TooManyJobs)?;
        let expired = job.control.deadline_ns.is_some_and(|deadline| boottime_ns() >= deadline);
        self.shared.lock().waiting.push_back(Waiting { job, expired, _permit: permit });
        self.shared.changed.notify_one();
        Ok(())
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.stop = true;
        let dropped = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(dropped); // whoever is told by a drop may ask for more: not under the lock
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compiles until the compiler stops.
    fn work(&self) {
        while let Some(next) = self.next() {
            let client = next.job.client;
            if catch_unwind(AssertUnwindSafe(|| self.compile(next))).is_err() {
                log::error!("telling the outcome of a compilation panicked");
            }
            let mut queue = self.lock();
            if let Some(at) = queue.running.iter().position(|&running| running == client) {
                queue.running.swap_remove(at);
            }
            drop(queue);
            self.changed.notify_all();
        }
    }

    /// Waits for a job that may run; `None` when the compiler stops.
    fn next(&self) -> Option<Waiting> {
        let mut queue = self.lock();
        while !queue.stop {
            let Queue { waiting, running, .. } = &mut *queue;
            let may_run = |waiting: &Waiting| {
                running.iter().filter(|&&client| client == waiting.job.client).count() < self.most_running
            };
            if let Some(next) = waiting.iter().position(may_run).and_then(|at| waiting.remove(at)) {
                running.push(next.job.client);
                return Some(next);
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn compile(&self, Waiting { job, expired, _permit: permit }: Waiting) {
        let Job { model, options, control, done, .. } = job;
        let outcome = if expired {
            Err(CompileError::Expired)
        } else {
            catch_unwind(AssertUnwindSafe(|| {
                control.check()?;
                self.backend.compile(&model, &options, &control)
            }))
            .map_err(|_| CompileError::Panicked)
            .and_then(|outcome| outcome.map_err(CompileError::Backend))
        };
        // The client's memory and its place are free before it hears of the outcome.
        drop((model, permit));
        done(outcome);
    }
}
