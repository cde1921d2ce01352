//! Copies of what clients gave, of which there may be very much: a stretch at a time, with a yield point between two. Memory
//! that a device may be at is waited for and touched without a turn.
//!
//! It must not know what is copied.

use crate::memory::{Access, AlignedBuf, ClientSlice, MemoryError};
use crate::ops::{Interrupt, OpError};

/// So many bytes are copied between two yield points. What is no longer comes by none.
pub const STRETCH: usize = 1 << 20;
/// What a part counts beside its bytes: there may be very many of a few bytes each.
const PART: usize = 256;

/// Copies by the yield points of `interrupt`.
pub struct Copier<'i> {
    interrupt: &'i dyn Interrupt,
    /// Bytes that were copied since the last yield point.
    copied: usize,
}

/// Why a copy was not made.
#[derive(Debug)]
pub enum CopyError {
    Memory(MemoryError),
    Stopped(OpError),
}

impl From<MemoryError> for CopyError {
    fn from(source: MemoryError) -> Self {
        CopyError::Memory(source)
    }
}

impl<'i> Copier<'i> {
    pub fn new(interrupt: &'i dyn Interrupt) -> Self {
        Copier { interrupt, copied: 0 }
    }

    /// Copies `from` to the start of `to`, which must not be shorter.
    pub fn copy(&mut self, from: &ClientSlice, to: &ClientSlice) -> Result<(), CopyError> {
        let uses = [(from, Access::Read), (to, Access::Write)];
        self.stretches(from.len(), &uses, |start, len| from.part(start, len)?.copy_to(&to.part(start, len)?))
    }

    /// The same, of bytes of our own.
    pub fn write(&mut self, from: &[u8], to: &ClientSlice) -> Result<(), CopyError> {
        let uses = [(to, Access::Write)];
        self.stretches(from.len(), &uses, |start, len| to.part(start, len)?.write(&from[start..start + len]))
    }

    /// A private copy.
    pub fn to_private(&mut self, from: &ClientSlice) -> Result<AlignedBuf, CopyError> {
        let mut copy = AlignedBuf::zeroed(from.len()).ok_or(MemoryError::OutOfMemory(from.len()))?;
        let (uses, to) = ([(from, Access::Read)], &mut copy);
        self.stretches(from.len(), &uses, |start, len| {
            from.part(start, len)?.read(&mut to[start..start + len])
        })?;
        Ok(copy)
    }

