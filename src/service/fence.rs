//! Fences without a kernel driver for them: one end of a socket pair that a client can only poll.
//!
//! Readable means signalled; an error condition means that what was waited for failed. Clients look at nothing else. A
//! sync file of a client's is readable when it failed, too: it has to be asked.

use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// The driver's end of a fence. Dropped unsignalled, even by the end of the process, it puts the fence in its error
/// state.
#[derive(Debug)]
pub(super) struct Signal {
    // A byte lies in it unread: so its closing resets the connection, which is an error at the other end.
    end: UnixStream,
}

/// What a fence says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FenceState {
    Pending,
    Signalled,
    Failed,
}

impl Signal {
    /// A fence: the driver's end, and the client's.
    pub fn new() -> std::io::Result<(Self, OwnedFd)> {
        let (end, mut client) = UnixStream::pair()?;
        end.set_nonblocking(true)?;
        client.write_all(&[0])?;
        Ok((Signal { end }, client.into()))
    }

    /// A descriptor that hangs up when the client's end is closed for good. While it is open, the fence cannot fail.
    pub fn peer(&self) -> std::io::Result<OwnedFd> {
        Ok(self.end.try_clone()?.into())
    }

    /// Signals the fence.
    pub fn signal(mut self) {
        // A client may have written more to its end; if it goes on and on, it gets the error that it asks for.
        let mut unread = [0; 4096];
        for _ in 0..16 {
            match self.end.read(&mut unread) {
                Ok(0) => break,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if let Err(why) = self.end.write_all(&[1]) {
            log::debug!("nobody holds a fence any more: {why}");
        }
    }
}

/// What `fence` says now.
pub(super) fn state(fence: BorrowedFd) -> FenceState {
    let mut poll = [PollFd::new(fence.as_fd(), PollFlags::POLLIN)];
    match nix::poll::poll(&mut poll, PollTimeout::ZERO) {
        Ok(0) => FenceState::Pending,
        Ok(_) => match poll[0].revents() {
            Some(events) if events.intersects(PollFlags::POLLERR | PollFlags::POLLNVAL) => FenceState::Failed,
            Some(_) if !sync_file_failed(fence) => FenceState::Signalled,
            _ => FenceState::Failed,
        },
        Err(nix::Error::EINTR) => FenceState::Pending,
        Err(_) => FenceState::Failed,
    }
}

/// Whether `fence` is a sync file that is in its error state.
pub(super) fn sync_file_failed(fence: BorrowedFd) -> bool {
    // sync_file_info of linux/sync_file.h
    #[derive(Default)]
    #[repr(C)]
    struct Info {
        name: [u8; 32],
        status: i32,
        flags: u32,
        fences: u32,
        padding: u32,
        list: u64,
    }
    // _IOWR('>', 4, struct sync_file_info)
    const SYNC_IOC_FILE_INFO: libc::c_ulong = 0xc038_3e04;
    // Another kind of file, which is the client's choice, might take the request for something else, or forever.
    let link = format!("/proc/self/fd/{}", fence.as_raw_fd());
    if !std::fs::read_link(link).is_ok_and(|name| name.as_os_str() == "anon_inode:sync_file") {
        return false;
    }
    let mut info = Info::default();
    // SAFETY: the request fills the structure that it is given, and no list of fences, as `fences` is 0.
    let asked = unsafe { libc::ioctl(fence.as_raw_fd(), SYNC_IOC_FILE_INFO as _, &mut info) };
    asked == 0 && info.status < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_waits_then_is_signalled_or_fails() {
        let (signal, fence) = Signal::new().unwrap();
        assert_eq!(state(fence.as_fd()), FenceState::Pending);
        signal.signal();
        assert_eq!(state(fence.as_fd()), FenceState::Signalled);
        let (signal, fence) = Signal::new().unwrap();
        drop(signal);
        assert_eq!(state(fence.as_fd()), FenceState::Failed);
    }

    #[test]
    fn what_a_client_writes_changes_nothing() {
        let (signal, fence) = Signal::new().unwrap();
        let mut client = UnixStream::from(fence.try_clone().unwrap());
        client.write_all(&[9; 10_000]).unwrap();
        signal.signal();
        assert_eq!(state(fence.as_fd()), FenceState::Signalled);
    }
}
