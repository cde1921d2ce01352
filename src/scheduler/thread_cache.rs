//! Threads for short tasks that may have to wait for a client: each has one to itself, so that none waits for another.
//! A thread is kept for the next task for a moment, as to start one costs more than most of them do.
//!
//! How many tasks there are at once is for the caller to limit.

use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Task = Box<dyn FnOnce() + Send>;

pub struct ThreadCache {
    name: &'static str,
    /// How long a thread waits for its next task.
    kept: Duration,
    /// Threads without a task, the one that waits since last at the end.
    idle: Mutex<Idle>,
}

struct Idle {
    threads: Vec<(u64, Sender<Task>)>,
    last_key: u64,
}

impl ThreadCache {
    pub const fn new(name: &'static str, kept: Duration) -> Self {
        ThreadCache { name, kept, idle: Mutex::new(Idle { threads: Vec::new(), last_key: 0 }) }
    }

    /// Has a thread started for a task that is about to come, if none is idle.
    pub fn expect_one(&'static self) {
        if self.lock().threads.is_empty() {
            // Without it, the task starts one itself.
            let _ = self.run(|| {});
        }
    }

    /// Runs `task` on a thread of its own.
    pub fn run(&'static self, task: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let task: Task = Box::new(task);
        let kept = self.lock().threads.pop();
        let task = match kept {
            Some((_, thread)) => match thread.send(task) {
                Ok(()) => return Ok(()),
                // It cannot be gone, as it stood among the idle. Were it, the task came back.
                Err(unsent) => unsent.0,
            },
            None => task,
        };
        let work = move || {
            let (sender, tasks) = channel();
            let mut next = Some(task);
            while let Some(task) = next {
                task();
                next = self.next(&sender, &tasks);
            }
        };
        std::thread::Builder::new().name(self.name.into()).spawn(work).map(drop)
    }

    /// The next task of the calling thread, which `sender` leads to; `None` if there is none for long.
    fn next(&self, sender: &Sender<Task>, tasks: &Receiver<Task>) -> Option<Task> {
        let mut idle = self.lock();
        idle.last_key += 1;
        let key = idle.last_key;
        idle.threads.push((key, sender.clone()));
        drop(idle);
        match tasks.recv_timeout(self.kept) {
            Ok(task) => Some(task),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                let mut idle = self.lock();
                let place = idle.threads.iter().position(|(other, _)| *other == key);
                place.map(|place| idle.threads.remove(place));
                drop(idle);
                match place {
                    Some(_) => None,
                    // Somebody took it from the list just now: the task is on its way.
                    None => tasks.recv().ok(),
                }
            }
        }
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
    fn thread_of_a_task(spare: &'static ThreadCache) -> ThreadId {
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
    fn a_thread_that_is_expected_takes_the_task() {
        static SPARE: ThreadCache = ThreadCache::new("test", FOR_GOOD);
        SPARE.expect_one();
        wait_until(&SPARE, |idle| idle.threads.len() == 1);
        SPARE.expect_one();
        thread_of_a_task(&SPARE);
        wait_until(&SPARE, |idle| idle.threads.len() == 1);
        assert_eq!(SPARE.lock().last_key, 2, "one thread was enough");
    }

    #[test]
    fn a_thread_takes_the_next_task() {
        static SPARE: ThreadCache = ThreadCache::new("test", FOR_GOOD);
        let first = thread_of_a_task(&SPARE);
        for _ in 0..3 {
            wait_until(&SPARE, |idle| idle.threads.len() == 1);
            assert_eq!(thread_of_a_task(&SPARE), first);
        }
    }

    #[test]
    fn no_task_waits_for_another() {
        static SPARE: ThreadCache = ThreadCache::new("test", FOR_GOOD);
        let (let_go, held) = channel::<()>();
        let (told, heard) = channel();
        let task = move || {
            held.recv().unwrap();
            told.send(()).unwrap();
        };
        SPARE.run(task).unwrap();
        thread_of_a_task(&SPARE);
        assert!(heard.try_recv().is_err(), "the first is at its task still");
        let_go.send(()).unwrap();
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(()));
    }

    #[test]
    fn a_thread_is_not_kept_for_good() {
        static SPARE: ThreadCache = ThreadCache::new("test", Duration::from_millis(1));
        for turn in 1..4 {
            thread_of_a_task(&SPARE);
            wait_until(&SPARE, |idle| idle.last_key >= turn && idle.threads.is_empty());
        }
    }
}
