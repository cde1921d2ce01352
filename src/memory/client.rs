//! Client memory: mapped, and reached only by copying.
//!
//! A client may write its memory while we read it, and the memory may vanish when its file shrinks. So nothing here
//! hands out a reference into it: whoever needs the bytes copies them, and decides on the copy.

use super::file::{self, Direction, DmaBuf};
use super::guard::Region;
use super::MemoryError;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

/// What a mapping may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    ReadWrite,
}

impl Access {
    fn reads(self) -> bool {
        self != Access::Write
    }

    fn writes(self) -> bool {
        self != Access::Read
    }
}

/// A shared mapping of a client's file; unmapped when dropped.
pub struct Mapping {
    /// Start of the mapping, page aligned.
    base: *mut libc::c_void,
    mapped: usize,
    /// Where the client's bytes start within the mapping: its offset need not be page aligned.
    skip: usize,
    len: usize,
    access: Access,
    /// The watch over memory that could vanish; our own and sealed memory has none.
    region: Option<Region>,
    /// Where the page starts that tells whether the file is whole.
    sentinel: Option<usize>,
    dma_buf: Option<DmaBuf>,
}

// SAFETY: the mapping is plain memory, owned until drop; all access is by copying through raw pointers, which is as
// sound from one thread as from another.
unsafe impl Send for Mapping {}
// SAFETY: as above; racing copies may tear, which callers must expect of client memory anyway.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset`, which the file must really have.
    pub fn new(fd: BorrowedFd, offset: u64, len: usize, access: Access) -> Result<Self, MemoryError> {
        if len == 0 {
            return Err(MemoryError::Invalid("a memory of no bytes".into()));
        }
        let end = offset
            .checked_add(len as u64)
            .ok_or_else(|| MemoryError::Invalid("offset and size overflow".into()))?;
        let file::Facts { size, dma_buf } = file::examine(fd)?;
        if end > size {
            return Err(MemoryError::Invalid(format!(
                "the memory ends at byte {end}, but its file has only {size}"
            )));
        }
        let skip = (offset % page_size()) as usize;
        let mapped =
            len.checked_add(skip).ok_or_else(|| MemoryError::Invalid("offset and size overflow".into()))?;
        let start = libc::off_t::try_from(offset - skip as u64)
            .map_err(|_| MemoryError::Invalid(format!("offset {offset} is too large")))?;
        let base = map_shared(fd, start, mapped, access).map_err(|error| match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => MemoryError::Access(match access {
                Access::Read => "the memory's file descriptor does not allow reading",
                Access::Write => "the memory's file descriptor does not allow writing",
                Access::ReadWrite => "the memory's file descriptor does not allow both reading and writing",
            }),
            _ => MemoryError::Map(error),
        })?;
        // From here on it is unmapped if anything fails.
        let mut mapping =
            Mapping { base, mapped, skip, len, access, region: None, sentinel: None, dma_buf: None };
        // To watch is cheaper than to ask for seals, so these count only when there are no watches left.
        match Region::watch(base as usize, mapped) {
            Ok(region) => mapping.region = Some(region),
            Err(MemoryError::Exhausted(_)) if file::cannot_shrink(fd) => {}
            Err(error) => return Err(error),
        }
        if dma_buf {
            mapping.dma_buf = Some(DmaBuf::new(fd)?);
        }
        Ok(mapping)
    }

    /// Maps the first `len` bytes of `fd` for reading. If the file, which must have [`guarded_len`] bytes, loses any of
    /// them from now on, then the mapping has vanished, whether somebody reads there or not: where a file ends within a
    /// page, what it lost of that page reads as zeroes and raises no signal, so the page after its data has to tell.
    pub fn guarded(fd: BorrowedFd, len: usize) -> Result<Self, MemoryError> {
        let whole = guarded_len(len as u64).and_then(|whole| usize::try_from(whole).ok());
        let whole = whole.ok_or_else(|| MemoryError::Invalid(format!("{len} bytes are too many")))?;
        let mut mapping = Mapping::new(fd, 0, whole, Access::Read)?;
        (mapping.len, mapping.sentinel) = (len, Some(whole - 1));
        Ok(mapping)
    }

    /// A private anonymous mapping, which serves wherever client memory does.
    pub fn anonymous(len: usize) -> Result<Self, MemoryError> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len.max(1),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(MemoryError::Map(std::io::Error::last_os_error()));
        }
        let (mapped, access) = (len.max(1), Access::ReadWrite);
        Ok(Mapping { base, mapped, skip: 0, len, access, region: None, sentinel: None, dma_buf: None })
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

    /// Whether the memory is lost: its file shrank while we used it. Whoever keeps mappings drops such a one.
    pub fn vanished(&self) -> bool {
        if let Some(at) = self.sentinel {
            // SAFETY: a byte of the mapping, which lives as long as `self`. If its page is lost, the guard puts another
            // in its place and takes note.
            unsafe { self.pointer(at).read_volatile() };
        }
        self.region.as_ref().is_some_and(Region::vanished)
    }

    /// Whether it is a dma-buf, every access to which must be announced.
    pub(super) fn is_device_memory(&self) -> bool {
        self.dma_buf.is_some()
    }

    /// `value`, which was just read here, unless it is only what the guard put in place of lost memory.
    pub(super) fn still_there<T>(&self, value: T) -> Result<T, MemoryError> {
        match self.vanished() {
            true => Err(MemoryError::Vanished),
            false => Ok(value),
        }
    }

    pub(super) fn pointer(&self, offset: usize) -> *mut u8 {
        self.base.cast::<u8>().wrapping_add(self.skip + offset)
    }

    /// Runs `copy`, which copies in or out of this mapping and nothing else, with all that must happen around it.
    fn around(&self, direction: Direction, copy: impl FnOnce()) -> Result<(), MemoryError> {
        if self.vanished() {
            return Err(MemoryError::Vanished);
        }
        if let Some(dma_buf) = &self.dma_buf {
            dma_buf.begin(direction)?;
        }
        copy();
        if let Some(dma_buf) = &self.dma_buf {
            dma_buf.end(direction)?;
        }
        // What was copied out of a region that vanished meanwhile is partly zeroes, what was copied in partly lost.
        self.still_there(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // The watch ends first: once unmapped, the addresses may be anybody's.
        self.region = None;
        // SAFETY: exactly the region that mmap gave us; nobody holds a reference into it.
        unsafe { libc::munmap(self.base, self.mapped) };
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

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the first bytes of the slice into `to`, which must not be longer than it.
    pub fn read(&self, to: &mut [u8]) -> Result<(), MemoryError> {
        if !self.mapping.access.reads() {
            return Err(MemoryError::Access("the memory is not readable"));
        }
        self.check(to.len())?;
        let from = self.mapping.pointer(self.offset);
        // SAFETY: source bounds were checked here and at creation, the mapping lives as long as `self`, and `to` is
        // memory of ours. libc's memcpy is opaque to the compiler, so a client writing meanwhile tears bytes at worst.
        let copy = || unsafe {
            libc::memcpy(to.as_mut_ptr().cast(), from.cast(), to.len());
        };
        self.mapping.around(Direction::Read, copy)
    }

    /// Copies `from`, which must not be longer than the slice, to its start.
    pub fn write(&self, from: &[u8]) -> Result<(), MemoryError> {
        if !self.mapping.access.writes() {
            return Err(MemoryError::Access("the memory is not writable"));
        }
        self.check(from.len())?;
        let to = self.mapping.pointer(self.offset);
        // SAFETY: as in `read`, with source and destination exchanged.
        let copy = || unsafe {
            libc::memcpy(to.cast(), from.as_ptr().cast(), from.len());
        };
        self.mapping.around(Direction::Write, copy)
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
        if !self.mapping.access.reads() {
            return Err(MemoryError::Access("the memory is not readable"));
        }
        Ok(self.mapping.pointer(self.offset))
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

/// Maps a client's file at an address of the kernel's choice.
fn map_shared(
    fd: BorrowedFd,
    start: libc::off_t,
    len: usize,
    access: Access,
) -> std::io::Result<*mut libc::c_void> {
    let read = if access.reads() { libc::PROT_READ } else { 0 };
    // Hardware that can write but not read is unknown to us; a write-only mapping is asked for as the client says.
    let write = if access.writes() { libc::PROT_WRITE } else { 0 };
    let map = |sharing| {
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), len, read | write, sharing, fd.as_raw_fd(), start) };
        match base == libc::MAP_FAILED {
            true => Err(std::io::Error::last_os_error()),
            false => Ok(base),
        }
    };
    match map(libc::MAP_SHARED) {
        // Older kernels refuse to share what is sealed against writing, even to be read. As it cannot change, a private
        // mapping shows the same bytes.
        Err(e) if access == Access::Read && e.raw_os_error() == Some(libc::EPERM) => map(libc::MAP_PRIVATE),
        other => other,
    }
}

/// How long a file has to be for [`Mapping::guarded`] to map `len` bytes: one byte is on a page of its own, however large
/// the pages of the machine are. `None` if no file is that long.
pub fn guarded_len(len: u64) -> Option<u64> {
    const LARGEST_PAGE: u64 = 64 << 10;
    len.checked_next_multiple_of(LARGEST_PAGE)?.checked_add(1)
}

/// Page size of this machine: 4 KiB and 16 KiB kernels both exist.
pub fn page_size() -> u64 {
    // SAFETY: sysconf only reads a value.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1)
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
        let whole = guarded_len(len).unwrap();
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
    fn what_has_no_size_is_refused() {
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        assert!(Mapping::new(reader.as_fd(), 0, 1, Access::Read).is_err());
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(Mapping::new(null.as_fd(), 0, 1, Access::Read).is_err());
    }
}
