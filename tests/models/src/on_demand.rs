//! What is made when it is first needed: once, and nobody waits on who may stop, or whom the one who made it should wake.

use crate::explore;
use crate::ops::OpError;
use crate::turns::control::Control;
use loom::thread;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use subject::OnDemand;

#[path = "../../../src/backend/cpu/on_demand.rs"]
#[allow(dead_code)] // what is there already is of no model's interest
mod subject;

/// Whoever needs it has it, made once; where making it fails, the next tries.
pub fn it_is_made_once_and_all_who_wait_have_it() {
    for fails in [0, 1] {
        explore(3, move || {
            let (value, tries) = (Arc::new(OnDemand::of(7)), Rc::new(Cell::new(0)));
            let need = || {
                let (value, tries) = (value.clone(), tries.clone());
                move || {
                    let make = |source: &i32| {
                        tries.set(tries.get() + 1);
                        thread::yield_now();
                        if tries.get() <= fails {
                            return Err(OpError::failed("as told"));
                        }
                        Ok(source * 6)
                    };
                    value.get_or_make(&Control::default(), make).is_ok_and(|made| *made == 42)
                }
            };
            let others = [need(), need()].map(thread::spawn);
            let had = u32::from(need()());
            let had =
                had + others.into_iter().map(|other| u32::from(other.join().expect("no panic"))).sum::<u32>();
            assert_eq!((had, tries.get()), (3 - fails, fails + 1));
        });
    }
}

/// One who waits and is told to stop does so while another is at it still. Time would not wake it here.
pub fn who_is_told_to_stop_does_not_wait_on() {
    explore(4, || {
        let value = Arc::new(OnDemand::of(7));
        let made = value.get_or_make(&Control::default(), |source| {
            let control = Control::default();
            let cancelled = control.cancelled.clone();
            let waits = {
                let value = value.clone();
                thread::spawn(move || value.get_or_make(&control, |_| Ok::<_, OpError>(0)).is_err())
            };
            cancelled.set();
            assert!(waits.join().expect("no panic"), "it was not made yet");
            Ok::<_, OpError>(source * 6)
        });
        assert_eq!(made.ok(), Some(&42));
    });
}
