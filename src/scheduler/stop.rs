//! A flag that stops work. It is set once, and wakes those who wait for something else meanwhile.
//!
//! It must not know why work is to stop.

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard};
use std::sync::{Arc, PoisonError};

/// Wakes what waits. It is called on the thread that sets the flag, so it must be quick and wait for nobody. What it
/// does must not be lost on a thread that is about to wait: an unpark or a message, not a notification.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Not set at first.
#[derive(Default)]
pub struct Stop {
    set: AtomicBool,
    waiting: Mutex<Vec<Wake>>,
}

impl Stop {
    /// One that is set.
    pub fn already() -> Arc<Self> {
        let stop = Arc::<Self>::default();
        stop.set();
        stop
    }

    pub fn set(&self) {
        // Before the lock: a thread that is not in the list yet looks at the flag after it has had the lock.
        // Whoever is woken by other means than these, as by a queue's event flag, sees it, too.
        self.set.store(true, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.lock());
        waiting.iter().for_each(|wake| wake());
    }

    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    /// Has `wake` called when the flag is set from now on, until what this gives is dropped. Whoever waits looks at the
    /// flag after this, because it may be set already.
    pub fn wakes(self: &Arc<Self>, wake: &Wake) -> Wakes {
        self.lock().push(wake.clone());
        Wakes { stop: self.clone(), wake: wake.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Wake>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_set() { "set" } else { "not set" })
    }
}

/// A place in the list of those whom a flag wakes.
pub struct Wakes {
    stop: Arc<Stop>,
    wake: Wake,
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.stop.lock().retain(|other| !Arc::ptr_eq(other, &self.wake));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn it_wakes_once_who_waits_and_forgets_who_does_not() {
        let (stop, counts) = (Arc::<Stop>::default(), [(); 3].map(|()| Arc::<AtomicUsize>::default()));
        let wakes = counts.clone().map(|count| -> Wake {
            Arc::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
            })
        });
        let [first, second, third] = [&wakes[0], &wakes[1], &wakes[2]].map(|wake| stop.wakes(wake));
        drop(second);
        assert!(!stop.is_set());
        stop.set();
        stop.set();
        assert!(stop.is_set() && stop.lock().is_empty());
        drop((first, third));
        assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [1, 0, 1]);
    }
}
