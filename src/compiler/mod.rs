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
use finishing::Rewriting;
pub use finishing::{Keep, Rest, StorePlace};
pub use storing::LEAST_CONSTANTS;

use crate::backend::{Backend, CompileOptions, Executable, Priority};
use crate::cache::{Cache, Store, Written};
use crate::memory::on_account_of;
use crate::model::Model;
use crate::ops::Interrupt;
use crate::scheduler::limits::{self, Limit};
use crate::scheduler::marks::{self, Phase};
use crate::scheduler::{boottime_ns, Control, Permit, Quota, Workers};
use finishing::Saves;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

/// What became of a compilation.
pub type Outcome = Result<Compiled, CompileError>;

/// A model that can be run.
pub struct Compiled {
    pub executable: Arc<dyn Executable>,
    /// What its client asked of it.
    pub options: CompileOptions,
    /// What is left to do once it was used.
    pub rest: Rest,
}

/// A compilation to do.
pub struct Job {
    pub work: Work,
    /// The terms, with the client whose job it is.
    pub control: Control,
    /// Told the outcome, once, on a compiling thread: must not wait for anybody. Dropped untold where the compiler
    /// stops first.
    pub done: Box<dyn FnOnce(Outcome) + Send>,
}

/// What a compilation begins with.
pub enum Work {
    /// A model, to be compiled and, if the client gave files for it, saved in these.
    Compile { model: Model, options: CompileOptions, files: Option<ClientFiles> },
    /// The files that an earlier compilation was saved in.
    Load(ClientFiles),
}

/// A client's cache files, for one compilation.
pub struct ClientFiles {
    pub place: CachePlace,
    /// For their descriptors, should they be kept to be rewritten; without it they are not.
    pub permit: Option<Permit>,
}

/// How much is compiled at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Threads that compile; at least two, as one is kept from any single client.
    pub threads: usize,
    /// Jobs waiting or compiling.
    pub jobs: Limit,
}

impl Default for Limits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, |n| n.get());
        Limits { threads: cores.clamp(2, 8) + 1, jobs: limits::JOBS }
    }
}

/// Compiles in the background, until it is dropped.
pub struct Compiler {
    shared: Arc<Shared>,
    workers: Workers,
    jobs: Arc<Quota>,
    saves: Arc<Saves>,
}

/// What compiling threads use.
struct Shared {
    backend: Arc<dyn Backend>,
    cache: Arc<Cache>,
    store: Option<Arc<Store>>,
}

impl Compiler {
    /// Starts the threads that compile with `backend`, save in clients' files by way of `cache`, and keep the rest in
    /// `store`.
    pub fn new(
        backend: Arc<dyn Backend>,
        limits: Limits,
        cache: Arc<Cache>,
        store: Option<Store>,
    ) -> std::io::Result<Self> {
        let workers = Workers::new("nnhal-compile", limits.threads)?;
        let jobs = limits.jobs.quota();
        let shared = Arc::new(Shared { backend, cache, store: store.map(Arc::new) });
        Ok(Compiler { shared, workers, jobs, saves: Arc::default() })
    }

    /// Puts `job` in line. Where that fails, its closure is dropped untold.
    pub fn submit(&self, job: Job) -> Result<(), CompileError> {
        let Job { work, control, done } = job;
        let client = control.client;
        let permit = self.jobs.take(client, 1).map_err(CompileError::TooManyJobs)?;
        let priority = match &work {
            Work::Compile { options, .. } => options.priority,
            Work::Load(_) => Priority::default(),
        };
        let expired = control.deadline_ns.is_some_and(|deadline| boottime_ns() >= deadline);
        let shared = self.shared.clone();
        let task = move || {
            let _account = on_account_of(client);
            let _mark = marks::begin(|_| Phase::Compilation, "prepare");
            let prepared = if expired { Err(CompileError::Expired) } else { shared.prepare(work, &control) };
            // The client's place is free before it hears of the outcome.
            drop(permit);
            done(prepared);
        };
        self.workers.submit(client, priority, Box::new(task));
        Ok(())
    }
}

impl Shared {
    fn prepare(&self, work: Work, control: &Control) -> Outcome {
        let prepared = catch_unwind(AssertUnwindSafe(|| {
            control.check().map_err(|why| CompileError::Backend(why.into()))?;
            match work {
                Work::Compile { model, options, files } => self.compile(&model, &options, files, control),
                Work::Load(files) => self.load(files, control),
            }
        }));
        prepared.map_err(|_| CompileError::Panicked)?
    }

    fn compile(
        &self,
        model: &Model,
        options: &CompileOptions,
        files: Option<ClientFiles>,
        control: &Control,
    ) -> Outcome {
        // The driver's own store is of no use to a client that keeps the compilation itself, and what is compiled just
        // in time must not be looked at before.
        let store = self.store.as_ref().filter(|_| files.is_none() && !options.just_in_time);
        let (executable, store_as) = storing::compile(store, &*self.backend, (model, options), control)
            .map_err(CompileError::Backend)?;
        let keep = match files {
            Some(files) => self.save(&*executable, options, files),
            None => store_as.map(Keep::Stored),
        };
        Ok(Compiled { executable, options: *options, rest: Rest::new(control.client, keep) })
    }

    /// Prepares a model from its client's files.
    fn load(&self, files: ClientFiles, control: &Control) -> Outcome {
        let loaded = files.place.load(&self.cache, &*self.backend, control);
        let (executable, options, written) = loaded.map_err(CompileError::Caching)?;
        let keep = self.rewriting(&*executable, &options, files, written);
        Ok(Compiled { executable, options, rest: Rest::new(control.client, keep) })
    }

    /// Saves a compilation in its client's files; gives how to rewrite them, if it will go further.
    fn save(
        &self,
        executable: &dyn Executable,
        options: &CompileOptions,
        files: ClientFiles,
    ) -> Option<Keep> {
        match files.place.save(&self.cache, executable, options) {
            Ok(written) => self.rewriting(executable, options, files, written),
            Err(why) => {
                log::warn!("a compilation is not cached: {why}");
                None
            }
        }
    }

    /// How to rewrite a compilation's files once it is finished, unless it is already.
    fn rewriting(
        &self,
        executable: &dyn Executable,
        options: &CompileOptions,
        files: ClientFiles,
        written: Written,
    ) -> Option<Keep> {
        if executable.is_finished() {
            return None;
        }
        let Some(permit) = files.permit else {
            log::info!("cache files will not be rewritten: this client has too many open");
            return None;
        };
        let (cache, options) = (self.cache.clone(), *options);
        let rewriting = Rewriting { cache, place: files.place, written, options, _permit: permit };
        Some(Keep::Cached(Box::new(rewriting)))
    }
}

#[cfg(test)]
mod tests;
