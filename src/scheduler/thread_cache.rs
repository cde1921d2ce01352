//! Threads for short tasks that may have to wait for a client: each has one to itself, so that none waits for another.
//! A thread is kept for the next task for a moment, as to start one costs more than most of them do.
//!
//! How many tasks there are at once is for the caller to limit.

use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

type Task = Box<dyn FnOnce() + Send>;

pub struct ThreadCache {
    name: &'static str,
    /// How long a thread waits for its next task.
    kept: Duration,
    /// Threads without a task, the one that waits since last at the end.
    idle: Mutex<Idle>,
    /// Whether no thread can be started.
    #[cfg(test)]
    refuses: std::sync::atomic::AtomicBool,
}

/// A thread that waits for its holder's task. Dropped without a task, the thread waits for others' tasks again.
pub struct Reserved {
    thread: Option<Sender<Task>>,
}

impl Reserved {
    /// Runs `task` on the thread.
    pub fn run(mut self, task: impl FnOnce() + Send + 'static) {
        self.give(Box::new(task));
    }

    fn give(&mut self, task: Task) {
        // The thread holds the receiver until it has had a task: it cannot be gone.
        self.thread.take().map(|thread| thread.send(task));
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.give(Box::new(|| {}));
    }
}

struct Idle {
    threads: Vec<(u64, Sender<Task>)>,
    last_key: u64,
}

impl ThreadCache {
    pub fn new(name: &'static str, kept: Duration) -> Self {
        ThreadCache {
            name,
            kept,
            idle: Mutex::new(Idle { threads: Vec::new(), last_key: 0 }),
            #[cfg(test)]
            refuses: Default::default(),
        }
    }

    /// Has no thread started from now on, as if the process could have no more, or has them started again.
    #[cfg(test)]
    pub fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, std::sync::atomic::Ordering::SeqCst);
    }

    /// Sets a thread aside for one task, which can then not fail for want of a thread.
    pub fn reserve(self: &Arc<Self>) -> std::io::Result<Reserved> {
        let idle = self.lock().threads.pop();
        let thread = match idle {
            Some((_, thread)) => thread,
            None => self.start()?,
        };
        Ok(Reserved { thread: Some(thread) })
    }

    /// Runs `task` on a thread of its own.
    pub fn run(self: &Arc<Self>, task: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        self.reserve()?.run(task);
        Ok(())
    }

    /// Starts a thread that waits for its first task. It keeps the cache from nothing: an idle one ends with it.
    fn start(self: &Arc<Self>) -> std::io::Result<Sender<Task>> {
        #[cfg(test)]
        if self.refuses.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let (sender, tasks) = channel::<Task>();
        let cache = Arc::downgrade(self);
        let work = move || {
            let mut next = tasks.recv().ok();
            while let Some(task) = next {
                task();
                next = Self::next(&cache);
            }
        };
        std::thread::Builder::new().name(self.name.into()).spawn(work)?;
        Ok(sender)
    }

    /// The next task of the calling thread; `None` if there is none for long, or the cache is gone.
    fn next(cache: &Weak<Self>) -> Option<Task> {
        let (sender, tasks) = channel();
        let (key, kept) = {
            let cache = cache.upgrade()?;
            let mut idle = cache.lock();
            idle.last_key += 1;
            let key = idle.last_key;
            idle.threads.push((key, sender));
            (key, cache.kept)
        };
        match tasks.recv_timeout(kept) {
            Ok(task) => Some(task),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) if cache.upgrade()?.withdraw(key) => None,
            // Somebody took it from the list just now: the task is on its way.
            Err(RecvTimeoutError::Timeout) => tasks.recv().ok(),
        }
    }

    /// Takes a thread from the idle ones. Whether it was there.
    fn withdraw(&self, key: u64) -> bool {
        let mut idle = self.lock();
        let place = idle.threads.iter().position(|&(other, _)| other == key);
        place.map(|place| idle.threads.remove(place)).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{self, ThreadId};
    use std::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(20);
    const FOR_GOOD: Duration = Duration::from_secs(1 << 20);

    /// Runs a task and gives the thread that it ran on.
    fn thread_of_a_task(spare: &Arc<ThreadCache>) -> ThreadId {
        let (told, heard) = channel();
        spare.run(move || told.send(thread::current().id()).unwrap()).unwrap();
        heard.recv_timeout(PATIENCE).unwrap()
    }

    fn wait_until(spare: &ThreadCache, state: impl Fn(&Idle) -> bool) {
        let start = Instant::now();
        while !state(&spare.lock()) {
            assert!(start.elapsed() < PATIENCE, "it does not come to that");
            thread::yield_now();
        }
    }

    #[test]
    fn idle_threads_end_with_the_cache() {
        struct Ending(std::sync::mpsc::Sender<()>);
        impl Drop for Ending {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        thread_local! {
            static ENDING: std::cell::RefCell<Option<Ending>> = const { std::cell::RefCell::new(None) };
        }
        let spare = Arc::new(ThreadCache::new("test", FOR_GOOD));
        let (told, heard) = channel();
        spare.run(move || ENDING.set(Some(Ending(told)))).unwrap();
        wait_until(&spare, |idle| idle.threads.len() == 1);
        assert!(heard.try_recv().is_err(), "it waits for a task");
        drop(spare);
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(()));
    }

    #[test]
    fn a_reserved_thread_is_nobody_elses_and_comes_back_unused() {
        let spare = Arc::new(ThreadCache::new("test", FOR_GOOD));
        let first = thread_of_a_task(&spare);
        wait_until(&spare, |idle| idle.threads.len() == 1);
        let reserved = spare.reserve().unwrap();
        let second = thread_of_a_task(&spare);
        assert_ne!(second, first);
        let (told, heard) = channel();
        reserved.run(move || told.send(thread::current().id()).unwrap());
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(first));
        wait_until(&spare, |idle| idle.threads.len() == 2);
        let unused = [spare.reserve().unwrap(), spare.reserve().unwrap(), spare.reserve().unwrap()];
        assert!(spare.lock().threads.is_empty());
        drop(unused);
        wait_until(&spare, |idle| idle.threads.len() == 3);
    }

    #[test]
    fn a_thread_takes_the_next_task() {
        let spare = Arc::new(ThreadCache::new("test", FOR_GOOD));
        let first = thread_of_a_task(&spare);
        for _ in 0..3 {
            wait_until(&spare, |idle| idle.threads.len() == 1);
            assert_eq!(thread_of_a_task(&spare), first);
        }
    }

    #[test]
    fn no_task_waits_for_another() {
        let spare = Arc::new(ThreadCache::new("test", FOR_GOOD));
        let (let_go, held) = channel::<()>();
        let (told, heard) = channel();
        let task = move || {
            held.recv().unwrap();
            told.send(()).unwrap();
        };
        spare.run(task).unwrap();
        thread_of_a_task(&spare);
        assert!(heard.try_recv().is_err(), "the first is at its task still");
        let_go.send(()).unwrap();
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(()));
    }

    #[test]
    fn a_thread_is_not_kept_for_good() {
        let spare = Arc::new(ThreadCache::new("test", Duration::from_millis(1)));
        for turn in 1..4 {
            thread_of_a_task(&spare);
            wait_until(&spare, |idle| idle.last_key >= turn && idle.threads.is_empty());
        }
    }
}
