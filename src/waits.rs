//! What a thread waits for, noted for whoever watches the work that it does.
//!
//! Must not know what work that is. Where nobody watches, a note costs a look at a variable of the thread.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

thread_local! {
    /// Those of the work that this thread does.
    static CURRENT: RefCell<Option<Arc<Waits>>> = const { RefCell::new(None) };
    /// What it does before it waits.
    static BEFORE: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// The waits of one piece of work.
#[derive(Debug, Default)]
pub struct Waits(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// By what was waited for: how long.
    over: Vec<(&'static str, Duration)>,
    now: Option<(&'static str, Instant)>,
}

/// Has the waits of a thread noted, until dropped; then those of the work before.
pub struct Watched {
    before: Option<Arc<Waits>>,
    /// It is the thread's own.
    _not_send: std::marker::PhantomData<*const ()>,
}

/// A wait, until dropped. Waits are not nested.
pub struct Wait(Option<Arc<Waits>>);

/// Has the calling thread call `then` before it waits for anything, once.
pub fn before_next(then: fn()) {
    let _ = BEFORE.try_with(|before| before.set(Some(then))); // a thread that ends waits for nothing
}

/// For a thread that may wait from here on.
pub fn about_to_wait() {
    if let Ok(Some(then)) = BEFORE.try_with(Cell::take) {
        then();
    }
}

/// Notes that the thread waits for `what`.
pub fn wait_for(what: &'static str) -> Wait {
    about_to_wait();
    // A thread that is ending does no work any more.
    let waits = CURRENT.try_with(|current| current.borrow().clone()).ok().flatten();
    if let Some(waits) = &waits {
        waits.lock().now = Some((what, Instant::now()));
    }
    Wait(waits)
}

impl Waits {
    /// Has the calling thread's waits noted here.
    pub fn watch(self: &Arc<Self>) -> Watched {
        let before = CURRENT.try_with(|current| current.replace(Some(self.clone()))).ok().flatten();
        Watched { before, _not_send: std::marker::PhantomData }
    }

    /// Notes a wait of no thread.
    pub fn add(&self, what: &'static str, time: Duration) {
        add(&mut self.lock().over, what, time);
    }

    /// What was waited for, and how long, until `now`.
    pub fn until(&self, now: Instant) -> Vec<(&'static str, Duration)> {
        let noted = self.lock();
        let mut waits = noted.over.clone();
        if let Some((what, since)) = noted.now {
            add(&mut waits, what, now.saturating_duration_since(since));
        }
        waits
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(waits: &mut Vec<(&'static str, Duration)>, what: &'static str, time: Duration) {
    match waits.iter_mut().find(|(other, _)| *other == what) {
        Some((_, sum)) => *sum += time,
        None => waits.push((what, time)),
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let Some(waits) = &self.0 else { return };
        let mut noted = waits.lock();
        if let Some((what, since)) = noted.now.take() {
            add(&mut noted.over, what, since.elapsed());
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let before = self.before.take();
        let _ = CURRENT.try_with(|current| current.replace(before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_noted_of_the_work_that_is_done() {
        let [outer, inner]: [Arc<Waits>; 2] = Default::default();
        let names =
            |waits: &Waits| waits.until(Instant::now()).iter().map(|(what, _)| *what).collect::<Vec<_>>();
        assert!(wait_for("nothing").0.is_none());
        let watched = outer.watch();
        drop(wait_for("a turn"));
        {
            let _watched = inner.watch();
            let _waiting = wait_for("a file");
            assert_eq!(names(&inner), ["a file"], "it is waited for still");
        }
        drop(wait_for("a turn"));
        outer.add("its place", Duration::from_secs(1));
        assert_eq!((names(&outer), names(&inner)), (vec!["a turn", "its place"], vec!["a file"]));
        drop(watched);
        assert!(wait_for("nothing").0.is_none());
    }
}
