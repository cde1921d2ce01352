//! Compilations: from a checked model to an executable, on threads of their own.
//!
//! What a client compiles while it has it already is the same model. What it gives cache files for is saved in these at once, and
//! the rest in the driver's own store once it was used. Just in time, compiling is left to the first execution, and saving waits for that.
//!
//! Jobs are bounded, in all and per client, and none stands behind another client's. Nothing here knows of binder: the caller
//! says in a closure what to do with the outcome.

mod caching;
mod content;
mod error;
mod job;
mod living;
mod saving;
mod storing;

pub use caching::{CachePlace, CachingError, Counts, LEAST_CONSTANTS};
pub use error::CompileError;
pub use job::{ClientFiles, Compiled, Job, Outcome, Work};
pub use saving::{SavePlace, StorePlace, Unsaved};

use crate::backend::{Backend, CompileOptions, Executable, Priority};
use crate::cache::{Cache, Origin, Store};
use crate::memory::Counted;
use crate::model::CountedModel;
use crate::ops::Interrupt;
use crate::scheduler::limits::{self, Limit};
use crate::scheduler::slow_calls::Calls;
use crate::scheduler::{boottime_ns, CallTurns, Control, Load, Permit, Quota, Task, Watcher, Workers};
use caching::FromCache;
use job::Queued;
use living::Living;
use saving::{Attempt, ReservedFiles, Saves, Saving};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use storing::By;

/// How long a save waits after the execution that it is due to. A save that began at once took the cores while that execution
/// was answered: on two cores the answer came some milliseconds later.
const AFTER_USE: Duration = Duration::from_millis(20);

/// How long a save waits for another one that the store makes, before it looks again.
const WHILE_STORE_SAVES: Duration = Duration::from_millis(50);

/// How much is compiled at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Threads that stay. A client's first job begins at once; a further one while fewer than these are at work in all.
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
    workers: Arc<Workers>,
    /// For saves that are due in a while.
    watcher: Arc<Watcher>,
    jobs: Arc<Quota>,
    saves: Arc<Saves>,
    /// Which jobs are under way.
    calls: Arc<Calls>,
    /// Whether the registry is being opened ahead.
    opening: Arc<AtomicBool>,
}

/// What compiling threads use.
struct Shared {
    backend: Arc<dyn Backend>,
    cache: Arc<Cache>,
    store: Option<Arc<Store>>,
    living: Living,
    /// For what is hashed and read.
    turns: CallTurns,
    counts: Arc<Counts>,
}

impl Compiler {
    /// Starts the threads that compile with `backend`, save in clients' files by way of `cache`, and keep the rest in
    /// `store`, under names that they hash by `turns`. `watcher` waits until saves are due.
    pub fn new(
        backend: Arc<dyn Backend>,
        limits: Limits,
        cache: Arc<Cache>,
        store: Option<Store>,
        (turns, watcher): (CallTurns, Arc<Watcher>),
    ) -> std::io::Result<Self> {
        let workers = Arc::new(Workers::new("nnhal-compile", limits.threads, watcher.starter())?);
        let jobs = limits.jobs.quota();
        let store = store.map(Arc::new);
        let shared = Arc::new(Shared {
            backend,
            cache,
            store,
            living: Living::default(),
            turns,
            counts: Arc::default(),
        });
        Ok(Compiler {
            shared,
            workers,
            watcher,
            jobs,
            saves: Arc::default(),
            calls: Arc::default(),
            opening: Arc::default(),
        })
    }

    /// Has jobs noted there, to tell of those that wait for long.
    pub fn watched(self, calls: Arc<Calls>) -> Self {
        Compiler { calls, ..self }
    }

    /// What counts compilations, and what it counts.
    pub fn jobs(&self) -> (&'static str, Arc<Quota>) {
        (limits::JOBS.what, self.jobs.clone())
    }

    /// How many jobs wait, and how many are worked at.
    pub fn load(&self) -> Load {
        self.workers.load()
    }

    /// What was counted of both caches.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// The driver's own store; `None` if it has none.
    pub fn store(&self) -> Option<&Store> {
        self.shared.store.as_deref()
    }

    /// Opens in the background what an earlier driver has left, so that the first client does not wait for the disk: the
    /// registry of clients' files, and the driver's own store.
    pub fn open_ahead(&self) {
        // Counted as a save, so that a process which ends does not end amid it.
        let Some(opening) = self.saves.begin() else { return };
        let (cache, store) = (self.shared.cache.clone(), self.shared.store.clone());
        let task = move || {
            cache.open_left();
            if let Some(store) = store {
                store.open_ahead();
            }
            drop(opening);
        };
        self.submit_own(Box::new(task));
    }

