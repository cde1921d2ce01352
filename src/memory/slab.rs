//! Buffers that live and die together, as a model's weights do.

use super::aligned::AlignedBuf;
use super::zeroed::{Divided, HALF};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Makes buffers side by side, so that they fill huge pages where the kernel has such: touching a page for the first time
/// takes longer than filling it.
#[derive(Default)]
pub struct Slab {
    pages: Option<Mutex<Divided>>,
    /// Those that others may have as well.
    known: Mutex<HashMap<Origin, Arc<AlignedBuf>>>,
}

/// Numbers that tell how a buffer's bytes came from others.
pub const FORM: usize = 7;
/// What a buffer was made of: where that lies and how long it is, and how.
pub type Origin = ((usize, usize), [usize; FORM]);

impl Slab {
    /// For buffers of about `expected` bytes together. Pages that nobody touches take no memory.
    pub fn new(expected: usize) -> Self {
        let pages = Some(expected).filter(|&bytes| bytes >= HALF).and_then(Divided::new).map(Mutex::new);
        Slab { pages, ..Slab::default() }
    }

    /// The buffer that was made of the same before.
    pub fn known(&self, origin: &Origin) -> Option<Arc<AlignedBuf>> {
        lock(&self.known).get(origin).cloned()
    }

    /// Has others have this buffer, too. What it is made of must stay where it is for as long as the slab lives.
    pub fn remember(&self, origin: Origin, buffer: Arc<AlignedBuf>) {
        lock(&self.known).insert(origin, buffer);
    }

    /// `len` zeroed bytes; `None` where the memory cannot be had.
    pub fn zeroed(&self, len: usize) -> Option<AlignedBuf> {
        let Some(pages) = &self.pages else { return AlignedBuf::zeroed(len) };
        AlignedBuf::of(&mut lock(pages), len)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_side_by_side_are_as_good_as_others() {
        for expected in [0, 2 * HALF] {
            let slab = Slab::new(expected);
            // The last ones do not fit any more.
            let lengths = [0, 1, 64, 65, HALF, HALF / 2, HALF / 2, 2 * HALF];
            let mut buffers = lengths.map(|len| slab.zeroed(len).unwrap());
            drop(slab);
            for (i, (buffer, len)) in buffers.iter_mut().zip(lengths).enumerate() {
                assert_eq!((buffer.len(), buffer.as_ptr() as usize % 64), (len, 0));
                assert!(buffer.iter().all(|&b| b == 0));
                buffer.fill(i as u8 + 1);
            }
            for (i, buffer) in buffers.into_iter().enumerate() {
                assert!(buffer.iter().all(|&b| b == i as u8 + 1));
            }
            assert!(Slab::new(expected).zeroed(usize::MAX / 2).is_none());
            assert!(Slab::new(expected).zeroed(usize::MAX).is_none());
        }
    }
}
