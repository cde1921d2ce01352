//! The event flag: the word of a queue's memory that both sides sleep on, by libfmq's protocol.
//!
//! A bit that is set is a wake-up that somebody is owed; who waits for it takes it back. The peer may set, clear and wake
//! as it likes, and even move our sleep to a futex of its own: so every sleep has an end, and means nothing by itself.

use super::FmqError;
use crate::memory::SharedU32;
use std::time::Duration;

/// There is room again: set after a read, waited for by the writer.
pub const NOT_FULL: u32 = 1;
/// There is something again: set after a write, waited for by the reader.
pub const NOT_EMPTY: u32 = 2;

/// What the protocol does with the word.
pub trait FlagWord {
    /// Sets `bits`; gives the word as it was.
    fn set(&self, bits: u32) -> Result<u32, FmqError>;
    /// Clears `bits`; gives the word as it was.
    fn clear(&self, bits: u32) -> Result<u32, FmqError>;
    /// Sleeps while the word is `expected`, for `timeout` at most, until [`FlagWord::rouse`] with one of `bits`. May end
    /// at any time.
    fn sleep(&self, expected: u32, bits: u32, timeout: Duration) -> Result<(), FmqError>;
    /// Wakes all who sleep for one of `bits`.
    fn rouse(&self, bits: u32) -> Result<(), FmqError>;
}

/// Sets `bits` and wakes the threads that wait for them. If all are set already, one was woken for them and has yet to look.
pub fn wake(word: &impl FlagWord, bits: u32) -> Result<(), FmqError> {
    match word.set(bits)? & bits == bits {
        true => Ok(()),
        false => word.rouse(bits),
    }
}

/// Waits for one of `bits` and takes them back. Returns after `timeout` at the latest, and earlier for no reason at all:
/// the caller looks at the queue to learn whether it waited for something.
pub fn wait(word: &impl FlagWord, bits: u32, timeout: Duration) -> Result<(), FmqError> {
    let before = word.clear(bits)?;
    if before & bits == 0 {
        // Not even begun if the word has changed meanwhile, so that no wake-up is slept through.
        word.sleep(before, bits, timeout)?;
        word.clear(bits)?;
    }
    Ok(())
}

/// Wakes all threads that wait for one of `bits`, whatever the peer has made of the word.
pub fn interrupt(word: &impl FlagWord, bits: u32) -> Result<(), FmqError> {
    word.set(bits)?;
    word.rouse(bits)
}

impl FlagWord for SharedU32 {
    fn set(&self, bits: u32) -> Result<u32, FmqError> {
        Ok(self.fetch_or(bits)?)
    }

    fn clear(&self, bits: u32) -> Result<u32, FmqError> {
        Ok(self.fetch_and(!bits)?)
    }

    fn sleep(&self, expected: u32, bits: u32, timeout: Duration) -> Result<(), FmqError> {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
            .map_err(|e| FmqError::Futex(e.into()))?;
        let end = now + nix::sys::time::TimeSpec::from_duration(timeout);
        // SAFETY: the word is mapped for as long as `self` lives, and the kernel checks the address by itself; `end` lives
        // until the call returns. Not FUTEX_PRIVATE_FLAG: the peer is another process.
        let done = unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.address(),
                libc::FUTEX_WAIT_BITSET,
                expected,
                std::ptr::from_ref(end.as_ref()),
                std::ptr::null::<u32>(),
                bits,
            )
        };
        if done == 0 {
            return Ok(());
        }
        let why = std::io::Error::last_os_error();
        match why.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT) => Ok(()),
            _ => Err(FmqError::Futex(why)),
        }
    }

    fn rouse(&self, bits: u32) -> Result<(), FmqError> {
        // SAFETY: as in `sleep`; the call takes neither a time nor a second word.
        let woken = unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.address(),
                libc::FUTEX_WAKE_BITSET,
                i32::MAX,
                std::ptr::null::<libc::timespec>(),
                std::ptr::null::<u32>(),
                bits,
            )
        };
        match woken {
            0.. => Ok(()),
            _ => Err(FmqError::Futex(std::io::Error::last_os_error())),
        }
    }
}
