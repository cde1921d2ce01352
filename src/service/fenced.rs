//! Fenced executions: begun at once, submitted when their fences are signalled, told by a fence of their own.
//!
//! A fence says whether its execution succeeded: clients ask the callback only of a fence that failed. VTS, on the other
//! hand, wants no failed fence of a loop that runs out of time, but takes that as the status of the call. So a model that
//! may loop runs within the call, unless there are fences to wait for.

use super::busy::Busy;
use super::call;
use super::fence::{self, FenceState, Signal};
use super::run::{Execution, NO_TIMING};
use super::status::ServiceError;
use super::terms::check_deadline;
use super::times::Times;
use crate::aidl::*;
use crate::backend::{boottime_ns, BackendError, Control, Outcome, Submission, GRACE};
use crate::buffer::Claims;
use crate::ipc::{self, BinderResult, Interface, ParcelFileDescriptor};
use crate::ops::Interrupt;
use crate::scheduler::{caller_gone, Errands, Event, Key, Permit, Stop, Turn, Watched, Watcher};
use crate::statistics::{Executions, Running};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A fenced execution, from its launch to its signal.
struct Task {
    times: Times,
    cancelled: Arc<Stop>,
    watcher: Arc<Watcher>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Present until it is over.
    work: Option<Work>,
    /// Fences that are not signalled yet.
    unsignalled: usize,
    /// Whether the device has it.
    submitted: bool,
    /// Asks the device to stop, once it has it.
    cancel: Option<Arc<dyn Fn() + Send + Sync>>,
    keys: Vec<Key>,
    result: Option<(ErrorStatus, Timing, Timing)>,
}

/// All that a fenced execution holds while it is not over.
struct Work {
    execution: Arc<Execution>,
    signal: Signal,
    busy: Option<Busy>,
    /// Shared with its place in line, which may outlast it.
    descriptors: Arc<Permit>,
    mappings: Permit,
    /// Where it has one, it begins and ends at once, on threads that others need, else in its client's lines.
    at_once: Option<Permit>,
    /// Where the device is to wait for its fences, until it has a place in the device's queue: goes with that then.
    device_waits: Option<Permit>,
    /// Its count, from when it is submitted.
    running: Option<Running<Arc<Executions>>>,
}

impl Work {
    /// Its client, and the line in which it ends if that is not at once.
    fn line_to_end(&self) -> Option<(u32, Arc<Errands>)> {
        self.at_once.is_none().then(|| self.line())
    }

    /// Its client, and the line in which that one's executions end.
    fn line(&self) -> (u32, Arc<Errands>) {
        let prepared = self.execution.prepared();
        (prepared.client(), prepared.core.endings.clone())
    }
}

/// Runs `work`: in a client's line, if it is to.
fn run_in(line: Option<(u32, Arc<Errands>)>, work: impl FnOnce() + Send + 'static) {
    match line {
        Some((client, endings)) => endings.run(client, work),
        None => work(),
    }
}

/// Descriptors that an execution has besides its fences: its signal, and that once more to hear that its client is gone.
const OWN_DESCRIPTORS: usize = 2;

/// Launches `execution`, which waits for the fences `wait_for`.
pub(super) fn launch(
    execution: Arc<Execution>,
    wait_for: &[ParcelFileDescriptor],
    times: Times,
    busy: Option<Busy>,
) -> Result<FencedExecutionResult, ServiceError> {
    check_deadline(times.deadline)?;
    let prepared = execution.prepared().clone();
    let (core, client) = (&prepared.core, prepared.client());
    let descriptors = Arc::new(core.quotas.descriptors(client, wait_for.len() + OWN_DESCRIPTORS)?);
    let mappings = core.quotas.mappings(client, execution.mappings())?;
    let place = core.quotas.object(client)?;
    let pending = pending(wait_for)?;
    if pending.is_empty() {
        if prepared.executable.interface().may_loop {
            return run_within_the_call(&execution, times, place);
        }
        execution.check_buffers()?;
    }
    // A device does not tell when the last fence is signalled, from when a duration and what is measured count.
    let may_device_wait =
        core.info.waits_for_fences && !times.count_from_fences() && !execution.terms().measure;
    let to_wait = may_device_wait && !pending.is_empty();
    let device_waits = if to_wait { core.device_waits.take(client, 1).ok() } else { None };
    let is_to_start = pending.is_empty() || device_waits.is_some();
    let (signal, fence) = Signal::new().map_err(|why| no_descriptor(&why))?;
    let at_once = if execution.is_long() { None } else { core.at_once.take(client, 1).ok() };
    let work = Work { execution, signal, busy, descriptors, mappings, at_once, device_waits, running: None };
    let state = State { work: Some(work), unsignalled: pending.len(), ..State::default() };
    let (cancelled, watcher) = (Arc::default(), core.watcher.clone());
    let task = Arc::new(Task { times, cancelled, watcher, state: Mutex::new(state) });
    if let Some(deadline) = times.deadline {
        task.expire_at(deadline);
    }
    if is_to_start {
        task.start(pending);
    } else if let Err(error) = task.wait(client, pending) {
        task.finish(Err(ServiceError::Failed("not all of its fences can be waited for".into())));
        return Err(error);
    }
    let callback = ipc::object!(BnFencedExecutionCallback, Callback { task, _place: place });
    Ok(FencedExecutionResult { callback: Some(callback), syncFence: Some(ParcelFileDescriptor::new(fence)) })
}

