//! What driver and device agree on: the messages over the socket, the command ring, the form of a job.
//!
//! A real device has registers, a mailbox and an IOMMU in their place. The socket carries what is rare and needs a
//! descriptor; executions go through the ring in shared memory, and no system call carries their data.

use nnhal::memory::{self, Access, Mapping};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Bytes of the device's memory.
pub const DEVICE_BYTES: usize = 64 << 20;
/// The first page of it is the command ring; the rest is for whoever allocates it.
pub const RING_BYTES: usize = 4096;
/// Executions that the device takes at once: one per engine. `Info::depth` says so to the driver.
pub const DEPTH: usize = 2;

/// Where in the ring page the driver counts the jobs it has put in.
pub const TAIL: usize = 0;
/// The ring: where in device memory each job is. It has room for more than the driver ever puts in.
pub const ENTRIES: usize = 64;
pub const RING_LEN: u64 = 4;

/// A job is a block of device memory: [`JOB_WORDS`] words of 64 bits, then [`ARGUMENT_WORDS`] for each argument. First
/// the status, last the number of arguments; between them where the stream, weights and tables are, each with its bytes.
pub const JOB_WORDS: usize = 10;
pub const JOB_STATUS: usize = 0;
/// Nanoseconds that an engine was at it.
pub const JOB_TIME: usize = 8;
/// The driver sets it to 1 to have the job stopped.
pub const JOB_CANCEL: usize = 16;
/// An argument's memory (0 is the device's own), its offset there, its bytes, its layout.
pub const ARGUMENT_WORDS: usize = 4;
pub const PLAIN: u64 = 0;
pub const TILED: u64 = 1;

/// What becomes of a job. 0 is "not done yet".
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub enum JobStatus {
    Done = 1,
    Cancelled = 2,
    /// An argument's memory could not be read or written: its client truncated it, or it is read-only.
    BadMemory = 3,
    /// The stream asks for what cannot be. It never does unless driver or device has a fault.
    Fault = 4,
}

impl JobStatus {
    pub fn from_word(word: u64) -> Option<Self> {
        use JobStatus::*;
        [Done, Cancelled, BadMemory, Fault].into_iter().find(|&status| status as u64 == word)
    }
}

/// What a message over the socket asks for: words, and descriptors that go with them.
#[repr(u64)]
pub enum Kind {
    /// To the device, first: its memory, the doorbell that the driver rings, the interrupt that the device raises.
    Hello = 1,
    /// To the driver: the device is there. It sends nothing else.
    Ready = 2,
    /// Take this file in as memory `id`: offset, length, access.
    Import = 3,
    /// Let go of memory `id`.
    Release = 4,
}

/// What a client's memory may be used for: a message has its number here.
pub const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::ReadWrite];

/// One message.
pub struct Message {
    pub kind: u64,
    pub id: u64,
    pub words: [u64; 3],
    pub fds: Vec<OwnedFd>,
}

/// Sends a message. It never waits: `WouldBlock` if the other side has too many unread.
pub fn send(socket: &impl AsFd, kind: Kind, id: u64, words: [u64; 3], fds: &[BorrowedFd]) -> io::Result<()> {
    let [a, b, c] = words;
    memory::send(socket.as_fd(), &bytes_of([kind as u64, id, a, b, c]), fds)
}

/// The next message, without waiting; `None` once the other side is gone.
pub fn receive(socket: &impl AsFd) -> io::Result<Option<Message>> {
    let message = memory::receive(socket.as_fd(), true)?;
    Ok(message.map(|(bytes, fds)| {
        let [kind, id, a, b, c] = words_of(&bytes);
        Message { kind, id, words: [a, b, c], fds }
    }))
}

/// Maps the device's memory.
pub fn map_device(file: BorrowedFd) -> io::Result<Arc<Mapping>> {
    Mapping::new(file, 0, DEVICE_BYTES, Access::ReadWrite).map(Arc::new).map_err(io::Error::other)
}

pub fn bytes_of(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The 64 bit words at the start of `bytes`; what is missing is 0.
pub fn words_of<const COUNT: usize>(bytes: &[u8]) -> [u64; COUNT] {
    let mut words = [0; COUNT];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}
