//! Fences, of clients and of executions.

use binder::ParcelFileDescriptor;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nnhal::aidl::*;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub const NO_FENCES: &[ParcelFileDescriptor] = &[];
pub const NO_TIMING: Timing = Timing { timeOnDeviceNs: -1, timeInDriverNs: -1 };

/// A fence of the client's own: readable once a byte is written to the other end.
pub struct ClientFence {
    ours: UnixStream,
    theirs: ParcelFileDescriptor,
}

impl ClientFence {
    pub fn new() -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (&theirs).write_all(&[0]).expect("written");
        ClientFence { ours, theirs: ParcelFileDescriptor::new(OwnedFd::from(theirs)) }
    }

    pub fn list(&self) -> [ParcelFileDescriptor; 1] {
        [self.theirs.try_clone().expect("dup")]
    }

    pub fn signal(&self) {
        (&self.ours).read_exact(&mut [0]).expect("the byte that would be an error");
        (&self.ours).write_all(&[1]).expect("written");
    }

    /// Closes it with a byte unread, which is an error at the other end.
    pub fn fail(self) {
        drop(self.ours);
    }
}

/// Waits for a fence as clients do: whether it is signalled without an error; `None` if it is not within `patience`.
pub fn wait(result: &FencedExecutionResult, patience: Duration) -> Option<bool> {
    let fence = result.syncFence.as_ref().expect("always a fence");
    let mut poll = [PollFd::new(fence.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(patience).expect("short");
    match nix::poll::poll(&mut poll, timeout).expect("polled") {
        0 => None,
        _ => {
            let events = poll[0].revents().expect("known events");
            Some(!events.intersects(PollFlags::POLLERR | PollFlags::POLLNVAL))
        }
    }
}

/// What the callback says: the status, and the timings since the launch and since the last fence.
pub fn info(result: &FencedExecutionResult) -> (ErrorStatus, Timing, Timing) {
    let (mut launched, mut fenced) = (Timing::default(), Timing::default());
    let callback = result.callback.as_ref().expect("always a callback");
    let status = callback.getExecutionInfo(&mut launched, &mut fenced).expect("an answer by value");
    (status, launched, fenced)
}
