//! Fences without a kernel driver for them: one end of a socket pair that a client can only poll.
//!
//! Readable means signalled; an error condition means that what was waited for failed. Clients look at nothing else, libsync
//! and the NNAPI runtime among them. A sync file, even where a driver like ours could make one (sw_sync, of debugfs), would
//! not do as well: polled, one that failed looks like one that was signalled, and has to be asked. Those of clients are.

use crate::memory::{file_type, is_empty_stream, is_failed_sync_file};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
    /// It is none: a named file.
    None,
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
    // A poll of one of these could wait for the process that serves it.
    if matches!(file_type(fence), Err(_) | Ok(libc::S_IFREG | libc::S_IFDIR | libc::S_IFLNK | libc::S_IFBLK))
    {
        return FenceState::None;
    }
    let mut poll = [PollFd::new(fence.as_fd(), PollFlags::POLLIN)];
    match nix::poll::poll(&mut poll, PollTimeout::ZERO) {
        Ok(0) => FenceState::Pending,
        Ok(_) => match poll[0].revents() {
            Some(events) if !events.intersects(PollFlags::POLLERR | PollFlags::POLLNVAL) => signalled(fence),
            _ => FenceState::Failed,
        },
        Err(nix::Error::EINTR) => FenceState::Pending,
        Err(_) => FenceState::Failed,
    }
}

/// The state of a fence that is no longer pending. A failed sync file can be read, too. A socket or pipe that can be read,
/// but holds nothing, has lost the process that should have signalled it: so a fence of ours that failed is known even if
/// its client has taken the socket's error away by asking for it.
pub(super) fn signalled(fence: BorrowedFd) -> FenceState {
    if is_failed_sync_file(fence) || is_empty_stream(fence) {
        FenceState::Failed
    } else {
        FenceState::Signalled
    }
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
    fn a_failure_outlasts_the_error_that_tells_it() {
        let (signal, fence) = Signal::new().unwrap();
        drop(signal);
        let error = nix::sys::socket::getsockopt(&fence, nix::sys::socket::sockopt::SocketError).unwrap();
        assert_eq!(error, libc::ECONNRESET, "and it is gone");
        assert_eq!(state(fence.as_fd()), FenceState::Failed);
        assert_eq!(state(fence.as_fd()), FenceState::Failed, "asked again");
        let (reader, writer) = nix::unistd::pipe().unwrap();
        drop(writer);
        assert_eq!(state(reader.as_fd()), FenceState::Failed);
    }

    #[test]
    fn named_files_are_no_fences() {
        for file in [tempfile::tempfile().unwrap(), std::fs::File::open("/").unwrap()] {
            assert_eq!(state(file.as_fd()), FenceState::None);
        }
        let (reader, writer) = nix::unistd::pipe().unwrap();
        assert_eq!(state(reader.as_fd()), FenceState::Pending);
        nix::unistd::write(&writer, &[0]).unwrap();
        assert_eq!(state(reader.as_fd()), FenceState::Signalled);
        let event = nix::sys::eventfd::EventFd::from_value(1).unwrap();
        assert_eq!(state(event.as_fd()), FenceState::Signalled, "a file without a type, and no sync file");
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
