//! Keeps the backend's process there: starts it again when it has ended, and less and less often if that helps nobody.
//!
//! It knows nothing of what the process is for.

use super::life::Life;
use crate::backend::{BackendError, Info};
use crate::ops::Interrupt;
use crate::scheduler::Control;
use std::io::{Error, Result};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long to wait before the process is started again: at first, and at the most. It is twice as long each time, until
/// the process has done what it was asked, or lived so many times longer than the wait before it.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const WORTH: u32 = 8;
/// How long who needs the process may wait for one that is about to be started, or that starts.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often who waits looks whether it still may.
const LOOK: Duration = Duration::from_millis(5);

/// Makes the command that starts the process.
pub type MakeCommand = Box<dyn Fn() -> Command + Send + Sync>;

pub struct Supervisor {
    command: MakeCommand,
    /// What the first process said of itself.
    info: Info,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    life: Option<Arc<Life>>,
    /// While there is none: why, and when the next is to begin.
    why: String,
    next: Option<Instant>,
    /// How many could not be started.
    failures: u64,
}

impl Supervisor {
    /// Starts the first process, and the thread that keeps one there for as long as this is.
    pub fn new(command: MakeCommand) -> Result<Arc<Self>> {
        let (life, info) = Life::start(command())?;
        log::info!("the backend is process {}", life.process());
        let life = Arc::new(life);
        let state = Mutex::new(State { life: Some(life.clone()), ..State::default() });
        let supervisor = Arc::new(Supervisor { command, info, state, changed: Condvar::new() });
        let weak = Arc::downgrade(&supervisor);
        let thread = std::thread::Builder::new().name("nnhal-backend".into());
        let started = thread.spawn({
            let life = life.clone();
            move || supervise(&weak, life)
        });
        started.inspect_err(|_| life.end("it is not wanted"))?;
        Ok(supervisor)
    }

    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The process that is there now.
    pub fn now(&self) -> Option<Arc<Life>> {
        self.state().life.clone().filter(|life| life.is_there())
    }

    /// The process; waits a while, as long as `control` allows, for one that is about to be there.
    pub fn living(&self, control: &Control) -> std::result::Result<Arc<Life>, BackendError> {
        let patience = Instant::now() + PATIENCE;
        let mut state = self.state();
        let failures = state.failures;
        loop {
            if let Some(life) = state.life.as_ref().filter(|life| life.is_there()) {
                return Ok(life.clone());
            }
            let later = state.next.is_some_and(|next| next > patience);
            if later || state.failures > failures || Instant::now() > patience {
                return Err(BackendError::DeviceLost(state.why.clone()));
            }
            control.check()?;
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts another process; it must say the same of itself as the first.
    fn start(&self) -> Result<Life> {
        let (life, info) = Life::start((self.command)())?;
        if format!("{info:?}") != format!("{:?}", self.info) {
            life.end("it is not what it was");
            return Err(Error::other("it says other things of itself than before"));
        }
        Ok(life)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(life) = self.state().life.take() {
            life.hang_up();
        }
    }
}

/// Attends to one process after another, until nobody has the supervisor any more.
fn supervise(supervisor: &Weak<Supervisor>, mut life: Arc<Life>) {
    let mut pause = FIRST_WAIT / 2;
    loop {
        let why = life.attend();
        let lived = life.began.elapsed();
        let Some(kept) = supervisor.upgrade() else { return life.end("nobody needs it") };
        log::warn!("the backend is lost after {lived:?}: {why}; it is started again");
        pause =
            if life.was_useful() || lived > pause * WORTH { FIRST_WAIT } else { LONGEST_WAIT.min(pause * 2) };
        kept.lost(why.clone(), pause);
        drop(kept);
        // Callers that hear of the end must find that the process is gone.
        life.end(&why);
        drop(life);
        life = loop {
            std::thread::sleep(pause);
            let Some(kept) = supervisor.upgrade() else { return };
            match kept.start().map(Arc::new) {
                Ok(life) => {
                    log::info!("the backend is process {} now", life.process());
                    let mut state = kept.state();
                    (state.life, state.next) = (Some(life.clone()), None);
                    kept.changed.notify_all();
                    break life;
                }
                Err(error) => {
                    pause = LONGEST_WAIT.min(pause * 2);
                    log::warn!("the backend does not start: {error}; again in {pause:?}");
                    let mut state = kept.state();
                    state.failures += 1;
                    kept.set_lost(&mut state, format!("it does not start: {error}"), pause);
                }
            }
        };
    }
}

impl Supervisor {
    fn lost(&self, why: String, pause: Duration) {
        let mut state = self.state();
        state.life = None;
        self.set_lost(&mut state, why, pause);
    }

    fn set_lost(&self, state: &mut State, why: String, pause: Duration) {
        (state.why, state.next) = (why, Some(Instant::now() + pause));
        self.changed.notify_all();
    }
}
