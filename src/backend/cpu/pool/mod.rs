//! The threads that compute. Work is handed out in chunks, so that a late worker never holds up the caller, who works
//! along and returns when all chunks are done. Each thread has a share of its own, always the same part of the whole, as
//! what it reads then mostly is what it wrote in the operation before; when it is through it helps with those of others.
//!
//! A worker without work stays awake for a moment, as the next operation's work mostly comes within it, then sleeps.

mod desk;
pub mod shares;

use crate::memory::Entered;
use crate::scheduler::{time_slices, Underway};
use crate::sync::atomic::{fence, AtomicUsize, Ordering};
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard};
use desk::{stay_awake_until, Call, Desk, AWAKE};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How long a worker stays awake after its last work while somebody keeps the pool [warm](ThreadPool::warm): enough to send a small request and its result.
const AWAKE_LONGER: Duration = Duration::from_micros(500);

/// Work that takes as long as this alone is worth waking somebody for, who takes some 17 us to come.
const WORTH_WAKING: Duration = Duration::from_micros(50);
/// Work that is worth handing out to somebody who is awake.
const WORTH_SHARING: Duration = Duration::from_nanos(LEAST_SHARED_NS as u64);
/// The same in nanoseconds: work that takes less is done by one thread.
pub const LEAST_SHARED_NS: usize = 3000;

/// A pool of threads, shared by all executions.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// The threads of a pool that may work on one operation.
#[derive(Clone, Copy)]
pub struct Team<'a> {
    pool: &'a ThreadPool,
    threads: usize,
    /// The operation, where it is recorded.
    underway: Option<&'a Underway>,
}

/// Keeps the workers of a pool awake for longer between operations, until dropped.
pub struct Warm(Arc<Shared>);

struct Shared {
    desks: Box<[Desk]>,
    bell: Bell,
    /// Whether the pool is to end.
    stop: Mutex<bool>,
    wake: Condvar,
    /// How many keep the pool warm.
    warm: AtomicUsize,
}

/// What workers without work look at all the time.
#[repr(align(128))]
struct Bell {
    /// Changes with each call that workers may join: how many there were, times as many as there are desks, and the desk of the last.
    rung: AtomicUsize,
    /// Workers that sleep.
    asleep: AtomicUsize,
}

