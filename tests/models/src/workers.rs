//! Threads that do clients' tasks: each task runs once or is dropped undone, no client waits for another's, and no thread is
//! lost, nor left without a task while there is one.

use crate::done::Done;
use crate::explore;
use crate::stand_ins::starter;
use crate::sync::thread::{refuse, ALWAYS};
use crate::turns::demand;
use demand::{Load, Priority};
use loom::thread;
use starter::Starter;
use std::sync::Arc;
use subject::{Task, Workers};

#[path = "../../../src/scheduler/workers.rs"]
mod subject;

mod turns {
    /// All tasks have the same priority.
    pub const AGING_NS: i64 = 0;
}

/// What became of a task, said as it is dropped.
struct Fate {
    of: u32,
    has_run: bool,
    done: Arc<Done<(u32, bool)>>,
}

impl Fate {
    fn run(mut self, what: impl FnOnce()) {
        what();
        self.has_run = true;
    }
}

impl Drop for Fate {
    fn drop(&mut self) {
        self.done.say((self.of, self.has_run));
    }
}

/// The task of this number, which does `what`.
fn task(of: u32, done: &Arc<Done<(u32, bool)>>, what: impl FnOnce() + Send + 'static) -> Task {
    let fate = Fate { of, has_run: false, done: done.clone() };
    Box::new(move || fate.run(what))
}

fn submit(workers: &Workers, client: u32, task: Task) {
    workers.submit(client, Priority::Medium, task);
}

/// What became of the first `count` tasks, by their number.
fn fates(done: &Done<(u32, bool)>, count: usize) -> Vec<(u32, bool)> {
    let mut fates = done.wait_for(count);
    fates.sort_unstable();
    fates
}

fn workers(threads: usize) -> Workers {
    Workers::new("worker", threads, &Starter).expect("threads")
}

/// Two clients submit, one of them twice, while a thread is about to wait or to end. All threads end with the workers.
pub fn each_task_runs_once() {
    for (threads, switches) in [(1, 2), (2, 1)] {
        explore(switches, move || {
            let (workers, done) = (Arc::new(workers(threads)), Done::new());
            let other = {
                let (workers, task) = (workers.clone(), task(2, &done, || ()));
                thread::spawn(move || submit(&workers, 2, task))
            };
            for of in 0..2 {
                submit(&workers, 1, task(of, &done, || ()));
            }
            assert_eq!(fates(&done, 3), [(0, true), (1, true), (2, true)]);
            other.join().expect("no panic");
        });
    }
}

/// Workers stop at any moment: what waits is dropped undone, what has begun ends, and their threads end.
pub fn a_stop_drops_what_waits() {
    for lasts in [false, true] {
        explore(2, move || {
            let (workers, done, is_over) = (workers(1), Done::new(), Done::new());
            let until = is_over.clone();
            submit(&workers, 1, task(0, &done, move || drop(until.wait_for(usize::from(lasts)))));
            submit(&workers, 1, task(1, &done, || ()));
            submit(&workers, 2, task(2, &done, thread::yield_now));
            drop(workers);
            is_over.say(());
            let fates = fates(&done, 3);
            // That which waits for the one before it has run only if that one ended first.
            let may_be = |second| fates == [(0, true), (1, second), (2, true)];
            assert!(may_be(false) || !lasts && may_be(true), "{fates:?}");
        });
    }
}

/// A client's tasks last until two of another's have run, one after the other: each begins at once, whichever threads there are.
pub fn no_client_waits_for_anothers() {
    explore(2, || {
        let (workers, done, is_over) = (workers(1), Done::new(), Done::new());
        let lasts = is_over.clone();
        submit(&workers, 1, task(0, &done, move || drop(lasts.wait_for(1))));
        submit(&workers, 1, task(1, &done, || ()));
        for of in [2, 3] {
            submit(&workers, 2, task(of, &done, || ()));
            // The thread that it has had may wait, or end, or be about to.
            assert!(fates(&done, of as usize - 1).contains(&(of, true)));
        }
        is_over.say(());
        assert!(fates(&done, 4).iter().all(|&(_, has_run)| has_run));
    });
}

/// No thread can be had for a client's task: it begins once another client's ends.
pub fn without_a_thread_a_task_begins_as_another_ends() {
    explore(3, || {
        let (workers, done) = (workers(1), Done::new());
        refuse(ALWAYS);
        for (of, client) in [(0, 1), (1, 2), (2, 2)] {
            submit(&workers, client, task(of, &done, || ()));
        }
        assert_eq!(fates(&done, 3), [(0, true), (1, true), (2, true)]);
        while workers.load() != Load::default() {
            thread::yield_now();
        }
    });
}

/// No thread can be had at first for a client's task, and another client's never ends before that is done.
pub fn without_a_thread_a_task_begins_once_one_can_be_had() {
    for refused in 1..=2 {
        explore(2, move || {
            let (workers, done, is_over) = (workers(1), Done::new(), Done::new());
            let lasts = is_over.clone();
            submit(&workers, 1, task(0, &done, move || drop(lasts.wait_for(1))));
            refuse(refused);
            submit(&workers, 2, task(1, &done, move || is_over.say(())));
            assert_eq!(fates(&done, 2), [(0, true), (1, true)]);
        });
    }
}
