//! The locks, atomics, threads and clock of the modules whose interleavings `tests/models` tries one by one. Here they are
//! the standard library's. There the files of those modules are compiled a second time, over a checker's in this place.
//!
//! It must not add anything to what it names.

pub use std::sync::{Condvar, Mutex, MutexGuard};
pub use std::time::Instant;

pub mod atomic {
    pub use std::sync::atomic::{fence, AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
}

pub mod thread {
    pub use std::thread::{current, park, park_timeout, yield_now, Builder, JoinHandle, Thread};
}
