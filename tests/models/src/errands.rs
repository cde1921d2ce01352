//! What is done for clients apart: each errand once, those of a client one after the other, and none waits for another client's.

use crate::done::Done;
use crate::explore;
use crate::stand_ins::{starter, thread_cache, time_slices};
use crate::sync::thread::refuse;
use loom::thread;
use starter::Starter;
use std::sync::Arc;
use subject::Errands;

#[path = "../../../src/scheduler/errands.rs"]
mod subject;

const CLIENT: u32 = 1;

/// Asks for each of `numbers`, which says when it begins and when it ends.
fn ask(errands: &Arc<Errands>, done: &Arc<Done<(u32, bool)>>, numbers: &[u32]) {
    for &number in numbers {
        let done = done.clone();
        errands.run(CLIENT, move || {
            done.say((number, false));
            thread::yield_now();
            done.say((number, true));
        });
    }
}

/// Two threads ask, while the client's own thread may be about to end. Each errand is done once, none beside another, and
/// those that one thread asks for in their order. No thread can be had at first, or it can.
pub fn a_clients_errands_are_done_one_after_the_other() {
    for refused in 0..=2 {
        explore(3, move || {
            let (errands, done) = (Errands::new("errand", &Starter), Done::new());
            refuse(refused);
            let (ours, theirs): (&[u32], _) = if refused == 0 { (&[0, 1], [2]) } else { (&[0], [2]) };
            let other = {
                let (errands, done) = (errands.clone(), done.clone());
                thread::spawn(move || ask(&errands, &done, &theirs))
            };
            ask(&errands, &done, ours);
            let all = ours.len() + theirs.len();
            let said = done.wait_for(2 * all);
            let is_whole = |pair: &[(u32, bool)]| pair[0] == (pair[1].0, false) && pair[1].1;
            assert!(said.chunks(2).all(is_whole), "one began beside another: {said:?}");
            let mut numbers: Vec<_> = said.chunks(2).map(|pair| pair[0].0).collect();
            assert!(numbers.iter().filter(|number| ours.contains(number)).eq(ours), "{numbers:?}");
            numbers.sort_unstable();
            assert!(numbers.iter().eq(ours.iter().chain(&theirs)), "{numbers:?}");
            other.join().expect("no panic");
        });
    }
}

/// A client's errand lasts until another client's is done, for which a thread may be refused first.
pub fn no_client_waits_for_anothers() {
    for refused in 0..=3 {
        explore(3, move || {
            let (errands, done, is_over) = (Errands::new("errand", &Starter), Done::new(), Done::new());
            refuse(refused);
            for lasts in [true, false] {
                let (is_over, done) = (is_over.clone(), done.clone());
                errands.run(u32::from(lasts), move || {
                    if lasts {
                        is_over.wait_for(1);
                    } else {
                        is_over.say(());
                    }
                    done.say(());
                });
            }
            done.wait_for(2);
        });
    }
}
