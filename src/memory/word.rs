//! Words of shared memory that both sides change at once: the counters and the futex of a queue.
//!
//! Must not know what the words mean. The peer may write them at any time, so what is read is a claim, to be checked.

use super::MemoryError;
use super::{Access, Mapping};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

/// A 64-bit word, read and written whole.
#[derive(Debug)]
pub struct SharedU64 {
    mapping: Arc<Mapping>,
    offset: usize,
}

/// A 32-bit word, changed bit by bit and slept on.
#[derive(Debug)]
pub struct SharedU32 {
    mapping: Arc<Mapping>,
    offset: usize,
}

impl SharedU64 {
    /// The word at byte `offset` of `mapping`.
    pub fn new(mapping: Arc<Mapping>, offset: usize) -> Result<Self, MemoryError> {
        check(&mapping, offset, size_of::<u64>())?;
        Ok(SharedU64 { mapping, offset })
    }

    /// Reads the word: whatever the peer wrote before it wrote this value is visible afterwards.
    pub fn load(&self) -> Result<u64, MemoryError> {
        let value = self.word().load(Ordering::Acquire);
        self.mapping.still_there(value)
    }

    /// Writes the word: a process that reads this value sees all that was written before.
    pub fn store(&self, value: u64) -> Result<(), MemoryError> {
        self.word().store(value, Ordering::Release);
        self.mapping.still_there(())
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: inside of the mapping and aligned, as `new` checked; mapped for as long as `self` lives. Every access to
        // it from this process is atomic, and the peer's stores are as another thread's.
        unsafe { &*address(&self.mapping, self.offset).cast::<AtomicU64>() }
    }
}

impl SharedU32 {
    /// The word at byte `offset` of `mapping`.
    pub fn new(mapping: Arc<Mapping>, offset: usize) -> Result<Self, MemoryError> {
        check(&mapping, offset, size_of::<u32>())?;
        Ok(SharedU32 { mapping, offset })
    }

    /// Sets `bits`; gives the word as it was.
    pub fn fetch_or(&self, bits: u32) -> Result<u32, MemoryError> {
        let before = self.word().fetch_or(bits, Ordering::SeqCst);
        self.mapping.still_there(before)
    }

    /// Clears all but `bits`; gives the word as it was.
    pub fn fetch_and(&self, bits: u32) -> Result<u32, MemoryError> {
        let before = self.word().fetch_and(bits, Ordering::SeqCst);
        self.mapping.still_there(before)
    }

    /// Where the word is, for the kernel's futex calls only.
    pub fn address(&self) -> *const u32 {
        address(&self.mapping, self.offset).cast()
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: as for SharedU64.
        unsafe { &*address(&self.mapping, self.offset).cast::<AtomicU32>() }
    }
}

/// Where byte `offset` of `mapping` is; it stays there, as `check` made sure.
fn address(mapping: &Mapping, offset: usize) -> *const u8 {
    mapping.pointer(offset).map_or(std::ptr::null(), |pointer| pointer.cast_const())
}

/// Checks that a word of `size` bytes can be at `offset`.
fn check(mapping: &Mapping, offset: usize, size: usize) -> Result<(), MemoryError> {
    if mapping.access() != Access::ReadWrite {
        return Err(MemoryError::Access("a shared word needs memory that can be read and written"));
    }
    let Some(start) = mapping.pointer(0) else {
        return Err(MemoryError::Unsupported("a shared word cannot lie in device memory"));
    };
    if offset.checked_add(size).is_none_or(|end| end > mapping.len()) {
        return Err(MemoryError::Invalid(format!(
            "a word of {size} bytes at {offset} lies outside of a memory of {}",
            mapping.len()
        )));
    }
    if !(start as usize).wrapping_add(offset).is_multiple_of(size) {
        return Err(MemoryError::Invalid(format!("a word of {size} bytes at {offset} is not aligned")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn mapping(file: &std::fs::File, len: usize, access: Access) -> Arc<Mapping> {
        Arc::new(Mapping::new(file.as_fd(), 0, len, access).unwrap())
    }

    fn file(len: u64) -> std::fs::File {
        let fd = nix::sys::memfd::memfd_create(c"words", nix::sys::memfd::MFdFlags::empty()).unwrap();
        let file = std::fs::File::from(fd);
        file.set_len(len).unwrap();
        file
    }

    #[test]
    fn two_mappings_share_their_words() {
        let file = file(64);
        let [ours, theirs] = [0; 2].map(|_| mapping(&file, 64, Access::ReadWrite));
        let (a, b) = (SharedU64::new(ours.clone(), 8).unwrap(), SharedU64::new(theirs.clone(), 8).unwrap());
        a.store(u64::MAX - 1).unwrap();
        assert_eq!(b.load().unwrap(), u64::MAX - 1);
        let (a, b) = (SharedU32::new(ours, 20).unwrap(), SharedU32::new(theirs, 20).unwrap());
        assert_eq!(a.fetch_or(0b110).unwrap(), 0);
        assert_eq!(b.fetch_and(!0b10).unwrap(), 0b110);
        assert_eq!(a.fetch_or(0).unwrap(), 0b100);
    }

    #[test]
    fn misplaced_words_are_refused() {
        let file = file(64);
        let whole = mapping(&file, 64, Access::ReadWrite);
        for offset in [1, 4, 57, 60, 64, usize::MAX] {
            assert!(SharedU64::new(whole.clone(), offset).is_err(), "{offset}");
        }
        for offset in [1, 2, 61, 64, usize::MAX - 3] {
            assert!(SharedU32::new(whole.clone(), offset).is_err(), "{offset}");
        }
        assert!(SharedU64::new(mapping(&file, 64, Access::Read), 0).is_err());
    }

    #[test]
    fn a_word_that_vanished_says_so() {
        let file = file(64);
        let mapping = mapping(&file, 64, Access::ReadWrite);
        let (long, short) =
            (SharedU64::new(mapping.clone(), 0).unwrap(), SharedU32::new(mapping, 8).unwrap());
        file.set_len(0).unwrap();
        assert!(matches!(long.load(), Err(MemoryError::Vanished)));
        assert!(matches!(long.store(1), Err(MemoryError::Vanished)));
        assert!(matches!(short.fetch_or(1), Err(MemoryError::Vanished)));
    }
}
