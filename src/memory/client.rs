//! Client memory: mapped, and reached by copying.
//!
//! A client may write its memory while we read it, and the memory may vanish when its file shrinks. So nothing here
//! hands out a reference into it: whoever needs the bytes copies them, and decides on the copy. Kernels, which decide
//! nothing, compute with them where they lie: see [`super::held`].

use super::brief::Brief;
use super::budget::Counted;
use super::file::Direction;
use super::hardware_buffer::HardwareBuffer;
use super::held::Under;
use super::pages::{self, Pages};
use super::{blocking, served, MemoryError};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What a mapping may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    ReadWrite,
}

impl Access {
    pub(super) fn reads(self) -> bool {
        self != Access::Write
    }

    pub(super) fn writes(self) -> bool {
        self != Access::Read
    }

    /// Both this and `other`.
    pub fn and(self, other: Access) -> Access {
        if self == other {
            self
        } else {
            Access::ReadWrite
        }
    }
}

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
    Brief(Brief),
    Hardware(HardwareBuffer),
}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset`, which the file must really have.
    pub fn new(fd: BorrowedFd, offset: u64, len: usize, access: Access) -> Result<Self, MemoryError> {
        let pages = Pages::of_file(fd, offset, len, access)?;
        Ok(Mapping { store: Store::Pages(pages), len, access, _counted: None })
    }

    /// As [`new`](Self::new), for memory that is read and written once: what is small is not really mapped, which holds a
    /// descriptor instead.
    pub fn brief(fd: BorrowedFd, offset: u64, len: usize, access: Access) -> Result<Self, MemoryError> {
        match Brief::of_file(fd, offset, len, access) {
            Some(brief) => Ok(Mapping { store: Store::Brief(brief), len, access, _counted: None }),
            None => Mapping::or_copy(fd, offset, len, access),
        }
    }

    /// As [`new`](Self::new), for memory that is read once: a copy serves as well where the memory cannot be mapped without
    /// waiting for another process.
    pub fn or_copy(fd: BorrowedFd, offset: u64, len: usize, access: Access) -> Result<Self, MemoryError> {
        match Mapping::new(fd, offset, len, access) {
            Err(MemoryError::Unsupported(blocking::SERVED)) => served::copy(fd, offset, len, access),
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

    /// A private copy of the first `len` bytes of `file`, which serves wherever client memory does, to read. It is made by
    /// several threads where that pays.
    pub fn private_copy(file: &File, len: usize) -> Result<Self, MemoryError> {
        Self::private_from(len, |bytes| pages::copy_file(file, bytes))
    }

    /// A private mapping of the `len` bytes that `fill` gives.
    pub(super) fn private_from(
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> std::io::Result<()>,
    ) -> Result<Self, MemoryError> {
        let counted = Counted::take(len).ok_or(MemoryError::OutOfMemory(len))?;
        let pages = Pages::filled(len, fill)?;
        Ok(Mapping { store: Store::Pages(pages), len, access: Access::Read, _counted: Some(counted) })
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

    /// The bytes of a hardware buffer.
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

    /// Checks that the memory may be used so.
    pub(super) fn check_access(&self, access: Access) -> Result<(), MemoryError> {
        if access.reads() && !self.access.reads() {
            return Err(MemoryError::Access("the memory is not readable"));
        }
        if access.writes() && !self.access.writes() {
            return Err(MemoryError::Access("the memory is not writable"));
        }
        Ok(())
    }

    /// Whether the memory is lost: its file shrank while we used it. Whoever keeps mappings drops such a one.
    pub fn vanished(&self) -> bool {
        match &self.store {
            Store::Pages(pages) => pages.vanished(),
            Store::Brief(brief) => brief.vanished(),
            Store::Hardware(buffer) => buffer.vanished(),
        }
    }

    /// `value`, which was just read here, unless it is only what the guard put in place of lost memory.
    pub(super) fn still_there<T>(&self, value: T) -> Result<T, MemoryError> {
        match self.vanished() {
            true => Err(MemoryError::Vanished),
            false => Ok(value),
        }
    }

    /// Where byte `offset` is for as long as the mapping lives. `None` for what is not mapped, and for device memory, every
    /// access to which must be announced.
    pub(super) fn pointer(&self, offset: usize) -> Option<*mut u8> {
        match &self.store {
            Store::Pages(pages) => pages.pointer().map(|start| start.wrapping_add(offset)),
            Store::Brief(_) | Store::Hardware(_) => None,
        }
    }

    /// Begins an access that lasts until what this gives is ended; says where the memory starts. `None` where it cannot
    /// last.
    pub(super) fn hold(&self, access: Access) -> Result<Option<(*mut u8, Under<'_>)>, MemoryError> {
        match &self.store {
            Store::Pages(pages) => {
                let (start, announced) = pages.begin(access.into())?;
                Ok(Some((start, announced.map_or(Under::Nothing, Under::Announcement))))
            }
            Store::Brief(_) => Ok(None),
            Store::Hardware(buffer) => {
                let locked = buffer.try_lock(access.into())?;
                Ok(locked.map(|locked| (locked.start(), Under::Lock(locked))))
            }
        }
    }

    /// Copies the bytes from `offset` on, which are there to be read, into `to`.
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), MemoryError> {
        // SAFETY: the caller checked that so many bytes of the mapping are there, the mapping lives as long as `self`, and
        // `to` is memory of ours. libc's memcpy is opaque to the compiler, so a client writing meanwhile tears bytes at
        // worst.
        let copy = |start: *mut u8| unsafe {
            libc::memcpy(to.as_mut_ptr().cast(), start.wrapping_add(offset).cast(), to.len());
        };
        self.still_there(())?;
        match &self.store {
            Store::Pages(pages) => pages.around(Direction::Read, copy),
            Store::Hardware(buffer) => buffer.around(Direction::Read, copy),
            Store::Brief(brief) => brief.read(offset, to),
        }?;
        // What was copied out of a region that vanished meanwhile is partly zeroes.
        self.still_there(())
    }

    /// Copies `from` to `offset`, where there is room for it that may be written.
    fn write(&self, offset: usize, from: &[u8]) -> Result<(), MemoryError> {
        // SAFETY: as in `read`, with source and destination exchanged.
        let copy = |start: *mut u8| unsafe {
            libc::memcpy(start.wrapping_add(offset).cast(), from.as_ptr().cast(), from.len());
        };
        self.still_there(())?;
        match &self.store {
            Store::Pages(pages) => pages.around(Direction::Write, copy),
            Store::Hardware(buffer) => buffer.around(Direction::Write, copy),
            Store::Brief(brief) => brief.write(offset, from),
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

/// A part of a mapping, with its bounds checked once.
#[derive(Clone, Debug)]
pub struct ClientSlice {
    mapping: Arc<Mapping>,
    offset: usize,
    len: usize,
}

impl ClientSlice {
    /// `len` bytes of `mapping` from `offset`.
    pub fn new(mapping: Arc<Mapping>, offset: usize, len: usize) -> Result<Self, MemoryError> {
        if offset.checked_add(len).is_none_or(|end| end > mapping.len()) {
            return Err(MemoryError::Invalid(format!(
                "bytes {offset} to {offset}+{len} lie outside of a memory of {}",
                mapping.len()
            )));
        }
        Ok(ClientSlice { mapping, offset, len })
    }

    /// All of `mapping`.
    pub fn whole(mapping: Arc<Mapping>) -> Self {
        let len = mapping.len();
        ClientSlice { mapping, offset: 0, len }
    }

    /// `len` bytes of this slice from `offset`.
    pub fn part(&self, offset: usize, len: usize) -> Result<Self, MemoryError> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(MemoryError::Invalid(format!("{offset}+{len} lie outside of {} bytes", self.len)));
        }
        ClientSlice::new(self.mapping.clone(), self.offset + offset, len)
    }

    /// `len` bytes from `offset` of the memory that this is a slice of.
    pub fn sibling(&self, offset: usize, len: usize) -> Result<Self, MemoryError> {
        ClientSlice::new(self.mapping.clone(), offset, len)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory that it is a part of.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Where in its memory it starts.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Whether some bytes are in both slices. That two mappings are of one file is not seen.
    pub fn overlaps(&self, other: &ClientSlice) -> bool {
        Arc::ptr_eq(&self.mapping, &other.mapping)
            && self.offset < other.offset + other.len
            && other.offset < self.offset + self.len
    }

    /// Copies the first bytes of the slice into `to`, which must not be longer than it.
    pub fn read(&self, to: &mut [u8]) -> Result<(), MemoryError> {
        self.mapping.check_access(Access::Read)?;
        self.check(to.len())?;
        self.mapping.read(self.offset, to)
    }

    /// Copies `from`, which must not be longer than the slice, to its start.
    pub fn write(&self, from: &[u8]) -> Result<(), MemoryError> {
        self.mapping.check_access(Access::Write)?;
        self.check(from.len())?;
        self.mapping.write(self.offset, from)
    }

    /// Copies the whole slice to the start of `to`, which must not be shorter.
    pub fn copy_to(&self, to: &ClientSlice) -> Result<(), MemoryError> {
        // Through memory of ours, for the two may overlap: a client can hand over one file twice.
        let mut chunk = [0; 64 << 10];
        to.check(self.len)?;
        let mut done = 0;
        while done < self.len {
            let len = chunk.len().min(self.len - done);
            let part =
                |slice: &ClientSlice| ClientSlice::new(slice.mapping.clone(), slice.offset + done, len);
            part(self)?.read(&mut chunk[..len])?;
            part(to)?.write(&chunk[..len])?;
            done += len;
        }
        Ok(())
    }

    /// Where the slice starts, for [`super::Weights`] only: what lies there may change or vanish at any moment.
    pub(super) fn start_to_read(&self) -> Result<*const u8, MemoryError> {
        self.mapping.check_access(Access::Read)?;
        let start = self.mapping.pointer(self.offset);
        start
            .map(|start| start.cast_const())
            .ok_or(MemoryError::Unsupported("this memory must be copied to be computed with"))
    }

    /// A private copy of the whole slice.
    pub fn to_private(&self) -> Result<super::AlignedBuf, MemoryError> {
        let mut copy = super::AlignedBuf::zeroed(self.len).ok_or(MemoryError::OutOfMemory(self.len))?;
        self.read(&mut copy)?;
        Ok(copy)
    }

    fn check(&self, len: usize) -> Result<(), MemoryError> {
        if len > self.len {
            return Err(MemoryError::Invalid(format!("{len} bytes do not fit a slice of {}", self.len)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

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
    fn what_has_no_size_is_refused() {
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        assert!(Mapping::new(reader.as_fd(), 0, 1, Access::Read).is_err());
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(Mapping::new(null.as_fd(), 0, 1, Access::Read).is_err());
    }
}
