//! An execution that was handed to a device: done, or pending until the device says so.
//!
//! A device says so by a fence (a descriptor that becomes readable) or by a [`Completer`], on any thread.

use super::BackendError;
use crate::ops::{Interrupt, OpError};
use crate::scheduler::{boottime_ns, Control, Event, Watcher};
use crate::tensor::Dims;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What became of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputShape {
    pub dims: Dims,
    /// Whether the output's memory was large enough.
    pub sufficient: bool,
}

/// What an execution gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// One per output. Where an output's memory is too small, nothing was written to any, and the shapes say so.
    pub outputs: Vec<OutputShape>,
    /// How long the device was at it.
    pub on_device: Duration,
}

/// How far an execution is that was submitted.
pub enum Submission {
    Done(Outcome),
    Pending(Pending),
}

/// An execution that is under way. Whatever it uses stays alive until it ends, by what the backend holds.
pub struct Pending {
    end: End,
    cancel: Option<Cancel>,
}

type Cancel = Arc<dyn Fn() + Send + Sync>;
type Callback = Box<dyn FnOnce(Result<Outcome, BackendError>) + Send>;

enum End {
    Promised(Arc<Promise>),
    Fenced(OwnedFd, Box<dyn FnOnce() -> Result<Outcome, BackendError> + Send>),
}

/// Ends a pending execution, on any thread. Dropped, it ends it as failed.
pub struct Completer(Arc<Promise>);

#[derive(Default)]
struct Promise {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
enum State {
    #[default]
    Pending,
    Awaited(Callback),
    Ended(Result<Outcome, BackendError>),
    Told,
}

/// How often a call that waits looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(20);
/// How long a device may go on with an execution that was cancelled before it is given up.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

impl Pending {
    /// An execution that ends when its [`Completer`] says so.
    pub fn promised() -> (Completer, Pending) {
        let promise = Arc::<Promise>::default();
        (Completer(promise.clone()), Pending { end: End::Promised(promise), cancel: None })
    }

    /// An execution that ends when `fence` becomes readable or fails; then `outcome` is called, once, and must not wait.
    pub fn fenced(
        fence: OwnedFd,
        outcome: impl FnOnce() -> Result<Outcome, BackendError> + Send + 'static,
    ) -> Pending {
        Pending { end: End::Fenced(fence, Box::new(outcome)), cancel: None }
    }

    /// Has `cancel` called, perhaps more than once, when the client no longer wants the outcome. The execution still ends
    /// by its fence or completer, and should soon.
    pub fn on_cancel(self, cancel: impl Fn() + Send + Sync + 'static) -> Pending {
        Pending { cancel: Some(Arc::new(cancel)), ..self }
    }

    /// What asks the device to stop, for a caller that gives the execution to [`then`](Self::then).
    pub(crate) fn canceller(&self) -> Option<Cancel> {
        self.cancel.clone()
    }

    /// Has `callback` called with the outcome: at once if it is there, else on the thread that ends it.
    pub(crate) fn then(self, watcher: &Watcher, callback: Callback) {
        match self.end {
            End::Promised(promise) => promise.tell(callback),
            End::Fenced(fence, outcome) => {
                let shared = Arc::new(Mutex::new(Some((outcome, callback))));
                let told = shared.clone();
                let take =
                    |slot: &Mutex<Option<_>>| slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                let tell = move |_: Event, _: &OwnedFd| {
                    if let Some((outcome, callback)) = take(&told) {
                        callback(outcome());
                    }
                };
                if let Err(why) = watcher.readable(fence, Box::new(tell)) {
                    if let Some((_, callback)) = take(&shared) {
                        callback(Err(BackendError::Failed(format!("its fence cannot be watched: {why}"))));
                    }
                }
            }
        }
    }

    /// Waits for the outcome, as long as `control` allows. A device that does not stop soon after that is left to itself.
    pub(crate) fn wait(self, control: &Control) -> Result<Outcome, BackendError> {
        let Pending { end, cancel } = self;
        let mut given_up: Option<(Instant, OpError)> = None;
        loop {
            if given_up.is_none() {
                if let Err(why) = control.check() {
                    if let Some(cancel) = &cancel {
                        cancel();
                    }
                    given_up = Some((Instant::now() + GRACE, why));
                }
            }
            let patience = match &given_up {
                Some((end, _)) => end.saturating_duration_since(Instant::now()),
                None => {
                    let left = control.deadline_ns.map(|at| at.saturating_sub(boottime_ns()));
                    left.map_or(LOOK, |left| LOOK.min(Duration::from_nanos(left)))
                }
            };
            if end.wait(patience) {
                return end.outcome();
            }
            if let Some((_, why)) = given_up.take_if(|(end, _)| Instant::now() >= *end) {
                return Err(why.into());
            }
        }
    }
}

impl End {
    /// Waits for the end, for so long at most; tells whether it came.
    fn wait(&self, patience: Duration) -> bool {
        match self {
            End::Promised(promise) => {
                let state = promise.lock();
                let pending = |state: &mut State| matches!(state, State::Pending);
                let waited = promise.ended.wait_timeout_while(state, patience, pending);
                !pending(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
            }
            End::Fenced(fence, _) => {
                let mut fds = [PollFd::new(fence.as_fd(), PollFlags::POLLIN)];
                let patience = PollTimeout::try_from(patience + Duration::from_millis(1));
                // An error shows in the outcome.
                !matches!(
                    poll(&mut fds, patience.unwrap_or(PollTimeout::ZERO)),
                    Ok(0) | Err(nix::Error::EINTR)
                )
            }
        }
    }

    /// The outcome, after the end.
    fn outcome(self) -> Result<Outcome, BackendError> {
        match self {
            End::Promised(promise) => match std::mem::replace(&mut *promise.lock(), State::Told) {
                State::Ended(outcome) => outcome,
                _ => Err(BackendError::Failed("an execution ended without an outcome".into())),
            },
            End::Fenced(_, outcome) => outcome(),
        }
    }
}

impl Promise {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, callback: Callback) {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Told) {
            State::Ended(outcome) => {
                drop(state);
                callback(outcome);
            }
            _ => *state = State::Awaited(callback),
        }
    }

    /// Only the first end counts.
    fn end(&self, outcome: Result<Outcome, BackendError>) {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Told) {
            State::Pending => {
                *state = State::Ended(outcome);
                self.ended.notify_all();
            }
            State::Awaited(callback) => {
                drop(state);
                callback(outcome);
            }
            ended => *state = ended,
        }
    }
}

impl Completer {
    /// Ends the execution with this outcome.
    pub fn complete(self, outcome: Result<Outcome, BackendError>) {
        self.0.end(outcome);
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.0.end(Err(BackendError::Failed("the backend gave an execution up without an outcome".into())));
    }
}

#[cfg(test)]
#[path = "submission_tests.rs"]
mod tests;
