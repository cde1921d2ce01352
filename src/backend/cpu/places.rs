//! Places in an arena for what lives for a while each: no two that live at the same time have bytes in common.
//!
//! Large ones are placed first, each as near to the start as it can be: those of one size then come to the same few places
//! again and again, and a thread that has the same part of each finds there what it wrote itself, in its own cache. One after the
//! other, each in the smallest hole there is, they would drift, and halves of layers would go from core to core.

use super::routine::STEPS;
use crate::ops::pace::Pace;
use crate::ops::OpError;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Every part starts at a multiple of this: a cache line, and the widest vector.
const ALIGNMENT: usize = 64;

/// So many are placed by their size: each is compared with all that were before. The others, which are smaller, get holes in
/// the order of their lives.
pub const BY_SIZE: usize = 1024;

/// What needs a place.
pub struct Life {
    /// Bytes.
    pub size: usize,
    /// While these steps are done.
    pub steps: RangeInclusive<usize>,
}

impl Life {
    fn meets(&self, other: &Life) -> bool {
        self.steps.start() <= other.steps.end() && other.steps.start() <= self.steps.end()
    }
}

/// Where each of `lives` starts, which are in the order of their first steps, and how large the arena is. The `by_size` largest are
/// placed by their size. `None` if it would not fit the address space.
pub fn find(lives: &[Life], by_size: usize, pace: &mut Pace) -> Result<Option<(Vec<usize>, usize)>, OpError> {
    let mut largest = BTreeSet::new();
    for (i, life) in lives.iter().enumerate() {
        pace.spend(STEPS)?;
        let Some(size) = life.size.checked_next_multiple_of(ALIGNMENT) else { return Ok(None) };
        largest.insert((Reverse(size), i));
        if largest.len() > by_size {
            largest.pop_last();
        }
    }
    let (mut starts, mut arena) = (vec![0; lives.len()], 0);
    // What has a place, by its start.
    let mut placed: Vec<(usize, usize, usize)> = Vec::with_capacity(largest.len());
    for &(Reverse(size), i) in &largest {
        pace.spend(STEPS + placed.len())?;
        let mut start = 0usize;
        for &(from, to, other) in &placed {
            if lives[other].meets(&lives[i]) {
                if from.saturating_sub(start) >= size {
                    break;
                }
                start = start.max(to);
            }
        }
        let Some(end) = end(start, size) else { return Ok(None) };
        (starts[i], arena) = (start, arena.max(end));
        placed.insert(placed.partition_point(|&(from, ..)| from <= start), (start, end, i));
    }

    let (mut free, mut ends) = (FreeList::default(), BTreeMap::<usize, Vec<usize>>::new());
    let size_of = |i: usize| lives[i].size.next_multiple_of(ALIGNMENT);
    for (i, life) in lives.iter().enumerate() {
        pace.spend(STEPS)?;
        if largest.contains(&(Reverse(size_of(i)), i)) {
            continue;
        }
        while let Some(over) = ends.first_entry().filter(|over| over.key() < life.steps.start()) {
            for i in over.remove() {
                pace.spend(STEPS)?;
                free.give(starts[i], size_of(i));
            }
        }
        let Some(start) = free.take(size_of(i), &mut arena) else { return Ok(None) };
        starts[i] = start;
        ends.entry(*life.steps.end()).or_default().push(i);
    }
    Ok(Some((starts, arena)))
}

/// The end of a part, if the address space has it.
fn end(start: usize, size: usize) -> Option<usize> {
    start.checked_add(size).filter(|&end| end <= isize::MAX as usize)
}

/// Unused parts of the arena so far. A client decides how many there are.
#[derive(Default)]
struct FreeList {
    /// Sizes by start.
    by_start: BTreeMap<usize, usize>,
    /// Size and start of each.
    by_size: BTreeSet<(usize, usize)>,
}

impl FreeList {
    /// The start of a part of `size` bytes: the smallest hole that fits, or new space at the end.
    fn take(&mut self, size: usize, arena: &mut usize) -> Option<usize> {
        if size == 0 {
            return Some(0);
        }
        if let Some(&(len, start)) = self.by_size.range((size, 0)..).next() {
            self.remove(start, len);
            if len > size {
                self.insert(start + size, len - size);
            }
            return Some(start);
        }
        // A hole at the very end is extended rather than left.
        let last = self.by_start.last_key_value().map(|(&start, &len)| (start, len));
        let start = match last.filter(|(start, len)| start + len == *arena) {
            Some((start, len)) => {
                self.remove(start, len);
                start
            }
            None => *arena,
        };
        *arena = end(start, size)?;
        Some(start)
    }

    fn give(&mut self, start: usize, len: usize) {
        if len == 0 {
            return;
        }
        let (mut start, mut len) = (start, len);
        let before = self.by_start.range(..start).next_back().map(|(&start, &len)| (start, len));
        if let Some((before, size)) = before.filter(|(before, size)| before + size == start) {
            self.remove(before, size);
            (start, len) = (before, len + size);
        }
        if let Some(&size) = self.by_start.get(&(start + len)) {
            self.remove(start + len, size);
            len += size;
        }
        self.insert(start, len);
    }

