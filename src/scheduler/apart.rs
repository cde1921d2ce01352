//! Keeps those who compute apart: no two on one core while another rests.
//!
//! A kernel wakes a thread on the core of who wakes it, or on the one that it ran on last, and leaves both of two there that
//! compute on one core for milliseconds: what ran a moment ago is not moved, and a busy machine's cores are not searched for one
//! that rests. So each who computes notes its core where it comes by anyway, and goes to another one when it has met somebody.
//! It must not know what is computed, nor whose it is.

use super::cores;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::Instant;
use std::time::Duration;

/// How long two must be seen on one core: what is noted of the other is as old as its last step.
const MET: Duration = Duration::from_micros(50);
/// A queue for a device may have any number of places, none of which is a core's.
const MOST: usize = 1024;
/// How long one stays where it is that found no other core.
const NO_OTHER: Duration = Duration::from_millis(10);

/// The cores of those who compute: a place for each that may.
pub struct Apart {
    places: Box<[Place]>,
    epoch: Instant,
}

/// The place of one who computes, for one turn: what was seen by the turn before says nothing of this one.
struct Place {
    core: AtomicUsize,
    /// When it is to leave that core, on which it has met another: in nanoseconds since the epoch.
    leaves: AtomicU64,
}

/// Before it has met another.
const NEVER: u64 = u64::MAX;

/// A place that is free, and that of somebody of whom no core is known yet; otherwise it is the core's number.
const FREE: usize = usize::MAX;
const UNKNOWN: usize = usize::MAX - 1;

impl Apart {
    /// For as many as may compute at the same time, up to a number beyond which a machine has no core for each.
    pub fn new(places: usize) -> Self {
        let place = |_| Place { core: AtomicUsize::new(FREE), leaves: AtomicU64::new(NEVER) };
        Apart { places: (0..places.min(MOST)).map(place).collect(), epoch: Instant::now() }
    }

    /// Takes a free place; one caller at a time.
    pub fn take(&self) -> Option<usize> {
        let free = self.cores().position(|core| core == FREE)?;
        self.places[free].stay_on(UNKNOWN);
        Some(free)
    }

    /// Gives it back.
    pub fn give(&self, place: usize) {
        if let Some(place) = self.places.get(place) {
            place.core.store(FREE, Ordering::Relaxed);
        }
    }

    /// Notes the core of this thread, which has `place`, and leaves it if another has been there for a while.
    pub fn look(&self, place: usize) {
        let (Some(own), Some(core)) = (self.places.get(place), cores::core()) else { return };
        if own.core.load(Ordering::Relaxed) != core {
            own.stay_on(core);
        }
        if self.has_met_another(own) {
            match cores::go_beside(self.cores()) {
                Some(new) => own.stay_on(new),
                None => own.leaves.store(self.after(NO_OTHER), Ordering::Relaxed),
            }
        }
    }

    /// Whether two have been on a core for a while, one of whom has this place.
    fn has_met_another(&self, own: &Place) -> bool {
        let (core, leaves) = (own.core.load(Ordering::Relaxed), own.leaves.load(Ordering::Relaxed));
        if self.cores().filter(|&other| other == core).count() < 2 {
            // Written only where it changes, as all look at what lies beside it.
            if leaves != NEVER {
                own.leaves.store(NEVER, Ordering::Relaxed);
            }
            return false;
        }
        if leaves == NEVER {
            own.leaves.store(self.after(MET), Ordering::Relaxed);
        }
        leaves <= self.after(Duration::ZERO)
    }

    /// So long after now, in nanoseconds since the epoch.
    fn after(&self, time: Duration) -> u64 {
        u64::try_from((self.epoch.elapsed() + time).as_nanos()).unwrap_or(NEVER)
    }

    fn cores(&self) -> impl Iterator<Item = usize> + '_ {
        self.places.iter().map(|place| place.core.load(Ordering::Relaxed))
    }

    /// The core that is noted for a place.
    #[cfg(test)]
    pub fn core_of(&self, place: usize) -> usize {
        self.places[place].core.load(Ordering::Relaxed)
    }
}

impl Place {
    /// Notes who has it on a core, before it meets another there.
    fn stay_on(&self, core: usize) {
        self.leaves.store(NEVER, Ordering::Relaxed);
        self.core.store(core, Ordering::Relaxed);
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
                apart.places[place].core.store(core, Ordering::Relaxed);
            }
            let met = apart.has_met_another(&apart.places[places[0]]);
            std::thread::sleep(MET);
            met
        };
        assert!(!on([5, UNKNOWN, 4]) && !on([5, UNKNOWN, 4]), "of one no core is known");
        assert!(!on([5, 5, 4]) && on([5, 5, 4]), "only after a while");
        assert!(!on([5, 4, 4]) && !on([5, 4, 5]), "the one that it met has gone");
        assert!(on([5, 4, 5]));
        apart.give(places[2]);
        assert!(!apart.has_met_another(&apart.places[places[0]]));
        assert_eq!(apart.take(), Some(places[2]));
    }

    #[test]
    fn whom_a_turn_has_met_the_next_one_has_not() {
        let apart = Apart::new(2);
        let other = apart.take().unwrap();
        apart.places[other].core.store(5, Ordering::Relaxed);
        for _ in 0..2 {
            let own = apart.take().unwrap();
            apart.places[own].core.store(5, Ordering::Relaxed);
            assert!(!apart.has_met_another(&apart.places[own]), "only after a while");
            std::thread::sleep(MET);
            assert!(apart.has_met_another(&apart.places[own]));
            apart.give(own);
        }
    }
}