/// Runs to completion on the calling thread: what comes back needs no fence, and an error is the call's.
fn run_within_the_call(
    execution: &Execution,
    times: Times,
    place: Permit,
) -> Result<FencedExecutionResult, ServiceError> {
    let prepared = execution.prepared();
    let _running = prepared.core.quotas.execution(prepared.client())?;
    let fenced = Instant::now();
    let deadline = [times.deadline, times.after_fences()].into_iter().flatten().min();
    let outcome = execution.run(&execution.control(deadline, caller_gone()), times.launched)?;
    let (launched, fenced) = times.told(execution.terms().measure, fenced, whole(&outcome)?);
    let state = State { result: Some((ErrorStatus::NONE, launched, fenced)), ..State::default() };
    let (cancelled, watcher) = (Arc::default(), prepared.core.watcher.clone());
    let task = Arc::new(Task { times, cancelled, watcher, state: Mutex::new(state) });
    let callback = ipc::object!(BnFencedExecutionCallback, Callback { task, _place: place });
    Ok(FencedExecutionResult { callback: Some(callback), syncFence: None })
}

/// How long the device was at a run, if every output fits its memory: a fence cannot tell which does not.
fn whole(outcome: &Outcome) -> Result<Duration, ServiceError> {
    match outcome.outputs.iter().position(|output| !output.sufficient) {
        Some(i) => Err(ServiceError::Failed(format!("output {i} does not fit its memory"))),
        None => Ok(outcome.on_device),
    }
}

