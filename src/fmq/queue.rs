//! The queue: a ring of elements with one end to read from and one to write to.
//!
//! Each end keeps its own counter to itself and only ever publishes it, so that the peer can neither set it back nor
//! forward. The peer's counter is checked at every look. Elements are copied out before anybody interprets them.

use super::descriptor::Descriptor;
use super::event_flag::{self, NOT_EMPTY, NOT_FULL};
use super::mapped::{Counter, Mapped, Memory};
use super::FmqError;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Longest single sleep: a hostile peer can keep a wake-up from us, and then the wait goes on for this long at most
/// before it looks around.
const LONGEST_SLEEP: Duration = Duration::from_secs(2);
/// So many wake-ups for nothing, one close upon the other, are a peer that wants us to spin.
const PATIENCE_FOR_NOTHING: u32 = 64;
const NAP: Duration = Duration::from_millis(1);

/// A queue that one side has attached to; its ends are [`Reader`] and [`Writer`].
#[derive(Debug)]
pub struct Queue<M = Mapped> {
    memory: Arc<M>,
    quantum: usize,
}

/// How long a wait may last.
#[derive(Clone, Copy)]
pub struct Limit<'a> {
    until: Option<Instant>,
    stop: &'a dyn Fn() -> bool,
}

impl<'a> Limit<'a> {
    /// Until `timeout` has passed, or for as long as it takes with none.
    pub fn new(timeout: Option<Duration>) -> Limit<'static> {
        Limit { until: timeout.and_then(|timeout| Instant::now().checked_add(timeout)), stop: &|| false }
    }

    /// The same, and until `stop` says so: it is asked whenever the wait is interrupted, and now and then.
    pub fn or_until(self, stop: &'a dyn Fn() -> bool) -> Limit<'a> {
        Limit { stop, ..self }
    }

    /// For how long to sleep next.
    fn left(&self) -> Result<Duration, FmqError> {
        if (self.stop)() {
            return Err(FmqError::Stopped);
        }
        let left = self.until.map_or(LONGEST_SLEEP, |until| until.saturating_duration_since(Instant::now()));
        match left.is_zero() {
            true => Err(FmqError::TimedOut),
            false => Ok(left.min(LONGEST_SLEEP)),
        }
    }
}

impl Queue {
    /// Attaches to the queue that `descriptor` describes, if it is one of elements of `quantum` bytes, at most
    /// `max_elements` of them.
    pub fn attach(descriptor: &Descriptor, quantum: usize, max_elements: usize) -> Result<Queue, FmqError> {
        let memory = Mapped::new(&descriptor.check(quantum, max_elements)?)?;
        Ok(Queue { memory: Arc::new(memory), quantum })
    }

    fn waker(&self) -> Waker {
        Waker(Arc::downgrade(&self.memory))
    }
}

impl Reader {
    /// What ends this end's waits, and keeps nothing mapped.
    pub fn waker(&self) -> Waker {
        self.queue.waker()
    }
}

impl Writer {
    /// What ends this end's waits, and keeps nothing mapped.
    pub fn waker(&self) -> Waker {
        self.queue.waker()
    }
}

/// Ends waits on a queue.
#[derive(Clone, Debug)]
pub struct Waker(Weak<Mapped>);

impl Waker {
    /// Wakes all who wait, who then ask their [`Limit`] whether to go on.
    pub fn interrupt(&self) {
        if let Some(memory) = self.0.upgrade() {
            // Memory that is lost ends the wait by itself.
            if let Err(why) = event_flag::interrupt(&*memory, NOT_EMPTY | NOT_FULL) {
                log::debug!("a wait on a queue was not interrupted: {why}");
            }
        }
    }
}

impl<M: Memory> Queue<M> {
    #[cfg(all(test, target_pointer_width = "64"))]
    pub(super) fn over(memory: Arc<M>, quantum: usize) -> Self {
        Queue { memory, quantum }
    }

    /// How many elements the ring holds.
    pub fn capacity(&self) -> usize {
        self.memory.ring() / self.quantum
    }

    /// How many of the ring's bytes are taken, going by the two counters.
    fn taken(&self, read: u64, write: u64) -> Result<usize, FmqError> {
        let taken = write
            .checked_sub(read)
            .ok_or(FmqError::Corrupted("more was read than was ever written"))
            .map(|taken| usize::try_from(taken).unwrap_or(usize::MAX))?;
        if taken > self.memory.ring() {
            return Err(FmqError::Corrupted("more is in the ring than it holds"));
        }
        if !taken.is_multiple_of(self.quantum) {
            return Err(FmqError::Corrupted("a counter is within an element"));
        }
        Ok(taken)
    }

