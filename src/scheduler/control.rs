//! What holds for one compilation or run: its deadline, its limits, and whether it was cancelled.

use super::clock::{boottime_ns, sleep_until};
use super::demand::Priority;
use super::recorder::Recorder;
use super::slow_calls;
use super::stop::{Stop, Wake, Wakes};
use super::watcher::Watcher;
use crate::memory::{on_account_of, Budget, Entered};
use crate::ops::{Interrupt, OpError};
use crate::sync::thread;
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a run holds while it computes, so that many runs share the machine fairly.
pub trait Yield: Send + Sync + std::fmt::Debug {
    /// Waits while it is others' turn, as long as `control` allows. For the thread that runs, between operations and at
    /// the yield points inside of them.
    fn pass(&self, control: &Control) -> Result<(), OpError>;

    /// How many threads may compute at once, that which runs included.
    fn threads(&self) -> usize;

    /// Gives it back until the next time that it is to [`pass`](Self::pass), if it can be had again then.
    fn lend(&self) {}
}

/// What a run has until its device is done with it, even where its caller has given up: a place in the device's queue,
/// device buffers.
pub struct Held {
    what: Mutex<Option<Box<dyn Any + Send>>>,
    /// For devices that tell of their end by a fence.
    watcher: Arc<Watcher>,
}

/// For who runs it: gives back what is held when dropped, unless that was left to a device.
pub struct Holds(Arc<Held>);

/// The terms of one compilation or run.
#[derive(Clone, Debug)]
pub struct Control {
    /// Whose work it is: a uid.
    pub client: u32,
    /// What private memory it is taken from; `None` for that from which the thread takes that works.
    pub budget: Option<Budget>,
    /// Nanoseconds of CLOCK_BOOTTIME; `None` for no deadline.
    pub deadline_ns: Option<u64>,
    /// How long each WHILE may run.
    pub loop_timeout: Duration,
    pub priority: Priority,
    /// Set to stop the work at its next check.
    pub cancelled: Arc<Stop>,
    /// Set should the client die.
    pub orphaned: Arc<Stop>,
    /// The turn that the work has; without one it may use the whole machine.
    pub turn: Option<Arc<dyn Yield>>,
    /// Notes what the work does when, if somebody asked for that.
    pub recorder: Option<Arc<Recorder>>,
    /// What the run has until the device is done with it, if there is such.
    pub held: Option<Arc<Held>>,
}

impl Default for Control {
    fn default() -> Self {
        Control {
            client: 0,
            budget: None,
            deadline_ns: None,
            loop_timeout: Duration::from_secs(2),
            priority: Priority::default(),
            cancelled: Arc::default(),
            orphaned: Arc::default(),
            turn: None,
            recorder: None,
            held: None,
        }
    }
}

impl Control {
    /// Has the calling thread take private memory for this work, until what this gives is dropped.
    pub fn on_account(&self) -> Entered {
        match &self.budget {
            Some(budget) => budget.on_account_of(self.client),
            None => on_account_of(self.client),
        }
    }

    /// How many threads may compute for it now, that which runs included.
    pub fn threads(&self) -> usize {
        self.turn.as_ref().map_or(usize::MAX, |turn| turn.threads())
    }

    /// How long until the deadline, and so how long a thread may sleep that waits for something; `None` without one.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline_ns.map(sleep_until)
    }

    /// Has `wake` called when the work is to stop before its deadline, until what this gives is dropped. A thread
    /// [checks](Interrupt::check) after this and before it waits.
    pub fn wakes(&self, wake: &Wake) -> [Wakes; 2] {
        [&self.cancelled, &self.orphaned].map(|stop| stop.wakes(wake))
    }

    /// Waits until `look` gives something; whoever brings that about unparks the calling thread. An error if the work is
    /// to stop first.
    pub fn park_until<T>(&self, mut look: impl FnMut() -> Option<T>) -> Result<T, OpError> {
        let waits = thread::current();
        let wake: Wake = Arc::new(move || waits.unpark());
        let _wakes = self.wakes(&wake);
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            self.check()?;
            slow_calls::about_to_wait();
            match self.time_left() {
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }
}

impl Held {
    /// For who gives a run up: what is to be dropped when the device is done with it.
    pub fn leave(&self) -> Option<Box<dyn Any + Send>> {
        self.what.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub fn watcher(&self) -> &Watcher {
        &self.watcher
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("what a run has")
    }
}

impl Holds {
    pub fn new(watcher: &Arc<Watcher>, what: impl Any + Send) -> Self {
        Holds(Arc::new(Held { what: Mutex::new(Some(Box::new(what))), watcher: watcher.clone() }))
    }

    /// The terms of a run that has it.
    pub fn terms(&self, control: &Control) -> Control {
        Control { held: Some(self.0.clone()), ..control.clone() }
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        drop(self.0.leave());
    }
}

impl Interrupt for Control {
    fn check(&self) -> Result<(), OpError> {
        if self.cancelled.is_set() || self.orphaned.is_set() {
            return Err(OpError::Cancelled);
        }
        match self.deadline_ns {
            Some(deadline) if boottime_ns() >= deadline => Err(OpError::DeadlinePassed),
            _ => Ok(()),
        }
    }

    fn yield_point(&self) -> Result<(), OpError> {
        let go_on = self.check().and_then(|()| self.turn.as_ref().map_or(Ok(()), |turn| turn.pass(self)));
        // Work that is to stop only frees what it has: there may be so much of it that others need not wait for that.
        go_on.inspect_err(|_| self.before_waiting())
    }

    fn before_waiting(&self) {
        slow_calls::about_to_wait();
        self.turn.iter().for_each(|turn| turn.lend());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_at_deadline_and_cancellation() {
        let control = Control::default();
        assert_eq!(control.check(), Ok(()));
        let late = Control { deadline_ns: Some(boottime_ns()), ..control.clone() };
        assert_eq!(late.check(), Err(OpError::DeadlinePassed));
        let orphan = Control { orphaned: Stop::already(), ..control.clone() };
        assert_eq!(orphan.check(), Err(OpError::Cancelled));
        control.cancelled.set();
        assert_eq!(control.check(), Err(OpError::Cancelled));
    }
}
