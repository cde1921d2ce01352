//! One call under way on the threads that compute: chunks, each of which one thread takes and does, and a caller who
//! waits for all. It knows nothing of the threads that there are.

use super::apart;
use crate::memory::Account;
use crate::scheduler::Underway;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::thread::{self, Thread};
use crate::sync::Instant;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

/// How long somebody stays awake who waits: enough for a small operation in between.
pub const AWAKE: Duration = Duration::from_micros(60);

/// After so many looks somebody who is awake lets another thread have the core, should one wait for it: that may be the one
/// who is to bring the work, or to end it.
const LOOKS: u32 = 16;

/// A call of `Team::for_each` under way.
pub struct Job {
    /// The caller's closure, valid until `done` reaches `count`: the caller waits for that.
    work: *const (dyn Fn(usize) + Sync),
    count: usize,
    /// One for each thread of the team.
    shares: Vec<Share>,
    done: AtomicUsize,
    /// On whose account memory is taken for it.
    account: Account,
    /// Workers that may still join.
    vacancies: AtomicUsize,
    /// What it is a part of, where that is recorded.
    underway: Option<Underway>,
    panicked: AtomicBool,
    /// Who waits for it, and works along on this core.
    caller: Thread,
    core: Option<usize>,
}

/// Chunks of a job that one thread is to take first. What threads write is more than a cache line apart, though not aligned:
/// memory that is takes longer to get, and threads that allocate wait for each other.
struct Share {
    next: AtomicUsize,
    end: usize,
    _apart: [u8; 64],
}

// SAFETY: `work` points to a closure that is Sync; it is called only for indices below `count`, all of which are counted
// in `done` before the caller, who owns the closure, returns.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Job {
    /// Calls of `work` for each index below `count`, by so many threads, the calling one among them.
    ///
    /// # Safety
    /// `work` must live until [`Self::wait`] has returned.
    pub unsafe fn new(
        count: usize,
        work: &(dyn Fn(usize) + Sync),
        threads: usize,
        underway: Option<Underway>,
    ) -> Self {
        // SAFETY: only the lifetime is erased; by contract it is long enough.
        let work: *const (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        let bound = |i: usize| count / threads * i + count % threads * i / threads;
        let share = |i: usize| Share { next: AtomicUsize::new(bound(i)), end: bound(i + 1), _apart: [0; 64] };
        Job {
            work,
            count,
            shares: (0..threads).map(share).collect(),
            done: AtomicUsize::new(0),
            account: Account::of_thread(),
            vacancies: AtomicUsize::new(threads - 1),
            underway,
            panicked: AtomicBool::new(false),
            caller: thread::current(),
            core: apart::core(),
        }
    }

    /// What it is a part of, where that is recorded.
    pub fn underway(&self) -> Option<&Underway> {
        self.underway.as_ref()
    }

    /// The core on which the caller is.
    pub fn core(&self) -> Option<usize> {
        self.core
    }

    pub fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Takes a free chunk, of share `own` if that has one.
    fn take(&self, own: usize) -> Option<usize> {
        let (before, after) = self.shares.split_at(own % self.shares.len());
        after.iter().chain(before).find_map(|share| {
            // Not counted on beyond the end, where all threads come by.
            let left = share.next.load(Ordering::Relaxed) < share.end;
            let index = if left { share.next.fetch_add(1, Ordering::Relaxed) } else { share.end };
            (index < share.end).then_some(index)
        })
    }

    /// Works on chunks, those of share `own` first, until none is left to take.
    pub fn help(&self, own: usize) {
        let _account = self.account.clone().enter();
        while let Some(index) = self.take(own) {
            // SAFETY: `index` is not counted as done yet, so the caller still waits and the closure lives.
            let work = unsafe { &*self.work };
            if catch_unwind(AssertUnwindSafe(|| work(index))).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            // The caller looks for itself when it is through; it costs nothing to tell one who does not sleep.
            if self.done.fetch_add(1, Ordering::AcqRel) + 1 == self.count && own > 0 {
                self.caller.unpark();
            }
        }
    }

    /// Whether chunks are left to take.
    fn has_chunks(&self) -> bool {
        self.shares.iter().any(|share| share.next.load(Ordering::Relaxed) < share.end)
    }

    /// Whether there is work for one more.
    pub fn has_place(&self) -> bool {
        self.has_chunks() && self.vacancies.load(Ordering::Relaxed) > 0
    }

    /// Takes a worker's place in it, if there is work for one more.
    pub fn join(&self) -> bool {
        let one_less = |vacancies: usize| vacancies.checked_sub(1);
        self.has_chunks()
            && self.vacancies.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    /// Waits until all chunks are done, awake at first: workers are on their last ones.
    pub fn wait(&self) {
        let is_done = || self.done.load(Ordering::Acquire) == self.count;
        stay_awake_until(AWAKE, is_done);
        while !is_done() {
            thread::park();
        }
    }
}

/// Returns when `come` says so, or when the time is over.
pub fn stay_awake_until(limit: Duration, come: impl Fn() -> bool) {
    let (since, mut looks) = (Instant::now(), 0u32);
    while !come() && since.elapsed() < limit {
        looks += 1;
        match looks % LOOKS {
            0 => thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
}