    /// Opens the registry of clients' files in the background, for a client that asks about them: it is about to save or load.
    pub fn open_registry_ahead(&self) {
        let cache = &self.shared.cache;
        if cache.is_open() || self.opening.swap(true, Ordering::Relaxed) {
            return;
        }
        let Some(saving) = self.saves.begin() else { return };
        let (cache, opening) = (cache.clone(), self.opening.clone());
        let task = move || {
            cache.open_ahead();
            opening.store(false, Ordering::Relaxed);
            drop(saving);
        };
        self.submit_own(Box::new(task));
    }

    /// Puts a task in line that the driver does for itself, not for a client.
    fn submit_own(&self, task: Task) {
        let client = nix::unistd::geteuid().as_raw();
        self.workers.submit(client, Priority::High, task);
    }

    /// Puts `job` in line. Where that fails, its closure is dropped untold.
    pub fn submit(&self, job: Job) -> Result<(), CompileError> {
        let (client, deadline_ns) = (job.control.client, job.control.deadline_ns);
        let permit = self.jobs.take(client, 1).map_err(CompileError::TooManyJobs)?;
        let priority = match &job.work {
            Work::Compile { options, .. } => options.priority,
            Work::Load(_) => Priority::default(),
        };
        let expired = deadline_ns.is_some_and(|deadline| boottime_ns() >= deadline);
        let shared = self.shared.clone();
        let queued = Queued {
            job,
            priority,
            expired,
            since: Instant::now(),
            out: Duration::ZERO,
            cache: self.shared.cache.clone(),
            prepare: Box::new(move |work, control| shared.prepare(work, control)),
            calls: self.calls.clone(),
            workers: Arc::downgrade(&self.workers),
            watcher: Arc::downgrade(&self.watcher),
            permit,
        };
        queued.submit();
        Ok(())
    }

    /// Has a model saved, at low priority, now that it was executed. Does nothing where that is under way, done, or has
    /// failed for good.
    pub fn used(&self, unsaved: &Unsaved, executable: &Arc<dyn Executable>) {
        let client = unsaved.client();
        let Some(attempt) = unsaved.begin() else { return };
        let Ok(permit) = self.jobs.take(client, 1) else { return attempt.leave() };
        // From here on, so that a process which runs a model once, and ends, saves it all the same.
        let Some(saving) = self.saves.begin() else { return };
        let due = DueSave {
            client,
            attempt,
            executable: executable.clone(),
            counts: self.shared.counts.clone(),
            turns: self.shared.turns.clone(),
            calls: self.calls.clone(),
            workers: Arc::downgrade(&self.workers),
            watcher: Arc::downgrade(&self.watcher),
            _held: (permit, saving),
        };
        due.begin_after(AFTER_USE);
    }

    /// For a process that is about to end: waits, not for long, for saves that are due; none begins from here on.
    pub fn settle(&self) {
        self.saves.close();
    }
}

/// A save in the background.
struct DueSave {
    client: u32,
    attempt: Attempt,
    executable: Arc<dyn Executable>,
    counts: Arc<Counts>,
    turns: CallTurns,
    calls: Arc<Calls>,
    workers: Weak<Workers>,
    watcher: Weak<Watcher>,
    /// Until it is over.
    _held: (Permit, Saving),
}

impl DueSave {
    /// Puts it in line in a while, in which it has no thread.
    fn begin_after(self, pause: Duration) {
        let Some(watcher) = self.watcher.upgrade() else { return };
        let begin = move || {
            let (since, client) = (Instant::now(), self.client);
            let Some(workers) = self.workers.upgrade() else { return };
            workers.submit(client, Priority::Low, Box::new(move || self.make(since)));
        };
        watcher.at(boottime_ns().saturating_add(pause.as_nanos() as u64), Box::new(begin));
    }

    fn make(self, since: Instant) {
        let work = self.calls.begin_work("a save", self.client, since.elapsed());
        // Whether the client lives matters no more.
        let control = Control { client: self.client, priority: Priority::Low, ..Control::default() };
        let again = self.attempt.make(&*self.executable, (&self.turns, &control), &self.counts);
        drop(work);
        if let Some(attempt) = again {
            DueSave { attempt, ..self }.begin_after(WHILE_STORE_SAVES);
        }
    }
}

