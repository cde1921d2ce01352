//! An execution that was handed to a device: done, or pending until the device says so.
//!
//! A device says so by a fence (a descriptor that becomes readable) or by a [`Completer`], on any thread.

use super::BackendError;
use crate::ops::{Interrupt, OpError};
use crate::scheduler::{Control, Event, Held, Wake, Watcher};
use crate::tensor::Dims;
use crate::waits::wait_for;
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
type OutcomeOfFence = Box<dyn FnOnce() -> Result<Outcome, BackendError> + Send>;

enum End {
    Promised(Arc<Promise>),
    Fenced(OwnedFd, OutcomeOfFence),
}

/// Ends a pending execution, on any thread. Dropped, it ends it as failed.
pub struct Completer(Arc<Promise>);

#[derive(Default)]
struct Promise {
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    #[default]
    Pending,
    Awaited(Callback),
    Ended(Result<Outcome, BackendError>),
    Told,
}

/// How long a device may go on with an execution that was cancelled before it is given up.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// How often a thread looks up that nothing can wake.
const LOOK: Duration = Duration::from_millis(10);

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
                let tell = move |_: Event, _: &OwnedFd| callback(outcome());
                // Whatever the callback holds is the device's until then.
                watcher.surely_readable(fence, Box::new(tell));
            }
        }
    }

    /// Waits for the outcome, as long as `control` allows. A device that does not stop soon after that is left to itself, with
    /// what the run [holds](Control::held).
    pub(crate) fn wait(self, control: &Control) -> Result<Outcome, BackendError> {
        let Pending { end, cancel } = self;
        let (mut wait, wake) = end.wait();
        let _waiting = wait_for("the device");
        let _wakes = control.wakes(&wake);
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
                Some((end, _)) => Some(end.saturating_duration_since(Instant::now())),
                None => control.time_left(),
            };
            if let Some(outcome) = wait.once(patience) {
                return match (outcome, given_up) {
                    // It stopped because it was asked to: the client hears why.
                    (Err(BackendError::Cancelled), Some((_, why))) => Err(why.into()),
                    (outcome, _) => outcome,
                };
            }
            if let Some((_, why)) = given_up.take_if(|(end, _)| Instant::now() >= *end) {
                if let Some(held) = &control.held {
                    wait.leave(held);
                }
                return Err(why.into());
            }
        }
    }
}

impl End {
    /// For a thread that waits for the end, and what wakes that thread before.
    fn wait(self) -> (Wait, Wake) {
        match self {
            End::Promised(promise) => {
                let (say, hear) = channel();
                let wake = say.clone();
                let left = Left::default();
                let until_told = left.clone();
                promise.tell(Box::new(move |outcome| {
                    let _ = say.send(Some(outcome)); // after the wait it is not heard
                    drop(until_told);
                }));
                (Wait::Promised(hear, left), Arc::new(move || drop(wake.send(None))))
            }
            End::Fenced(fence, outcome) => {
                let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
                let woken = EventFd::from_flags(flags).map(Arc::new);
                let woken = woken.inspect_err(|why| log::warn!("no descriptor to be woken by: {why}")).ok();
                let wakes = woken.clone();
                let wake = move || {
                    if let Some(wakes) = &wakes {
                        // It can only fail because it was written before: it wakes then.
                        let _ = wakes.write(1);
                    }
                };
                (Wait::Fenced(fence, Some(outcome), woken), Arc::new(wake))
            }
        }
    }
}

/// A thread's wait for the end of an execution.
enum Wait {
    /// Hears `None` when it is to look up.
    Promised(Receiver<Option<Result<Outcome, BackendError>>>, Left),
    /// Where descriptors are short, nothing wakes it: it looks up every so often, so that it never fails while the device works.
    Fenced(OwnedFd, Option<OutcomeOfFence>, Option<Arc<EventFd>>),
}

/// What is left to an execution that was given up, shared with what is called at its end.
type Left = Arc<Mutex<Option<Box<dyn Any + Send>>>>;

impl Wait {
    /// Gives the execution up: what it holds is dropped when it ends.
    fn leave(self, held: &Held) {
        match self {
            Wait::Promised(_, left) => *left.lock().unwrap_or_else(PoisonError::into_inner) = held.leave(),
            Wait::Fenced(fence, outcome, _) => {
                let (Some(outcome), what) = (outcome, held.leave()) else { return };
                Pending::fenced(fence, outcome).then(held.watcher(), Box::new(move |_| drop(what)));
            }
        }
    }

    /// The outcome, if the end comes in so long a time and before the thread is woken.
    fn once(&mut self, patience: Option<Duration>) -> Option<Result<Outcome, BackendError>> {
        match self {
            Wait::Promised(hear, _) => match patience {
                Some(patience) => hear.recv_timeout(patience).ok().flatten(),
                None => hear.recv().ok().flatten(),
            },
            Wait::Fenced(fence, outcome, woken) => {
                let (wakes, patience) = match woken.as_ref() {
                    Some(woken) => (woken.as_fd(), patience),
                    None => (fence.as_fd(), Some(patience.map_or(LOOK, |patience| patience.min(LOOK)))),
                };
                let mut fds = [fence.as_fd(), wakes].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
                let ms = patience.map(|patience| patience + Duration::from_millis(1));
                let ms =
                    ms.map_or(PollTimeout::NONE, |ms| PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX));
                let polled = poll(&mut fds, ms);
                let [ended, stopped] = fds.map(|fd| fd.any() != Some(false));
                if matches!(polled, Ok(0) | Err(Errno::EINTR)) || !ended {
                    if let Some(woken) = woken.as_ref().filter(|_| stopped) {
                        // So that it does not wake again.
                        let _ = woken.read();
                    }
                    return None;
                }
                // An error shows in the outcome.
                outcome.take().map(|outcome| outcome())
            }
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
