//! Fenced executions: begun at once, run when their fences are signalled, told by a fence of their own.
//!
//! A fence says whether its execution succeeded: clients ask the callback only of a fence that failed. VTS, on the other
//! hand, wants no failed fence of a loop that runs out of time, but takes that as the status of the call. So a model that
//! may loop runs within the call, unless there are fences to wait for.

use super::fence::{self, FenceState, Signal};
use super::run::{timing, Busy, Execution, Finished, NO_TIMING};
use super::status::{self, ServiceError};
use super::terms::{self, check_deadline};
use crate::aidl::*;
use crate::backend::{boottime_ns, BackendError};
use crate::scheduler::{Event, Key, Permit, ThreadCache, Turn, Watcher};
use binder::{BinderResult, Interface, ParcelFileDescriptor};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The threads of fenced executions. Each begins when it is its execution's turn: so there are few at once.
static EXECUTORS: ThreadCache = ThreadCache::new("nnhal-fenced", Duration::from_secs(5));

/// The times that bound a fenced execution, and when its call came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    deadline: Option<u64>,
    /// Counted from when the last fence is signalled.
    duration: Option<Duration>,
    launched: Instant,
}

impl Times {
    pub fn new(deadline: i64, duration: i64) -> Result<Self, ServiceError> {
        let launched = Instant::now();
        Ok(Times { deadline: terms::deadline(deadline)?, duration: terms::duration(duration)?, launched })
    }

    /// Until when it may take if its fences are signalled now, by its duration alone.
    fn after_fences(&self) -> Option<u64> {
        let duration = u64::try_from(self.duration?.as_nanos()).unwrap_or(u64::MAX);
        Some(boottime_ns().saturating_add(duration))
    }
}

/// A fenced execution, from its launch to its signal.
struct Task {
    times: Times,
    client: u32,
    cancelled: Arc<AtomicBool>,
    state: Mutex<State>,
}

struct State {
    /// Present until it is over.
    work: Option<Work>,
    /// Fences that are not signalled yet.
    unsignalled: usize,
    running: bool,
    keys: Vec<Key>,
    result: (ErrorStatus, Timing, Timing),
}

/// All that a fenced execution holds while it is not over.
struct Work {
    execution: Arc<Execution>,
    signal: Signal,
    busy: Option<Busy>,
    /// Shared with its place in line for a turn, which may outlast it.
    descriptors: Arc<Permit>,
    mappings: Permit,
}

/// Launches `execution`, which waits for the fences `wait_for`.
pub(super) fn launch(
    execution: Arc<Execution>,
    wait_for: &[ParcelFileDescriptor],
    times: Times,
    busy: Option<Busy>,
) -> Result<FencedExecutionResult, ServiceError> {
    check_deadline(times.deadline)?;
    let core = execution.prepared().core.clone();
    let client = execution.prepared().client();
    let descriptors = Arc::new(core.quotas.descriptors(client, wait_for.len() + 1)?);
    let mappings = core.quotas.mappings(client, execution.mappings())?;
    let pending = pending(wait_for)?;
    if pending.is_empty() {
        if execution.prepared().executable.may_loop() {
            return run_within_the_call(&execution, times);
        }
        execution.check_buffers()?;
    }
    let (signal, fence) = Signal::new().map_err(|why| no_descriptor(&why))?;
    let task = Arc::new(Task {
        times,
        client,
        cancelled: Arc::default(),
        state: Mutex::new(State {
            work: Some(Work { execution, signal, busy, descriptors, mappings }),
            unsignalled: pending.len(),
            running: false,
            keys: Vec::new(),
            result: (ErrorStatus::GENERAL_FAILURE, NO_TIMING, NO_TIMING),
        }),
    });
    if let Some(deadline) = times.deadline {
        task.expire_at(deadline, &core.watcher);
    }
    if pending.is_empty() {
        task.start();
    } else if let Err(error) = task.wait(pending, &core.watcher) {
        task.finish(Err(ServiceError::Failed("not all of its fences can be waited for".into())));
        return Err(error);
    }
    let callback = BnFencedExecutionCallback::new_binder(Callback { task });
    Ok(FencedExecutionResult { callback: Some(callback), syncFence: Some(ParcelFileDescriptor::new(fence)) })
}

