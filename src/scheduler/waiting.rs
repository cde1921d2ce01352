//! Threads that wait for something to change: they sleep until it has, or until their work is to stop.
//!
//! It must not know what that is. Whoever changes it says so afterwards.

use super::Control;
use crate::ops::OpError;
use crate::sync::thread::{self, Thread};
use crate::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;

/// Nobody waits at first.
#[derive(Default)]
pub struct Waiting {
    threads: Mutex<Vec<Thread>>,
}

impl Waiting {
    /// Waits until `look` gives something. An error if the work is to stop first.
    pub fn until<T>(&self, control: &Control, mut look: impl FnMut() -> Option<T>) -> Result<T, OpError> {
        if let Some(found) = look() {
            return Ok(found);
        }
        let place = Place { waiting: self, thread: thread::current() };
        control.park_until(|| {
            // Before it looks, so that no change after that is missed.
            place.take();
            look()
        })
    }

    /// Has all who wait look again: what they look at has changed.
    pub fn look_again(&self) {
        let threads = std::mem::take(&mut *self.lock());
        threads.iter().for_each(Thread::unpark);
    }

    /// How many wait.
    pub fn waits(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread's place among those who wait.
struct Place<'w> {
    waiting: &'w Waiting,
    thread: Thread,
}

impl Place<'_> {
    fn take(&self) {
        let mut threads = self.waiting.lock();
        if !threads.iter().any(|thread| self.is_of(thread)) {
            threads.push(self.thread.clone());
        }
    }

    fn is_of(&self, thread: &Thread) -> bool {
        thread.id() == self.thread.id()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting.lock().retain(|thread| !self.is_of(thread));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::awake::{sleeps_through, WHILE};
    use crate::scheduler::boottime_ns;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn who_waits_sleeps_until_there_is_a_reason_to_wake() {
        let (waiting, there, control) = (Waiting::default(), AtomicUsize::new(0), Control::default());
        let late =
            Control { deadline_ns: Some(boottime_ns() + WHILE.as_nanos() as u64), ..Control::default() };
        let take = || {
            let take = |there: usize| there.checked_sub(1);
            there.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).ok()
        };
        let waited = sleeps_through(|| waiting.until(&late, take));
        assert_eq!(waited, Err(OpError::DeadlinePassed));
        assert!(waiting.lock().is_empty(), "nobody waits any more");
        std::thread::scope(|scope| {
            let wait = || sleeps_through(|| waiting.until(&control, take));
            let threads = [(); 3].map(|()| scope.spawn(wait));
            std::thread::sleep(WHILE);
            there.store(2, Ordering::SeqCst);
            waiting.look_again();
            std::thread::sleep(WHILE);
            assert_eq!(there.load(Ordering::SeqCst), 0);
            control.cancelled.set();
            let found = threads.map(|thread| thread.join().unwrap());
            let is = |end: &Result<usize, OpError>| found.iter().filter(|found| *found == end).count();
            // What was there before it was taken.
            assert_eq!([Ok(2), Ok(1), Err(OpError::Cancelled)].map(|end| is(&end)), [1; 3], "{found:?}");
        });
        assert!(waiting.lock().is_empty(), "nobody waits any more");
    }
}
