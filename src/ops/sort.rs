//! Sorting of what may be long: in stretches that take well under a millisecond, which are merged with yield points in
//! between.

use super::pace::Pace;
use super::scratch::reserved;
use super::OpError;
use std::cmp::Ordering;

/// Items sorted or merged in one go.
const STRETCH: usize = 1 << 12;

/// Leaves the first `limit` of `items` in the order of `compare`. Equals stay in order if `limit` is no less than there are;
/// otherwise none may be equal.
pub fn sort<T: Copy>(
    items: &mut Vec<T>,
    limit: usize,
    pace: &mut Pace,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Result<(), OpError> {
    let kept = sort_stretches(items, limit, pace, &compare)?;
    items.truncate(kept);
    let mut run = STRETCH.min(limit);
    if run >= items.len() {
        return Ok(());
    }
    let mut merged = reserved(items.len())?;
    while run < items.len() {
        merged.clear();
        for pair in items.chunks(2 * run) {
            let (a, b) = pair.split_at(run.min(pair.len()));
            merge(a, b, limit, &mut merged, pace, &compare)?;
        }
        // Back to where they were: the caller's memory is counted by what it was reserved for.
        items.clear();
        for part in merged.chunks(STRETCH) {
            items.extend_from_slice(part);
            pace.spend(part.len())?;
        }
        run = (2 * run).min(limit);
    }
    Ok(())
}

/// Sorts each stretch, of which the first `limit` stay, one stretch's behind the other's. Gives how many there are.
fn sort_stretches<T: Copy>(
    items: &mut [T],
    limit: usize,
    pace: &mut Pace,
    compare: &impl Fn(&T, &T) -> Ordering,
) -> Result<usize, OpError> {
    let mut kept = 0;
    for start in (0..items.len()).step_by(STRETCH) {
        let end = items.len().min(start + STRETCH);
        let mut stretch = &mut items[start..end];
        if (1..stretch.len()).contains(&limit) {
            stretch.select_nth_unstable_by(limit - 1, compare);
            stretch = &mut stretch[..limit];
        }
        stretch.sort_by(compare);
        let len = stretch.len().min(limit);
        items.copy_within(start..start + len, kept);
        kept += len;
        pace.spend(16 * (end - start))?;
    }
    Ok(kept)
}

/// Appends the first `limit` of two runs, those of `a` before equal ones of `b`.
fn merge<T: Copy>(
    a: &[T],
    b: &[T],
    limit: usize,
    to: &mut Vec<T>,
    pace: &mut Pace,
    compare: &impl Fn(&T, &T) -> Ordering,
) -> Result<(), OpError> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let is_second = |a: Option<&&T>, b: Option<&&T>| match (a, b) {
        (Some(a), Some(b)) => compare(b, a) == Ordering::Less,
        (a, _) => a.is_none(),
    };
    let next = || if is_second(a.peek(), b.peek()) { b.next() } else { a.next() };
    let items = std::iter::from_fn(next).take(limit);
    pace.each(items, 8, |&item| to.push(item))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Args, Interrupt, NeverInterrupted};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    fn numbers(count: u32) -> Vec<(u32, u32)> {
        (0..count).map(|i| (i.wrapping_mul(2_654_435_761) >> 22, i)).collect()
    }

    fn args(interrupt: &dyn Interrupt) -> Args<'_> {
        Args { signature_index: 0, inputs: &[], outputs: &[], interrupt }
    }

    #[test]
    fn all_lengths_are_sorted_and_equals_stay_in_order() {
        let stretch = STRETCH as u32;
        for count in [0, 1, 2, 1000, stretch, stretch + 1, 2 * stretch, 7 * stretch + 5] {
            let (mut items, mut expected) = (numbers(count), numbers(count));
            sort(&mut items, usize::MAX, &mut Pace::new(&args(&NeverInterrupted)), |a, b| a.0.cmp(&b.0))
                .unwrap();
            expected.sort_by_key(|item| item.0);
            assert_eq!(items, expected, "{count}");
        }
    }

    #[test]
    fn a_limit_leaves_the_first() {
        for limit in [0, 1, 10, STRETCH - 1, STRETCH, STRETCH + 1, 3 * STRETCH, 5 * STRETCH, 6 * STRETCH] {
            let (mut items, mut expected) =
                (numbers(5 * STRETCH as u32 + 3), numbers(5 * STRETCH as u32 + 3));
            sort(&mut items, limit, &mut Pace::new(&args(&NeverInterrupted)), Ord::cmp).unwrap();
            expected.sort();
            expected.truncate(limit);
            assert_eq!(items, expected, "{limit}");
        }
    }

    #[test]
    fn turns_are_given_up_within_each_stretch_of_work() {
        struct Last<'a>(&'a AtomicUsize, AtomicUsize, AtomicUsize);
        impl Interrupt for Last<'_> {
            fn check(&self) -> Result<(), OpError> {
                let compared = self.0.load(Relaxed);
                self.2.fetch_max(compared - self.1.swap(compared, Relaxed), Relaxed);
                Ok(())
            }
        }
        let compared = AtomicUsize::new(0);
        let interrupt = Last(&compared, AtomicUsize::new(0), AtomicUsize::new(0));
        let mut items = numbers(1 << 18);
        sort(&mut items, usize::MAX, &mut Pace::new(&args(&interrupt)), |a, b| {
            compared.fetch_add(1, Relaxed);
            a.cmp(b)
        })
        .unwrap();
        let (longest, all) = (interrupt.2.into_inner(), compared.load(Relaxed));
        assert!(longest < 16 * STRETCH && all > 40 * longest, "{longest} of {all} comparisons");
    }
}
