//! What is made when it is first needed: by one of those who need it, while the others wait as long as they may.
//!
//! Whoever makes it may wait for a turn at computing meanwhile: so those who wait here must not have one.

use crate::backend::Control;
use crate::ops::{Interrupt, OpError};
use crate::sync::thread::{self, Thread};
use crate::sync::{Mutex, MutexGuard};
use std::sync::{Arc, OnceLock, PoisonError};

/// A `T` that is made of an `S`, which is kept until then.
pub struct OnDemand<S, T> {
    made: OnceLock<T>,
    state: Mutex<State<S>>,
}

struct State<S> {
    source: Option<Arc<S>>,
    /// Whether somebody is making it.
    busy: bool,
    /// Who waits for that.
    waiting: Vec<Thread>,
}

impl<S, T> OnDemand<S, T> {
    pub fn of(source: S) -> Self {
        let state = State { source: Some(Arc::new(source)), busy: false, waiting: Vec::new() };
        OnDemand { made: OnceLock::new(), state: Mutex::new(state) }
    }

    /// One that is there already.
    pub fn made(made: T) -> Self {
        let state = State { source: None, busy: false, waiting: Vec::new() };
        OnDemand { made: made.into(), state: Mutex::new(state) }
    }

    pub fn get(&self) -> Option<&T> {
        self.made.get()
    }

    /// Gives it, made by `make` if nobody has yet. What fails is tried again by whoever needs it next.
    pub fn get_or_make<E: From<OpError>>(
        &self,
        control: &Control,
        make: impl FnOnce(&S) -> Result<T, E>,
    ) -> Result<&T, E> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let source = self.begin(control)?;
        let turn = Making(self);
        let Some(source) = source else {
            return self.made.get().ok_or_else(|| OpError::failed("it was made of nothing").into());
        };
        control.check()?;
        let made = make(&source)?;
        let made = self.made.get_or_init(|| made);
        let source = self.lock().source.take();
        drop((turn, source)); // whoever waits need not wait until the source is freed
        Ok(made)
    }

    /// Waits until nobody is making it, and marks that the calling thread is. What it is made of, unless it is made.
    fn begin(&self, control: &Control) -> Result<Option<Arc<S>>, OpError> {
        let this = thread::current();
        let is_this = |thread: &Thread| thread.id() == this.id();
        let begun = control.park_until(|| {
            let mut state = self.lock();
            if !state.busy {
                state.busy = true;
                return Some(state.source.clone());
            }
            if !state.waiting.iter().any(is_this) {
                state.waiting.push(this.clone());
            }
            None
        });
        begun.inspect_err(|_| self.lock().waiting.retain(|thread| !is_this(thread)))
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the next one try when it ends, however it ends.
struct Making<'l, S, T>(&'l OnDemand<S, T>);

impl<S, T> Drop for Making<'_, S, T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.busy = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.iter().for_each(Thread::unpark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::boottime_ns;
    use crate::scheduler::awake::{sleeps_through, WHILE};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Barrier;
    use std::time::Duration;

    #[test]
    fn it_is_made_once_however_many_need_it() {
        let (value, count, start) = (OnDemand::of(7), AtomicUsize::new(0), Barrier::new(8));
        let make = |source: &i32| -> Result<i32, OpError> {
            count.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            Ok(source * 6)
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    assert_eq!(value.get_or_make(&Control::default(), make), Ok(&42));
                });
            }
        });
        assert_eq!((count.into_inner(), value.lock().source.clone()), (1, None));
    }

    #[test]
    fn what_fails_or_panics_is_tried_again() {
        let (value, control) = (OnDemand::<i32, i32>::of(7), Control::default());
        let failed = value.get_or_make(&control, |_| Err(OpError::failed("as told")));
        assert!(failed.is_err() && value.get().is_none() && value.lock().source.is_some());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            value.get_or_make(&control, |_| -> Result<i32, OpError> { panic!("as the test wants it") })
        }));
        assert!(panicked.is_err());
        assert_eq!(value.get_or_make(&control, |source| Ok::<_, OpError>(*source)), Ok(&7));
    }

    #[test]
    fn who_waits_or_comes_late_gives_up_in_time() {
        let (value, made) = (OnDemand::of(()), AtomicUsize::new(0));
        let (began, begun) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let cancelled = Control::default();
        std::thread::scope(|scope| {
            let (value, made, cancelled) = (&value, &made, &cancelled);
            // Dropped where this fails, so that who makes it ends, too.
            let end = end;
            scope.spawn(move || {
                value.get_or_make(&Control::default(), |()| {
                    began.send(()).unwrap();
                    ended.recv().unwrap();
                    Ok::<_, OpError>(made.fetch_add(1, Ordering::Relaxed))
                })
            });
            begun.recv().unwrap();
            let in_a_while = boottime_ns() + WHILE.as_nanos() as u64;
            let hurried = Control { deadline_ns: Some(in_a_while), ..Control::default() };
            let waited = sleeps_through(|| value.get_or_make(&hurried, |()| Ok(9)));
            assert_eq!(waited, Err(OpError::DeadlinePassed));
            let waits = scope
                .spawn(move || sleeps_through(|| value.get_or_make(cancelled, |()| Ok::<_, OpError>(9))));
            std::thread::sleep(WHILE + WHILE / 10);
            cancelled.cancelled.set();
            assert_eq!(waits.join().unwrap(), Err(OpError::Cancelled));
            assert!(value.lock().waiting.is_empty(), "who has given up is remembered");
            end.send(()).unwrap();
        });
        assert_eq!(value.get(), Some(&0));
        let value = OnDemand::<(), i32>::of(());
        let passed = Control { deadline_ns: Some(1), ..Control::default() };
        assert_eq!(value.get_or_make(&passed, |()| Ok(9)), Err(OpError::DeadlinePassed));
    }
}