    fn insert(&mut self, start: usize, len: usize) {
        self.by_start.insert(start, len);
        self.by_size.insert((len, start));
    }

    fn remove(&mut self, start: usize, len: usize) {
        self.by_start.remove(&start);
        self.by_size.remove(&(len, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::NeverInterrupted;
    use proptest::prelude::*;

    fn placed(lives: &[Life], by_size: usize) -> (Vec<usize>, usize) {
        find(lives, by_size, &mut Pace::of(&NeverInterrupted)).unwrap().unwrap()
    }

    fn life(size: usize, steps: RangeInclusive<usize>) -> Life {
        Life { size, steps }
    }

    proptest! {
        #[test]
        fn what_lives_at_the_same_time_has_no_bytes_in_common(
            sizes in prop::collection::vec((0usize..1000, 0usize..20, 0usize..10), 0..60),
            by_size in 0usize..60,
        ) {
            let mut lives: Vec<Life> =
                sizes.into_iter().map(|(size, first, long)| life(size, first..=first + long)).collect();
            lives.sort_by_key(|life| *life.steps.start());
            let (starts, arena) = placed(&lives, by_size);
            for (i, a) in lives.iter().enumerate() {
                prop_assert!(starts[i].is_multiple_of(ALIGNMENT) && starts[i] + a.size <= arena);
                for (j, b) in lives.iter().enumerate().filter(|&(j, b)| j != i && a.meets(b)) {
                    let apart = starts[i] + a.size <= starts[j] || starts[j] + b.size <= starts[i];
                    prop_assert!(apart || a.size == 0 || b.size == 0, "{} and {}", i, j);
                }
            }
        }
    }

    #[test]
    fn large_ones_of_one_size_come_to_the_same_places_again() {
        // Expand, depthwise, project and add, of which a small sum lives on.
        let mut lives = vec![life(192, 0..=3)];
        for step in (0..40).step_by(4) {
            lives.push(life(1152, step..=step + 1));
            lives.push(life(1152, step + 1..=step + 2));
            lives.push(life(192, step + 2..=step + 3));
            lives.push(life(192, step + 3..=step + 7));
        }
        let (starts, arena) = placed(&lives, BY_SIZE);
        let large: BTreeSet<usize> =
            lives.iter().zip(&starts).filter(|(life, _)| life.size > 192).map(|(_, &s)| s).collect();
        assert_eq!(large, BTreeSet::from([0, 1152]));
        assert!(arena <= 2 * 1152 + 2 * 192, "{arena}");
    }

    #[test]
    fn a_gap_between_others_is_used() {
        let lives = [life(640, 0..=1), life(320, 0..=9), life(640, 2..=9), life(128, 3..=4)];
        assert_eq!(placed(&lives, 4), (vec![0, 640, 0, 960], 1088));
        let lives =
            [life(640, 0..=1), life(320, 0..=9), life(256, 2..=9), life(256, 3..=4), life(128, 4..=5)];
        assert_eq!(placed(&lives, 5), (vec![0, 640, 0, 256, 512], 960));
    }

    #[test]
    fn nothing_beyond_the_address_space_has_a_place() {
        for by_size in [0, 2] {
            let lives = [life(isize::MAX as usize - 63, 0..=1), life(128, 0..=1)];
            assert!(find(&lives, by_size, &mut Pace::of(&NeverInterrupted)).unwrap().is_none());
            let lives = [life(usize::MAX, 0..=1)];
            assert!(find(&lives, by_size, &mut Pace::of(&NeverInterrupted)).unwrap().is_none());
        }
    }

    #[test]
    fn the_smallest_hole_that_fits_is_taken_however_many_there_are() {
        // If each were looked at for each part, this would take hours.
        const HOLES: usize = if cfg!(miri) { 1 << 8 } else { 1 << 20 };
        let (mut free, mut arena) = (FreeList::default(), 0);
        let starts: Vec<usize> = (0..2 * HOLES).map(|_| free.take(64, &mut arena).unwrap()).collect();
        starts.iter().step_by(2).for_each(|&start| free.give(start, 64));
        let ends: Vec<usize> = (0..HOLES).map(|_| free.take(128, &mut arena).unwrap()).collect();
        assert_eq!((ends[0], ends[HOLES - 1], arena), (128 * HOLES, 256 * HOLES - 128, 256 * HOLES));
        assert_eq!(free.take(64, &mut arena), Some(0));
        free.give(ends[5], 128);
        assert_eq!(free.take(65, &mut arena), Some(ends[5]), "the others are too small");
    }

    #[test]
    fn holes_are_reused_and_merged() {
        let (mut free, mut arena) = (FreeList::default(), 0);
        let a = free.take(64, &mut arena).unwrap();
        let b = free.take(128, &mut arena).unwrap();
        let c = free.take(64, &mut arena).unwrap();
        assert_eq!((a, b, c, arena), (0, 64, 192, 256));
        free.give(a, 64);
        free.give(b, 128);
        assert_eq!(free.take(192, &mut arena), Some(0), "two neighbours make one hole");
        free.give(c, 64);
        assert_eq!(free.take(128, &mut arena), Some(192), "a hole at the end is extended");
        assert_eq!(arena, 320);
    }
}
