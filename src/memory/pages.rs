//! Pages: a mapping of a client's file, or of nothing, in our address space.
//!
//! Must not hand out references into them: see [`super::mapping`].

use super::access::Access;
use super::budget::{Counted, MappedBytes};
use super::checksum;
use super::file::{self, Announced, Direction, DmaBuf};
use super::guard::Region;
use super::kernel::{page_size, unmap};
use super::zeroed::{bytes_of_pages, ZeroedPages};
use super::MemoryError;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Mapped pages; unmapped when dropped.
pub(super) struct Pages {
    /// Start of the mapping, page aligned.
    base: *mut libc::c_void,
    mapped: usize,
    /// Where the client's bytes start within the mapping: its offset need not be page aligned.
    skip: usize,
    /// The watch over memory that could vanish; our own memory has none.
    region: Option<Region>,
    /// What tells whether the file is whole, and still the one that was mapped.
    sentinel: Option<Sentinel>,
    dma_buf: Option<DmaBuf>,
    /// Of what is a client's.
    _counted: Option<MappedBytes>,
}

/// The end of a file of [`guarded_len`]: a stamp, then a byte on a page of its own.
struct Sentinel {
    /// Where the last byte is.
    last: usize,
    /// The stamp as it was when the file was mapped.
    stamp: u64,
    /// Whether it was ever seen to be another.
    rewritten: AtomicBool,
}

// SAFETY: the mapping is plain memory, owned until drop; all access is through raw pointers, by copies and by kernels that
// only compute, which is as sound from one thread as from another.
unsafe impl Send for Pages {}
// SAFETY: as above; racing accesses may tear, which callers must expect of client memory anyway.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `len` bytes of `fd` from `offset`, which the file must really have.
    pub fn of_file(fd: BorrowedFd, offset: u64, len: usize, access: Access) -> Result<Self, MemoryError> {
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
        let counted = MappedBytes::take(mapped)?;
        let base = map_shared(fd, start, mapped, access).map_err(|error| refusal(error, access))?;
        // From here on it is unmapped if anything fails.
        let mut pages = Pages::at(base, mapped, skip, Some(counted));
        // To watch is cheaper than to ask for seals, so these count only when there are no watches left.
        match Region::watch(base as usize, mapped) {
            Ok(region) => pages.region = Some(region),
            Err(MemoryError::Exhausted(_)) if file::cannot_shrink(fd) => {}
            Err(error) => return Err(error),
        }
        if dma_buf {
            pages.dma_buf = Some(DmaBuf::new(fd)?);
        }
        Ok(pages)
    }

    /// The first `len` bytes of a file of [`guarded_len`], to read; vanished as soon as that loses any byte, or its stamp
    /// changes.
    pub fn guarded(fd: BorrowedFd, len: usize) -> Result<Self, MemoryError> {
        let whole = guarded_len(len as u64).and_then(|whole| usize::try_from(whole).ok());
        let whole = whole.ok_or_else(|| MemoryError::Invalid(format!("{len} bytes are too many")))?;
        let mut pages = Pages::of_file(fd, 0, whole, Access::Read)?;
        let mut sentinel = Sentinel { last: whole - 1, stamp: 0, rewritten: AtomicBool::new(false) };
        sentinel.stamp = pages.stamp(&sentinel);
        pages.sentinel = Some(sentinel);
        Ok(pages)
    }

    /// The stamp as it is now.
    fn stamp(&self, sentinel: &Sentinel) -> u64 {
        let at = self.start().wrapping_add(sentinel.last - STAMP);
        // SAFETY: eight bytes of the mapping, aligned as the file's last byte starts a page, which anybody may be
        // changing. If their page is lost, the guard puts another in its place and takes note.
        unsafe { at.cast::<u64>().read_volatile() }
    }

    /// Private pages that hold `len` bytes, all zero.
    pub fn anonymous(len: usize) -> Result<Self, MemoryError> {
        let pages = ZeroedPages::new(len.max(1)).ok_or(MemoryError::OutOfMemory(len))?;
        let (base, mapped) = pages.into_raw();
        Ok(Pages::at(base.as_ptr(), mapped, 0, None))
    }

    /// What is mapped there, without anything that looks after it.
    fn at(base: *mut libc::c_void, mapped: usize, skip: usize, counted: Option<MappedBytes>) -> Self {
        Pages { base, mapped, skip, region: None, sentinel: None, dma_buf: None, _counted: counted }
    }

    /// Whether the file shrank, or was given another stamp, while the pages were in use.
    pub fn vanished(&self) -> bool {
        let rewritten = self.sentinel.as_ref().is_some_and(|sentinel| {
            // SAFETY: a byte of the mapping, which lives as long as `self`. If its page is lost, the guard puts another
            // in its place and takes note.
            unsafe { self.start().add(sentinel.last).read_volatile() };
            if self.stamp(sentinel) != sentinel.stamp {
                sentinel.rewritten.store(true, Ordering::Relaxed);
            }
            sentinel.rewritten.load(Ordering::Relaxed)
        });
        rewritten || self.region.as_ref().is_some_and(Region::vanished)
    }

    /// Gives back what was written to pages that are in place of a lost file.
    pub fn give_back_lost(&self) {
        self.region.iter().for_each(Region::give_back);
    }

    /// Where the client's bytes start; `None` for a dma-buf, every access to which must be announced.
    pub fn pointer(&self) -> Option<*mut u8> {
        self.dma_buf.is_none().then(|| self.start())
    }

    /// The dma-buf that it is, if it is one.
    pub fn dma_bufs(&self) -> &[DmaBuf] {
        self.dma_buf.as_slice()
    }

    /// Begins an access, announced where that is needed; gives where the client's bytes start.
    pub fn begin(&self, direction: Direction) -> Result<(*mut u8, Option<Announced<'_>>), MemoryError> {
        let announced = self.dma_buf.as_ref().map(|dma_buf| dma_buf.begin(direction)).transpose()?;
        Ok((self.start(), announced))
    }

    /// Runs `copy`, which gets the start of the client's bytes, and announces it where that is needed.
    pub fn around(&self, direction: Direction, copy: impl FnOnce(*mut u8)) -> Result<(), MemoryError> {
        let (start, announced) = self.begin(direction)?;
        copy(start);
        announced.map_or(Ok(()), Announced::end)
    }

    fn start(&self) -> *mut u8 {
        self.base.cast::<u8>().wrapping_add(self.skip)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // The watch ends first: once unmapped, the addresses may belong to another mapping.
        self.region = None;
        // SAFETY: exactly the region that mmap gave us; nobody holds a reference into it.
        unsafe { unmap(self.base, self.mapped) };
    }
}