    /// The own end's counter to begin with, and whether the two make sense.
    fn start(&self, own: Counter) -> Result<u64, FmqError> {
        let (read, write) = (self.memory.load(Counter::Read)?, self.memory.load(Counter::Write)?);
        self.taken(read, write)?;
        let start = if own == Counter::Read { read } else { write };
        match start.is_multiple_of(self.quantum as u64) {
            true => Ok(start),
            false => Err(FmqError::Corrupted("a counter is within an element")),
        }
    }

    /// Publishes the own counter, moved on by `len` bytes, and wakes the peer.
    fn advance(&self, own: Counter, position: &mut u64, len: usize, bits: u32) -> Result<(), FmqError> {
        *position =
            position.checked_add(len as u64).ok_or(FmqError::Corrupted("a counter has come to its end"))?;
        self.memory.store(own, *position)?;
        event_flag::wake(&*self.memory, bits)
    }

    /// Where in the ring `position` is, and how many of `len` bytes from there lie before the ring's end.
    fn split(&self, position: u64, len: usize) -> (usize, usize) {
        let ring = self.memory.ring();
        let offset = (position % ring as u64) as usize;
        (offset, len.min(ring - offset))
    }

    /// Calls `attempt` until it succeeds, and sleeps on `bits` in between.
    fn wait(
        &self,
        bits: u32,
        limit: &Limit,
        mut attempt: impl FnMut() -> Result<bool, FmqError>,
    ) -> Result<(), FmqError> {
        let mut for_nothing = 0u32;
        while !attempt()? {
            let began = Instant::now();
            event_flag::wait(&*self.memory, bits, limit.left()?)?;
            for_nothing = if began.elapsed() < NAP { for_nothing.saturating_add(1) } else { 0 };
            if for_nothing >= PATIENCE_FOR_NOTHING {
                std::thread::sleep(NAP);
            }
        }
        Ok(())
    }

    fn check_len(&self, len: usize) -> Result<(), FmqError> {
        match len.is_multiple_of(self.quantum) && len <= self.memory.ring() {
            true => Ok(()),
            false => Err(FmqError::Length(len)),
        }
    }
}

/// The end to read from. There must be one only, as with all synchronized queues.
#[derive(Debug)]
pub struct Reader<M = Mapped> {
    queue: Queue<M>,
    position: u64,
}

impl<M: Memory> Reader<M> {
    pub fn new(queue: Queue<M>) -> Result<Self, FmqError> {
        let position = queue.start(Counter::Read)?;
        Ok(Reader { queue, position })
    }

    /// How many elements there are to read now.
    pub fn available(&self) -> Result<usize, FmqError> {
        let write = self.queue.memory.load(Counter::Write)?;
        Ok(self.queue.taken(self.position, write)? / self.queue.quantum)
    }

    /// The next `len` bytes, to be copied out of the ring and then committed; `None` if there are fewer.
    pub fn begin(&mut self, len: usize) -> Result<Option<ReadTransaction<'_, M>>, FmqError> {
        self.queue.check_len(len)?;
        let enough = self.available()? * self.queue.quantum >= len;
        Ok(enough.then_some(ReadTransaction { reader: self, len }))
    }

    /// Fills `to`, or does nothing and says `false` where there is less to read.
    pub fn read(&mut self, to: &mut [u8]) -> Result<bool, FmqError> {
        let Some(transaction) = self.begin(to.len())? else { return Ok(false) };
        transaction.copy(0, to)?;
        transaction.commit()?;
        Ok(true)
    }

    /// Waits until there is enough to fill `to`, and does.
    pub fn read_blocking(&mut self, to: &mut [u8], limit: &Limit) -> Result<(), FmqError> {
        self.queue.check_len(to.len())?;
        self.wait(to.len() / self.queue.quantum, limit)?;
        match self.read(to)? {
            true => Ok(()),
            false => Err(FmqError::Corrupted("what was written has been taken back")),
        }
    }

    /// Waits until there are `elements` elements to read.
    pub fn wait(&self, elements: usize, limit: &Limit) -> Result<(), FmqError> {
        self.queue.wait(NOT_EMPTY, limit, || Ok(self.available()? >= elements))
    }
}

