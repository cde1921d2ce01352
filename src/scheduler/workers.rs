//! Threads that do clients' work, one task each at a time, by the turns that clients have.

use super::demand::{Load, Priority};
use super::turns::{Turn, Turns};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

/// What a worker does. It must not wait for a client.
pub type Task = Box<dyn FnOnce() + Send>;

/// A few threads, and the tasks that wait for them. How many may wait is for the caller to limit.
pub struct Workers {
    turns: Arc<Turns>,
    /// For tasks whose turn it is: no more than there are threads.
    due: Sender<(Turn, Task)>,
}

impl Workers {
    /// Starts `threads` threads, at least two, as one is kept from any single client.
    pub fn new(name: &str, threads: usize) -> std::io::Result<Self> {
        let threads = threads.max(2);
        let (due, tasks) = channel();
        let tasks = Arc::new(Mutex::new(tasks));
        for i in 0..threads {
            let tasks = tasks.clone();
            std::thread::Builder::new().name(format!("{name}-{i}")).spawn(move || work(&tasks))?;
        }
        Ok(Workers { turns: Turns::with_limit(threads, threads - 1), due })
    }

    /// How many tasks wait, and how many run.
    pub fn load(&self) -> Load {
        self.turns.load()
    }

    /// Puts a task in line for `client`. It is dropped undone if the workers stop first.
    pub fn submit(&self, client: u32, priority: Priority, task: Task) {
        let due = self.due.clone();
        let start = move |turn| due.send((turn, task)).map_err(|undone| undone.0 .0);
        self.turns.when_due(client, priority, Box::new(start));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // With them go the last senders, but for those of tasks that are due.
        self.turns.clear();
    }
}

/// Works until the workers stop.
fn work(tasks: &Mutex<Receiver<(Turn, Task)>>) {
    let next = || tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok((turn, task)) = next() {
        if catch_unwind(AssertUnwindSafe(task)).is_err() {
            log::error!("a task panicked; this is a fault of the driver");
        }
        drop(turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// A task that says its name and ends when the sender is dropped.
    fn held(said: &Sender<&'static str>, name: &'static str) -> (Sender<()>, Task) {
        let (sender, receiver): (Sender<()>, Receiver<()>) = channel();
        let said = said.clone();
        let task = move || {
            said.send(name).unwrap();
            let _ = receiver.recv();
        };
        (sender, Box::new(task))
    }

    #[test]
    fn clients_take_turns_and_priorities_count_within_one() {
        let workers = Workers::new("test", 2).unwrap();
        let (said, heard) = channel();
        let (first, task) = held(&said, "first");
        workers.submit(1, Priority::Low, task);
        assert_eq!(heard.recv_timeout(PATIENCE), Ok("first"));
        // The first client has one thread, the most that it may have; the other serves client 2, then 3.
        let (second, task) = held(&said, "second");
        workers.submit(2, Priority::Low, task);
        assert_eq!(heard.recv_timeout(PATIENCE), Ok("second"));
        let say = |name: &'static str| -> Task {
            let said = said.clone();
            Box::new(move || said.send(name).unwrap())
        };
        workers.submit(1, Priority::High, say("1 high"));
        workers.submit(3, Priority::Low, say("3 low"));
        workers.submit(3, Priority::Medium, say("3 medium"));
        workers.submit(3, Priority::High, say("3 high"));
        drop(second);
        for name in ["3 high", "3 medium", "3 low"] {
            assert_eq!(heard.recv_timeout(PATIENCE), Ok(name));
        }
        assert!(heard.try_recv().is_err(), "client 1 is at its limit");
        drop(first);
        assert_eq!(heard.recv_timeout(PATIENCE), Ok("1 high"));
    }

    #[test]
    fn a_panic_ends_no_worker_and_a_stop_drops_what_waits() {
        let workers = Workers::new("test", 2).unwrap();
        let (said, heard) = channel();
        for _ in 0..4 {
            workers.submit(1, Priority::Medium, Box::new(|| panic!("as the test wants it")));
        }
        let (hold, task) = held(&said, "held");
        workers.submit(1, Priority::Medium, task);
        assert_eq!(heard.recv_timeout(PATIENCE), Ok("held"));
        let waiting = said.clone();
        workers.submit(1, Priority::Medium, Box::new(move || waiting.send("never").unwrap()));
        drop(workers);
        drop((hold, said));
        assert!(heard.recv_timeout(PATIENCE).is_err(), "dropped undone");
    }
}
