//! What driver and device agree on: the messages over the socket, the command ring, the form of a job.
//!
//! A real device has registers, a mailbox and an IOMMU in their place. The socket carries what is rare and needs a
//! descriptor; executions go through the ring in shared memory, and no system call carries their data.

use rustix::io::Errno;
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of the device's memory.
pub const DEVICE_BYTES: usize = 64 << 20;
/// The first page of it is the command ring; the rest is for whoever allocates it.
pub const RING_BYTES: usize = 4096;
/// Executions that the device takes at once: one per engine. `Info::depth` says so to the driver.
pub const DEPTH: usize = 2;

/// Where in the ring page the driver counts the jobs it has put in, and the device those it has taken out. Each has a
/// cache line of its own, since each is written by one side.
pub const TAIL: usize = 0;
pub const HEAD: usize = 64;
/// The ring: where in device memory each job is.
pub const ENTRIES: usize = 128;
pub const RING_LEN: u64 = 4;

/// A job is a block of device memory: a header of 64 bit words, then one entry of four words per argument.
pub const JOB_STATUS: usize = 0;
/// Nanoseconds that an engine was at it.
pub const JOB_TIME: usize = 8;
/// The driver sets it to 1 to have the job stopped.
pub const JOB_CANCEL: usize = 16;
/// Where the command stream is, and its bytes; where constants of each kind are, and their bytes.
pub const JOB_STREAM: usize = 24;
pub const JOB_CONSTANTS: [usize; 2] = [40, 56];
pub const JOB_ARGUMENT_COUNT: usize = 72;
pub const JOB_ARGUMENTS: usize = 88;
/// An argument's memory (0 is the device's own), its offset there, its bytes in the plain layout, its layout.
pub const ARGUMENT_BYTES: usize = 32;
pub const PLAIN: u64 = 0;
pub const TILED: u64 = 1;

/// What becomes of a job. 0 is "not done yet".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// To the device, first: its memory, the doorbell that the driver rings, the interrupt that the device raises.
    Hello = 1,
    /// To the driver: the device is there.
    Ready = 2,
    /// Take this file in as memory `id`: offset, length, access.
    Import = 3,
    /// Let go of memory `id`.
    Release = 4,
}

/// One message.
#[derive(Debug)]
pub struct Message {
    pub kind: u64,
    pub id: u64,
    pub words: [u64; 3],
    pub fds: Vec<OwnedFd>,
}

const MESSAGE_BYTES: usize = 40;
const MOST_FDS: usize = 3;

/// Sends a message. It never waits: `WOULDBLOCK` if the other side has too many unread.
pub fn send(
    socket: BorrowedFd,
    kind: Kind,
    id: u64,
    words: [u64; 3],
    fds: &[BorrowedFd],
) -> Result<(), Errno> {
    let mut bytes = [0; MESSAGE_BYTES];
    let all = [kind as u64, id, words[0], words[1], words[2]];
    bytes.chunks_exact_mut(8).zip(all).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags).map(drop)
}

/// The next message, without waiting; `None` once the other side is gone.
pub fn receive(socket: impl AsFd) -> Result<Option<Message>, Errno> {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    if got.bytes < MESSAGE_BYTES {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(list) = message {
            fds.extend(list);
        }
    }
    let word = |i: usize| word_of(&bytes[8 * i..]);
    Ok(Some(Message { kind: word(0), id: word(1), words: [word(2), word(3), word(4)], fds }))
}

/// The 64 bit word at the start of `bytes`; what is missing is 0.
pub fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(word)
}
