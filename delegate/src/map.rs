//! A session's memory, mapped: tensors live in it, or are copied into it and out of it.

use nnhal::client::shared::Shared;
use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// A mapping of the whole of a session's memory. The driver writes outputs there, but only between a run's start and its
/// end; the memory is sealed, so that nobody can shrink it.
pub struct Map {
    start: *mut u8,
    length: usize,
}

// SAFETY: the mapping belongs to whoever owns the value; nothing about it is one thread's own.
unsafe impl Send for Map {}

impl Map {
    pub fn new(memory: &Shared) -> std::io::Result<Self> {
        let length = usize::try_from(memory.size()).map_err(std::io::Error::other)?;
        let (prot, fd) = (libc::PROT_READ | libc::PROT_WRITE, memory.file().as_raw_fd());
        // SAFETY: a new mapping, at a place that the kernel chooses, of a file that is open.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, prot, libc::MAP_SHARED, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Map { start: start.cast(), length })
    }

    /// Where `range` starts.
    pub fn at(&self, range: &Range<usize>) -> *mut c_void {
        assert!(range.start <= range.end && range.end <= self.length, "{range:?} of {}", self.length);
        self.start.wrapping_add(range.start).cast()
    }

    /// Copies the bytes at `from`, as many as `range` has, to there.
    ///
    /// # Safety
    /// `from` points to as many bytes, which nobody writes meanwhile.
    pub unsafe fn fill(&self, range: &Range<usize>, from: *const c_void) {
        // SAFETY: the range lies in the mapping; the caller vouches for `from`. They may not overlap, as one is elsewhere.
        unsafe { std::ptr::copy(from.cast::<u8>(), self.at(range).cast(), range.len()) }
    }

    /// Copies the bytes of `range` to `to`.
    ///
    /// # Safety
    /// `to` points to room for as many bytes, which nobody else uses meanwhile.
    pub unsafe fn take(&self, range: &Range<usize>, to: *mut c_void) {
        // SAFETY: as for `fill`.
        unsafe { std::ptr::copy(self.at(range).cast::<u8>().cast_const(), to.cast(), range.len()) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; its owner saw to it that no tensor lives in it any more.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}
