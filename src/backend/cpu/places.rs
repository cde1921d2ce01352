//! Places in an arena for what lives for a while each: no two that live at the same time have bytes in common.
//!
//! Large ones are placed first, each as near to the start as it can be: those of one size then come to the same few places
//! again and again, and a thread that has the same part of each finds there what it wrote itself, in its own cache. One after the
//! other, each in the smallest hole there is, they drift, and halves of layers go from core to core; that is for what is many,
//! or would take much more memory otherwise.

use super::routine::STEPS;
use crate::memory::Counted;
use crate::ops::pace::Pace;
use crate::ops::scratch::{collected, filled, reserved, Scratch};
use crate::ops::sort::sort;
use crate::ops::{Interrupt, OpError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

/// Every part starts at a multiple of this: a cache line, and the widest vector.
const ALIGNMENT: usize = 64;

/// So often may two that are placed by their size live at the same time, as each is compared with those of before that do.
const MOST_MEETINGS: usize = 1 << 21;

/// What it costs to find one of them, in the steps that [`Pace`] counts.
const MEETING: usize = 8;

/// So few are looked at one by one.
const FEW: usize = 16;

/// Bytes of the lists of unused parts and of those that end with a step, for each part, about.
const LISTED: usize = 128;

/// What needs a place.
pub struct Life {
    /// Bytes.
    pub size: usize,
    /// While these steps are done.
    pub steps: RangeInclusive<usize>,
}

/// Where each starts, and how large the arena is.
type Places = (Scratch<usize>, usize);

/// Places for `lives`, which are in the order of their first steps. `None` if they would not fit the address space.
pub fn find(lives: &[Life], pace: &mut Pace) -> Result<Option<Places>, OpError> {
    let (in_order, by_size) = (in_order(lives, pace)?, by_size(lives, pace)?);
    Ok(match (&by_size, &in_order) {
        (Some((_, size)), Some((_, least))) if *size <= least.saturating_add(least / 8) => by_size,
        _ => in_order,
    })
}

/// The largest first, each at the first place that is free while it lives. `None` also where too many live at the same time.
fn by_size(lives: &[Life], pace: &mut Pace) -> Result<Option<Places>, OpError> {
    let mut order = collected(pace.interrupt(), 0..lives.len())?;
    sort(&mut order, usize::MAX, pace, |&a, &b| lives[b].size.cmp(&lives[a].size))?;
    let (mut starts, mut arena) = (filled(pace.interrupt(), 0, lives.len())?, 0);
    let (mut placed, mut near, mut meetings) =
        (Placed::new(lives, pace.interrupt())?, reserved(lives.len())?, 0);
    for &i in order.iter() {
        let Some(size) = lives[i].size.checked_next_multiple_of(ALIGNMENT) else { return Ok(None) };
        near.clear();
        let place = |i: usize| (starts[i], starts[i] + lives[i].size);
        placed.each_that_meets(i, &mut |other| {
            near.push(place(other));
            pace.spend(MEETING)
        })?;
        pace.spend(STEPS)?;
        meetings += near.len();
        if meetings > MOST_MEETINGS {
            return Ok(None);
        }
        sort(&mut near, usize::MAX, pace, Ord::cmp)?;
        let mut start = 0usize;
        for &(from, to) in near.iter() {
            if from.saturating_sub(start) >= size {
                break;
            }
            start = start.max(to.next_multiple_of(ALIGNMENT));
        }
        let Some(end) = end(start, size) else { return Ok(None) };
        (starts[i], arena) = (start, arena.max(end));
        placed.add(i);
    }
    Ok(Some((starts, arena)))
}

/// Which of some lives, in the order of their first steps, have a place.
struct Placed<'l> {
    lives: &'l [Life],
    /// A tree: the latest of the last steps of those that have a place, in halves of halves, down to each life.
    latest: Scratch<Option<usize>>,
}

