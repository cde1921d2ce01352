//! Fences without a kernel driver for them: one end of a socket pair that a client can only poll.
//!
//! Readable means signalled; an error condition means that what was waited for failed. Clients look at nothing else, libsync
//! and the NNAPI runtime among them. A sync file, even where a driver like ours could make one (sw_sync, of debugfs), would
//! not do as well: polled, one that failed looks like one that was signalled, and has to be asked. Those of clients are.

use crate::memory::{file_type, has_sync_file_failed, is_empty_stream, is_unix_socket};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use std::io::{Read, Write};
use std::net::Shutdown;
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
    /// It is none: neither a sync file, nor a Unix socket or pipe.
    None,
}

impl Signal {
    /// A fence: the driver's end, and the client's.
    pub fn new() -> std::io::Result<(Self, OwnedFd)> {
        let (end, mut client) = UnixStream::pair()?;
        end.set_nonblocking(true)?;
        client.write_all(&[0])?;
        // What a client sent by it, files among it that take as long to close as it likes, would be closed with our end.
        client.shutdown(Shutdown::Write)?;
        Ok((Signal { end }, client.into()))
    }

    /// A descriptor that is [closed](crate::scheduler::Watcher::closed) when the client's end is, for good. While it is open,
    /// the fence cannot fail.
    pub fn peer(&self) -> std::io::Result<OwnedFd> {
        Ok(self.end.try_clone()?.into())
    }

    /// Signals the fence.
    pub fn signal(mut self) {
        if let Err(why) = self.end.read_exact(&mut [0]).and_then(|()| self.end.write_all(&[1])) {
            log::debug!("nobody holds a fence any more: {why}");
        }
    }
}

/// What `fence` says now.
pub(super) fn state(fence: BorrowedFd) -> FenceState {
    // A poll of another file could wait for a process: for the one that serves it, or, of an epoll, one that waits by it.
    let may_be_polled = match file_type(fence) {
        Ok(libc::S_IFSOCK) => is_unix_socket(fence),
        Ok(libc::S_IFIFO) => true,
        _ => has_sync_file_failed(fence).is_some(),
    };
    if !may_be_polled {
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
    if has_sync_file_failed(fence) == Some(true) || is_empty_stream(fence) {
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
    fn only_what_waits_for_nobody_is_a_fence() {
        for file in [tempfile::tempfile().unwrap(), std::fs::File::open("/").unwrap()] {
            assert_eq!(state(file.as_fd()), FenceState::None);
        }
        let internet = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(state(internet.as_fd()), FenceState::None);
        let epoll = nix::sys::epoll::Epoll::new(nix::sys::epoll::EpollCreateFlags::empty()).unwrap();
        assert_eq!(state(epoll.0.as_fd()), FenceState::None);
        let event = nix::sys::eventfd::EventFd::from_value(1).unwrap();
        assert_eq!(state(event.as_fd()), FenceState::None, "a file without a type, and no sync file");
        let (reader, writer) = nix::unistd::pipe().unwrap();
        assert_eq!(state(reader.as_fd()), FenceState::Pending);
        nix::unistd::write(&writer, &[0]).unwrap();
        assert_eq!(state(reader.as_fd()), FenceState::Signalled);
    }

    #[test]
    fn a_client_can_send_nothing_by_its_end_and_its_close_is_noticed() {
        let watcher = crate::scheduler::Watcher::new().unwrap();
        let (signal, fence) = Signal::new().unwrap();
        let mut client = UnixStream::from(fence.try_clone().unwrap());
        let refused = client.write(&[9]).map_err(|why| why.kind());
        assert_eq!(refused, Err(std::io::ErrorKind::BrokenPipe));
        let (tell, heard) = std::sync::mpsc::channel();
        watcher.closed(signal.peer().unwrap(), Box::new(move |_, _| tell.send(()).unwrap())).unwrap();
        assert!(heard.recv_timeout(std::time::Duration::from_millis(20)).is_err(), "it is open");
        drop(client);
        assert!(heard.recv_timeout(std::time::Duration::from_millis(20)).is_err(), "and so is the other");
        drop(fence);
        assert_eq!(heard.recv_timeout(std::time::Duration::from_secs(20)), Ok(()));
        signal.signal(); // its client is gone: that is as good
    }
}
