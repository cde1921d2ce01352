//! What is in the backend's process of a compiled model, and how it is made there again when that is another one.

use super::life::{new_number, Life, Said, FULL};
use super::message::{Answer, Order, Source, Terms, With, NOTHING};
use super::supervisor::Supervisor;
use crate::backend::{BackendError, CompileOptions, Control, Interface};
use crate::memory::Counted;
use crate::model::check_info;
use crate::ops::{Interrupt, OpError};
use crate::quota::Permit;
use crate::scheduler::{Waiting, Wake};
use crate::waits::wait_for;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Asks, and waits for the answer. What `control` no longer allows is cancelled, and ends soon, or the process does.
pub fn ask(
    life: &Life,
    order: impl FnOnce(u64) -> Order,
    control: &Control,
) -> Result<(Answer, Vec<OwnedFd>), BackendError> {
    control.check()?;
    wait(life, begin(life, order, NOTHING)?, control)
}

/// The same of the process that is there now, or will be in a moment; gives which that is. `order` is called again if the
/// first was gone before it was asked.
pub fn ask_any(
    supervisor: &Supervisor,
    order: &dyn Fn(u64) -> Order,
    with: With,
    control: &Control,
) -> Result<(Arc<Life>, Answer), BackendError> {
    control.check()?;
    let _account = control.on_account();
    // Where the body is long, the process is given a copy.
    let _counted = count(with.body.len())?;
    let mut life = supervisor.living(control)?;
    let begun = match begin(&life, order, with) {
        Err(BackendError::DeviceLost(_)) => {
            life = supervisor.living(control)?;
            begin(&life, order, with)?
        }
        begun => begun?,
    };
    let answer = wait(&life, begun, control)?.0;
    Ok((life, answer))
}

/// So many bytes more on the account of the client whose work the thread does.
pub fn count(bytes: usize) -> Result<Counted, BackendError> {
    Counted::take(bytes).ok_or(BackendError::OutOfMemory(bytes))
}

type Answered = Result<(Answer, Vec<OwnedFd>), BackendError>;
type Heard = Result<Said, BackendError>;

/// A call that is under way.
struct Begun {
    call: u64,
    /// Hears the answer, and `None` when who waits for that is to look up.
    answers: Receiver<Option<Heard>>,
    wake: Wake,
}

fn begin(life: &Life, order: impl FnOnce(u64) -> Order, with: With) -> Result<Begun, BackendError> {
    let (say, answers) = channel();
    let say = Arc::new(say);
    // What wakes must not keep an answer that is lost from showing as such.
    let wakes = Arc::downgrade(&say);
    let wake = move || {
        if let Some(say) = wakes.upgrade() {
            // Nobody hears it after the wait.
            let _ = say.send(None);
        }
    };
    let call = life.ask(order, with, FULL, Box::new(move |answer| drop(say.send(Some(answer)))))?;
    Ok(Begun { call, answers, wake: Arc::new(wake) })
}

fn wait(life: &Life, begun: Begun, control: &Control) -> Answered {
    let _waiting = wait_for("the backend's process");
    let Begun { call, answers, wake } = begun;
    let _wakes = control.wakes(&wake);
    let mut stopped = None;
    loop {
        if stopped.is_none() {
            stopped = control.check().err();
            if let Some(why) = &stopped {
                // The backend sees the deadline without being told.
                life.cancel(call, *why != OpError::DeadlinePassed);
            }
        }
        let heard = match control.time_left().filter(|_| stopped.is_none()) {
            Some(left) => answers.recv_timeout(left),
            None => answers.recv().map_err(RecvTimeoutError::from),
        };
        let heard = match heard {
            Ok(Some(heard)) => heard,
            Err(RecvTimeoutError::Disconnected) => return Err(life.condemn("an answer is lost")),
            Ok(None) | Err(RecvTimeoutError::Timeout) => continue,
        };
        return match (heard.and_then(|said| life.read(said)), stopped) {
            // It stopped because it was asked to.
            (Err(BackendError::Cancelled), Some(why)) => Err(why.into()),
            (answer, _) => answer,
        };
    }
}

impl Terms {
    pub fn of(control: &Control) -> Self {
        let Control { client, deadline_ns, loop_timeout, priority, .. } = *control;
        let recorded_since = control.recorder.as_ref().map(|recorder| recorder.began());
        Terms { client, deadline_ns, loop_timeout, priority, recorded_since }
    }
}

/// What an executable is made of.
pub struct Recipe {
    pub source: Source,
    /// What goes with it.
    pub body: Vec<u8>,
    pub files: Vec<File>,
    pub options: CompileOptions,
}

