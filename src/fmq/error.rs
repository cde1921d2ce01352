//! Why a queue could not be used.

use crate::memory::MemoryError;

/// Why a queue could not be used.
#[derive(Debug, thiserror::Error)]
pub enum FmqError {
    /// The descriptor breaks a rule; nothing was mapped for good.
    #[error("the queue's descriptor: {0}")]
    Descriptor(String),
    /// The peer broke the protocol: the queue cannot be used any more.
    #[error("the queue is corrupted: {0}")]
    Corrupted(&'static str),
    #[error("the queue's memory: {0}")]
    Memory(#[from] MemoryError),
    #[error("cannot sleep on the queue: {0}")]
    Futex(std::io::Error),
    #[error("the peer did not answer in time")]
    TimedOut,
    #[error("the wait was ended")]
    Stopped,
    #[error("{0} bytes are not a number of elements that the queue can ever hold")]
    Length(usize),
}