/// Runs to completion on the calling thread: what comes back needs no fence, and an error is the call's.
fn run_within_the_call(execution: &Execution, times: Times) -> Result<FencedExecutionResult, ServiceError> {
    let client = execution.prepared().client();
    let _place = execution.prepared().core.quotas.execution(client)?;
    let (fenced, cancelled) = (Instant::now(), Arc::<AtomicBool>::default());
    let deadline = [times.deadline, times.after_fences()].into_iter().flatten().min();
    let on_device = whole(execution.run(deadline, cancelled.clone())?)?;
    let (launched, fenced) = timings(execution, times, fenced, on_device);
    let state = State {
        work: None,
        unsignalled: 0,
        running: false,
        keys: Vec::new(),
        result: (ErrorStatus::NONE, launched, fenced),
    };
    let task = Arc::new(Task { times, client, cancelled, state: Mutex::new(state) });
    let callback = BnFencedExecutionCallback::new_binder(Callback { task });
    Ok(FencedExecutionResult { callback: Some(callback), syncFence: None })
}

/// How long the backend was at a run, if every output fits its memory: a fence cannot tell which does not.
fn whole(finished: Finished) -> Result<Duration, ServiceError> {
    match finished.outputs.iter().position(|output| !output.sufficient) {
        Some(i) => Err(ServiceError::Failed(format!("output {i} does not fit its memory"))),
        None => Ok(finished.on_device),
    }
}

/// The timings since the launch and since the last fence, if they are asked for.
fn timings(execution: &Execution, times: Times, fenced: Instant, on_device: Duration) -> (Timing, Timing) {
    if execution.terms().measure {
        (timing(on_device, times.launched.elapsed()), timing(on_device, fenced.elapsed()))
    } else {
        (NO_TIMING, NO_TIMING)
    }
}

/// Copies of those fences that are not signalled yet.
fn pending(fences: &[ParcelFileDescriptor]) -> Result<Vec<OwnedFd>, ServiceError> {
    let mut pending = Vec::new();
    for (i, fence) in fences.iter().enumerate() {
        match fence::state(fence.as_fd()) {
            FenceState::Signalled => {}
            FenceState::Failed => {
                return Err(ServiceError::argument(format!("fence {i} is in its error state")));
            }
            FenceState::None => {
                return Err(ServiceError::argument(format!(
                    "fence {i} is a named file; expected a sync fence"
                )));
            }
            FenceState::Pending => {
                pending.push(fence.as_fd().try_clone_to_owned().map_err(|why| no_descriptor(&why))?);
            }
        }
    }
    Ok(pending)
}

fn no_descriptor(why: &std::io::Error) -> ServiceError {
    ServiceError::Exhausted(format!("no descriptor for a fence: {why}"))
}

impl Task {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it expire at `deadline`, unless it runs by then: a run looks to that itself.
    fn expire_at(self: &Arc<Self>, deadline: u64, watcher: &Watcher) {
        let task = self.clone();
        let expire = move || task.end(|state| !state.running, Err(BackendError::DeadlinePassed.into()));
        self.keep(watcher.at(deadline, Box::new(expire)), watcher);
    }

    /// Keeps a wait until it is over.
    fn keep(&self, key: Key, watcher: &Watcher) {
        let mut state = self.lock();
        if state.work.is_some() {
            state.keys.push(key);
        } else {
            drop(state); // it ended meanwhile
            watcher.forget(key);
        }
    }

    /// Has the fences waited for.
    fn wait(self: &Arc<Self>, fences: Vec<OwnedFd>, watcher: &Watcher) -> Result<(), ServiceError> {
        for (i, fence) in fences.into_iter().enumerate() {
            let task = self.clone();
            let key = watcher.readable(fence, Box::new(move |event, fence| task.signalled(event, fence)));
            let key =
                key.map_err(|why| ServiceError::argument(format!("fence {i} cannot be waited for: {why}")))?;
            self.keep(key, watcher);
        }
        Ok(())
    }

    /// One of its fences is signalled, or failed.
    fn signalled(self: &Arc<Self>, event: Event, fence: &OwnedFd) {
        if event == Event::Error || fence::signalled(fence.as_fd()) == FenceState::Failed {
            return self.finish(Err(ServiceError::Failed("a fence that it waited for failed".into())));
        }
        let mut state = self.lock();
        state.unsignalled = state.unsignalled.saturating_sub(1);
        let last = state.unsignalled == 0;
        drop(state);
        if last {
            self.start();
        }
    }