/// Private pages with the `len` bytes that `fill` gives, counted as the client's.
pub(super) fn filled(
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> std::io::Result<()>,
) -> Result<(Pages, Counted), MemoryError> {
    let counted = bytes_of_pages(len).and_then(Counted::take).ok_or(MemoryError::OutOfMemory(len))?;
    let pages = Pages::anonymous(len)?;
    // SAFETY: the mapping was just made, has at least so many bytes, all initialised by the kernel, and nobody else
    // knows of it. The slice ends with this function.
    let bytes = unsafe { std::slice::from_raw_parts_mut(pages.base.cast::<u8>(), len) };
    fill(bytes).map_err(|why| match why.kind() {
        ErrorKind::UnexpectedEof => MemoryError::Vanished,
        _ => MemoryError::Map(why),
    })?;
    Ok((pages, counted))
}

/// Reads the start of `file` into all of `bytes`, and gives their checksum. An error once `stops` says so, which the calling
/// thread asks before each stretch. As most of the time goes into making the pages, other threads help where there are many: each
/// as long as it `may_help`.
pub(super) fn copy_file(
    file: &File,
    bytes: &mut [u8],
    stops: &dyn Fn() -> bool,
    may_help: &(dyn Fn() -> bool + Sync),
) -> std::io::Result<u64> {
    const STRETCH: usize = 128 << 10;
    const BYTES_PER_THREAD: usize = 2 << 20;
    const MOST_THREADS: usize = 4;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (bytes.len() / BYTES_PER_THREAD).clamp(1, MOST_THREADS.min(cores));
    let stretches = Mutex::new(bytes.chunks_mut(STRETCH).zip((0u64..).step_by(STRETCH)));
    // `None` once all are taken.
    let read_next = || {
        let (bytes, start) = stretches.lock().unwrap_or_else(PoisonError::into_inner).next()?;
        Some(file.read_exact_at(bytes, start).map(|()| checksum::share(start, bytes)))
    };
    let given_up = AtomicBool::new(false);
    let help = || -> std::io::Result<u64> {
        let mut sum = 0u64;
        while may_help() && !given_up.load(Ordering::Relaxed) {
            let Some(share) = read_next() else { break };
            sum = sum.wrapping_add(share?);
        }
        Ok(sum)
    };
    let own = || -> std::io::Result<u64> {
        let mut sum = 0u64;
        loop {
            if stops() {
                return Err(ErrorKind::TimedOut.into());
            }
            let Some(share) = read_next() else { return Ok(sum) };
            sum = sum.wrapping_add(share?);
        }
    };
    std::thread::scope(|scope| {
        // Where there is no thread to be had, fewer do it.
        let spawn = |_| std::thread::Builder::new().name("nnhal-load".into()).spawn_scoped(scope, help).ok();
        let helpers: Vec<_> = (1..threads).map_while(spawn).collect();
        let own = own();
        given_up.store(own.is_err(), Ordering::Relaxed);
        helpers.into_iter().fold(own, |sum, helper| {
            let share = helper.join().unwrap_or_else(|_| Err(ErrorKind::Other.into()));
            Ok(sum?.wrapping_add(share?))
        })
    })
}

/// Why the kernel did not map a file for `access`.
fn refusal(error: std::io::Error, access: Access) -> MemoryError {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => MemoryError::Access(match access {
            Access::Read => "the memory's file descriptor does not allow reading",
            Access::Write => "the memory's file descriptor does not allow writing",
            Access::ReadWrite => "the memory's file descriptor does not allow both reading and writing",
        }),
        _ => MemoryError::Map(error),
    }
}

/// Maps a client's file at an address of the kernel's choice.
///
/// memmap2's `MmapRaw` would do for most, but maps neither to be written only nor privately.
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

/// Bytes of the stamp before the last byte of a file of [`guarded_len`].
const STAMP: usize = 8;

/// How long a file has to be for `Pages::guarded` to map `len` bytes: after them a stamp of eight bytes, then one byte
/// on a page of its own, however large the pages of the machine are. `None` if no file is that long.
pub fn guarded_len(len: u64) -> Option<u64> {
    const LARGEST_PAGE: u64 = 64 << 10;
    len.checked_add(STAMP as u64)?.checked_next_multiple_of(LARGEST_PAGE)?.checked_add(1)
}

/// Where the stamp of such a file is.
pub fn stamp_start(len: u64) -> Option<u64> {
    guarded_len(len)?.checked_sub(1 + STAMP as u64)
}
