//! Keeps those who compute apart: no two on one core while another rests.
//!
//! A kernel wakes a thread on the core of who wakes it, or on the one that it ran on last, and leaves both of two there that
//! compute on one core for milliseconds: what ran a moment ago is not moved, and a busy machine's cores are not searched for one
//! that rests. So each who computes notes its core where it comes by anyway, and goes to another one when it has met somebody.
//! It must not know what is computed, nor whose it is.

use super::cores;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::Instant;
use std::cell::Cell;
use std::time::Duration;

/// How long two must be seen on one core: what is noted of the other is as old as its last step.
const MET: Duration = Duration::from_micros(50);
/// A queue for a device may have any number of places, none of which is a core's.
const MOST: usize = 1024;
/// How long one stays where it is that found no other core.
const NO_OTHER: Duration = Duration::from_millis(10);

thread_local! {
    /// From when on this thread is to leave the core on which it has met another.
    static LEAVES: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The cores of those who compute: a place for each that may.
pub struct Apart(Box<[AtomicUsize]>);

/// A place that is free, and that of somebody of whom no core is known yet; otherwise it is the core's number.
const FREE: usize = usize::MAX;
const UNKNOWN: usize = usize::MAX - 1;

impl Apart {
    /// For as many as may compute at the same time, up to a number beyond which a machine has no core for each.
    pub fn new(places: usize) -> Self {
        Apart((0..places.min(MOST)).map(|_| AtomicUsize::new(FREE)).collect())
    }

    /// Takes a free place; one caller at a time.
    pub fn take(&self) -> Option<usize> {
        let free = self.0.iter().position(|core| core.load(Ordering::Relaxed) == FREE)?;
        self.0[free].store(UNKNOWN, Ordering::Relaxed);
        Some(free)
    }

    /// Gives it back.
    pub fn give(&self, place: usize) {
        if let Some(core) = self.0.get(place) {
            core.store(FREE, Ordering::Relaxed);
        }
    }

    /// Notes the core of this thread, which has `place`, and leaves it if another has been there for a while.
    pub fn look(&self, place: usize) {
        let (Some(own), Some(core)) = (self.0.get(place), cores::core()) else { return };
        if own.load(Ordering::Relaxed) != core {
            own.store(core, Ordering::Relaxed);
        }
        if self.has_met_another(core) {
            let new = cores::go_beside(self.cores());
            LEAVES.set(new.is_none().then(|| Instant::now() + NO_OTHER));
            own.store(new.unwrap_or(core), Ordering::Relaxed);
        }
    }

    /// Whether two have been on a core for a while, of whom this thread is one.
    fn has_met_another(&self, core: usize) -> bool {
        if self.cores().filter(|&other| other == core).count() < 2 {
            LEAVES.set(None);
            return false;
        }
        let (now, leaves) = (Instant::now(), LEAVES.get());
        if leaves.is_none() {
            LEAVES.set(Some(now + MET));
        }
        leaves.is_some_and(|then| then <= now)
    }

    fn cores(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().map(|core| core.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_are_on_one_core_for_a_while_have_met() {
        let apart = Apart::new(3);
        let places = [0, 1, 2].map(|_| apart.take().unwrap());
        assert_eq!(apart.take(), None, "there are as many places as may compute");
        let on = |cores: [usize; 3]| {
            for (place, core) in places.into_iter().zip(cores) {
                apart.0[place].store(core, Ordering::Relaxed);
            }
            let met = apart.has_met_another(5);
            std::thread::sleep(MET);
            met
        };
        assert!(!on([5, UNKNOWN, 4]) && !on([5, UNKNOWN, 4]), "of one no core is known");
        assert!(!on([5, 5, 4]) && on([5, 5, 4]), "only after a while");
        assert!(!on([5, 4, 4]) && !on([5, 4, 5]), "the one that it met has gone");
        assert!(on([5, 4, 5]));
        apart.give(places[2]);
        assert!(!apart.has_met_another(5));
        assert_eq!(apart.take(), Some(places[2]));
    }
}