impl<'l> Placed<'l> {
    fn new(lives: &'l [Life], interrupt: &dyn Interrupt) -> Result<Self, OpError> {
        Ok(Placed { lives, latest: filled(interrupt, None, 2 * lives.len().next_power_of_two())? })
    }

    fn add(&mut self, life: usize) {
        let (mut node, last) = (self.latest.len() / 2 + life, Some(*self.lives[life].steps.end()));
        while node > 0 {
            self.latest[node] = self.latest[node].max(last);
            node /= 2;
        }
    }

    /// Calls `found` for each that lives while `life` does.
    fn each_that_meets(
        &self,
        life: usize,
        found: &mut impl FnMut(usize) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let steps = &self.lives[life].steps;
        let begun = self.lives.partition_point(|other| other.steps.start() <= steps.end());
        self.each_under(1, 0..self.latest.len() / 2, begun, *steps.start(), found)
    }

    /// The same for lives `under` a node, before the one with which those begin that begin too late, and of which none ends
    /// before step `first`.
    fn each_under(
        &self,
        node: usize,
        under: Range<usize>,
        begun: usize,
        first: usize,
        found: &mut impl FnMut(usize) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        if under.start >= begun || self.latest[node] < Some(first) {
            return Ok(());
        }
        if under.len() <= FEW {
            // To look at each takes less than to go down to those that live then.
            let leaves = self.latest.len() / 2;
            return (under.start..under.end.min(begun))
                .filter(|life| self.latest[leaves + life] >= Some(first))
                .try_for_each(found);
        }
        let middle = under.start + under.len() / 2;
        self.each_under(2 * node, under.start..middle, begun, first, found)?;
        self.each_under(2 * node + 1, middle..under.end, begun, first, found)
    }
}

