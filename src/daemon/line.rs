//! A line in which clients take turns: however much one of them puts in, another's first comes next, and what is of any one comes
//! no faster than a pace.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How fast what one client puts in comes out.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// So much of one who has rested comes as fast as it is taken.
    pub at_once: u32,
    /// Then one each time.
    pub every: Duration,
}

/// What waits, by client. How much that may be is for the caller to limit.
pub struct Line<T> {
    pace: Pace,
    /// Whether something is of no use any more: it comes before its time, as it is only to be let go of.
    is_useless: fn(&T) -> bool,
    waiting: Mutex<Waiting<T>>,
    changed: Condvar,
}

struct Waiting<T> {
    /// Of clients who have something in line, and of those who have not rested enough since.
    by_client: HashMap<u32, Own<T>>,
    /// Clients who have something in line, the next one first.
    order: VecDeque<u32>,
    is_over: bool,
}

struct Own<T> {
    waiting: VecDeque<T>,
    /// When as much as [`Pace::at_once`] may come again.
    rested: Instant,
}

impl<T> Line<T> {
    pub fn new(pace: Pace, is_useless: fn(&T) -> bool) -> Self {
        let waiting = Waiting { by_client: HashMap::new(), order: VecDeque::new(), is_over: false };
        Line { pace, is_useless, waiting: Mutex::new(waiting), changed: Condvar::new() }
    }

    /// Puts `what` in line for `client`; drops it once the line is over.
    pub fn put(&self, client: u32, what: T) {
        let mut waiting = self.lock();
        if waiting.is_over {
            drop(waiting); // it may take long to drop
            return;
        }
        let rested = Instant::now();
        let own = waiting.by_client.entry(client).or_insert_with(|| Own { waiting: VecDeque::new(), rested });
        own.waiting.push_back(what);
        if own.waiting.len() == 1 {
            waiting.order.push_back(client);
            drop(waiting);
            self.changed.notify_one();
        }
    }

    /// The first of the client whose turn it is. Waits for one; `None` once the line is over.
    pub fn next(&self) -> Option<T> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_over {
                return None;
            }
            let now = Instant::now();
            let wait = match waiting.first(now, self.pace, self.is_useless) {
                Ok(first) => return Some(first),
                Err(wait) => wait,
            };
            waiting = match wait {
                None => self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    self.changed.wait_timeout(waiting, wait).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
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

impl<T> Waiting<T> {
    /// The first of the next client who need not rest, or something useless of one who has to; else how long the first of those in
    /// line has to rest.
    fn first(&mut self, now: Instant, pace: Pace, is_useless: fn(&T) -> bool) -> Result<T, Option<Duration>> {
        let mut least = None;
        for at in 0..self.order.len() {
            let client = self.order[at];
            let Some(own) = self.by_client.get_mut(&client) else { continue };
            let rest = (own.rested + pace.every).saturating_duration_since(now + pace.at_once * pace.every);
            let place = match rest.is_zero() {
                true => Some(0),
                false => own.waiting.iter().position(is_useless),
            };
            let Some(first) = place.and_then(|place| own.waiting.remove(place)) else {
                least = Some(least.map_or(rest, |least: Duration| least.min(rest)));
                continue;
            };
            if rest.is_zero() {
                own.rested = own.rested.max(now) + pace.every;
            }
            let has_more = !own.waiting.is_empty();
            self.order.remove(at);
            if has_more {
                self.order.push_back(client);
            }
            return Ok(first);
        }
        // Nothing can be taken now: time to forget those who need not be known.
        self.by_client.retain(|_, own| !own.waiting.is_empty() || own.rested > now);
        Err(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// So fast that none waits.
    const ANY: Pace = Pace { at_once: 1000, every: Duration::from_millis(1) };

    fn never<T>(_: &T) -> bool {
        false
    }

    #[test]
    fn who_comes_later_waits_for_one_of_each_other() {
        let line = Line::new(ANY, never);
        for (client, what) in [(1, "a"), (1, "b"), (1, "c"), (2, "d"), (3, "e"), (2, "f")] {
            line.put(client, what);
        }
        let order = [(); 6].map(|()| line.next().unwrap());
        assert_eq!(order, ["a", "d", "e", "b", "f", "c"]);
        line.put(1, "g");
        assert_eq!(line.next(), Some("g"));
    }

    #[test]
    fn who_puts_in_much_waits_and_others_do_not() {
        let pace = Pace { at_once: 3, every: Duration::from_secs(10) };
        let line = Line::new(pace, never);
        (0..8).for_each(|i| line.put(1, (1, i)));
        line.put(2, (2, 0));
        let start = Instant::now();
        let mut waiting = line.lock();
        let mut taken = Vec::new();
        let mut wait = |now: Instant, taken: &mut Vec<_>| loop {
            match waiting.first(now, pace, never) {
                Ok(first) => taken.push(first),
                Err(wait) => return wait,
            }
        };
        let rest = wait(start, &mut taken).expect("some are left");
        assert_eq!(taken, [(1, 0), (2, 0), (1, 1), (1, 2)]);
        assert!(rest <= pace.every && rest > Duration::from_secs(5), "{rest:?}");
        taken.clear();
        // One for each time that has passed, and no more than at first after a long rest.
        let later = start + Duration::from_secs(25);
        wait(later, &mut taken);
        assert_eq!(taken, [(1, 3), (1, 4)]);
        assert_eq!(wait(later + Duration::from_secs(1000), &mut taken), None);
        assert_eq!(taken[2..], [(1, 5), (1, 6), (1, 7)]);
        wait(later + Duration::from_secs(2000), &mut taken);
        assert!(waiting.by_client.is_empty(), "who has rested is forgotten");
    }

    #[test]
    fn what_is_of_no_use_any_more_does_not_wait_for_its_time() {
        let is_odd = |i: &i32| i % 2 == 1;
        let line = Line::new(Pace { at_once: 1, every: Duration::from_secs(3600) }, is_odd);
        (0..6).for_each(|i| line.put(1, i));
        assert_eq!([(); 4].map(|()| line.next()), [Some(0), Some(1), Some(3), Some(5)]);
        let mut waiting = line.lock();
        assert!(waiting.first(Instant::now(), line.pace, is_odd).is_err_and(|rest| rest.is_some()));
    }

    #[test]
    fn what_waits_for_its_time_comes_by_itself() {
        let line = Line::new(Pace { at_once: 1, every: Duration::from_millis(20) }, never);
        (0..3).for_each(|i| line.put(1, i));
        assert_eq!([(); 3].map(|()| line.next()), [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn a_line_that_is_over_keeps_nothing() {
        let (line, kept) = (Line::new(ANY, never), Arc::new(()));
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
