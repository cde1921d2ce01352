//! Threads that sleep until something has changed: they miss no change, and are told to stop while they sleep.

use crate::explore;
use crate::ops::OpError;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::turns::control::Control;
use loom::thread;
use std::sync::Arc;
use subject::Waiting;

#[path = "../../../src/scheduler/waiting.rs"]
mod subject;

/// So many things, which are taken one by one.
#[derive(Default)]
struct Things {
    there: AtomicUsize,
    waiting: Waiting,
}

impl Things {
    fn put(&self) {
        self.there.fetch_add(1, Ordering::SeqCst);
        self.waiting.look_again();
    }

    fn take(&self, control: &Control) -> Result<usize, OpError> {
        let take = |there: usize| there.checked_sub(1);
        self.waiting.until(control, || self.there.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).ok())
    }

    fn assert_left(&self, things: usize) {
        assert_eq!((self.there.load(Ordering::SeqCst), self.waiting.waits()), (things, 0));
    }
}

/// Two threads wait for a thing each, and two others bring one each, whenever. Nobody is left in the list.
pub fn no_change_is_missed() {
    explore(2, || {
        let things = Arc::<Things>::default();
        let takes = [(); 2].map(|()| {
            let things = things.clone();
            thread::spawn(move || things.take(&Control::default()).is_ok())
        });
        let puts = {
            let things = things.clone();
            thread::spawn(move || things.put())
        };
        things.put();
        puts.join().expect("no panic");
        takes.into_iter().for_each(|takes| assert!(takes.join().expect("no panic")));
        things.assert_left(0);
    });
}

/// A thread that waits is cancelled or its client dies: it ends its wait, though nothing changes. Time would not wake it here.
pub fn who_is_told_to_stop_does_not_wait_on() {
    for orphaned in [false, true] {
        explore(4, move || {
            let (things, control) = (Arc::<Things>::default(), Control::default());
            let stop = if orphaned { &control.orphaned } else { &control.cancelled }.clone();
            let waits = {
                let things = things.clone();
                thread::spawn(move || matches!(things.take(&control), Err(OpError::Cancelled)))
            };
            stop.set();
            assert!(waits.join().expect("no panic"), "there was nothing to take");
            things.assert_left(0);
        });
    }
}

/// A change comes as one of two threads is told to stop: that has it or not, and the other has what it leaves.
pub fn who_is_told_to_stop_leaves_a_change_to_others() {
    explore(2, || {
        let (things, control) = (Arc::<Things>::default(), Control::default());
        let stop = control.cancelled.clone();
        let takes = [control, Control::default()].map(|control| {
            let things = things.clone();
            thread::spawn(move || things.take(&control).is_ok())
        });
        let stops = thread::spawn(move || stop.set());
        things.put();
        stops.join().expect("no panic");
        let [gives_up, stays] = takes;
        if gives_up.join().expect("no panic") {
            things.put();
        }
        assert!(stays.join().expect("no panic"), "nobody told it to stop");
        things.assert_left(0);
    });
}
