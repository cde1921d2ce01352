//! Keeps the backend's process there: starts it again when it has ended, and less and less often if that helps nobody.
//!
//! It knows nothing of what the process is for.

use super::life::Life;
use crate::backend::{BackendError, Info};
use crate::ops::{Interrupt, OpError};
use crate::scheduler::{boottime_ns, Control, Waiting};
use crate::waits::wait_for;
use std::io::{Error, Result};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long to wait before the process is started again: at first, and at the most. It is twice as long each time, until
/// the process has done what it was asked, or lived so many times longer than the wait before it.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const WORTH: u32 = 8;
/// How long who needs the process may wait for one that is about to be started, or that starts.
const PATIENCE: Duration = Duration::from_secs(2);

/// Makes the command that starts the process.
pub type MakeCommand = Box<dyn Fn() -> Command + Send + Sync>;

pub struct Supervisor {
    command: MakeCommand,
    /// What the first process said of itself.
    info: Info,
    state: Mutex<State>,
    /// Who waits until the state is another.
    waiting: Waiting,
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
        let supervisor = Arc::new(Supervisor { command, info, state, waiting: Waiting::default() });
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
        let (patience, until) = (Instant::now() + PATIENCE, boottime_ns() + PATIENCE.as_nanos() as u64);
        let deadline_ns = Some(control.deadline_ns.map_or(until, |deadline| deadline.min(until)));
        let patient = Control { deadline_ns, ..control.clone() };
        let failures = self.state().failures;
        let _waiting = wait_for("the backend's process to start");
        let found = self.waiting.until(&patient, || {
            let state = self.state();
            if let Some(life) = state.life.as_ref().filter(|life| life.is_there()) {
                return Some(Ok(life.clone()));
            }
            let later = state.next.is_some_and(|next| next > patience);
            (later || state.failures > failures).then(|| Err(state.lost()))
        });
        match found {
            Ok(found) => found,
            Err(OpError::DeadlinePassed) if control.check().is_ok() => Err(self.state().lost()),
            Err(why) => Err(why.into()),
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
        kept.lost(why.clone(), pause, 0);
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
                    drop(state);
                    kept.waiting.look_again();
                    break life;
                }
                Err(error) => {
                    pause = LONGEST_WAIT.min(pause * 2);
                    log::warn!("the backend does not start: {error}; again in {pause:?}");
                    kept.lost(format!("it does not start: {error}"), pause, 1);
                }
            }
        };
    }
}

impl Supervisor {
    /// Notes why there is no process, when the next is to begin, and how many more could not be started.
    fn lost(&self, why: String, pause: Duration, failures: u64) {
        let mut state = self.state();
        (state.life, state.why, state.next) = (None, why, Some(Instant::now() + pause));
        state.failures += failures;
        drop(state);
        self.waiting.look_again();
    }
}

impl State {
    /// Why there is no process.
    fn lost(&self) -> BackendError {
        BackendError::DeviceLost(self.why.clone())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::backend::{CacheFileCounts, Capabilities, DeviceType, Performance};
    use crate::scheduler::awake::{sleeps_through, WHILE};

    fn info() -> Info {
        Info {
            version: String::new(),
            device_type: DeviceType::Cpu,
            extensions: Vec::new(),
            capabilities: Capabilities::uniform(Performance { exec_time: 1.0, power_usage: 1.0 }),
            cache_files: CacheFileCounts::NONE,
            depth: None,
            waits_for_fences: false,
        }
    }

    /// One that starts no process.
    pub(in super::super) fn idle() -> Arc<Supervisor> {
        let command: MakeCommand = Box::new(|| Command::new("nothing is started here"));
        let (state, waiting) = (Mutex::default(), Waiting::default());
        Arc::new(Supervisor { command, info: info(), state, waiting })
    }

    #[test]
    fn who_needs_a_process_sleeps_until_there_is_a_reason_to_wake() {
        let state = State { next: Some(Instant::now() + WHILE), ..State::default() };
        let (state, waiting) = (Mutex::new(state), Waiting::default());
        let command: MakeCommand = Box::new(|| Command::new("nothing is started here"));
        let supervisor = Supervisor { command, info: info(), state, waiting };
        let late = boottime_ns() + WHILE.as_nanos() as u64;
        let late = Control { deadline_ns: Some(late), ..Control::default() };
        let living = |control| sleeps_through(|| supervisor.living(control).map(drop));
        assert!(matches!(living(&late), Err(BackendError::DeadlinePassed)));
        let (patient, cancelled) = (Control::default(), Control::default());
        std::thread::scope(|scope| {
            let waits = [&patient, &cancelled].map(|control| scope.spawn(move || living(control)));
            std::thread::sleep(WHILE);
            cancelled.cancelled.set();
            std::thread::sleep(WHILE);
            supervisor.lost("it does not start".into(), WHILE, 1);
            let [lost, stopped] = waits.map(|waits| waits.join().unwrap());
            assert!(matches!(lost, Err(BackendError::DeviceLost(why)) if why == "it does not start"));
            assert!(matches!(stopped, Err(BackendError::Cancelled)));
        });
        let began = Instant::now();
        assert!(matches!(living(&patient), Err(BackendError::DeviceLost(_))));
        assert!(began.elapsed() >= PATIENCE);
    }
}
