//! Client memory under a run: announced and locked from its beginning to its end, computed with where it lies.
//!
//! What lies there may change or vanish at any moment. Kernels get [`View`]s and [`Target`]s of it, everything else
//! copies.

use super::image::Rows;
use super::mapping::Ending;
use super::view::{Target, View};
use super::{Access, ClientSlice, Mapping, MemoryError};

/// A mapping that is being read, written or both for as long as this lives.
pub struct Accessed<'m> {
    mapping: &'m Mapping,
    start: *mut u8,
    rows: Rows,
    access: Access,
    ending: Ending<'m>,
    _let_go: LetGo<'m>,
}

/// An access that ends, however it does: what it wrote to pages in place of lost memory is given back, which a mapping that is kept
/// would hold on to.
struct LetGo<'m>(&'m Mapping);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.give_back_lost();
    }
}

const NOT_THIS: MemoryError = MemoryError::Access("the memory is not accessed for this");

impl<'m> Accessed<'m> {
    /// Begins an access to `mapping`. `None` where it can, right now, only be copied from and to.
    pub fn new(mapping: &'m Mapping, access: Access) -> Result<Option<Self>, MemoryError> {
        mapping.check_access(access)?;
        mapping.still_there(())?;
        let begun = mapping.begin(access)?;
        let accessed = |(start, rows, ending)| {
            let let_go = LetGo(mapping);
            Accessed { mapping, start, rows, access, ending, _let_go: let_go }
        };
        Ok(begun.map(accessed))
    }

    /// What lies in `slice`, to be computed with. `None` if it is a slice of other memory, parted by padding, or not to be
    /// read.
    pub fn view(&self, slice: &ClientSlice) -> Option<View<'_, u8>> {
        let may = self.rows.are_plain() && self.may_read(slice, slice.len());
        // SAFETY: the slice lies inside of the mapping, which is readable, without padding, and outlives `self`.
        may.then(|| unsafe { View::from_raw(self.start.wrapping_add(slice.offset()), slice.len()) })
    }

    /// The first `len` bytes of `slice`, to be written. `None` if it is a slice of other memory, parted by padding, too
    /// short, or not to be written.
    pub fn target(&self, slice: &ClientSlice, len: usize) -> Option<Target<'_, u8>> {
        let may = self.rows.are_plain() && self.may_write(slice, len);
        // SAFETY: the slice lies inside of the mapping, which is writable, without padding, outlives `self`, and has no
        // references into it.
        may.then(|| unsafe { Target::from_raw(self.start.wrapping_add(slice.offset()), len) })
    }

    /// Copies the first bytes of `slice` into `to`, which must not be longer than it.
    pub fn read(&self, slice: &ClientSlice, to: &mut [u8]) -> Result<(), MemoryError> {
        if !self.may_read(slice, to.len()) {
            return Err(NOT_THIS);
        }
        for (at, part) in self.rows.runs(slice.offset(), to.len()) {
            // SAFETY: as in `view`; neighbours of the slice's first bytes lie there.
            let view = unsafe { View::from_raw(self.start.wrapping_add(at).cast_const(), part.len()) };
            view.copy_to(&mut to[part]);
        }
        self.check()
    }

    /// Copies `from`, which must not be longer than `slice`, to its start.
    pub fn write(&self, slice: &ClientSlice, from: &[u8]) -> Result<(), MemoryError> {
        if !self.may_write(slice, from.len()) {
            return Err(NOT_THIS);
        }
        for (at, part) in self.rows.runs(slice.offset(), from.len()) {
            // SAFETY: as in `target`; neighbours of the slice's first bytes lie there.
            let mut target = unsafe { Target::from_raw(self.start.wrapping_add(at), part.len()) };
            target.copy_from(0, &from[part]);
        }
        self.check()
    }

    /// Checks that what was read here so far is the client's, not what the guard put in place of lost memory.
    pub fn check(&self) -> Result<(), MemoryError> {
        if let Ending::Lock(locked) = &self.ending {
            locked.note_loss();
        }
        self.mapping.still_there(())
    }

    /// Ends the access. What vanished during it was partly read as zeroes, what was written there partly lost.
    pub fn end(self) -> Result<(), MemoryError> {
        match self.ending {
            Ending::Nothing => {}
            Ending::Announcement(announced) => announced.end()?,
            Ending::Lock(locked) => locked.end()?,
        }
        self.mapping.still_there(())
    }

    fn may_read(&self, slice: &ClientSlice, len: usize) -> bool {
        self.has(slice, len) && self.access.reads()
    }

    fn may_write(&self, slice: &ClientSlice, len: usize) -> bool {
        self.has(slice, len) && self.access.writes()
    }

    fn has(&self, slice: &ClientSlice, len: usize) -> bool {
        std::ptr::eq(self.mapping, slice.mapping()) && len <= slice.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::Arc;

    #[test]
    fn slices_are_reached_where_they_lie_and_only_those_of_the_memory() {
        let mapping = |len| Arc::new(Mapping::anonymous(len).unwrap());
        let (whole, other) = (ClientSlice::whole(mapping(100)), ClientSlice::whole(mapping(100)));
        let part = whole.part(3, 4).unwrap();
        let accessed = Accessed::new(whole.mapping(), Access::ReadWrite).unwrap().unwrap();
        accessed.target(&part, 4).unwrap().copy_from(0, &[1, 2, 3, 4]);
        assert_eq!((accessed.view(&whole).unwrap().get(4), accessed.view(&part).unwrap().len()), (2, 4));
        assert!(accessed.view(&other).is_none() && accessed.target(&other, 1).is_none());
        assert!(accessed.write(&other, &[0]).is_err() && accessed.read(&other, &mut [0]).is_err());
        accessed.end().unwrap();
        assert_eq!(whole.to_private().unwrap()[2..8], [0, 1, 2, 3, 4, 0]);
    }

    #[test]
    fn what_vanishes_meanwhile_is_told_at_the_end() {
        let fd = nix::sys::memfd::memfd_create(c"accessed", nix::sys::memfd::MFdFlags::empty()).unwrap();
        let file = std::fs::File::from(fd);
        for touch in [false, true] {
            file.set_len(9000).unwrap();
            let mapping = Mapping::new(file.as_fd(), 0, 9000, Access::Read).unwrap();
            assert!(matches!(Accessed::new(&mapping, Access::Write), Err(MemoryError::Access(_))));
            let slice = ClientSlice::whole(Arc::new(mapping));
            let accessed = Accessed::new(slice.mapping(), Access::Read).unwrap().unwrap();
            file.set_len(0).unwrap();
            // Nobody misses what was not read.
            assert!(!touch || accessed.view(&slice).unwrap().get(8999) == 0);
            assert_eq!(accessed.end().is_err(), touch);
        }
    }
}
