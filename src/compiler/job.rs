//! A compilation to do, and its place in line for a thread that compiles. What has to wait for something else first gives its
//! thread up, and stands in line again in a while: how long that takes is not the compiler's to say, and others need the thread.
//!
//! It must not know how a model is compiled.

use super::caching::CachePlace;
use super::error::CompileError;
use super::saving::Unsaved;
use crate::backend::{CompileOptions, Executable};
use crate::cache::Cache;
use crate::model::CountedModel;
use crate::ops::Interrupt;
use crate::scheduler::marks::{self, Phase};
use crate::scheduler::slow_calls::Calls;
use crate::scheduler::{boottime_ns, Control, Permit, Priority, Wake, Wakes, Watcher, Workers};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a job that has to wait is out of line, at least, hardly longer than its client would notice, and at most: between them, as
/// long as it has been already.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(160)];
/// A job that has been out of line for so long begins, and waits with its thread: there may never be a moment in which no device is busy.
const PATIENCE: Duration = Duration::from_secs(5);

/// What became of a compilation.
pub type Outcome = Result<Compiled, CompileError>;

/// A model that can be run.
pub struct Compiled {
    pub executable: Arc<dyn Executable>,
    /// What its client asked of it.
    pub options: CompileOptions,
    /// The save to be made once the model was executed.
    pub unsaved: Unsaved,
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
    Compile {
        model: CountedModel,
        options: CompileOptions,
        files: Option<ClientFiles>,
        /// For the memories that its constants lie in, should they stay mapped until the first execution; without it they
        /// do not.
        mappings: Option<Permit>,
    },
    /// The files that an earlier compilation was saved in.
    Load(ClientFiles),
}

/// A client's cache files, for one compilation.
pub struct ClientFiles {
    pub place: CachePlace,
    /// For their descriptors, while the job stands in line and, should they be kept for it, until the first execution.
    pub permit: Permit,
}

/// A job out of line, until somebody puts it in line again, and what has that done should the job be to stop.
type Out = Mutex<Option<(Queued, [Wakes; 2])>>;

/// What a thread that compiles does.
type Prepare = Box<dyn FnOnce(Work, &Control) -> Outcome + Send>;

/// A job in line.
pub(super) struct Queued {
    pub job: Job,
    pub priority: Priority,
    /// Whether its deadline had passed when it came.
    pub expired: bool,
    /// When it came.
    pub since: Instant,
    /// For how long it was out of line.
    pub out: Duration,
    pub cache: Arc<Cache>,
    pub prepare: Prepare,
    pub calls: Arc<Calls>,
    pub workers: Weak<Workers>,
    pub watcher: Weak<Watcher>,
    /// The client's place.
    pub permit: Permit,
}

impl Queued {
    /// Puts it in line. It is dropped untold once the compiler has gone.
    pub fn submit(self) {
        let Some(workers) = self.workers.upgrade() else { return };
        workers.submit(self.job.control.client, self.priority, Box::new(move || self.begin()));
    }

    /// Begins it on a thread that compiles.
    fn begin(mut self) {
        if !self.expired && self.has_to_wait() {
            return self.submit_later();
        }
        let Queued { job: Job { work, control, done }, expired, since, prepare, calls, permit, .. } = self;
        let _account = control.on_account();
        let _work = calls.begin_work("a compilation", control.client, since.elapsed());
        let _mark = marks::begin(|_| Phase::Compilation, "prepare");
        let prepared = if expired { Err(CompileError::Expired) } else { prepare(work, &control) };
        // The client's place is free before it hears of the outcome.
        drop(permit);
        done(prepared);
    }

    /// Whether a device is busy with what is to be compiled, or others use the files that it is to be loaded from. What is to stop
    /// waits for nothing. Files to save in are waited for once there is something to save, which they are not to hold up.
    fn has_to_wait(&mut self) -> bool {
        let Job { work, control, .. } = &mut self.job;
        let may_wait = self.out < PATIENCE && control.check().is_ok();
        may_wait
            && match work {
                Work::Compile { model, .. } => model.is_busy(),
                Work::Load(files) => files.place.has_to_wait(&self.cache),
            }
    }

    /// Puts it in line in a while, in which it has no thread, or at once should it be to stop.
    fn submit_later(mut self) {
        let Some(watcher) = self.watcher.upgrade() else { return };
        let (control, pause) = (self.job.control.clone(), self.out.clamp(PAUSES[0], PAUSES[1]));
        self.out += pause;
        let due = boottime_ns().saturating_add(pause.as_nanos() as u64);
        let due = control.deadline_ns.map_or(due, |deadline| due.min(deadline));
        let out = Arc::new(Out::default());
        // A flag that is never set must not keep what only it would wake.
        let stopped = Arc::downgrade(&out);
        let wake: Wake = Arc::new(move || stopped.upgrade().iter().for_each(|out| put_in_line(out)));
        let wakes = control.wakes(&wake);
        *out.lock().unwrap_or_else(PoisonError::into_inner) = Some((self, wakes));
        if control.check().is_err() {
            return put_in_line(&out);
        }
        watcher.at(due, Box::new(move || put_in_line(&out)));
    }
}

/// Puts a job in line again, unless that was done.
fn put_in_line(out: &Out) {
    let job = out.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((job, _wakes)) = job {
        job.submit();
    }
}
