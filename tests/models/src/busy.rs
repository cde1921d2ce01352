//! The mark on a burst or reusable execution: who has it uses the request that is kept, its memory and its buffers.

use crate::explore;
use crate::stand_ins::status;
use crate::sync::atomic::AtomicBool;
use loom::cell::UnsafeCell;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use subject::Busy;

#[path = "../../../src/service/busy.rs"]
mod subject;

/// Two executions never use what is kept at once. Each sees what the one before left of it, is refused only while another
/// runs, and takes its mark away.
pub fn a_request_is_used_by_one_execution() {
    explore(4, || {
        let (mark, kept) = (Arc::new(AtomicBool::new(false)), Rc::new(UnsafeCell::new(0)));
        let running = Rc::new(Cell::new(0));
        let execute = || {
            let (mark, kept, running) = (mark.clone(), kept.clone(), running.clone());
            move || {
                running.set(running.get() + 1);
                match Busy::enter(&mark, "burst") {
                    // SAFETY: the cell outlives the closure; the checker reports any access at the same time.
                    Ok(_busy) => kept.with_mut(|uses| unsafe { *uses += 1 }),
                    Err(status::ServiceError::Failed(why)) => assert!(running.get() > 1, "{why}"),
                }
                running.set(running.get() - 1);
            }
        };
        let others = [execute(), execute()].map(loom::thread::spawn);
        execute()();
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        drop(Busy::enter(&mark, "burst").expect("nobody executes"));
        // SAFETY: as above.
        kept.with(|uses| assert!((1..=3).contains(unsafe { &*uses })));
    });
}