/// Elements that are there to be read, and stay in the ring until committed.
pub struct ReadTransaction<'a, M = Mapped> {
    reader: &'a mut Reader<M>,
    len: usize,
}

impl<M: Memory> ReadTransaction<'_, M> {
    /// Copies bytes out of the ring, the first from `start` bytes into the transaction.
    pub fn copy(&self, start: usize, to: &mut [u8]) -> Result<(), FmqError> {
        if start.checked_add(to.len()).is_none_or(|end| end > self.len) {
            return Err(FmqError::Length(to.len()));
        }
        let queue = &self.reader.queue;
        let (offset, before_end) = queue.split(self.reader.position.wrapping_add(start as u64), to.len());
        let (head, tail) = to.split_at_mut(before_end);
        queue.memory.read(offset, head)?;
        match tail.is_empty() {
            true => Ok(()),
            false => queue.memory.read(0, tail),
        }
    }

    /// Gives the room back to the writer.
    pub fn commit(self) -> Result<(), FmqError> {
        let Reader { queue, position } = self.reader;
        queue.advance(Counter::Read, position, self.len, NOT_FULL)
    }
}

/// The end to write to. There must be one only, as with all synchronized queues.
#[derive(Debug)]
pub struct Writer<M = Mapped> {
    queue: Queue<M>,
    position: u64,
}

impl<M: Memory> Writer<M> {
    pub fn new(queue: Queue<M>) -> Result<Self, FmqError> {
        let position = queue.start(Counter::Write)?;
        Ok(Writer { queue, position })
    }

    /// How many elements the queue holds.
    pub fn capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// How many elements there is room for now.
    pub fn available(&self) -> Result<usize, FmqError> {
        let read = self.queue.memory.load(Counter::Read)?;
        let taken = self.queue.taken(read, self.position)?;
        Ok((self.queue.memory.ring() - taken) / self.queue.quantum)
    }

    /// Room for `len` bytes, to be filled and then committed; `None` if there is less.
    pub fn begin(&mut self, len: usize) -> Result<Option<WriteTransaction<'_, M>>, FmqError> {
        self.queue.check_len(len)?;
        let enough = self.available()? * self.queue.quantum >= len;
        Ok(enough.then_some(WriteTransaction { writer: self, len }))
    }

    /// Writes all of `from` at once, or does nothing and says `false` where there is no room for it.
    pub fn write(&mut self, from: &[u8]) -> Result<bool, FmqError> {
        let Some(mut transaction) = self.begin(from.len())? else { return Ok(false) };
        transaction.copy(0, from)?;
        transaction.commit()?;
        Ok(true)
    }

    /// Waits until there is room for all of `from`, and writes it.
    pub fn write_blocking(&mut self, from: &[u8], limit: &Limit) -> Result<(), FmqError> {
        self.queue.check_len(from.len())?;
        let room = from.len() / self.queue.quantum;
        self.queue.wait(NOT_FULL, limit, || Ok(self.available()? >= room))?;
        match self.write(from)? {
            true => Ok(()),
            false => Err(FmqError::Corrupted("what was read has been put back")),
        }
    }
}

/// Room in the ring, which the reader sees only once it is committed.
pub struct WriteTransaction<'a, M = Mapped> {
    writer: &'a mut Writer<M>,
    len: usize,
}

impl<M: Memory> WriteTransaction<'_, M> {
    /// Copies bytes into the ring, the first to `start` bytes into the transaction.
    pub fn copy(&mut self, start: usize, from: &[u8]) -> Result<(), FmqError> {
        if start.checked_add(from.len()).is_none_or(|end| end > self.len) {
            return Err(FmqError::Length(from.len()));
        }
        let queue = &self.writer.queue;
        let (offset, before_end) = queue.split(self.writer.position.wrapping_add(start as u64), from.len());
        let (head, tail) = from.split_at(before_end);
        queue.memory.write(offset, head)?;
        match tail.is_empty() {
            true => Ok(()),
            false => queue.memory.write(0, tail),
        }
    }

    /// Shows it to the reader.
    pub fn commit(self) -> Result<(), FmqError> {
        let Writer { queue, position } = self.writer;
        queue.advance(Counter::Write, position, self.len, NOT_EMPTY)
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
