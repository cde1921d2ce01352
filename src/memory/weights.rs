//! Bytes that kernels only compute with: private ones, or a part of a cache file that somebody may be changing.
//!
//! They are read through raw pointers and decide nothing but values, so that whatever a changed file holds is as good
//! as any other. What vanishes under the pointers is the guard's matter, as for all client memory.

use super::{AlignedBuf, ClientSlice, MemoryError};
use std::sync::Arc;

/// Parts of a cache file start at multiples of this: a cache line, and the widest vector.
pub const WEIGHTS_ALIGNMENT: usize = 64;

/// Bytes to compute with, never to decide by.
#[derive(Clone, Debug)]
pub enum Weights {
    Private(Arc<AlignedBuf>),
    /// Readable, and aligned as [`Weights::shared`] checks.
    Shared(ClientSlice),
}

impl Weights {
    /// Weights that lie in `slice`. `None` if it is not aligned or not to be read.
    pub fn shared(slice: ClientSlice) -> Option<Self> {
        let start = slice.start_to_read().ok()? as usize;
        start.is_multiple_of(WEIGHTS_ALIGNMENT).then_some(Weights::Shared(slice))
    }

    pub fn len(&self) -> usize {
        match self {
            Weights::Private(bytes) => bytes.len(),
            Weights::Shared(slice) => slice.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A pointer to `count` elements from element `start` on, valid to read for as long as `self` lives. The elements
    /// may change between two reads of them. Panics where there are none: kernels must not go by what a file says.
    pub fn elements<T: bytemuck::AnyBitPattern>(&self, start: usize, count: usize) -> *const T {
        let end = start.checked_add(count).and_then(|end| end.checked_mul(size_of::<T>()));
        assert!(end.is_some_and(|end| end <= self.len()), "weights end before element {start}+{count}");
        let base = match self {
            Weights::Private(bytes) => bytes.as_ptr(),
            Weights::Shared(slice) => slice.start_to_read().unwrap_or(std::ptr::null()),
        };
        base.cast::<T>().wrapping_add(start)
    }

    /// A copy that only this process can change.
    pub fn to_private(&self) -> Result<Arc<AlignedBuf>, MemoryError> {
        match self {
            Weights::Private(bytes) => Ok(bytes.clone()),
            Weights::Shared(slice) => slice.to_private().map(Arc::new),
        }
    }
}

impl From<AlignedBuf> for Weights {
    fn from(bytes: AlignedBuf) -> Self {
        Weights::Private(Arc::new(bytes))
    }
}

impl From<Arc<AlignedBuf>> for Weights {
    fn from(bytes: Arc<AlignedBuf>) -> Self {
        Weights::Private(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Mapping;

    #[test]
    fn shared_weights_are_aligned_and_bounded() {
        let mapping = Arc::new(Mapping::anonymous(256).unwrap());
        let slice = |offset, len| ClientSlice::new(mapping.clone(), offset, len).unwrap();
        assert!(Weights::shared(slice(4, 8)).is_none());
        let weights = Weights::shared(slice(64, 8)).unwrap();
        slice(64, 8).write(&[1, 0, 0, 0, 2, 0, 0, 0]).unwrap();
        // SAFETY: two elements were asked for, and the mapping lives.
        let read = unsafe { weights.elements::<i32>(1, 1).read() };
        assert_eq!((read, &weights.to_private().unwrap()[..4]), (2, &[1, 0, 0, 0][..]));
        assert!(std::panic::catch_unwind(|| weights.elements::<i32>(1, 2)).is_err());
    }
}