/// One after the other, each in the smallest hole that it fits.
fn in_order(lives: &[Life], pace: &mut Pace) -> Result<Option<Places>, OpError> {
    let (mut starts, mut arena) = (filled(pace.interrupt(), 0, lives.len())?, 0);
    let bytes = lives.len().saturating_mul(LISTED);
    let _counted = Counted::take(bytes).ok_or(OpError::OutOfMemory(bytes))?;
    let (mut free, mut ends) = (FreeList::default(), BTreeMap::<usize, Vec<usize>>::new());
    for (i, life) in lives.iter().enumerate() {
        pace.spend(STEPS)?;
        while let Some(over) = ends.first_entry().filter(|over| over.key() < life.steps.start()) {
            for i in over.remove() {
                pace.spend(STEPS)?;
                free.give(starts[i], lives[i].size.next_multiple_of(ALIGNMENT));
            }
        }
        let size = life.size.checked_next_multiple_of(ALIGNMENT);
        let Some(start) = size.and_then(|size| free.take(size, &mut arena)) else { return Ok(None) };
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
    use std::cmp::Reverse;

    fn life(size: usize, steps: RangeInclusive<usize>) -> Life {
        Life { size, steps }
    }

    impl Life {
        fn meets(&self, other: &Life) -> bool {
            self.steps.start() <= other.steps.end() && other.steps.start() <= self.steps.end()
        }
    }

    /// The largest first, each compared with all that have a place.
    fn by_size_naively(lives: &[Life]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..lives.len()).collect();
        order.sort_by_key(|&i| Reverse(lives[i].size));
        let mut starts = vec![None; lives.len()];
        for i in order {
            let is_free = |&start: &usize| {
                starts.iter().zip(lives).all(|(other, life)| {
                    let size = |life: &Life| life.size.next_multiple_of(ALIGNMENT);
                    let apart = |other| start + size(&lives[i]) <= other || other + size(life) <= start;
                    !life.meets(&lives[i]) || other.is_none_or(apart)
                })
            };
            starts[i] = (0..).step_by(ALIGNMENT).find(is_free);
        }
        starts.into_iter().flatten().collect()
    }

    type Way = fn(&[Life], &mut Pace) -> Result<Option<Places>, OpError>;
    const WAYS: [Way; 3] = [by_size, in_order, find];

    proptest! {
        #[test]
        fn what_lives_at_the_same_time_has_no_bytes_in_common(
            sizes in prop::collection::vec((0usize..1000, 0usize..20, 0usize..10), 0..60),
        ) {
            let mut lives: Vec<Life> =
                sizes.into_iter().map(|(size, first, long)| life(size, first..=first + long)).collect();
            lives.sort_by_key(|life| *life.steps.start());
            for way in WAYS {
                let (starts, arena) = way(&lives, &mut Pace::of(&NeverInterrupted)).unwrap().unwrap();
                for (i, a) in lives.iter().enumerate() {
                    prop_assert!(starts[i].is_multiple_of(ALIGNMENT) && starts[i] + a.size <= arena);
                    for (j, b) in lives.iter().enumerate().filter(|&(j, b)| j != i && a.meets(b)) {
                        let apart = starts[i] + a.size <= starts[j] || starts[j] + b.size <= starts[i];
                        prop_assert!(apart || a.size == 0 || b.size == 0, "{} and {}", i, j);
                    }
                }
            }
            let (starts, _) = by_size(&lives, &mut Pace::of(&NeverInterrupted)).unwrap().unwrap();
            prop_assert_eq!(&starts[..], by_size_naively(&lives));
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
        let (starts, arena) = find(&lives, &mut Pace::of(&NeverInterrupted)).unwrap().unwrap();
        let large = lives.iter().zip(starts.iter()).filter(|(life, _)| life.size > 192);
        assert_eq!(large.map(|(_, &start)| start).collect::<BTreeSet<_>>(), BTreeSet::from([0, 1152]));
        assert!(arena <= 2 * 1152 + 2 * 192, "{arena}");
    }

    #[test]
    fn a_gap_between_others_is_used() {
        let place = |lives: &[Life]| {
            let (starts, size) = by_size(lives, &mut Pace::of(&NeverInterrupted)).unwrap().unwrap();
            (starts.to_vec(), size)
        };
        let lives = [life(640, 0..=1), life(320, 0..=9), life(640, 2..=9), life(128, 3..=4)];
        assert_eq!(place(&lives), (vec![0, 640, 0, 960], 1088));
        let lives =
            [life(640, 0..=1), life(320, 0..=9), life(256, 2..=9), life(256, 3..=4), life(128, 4..=5)];
        assert_eq!(place(&lives), (vec![0, 640, 0, 256, 512], 960));
    }

    #[test]
    fn very_many_take_no_more_than_they_must() {
        const MANY: usize = if cfg!(miri) { 1 << 8 } else { 1 << 18 };
        let lives: Vec<Life> = (0..MANY).map(|step| life(640, step..=step + 1)).collect();
        for way in WAYS {
            assert_eq!(way(&lives, &mut Pace::of(&NeverInterrupted)).unwrap().unwrap().1, 2 * 640);
        }
    }

    #[test]
    fn very_many_that_live_at_the_same_time_are_placed_in_order() {
        const MANY: usize = 1 << 12;
        let lives: Vec<Life> = (0..MANY).map(|step| life(64, step..=MANY)).collect();
        let mut pace = Pace::of(&NeverInterrupted);
        assert!(by_size(&lives, &mut pace).unwrap().is_none());
        assert_eq!(find(&lives, &mut pace).unwrap().unwrap().1, MANY * 64);
    }

    #[test]
    fn nothing_beyond_the_address_space_has_a_place() {
        for way in WAYS {
            for lives in
                [&[life(isize::MAX as usize - 63, 0..=1), life(128, 0..=1)][..], &[life(usize::MAX, 0..=1)]]
            {
                assert!(way(lives, &mut Pace::of(&NeverInterrupted)).unwrap().is_none());
            }
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
