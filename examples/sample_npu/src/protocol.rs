//! What driver and device agree on: the messages over the socket, the command ring, the form of a job.
//!
//! A real device has registers, a mailbox and an IOMMU in their place. The socket carries what is rare and needs a
//! descriptor; executions go through the ring in shared memory, and no system call carries their data.

use nnhal::memory::{self, ClientSlice, Mapping, MemoryError, SharedU64};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Bytes of the device's own memory, however many parts the driver takes of it.
pub const DEVICE_BYTES: usize = 64 << 20;
/// Executions that the device takes at once: one per engine. `Info::depth` says so to the driver.
pub const DEPTH: usize = 2;

/// Bytes of the command ring, which is a memory that the device gets as it starts.
pub const RING_BYTES: usize = 4096;
/// Where in it the driver counts the jobs it has put in.
pub const TAIL: usize = 0;
/// From here on, which memory each job is. There is room for more than the driver ever puts in.
pub const ENTRIES: usize = 64;
pub const RING_LEN: u64 = 4;

/// A job is a memory: three words of 64 bits, then spans. First its status.
pub const JOB_STATUS: usize = 0;
/// Nanoseconds that an engine was at it.
pub const JOB_TIME: usize = 8;
/// The driver sets it to 1 to have the job stopped.
pub const JOB_CANCEL: usize = 16;
/// The spans: stream, weights, tables, then each argument.
pub const JOB_SPANS: usize = 24;

/// Where something lies: the number of its memory, its offset there, its bytes, and its layout.
pub type Span = [u64; 4];
pub const SPAN_BYTES: usize = size_of::<Span>();
pub const PLAIN: u64 = 0;
pub const TILED: u64 = 1;

/// What becomes of a job.
pub type JobStatus = u64;
pub const NOT_DONE: JobStatus = 0;
pub const DONE: JobStatus = 1;
pub const CANCELLED: JobStatus = 2;
/// An argument's memory could not be read or written: its client truncated it, or it is read-only.
pub const BAD_MEMORY: JobStatus = 3;
/// The stream asks for what cannot be. It never does unless driver or device has a fault.
pub const FAULT: JobStatus = 4;

/// What the driver tells the device of a memory: its number, and, with the descriptor of a file, where in the file it starts,
/// its bytes, and whether it may be written (1 or 0). Without a descriptor, the device lets go of it.
///
/// The first message has three descriptors in place of that: the ring, the doorbell that the driver rings, the interrupt that
/// the device raises. The device sends none.
pub type Message = [u64; 4];

/// Sends a message. It never waits: `WouldBlock` if the device has too many unread.
pub fn send(socket: &impl AsFd, message: Message, fds: &[BorrowedFd]) -> io::Result<()> {
    memory::send(socket.as_fd(), &bytes_of(message), fds)
}

/// The next message, without waiting; `None` once the driver is gone.
pub fn receive(socket: &impl AsFd) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
    Ok(memory::receive(socket.as_fd(), true)?.map(|(bytes, fds)| (words_of(&bytes), fds)))
}

/// The word at byte `at` of a memory that both sides change.
pub fn word(memory: &Arc<Mapping>, at: usize) -> Result<u64, MemoryError> {
    SharedU64::new(memory.clone(), at)?.load()
}

/// Sets that word: whoever reads the new value sees all that was written before.
pub fn set_word(memory: &Arc<Mapping>, at: usize, value: u64) -> Result<(), MemoryError> {
    SharedU64::new(memory.clone(), at)?.store(value)
}

/// All of a memory, as copies reach it.
pub fn whole(memory: &Arc<Mapping>) -> ClientSlice {
    ClientSlice::whole(memory.clone())
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