impl Shared {
    fn prepare(&self, work: Work, control: &Control) -> Outcome {
        let prepared = catch_unwind(AssertUnwindSafe(|| {
            control.check().map_err(|why| CompileError::Backend(why.into()))?;
            match work {
                Work::Compile { model, options, files, mappings } => {
                    self.compile(model, options, files, mappings, control)
                }
                Work::Load(files) => self.load(files, control),
            }
        }));
        prepared.map_err(|_| CompileError::Panicked)?
    }

    fn compile(
        &self,
        mut model: CountedModel,
        mut options: CompileOptions,
        files: Option<ClientFiles>,
        mut mappings: Option<Permit>,
        control: &Control,
    ) -> Outcome {
        // Until the first execution its constants stay the client's.
        options.just_in_time &= mappings.is_some();
        let by = By {
            backend: &*self.backend,
            store: self.store.as_ref().map(|store| (store, &self.counts.store)),
            living: &self.living,
            turns: &self.turns,
        };
        let copied = model.copy_busy(&self.turns.check(control));
        let copied = copied.map_err(|why| CompileError::Backend(why.into()))?;
        // Copies are not kept until the first execution for their hash alone.
        let mut none = None;
        let for_name = if copied { &mut none } else { &mut mappings };
        // A client that keeps the model itself needs no second copy on the disk; one from earlier may be there.
        let keep = files.is_none();
        let what = (&*model, &options);
        let (executable, store_as) =
            storing::compile(&by, keep, what, for_name, control).map_err(CompileError::Backend)?;
        drop(model); // its constants may be copies: to save takes memory of its own
        let place = match files {
            Some(files) => self.save(&executable, &options, files, control).unwrap_or_else(|why| {
                // A client that has gone needs no warning.
                let level = if control.check().is_err() { log::Level::Debug } else { log::Level::Warn };
                log::log!(level, "a compilation is not cached: {why}");
                None
            }),
            None => store_as.map(|place| SavePlace::Store(place.into())),
        };
        let mappings = mappings.filter(|_| options.just_in_time);
        Ok(Compiled { executable, options, unsaved: Unsaved::new(control.client, place, mappings) })
    }

    /// Prepares a model from its client's files.
    fn load(&self, files: ClientFiles, control: &Control) -> Outcome {
        let loaded = files.place.load(self.caches(), &*self.backend, &self.living, (&self.turns, control));
        self.counts.files.looked(loaded.as_ref().map(drop).map_err(CachingError::reason));
        let FromCache { executable, options, to_keep } = loaded.map_err(CompileError::Caching)?;
        let place = to_keep.and_then(|origin| self.place_of_data(control.client, origin));
        Ok(Compiled { executable, options, unsaved: Unsaved::new(control.client, place, None) })
    }

    fn caches(&self) -> (&Cache, Option<&Store>) {
        (&self.cache, self.store.as_deref())
    }

    /// Where the store keeps the data that a client has cached, for the next load not to copy them.
    fn place_of_data(&self, uid: u32, origin: Origin) -> Option<SavePlace> {
        let store = self.store.clone()?;
        let place = StorePlace { store, uid, name: saving::StoreName::DataOf(origin) };
        Some(SavePlace::Store(place.into()))
    }

    /// Saves a compilation in its client's files. Gives what the first execution is to save: the data in the store, or what
    /// it compiles itself.
    fn save(
        &self,
        executable: &Arc<dyn Executable>,
        options: &CompileOptions,
        files: ClientFiles,
        control: &Control,
    ) -> Result<Option<SavePlace>, CachingError> {
        let ClientFiles { place, permit } = files;
        let saved = caching::artifact(&**executable, control).and_then(|made| {
            let save = |(artifact, _counted): (_, Counted)| {
                place.save(self.caches(), artifact, options, &self.turns.check(control))
            };
            made.map(save).transpose()
        });
        let is_stopped = saved.is_err() && control.check().is_err();
        if !matches!(saved, Ok(None)) && !is_stopped {
            self.counts.files.saved(saved.as_ref().map(drop).map_err(CachingError::reason));
        }
        if let Some(origin) = saved? {
            if let Some(origin) = &origin {
                self.living.also(control.client, origin.hash, executable);
            }
            return Ok(origin.and_then(|origin| self.place_of_data(control.client, origin)));
        }
        if !options.just_in_time {
            return Err(CachingError::NotCacheable);
        }
        let reserved = place.reserve(self.caches(), &self.turns.check(control))?;
        let (cache, options) = (self.cache.clone(), *options);
        Ok(Some(SavePlace::Files(Box::new(ReservedFiles {
            cache,
            place,
            reserved,
            options,
            _permit: permit,
        }))))
    }
}

#[cfg(test)]
mod disk_tests;
#[cfg(test)]
mod tests;
