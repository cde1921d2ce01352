//! Private buffers that models of several clients have in common: what is equal lies in memory once.
//!
//! Each client has all of it on its own account, so that no account tells what others have. The time that a client's models take may
//! tell it, as what others use may lie in a cache: so a budget has this only where it was asked for.
//!
//! It must not take anything for equal but bytes that only this process can change: sums, which clients can forge, find candidates
//! and prove nothing.

use super::aligned::AlignedBuf;
use super::zeroed::WORTHWHILE;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Buffers that others may have as well, by their lengths and sums.
#[derive(Default)]
pub struct Common {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// One for each: others of the same sum are left as they are.
    buffers: BTreeMap<(usize, u64), Weak<AlignedBuf>>,
    /// How many there were after those that are gone were last taken out.
    after_sweep: usize,
}

impl Common {
    /// Shorter buffers are not worth it, nor pages of their own.
    pub const LEAST: usize = WORTHWHILE;

    /// What may be equal to a buffer of this length and [sum](super::checksum_share).
    pub fn find(&self, len: usize, sum: u64) -> Option<Arc<AlignedBuf>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).buffers.get(&(len, sum))?.upgrade()
    }

    /// Has others find this buffer, for as long as anybody has it. From here on it cannot be written.
    pub fn offer(&self, buffer: AlignedBuf, sum: u64) -> AlignedBuf {
        /// Fewer are not worth a sweep.
        const FEW: usize = 64;
        let (memory, buffer) = buffer.into_common();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.buffers.insert((buffer.len(), sum), Arc::downgrade(&memory));
        // Once it has grown to twice its size: so few steps for each buffer, however many there are.
        if known.buffers.len() > 2 * known.after_sweep.max(FEW) {
            known.buffers.retain(|_, memory| memory.strong_count() > 0);
            known.after_sweep = known.buffers.len();
        }
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{on_account_of, Budget};

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
        let common = Common::default();
        let first = {
            let _account = budget.on_account_of(1);
            common.offer(buffer(1), 7)
        };
        let second = {
            let _account = budget.on_account_of(1);
            let _other = on_account_of(2);
            buffer(1).in_memory_of(common.find(LEN, 7).unwrap())
        };
        assert_eq!((first.as_ptr(), held([1, 2])), (second.as_ptr(), [LEN, LEN]));
        drop(first);
        assert_eq!(held([1, 2]), [0, LEN], "the other's account is its own");
        assert!(second.iter().all(|&byte| byte == 1) && common.find(LEN, 7).is_some());
        drop(second);
        assert!(held([1, 2]) == [0, 0] && common.find(LEN, 7).is_none());
    }

    #[test]
    fn what_is_common_cannot_be_written() {
        let mut common = Common::default().offer(buffer(1), 0);
        assert!(common.iter_mut().next().is_none());
        assert_eq!((common.len(), common[0]), (LEN, 1));
    }

    #[test]
    fn buffers_that_are_gone_are_forgotten() {
        let common = Common::default();
        let kept: Vec<_> = (0..100).map(|sum| common.offer(AlignedBuf::default(), sum)).collect();
        (100..10_000).for_each(|sum| drop(common.offer(AlignedBuf::default(), sum)));
        let known = common.known.lock().unwrap().buffers.len();
        assert!((kept.len()..=2 * kept.len() + 1).contains(&known), "{known} of {}", kept.len());
    }
}
