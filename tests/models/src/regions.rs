//! The table of watched regions, as the handler of SIGBUS reads it while others write.

use crate::explore;
use crate::sync::atomic::{AtomicBool, AtomicUsize};
use crate::sync::Mutex;
use std::rc::Rc;
use subject::{FreeSlots, Regions, Slot};

#[path = "../../../src/memory/regions.rs"]
#[allow(dead_code)] // where a region lies is of no interest to the model
mod subject;

fn unused() -> Slot {
    Slot {
        generation: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        vanished: AtomicBool::new(false),
    }
}

/// A thread that faults finds its own region, which it keeps, whatever happens in other slots. In a slot that changes it
/// finds nothing, or a start and a length that belong together.
pub fn a_reader_sees_whole_entries_only() {
    const OWN: (usize, usize) = (10, 5);
    const FIRST: (usize, usize) = (100, 50);
    const SECOND: (usize, usize) = (200, 20);
    explore(4, || {
        let free = FreeSlots { returned: Vec::new(), fresh: 0, limit: 2 };
        let slots = vec![unused(), unused()];
        let regions = Rc::new(Regions { slots, used: AtomicUsize::new(0), free: Mutex::new(free) });
        // The thread's own region comes second, because the search for it then passes the slot that changes.
        let changing = regions.watch(FIRST.0, FIRST.1).expect("a slot");
        let own = regions.watch(OWN.0, OWN.1).expect("a slot");
        let writer = {
            let regions = regions.clone();
            loom::thread::spawn(move || {
                regions.forget(changing);
                assert_eq!(regions.watch(SECOND.0, SECOND.1), Some(changing), "the slot is used again");
            })
        };
        // The last address is in neither region, but would be in one with the start of the second and the length of the first.
        for address in [FIRST.0 + 1, SECOND.0 + 1, SECOND.0 + FIRST.1 - 1] {
            let found = regions.mark(address);
            let holds = |(start, len): (usize, usize)| (start..start + len).contains(&address);
            let is_whole = found.is_none_or(|found| [FIRST, SECOND].contains(&found) && holds(found));
            assert!(is_whole, "{address} is said to be in {found:?}");
        }
        assert_eq!((regions.mark(OWN.0 + 1), regions.is_marked(own)), (Some(OWN), true));
        writer.join().expect("no panic");
        assert_eq!(regions.mark(SECOND.0), Some(SECOND));
    });
}
