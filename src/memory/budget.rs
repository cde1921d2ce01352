//! How much private memory the process takes for what clients want: constants, packed weights, values of runs.
//!
//! Linux promises more memory than there is and ends whoever takes it at its word. So the large buffers are counted,
//! and one too many is an error while there is memory left to report it with. Must not know who wants what, or why.

use nix::unistd::{sysconf, SysconfVar};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;

/// Memory of this machine in bytes; a guess where it does not tell.
pub fn machine_bytes() -> usize {
    let of = |var| sysconf(var).ok().flatten().and_then(|n| usize::try_from(n).ok());
    let memory = of(SysconfVar::_PHYS_PAGES).zip(of(SysconfVar::PAGE_SIZE));
    memory.map_or(1 << 30, |(pages, size)| pages.saturating_mul(size))
}

/// Bytes in use against bytes that may be.
pub(super) struct Budget {
    used: AtomicUsize,
    limit: OnceLock<usize>,
}

/// What all private buffers of the process take: half of the machine's memory at most.
pub(super) static PRIVATE: Budget = Budget::new();

impl Budget {
    const fn new() -> Self {
        Budget { used: AtomicUsize::new(0), limit: OnceLock::new() }
    }

    fn limit(&self) -> usize {
        *self.limit.get_or_init(|| machine_bytes() / 2)
    }

    /// Takes `bytes`, to be given back; whether there were as many left.
    pub fn take(&self, bytes: usize) -> bool {
        let limit = self.limit();
        let sum = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
    }

    /// Gives back what was taken.
    pub fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Some bytes of what all private buffers may take, given back when dropped.
#[derive(Debug)]
pub struct Counted(usize);

impl Counted {
    /// `None` if there are not as many left.
    pub fn take(bytes: usize) -> Option<Self> {
        PRIVATE.take(bytes).then_some(Counted(bytes))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        PRIVATE.give(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let budget = Budget::new();
        budget.limit.set(100).unwrap();
        assert!(budget.take(60) && budget.take(40));
        assert!(!budget.take(1) && !budget.take(usize::MAX));
        budget.give(40);
        assert!(!budget.take(41) && budget.take(40));
    }
}
