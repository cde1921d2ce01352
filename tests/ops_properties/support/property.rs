//! Running properties: random cases from seeds, and the proof that operations were reached.

use super::{OperationType, Random};
use std::cell::RefCell;
use std::collections::HashMap;

/// Something that holds for random calls of some operations.
pub struct Property {
    pub name: &'static str,
    /// The operations that the cases call; each must succeed in a fair part of them.
    pub operations: &'static [OperationType],
    /// Cases in a run, before the environment's multiplier.
    pub cases: u64,
    pub case: fn(&mut Random),
}

thread_local! {
    static SUCCESSES: RefCell<HashMap<OperationType, u64>> = RefCell::default();
}

/// Notes that a call of `operation` succeeded.
pub fn count_success(operation: OperationType) {
    SUCCESSES.with_borrow_mut(|successes| *successes.entry(operation).or_default() += 1);
}

/// Tells which seed was running when a property failed.
struct Seed(&'static str, u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} failed: OPS_PROPERTIES_SEED={}", self.0, self.1);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// `count`, times the environment's multiplier.
pub fn times(count: u64) -> u64 {
    count * number("OPS_PROPERTIES_TIMES").unwrap_or(1)
}

impl Property {
    /// Runs all cases, each from a seed of its own.
    pub fn run(&self) {
        SUCCESSES.with_borrow_mut(HashMap::clear);
        let alone = number("OPS_PROPERTIES_SEED");
        for seed in alone.map_or(0..times(self.cases), |seed| seed..seed + 1) {
            let _seed = Seed(self.name, seed);
            (self.case)(&mut Random::new(seed));
        }
        if alone.is_none() {
            self.check_successes();
        }
    }

    /// Every operation must have had a quarter of an even share of the cases at least.
    fn check_successes(&self) {
        let least = (times(self.cases) / self.operations.len() as u64 / 4).max(1);
        for operation in self.operations {
            let successes = SUCCESSES.with_borrow(|s| s.get(operation).copied().unwrap_or(0));
            assert!(successes >= least, "{}: {operation:?} succeeded {successes} times", self.name);
        }
    }
}