    /// Has it run when its turn comes: all fences are signalled.
    fn start(self: &Arc<Self>) {
        let fenced = Instant::now();
        let state = self.lock();
        let Some(work) = &state.work else { return };
        let (core, priority) = (work.execution.prepared().core.clone(), work.execution.prepared().priority);
        let place = work.descriptors.clone();
        drop(state);
        let after_fences = self.times.after_fences();
        if let Some(deadline) = after_fences {
            self.expire_at(deadline, &core.watcher);
        }
        let deadline = [self.times.deadline, after_fences].into_iter().flatten().min();
        let task = self.clone();
        let begin = move |turn| {
            // Given back only here: executions that expired or were given up stand in line still.
            drop(place);
            task.begin(turn, fenced, deadline)
        };
        core.turns.when_due(self.client, priority, Box::new(begin));
    }

    /// Begins to run on a thread of its own. The turn comes back if it cannot, or is over already.
    fn begin(self: Arc<Self>, turn: Turn, fenced: Instant, deadline: Option<u64>) -> Result<(), Turn> {
        if self.lock().work.is_none() {
            return Err(turn);
        }
        let turn = Arc::new(Mutex::new(Some(turn)));
        let take = |turn: &Mutex<Option<Turn>>| turn.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (task, given) = (self.clone(), turn.clone());
        let run = move || {
            if let Some(turn) = take(&given) {
                task.run(turn, fenced, deadline);
            }
        };
        EXECUTORS.run(run).or_else(|why| {
            self.finish(Err(ServiceError::Exhausted(format!("no thread to run on: {why}"))));
            take(&turn).map_or(Ok(()), Err)
        })
    }

    fn run(&self, turn: Turn, fenced: Instant, deadline: Option<u64>) {
        let mut state = self.lock();
        let Some(execution) = state.work.as_ref().map(|work| work.execution.clone()) else { return };
        state.running = true;
        drop(state);
        let run = || execution.run_in(turn, deadline, self.cancelled.clone());
        let ran = catch_unwind(AssertUnwindSafe(run));
        let finished = ran.unwrap_or(Err(ServiceError::Panicked)).and_then(whole);
        let timings = finished.map(|on_device| timings(&execution, self.times, fenced, on_device));
        drop(execution);
        self.finish(timings);
    }

    fn finish(&self, result: Result<(Timing, Timing), ServiceError>) {
        self.end(|_| true, result);
    }

    /// Ends it, unless it is over or `may` does not allow it: what can be asked of it is there first, then the fence
    /// tells.
    fn end(&self, may: impl FnOnce(&State) -> bool, result: Result<(Timing, Timing), ServiceError>) {
        let mut state = self.lock();
        if !may(&state) {
            return;
        }
        let Some(work) = state.work.take() else { return };
        let succeeded = result.is_ok();
        state.result = match result {
            Ok((launched, fenced)) => (ErrorStatus::NONE, launched, fenced),
            Err(error) => {
                status::log("fenced execution", &error);
                (error.status(), NO_TIMING, NO_TIMING)
            }
        };
        let keys = std::mem::take(&mut state.keys);
        drop(state);
        let core = work.execution.prepared().core.clone();
        keys.into_iter().for_each(|key| core.watcher.forget(key));
        // Memory and places are given back before anybody hears of the end.
        let Work { execution, signal, busy, descriptors, mappings } = work;
        drop((execution, busy, descriptors, mappings));
        if succeeded {
            signal.signal();
        } else {
            drop(signal);
        }
    }

    /// Nobody can learn of the outcome any more: stops.
    fn abandon(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.end(|state| !state.running, Err(BackendError::Cancelled.into()));
    }
}

/// IFencedExecutionCallback, by which the client asks for the outcome.
struct Callback {
    task: Arc<Task>,
}

impl Drop for Callback {
    /// The client gave the callback up, or died. It may still hold the fence: only when that is closed, too, is the
    /// execution of no use.
    fn drop(&mut self) {
        let state = self.task.lock();
        let Some(work) = &state.work else { return };
        let core = work.execution.prepared().core.clone();
        let peer = work.signal.peer();
        drop(state);
        let task = self.task.clone();
        let watched = peer.and_then(|peer| core.watcher.hangup(peer, Box::new(move |_, _| task.abandon())));
        match watched {
            Ok(key) => self.task.keep(key, &core.watcher),
            Err(why) => {
                log::warn!("a fence is not watched: {why}");
                self.task.abandon();
            }
        }
    }
}

impl Interface for Callback {}

impl IFencedExecutionCallback for Callback {
    fn getExecutionInfo(&self, launched: &mut Timing, fenced: &mut Timing) -> BinderResult<ErrorStatus> {
        let state = self.task.lock();
        let status;
        (status, *launched, *fenced) = match state.work.is_some() {
            true => (ErrorStatus::GENERAL_FAILURE, NO_TIMING, NO_TIMING),
            false => state.result.clone(),
        };
        Ok(status)
    }
}
