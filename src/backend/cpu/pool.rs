//! The threads that compute. Work is handed out in chunks, so that a late worker never holds up the caller, who works
//! along and returns when all chunks are done.

use std::collections::VecDeque;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A pool of threads, shared by all executions.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<std::thread::JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Arc<Job>>,
    stop: bool,
}

/// A call of [`ThreadPool::for_each`] under way.
struct Job {
    /// The caller's closure, valid until `done` reaches `count`: the caller waits for that.
    work: *const (dyn Fn(usize) + Sync),
    count: usize,
    next: AtomicUsize,
    done: AtomicUsize,
    panicked: AtomicBool,
    finished: Mutex<bool>,
    all_done: Condvar,
}

// SAFETY: `work` points to a closure that is Sync; it is called only for indices below `count`, all of which are counted
// in `done` before the caller, who owns the closure, returns.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

impl Job {
    /// Works on chunks until none is left to take.
    fn help(&self) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.count {
                return;
            }
            // SAFETY: `index` is not counted as done yet, so the caller still waits and the closure lives.
            let work = unsafe { &*self.work };
            if catch_unwind(AssertUnwindSafe(|| work(index))).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            if self.done.fetch_add(1, Ordering::AcqRel) + 1 == self.count {
                *self.finished.lock().unwrap_or_else(PoisonError::into_inner) = true;
                self.all_done.notify_all();
            }
        }
    }
}

impl ThreadPool {
    /// A pool that computes on `threads` threads, of which the caller of [`for_each`](Self::for_each) is one.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { queue: Mutex::default(), wake: Condvar::new() });
        let mut pool = ThreadPool { shared, workers: Vec::new() };
        for i in 1..threads.max(1) {
            let shared = pool.shared.clone();
            let worker = std::thread::Builder::new().name(format!("nnhal-cpu-{i}"));
            pool.workers.push(worker.spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    /// How many threads work on a call.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` once for each index below `count`, on all threads, and returns when all calls have returned.
    pub fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        if count <= 1 || self.workers.is_empty() {
            (0..count).for_each(work);
            return;
        }
        // SAFETY: only the lifetime is erased; this function does not return before the last call of `work` has.
        let work: *const (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        let job = Arc::new(Job {
            work,
            count,
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            finished: Mutex::new(false),
            all_done: Condvar::new(),
        });
        self.shared.lock().jobs.push_back(job.clone());
        self.shared.wake.notify_all();
        job.help();
        let mut finished = job.finished.lock().unwrap_or_else(PoisonError::into_inner);
        while !*finished {
            finished = job.all_done.wait(finished).unwrap_or_else(PoisonError::into_inner);
        }
        self.shared.lock().jobs.retain(|other| !Arc::ptr_eq(other, &job));
        assert!(!job.panicked.load(Ordering::Relaxed), "a kernel panicked on a worker thread");
    }
}

impl ThreadPool {
    /// Calls `work(first index, chunk)` for each chunk of `chunk` elements of `data`, on all threads.
    pub fn for_each_chunk<T: Send>(
        &self,
        data: &mut [T],
        chunk: usize,
        work: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        let (len, chunk) = (data.len(), chunk.max(1));
        let base = Base(data.as_mut_ptr());
        self.for_each(len.div_ceil(chunk), &|i| {
            let start = i * chunk;
            // SAFETY: each index is handed out once and chunks do not overlap, so this is the only reference to these
            // elements of `data`, which this function borrows until all calls have returned.
            let part =
                unsafe { std::slice::from_raw_parts_mut(base.start().add(start), chunk.min(len - start)) };
            work(start, part);
        });
    }
}

/// Start of a slice that is worked on in disjoint chunks.
struct Base<T>(*mut T);

impl<T> Base<T> {
    fn start(&self) -> *mut T {
        self.0
    }
}

// SAFETY: it is only used to make references to disjoint parts, of elements that may move between threads.
unsafe impl<T: Send> Sync for Base<T> {}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let job = {
                let mut queue = self.lock();
                loop {
                    if queue.stop {
                        return;
                    }
                    let open = |job: &&Arc<Job>| job.next.load(Ordering::Relaxed) < job.count;
                    if let Some(job) = queue.jobs.iter().find(open) {
                        break job.clone();
                    }
                    queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            };
            job.help();
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
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

    #[test]
    fn calls_every_index_once_from_many_callers() {
        let pool = ThreadPool::new(3).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for count in [0, 1, 2, 7, 100] {
                        let calls: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                        pool.for_each(count, &|i| {
                            calls[i].fetch_add(1, Ordering::Relaxed);
                        });
                        assert!(calls.iter().all(|c| c.load(Ordering::Relaxed) == 1));
                    }
                });
            }
        });
    }

    #[test]
    fn chunks_cover_the_slice() {
        let pool = ThreadPool::new(2).unwrap();
        let mut data = [0usize; 23];
        pool.for_each_chunk(&mut data, 5, &|first, part| {
            part.iter_mut().enumerate().for_each(|(i, x)| *x += first + i)
        });
        assert!(data.iter().enumerate().all(|(i, &x)| i == x));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives() {
        let pool = ThreadPool::new(2).unwrap();
        let panics = || pool.for_each(8, &|i| assert!(i != 5));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        pool.for_each(8, &|_| {});
    }
}
