//! One private block for all temporaries of a run, lent out in disjoint parts.

use super::AlignedBuf;
use std::ops::Range;

/// Parts on loan: those to read, those to write.
pub type Loan<'a> = (Vec<&'a [u8]>, Vec<&'a mut [u8]>);

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
    pub fn lend(&mut self, reads: &[Range<usize>], writes: &[Range<usize>]) -> Option<Loan<'_>> {
        let inside = |r: &Range<usize>| r.start <= r.end && r.end <= self.buf.len();
        let disjoint = |a: &Range<usize>, b: &Range<usize>| {
            a.is_empty() || b.is_empty() || a.end <= b.start || b.end <= a.start
        };
        let sound = reads.iter().chain(writes).all(inside)
            && writes.iter().enumerate().all(|(i, w)| {
                reads.iter().all(|r| disjoint(w, r)) && writes[..i].iter().all(|other| disjoint(w, other))
            });
        if !sound {
            return None;
        }
        let base = self.buf.as_mut_ptr();
        // SAFETY: all parts lie inside the buffer, which `self` borrows mutably for as long as the parts live; no part
        // that is written overlaps any other.
        let read = |r: &Range<usize>| unsafe { std::slice::from_raw_parts(base.add(r.start), r.len()) };
        // SAFETY: as above.
        let write = |r: &Range<usize>| unsafe { std::slice::from_raw_parts_mut(base.add(r.start), r.len()) };
        Some((reads.iter().map(read).collect(), writes.iter().map(write).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init)] // one part is meant
    fn lends_disjoint_parts_only() {
        let mut arena = Arena::new(64).unwrap();
        let (reads, mut writes) = arena.lend(&[0..8, 4..8], &[8..16, 16..16]).unwrap();
        writes[0].fill(1);
        assert_eq!((reads[0].len(), reads[1].len(), writes[1].len()), (8, 4, 0));
        assert!(arena.lend(&[0..8], &[7..9]).is_none());
        assert!(arena.lend(&[], &[0..8, 4..12]).is_none());
        assert!(arena.lend(&[60..65], &[]).is_none());
    }
}
