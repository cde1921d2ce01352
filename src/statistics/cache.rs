//! What is counted of a cache.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counts of one cache, by many threads at once.
#[derive(Debug, Default)]
pub struct CacheCounts {
    hits: AtomicU64,
    misses: Tally,
    saves: AtomicU64,
    failed_saves: Tally,
}

/// How often something happened by its reason. Reasons are the driver's own words, of which there are few.
#[derive(Debug, Default)]
struct Tally(Mutex<BTreeMap<&'static str, u64>>);

impl CacheCounts {
    /// Counts a look for what was saved: `Err` says why it was of no use.
    pub fn looked(&self, outcome: Result<(), &'static str>) {
        count(outcome, &self.hits, &self.misses);
    }

    /// Counts a save: `Err` says why nothing was saved.
    pub fn saved(&self, outcome: Result<(), &'static str>) {
        count(outcome, &self.saves, &self.failed_saves);
    }

    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    pub fn misses(&self) -> BTreeMap<&'static str, u64> {
        self.misses.counts()
    }

    pub fn saves(&self) -> u64 {
        self.saves.load(Ordering::Relaxed)
    }

    pub fn failed_saves(&self) -> BTreeMap<&'static str, u64> {
        self.failed_saves.counts()
    }
}

fn count(outcome: Result<(), &'static str>, good: &AtomicU64, bad: &Tally) {
    match outcome {
        Ok(()) => drop(good.fetch_add(1, Ordering::Relaxed)),
        Err(why) => *bad.0.lock().unwrap_or_else(PoisonError::into_inner).entry(why).or_default() += 1,
    }
}

impl Tally {
    fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_apart() {
        let counts = CacheCounts::default();
        counts.looked(Ok(()));
        counts.looked(Err("unknown"));
        counts.looked(Err("unknown"));
        counts.saved(Ok(()));
        counts.saved(Err("busy"));
        assert_eq!((counts.hits(), counts.misses()), (1, BTreeMap::from([("unknown", 2)])));
        assert_eq!((counts.saves(), counts.failed_saves()), (1, BTreeMap::from([("busy", 1)])));
    }
}