impl Recipe {
    /// Has the process make it.
    pub fn prepare(
        &self,
        supervisor: &Supervisor,
        control: &Control,
    ) -> Result<(Arc<Instance>, Interface), BackendError> {
        let number = new_number();
        let order = |call| {
            let (source, terms) = (self.source.clone(), Terms::of(control));
            Order::Prepare { call, number, source, options: self.options, terms }
        };
        let files: Vec<_> = self.files.iter().map(AsFd::as_fd).collect();
        let with = With { body: &self.body, files: &files };
        let (life, answer) = ask_any(supervisor, &order, with, control)?;
        let instance = Arc::new(Instance { life, number });
        match answer {
            Answer::Prepared(interface) if makes_sense(&interface) => Ok((instance, interface)),
            _ => Err(instance.life.condemn("it does not say what it compiled")),
        }
    }
}

fn makes_sense(interface: &Interface) -> bool {
    interface.inputs.iter().chain(&interface.outputs).all(|info| check_info(info).is_ok())
}

/// An executable in one life of the process.
pub struct Instance {
    pub life: Arc<Life>,
    pub number: u64,
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.life.release(self.number);
    }
}

/// A compiled model, in whatever process there is.
pub struct Made {
    supervisor: Arc<Supervisor>,
    kept: Option<(Recipe, Permit)>,
    /// For what it is made of, which its process has as long as it.
    _counted: Counted,
    pub interface: Interface,
    now: Mutex<Now>,
    /// Who waits until it has been made again.
    waiting: Waiting,
}

/// What there is of a compiled model.
struct Now {
    instance: Arc<Instance>,
    /// Whether somebody is making another.
    making: bool,
    /// Whether it could not be made again, the last time that it was to be.
    failed: bool,
}

impl Made {
    pub fn new(
        supervisor: &Arc<Supervisor>,
        (kept, counted): (Option<(Recipe, Permit)>, Counted),
        interface: Interface,
        instance: Arc<Instance>,
    ) -> Self {
        let now = Mutex::new(Now { instance, making: false, failed: false });
        let (supervisor, waiting) = (supervisor.clone(), Waiting::default());
        Made { supervisor, kept, _counted: counted, interface, now, waiting }
    }

    /// It in the process that is there now; `None` if it would have to be made first.
    pub fn ready(&self) -> Option<Arc<Instance>> {
        lock(&self.now).ready()
    }

    /// Whether its process has ended, and it is not to be had again as far as is known.
    pub fn is_lost(&self) -> bool {
        let now = lock(&self.now);
        now.ready().is_none() && (self.kept.is_none() || now.failed)
    }

    /// It in the process that is there now, made once more if need be, by one of those who need it.
    pub fn prepared(&self, control: &Control) -> Result<Arc<Instance>, BackendError> {
        let begun = self.waiting.until(control, || {
            let mut now = lock(&self.now);
            let ready = now.ready();
            if ready.is_none() && std::mem::replace(&mut now.making, true) {
                return None;
            }
            Some(ready)
        });
        if let Some(ready) = begun? {
            return Ok(ready);
        }
        let _making = Making(self);
        let Some((recipe, ..)) = &self.kept else {
            let why = "its process has ended, and the client held too much for the model to be kept";
            return Err(BackendError::DeviceLost(why.into()));
        };
        let made = recipe.prepare(&self.supervisor, control);
        let stopped = matches!(&made, Err(BackendError::DeadlinePassed | BackendError::Cancelled));
        lock(&self.now).failed = made.is_err() && !stopped;
        let (again, interface) = made?;
        if interface != self.interface {
            return Err(again.life.condemn("a model became another when it was made again"));
        }
        let before = std::mem::replace(&mut lock(&self.now).instance, again.clone());
        drop(before); // not under the lock: its process may have to be told
        Ok(again)
    }
}

impl Now {
    /// It, if its process is there.
    fn ready(&self) -> Option<Arc<Instance>> {
        Some(&self.instance).filter(|instance| instance.life.is_there()).cloned()
    }
}

/// Lets the next one try when it ends, however it ends.
struct Making<'m>(&'m Made);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        lock(&self.0.now).making = false;
        self.0.waiting.look_again();
    }
}

/// A lock that nobody waits long for.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::{life, supervisor};

    #[test]
    fn a_model_that_was_not_kept_is_lost_with_its_process() {
        let (life, _theirs) = life::tests::idle();
        let instance = Arc::new(Instance { life: Arc::new(life), number: 1 });
        let interface = Interface { inputs: Vec::new(), outputs: Vec::new(), may_loop: false };
        let counted = Counted::take(0).unwrap();
        let made = Made::new(&supervisor::tests::idle(), (None, counted), interface, instance.clone());
        assert!(!made.is_lost());
        instance.life.end("as the test wants it");
        assert!(made.is_lost());
    }
}
