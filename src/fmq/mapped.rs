//! The memory of a queue, as its protocol uses it: two counters, a ring of bytes, and the event flag.

use super::descriptor::{Layout, Region};
use super::event_flag::FlagWord;
use super::FmqError;
use crate::memory::{Access, ClientSlice, Mapping, MemoryError, SharedU32, SharedU64};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// One of the two counters, which count bytes and only ever grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    Read,
    Write,
}

/// What the protocol does with a queue's memory. The one that is real is [`Mapped`]; tests have others.
pub trait Memory: FlagWord {
    /// Reads a counter: all that the peer did before it stored this value is visible afterwards.
    fn load(&self, counter: Counter) -> Result<u64, FmqError>;
    /// Stores a counter: a thread that loads this value sees all that was done before.
    fn store(&self, counter: Counter, value: u64) -> Result<(), FmqError>;
    /// Bytes of the ring.
    fn ring(&self) -> usize;
    /// Copies out of the ring, within its end.
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), FmqError>;
    /// Copies into the ring, within its end.
    fn write(&self, offset: usize, from: &[u8]) -> Result<(), FmqError>;
}

/// A queue's memory where a descriptor says it is.
#[derive(Debug)]
pub struct Mapped {
    read_counter: SharedU64,
    write_counter: SharedU64,
    data: Arc<Mapping>,
    event_flag: SharedU32,
    /// How often this end slept since it had something to do, if the peer wakes nobody. The event flag is this end's own
    /// then, and wakes it when its waits are to end.
    naps: Option<AtomicU32>,
}

/// Between the first two looks at a queue whose peer wakes nobody; twice as long after each of a few more.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
const DOUBLINGS: u32 = 5;

impl Mapped {
    pub(super) fn new(layout: &Layout) -> Result<Self, MemoryError> {
        let flag = match &layout.event_flag {
            Some(flag) => map(flag)?,
            None => Arc::new(Mapping::anonymous(size_of::<u32>())?),
        };
        Ok(Mapped {
            read_counter: SharedU64::new(map(&layout.read_counter)?, 0)?,
            write_counter: SharedU64::new(map(&layout.write_counter)?, 0)?,
            data: map(&layout.data)?,
            event_flag: SharedU32::new(flag, 0)?,
            naps: layout.event_flag.is_none().then(AtomicU32::default),
        })
    }
}

#[cfg(test)]
impl Mapped {
    pub fn event_flag_address(&self) -> *const u32 {
        self.event_flag.address()
    }
}

/// Each region is mapped by itself: it may lie in a file of its own.
fn map(place: &Region) -> Result<Arc<Mapping>, MemoryError> {
    Mapping::new(place.file, place.offset, place.len, Access::ReadWrite).map(Arc::new)
}

impl FlagWord for Mapped {
    fn set(&self, bits: u32) -> Result<u32, FmqError> {
        self.event_flag.set(bits)
    }

    fn clear(&self, bits: u32) -> Result<u32, FmqError> {
        self.event_flag.clear(bits)
    }

    fn sleep(&self, expected: u32, bits: u32, timeout: Duration) -> Result<(), FmqError> {
        let again =
            |naps: &AtomicU32| LOOK_AGAIN * (1 << naps.fetch_add(1, Ordering::Relaxed).min(DOUBLINGS));
        let longest = self.naps.as_ref().map_or(timeout, again);
        self.event_flag.sleep(expected, bits, timeout.min(longest))
    }

    fn rouse(&self, bits: u32) -> Result<(), FmqError> {
        self.event_flag.rouse(bits)
    }
}

impl Memory for Mapped {
    fn load(&self, counter: Counter) -> Result<u64, FmqError> {
        Ok(match counter {
            Counter::Read => self.read_counter.load()?,
            Counter::Write => self.write_counter.load()?,
        })
    }

    fn store(&self, counter: Counter, value: u64) -> Result<(), FmqError> {
        if let Some(naps) = &self.naps {
            naps.store(0, Ordering::Relaxed);
        }
        match counter {
            Counter::Read => self.read_counter.store(value)?,
            Counter::Write => self.write_counter.store(value)?,
        }
        Ok(())
    }

    fn ring(&self) -> usize {
        self.data.len()
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), FmqError> {
        Ok(ClientSlice::new(self.data.clone(), offset, to.len())?.read(to)?)
    }

    fn write(&self, offset: usize, from: &[u8]) -> Result<(), FmqError> {
        Ok(ClientSlice::new(self.data.clone(), offset, from.len())?.write(from)?)
    }
}
