//! Client memory: mapped, and reached by copying.
//!
//! A client may write its memory while we read it, and the memory may vanish when its file shrinks. So nothing here
//! hands out a reference into it: code that needs the bytes copies them, and decides on the copy. Kernels, which decide
//! nothing, compute with them where they lie: see [`super::accessed`].

use super::access::Access;
use super::budget::Counted;
use super::file::{Announced, Direction, DmaBuf};
use super::hardware_buffer::{HardwareBuffer, Locked};
use super::image::Rows;
use super::pages::{self, Pages};
use super::unmapped::Unmapped;
use super::view::copy_shared;
use super::{blocking, served, MemoryError};
use std::fs::File;
use std::os::fd::BorrowedFd;

/// Client memory that can be reached: pages of a file, or a hardware buffer. Let go of when dropped.
pub struct Mapping {
    store: Store,
    len: usize,
    access: Access,
    /// Of what is private.
    _counted: Option<Counted>,
}

enum Store {
    Pages(Pages),
    Unmapped(Unmapped),
    Hardware(HardwareBuffer),
}

/// What must happen when an access ends; what is dropped ends too, but tells no errors.
pub(super) enum Ending<'m> {
    Nothing,
    Announcement(Announced<'m>),
    Lock(Locked<'m>),
}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset`, which the file must really have.
    pub fn new(fd: BorrowedFd, offset: u64, len: usize, access: Access) -> Result<Self, MemoryError> {
        let pages = Pages::of_file(fd, offset, len, access)?;
        Ok(Mapping { store: Store::Pages(pages), len, access, _counted: None })
    }

    /// As [`new`](Self::new), for memory that is read and written once: what is small is not really mapped before it is
    /// written, which holds a descriptor instead.
    pub fn for_one_use(fd: BorrowedFd, offset: u64, len: usize, access: Access) -> Result<Self, MemoryError> {
        match Unmapped::of_file(fd, offset, len, access) {
            Some(file) => Ok(Mapping { store: Store::Unmapped(file), len, access, _counted: None }),
            None => Mapping::or_copy(fd, offset, len, access),
        }
    }

    /// As [`new`](Self::new), for memory that is read once: a copy serves as well where the memory cannot be mapped without
    /// waiting for another process.
    pub fn or_copy(fd: BorrowedFd, offset: u64, len: usize, access: Access) -> Result<Self, MemoryError> {
        match Mapping::new(fd, offset, len, access) {
            Err(MemoryError::Unsupported(blocking::SERVED)) => {
                served::copy(fd, offset, len, access).map(|copy| Mapping::private(len, copy))
            }
            other => other,
        }
    }

    /// Maps the first `len` bytes of `fd` for reading. If the file, which must have [`super::guarded_len`] bytes, loses any of
    /// them from now on, then the mapping has vanished, whether somebody reads there or not: where a file ends within a
    /// page, what it lost of that page reads as zeroes and raises no signal, so the page after its data has to tell. It
    /// has also vanished if the bytes at [`super::stamp_start`] change, as they do when a driver, of this process or
    /// another, writes the file anew.
    pub fn guarded(fd: BorrowedFd, len: usize) -> Result<Self, MemoryError> {
        Ok(Mapping {
            store: Store::Pages(Pages::guarded(fd, len)?),
            len,
            access: Access::Read,
            _counted: None,
        })
    }

    /// A private copy of the first `len` bytes of `file`, which serves wherever client memory does, to read; and the copy's
    /// checksum, as [`super::checksum_share`] has it. The calling thread asks before each stretch whether the work `stops`, with
    /// an error, and so may wait there; other threads help where that pays, as long as they `may_help`.
    pub fn private_copy(
        file: &File,
        len: usize,
        stops: &dyn Fn() -> bool,
        may_help: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Self, u64), MemoryError> {
        let mut sum = 0;
        let copy = pages::filled(len, |bytes| {
            sum = pages::copy_file(file, bytes, stops, may_help)?;
            Ok(())
        })?;
        Ok((Mapping::private(len, copy), sum))
    }

    /// Private pages as a mapping, to be read.
    pub(super) fn private(len: usize, (pages, counted): (Pages, Counted)) -> Self {
        Mapping { store: Store::Pages(pages), len, access: Access::Read, _counted: Some(counted) }
    }

    /// A private anonymous mapping, which serves wherever client memory does.
    pub fn anonymous(len: usize) -> Result<Self, MemoryError> {
        Ok(Mapping {
            store: Store::Pages(Pages::anonymous(len)?),
            len,
            access: Access::ReadWrite,
            _counted: None,
        })
    }

    /// The bytes of a hardware buffer's pixels.
    pub(super) fn hardware(buffer: HardwareBuffer) -> Self {
        let (len, access) = (buffer.len(), buffer.access());
        Mapping { store: Store::Hardware(buffer), len, access, _counted: None }
    }

    /// Size in bytes of what the client shares.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether an access may have to wait for a device.
    pub(super) fn may_be_busy(&self) -> bool {
        match &self.store {
            Store::Pages(pages) => pages.pointer().is_none(),
            Store::Unmapped(_) => false,
            Store::Hardware(_) => true,
        }
    }

    /// The dma-bufs that it lies in: what tells whether a device is busy with it.
    fn dma_bufs(&self) -> &[DmaBuf] {
        match &self.store {
            Store::Pages(pages) => pages.dma_bufs(),
            Store::Unmapped(_) => &[],
            Store::Hardware(buffer) => buffer.dma_bufs(),
        }
    }

    /// Whether devices are done with it now, as far as an access has to wait for that and they tell.
    pub fn is_idle(&self, access: Access) -> bool {
        self.dma_bufs().iter().all(|dma_buf| dma_buf.is_done(access, 0))
    }

    /// Waits until devices are done with what they do with it now, as far as they tell. What begins an access waits for that as well, but
    /// then nothing ends the wait: here it is an error of `go_on`, which is asked every so often.
    pub fn wait_until_idle<E>(
        &self,
        access: Access,
        mut go_on: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        self.dma_bufs().iter().try_for_each(|dma_buf| dma_buf.wait_until_done(access, &mut go_on))
    }

    /// Whether it is a hardware buffer, which the CPU may use as far as its maker asked for that.
    pub fn is_hardware_buffer(&self) -> bool {
        matches!(self.store, Store::Hardware(_))
    }

    /// Whether it is a hardware buffer that is no BLOB.
    pub fn is_image(&self) -> bool {
        matches!(&self.store, Store::Hardware(buffer) if buffer.is_image())
    }

    /// Checks that the memory may be used so.
    pub(super) fn check_access(&self, access: Access) -> Result<(), MemoryError> {
        // A hardware buffer may have been made for something else than the CPU: its client is not at fault.
        let refused = if self.is_hardware_buffer() { MemoryError::Unsupported } else { MemoryError::Access };
        if access.reads() && !self.access.reads() {
            return Err(refused("the memory is not readable"));
        }
        if access.writes() && !self.access.writes() {
            return Err(refused("the memory is not writable"));
        }
        Ok(())
    }

    /// Whether the memory is lost: its file shrank while we used it. A cache of mappings drops such a one.
    pub fn vanished(&self) -> bool {
        match &self.store {
            Store::Pages(pages) => pages.vanished(),
            Store::Unmapped(file) => file.vanished(),
            Store::Hardware(buffer) => buffer.vanished(),
        }
    }

    /// `value`, which was just read here, unless it is only what the guard put in place of lost memory.
    pub(super) fn still_there<T>(&self, value: T) -> Result<T, MemoryError> {
        match self.vanished() {
            true => {
                self.give_back_lost();
                Err(MemoryError::Vanished)
            }
            false => Ok(value),
        }
    }

    /// Gives back what was written to pages that the guard put in place of lost memory. A hardware buffer's goes when the buffer
    /// is unlocked.
    pub(super) fn give_back_lost(&self) {
        match &self.store {
            Store::Pages(pages) => pages.give_back_lost(),
            Store::Unmapped(file) => file.give_back_lost(),
            Store::Hardware(_) => {}
        }
    }

    /// Where byte `offset` is for as long as the mapping lives. `None` for what is not mapped, and for device memory, every
    /// access to which must be announced.
    pub(super) fn pointer(&self, offset: usize) -> Option<*mut u8> {
        match &self.store {
            Store::Pages(pages) => pages.pointer().map(|start| start.wrapping_add(offset)),
            Store::Unmapped(_) | Store::Hardware(_) => None,
        }
    }

    /// Begins an access that lasts until what this gives is ended; says where the memory starts, and how its bytes lie from
    /// there. `None` where it cannot last.
    pub(super) fn begin(&self, access: Access) -> Result<Option<(*mut u8, Rows, Ending<'_>)>, MemoryError> {
        match &self.store {
            Store::Pages(pages) => {
                let (start, announced) = pages.begin(access.into())?;
                let ending = announced.map_or(Ending::Nothing, Ending::Announcement);
                Ok(Some((start, Rows::plain(self.len), ending)))
            }
            Store::Unmapped(_) => Ok(None),
            Store::Hardware(buffer) => {
                let locked = buffer.try_lock(access.into())?;
                Ok(locked.map(|locked| {
                    let (start, rows) = locked.place();
                    (start, rows, Ending::Lock(locked))
                }))
            }
        }
    }

    /// Whether each access finds the bytes where the one before did: a hardware buffer may lie elsewhere each time.
    pub fn lies_still(&self) -> bool {
        matches!(self.store, Store::Pages(_))
    }

    /// Copies the bytes from `offset` on, which are there to be read, into `to`.
    pub(super) fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), MemoryError> {
        let mut copy = |start: *mut u8, rows: Rows| {
            for (at, part) in rows.runs(offset, to.len()) {
                let to = &mut to[part];
                // SAFETY: the caller checked that so many bytes of the mapping are there, the mapping lives as long as
                // `self`, and `to` is memory of ours.
                unsafe { copy_shared(to.as_mut_ptr(), start.wrapping_add(at), to.len()) };
            }
        };
        self.still_there(())?;
        match &self.store {
            Store::Pages(pages) => pages.around(Direction::Read, |start| copy(start, Rows::plain(self.len))),
            Store::Hardware(buffer) => buffer.around(Direction::Read, copy),
            Store::Unmapped(file) => file.read(offset, to),
        }?;
        // What was copied out of a region that vanished meanwhile is partly zeroes.
        self.still_there(())
    }

    /// Copies `from` to `offset`, where there is room for it that may be written.
    pub(super) fn write(&self, offset: usize, from: &[u8]) -> Result<(), MemoryError> {
        let copy = |start: *mut u8, rows: Rows| {
            for (at, part) in rows.runs(offset, from.len()) {
                let from = &from[part];
                // SAFETY: as in `read`, with source and destination exchanged.
                unsafe { libc::memcpy(start.wrapping_add(at).cast(), from.as_ptr().cast(), from.len()) };
            }
        };
        self.still_there(())?;
        match &self.store {
            Store::Pages(pages) => pages.around(Direction::Write, |start| copy(start, Rows::plain(self.len))),
            Store::Hardware(buffer) => buffer.around(Direction::Write, copy),
            Store::Unmapped(file) => {
                file.to_write()?.around(Direction::Write, |start| copy(start, Rows::plain(self.len)))
            }
        }?;
        // What was copied into a region that vanished meanwhile is partly lost.
        self.still_there(())
    }
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping of {} bytes, {:?}", self.len, self.access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ClientSlice;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::sync::Arc;

    fn file(bytes: &[u8]) -> std::fs::File {
        let fd = nix::sys::memfd::memfd_create(c"test", nix::sys::memfd::MFdFlags::empty()).unwrap();
        let mut file = std::fs::File::from(fd);
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn reads_and_writes_at_unaligned_offsets() {
        let file = file(&[7; 5000]);
        let mapping = Arc::new(Mapping::new(file.as_fd(), 4097, 900, Access::ReadWrite).unwrap());
        let slice = ClientSlice::new(mapping.clone(), 10, 4).unwrap();
        slice.write(&[1, 2, 3, 4]).unwrap();
        let mut whole = [0; 900];
        ClientSlice::new(mapping, 0, 900).unwrap().read(&mut whole).unwrap();
        assert_eq!(whole[9..15], [7, 1, 2, 3, 4, 7]);
    }

    #[test]
    fn lies_about_sizes_are_refused() {
        let file = file(&[0; 100]);
        for (offset, len) in [(0, 101), (100, 1), (u64::MAX, 1), (1, usize::MAX), (0, 0)] {
            assert!(Mapping::new(file.as_fd(), offset, len, Access::Read).is_err(), "{offset} {len}");
        }
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, 100, Access::Read).unwrap());
        assert!(ClientSlice::new(mapping.clone(), 1, 100).is_err());
        assert!(ClientSlice::new(mapping.clone(), usize::MAX, 2).is_err());
        let slice = ClientSlice::new(mapping, 0, 4).unwrap();
        assert!(slice.read(&mut [0; 5]).is_err());
        assert!(matches!(slice.write(&[0]), Err(MemoryError::Access(_))));
    }

    #[test]
    fn a_guarded_mapping_misses_whatever_its_file_loses() {
        let len = 5000;
        let whole = crate::memory::guarded_len(len).unwrap();
        for left in [0, 1, 4096, len - 1, len, whole - 1] {
            let file = file(&[7; 5000]);
            assert!(Mapping::guarded(file.as_fd(), len as usize).is_err(), "it is too short");
            file.set_len(whole).unwrap();
            let mapping = Arc::new(Mapping::guarded(file.as_fd(), len as usize).unwrap());
            assert_eq!((mapping.len(), mapping.vanished()), (5000, false));
            file.set_len(whole + 1).unwrap();
            assert!(!mapping.vanished());
            file.set_len(left).unwrap();
            assert!(mapping.vanished(), "{left} bytes are left");
            assert!(matches!(ClientSlice::whole(mapping).read(&mut [0]), Err(MemoryError::Vanished)));
        }
    }

    #[test]
    fn a_guarded_mapping_misses_a_file_that_was_written_anew() {
        use std::os::unix::fs::FileExt;
        let (file, len) = (file(&[7; 5000]), 5000);
        file.set_len(crate::memory::guarded_len(len).unwrap()).unwrap();
        file.write_all_at(&[1; 8], crate::memory::stamp_start(len).unwrap()).unwrap();
        let mapping = Mapping::guarded(file.as_fd(), len as usize).unwrap();
        file.write_all_at(&[8; 5000], 0).unwrap();
        assert!(!mapping.vanished(), "values may change");
        file.write_all_at(&[2], crate::memory::stamp_start(len).unwrap()).unwrap();
        assert!(mapping.vanished());
        file.write_all_at(&[1], crate::memory::stamp_start(len).unwrap()).unwrap();
        assert!(mapping.vanished(), "it does not come back");
    }

    #[test]
    fn bytes_of_clients_memory_count_while_they_are_mapped() {
        const LEN: usize = 64 << 20;
        let quota = crate::quota::Quota::new(8 * LEN as u64, 4 * LEN as u64);
        let budget = crate::memory::Budget::new(1 << 30).with_mapped(quota.clone());
        let _account = budget.on_account_of(1);
        let file = file(&[]);
        file.set_len(LEN as u64).unwrap();
        let map = || Mapping::new(file.as_fd(), 0, LEN, Access::ReadWrite);
        let mut mapped: Vec<_> = std::iter::from_fn(|| map().ok()).take(9).collect();
        assert_eq!(mapped.len(), 4);
        assert!(matches!(map(), Err(MemoryError::Exhausted(_))));
        {
            let _other = budget.on_account_of(2);
            map().unwrap();
        }
        mapped.pop();
        // What is the driver's own, or fails, takes none of it.
        let _own = Mapping::anonymous(LEN).unwrap();
        assert!(matches!(Mapping::new(file.as_fd(), 1, LEN, Access::Read), Err(MemoryError::Invalid(_))));
        assert!(quota.held() == 3 * LEN as u64 && map().is_ok());
        drop(mapped);
        assert_eq!(quota.held(), 0);
    }

    #[test]
    fn what_has_no_size_is_refused() {
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        assert!(Mapping::new(reader.as_fd(), 0, 1, Access::Read).is_err());
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(Mapping::new(null.as_fd(), 0, 1, Access::Read).is_err());
    }
}
