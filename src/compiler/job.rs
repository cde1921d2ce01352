//! A job in line for a thread that compiles. What has to wait for something else first gives its thread up, and stands in line
//! again in a while: how long that takes is not the compiler's to say, and others need the thread.

use super::{CompileError, Job, Shared, Work};
use crate::ops::Interrupt;
use crate::scheduler::marks::{self, Phase};
use crate::scheduler::slow_calls::Calls;
use crate::scheduler::{boottime_ns, Permit, Priority, Watcher, Workers};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a job that has to wait is out of line: hardly longer than its client would notice.
const PAUSE: Duration = Duration::from_millis(10);

pub(super) struct Queued {
    pub job: Job,
    pub priority: Priority,
    /// Whether its deadline had passed when it came.
    pub expired: bool,
    /// When it came.
    pub since: Instant,
    pub shared: Arc<Shared>,
    pub calls: Arc<Calls>,
    pub workers: Weak<Workers>,
    pub watcher: Weak<Watcher>,
    /// The client's place.
    pub permit: Permit,
}

impl Queued {
    /// Puts it in line. It is dropped untold once there is no compiler any more.
    pub fn submit(self) {
        let Some(workers) = self.workers.upgrade() else { return };
        workers.submit(self.job.control.client, self.priority, Box::new(move || self.begin()));
    }

    /// Begins it on a thread that compiles.
    fn begin(mut self) {
        if !self.expired && self.has_to_wait() {
            return self.submit_later();
        }
        let Queued { job: Job { work, control, done }, expired, since, shared, calls, permit, .. } = self;
        let _account = control.on_account();
        let _work = calls.begin_work("a compilation", control.client, since.elapsed());
        let _mark = marks::begin(|_| Phase::Compilation, "prepare");
        let prepared = if expired { Err(CompileError::Expired) } else { shared.prepare(work, &control) };
        // The client's place is free before it hears of the outcome.
        drop(permit);
        done(prepared);
    }

    /// Whether a device is busy with what is to be compiled. What is to stop waits for nothing.
    fn has_to_wait(&mut self) -> bool {
        let Job { work, control, .. } = &mut self.job;
        match work {
            Work::Compile { model, .. } => control.check().is_ok() && model.is_busy(),
            Work::Load(_) => false,
        }
    }

    /// Puts it in line in a while, in which it has no thread.
    fn submit_later(self) {
        let Some(watcher) = self.watcher.upgrade() else { return };
        let due = boottime_ns().saturating_add(PAUSE.as_nanos() as u64);
        watcher.at(due, Box::new(move || self.submit()));
    }
}
