//! Threads that do clients' work, fairly: clients in turn, each client's tasks by priority, and never all threads for
//! one client.

use super::control::{Load, Priority};
use std::collections::{HashMap, VecDeque};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Waiting for this long raises a task by one level of priority, so that none starves.
const AGING: Duration = Duration::from_secs(1);

/// How urgent work of this priority is that has waited for so long: the greater the sooner.
pub(super) fn urgency(priority: Priority, waited: Duration) -> (u128, Duration) {
    (priority as u128 + waited.as_nanos() / AGING.as_nanos(), waited)
}

pub(super) const PRIORITIES: [Priority; 3] = [Priority::Low, Priority::Medium, Priority::High];

/// What a worker does. It must not wait for a client.
pub type Task = Box<dyn FnOnce() + Send>;

/// A few threads, and the tasks that wait for them. How many may wait is for the caller to limit.
pub struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Tasks of one client that may run at the same time.
    most_running: usize,
}

#[derive(Default)]
struct Queue {
    clients: HashMap<u32, Client>,
    /// Counts the tasks that were started.
    turn: u64,
    stop: bool,
}

#[derive(Default)]
struct Client {
    /// By priority; the oldest first.
    waiting: [VecDeque<(Instant, Task)>; PRIORITIES.len()],
    running: usize,
    /// When it last had its turn.
    served: u64,
}

impl Client {
    fn is_waiting(&self) -> bool {
        self.waiting.iter().any(|tasks| !tasks.is_empty())
    }

    /// Takes the task that is next: the most urgent, after what waiting added to its priority.
    fn take(&mut self, now: Instant) -> Option<Task> {
        let first = |(level, tasks): (usize, &VecDeque<(Instant, Task)>)| {
            let (since, _) = tasks.front()?;
            Some((urgency(PRIORITIES[level], now.saturating_duration_since(*since)), level))
        };
        let (_, level) = self.waiting.iter().enumerate().filter_map(first).max()?;
        self.waiting[level].pop_front().map(|(_, task)| task)
    }
}

impl Queue {
    /// Takes the next task of the client whose turn it is.
    fn take(&mut self, most_running: usize) -> Option<(u32, Task)> {
        let may_run =
            |(_, client): &(&u32, &mut Client)| client.running < most_running && client.is_waiting();
        let order = |(_, client): &(&u32, &mut Client)| (client.running, client.served);
        let (&id, client) = self.clients.iter_mut().filter(may_run).min_by_key(order)?;
        let task = client.take(Instant::now())?;
        self.turn += 1;
        (client.running, client.served) = (client.running + 1, self.turn);
        Some((id, task))
    }
}

impl Workers {
    /// Starts `threads` threads, at least two, as one is kept from any single client.
    pub fn new(name: &str, threads: usize) -> std::io::Result<Self> {
        let threads = threads.max(2);
        let shared =
            Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new(), most_running: threads - 1 });
        let workers = Workers { shared };
        for i in 0..threads {
            let shared = workers.shared.clone();
            std::thread::Builder::new().name(format!("{name}-{i}")).spawn(move || shared.work())?;
        }
        Ok(workers)
    }

    /// How many tasks wait, and how many run.
    pub fn load(&self) -> Load {
        let queue = self.shared.lock();
        let (mut waiting, mut running) = (0, 0);
        for client in queue.clients.values() {
            waiting += client.waiting.iter().map(VecDeque::len).sum::<usize>();
            running += client.running;
        }
        Load { waiting, running }
    }

    /// Puts a task in line for `client`. It is dropped undone if the workers stop first.
    pub fn submit(&self, client: u32, priority: Priority, task: Task) {
        let mut queue = self.shared.lock();
        queue.clients.entry(client).or_default().waiting[priority as usize].push_back((Instant::now(), task));
        drop(queue);
        self.shared.changed.notify_one();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.stop = true;
        let undone = std::mem::take(&mut queue.clients);
        drop(queue);
        drop(undone); // a task's end may do anything: not under the lock
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until the workers stop.
    fn work(&self) {
        while let Some((client, task)) = self.next() {
            if catch_unwind(AssertUnwindSafe(task)).is_err() {
                log::error!("a task panicked; this is a fault of the driver");
            }
            let mut queue = self.lock();
            if let Some(done) = queue.clients.get_mut(&client) {
                done.running = done.running.saturating_sub(1);
                if done.running == 0 && !done.is_waiting() {
                    queue.clients.remove(&client);
                }
            }
            drop(queue);
            // The client may have been at its limit, with tasks that other workers passed over.
            self.changed.notify_one();
        }
    }

    /// Waits for a task that may run; `None` when the workers stop.
    fn next(&self) -> Option<(u32, Task)> {
        let mut queue = self.lock();
        while !queue.stop {
            if let Some(next) = queue.take(self.most_running) {
                return Some(next);
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{channel, Receiver, Sender};

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
    fn waiting_raises_priority() {
        let now = Instant::now();
        let mut client = Client::default();
        let (said, heard) = channel();
        for (level, name, age) in [(0, "old low", 3), (2, "new high", 0), (1, "medium", 1)] {
            let said = said.clone();
            let task: Task = Box::new(move || said.send(name).unwrap());
            client.waiting[level].push_back((now - AGING * age, task));
        }
        while let Some(task) = client.take(now) {
            task();
        }
        drop(said);
        assert_eq!(heard.iter().collect::<Vec<_>>(), ["old low", "medium", "new high"]);
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
