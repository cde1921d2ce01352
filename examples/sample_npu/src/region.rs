//! Who owns which bytes of the device's memory.

use crate::link::Link;
use nnhal::backend::BackendError;
use nnhal::memory::{ClientSlice, MemoryError, SharedU64};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Blocks start at multiples of this: a tile, a cache line.
const ALIGNMENT: usize = 64;

/// The free blocks: where each starts, and its bytes.
pub struct Free(BTreeMap<usize, usize>);

impl Free {
    pub fn new(start: usize, end: usize) -> Self {
        Free([(start, end - start)].into())
    }

    /// The first block that is large enough.
    pub fn take(&mut self, len: usize) -> Option<usize> {
        let (&start, &size) = self.0.iter().find(|(_, &size)| size >= len)?;
        self.0.remove(&start);
        if size > len {
            self.0.insert(start + len, size - len);
        }
        Some(start)
    }

    /// Gives a block back, and joins it with its neighbours.
    pub fn give(&mut self, mut start: usize, mut len: usize) {
        if let Some((&before, &size)) = self.0.range(..start).next_back() {
            if before + size == start {
                self.0.remove(&before);
                (start, len) = (before, size + len);
            }
        }
        if let Some(size) = self.0.remove(&(start + len)) {
            len += size;
        }
        self.0.insert(start, len);
    }
}

/// A block of the device's memory, free again when dropped. It belongs to one life of the device: after its death the
/// block is still mapped here, but nobody computes with it any more.
#[derive(Debug)]
pub struct Region {
    pub link: Arc<Link>,
    pub start: usize,
    pub len: usize,
    taken: usize,
}

impl Region {
    pub fn new(link: &Arc<Link>, len: usize) -> Result<Self, BackendError> {
        let taken = len.max(1).checked_next_multiple_of(ALIGNMENT);
        let block = taken.and_then(|taken| Some((link.free().take(taken)?, taken)));
        let (start, taken) = block.ok_or(BackendError::OutOfDeviceMemory(len as u64))?;
        Ok(Region { link: link.clone(), start, len, taken })
    }

    /// One that `bytes` lie in.
    pub fn of(link: &Arc<Link>, bytes: &[u8]) -> Result<Self, BackendError> {
        let region = Region::new(link, bytes.len())?;
        let written = region.slice().and_then(|slice| slice.write(bytes));
        written.map_err(|source| BackendError::Memory { what: "the device's memory".into(), source })?;
        Ok(region)
    }

    /// Where it starts, and its bytes: as a job names it.
    pub fn place(&self) -> [u64; 2] {
        [self.start as u64, self.len as u64]
    }

    /// Its bytes, as this process has them mapped: the device reads and writes them, too.
    pub fn slice(&self) -> Result<ClientSlice, MemoryError> {
        ClientSlice::new(self.link.memory.clone(), self.start, self.len)
    }

    /// The word at byte `at` of it.
    pub fn word(&self, at: usize) -> Result<SharedU64, MemoryError> {
        SharedU64::new(self.link.memory.clone(), self.start + at)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.link.free().give(self.start, self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_given_back_become_one_again() {
        let mut free = Free::new(64, 64 + 320);
        let blocks: Vec<usize> = (0..5).map(|_| free.take(64).unwrap()).collect();
        assert_eq!((blocks, free.take(1)), (vec![64, 128, 192, 256, 320], None));
        for start in [128, 256, 192] {
            free.give(start, 64);
        }
        assert_eq!(free.take(192), Some(128));
        [(128, 192), (320, 64), (64, 64)].into_iter().for_each(|(start, len)| free.give(start, len));
        assert_eq!(free.take(320), Some(64));
    }
}
