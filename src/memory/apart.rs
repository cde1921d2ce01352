//! Parts of an arena that are borrowed together again and again: that they are apart is found once.

use super::arena::are_apart;
use super::{Arena, Target, View};
use std::collections::TryReserveError;
use std::ops::Range;

/// Lists of parts, of each of which those that are written overlap no others.
#[derive(Default)]
pub struct ApartLists {
    parts: Vec<Range<usize>>,
    lists: Vec<List>,
}

/// Where the parts of a list are, those that are read before those that are written.
struct List {
    first: usize,
    reads: usize,
    writes: usize,
    /// Where the last one of them ends.
    end: usize,
}

impl ApartLists {
    /// Makes room for so many lists of so many parts altogether.
    pub fn try_reserve(&mut self, lists: usize, parts: usize) -> Result<(), TryReserveError> {
        self.lists.try_reserve_exact(lists)?;
        self.parts.try_reserve_exact(parts)
    }

    /// Adds a list, and tells its number; `None` if one that is written overlaps another.
    pub fn add(&mut self, reads: &[&Range<usize>], writes: &[&Range<usize>]) -> Option<usize> {
        let all = || reads.iter().chain(writes).copied();
        if !are_apart(reads, writes) || all().any(|part| part.start > part.end) {
            return None;
        }
        let end = all().map(|part| part.end).max().unwrap_or(0);
        let list = List { first: self.parts.len(), reads: reads.len(), writes: writes.len(), end };
        self.parts.extend(all().cloned());
        self.lists.push(list);
        Some(self.lists.len() - 1)
    }

    /// The memory that they take.
    pub fn footprint(&self) -> usize {
        size_of::<Self>() + size_of_val(&self.parts[..]) + size_of_val(&self.lists[..])
    }
}

impl Arena {
    /// Borrows the parts of a list, those to read and those to write; `None` if one lies outside, or there is no such list.
    #[inline]
    pub fn lend_list<'a>(
        &'a mut self,
        lists: &'a ApartLists,
        number: usize,
    ) -> Option<(impl Iterator<Item = View<'a, u8>>, impl Iterator<Item = Target<'a, u8>>)> {
        let list = lists.lists.get(number).filter(|list| list.end <= self.len())?;
        let parts = lists.parts.get(list.first..list.first + list.reads + list.writes)?;
        let (reads, writes) = parts.split_at_checked(list.reads)?;
        let start = self.start();
        // SAFETY: all parts lie inside the arena, which is borrowed mutably for as long as what is lent lives; no part that is
        // written overlaps any other.
        let view = move |part: &Range<usize>| unsafe { View::from_raw(start.add(part.start), part.len()) };
        // SAFETY: as above.
        let target =
            move |part: &Range<usize>| unsafe { Target::from_raw(start.add(part.start), part.len()) };
        Some((reads.iter().map(view), writes.iter().map(target)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_lent_again_and_again_and_only_where_they_are_apart() {
        let mut lists = ApartLists::default();
        assert_eq!(lists.add(&[&(0..8), &(4..8)], &[&(8..16), &(16..16)]), Some(0));
        assert_eq!(lists.add(&[&(0..8)], &[&(7..9)]), None);
        assert_eq!(lists.add(&[], &[&(0..8), &(4..12)]), None);
        assert_eq!(lists.add(&[&Range { start: 8, end: 0 }], &[]), None);
        assert_eq!(lists.add(&[&(0..65)], &[]), Some(1));
        let mut arena = Arena::new(64).unwrap();
        for byte in 1..3 {
            let (reads, writes) = arena.lend_list(&lists, 0).unwrap();
            let (reads, mut writes): (Vec<_>, Vec<_>) = (reads.collect(), writes.collect());
            assert_eq!(reads.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4]);
            assert_eq!(writes.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 0]);
            writes[0].set(7, byte);
            assert_eq!(arena.read(&(14..17)), Some(&[0, byte, 0][..]));
        }
        assert!(arena.lend_list(&lists, 1).is_none(), "it lies outside");
        assert!(arena.lend_list(&lists, 2).is_none(), "there is no such list");
        assert!(Arena::default().lend_list(&lists, 0).is_none());
    }
}
