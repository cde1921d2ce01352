//! Memory: our own buffers, and client memory, which is hostile.

mod aligned;

pub use aligned::AlignedBuf;
