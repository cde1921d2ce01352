//! What is done for clients on no thread that others need, because it may take as long as a client likes: to close what it
//! gave, above all. The last close of a file is the file's to carry out: a socket may linger for hours, and what lies unread in
//! one is closed with it. Each client has one thread at a time, which does one thing after the other. Where none can be had for it,
//! its errands wait until one can: who asked for them must not wait for a client, nor may they be lost.
//!
//! How much waits for a client is for the caller to limit: permits are to go with what they count.

use super::starter::Starter;
use super::thread_cache::ThreadCache;
use super::time_slices;
use crate::sync::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How long a thread is kept for the next errand.
const KEPT: Duration = Duration::from_secs(1);

type Errand = Box<dyn FnOnce() + Send>;

pub struct Errands {
    /// Of clients who have a thread at work, or are to get one.
    waiting: Mutex<HashMap<u32, VecDeque<Errand>>>,
    threads: Arc<ThreadCache>,
    /// Gets threads for clients for whom none could be had.
    starter: Starter,
}

impl Errands {
    /// On threads of that name.
    pub fn new(name: &'static str, starter: &Starter) -> Arc<Self> {
        let threads = Arc::new(ThreadCache::new(name, KEPT));
        Arc::new(Errands { waiting: Mutex::default(), threads, starter: starter.clone() })
    }

    /// Has `errand` run once all that came before of `client` are done.
    pub fn run(self: &Arc<Self>, client: u32, errand: impl FnOnce() + Send + 'static) {
        let mut waiting = self.lock();
        let is_at_work = waiting.contains_key(&client);
        waiting.entry(client).or_default().push_back(Box::new(errand));
        drop(waiting);
        if is_at_work {
            return;
        }
        if let Err(why) = self.start(client) {
            log::warn!("a client's errands wait for a thread, as none can be started: {why}");
            // The errands are kept with it: they must not be dropped undone.
            let errands = self.clone();
            self.starter.until(move || errands.start(client).is_ok());
        }
    }

    /// Has a thread work for a client.
    fn start(self: &Arc<Self>, client: u32) -> std::io::Result<()> {
        let errands = self.clone();
        self.threads.run(move || errands.work_for(client))
    }

    fn work_for(&self, client: u32) {
        // A last close may keep the kernel busy for long. Who wakes meanwhile waits for its next tick, unless he comes before a thread
        // with long slices.
        let _long = time_slices::long();
        while let Some(errand) = self.next(client) {
            if catch_unwind(AssertUnwindSafe(errand)).is_err() {
                log::error!("an errand panicked; this is a fault of the driver");
            }
        }
    }

    /// The next errand of a client; without one it has no thread any more.
    fn next(&self, client: u32) -> Option<Errand> {
        let mut waiting = self.lock();
        let next = waiting.get_mut(&client)?.pop_front();
        if next.is_none() {
            waiting.remove(&client);
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, VecDeque<Errand>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::starter::RETRY;
    use super::*;
    use std::sync::mpsc::channel;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn a_client_waits_for_its_own_errands_only_and_they_are_done_in_order() {
        let errands = Errands::new("test", &Starter::new().unwrap());
        let ((let_go, held), (told, heard)) = (channel::<()>(), channel());
        errands.run(1, move || held.recv().unwrap());
        for i in 0..3 {
            let told = told.clone();
            errands.run(1, move || told.send((1, i)).unwrap());
        }
        errands.run(2, || panic!("as the test wants it"));
        errands.run(2, move || told.send((2, 0)).unwrap());
        assert_eq!(heard.recv_timeout(PATIENCE), Ok((2, 0)));
        assert!(heard.try_recv().is_err(), "the first is not done");
        let_go.send(()).unwrap();
        for i in 0..3 {
            assert_eq!(heard.recv_timeout(PATIENCE), Ok((1, i)));
        }
        assert!(heard.recv_timeout(PATIENCE).is_err(), "all of them are dropped");
    }

    #[test]
    fn who_asks_does_no_errand_and_none_is_lost_where_no_thread_can_be_had() {
        let errands = Errands::new("test", &Starter::new().unwrap());
        let ((let_go, held), (told, heard)) = (channel::<()>(), channel());
        errands.threads.refuse(true);
        // It is let go once all are asked for.
        errands.run(1, move || held.recv_timeout(PATIENCE).unwrap());
        for (client, i) in [(1, 0), (2, 0), (1, 1)] {
            let told = told.clone();
            errands.run(client, move || told.send((client, i)).unwrap());
        }
        drop(told);
        let waiting = || errands.lock().values().map(VecDeque::len).sum::<usize>();
        std::thread::sleep(2 * RETRY);
        assert_eq!((heard.try_recv().ok(), waiting()), (None, 4));
        errands.threads.refuse(false);
        // They are done without another that is asked for.
        assert_eq!(heard.recv_timeout(PATIENCE), Ok((2, 0)));
        assert!(heard.try_recv().is_err(), "the first client's wait for each other");
        let_go.send(()).unwrap();
        drop(errands);
        assert_eq!(heard.iter().collect::<Vec<_>>(), [(1, 0), (1, 1)]);
    }
}
