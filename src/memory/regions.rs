//! The table of watched regions, read without a lock by a handler of signals while others write it.
//!
//! Nothing that the handler calls may lock, allocate or panic: that is [`Regions::mark`].

use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::atomic::{AtomicBool, AtomicUsize};
use crate::sync::Mutex;
use std::ops::Deref;
use std::sync::PoisonError;

/// One watched region. The handler reads it without a lock, so `generation` says whether what it read belongs together:
/// it is odd while the slot is in use, and changes whenever the slot does.
pub(super) struct Slot {
    pub generation: AtomicUsize,
    pub start: AtomicUsize,
    pub len: AtomicUsize,
    pub vanished: AtomicBool,
}

impl Slot {
    /// Start and length of the region, if there is one that holds `address`.
    fn holds(&self, address: usize) -> Option<(usize, usize)> {
        let generation = self.generation.load(SeqCst);
        let (start, len) = (self.start.load(SeqCst), self.len.load(SeqCst));
        // A slot that changes meanwhile is another region's: whoever faults keeps its own region in place.
        let settled = generation % 2 == 1 && self.generation.load(SeqCst) == generation;
        (settled && address.wrapping_sub(start) < len).then_some((start, len))
    }
}

/// The regions that are watched, as many as there are slots at the most.
pub(super) struct Regions<Slots> {
    pub slots: Slots,
    /// No slot from here on was ever used.
    pub used: AtomicUsize,
    pub free: Mutex<FreeSlots>,
}

/// Which slots are free. Only registration looks here, never the handler.
pub(super) struct FreeSlots {
    pub returned: Vec<usize>,
    /// The first slot that was never used.
    pub fresh: usize,
    pub limit: usize,
}

impl FreeSlots {
    pub fn take(&mut self) -> Option<usize> {
        self.returned.pop().or_else(|| {
            let slot = Some(self.fresh).filter(|&slot| slot < self.limit)?;
            self.fresh += 1;
            Some(slot)
        })
    }
}

impl<Slots: Deref<Target = [Slot]>> Regions<Slots> {
    /// Has the region watched; the slot that is now its own, if there was one.
    pub fn watch(&self, start: usize, len: usize) -> Option<usize> {
        let slot = self.free.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let region = &self.slots[slot];
        region.start.store(start, SeqCst);
        region.len.store(len, SeqCst);
        region.vanished.store(false, SeqCst);
        region.generation.fetch_add(1, SeqCst);
        self.used.fetch_max(slot + 1, SeqCst);
        Some(slot)
    }

    /// Ends the watch of the region in `slot`.
    pub fn forget(&self, slot: usize) {
        self.slots[slot].generation.fetch_add(1, SeqCst);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).returned.push(slot);
    }

    /// Start and length of the region in `slot`, for whom it belongs to.
    pub fn place(&self, slot: usize) -> (usize, usize) {
        let region = &self.slots[slot];
        (region.start.load(SeqCst), region.len.load(SeqCst))
    }

    /// Whether the region in `slot` is marked.
    pub fn is_marked(&self, slot: usize) -> bool {
        self.slots[slot].vanished.load(SeqCst)
    }

    /// Marks the region that holds `address` as vanished; its start and length, if there is one.
    pub fn mark(&self, address: usize) -> Option<(usize, usize)> {
        let mut slots = self.slots.iter().take(self.used.load(SeqCst));
        let (slot, region) = slots.find_map(|slot| Some((slot, slot.holds(address)?)))?;
        slot.vanished.store(true, SeqCst);
        Some(region)
    }
}
