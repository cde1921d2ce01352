//! The memories of a burst by the names that its client gave them: mapped once, kept until freed, bounded.

use crate::memory::Memory;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Most memories that a burst keeps mapped, and that one request may name: a process can have so many mappings only.
/// What is not kept is asked for again when it is needed.
pub const MAX_KEPT: usize = 128;

/// The memories that are known.
#[derive(Debug, Default)]
pub struct Slots {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    memories: BTreeMap<i32, Entry>,
    /// Counts lookups, to tell which entry was not used for longest.
    now: u64,
    /// Counts what was freed: a memory that was asked for before that may be what its name no longer stands for.
    freed: u64,
}

#[derive(Debug)]
struct Entry {
    memory: Memory,
    used: u64,
}

/// Why memories are not to be had.
pub type NotResolved = String;

impl Slots {
    /// The memories of these names, one per name. Those that are not known are asked for, all at once, each once, in
    /// order; no lock is held meanwhile, as the answer may take its time.
    pub fn resolve(
        &self,
        slots: &[i32],
        ask: impl FnOnce(&[i32]) -> Result<Vec<Memory>, NotResolved>,
    ) -> Result<Vec<Memory>, NotResolved> {
        if slots.len() > MAX_KEPT {
            return Err(format!("{} memories, at most {MAX_KEPT} may be", slots.len()));
        }
        let (mut found, unknown, freed) = self.look_up(slots);
        if !unknown.is_empty() {
            let memories = ask(&unknown)?;
            if memories.len() != unknown.len() {
                return Err(format!("asked for {} memories, was given {}", unknown.len(), memories.len()));
            }
            let memories: Vec<_> = unknown.into_iter().zip(memories).collect();
            self.keep(&memories, freed);
            found.extend(memories);
        }
        slots.iter().map(|slot| found.get(slot).cloned().ok_or_else(|| format!("no memory {slot}"))).collect()
    }

    /// Forgets a memory; false if it was not known. An execution that is under way keeps it until it is done.
    pub fn free(&self, slot: i32) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.freed += 1;
        known.memories.remove(&slot).is_some()
    }

    pub fn free_all(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.freed += 1;
        known.memories.clear();
    }

    /// How often something was freed until now.
    pub fn freed(&self) -> u64 {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).freed
    }

    /// What is known of these names, what is not, and how often something was freed until now. Memory that has vanished
    /// is not known any more.
    fn look_up(&self, slots: &[i32]) -> (BTreeMap<i32, Memory>, Vec<i32>, u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.now += 1;
        let now = known.now;
        let (mut found, mut unknown) = (BTreeMap::new(), std::collections::BTreeSet::new());
        for &slot in slots {
            match known.memories.get_mut(&slot).filter(|entry| !entry.memory.vanished()) {
                Some(entry) => {
                    entry.used = now;
                    found.insert(slot, entry.memory.clone());
                }
                None => {
                    unknown.insert(slot);
                }
            }
        }
        (found, unknown.into_iter().collect(), known.freed)
    }

    /// Keeps these, in place of those that were not used for longest.
    fn keep(&self, memories: &[(i32, Memory)], freed: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.freed != freed {
            return;
        }
        let used = known.now;
        for (slot, memory) in memories {
            let full = known.memories.len() >= MAX_KEPT && !known.memories.contains_key(slot);
            let oldest = known.memories.iter().min_by_key(|(_, entry)| entry.used).map(|(&slot, _)| slot);
            if let Some(oldest) = oldest.filter(|_| full) {
                known.memories.remove(&oldest);
            }
            known.memories.insert(*slot, Entry { memory: memory.clone(), used });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Mapping;
    use std::sync::Arc;

    fn memories(count: usize) -> Result<Vec<Memory>, NotResolved> {
        let memory = |mapping| Memory::Mapped(Arc::new(mapping));
        (0..count).map(|_| Mapping::anonymous(8).map(memory).map_err(|e| e.to_string())).collect()
    }

    /// Resolves; gives what was asked for.
    fn asked(slots: &Slots, names: &[i32]) -> Vec<i32> {
        let mut asked = Vec::new();
        let ask = |unknown: &[i32]| {
            asked = unknown.to_vec();
            memories(unknown.len())
        };
        assert_eq!(slots.resolve(names, ask).unwrap().len(), names.len());
        asked
    }

    #[test]
    fn only_unknown_names_are_asked_for_sorted_and_once() {
        let slots = Slots::default();
        assert_eq!(asked(&slots, &[7, -2, 7, 3]), [-2, 3, 7]);
        assert_eq!(asked(&slots, &[3, 9, -2]), [9]);
        assert!(slots.free(3) && !slots.free(3));
        assert_eq!(asked(&slots, &[3, 9]), [3]);
        slots.free_all();
        assert_eq!(asked(&slots, &[9]), [9]);
        let same = slots.resolve(&[9, 9], |_| unreachable!("it is known")).unwrap();
        assert!(same[0].is(&same[1]));
    }

    #[test]
    fn a_wrong_number_of_memories_is_refused() {
        let slots = Slots::default();
        for count in [0, 1, 3] {
            assert!(slots.resolve(&[1, 2], |_| memories(count)).is_err());
        }
        assert!(slots.resolve(&[1], |_| Err("gone".into())).is_err());
        assert_eq!(asked(&slots, &[1]), [1]);
    }

    #[test]
    fn what_is_freed_while_it_is_asked_for_is_not_kept() {
        let slots = Slots::default();
        let ask = |unknown: &[i32]| {
            slots.free(1);
            memories(unknown.len())
        };
        slots.resolve(&[1], ask).unwrap();
        assert_eq!(asked(&slots, &[1]), [1]);
    }

    #[test]
    fn only_so_many_are_kept_and_the_oldest_goes() {
        let slots = Slots::default();
        let names: Vec<i32> = (0..MAX_KEPT as i32).collect();
        assert_eq!(asked(&slots, &names), names);
        assert!(asked(&slots, &names[1..]).is_empty());
        assert_eq!(asked(&slots, &[-1]), [-1]);
        assert_eq!(asked(&slots, &[0]), [0]);
        assert!(slots.known.lock().unwrap().memories.len() <= MAX_KEPT);
        let many: Vec<i32> = (0..=MAX_KEPT as i32).collect();
        assert!(slots.resolve(&many, |_| unreachable!("they are too many")).is_err());
        // Though they are one.
        assert!(slots.resolve(&[0; MAX_KEPT + 1], |_| unreachable!("they are too many")).is_err());
        assert_eq!(slots.resolve(&[0; MAX_KEPT], |slots| memories(slots.len())).unwrap().len(), MAX_KEPT);
    }

    #[test]
    fn memory_that_vanished_is_asked_for_again() {
        use std::os::fd::AsFd;
        let file = std::fs::File::from(
            nix::sys::memfd::memfd_create(c"pool", nix::sys::memfd::MFdFlags::empty()).unwrap(),
        );
        file.set_len(8).unwrap();
        let map = || Mapping::new(file.as_fd(), 0, 8, crate::memory::Access::ReadWrite).unwrap();
        let slots = Slots::default();
        let given = slots.resolve(&[1], |_| Ok(vec![Memory::Mapped(Arc::new(map()))])).unwrap();
        file.set_len(0).unwrap();
        let Memory::Mapped(mapping) = &given[0] else { unreachable!("it was mapped") };
        let slice = crate::memory::ClientSlice::whole(mapping.clone());
        assert!(slice.read(&mut [0; 8]).is_err());
        assert_eq!(asked(&slots, &[1]), [1]);
    }
}
