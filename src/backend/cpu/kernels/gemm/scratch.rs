//! Memory of one task of a product: it is counted, and not to get it is an error and nothing worse.

use crate::memory::{AlignedBuf, Counted};
use crate::ops::OpError;

/// Memory of a task.
pub struct Scratch<T> {
    /// Where inputs lie, `[segment][row]`.
    pub pointers: Vec<*const T>,
    counted: Option<Counted>,
    /// Lines of an image with what is beside it.
    pub lines: AlignedBuf,
    /// Rows that do not lie as they are needed.
    pub patches: AlignedBuf,
}

impl<T> Scratch<T> {
    pub fn new() -> Self {
        Scratch {
            pointers: Vec::new(),
            counted: None,
            lines: AlignedBuf::default(),
            patches: AlignedBuf::default(),
        }
    }
}

/// Makes room for `count` pointers.
pub fn pointers<T>(scratch: &mut Scratch<T>, count: usize) -> Result<(), OpError> {
    scratch.pointers.clear();
    if scratch.pointers.capacity() < count {
        let bytes = count.saturating_mul(size_of::<*const T>());
        (scratch.pointers, scratch.counted) = (Vec::new(), None);
        scratch.counted = Some(Counted::take(bytes).ok_or(OpError::OutOfMemory(bytes))?);
        scratch.pointers.try_reserve_exact(count).map_err(|_| OpError::OutOfMemory(bytes))?;
    }
    scratch.pointers.resize(count, std::ptr::null());
    Ok(())
}

/// Makes a buffer at least `bytes` long. What it holds is lost.
pub fn room(buffer: &mut AlignedBuf, bytes: usize) -> Result<(), OpError> {
    if buffer.len() < bytes {
        *buffer = AlignedBuf::default();
        *buffer = AlignedBuf::zeroed(bytes).ok_or(OpError::OutOfMemory(bytes))?;
    }
    Ok(())
}

/// Copies rows to where they lie one after the other, and points there.
///
/// # Safety
/// Pointers must be valid for `depth` elements.
pub unsafe fn gather<T>(
    scratch: &mut Scratch<T>,
    rows: usize,
    (depth, padded): (usize, usize),
) -> Result<(), OpError> {
    let segments = scratch.pointers.len() / rows;
    let bytes = rows.checked_mul(segments * padded * size_of::<T>());
    room(&mut scratch.patches, bytes.unwrap_or(usize::MAX))?;
    let start = scratch.patches.as_mut_ptr().cast::<T>();
    for (i, pointer) in scratch.pointers.iter_mut().enumerate() {
        let to = start.wrapping_add((i % rows * segments + i / rows) * padded);
        // SAFETY: the buffer has room for all rows, of so many segments; libc's memcpy may read a client's memory.
        unsafe { libc::memcpy(to.cast(), pointer.cast(), depth * size_of::<T>()) };
        *pointer = to;
    }
    Ok(())
}
