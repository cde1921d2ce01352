//! A line in which clients take turns: however much one of them puts in, another's first comes next.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What waits, by client. How much that may be is for the caller to limit.
pub struct Line<T> {
    waiting: Mutex<Waiting<T>>,
    changed: Condvar,
}

struct Waiting<T> {
    /// Of clients who have something in line.
    by_client: HashMap<u32, VecDeque<T>>,
    /// The same clients, the next one first.
    order: VecDeque<u32>,
    is_over: bool,
}

impl<T> Line<T> {
    pub fn new() -> Self {
        let waiting = Waiting { by_client: HashMap::new(), order: VecDeque::new(), is_over: false };
        Line { waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    /// Puts `what` in line for `client`; drops it once the line is over.
    pub fn put(&self, client: u32, what: T) {
        let mut waiting = self.lock();
        if waiting.is_over {
            drop(waiting); // it may take long to drop
            return;
        }
        let own = waiting.by_client.entry(client).or_default();
        own.push_back(what);
        if own.len() == 1 {
            waiting.order.push_back(client);
        }
        drop(waiting);
        self.changed.notify_one();
    }

    /// The first of the client whose turn it is. Waits for one; `None` once the line is over.
    pub fn next(&self) -> Option<T> {
        let mut waiting = self.lock();
        while waiting.order.is_empty() && !waiting.is_over {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let client = waiting.order.pop_front()?;
        let own = waiting.by_client.get_mut(&client)?;
        let first = own.pop_front();
        match own.is_empty() {
            true => drop(waiting.by_client.remove(&client)),
            false => waiting.order.push_back(client),
        }
        first
    }

    /// Has nobody wait any more, and drops what was in line.
    pub fn end(&self) {
        let mut waiting = self.lock();
        waiting.is_over = true;
        waiting.order.clear();
        let rest = std::mem::take(&mut waiting.by_client);
        drop(waiting);
        self.changed.notify_all();
        drop(rest);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn who_comes_later_waits_for_one_of_each_other() {
        let line = Line::new();
        for (client, what) in [(1, "a"), (1, "b"), (1, "c"), (2, "d"), (3, "e"), (2, "f")] {
            line.put(client, what);
        }
        let order = [(); 6].map(|()| line.next().unwrap());
        assert_eq!(order, ["a", "d", "e", "b", "f", "c"]);
        line.put(1, "g");
        assert_eq!(line.next(), Some("g"));
    }

    #[test]
    fn a_line_that_is_over_keeps_nothing() {
        let (line, kept) = (Line::new(), Arc::new(()));
        line.put(1, kept.clone());
        std::thread::scope(|threads| {
            let taken = threads.spawn(|| [line.next(), line.next()]);
            while Arc::strong_count(&kept) > 1 && !taken.is_finished() {
                // The first is taken, and the thread waits or is about to.
                if line.lock().order.is_empty() {
                    break;
                }
            }
            line.end();
            assert_eq!(taken.join().unwrap(), [Some(kept.clone()), None]);
        });
        line.put(1, kept.clone());
        assert_eq!((Arc::strong_count(&kept), line.next()), (1, None));
    }
}
