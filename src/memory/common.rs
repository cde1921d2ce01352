//! Private buffers that models of several clients have in common: what is equal lies in memory once.
//!
//! Each client has all of it on its own account, so that no account tells what others have. The time that a client's models take may
//! tell it, as what others use may lie in a cache: so a budget has this only where it was asked for.
//!
//! It must not take anything for equal but bytes that only this process can change: sums, which clients can forge, find candidates
//! and prove nothing.

use std::collections::BTreeMap;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Where the buffers are that others may have as well.
#[derive(Default)]
pub struct Common {
    /// One for each length and sum: others are left as they are.
    known: Mutex<BTreeMap<Key, Weak<Memory>>>,
}

/// Length and [sum](super::checksum_share).
type Key = (usize, u64);

/// Memory that several buffers have in common, on no account: each of them is on its own.
pub(super) struct Memory {
    bytes: Box<dyn AsRef<[u8]> + Send + Sync + UnwindSafe + RefUnwindSafe>,
    key: Key,
    common: Arc<Common>,
}

/// A buffer that may be equal to another one. It is not kept by this.
#[derive(Debug)]
pub struct Candidate(Weak<Memory>);

impl Common {
    /// Shorter buffers are not worth it: what is noted of each takes some hundred bytes.
    pub const LEAST: usize = 16 << 10;

    /// Has others find `bytes` of this sum for as long as anybody has them. Where there is another buffer of this length and sum already,
    /// gives both back.
    pub(super) fn offer<B: AsRef<[u8]> + Send + Sync + UnwindSafe + RefUnwindSafe + 'static>(
        self: &Arc<Self>,
        bytes: B,
        sum: u64,
    ) -> Result<Arc<Memory>, (B, Candidate)> {
        let key = (bytes.as_ref().len(), sum);
        let mut known = self.lock();
        if let Some(other) = known.get(&key).filter(|other| other.strong_count() > 0) {
            return Err((bytes, Candidate(other.clone())));
        }
        let memory = Arc::new(Memory { bytes: Box::new(bytes), key, common: self.clone() });
        known.insert(key, Arc::downgrade(&memory));
        Ok(memory)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Weak<Memory>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Candidate {
    /// Whether its bytes from `start` on are these; `None` once all have dropped it.
    pub fn has(&self, start: usize, bytes: &[u8]) -> Option<bool> {
        let memory = self.memory()?;
        Some(memory.bytes().get(start..start.checked_add(bytes.len())?) == Some(bytes))
    }

    pub(super) fn memory(&self) -> Option<Arc<Memory>> {
        self.0.upgrade()
    }
}

impl Memory {
    pub fn bytes(&self) -> &[u8] {
        (*self.bytes).as_ref()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut known = self.common.lock();
        // Another may have its place by now.
        if known.get(&self.key).is_some_and(|memory| std::ptr::eq(memory.as_ptr(), self)) {
            known.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{on_account_of, AlignedBuf, Budget};

    const LEN: usize = 2 * Common::LEAST;

    fn buffer(byte: u8) -> AlignedBuf {
        let mut buffer = AlignedBuf::zeroed(LEN).unwrap();
        buffer.fill(byte);
        buffer
    }

    #[test]
    fn each_client_has_what_is_common_on_its_account_for_as_long_as_it_has_it() {
        let budget = Budget::new(1 << 30);
        let held = |clients: [u32; 2]| clients.map(|client| budget.private().held_by(client) as usize);
        let common = Arc::new(Common::default());
        let known = || common.lock().len();
        let _account = budget.on_account_of(1);
        let first = buffer(1).offered(&common, 7).unwrap();
        let second = {
            let _other = on_account_of(2);
            let (second, candidate) = buffer(1).offered(&common, 7).unwrap_err();
            assert_eq!(candidate.has(LEN - 2, &[1, 1]), Some(true));
            assert_eq!((candidate.has(1, &[0]), candidate.has(LEN - 1, &[1, 1])), (Some(false), Some(false)));
            second.in_memory_of(&candidate)
        };
        assert_eq!((first.as_ptr(), held([1, 2])), (second.as_ptr(), [LEN, LEN]));
        drop(first);
        assert_eq!(held([1, 2]), [0, LEN], "the other's account is its own");
        let (third, candidate) = buffer(2).offered(&common, 7).unwrap_err();
        assert!(second.iter().all(|&byte| byte == 1) && known() == 1);
        drop(second);
        assert_eq!((held([1, 2]), known(), candidate.has(0, &[1])), ([LEN, 0], 0, None));
        let third = third.in_memory_of(&candidate);
        assert!(third[0] == 2 && third.offered(&common, 7).is_ok() && known() == 0);
    }

    #[test]
    fn what_is_common_cannot_be_written() {
        let mut common = buffer(1).offered(&Arc::default(), 0).unwrap();
        assert!(common.iter_mut().next().is_none());
        assert_eq!((common.len(), common[0]), (LEN, 1));
    }
}
