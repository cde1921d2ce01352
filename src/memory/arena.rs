//! One private block for all temporaries of a run, lent out in disjoint parts.

use super::AlignedBuf;
use std::ops::Range;

/// Operands of which lists need no memory of their own.
pub const FEW: usize = 4;

/// A private block of which several parts can be borrowed at once.
#[derive(Debug, Default)]
pub struct Arena {
    buf: AlignedBuf,
}

impl Arena {
    /// An arena of `len` bytes; `None` where the memory cannot be had.
    pub fn new(len: usize) -> Option<Self> {
        AlignedBuf::zeroed(len).map(|buf| Arena { buf })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// One part, to read; `None` if it lies outside.
    pub fn read(&self, part: &Range<usize>) -> Option<&[u8]> {
        self.buf.get(part.clone())
    }

    /// One part, to write; `None` if it lies outside.
    pub fn write(&mut self, part: &Range<usize>) -> Option<&mut [u8]> {
        self.buf.get_mut(part.clone())
    }

    /// Borrows the parts `reads` to read and the parts `writes` to write. `None` if one lies outside or one that is
    /// written overlaps another: a plan that does so is broken.
    pub fn lend<'a>(
        &'a mut self,
        reads: &'a [&Range<usize>],
        writes: &'a [&Range<usize>],
    ) -> Option<(impl Iterator<Item = &'a [u8]>, impl Iterator<Item = &'a mut [u8]>)> {
        let inside = |r: &&Range<usize>| r.start <= r.end && r.end <= self.buf.len();
        if !reads.iter().chain(writes).all(inside) || !are_apart(reads, writes) {
            return None;
        }
        let base = self.buf.as_mut_ptr();
        // SAFETY: all parts lie inside the buffer, which `self` borrows mutably for as long as the parts live; no part
        // that is written overlaps any other.
        let read = move |r: &&Range<usize>| unsafe { std::slice::from_raw_parts(base.add(r.start), r.len()) };
        // SAFETY: as above.
        let write =
            move |r: &&Range<usize>| unsafe { std::slice::from_raw_parts_mut(base.add(r.start), r.len()) };
        Some((reads.iter().map(read), writes.iter().map(write)))
    }

    /// Where its first byte is.
    pub(super) fn start(&mut self) -> *mut u8 {
        self.buf.as_mut_ptr()
    }
}

/// Whether no part that is written overlaps another.
pub(super) fn are_apart(reads: &[&Range<usize>], writes: &[&Range<usize>]) -> bool {
    let apart = |a: &Range<usize>, b: &Range<usize>| {
        a.is_empty() || b.is_empty() || a.end <= b.start || b.end <= a.start
    };
    // Nearly all operations have one output.
    match writes {
        [] => return true,
        [written] => return reads.iter().all(|read| apart(read, written)),
        _ => {}
    }
    // An operation may have as many as its client likes: of parts in order it is enough to know how far those before reach.
    let with = |list: &[&Range<usize>], written| -> Vec<(usize, usize, bool)> {
        list.iter().filter(|r| !r.is_empty()).map(|r| (r.start, r.end, written)).collect()
    };
    let mut parts = [with(reads, false), with(writes, true)].concat();
    parts.sort_unstable();
    let (mut taken, mut written_to) = (0, 0);
    parts.into_iter().all(|(start, end, written)| {
        let is_apart = start >= if written { taken } else { written_to };
        taken = taken.max(end);
        if written {
            written_to = written_to.max(end);
        }
        is_apart
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part() -> impl Strategy<Value = Range<usize>> {
        (0usize..64, 0usize..8).prop_map(|(start, len)| start..(start + len).min(64))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 32 } else { 2000 }))]

        #[test]
        fn parts_are_lent_if_and_only_if_none_that_is_written_shares_a_byte(
            reads in proptest::collection::vec(part(), 0..4),
            writes in proptest::collection::vec(part(), 0..5),
        ) {
            let mut uses = [(0, 0); 64];
            reads.iter().cloned().flatten().for_each(|byte| uses[byte].0 += 1);
            writes.iter().cloned().flatten().for_each(|byte| uses[byte].1 += 1);
            let expected = uses.iter().all(|&(read, written)| written == 0 || (read, written) == (0, 1));
            let (reads, writes): (Vec<_>, Vec<_>) = (reads.iter().collect(), writes.iter().collect());
            prop_assert_eq!(Arena::new(64).unwrap().lend(&reads, &writes).is_some(), expected);
        }
    }

    #[test]
    fn an_operation_may_have_very_many_outputs() {
        // If each were compared with each other, this would take hours.
        const MANY: usize = if cfg!(miri) { 1 << 8 } else { 1 << 20 };
        let mut arena = Arena::new(MANY + 1).unwrap();
        let writes: Vec<_> = (1..=MANY).map(|i| i..i + 1).collect();
        let writes: Vec<_> = writes.iter().collect();
        let (_, parts) = arena.lend(&[&(0..1), &(0..1)], &writes).unwrap();
        parts.last().unwrap().fill(7);
        assert_eq!(arena.read(&(MANY..MANY + 1)), Some(&[7][..]));
    }

    #[test]
    fn lends_disjoint_parts_only() {
        let mut arena = Arena::new(64).unwrap();
        let lent = |arena: &mut Arena, reads: &[Range<usize>], writes: &[Range<usize>]| {
            let (reads, writes): (Vec<_>, Vec<_>) = (reads.iter().collect(), writes.iter().collect());
            let (reads, writes) = arena.lend(&reads, &writes)?;
            let (reads, mut writes): (Vec<_>, Vec<_>) = (reads.collect(), writes.collect());
            writes.iter_mut().for_each(|part| part.fill(1));
            Some([
                reads.iter().map(|part| part.len()).collect(),
                writes.iter().map(|part| part.len()).collect(),
            ])
        };
        assert_eq!(lent(&mut arena, &[0..8, 4..8], &[8..16, 16..16]), Some([vec![8, 4], vec![8, 0]]));
        assert_eq!(arena.read(&(7..17)), Some(&[0, 1, 1, 1, 1, 1, 1, 1, 1, 0][..]));
        assert_eq!(lent(&mut arena, &[Range { start: 0, end: 8 }], &[Range { start: 7, end: 9 }]), None);
        assert_eq!(lent(&mut arena, &[], &[0..8, 4..12]), None);
        assert_eq!(lent(&mut arena, &[Range { start: 60, end: 65 }], &[]), None);
    }
}
