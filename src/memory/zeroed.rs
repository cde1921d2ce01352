//! Zeroed pages of our own, for large buffers: the kernel zeroes each when it is first touched, many at a time where it
//! has huge pages. Nothing of a client's is ever mapped here.

use super::kernel::{page_size, unmap};
use nix::sys::mman::{madvise, mmap_anonymous, munmap, MapFlags, MmapAdvise, ProtFlags};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes from which on pages are worth their system calls. Allocators would fill an aligned block with zeroes themselves,
/// which touches all of it.
pub const WORTHWHILE: usize = 128 << 10;
/// What a huge page has, where the kernel has any.
const HUGE: usize = 2 << 20;
/// Bytes from which on one is worth having.
pub const HALF: usize = HUGE / 2;

/// Has the kernel use huge pages, where it has any, for the large part of a block that was not touched yet. Half a gigabyte of
/// small ones takes some 40 ms to be given back, and nobody can interrupt that.
pub fn prefer_huge_pages<T>(block: &mut [MaybeUninit<T>]) {
    let (start, len) = (block.as_mut_ptr().cast::<c_void>(), size_of_val(block));
    let before = start.addr().next_multiple_of(HUGE) - start.addr();
    let len = len.saturating_sub(before) / HUGE * HUGE;
    if let Some(start) = NonNull::new(start.wrapping_byte_add(before)).filter(|_| len > 0 && !cfg!(miri)) {
        // SAFETY: all of it lies within the block, and nothing changes but the pages' size. A kernel that has one size only
        // refuses.
        let _ = unsafe { madvise(start, len, MmapAdvise::MADV_HUGEPAGE) };
    }
}

/// Pages that are handed out in parts, none of them twice.
pub struct Divided {
    pages: Arc<ZeroedPages>,
    len: usize,
    used: usize,
    /// Bytes of the pages that any part lies in, all of which they may take: see [`bytes_of_pages`]. Each page is counted with the first
    /// part in it, as parts live and die together.
    counted: usize,
}

/// A part of some pages, which nobody else has. All of them are unmapped when the last part is dropped.
pub struct Part {
    pages: Arc<ZeroedPages>,
    start: usize,
    len: usize,
}

impl Divided {
    /// Pages of `len` bytes; `None` where the memory cannot be had.
    pub fn new(len: usize) -> Option<Self> {
        Some(Divided { pages: Arc::new(ZeroedPages::new(len)?), len, used: 0, counted: 0 })
    }

    /// `len` bytes, which are zeroes still, behind those that were taken before, and how many bytes the pages have that this is
    /// the first part in. `None` where not so many are left.
    pub fn take(&mut self, len: usize) -> Option<(Part, usize)> {
        let start = self.used;
        let end = start.checked_add(len).filter(|&end| end <= self.len)?;
        // Behind the last huge page there are small ones.
        let huge = self.pages.len / HUGE * HUGE;
        let page = if end <= huge { HUGE } else { page_size() as usize };
        let counted = end.next_multiple_of(page);
        let more = counted.saturating_sub(self.counted);
        (self.used, self.counted) = (end, counted.max(self.counted));
        Some((Part { pages: self.pages.clone(), start, len }, more))
    }
}

impl Part {
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the part lies within the pages, which live as long, and is only written through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.first(), self.len) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; no other part has any of these bytes, and nobody reads all pages at once.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.len) }
    }

    fn first(&self) -> *mut u8 {
        self.pages.start.as_ptr().cast::<u8>().wrapping_add(self.start)
    }
}

/// Private pages, unmapped when dropped.
pub struct ZeroedPages {
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: the pages belong to this value alone.
unsafe impl Send for ZeroedPages {}
// SAFETY: as above; they are written through `&mut` only.
unsafe impl Sync for ZeroedPages {}

/// Bytes of the pages that hold `len` bytes of ours, all of which they take once they are touched: whoever counts memory counts
/// these. `None` if there cannot be so many.
pub fn bytes_of_pages(len: usize) -> Option<usize> {
    match len % HUGE {
        // One page that is used by half costs less time than half as many small ones.
        HALF.. => len.checked_next_multiple_of(HUGE),
        _ => len.checked_next_multiple_of(page_size() as usize),
    }
}

impl ZeroedPages {
    /// At least `len` bytes, which take [`bytes_of_pages`]; `None` where the memory cannot be had.
    pub fn new(len: usize) -> Option<Self> {
        let len = bytes_of_pages(len)?;
        // Miri has no huge pages, and gives no part of a mapping back.
        let slack = if len >= HUGE && !cfg!(miri) { HUGE } else { 0 };
        let whole = NonZeroUsize::new(len.checked_add(slack)?)?;
        // SAFETY: the kernel chooses where; nothing that is mapped is replaced.
        let start = unsafe {
            mmap_anonymous(None, whole, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE)
        };
        let mut pages = ZeroedPages { start: start.ok()?, len: whole.get() };
        if slack > 0 {
            pages.align(len);
            let huge = pages.len / HUGE * HUGE;
            // SAFETY: it changes nothing but the pages' size. A kernel that has one size only refuses.
            let _ = unsafe { madvise(pages.start, huge, MmapAdvise::MADV_HUGEPAGE) };
        }
        Some(pages)
    }

    /// Gives back all but `len` bytes that start where a huge page may.
    fn align(&mut self, len: usize) {
        let before = self.start.addr().get().next_multiple_of(HUGE) - self.start.addr().get();
        let after = self.len - before - len;
        // SAFETY: both parts lie within what was mapped, and have no users yet.
        unsafe {
            let kept = self.start.byte_add(before);
            // What cannot be given back stays, unused, until the process ends.
            if before > 0 {
                let _ = munmap(self.start, before);
            }
            if after > 0 {
                let _ = munmap(kept.byte_add(len), after);
            }
            (self.start, self.len) = (kept, len);
        }
    }

    /// Where they start, and how many bytes there are, for the caller to unmap.
    pub fn into_raw(self) -> (NonNull<c_void>, usize) {
        let pages = std::mem::ManuallyDrop::new(self);
        (pages.start, pages.len)
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped to be read for as long as `self` lives, and only written through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.len) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; they may be written, too.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.len) }
    }
}

impl Drop for ZeroedPages {
    fn drop(&mut self) {
        // SAFETY: they were mapped, and nothing borrows them any more.
        unsafe { unmap(self.start.as_ptr(), self.len) };
    }
}
