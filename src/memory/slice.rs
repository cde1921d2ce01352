//! Parts of client memory, whose bytes are copied to and from.

use super::{Access, AlignedBuf, Mapping, MemoryError};
use std::sync::Arc;

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

    /// Whether some bytes are in both slices. That two mappings are of one file is not seen: a client that lays an output
    /// over another argument so may get any values, and nothing else comes of it.
    pub fn overlaps(&self, other: &ClientSlice) -> bool {
        Arc::ptr_eq(&self.mapping, &other.mapping)
            && self.offset < other.offset + other.len
            && other.offset < self.offset + self.len
    }

    /// Whether an access to its memory may have to wait for a device: one to a dma-buf or a hardware buffer.
    pub fn may_be_busy(&self) -> bool {
        self.mapping.may_be_busy()
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
    pub fn to_private(&self) -> Result<AlignedBuf, MemoryError> {
        let mut copy = AlignedBuf::zeroed(self.len).ok_or(MemoryError::OutOfMemory(self.len))?;
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
