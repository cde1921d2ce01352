//! Private copies of constants, made part by part: how large they are is the client's choice.

use super::error::ModelError;
use crate::memory::{AlignedBuf, ClientSlice, MemoryError};
use crate::ops::{by_parts, Interrupt};
use std::ops::Range;
use std::sync::Arc;

/// A copy of what is a client's.
pub(super) fn private(slice: &ClientSlice, interrupt: &dyn Interrupt) -> Result<Arc<AlignedBuf>, ModelError> {
    copied(slice.len(), interrupt, |to, part| slice.part(part.start, to.len())?.read(to))
}

/// A copy of so many bytes, into which `read` puts a part at a time.
pub(super) fn copied(
    length: usize,
    interrupt: &dyn Interrupt,
    mut read: impl FnMut(&mut [u8], Range<usize>) -> Result<(), MemoryError>,
) -> Result<Arc<AlignedBuf>, ModelError> {
    let failed = |source| ModelError::Memory { what: "a constant".into(), source };
    let copy = AlignedBuf::zeroed(length);
    let mut copy = copy.ok_or_else(|| failed(MemoryError::OutOfMemory(length)))?;
    by_parts(interrupt, length, |part| read(&mut copy[part.clone()], part).map_err(failed))?;
    Ok(Arc::new(copy))
}