    /// Has `copy` do what there is of `len` bytes, from a place on so many at a time; without a turn if a device may be busy with
    /// what each `uses`.
    fn stretches(
        &mut self,
        len: usize,
        uses: &[(&ClientSlice, Access)],
        mut copy: impl FnMut(usize, usize) -> Result<(), MemoryError>,
    ) -> Result<(), CopyError> {
        self.copied += PART;
        let mut start = 0;
        while start < len {
            if self.copied >= STRETCH {
                self.interrupt.yield_point().map_err(CopyError::Stopped)?;
                self.copied = 0;
            }
            for (busy, access) in uses.iter().filter(|(slice, _)| slice.may_be_busy()) {
                self.interrupt.before_waiting();
                let go_on = || self.interrupt.check();
                busy.mapping().wait_until_idle(*access, go_on).map_err(CopyError::Stopped)?;
            }
            let stretch = (len - start).min(STRETCH - self.copied);
            copy(start, stretch)?;
            (start, self.copied) = (start + stretch, self.copied + stretch);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{memory_of_a_busy_device, memory_of_a_device, Mapping};
    use crate::scheduler::{boottime_ns, Control};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts how often it is passed, and ends the work once that is too often.
    struct Counting {
        passed: AtomicUsize,
        most: usize,
        lent: AtomicUsize,
    }

    impl Interrupt for Counting {
        fn check(&self) -> Result<(), OpError> {
            match self.passed.load(Ordering::Relaxed) <= self.most {
                true => Ok(()),
                false => Err(OpError::Cancelled),
            }
        }

        fn yield_point(&self) -> Result<(), OpError> {
            self.passed.fetch_add(1, Ordering::Relaxed);
            self.check()
        }

        fn before_waiting(&self) {
            self.lent.store(self.passed.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn counting(most: usize) -> Counting {
        Counting { passed: AtomicUsize::new(0), most, lent: AtomicUsize::new(usize::MAX) }
    }

    fn filled(len: usize) -> ClientSlice {
        let slice = ClientSlice::whole(Mapping::anonymous(len).unwrap().into());
        slice.write(&(0..len).map(|i| (i % 251) as u8).collect::<Vec<_>>()).unwrap();
        slice
    }

    #[test]
    fn what_is_long_is_copied_a_stretch_at_a_time_and_what_is_short_at_once() {
        let from = filled(5 * STRETCH + 7);
        let bytes = from.to_private().unwrap();
        let to = ClientSlice::whole(Mapping::anonymous(from.len()).unwrap().into());
        type Copies<'c> = &'c dyn Fn(&mut Copier) -> Result<AlignedBuf, CopyError>;
        let copied: Copies = &|copier| copier.copy(&from, &to).and_then(|()| Ok(to.to_private()?));
        let written: Copies = &|copier| copier.write(&bytes, &to).and_then(|()| Ok(to.to_private()?));
        let private: Copies = &|copier| copier.to_private(&from);
        for copy in [copied, written, private] {
            let interrupt = counting(usize::MAX);
            assert_eq!(copy(&mut Copier::new(&interrupt)).unwrap()[..], bytes[..]);
            assert_eq!(interrupt.passed.into_inner(), 5);
            let stopped = copy(&mut Copier::new(&counting(2)));
            assert!(matches!(stopped, Err(CopyError::Stopped(OpError::Cancelled))));
        }
        let (interrupt, short) = (counting(usize::MAX), filled(STRETCH / 2));
        Copier::new(&interrupt).copy(&short, &to).unwrap();
        assert_eq!(interrupt.passed.into_inner(), 0);
    }

    #[test]
    fn memory_that_may_be_busy_is_touched_without_a_turn() {
        let interrupt = counting(usize::MAX);
        let [passed, lent] =
            [&interrupt.passed, &interrupt.lent].map(|count| || count.load(Ordering::Relaxed));
        let mut copier = Copier::new(&interrupt);
        let busy = |_, _| (passed() == lent()).then_some(()).ok_or(MemoryError::Vanished);
        let of_a_device = ClientSlice::whole(memory_of_a_device().into());
        let (uses, uses_none) = ([(&of_a_device, Access::Read)], [(&filled(1), Access::Read)]);
        copier.stretches(3 * STRETCH, &uses, busy).unwrap();
        copier.stretches(2 * STRETCH, &uses_none, |_, _| Ok(())).unwrap();
        assert!(passed() > lent(), "what is not busy has a turn");
        copier.stretches(1, &uses, busy).unwrap();
    }

    #[test]
    fn who_waits_for_a_device_stops_with_the_work() {
        let (memory, fences) = memory_of_a_busy_device();
        let (of_a_device, plain) = (ClientSlice::whole(memory.into()), filled(3 * 4096));
        let stops = Control { deadline_ns: Some(boottime_ns()), ..Control::default() };
        let is_late = |copied: Result<(), CopyError>| {
            matches!(copied, Err(CopyError::Stopped(OpError::DeadlinePassed)))
        };
        assert!(is_late(Copier::new(&stops).copy(&of_a_device, &plain)));
        assert!(is_late(Copier::new(&stops).to_private(&of_a_device).map(drop)));
        // It reads no more, and is read from.
        fences.write(u64::MAX - 1).unwrap();
        assert!(is_late(Copier::new(&stops).copy(&plain, &of_a_device)));
        assert!(is_late(Copier::new(&stops).write(&[1], &of_a_device)));
        assert!(!is_late(Copier::new(&stops).copy(&of_a_device, &plain)), "it was not busy");
    }

    #[test]
    fn very_many_of_a_few_bytes_come_by_yield_points_too() {
        let (small, interrupt) = (filled(1), counting(usize::MAX));
        let to = ClientSlice::whole(Mapping::anonymous(1).unwrap().into());
        let mut copier = Copier::new(&interrupt);
        (0..10 * STRETCH / PART).for_each(|_| copier.copy(&small, &to).unwrap());
        assert!(interrupt.passed.into_inner() >= 9);
    }
}
