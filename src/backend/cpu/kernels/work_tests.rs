//! Tests of how a kernel's work is shared out: who may pass the turn on, and that it stops.

use super::work::Work;
use crate::backend::cpu::pool::ThreadPool;
use crate::memory::Target;
use crate::ops::{Interrupt, NeverInterrupted, OpError};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

/// Counts yield points, and stops after some.
struct Counting {
    owner: ThreadId,
    passed: AtomicUsize,
    most: usize,
}

impl Interrupt for Counting {
    fn check(&self) -> Result<(), OpError> {
        Ok(())
    }

    fn yield_point(&self) -> Result<(), OpError> {
        assert_eq!(thread::current().id(), self.owner, "a helper passed on the turn");
        match self.passed.fetch_add(1, Ordering::Relaxed) < self.most {
            true => Ok(()),
            false => Err(OpError::Cancelled),
        }
    }
}

#[test]
fn the_owner_alone_yields_before_each_of_its_chunks() {
    for threads in [1, 3] {
        let pool = ThreadPool::new(threads).unwrap();
        for most in [usize::MAX, 5] {
            let interrupt = Counting { owner: thread::current().id(), passed: AtomicUsize::new(0), most };
            let (mut bytes, by_owner) = ([0u8; 1000], AtomicUsize::new(0));
            let work = Work::new(pool.team(threads), &interrupt);
            let done = work.for_each_chunk(Target::<u8>::of(&mut bytes), 10, |_, _| {
                // Slow enough for helpers to come.
                thread::sleep(std::time::Duration::from_micros(50));
                by_owner.fetch_add(usize::from(thread::current().id() == interrupt.owner), Ordering::Relaxed);
            });
            let passed = interrupt.passed.into_inner();
            assert!(passed > 0 && by_owner.into_inner() == passed.min(most));
            assert_eq!(done.is_err(), passed > most);
        }
    }
}

#[test]
fn threads_have_as_many_tasks_each() {
    for threads in [2, 3] {
        let pool = ThreadPool::new(threads).unwrap();
        let work = Work::new(pool.team(threads), &NeverInterrupted);
        // Few, and more that are bounded by their time and by their bytes.
        for (units, picoseconds, bytes) in [(57_000, 1000, 0), (99_000, 100_000, 0), (9000, 20_000, 512)] {
            let each = work.units_per_task(units, picoseconds, bytes);
            let tasks = units.div_ceil(each);
            assert!(tasks > threads && tasks.is_multiple_of(threads), "{tasks} tasks for {threads} threads");
        }
    }
}
