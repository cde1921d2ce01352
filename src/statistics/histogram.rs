//! How long something took, counted by powers of two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The first counts what took less than a microsecond; each further one up to twice as long; the last all the rest, from
/// 67 s on.
const BUCKETS: usize = 28;

/// Times, counted by many threads at once.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

/// The counts of a [`Histogram`] at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    buckets: [u64; BUCKETS],
    sum_us: u64,
}

impl Histogram {
    pub fn count(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub fn times(&self) -> Times {
        let buckets = std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed));
        Times { buckets, sum_us: self.sum_us.load(Ordering::Relaxed) }
    }
}

impl Times {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    pub fn add(&mut self, other: &Times) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(own, more)| *own = own.wrapping_add(more));
        self.sum_us = self.sum_us.wrapping_add(other.sum_us);
    }

    /// Microseconds that one took on average; `None` where there was none.
    pub fn mean_us(&self) -> Option<u64> {
        self.sum_us.checked_div(self.count())
    }

    /// Microseconds that so many of a thousand took less than, as the bound of a bucket; `None` where there was none.
    pub fn below_us(&self, per_mille: u64) -> Option<u64> {
        let count = self.count();
        let wanted = u128::from(count) * u128::from(per_mille.min(1000));
        let mut seen = 0u128;
        let bucket = self.buckets.iter().position(|&count| {
            seen += u128::from(count);
            seen > 0 && seen * 1000 >= wanted
        });
        bucket.filter(|_| count > 0).map(bound_us)
    }

    /// The bound in microseconds of each bucket that is not empty, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(i, count)| (bound_us(i), *count))
    }
}

/// What a time in bucket `i` is less than, in microseconds; the last has no bound, and says twice where it begins.
fn bound_us(i: usize) -> u64 {
    1 << i
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_again_within_a_power_of_two() {
        let histogram = Histogram::default();
        assert_eq!((histogram.times().mean_us(), histogram.times().below_us(500)), (None, None));
        (0..98).for_each(|_| histogram.count(Duration::from_micros(100)));
        histogram.count(Duration::from_nanos(10));
        histogram.count(Duration::MAX);
        let times = histogram.times();
        assert_eq!(times.count(), 100);
        assert_eq!(times.buckets().collect::<Vec<_>>(), [(1, 1), (128, 98), (1 << 27, 1)]);
        assert_eq!(
            [0, 10, 11, 500, 990, 991, 1000].map(|n| times.below_us(n).unwrap()),
            [1, 1, 128, 128, 128, 1 << 27, 1 << 27]
        );
        let mut twice = times;
        twice.add(&times);
        assert_eq!((twice.count(), twice.mean_us()), (200, times.mean_us()));
    }
}
