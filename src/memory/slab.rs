//! Buffers that live and die together, as a model's weights do.

use super::aligned::AlignedBuf;
use super::budget::{Account, Counted};
use super::zeroed::{Divided, HALF};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Makes buffers side by side, so that they fill huge pages where the kernel has such: touching a page for the first time
/// takes longer than filling it.
#[derive(Default)]
pub struct Slab {
    pages: Option<Mutex<Divided>>,
    /// Those that others may have as well.
    known: Mutex<HashMap<Origin, Known>>,
}

/// A buffer that others may have, and what is counted of the place that it has.
type Known = (Arc<AlignedBuf>, Counted);
/// Bytes of a place: there are up to twice as many as buffers.
const PLACE: usize = 2 * size_of::<(Origin, Known)>();

/// Numbers that tell how a buffer's bytes came from others.
pub const FORM: usize = 7;
/// What a buffer was made of: where that lies and how long it is, and how.
pub type Origin = ((usize, usize), [usize; FORM]);

impl Slab {
    /// For buffers of about `expected` bytes together. Pages that nobody touches take no memory.
    pub fn new(expected: usize) -> Self {
        // What may outlive the others, as another model has it as well, must not keep their memory.
        let is_apart = || Account::of_thread().common().is_some();
        let pages = Some(expected).filter(|&bytes| bytes >= HALF && !is_apart());
        Slab { pages: pages.and_then(Divided::new).map(Mutex::new), ..Slab::default() }
    }

    /// The buffer that was made of the same before.
    pub fn known(&self, origin: &Origin) -> Option<Arc<AlignedBuf>> {
        lock(&self.known).get(origin).map(|(buffer, _)| buffer.clone())
    }

    /// Has others have this buffer, too. What it is made of must stay where it is for as long as the slab lives. `None` where
    /// there is no memory to note it in.
    pub fn remember(&self, origin: Origin, buffer: Arc<AlignedBuf>) -> Option<()> {
        let (counted, mut known) = (Counted::take(PLACE)?, lock(&self.known));
        known.try_reserve(1).ok()?;
        known.insert(origin, (buffer, counted));
        Some(())
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
    use crate::memory::Budget;

    #[test]
    fn what_is_remembered_is_on_the_clients_account() {
        let budget = Budget::new(1 << 20);
        let _account = budget.on_account_of(1);
        let (slab, buffer) = (Slab::default(), Arc::new(AlignedBuf::default()));
        let remembered = (0..1 << 16)
            .take_while(|&i| slab.remember(((i, 1), [0; FORM]), buffer.clone()).is_some())
            .count();
        assert!((1..1 << 16).contains(&remembered), "{remembered}");
        assert_eq!(budget.private().held(), (remembered * PLACE) as u64);
        assert!(slab.known(&((0, 1), [0; FORM])).is_some() && slab.known(&((0, 2), [0; FORM])).is_none());
        drop(slab);
        assert_eq!(budget.private().held(), 0);
    }

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
