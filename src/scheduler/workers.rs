//! Threads that do clients' work, one task each at a time. A client waits for no other client's tasks, which may take as long as
//! their client likes: each client has a thread for one task, started for it if need be. What it has beyond that begins
//! while few tasks are at work in all.
//!
//! How many tasks there are is for the caller to limit, and with them threads. Who of these computes is for `turns` to say.

use super::demand::{Load, Priority};
use super::starter::Starter;
use super::turns::AGING_NS;
use crate::sync::{thread, Condvar, Instant, Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// What a worker does.
pub type Task = Box<dyn FnOnce() + Send>;

/// Tasks, and the threads that do them.
pub struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    /// Threads that stay. While fewer than these are at work, a client's further tasks begin, too.
    threads: usize,
    state: Mutex<State>,
    /// Wakes threads that have no task.
    called: Condvar,
    /// Has tasks begun for which no thread could be had.
    starter: Starter,
    /// Whether no thread can be started.
    #[cfg(test)]
    refuses: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct State {
    /// Those that have tasks, by uid.
    clients: BTreeMap<u32, Client>,
    /// Tasks that begin, with their clients: never more than there are threads without one.
    due: VecDeque<(u32, Task)>,
    /// Threads without a task, or started for one.
    free: usize,
    load: Load,
    /// Whether a task waits for a thread that `starter` is to get.
    lacks_thread: bool,
    /// How many tasks have come.
    came: u64,
    is_stopped: bool,
}

#[derive(Default)]
struct Client {
    at_work: usize,
    /// In the order in which they begin.
    waiting: BTreeMap<Rank, Waiting>,
}

/// When a task would have come were it of high priority, and its number: so waiting raises a priority, and none starves.
type Rank = (Instant, u64);

struct Waiting {
    since: Instant,
    task: Task,
}

impl Workers {
    /// Starts `threads` threads, at least one. Where others cannot be had later, `starter` gets them.
    pub fn new(name: &'static str, threads: usize, starter: &Starter) -> std::io::Result<Self> {
        let threads = threads.max(1);
        let shared = Arc::new(Shared {
            name,
            threads,
            state: Mutex::default(),
            called: Condvar::new(),
            starter: starter.clone(),
            #[cfg(test)]
            refuses: Default::default(),
        });
        // Should one fail, those before it end with this.
        let workers = Workers { shared: shared.clone() };
        let mut state = shared.lock();
        (0..threads).try_for_each(|_| shared.start(&mut state))?;
        drop(state);
        Ok(workers)
    }

    /// How many tasks wait, and how many run.
    pub fn load(&self) -> Load {
        self.shared.lock().load
    }

    /// Puts a task in line for `client`. It is dropped undone if the workers stop first.
    pub fn submit(&self, client: u32, priority: Priority, task: Task) {
        let mut state = self.shared.lock();
        state.line_up(client, priority, task);
        self.shared.begin(&mut state);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_stopped = true;
        state.load.waiting = 0;
        let dropped = std::mem::take(&mut state.clients);
        self.shared.called.notify_all();
        drop(state);
        drop(dropped); // a task's end may do anything: not under the lock
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread, which waits for its first task.
    fn start(self: &Arc<Self>, state: &mut State) -> std::io::Result<()> {
        #[cfg(test)]
        if self.refuses.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let shared = self.clone();
        thread::Builder::new().name(self.name.into()).spawn(move || shared.work())?;
        state.free += 1;
        Ok(())
    }

    /// Has all tasks begun that may. Where no thread can be had, they stay in line until one can, or one of them ends another.
    fn begin(self: &Arc<Self>, state: &mut State) {
        let Err(why) = self.try_to_begin(state) else { return };
        if std::mem::replace(&mut state.lacks_thread, true) {
            return;
        }
        log::warn!("a task waits, as no thread can be started for it: {why}");
        let shared = Arc::downgrade(self);
        self.starter.until(move || shared.upgrade().is_none_or(|shared| shared.begin_late()));
    }

    /// The same again. Whether no task waits for a thread any more.
    fn begin_late(self: &Arc<Self>) -> bool {
        let mut state = self.lock();
        state.lacks_thread = self.try_to_begin(&mut state).is_err();
        !state.lacks_thread
    }

    /// Has tasks begun as long as there are threads for them.
    fn try_to_begin(self: &Arc<Self>, state: &mut State) -> std::io::Result<()> {
        while let Some(client) = state.next(self.threads) {
            if state.due.len() == state.free {
                self.start(state)?;
            }
            state.make_due(client);
            self.called.notify_one();
        }
        Ok(())
    }

    /// Works until the workers stop, or there are threads enough without this one.
    fn work(self: Arc<Self>) {
        let mut state = self.lock();
        loop {
            if let Some((client, task)) = state.due.pop_front() {
                state.free -= 1;
                drop(state);
                if catch_unwind(AssertUnwindSafe(task)).is_err() {
                    log::error!("a task panicked; this is a fault of the driver");
                }
                state = self.lock();
                state.free += 1;
                state.end(client);
                self.begin(&mut state);
            } else if state.is_stopped || state.free > self.threads {
                state.free -= 1;
                return;
            } else {
                state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl State {
    fn line_up(&mut self, client: u32, priority: Priority, task: Task) {
        let (since, levels) = (Instant::now(), Priority::High as u64 - priority as u64);
        let rank = (since + Duration::from_nanos(levels * AGING_NS as u64), self.came);
        self.came += 1;
        self.load.waiting += 1;
        self.clients.entry(client).or_default().waiting.insert(rank, Waiting { since, task });
    }

    /// The client whose task is to begin: of those with the fewest at work, the one that has waited longest.
    fn next(&self, threads: usize) -> Option<u32> {
        let firsts = self.clients.iter().filter_map(|(&id, client)| {
            let (_, first) = client.waiting.first_key_value()?;
            Some((client.at_work, first.since, id))
        });
        let (at_work, _, id) = firsts.min()?;
        (at_work == 0 || self.load.running < threads).then_some(id)
    }

    /// Takes the next task of `id` out of the line, for a thread that is without one.
    fn make_due(&mut self, id: u32) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some((_, first)) = client.waiting.pop_first() else { return };
        client.at_work += 1;
        self.load.waiting -= 1;
        self.load.running += 1;
        self.due.push_back((id, first.task));
    }

    /// One of the tasks of `id` has ended.
    fn end(&mut self, id: u32) {
        self.load.running -= 1;
        // Stopped workers have forgotten their clients.
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.at_work -= 1;
        if client.at_work == 0 && client.waiting.is_empty() {
            self.clients.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::starter::RETRY;
    use super::*;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::{channel, Receiver, Sender};

    const PATIENCE: Duration = Duration::from_secs(10);

    fn workers(threads: usize) -> Workers {
        Workers::new("test", threads, &Starter::new().unwrap()).unwrap()
    }

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

    fn saying(said: &Sender<&'static str>, name: &'static str) -> Task {
        let said = said.clone();
        Box::new(move || said.send(name).unwrap())
    }

    /// Waits until no threads are kept but those that stay, and no client is remembered.
    fn wait_until_idle(workers: &Workers) {
        let start = Instant::now();
        let is_idle = |state: &State| state.free == workers.shared.threads && state.clients.is_empty();
        while !is_idle(&workers.shared.lock()) {
            assert!(start.elapsed() < PATIENCE, "it does not come to that");
            std::thread::yield_now();
        }
        assert_eq!(workers.load(), Load::default());
    }

    #[test]
    fn nobody_waits_for_others_tasks_and_each_client_for_its_own_while_there_are_many() {
        let workers = workers(2);
        let (said, heard) = channel();
        let hears = |name| assert_eq!(heard.recv_timeout(PATIENCE), Ok(name));
        let submit = |client, name| {
            let (hold, task) = held(&said, name);
            workers.submit(client, Priority::Low, task);
            hold
        };
        let first = submit(1, "1 first");
        hears("1 first");
        let second = submit(1, "1 second");
        hears("1 second");
        // As many as there are threads for: what else the client has waits, and others begin all the same.
        let third = submit(1, "1 third");
        let other = submit(2, "2 first");
        hears("2 first");
        let last = submit(3, "3 first");
        hears("3 first");
        let others_second = submit(2, "2 second");
        assert_eq!(workers.load(), Load { waiting: 2, running: 4 });
        assert!(heard.try_recv().is_err(), "too many are at work for a client's second");
        // Each client's next begins once it has none, however many others have.
        drop(other);
        hears("2 second");
        drop((last, others_second));
        while workers.load().running > 2 {
            std::thread::yield_now();
        }
        assert!(heard.try_recv().is_err(), "too many are at work for a client's third");
        drop(second);
        hears("1 third");
        drop((first, third));
        wait_until_idle(&workers);
    }

    #[test]
    fn who_has_the_fewest_at_work_is_next_and_priorities_count_within_a_client() {
        let workers = workers(3);
        let (said, heard) = channel();
        let hears = |name| assert_eq!(heard.recv_timeout(PATIENCE), Ok(name));
        let mut holds: VecDeque<_> = [(1, "1"), (1, "1 again"), (2, "2")]
            .into_iter()
            .map(|(client, name)| {
                let (hold, task) = held(&said, name);
                workers.submit(client, Priority::Medium, task);
                hears(name);
                hold
            })
            .collect();
        workers.submit(1, Priority::High, saying(&said, "1 high"));
        workers.submit(2, Priority::Low, saying(&said, "2 low"));
        workers.submit(2, Priority::High, saying(&said, "2 high"));
        workers.submit(2, Priority::Medium, saying(&said, "2 medium"));
        // Once one of the first client's has ended, both have as many at work: the first has waited longer.
        drop(holds.pop_front());
        for name in ["1 high", "2 high", "2 medium", "2 low"] {
            hears(name);
        }
        drop(holds);
        wait_until_idle(&workers);
    }

    #[test]
    fn waiting_raises_a_priority() {
        let mut state = State::default();
        for priority in [Priority::Low, Priority::High, Priority::Medium] {
            state.line_up(1, priority, Box::new(|| ()));
        }
        let ranks: Vec<_> =
            state.clients[&1].waiting.iter().map(|(rank, first)| (rank.0 - first.since, rank.1)).collect();
        let level = Duration::from_nanos(AGING_NS as u64);
        assert_eq!(ranks, [(Duration::ZERO, 1), (level, 2), (2 * level, 0)]);
    }

    #[test]
    fn a_task_without_a_thread_begins_once_another_ends_or_one_can_be_had() {
        let workers = workers(1);
        let refuse = |refuses| workers.shared.refuses.store(refuses, Ordering::SeqCst);
        let (said, heard) = channel();
        let hears = |name| assert_eq!(heard.recv_timeout(PATIENCE), Ok(name));
        refuse(true);
        let (hold, task) = held(&said, "held");
        workers.submit(1, Priority::Medium, task);
        hears("held");
        for name in ["first", "second"] {
            workers.submit(2, Priority::Medium, saying(&said, name));
        }
        assert!(heard.recv_timeout(2 * RETRY).is_err(), "there is no thread for it");
        assert_eq!(workers.load(), Load { waiting: 2, running: 1 });
        drop(hold);
        hears("first");
        hears("second");
        wait_until_idle(&workers);
        let (hold, task) = held(&said, "held again");
        workers.submit(1, Priority::Medium, task);
        hears("held again");
        for (client, name) in [(2, "third"), (3, "fourth")] {
            workers.submit(client, Priority::Medium, saying(&said, name));
        }
        assert!(heard.recv_timeout(2 * RETRY).is_err(), "there is no thread for it");
        // Nothing else happens: nothing ends, and nothing comes.
        refuse(false);
        let mut names = [(); 2].map(|()| heard.recv_timeout(PATIENCE).unwrap());
        names.sort();
        assert_eq!(names, ["fourth", "third"]);
        drop(hold);
        wait_until_idle(&workers);
        assert!(!workers.shared.lock().lacks_thread);
    }

    #[test]
    fn a_panic_ends_no_worker_and_a_stop_drops_what_waits() {
        let workers = workers(1);
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
