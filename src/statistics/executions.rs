//! What is counted of executions.

use super::histogram::{Histogram, Times};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Counts of executions, by many threads at once.
#[derive(Debug, Default)]
pub struct Executions {
    under_way: AtomicU64,
    failed: AtomicU64,
    times: Histogram,
}

/// The counts of [`Executions`] at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub under_way: u64,
    pub failed: u64,
    /// Times of those that succeeded: from when the driver had all inputs until the end, with waits for a turn.
    pub times: Times,
}

/// An execution under way, until dropped; without [`succeeded`](Self::succeeded) it has failed.
#[derive(Debug)]
pub struct Running<E: Deref<Target = Executions>> {
    executions: E,
    began: Instant,
    succeeded: bool,
}

impl Executions {
    pub fn totals(&self) -> Totals {
        let [under_way, failed] = [&self.under_way, &self.failed].map(|count| count.load(Ordering::Relaxed));
        Totals { under_way, failed, times: self.times.times() }
    }
}

impl Totals {
    pub fn add(&mut self, other: &Totals) {
        self.under_way = self.under_way.wrapping_add(other.under_way);
        self.failed = self.failed.wrapping_add(other.failed);
        self.times.add(&other.times);
    }
}

impl<E: Deref<Target = Executions>> Running<E> {
    /// Counts an execution that began at `began`.
    pub fn new(executions: E, began: Instant) -> Self {
        executions.under_way.fetch_add(1, Ordering::Relaxed);
        Running { executions, began, succeeded: false }
    }

    pub fn succeeded(mut self) {
        self.succeeded = true;
    }
}

impl<E: Deref<Target = Executions>> Drop for Running<E> {
    fn drop(&mut self) {
        let executions = &*self.executions;
        executions.under_way.fetch_sub(1, Ordering::Relaxed);
        match self.succeeded {
            true => executions.times.count(self.began.elapsed()),
            false => drop(executions.failed.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_is_under_way_until_it_succeeded_or_failed() {
        let executions = Executions::default();
        let (first, second) =
            (Running::new(&executions, Instant::now()), Running::new(&executions, Instant::now()));
        assert_eq!(executions.totals(), Totals { under_way: 2, ..Totals::default() });
        first.succeeded();
        drop(second);
        let totals = executions.totals();
        assert_eq!((totals.under_way, totals.failed, totals.times.count()), (0, 1, 1));
    }
}