/// Copies of those fences that are not signalled yet.
fn pending(fences: &[ParcelFileDescriptor]) -> Result<Vec<OwnedFd>, ServiceError> {
    let mut pending = Vec::new();
    for (i, fence) in fences.iter().enumerate() {
        match fence::state(ipc::file(fence)) {
            FenceState::Signalled => {}
            FenceState::Failed => {
                return Err(ServiceError::argument(format!("fence {i} is in its error state")));
            }
            FenceState::None => {
                return Err(ServiceError::argument(format!(
                    "fence {i} is neither a sync file, nor a Unix socket or pipe"
                )));
            }
            FenceState::Pending => {
                pending.push(ipc::file(fence).try_clone_to_owned().map_err(|why| no_descriptor(&why))?);
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

    /// Has it expire at `deadline`. A device that has it by then is asked to stop, and is given a little time for that.
    fn expire_at(self: &Arc<Self>, deadline: u64) {
        let task = self.clone();
        let expire = move || {
            task.end(|state| !state.submitted, Err(BackendError::DeadlinePassed.into()));
            task.stop();
        };
        self.keep(self.watcher.at(deadline, self.in_line(expire)));
        let task = self.clone();
        let give_up = self.in_line(move || task.finish(Err(BackendError::DeadlinePassed.into())));
        let grace = u64::try_from(GRACE.as_nanos()).unwrap_or(u64::MAX);
        self.keep(self.watcher.at(deadline.saturating_add(grace), give_up));
    }

    /// What has `work` done in its client's line, unless it is over: what lets go of a client's memory may take long, as that may be the
    /// last of a file of any length.
    fn in_line(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) -> Box<dyn FnOnce() + Send> {
        let task = self.clone();
        Box::new(move || {
            let line = task.lock().work.as_ref().map(Work::line);
            if let Some((client, endings)) = line {
                endings.run(client, work);
            }
        })
    }

    /// Keeps a wait until it is over.
    fn keep(&self, key: Key) {
        let mut state = self.lock();
        if state.work.is_some() {
            state.keys.push(key);
        } else {
            drop(state); // it ended meanwhile
            self.watcher.forget(key);
        }
    }

    /// Asks the device to stop, if it has it. What stands in a line lets go of its memory then, on the thread that asks.
    fn stop(&self) {
        let state = self.lock();
        let Some(cancel) = state.cancel.clone() else { return };
        let line = state.work.as_ref().and_then(Work::line_to_end);
        drop(state);
        run_in(line, move || cancel());
    }

    /// Has the fences waited for.
    fn wait(self: &Arc<Self>, client: u32, fences: Vec<OwnedFd>) -> Result<(), ServiceError> {
        let Some(permit) = self.lock().work.as_ref().map(|work| work.descriptors.clone()) else {
            return Ok(()); // it has expired
        };
        for (i, fence) in fences.into_iter().enumerate() {
            let (task, fence) = (self.clone(), Watched::of(client, fence, permit.clone()));
            let signalled = move |event, fence: &OwnedFd| task.signalled(event, fence);
            let key = self.watcher.readable(fence, Box::new(signalled));
            let key =
                key.map_err(|why| ServiceError::argument(format!("fence {i} cannot be waited for: {why}")))?;
            self.keep(key);
        }
        Ok(())
    }

    /// One of its fences is signalled, or failed.
    fn signalled(self: &Arc<Self>, event: Event, fence: &OwnedFd) {
        if event == Event::Error || fence::signalled(fence.as_fd()) == FenceState::Failed {
            let task = self.clone();
            let failed =
                move || task.finish(Err(ServiceError::Failed("a fence that it waited for failed".into())));
            return self.in_line(failed)();
        }
        let mut state = self.lock();
        state.unsignalled = state.unsignalled.saturating_sub(1);
        let last = state.unsignalled == 0;
        drop(state);
        if last {
            self.start(Vec::new());
        }
    }

    /// Has it submitted once there is a place in the device's queue: all fences are signalled but those that the device
    /// waits for.
    fn start(self: &Arc<Self>, fences: Vec<OwnedFd>) {
        let fenced = Instant::now();
        let mut state = self.lock();
        let Some(work) = &mut state.work else { return };
        let executions = work.execution.prepared().counts.executions.clone();
        work.running = Some(Running::new(executions, fenced));
        let (execution, place) = (work.execution.clone(), work.descriptors.clone());
        let at_once = work.at_once.is_some() && fences.is_empty();
        drop(state);
        let after_fences = self.times.after_fences();
        if let Some(deadline) = after_fences {
            self.expire_at(deadline);
        }
        let deadline = [self.times.deadline, after_fences].into_iter().flatten().min();
        let control = execution.control(deadline, self.cancelled.clone());
        let (task, terms) = (self.clone(), control.clone());
        let begin = move |slot| {
            // Given back only here: executions that expired or were given up stand in line still.
            drop(place);
            task.begin(slot, fences, &terms, fenced)
        };
        let core = execution.prepared().core.clone();
        drop(execution); // the thread that ends it is to be the last to have it
        if at_once {
            return core.when_slot(&control, begin);
        }
        // Whoever gives back a slot, or watches fences, need not wait for all of that, nor for the fences to be closed.
        let (client, beginnings) = (control.client, core.beginnings.clone());
        core.when_slot(&control, move |slot| {
            beginnings.run(client, move || drop(begin(slot)));
            Ok(())
        });
    }

    /// Submits it. The slot comes back if it cannot be, or is over already.
    fn begin(
        self: Arc<Self>,
        slot: Option<Turn>,
        fences: Vec<OwnedFd>,
        control: &Control,
        fenced: Instant,
    ) -> Result<(), Option<Turn>> {
        let mut state = self.lock();
        let Some(work) = &mut state.work else { return Err(slot) };
        let (execution, device_waits) = (work.execution.clone(), work.device_waits.take());
        state.submitted = true;
        let line = state.work.as_ref().and_then(Work::line_to_end);
        drop(state);
        let _account = control.on_account();
        let claimed = execution.claim(control);
        drop(execution); // it may end before this is back
        let submitted = claimed.and_then(|(binding, claims)| Ok((binding.submit(fences, control)?, claims)));
        match submitted {
            Err(why) => {
                self.finish(Err(why));
                Err(slot)
            }
            Ok((Submission::Done(outcome), claims)) => {
                self.ended(Ok(outcome), claims, fenced, control.deadline_ns);
                Err(slot)
            }
            Ok((Submission::Pending(pending), claims)) => {
                let cancel = pending.canceller();
                let mut state = self.lock();
                // A deadline may have passed since it was submitted, when there was nobody to be asked yet.
                let over = state.work.is_none() || control.check().is_err();
                state.cancel = cancel.clone();
                drop(state);
                if let Some(cancel) = cancel.filter(|_| over) {
                    cancel(); // nobody has asked the device yet
                }
                let (task, watcher, deadline) = (self.clone(), self.watcher.clone(), control.deadline_ns);
                let ended = move |outcome| {
                    drop((slot, device_waits));
                    let ended = move || task.ended(outcome, claims, fenced, deadline);
                    run_in(line, ended);
                };
                pending.then(&watcher, Box::new(ended));
                Ok(())
            }
        }
    }

    /// The device is done with it.
    fn ended(
        &self,
        outcome: Result<Outcome, BackendError>,
        claims: Option<Claims>,
        fenced: Instant,
        deadline: Option<u64>,
    ) {
        let outcome = match outcome {
            // It stopped because it was asked to: the client hears why.
            Err(BackendError::Cancelled) if deadline.is_some_and(|deadline| boottime_ns() >= deadline) => {
                Err(BackendError::DeadlinePassed)
            }
            outcome => outcome,
        };
        let execution = self.lock().work.as_ref().map(|work| work.execution.clone());
        let Some(execution) = execution else { return };
        let result = outcome.map_err(ServiceError::from).and_then(|outcome| {
            let on_device = whole(&outcome)?;
            if let Some(claims) = claims {
                let dims: Vec<_> = outcome.outputs.into_iter().map(|output| output.dims).collect();
                claims.commit(&dims)?;
            }
            execution.prepared().used();
            Ok(self.times.told(execution.terms().measure, fenced, on_device))
        });
        drop(execution);
        self.finish(result);
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
        state.result = Some(match result {
            Ok((launched, fenced)) => (ErrorStatus::NONE, launched, fenced),
            Err(error) => {
                call::note(&work.execution.prepared().core, "fenced execution", &error);
                (error.status(), NO_TIMING, NO_TIMING)
            }
        });
        let (keys, cancel) = (std::mem::take(&mut state.keys), state.cancel.take());
        drop(state);
        keys.into_iter().for_each(|key| self.watcher.forget(key));
        let prepared = work.execution.prepared().clone();
        let (client, endings) = (prepared.client(), prepared.core.endings.clone());
        let (at_once, in_line) = (work.at_once.is_some(), endings.clone());
        // Memory and places are given back before anybody hears of the end.
        let end = move || {
            let Work { execution, signal, busy, descriptors, mappings, at_once, device_waits, running } =
                work;
            if let Some(running) = running.filter(|_| succeeded) {
                running.succeeded();
            }
            drop((cancel, execution, busy, descriptors, mappings, at_once, device_waits));
            let tell = move || match succeeded {
                true => signal.signal(),
                false => drop(signal),
            };
            match Arc::into_inner(prepared) {
                // Its client has let go of the model, which may be large.
                Some(model) => in_line.run(client, move || {
                    drop(model);
                    tell();
                }),
                None => tell(),
            }
        };
        match at_once {
            true => end(),
            false => endings.run(client, end),
        }
    }

    /// Nobody can learn of the outcome any more: stops.
    fn abandon(&self) {
        self.cancelled.set();
        self.end(|state| !state.submitted, Err(BackendError::Cancelled.into()));
        self.stop();
    }
}

/// IFencedExecutionCallback, by which the client asks for the outcome.
struct Callback {
    task: Arc<Task>,
    /// Its place among the client's objects, which it has as long as the client keeps it.
    _place: Permit,
}

impl Drop for Callback {
    /// The client gave the callback up, or died. It may still hold the fence: only when that is closed, too, is the
    /// execution of no use.
    fn drop(&mut self) {
        let state = self.task.lock();
        let Some(work) = &state.work else { return };
        let (client, place) = (work.execution.prepared().client(), work.descriptors.clone());
        let peer = work.signal.peer().map(|peer| Watched::of(client, peer, place));
        drop(state);
        let (task, watcher) = (self.task.clone(), &self.task.watcher);
        let abandon = self.task.in_line(move || task.abandon());
        match peer.and_then(|peer| watcher.closed(peer, Box::new(move |_, _| abandon()))) {
            Ok(key) => self.task.keep(key),
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
        let unknown = (ErrorStatus::GENERAL_FAILURE, NO_TIMING, NO_TIMING);
        let status;
        (status, *launched, *fenced) = state.result.clone().unwrap_or(unknown);
        Ok(status)
    }
}

#[cfg(test)]
#[path = "fenced_tests.rs"]
mod tests;
