//! The threads that compute: each index of a call is done once, by the time that the call returns, and whoever sleeps is
//! woken.

use crate::explore;
use loom::cell::UnsafeCell;
use loom::thread;
use std::rc::Rc;
use subject::ThreadPool;

#[path = "../../../src/backend/cpu/pool/mod.rs"]
#[allow(dead_code)] // recording, and who is worth waking, are of no model's interest
mod subject;

/// What the calls of one `for_each` write, each a place of its own.
struct Places(Vec<UnsafeCell<u32>>);

// SAFETY: the checker reports any access at the same time.
unsafe impl Sync for Places {}

impl Places {
    fn new(count: usize) -> Self {
        Places((0..count).map(|_| UnsafeCell::new(0)).collect())
    }

    /// Has the pool write each of them.
    fn write_all(&self, pool: &ThreadPool) {
        // SAFETY: the cells outlive the closure; the checker reports any access at the same time.
        pool.team(2).for_each(self.0.len(), &|i| self.0[i].with_mut(|times| unsafe { *times += 1 }));
    }

    /// Whether each was written so often.
    #[track_caller]
    fn assert_written(&self, often: u32) {
        for place in &self.0 {
            // SAFETY: as above.
            assert_eq!(place.with(|times| unsafe { *times }), often);
        }
    }
}

fn pool() -> ThreadPool {
    ThreadPool::new(2).expect("threads")
}

/// The caller sees all that the worker has done, whichever does what; then the worker ends, asleep or not.
pub fn every_index_is_done_once_before_a_call_returns() {
    explore(3, || {
        let (pool, places) = (pool(), Places::new(3));
        places.write_all(&pool);
        places.assert_written(1);
    });
}

/// A worker that helps with a call, stays awake for the next or goes to sleep, misses no wake-up.
pub fn a_call_after_another_is_done_whole() {
    explore(2, || {
        let (pool, places) = (pool(), Places::new(2));
        places.write_all(&pool);
        places.write_all(&pool);
        places.assert_written(2);
    });
}

/// Two callers share a worker: neither waits for ever, and neither's work is done for the other's.
pub fn calls_at_once_all_end() {
    explore(1, || {
        let pool = Rc::new(pool());
        let call = || {
            let pool = pool.clone();
            move || {
                let places = Places::new(2);
                places.write_all(&pool);
                places.assert_written(1);
            }
        };
        let other = thread::spawn(call());
        call()();
        other.join().expect("no panic");
    });
}