impl ThreadPool {
    /// A pool that computes on `threads` threads, of which the caller of [`Team::for_each`] is one.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let threads = threads.max(1);
        // As many calls compute at a time as there are threads, and some more wait for their turn amid one.
        let desks = if threads > 1 { 2 * threads } else { 0 };
        let shared = Arc::new(Shared {
            desks: (0..desks).map(|_| Desk::new(threads)).collect(),
            bell: Bell { rung: AtomicUsize::new(0), asleep: AtomicUsize::new(0) },
            stop: Mutex::new(false),
            wake: Condvar::new(),
            warm: AtomicUsize::new(0),
        });
        let mut pool = ThreadPool { shared, workers: Vec::new() };
        for i in 1..threads {
            let shared = pool.shared.clone();
            let worker = Builder::new().name(format!("nnhal-cpu-{i}"));
            pool.workers.push(worker.spawn(move || shared.work(i))?);
        }
        Ok(pool)
    }

    /// Up to `threads` threads, the caller's included.
    pub fn team(&self, threads: usize) -> Team<'_> {
        Team { pool: self, threads: threads.clamp(1, self.workers.len() + 1), underway: None }
    }

    /// Keeps the workers awake for longer between operations.
    pub fn warm(&self) -> Warm {
        self.shared.warm.fetch_add(1, Ordering::Relaxed);
        Warm(self.shared.clone())
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        self.0.warm.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a> Team<'a> {
    /// The same, for work that is part of `underway`, should that be recorded.
    pub fn on(self, underway: Option<&'a Underway>) -> Self {
        Team { underway, ..self }
    }

    /// How many threads work on a call.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// How many threads are to work on a call that takes about so long on one: only one where the others would come late.
    pub fn threads_for(&self, alone: Duration) -> usize {
        let asleep = &self.pool.shared.bell.asleep;
        let somebody_is_awake = || asleep.load(Ordering::Relaxed) < self.pool.workers.len();
        match alone >= WORTH_WAKING || (alone >= WORTH_SHARING && somebody_is_awake()) {
            true => self.threads,
            false => 1,
        }
    }

    /// Calls `work` once for each index below `count`, on all threads, and returns when all calls have returned.
    pub fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        let (alone, shared) = (count <= 1 || self.threads == 1, &self.pool.shared);
        // Where so many calls are under way already, all threads have work.
        let desk = if alone { None } else { shared.desks.iter().position(Desk::take) };
        let Some(desk) = desk else {
            (0..count).for_each(work);
            return;
        };
        let call = Call::new(work, count, self.threads, self.underway);
        assert!(
            shared.desks[desk].run(call, || shared.ring(desk)),
            "a kernel panicked on one of the threads"
        );
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the workers of a call that they may join.
    fn ring(&self, desk: usize) {
        let next = |rung: usize| {
            Some((rung / self.desks.len()).wrapping_add(1).wrapping_mul(self.desks.len()).wrapping_add(desk))
        };
        let _ = self.bell.rung.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
        // Either it is seen here that a worker sleeps, or that one sees that it was rung.
        fence(Ordering::SeqCst);
        if self.bell.asleep.load(Ordering::Relaxed) > 0 {
            drop(self.lock());
            self.wake.notify_all();
        }
    }

    /// Worker `worker` works until the pool is dropped.
    fn work(&self, worker: usize) {
        let (mut heard, mut entered) = (0, None);
        let _long = time_slices::long(); // for all of its life: it only computes
        loop {
            let rung = self.bell.rung.load(Ordering::Acquire);
            let last = rung % self.desks.len();
            let mut was_of_use = rung != heard;
            if was_of_use {
                self.help(worker, last, &mut entered);
            }
            heard = rung;
            while self.help_others(worker, last, &mut entered) {
                was_of_use = true;
            }
            // If it came too late for that call, it is in time for the next one, which mostly comes soon.
            if was_of_use {
                self.stay_awake(heard);
            } else if !self.sleep(heard) {
                return;
            }
        }
    }

    /// Helps with a call of another desk than the last one's, which is left alone, as its caller is about to use it again.
    fn help_others(&self, worker: usize, last: usize, entered: &mut Option<Entered>) -> bool {
        let mut others = (0..self.desks.len()).filter(|&desk| desk != last && self.desks[desk].is_taken());
        others.any(|desk| self.help(worker, desk, entered))
    }

    /// Helps with the call of a desk; false where it has no work for the worker.
    fn help(&self, worker: usize, desk: usize, entered: &mut Option<Entered>) -> bool {
        // Other desks' first workers are others, as not all calls are of all threads.
        let others = self.desks[desk].threads() - 1;
        self.desks[desk].help(1 + (worker - 1 + desk) % others, entered)
    }

    /// Waits for the bell to ring again without sleeping, for a moment.
    fn stay_awake(&self, heard: usize) {
        let warm = self.warm.load(Ordering::Relaxed) > 0;
        let limit = if warm { AWAKE_LONGER } else { AWAKE };
        stay_awake_until(limit, || self.bell.rung.load(Ordering::Acquire) != heard);
    }

    /// Sleeps until the bell rings again; false when the pool is dropped.
    fn sleep(&self, heard: usize) -> bool {
        let mut stop = self.lock();
        self.bell.asleep.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst); // as in `ring`
        while !*stop && self.bell.rung.load(Ordering::Acquire) == heard {
            stop = self.wake.wait(stop).unwrap_or_else(PoisonError::into_inner);
        }
        self.bell.asleep.fetch_sub(1, Ordering::Relaxed);
        !*stop
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        *self.shared.lock() = true;
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches panics, and there is nobody left to tell.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{client_of_thread, Budget};
    use crate::scheduler::{Activity, Noted, OperationId, Recorder};
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use std::sync::atomic::AtomicBool;

    #[test]
    fn calls_every_index_once_from_many_callers() {
        let pool = ThreadPool::new(3).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for count in [0, 1, 2, 7, 100, if cfg!(miri) { 1000 } else { 70_001 }] {
                        let calls: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                        pool.team(usize::MAX).for_each(count, &|i| {
                            calls[i].fetch_add(1, Ordering::Relaxed);
                        });
                        assert!(calls.iter().all(|c| c.load(Ordering::Relaxed) == 1));
                    }
                });
            }
        });
    }

    #[test]
    fn no_more_threads_work_than_the_team_has() {
        let pool = ThreadPool::new(4).unwrap();
        for threads in 1..=4 {
            let (working, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            pool.team(threads).for_each(64, &|_| {
                most.fetch_max(working.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_micros(200));
                working.fetch_sub(1, Ordering::SeqCst);
            });
            assert!(most.into_inner() <= threads);
        }
    }

    #[test]
    fn each_call_is_on_its_callers_account() {
        let (pool, budget) = (ThreadPool::new(3).unwrap(), Budget::new(64 << 20));
        let caller = std::thread::current().id();
        for client in [1, 2, 2, 1] {
            let (_account, other) = (budget.on_account_of(client), AtomicBool::new(false));
            pool.team(3).for_each(64, &|_| {
                assert_eq!(client_of_thread(), client);
                other.fetch_or(std::thread::current().id() != caller, Ordering::Relaxed);
                // Until a worker has come.
                while !other.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            });
        }
    }

    #[test]
    fn nobody_is_woken_for_a_moment_of_work() {
        let pool = ThreadPool::new(3).unwrap();
        let team = pool.team(3);
        let asleep = || pool.shared.bell.asleep.load(Ordering::Relaxed) == 2;
        while !asleep() {
            std::thread::yield_now();
        }
        assert_eq!(team.threads_for(Duration::from_micros(20)), 1);
        assert_eq!(team.threads_for(Duration::from_millis(1)), 3);
        assert_eq!(pool.team(1).threads_for(Duration::from_secs(1)), 1);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives() {
        let pool = ThreadPool::new(2).unwrap();
        let panics = || pool.team(usize::MAX).for_each(8, &|i| assert!(i != 5));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        pool.team(usize::MAX).for_each(8, &|_| {});
    }

    #[test]
    fn the_parts_of_other_threads_are_recorded() {
        let (pool, recorder) = (ThreadPool::new(2).unwrap(), Arc::new(Recorder::new(100)));
        let id = OperationId { subgraph: 0, index: 3 };
        let underway = Underway::begin(&recorder, Activity::Operation(id));
        let (other, caller) = (AtomicBool::new(false), std::thread::current().id());
        pool.team(2).on(Some(&underway)).for_each(64, &|_| {
            other.fetch_or(std::thread::current().id() != caller, Ordering::Relaxed);
            // Until there were two, so that one is the helper's.
            while !other.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
        drop(pool); // its threads have noted what they did
        let spans = recorder.take(100).spans;
        assert_eq!(spans.iter().map(|span| span.activity).collect::<Vec<_>>(), [Activity::Part(id)]);
        ThreadPool::new(2).unwrap().team(2).for_each(64, &|_| {});
        assert_eq!(recorder.take(100), Noted::default(), "who does not ask is not recorded");
    }
}
