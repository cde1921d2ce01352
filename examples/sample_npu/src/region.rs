//! Who owns which bytes of the device's memory.

use crate::link::Link;
use crate::protocol::{DEVICE_BYTES, RING_BYTES};
use nnhal::backend::BackendError;
use nnhal::memory::{ClientSlice, MemoryError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Blocks start at multiples of this: a tile, a cache line.
const ALIGNMENT: usize = 64;

/// The blocks that are taken: where each starts and ends.
#[derive(Default)]
pub struct Blocks(BTreeMap<usize, usize>);

impl Blocks {
    /// Takes `len` bytes of the first gap that is large enough; tells where they start.
    fn take(&mut self, len: usize) -> Option<usize> {
        let mut start = RING_BYTES;
        for (&next, &end) in &self.0 {
            if next - start >= len {
                break;
            }
            start = end;
        }
        let end = start.checked_add(len).filter(|&end| end <= DEVICE_BYTES)?;
        self.0.insert(start, end);
        Some(start)
    }
}

/// A block of the device's memory, free again when dropped. It belongs to one life of the device: after its death the
/// block is still mapped here, but nobody computes with it any more.
#[derive(Debug)]
pub struct Region {
    pub link: Arc<Link>,
    pub start: usize,
    len: usize,
}

impl Region {
    pub fn new(link: &Arc<Link>, len: usize) -> Result<Self, BackendError> {
        let taken = len.max(1).checked_next_multiple_of(ALIGNMENT);
        let start = taken.and_then(|taken| link.blocks().take(taken));
        let start = start.ok_or(BackendError::OutOfDeviceMemory(len as u64))?;
        Ok(Region { link: link.clone(), start, len })
    }

    /// One that `bytes` lie in.
    pub fn of(link: &Arc<Link>, bytes: &[u8]) -> Result<Self, BackendError> {
        let region = Region::new(link, bytes.len())?;
        let written = region.slice().and_then(|slice| slice.write(bytes));
        written.map_err(BackendError::memory("the device's memory"))?;
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
}

impl Drop for Region {
    fn drop(&mut self) {
        self.link.blocks().0.remove(&self.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_and_the_end_is_the_end() {
        let mut blocks = Blocks::default();
        let starts = [64, 128, 64].map(|len| blocks.take(len).unwrap() - RING_BYTES);
        assert_eq!((starts, blocks.take(DEVICE_BYTES - RING_BYTES - 255)), ([0, 64, 192], None));
        blocks.0.remove(&(RING_BYTES + 64));
        let starts = [192, 64, 64, 64].map(|len| blocks.take(len).unwrap() - RING_BYTES);
        assert_eq!((starts, blocks.take(usize::MAX)), ([256, 64, 128, 448], None));
    }
}
