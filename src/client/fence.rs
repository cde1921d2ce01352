//! Fences as a client sees them.

use binder::ParcelFileDescriptor;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use std::io::Error;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Waits for a fence as libsync does: readable is signalled, anything else an error.
pub fn wait_for(fence: &ParcelFileDescriptor, timeout: Duration) -> Result<(), Error> {
    let start = Instant::now();
    let mut fds = [PollFd::new(fence.as_fd(), PollFlags::POLLIN)];
    let ready = loop {
        // A poll counts in milliseconds: one that is cut short by rounding would be too short.
        let left = timeout.saturating_sub(start.elapsed()).as_nanos().div_ceil(1_000_000);
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, left) {
            Err(nix::Error::EINTR) => {}
            ready => break ready?,
        }
    };
    if ready == 0 {
        return Err(Error::other(format!("the fence did not signal within {timeout:?}")));
    }
    let events = fds[0].revents().unwrap_or(PollFlags::empty());
    if events.intersects(PollFlags::POLLERR | PollFlags::POLLNVAL) || !events.contains(PollFlags::POLLIN) {
        return Err(Error::other("the fence signalled an error"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn a_fence_is_signalled_or_fails_or_keeps_silent() {
        let (mut end, fence) = UnixStream::pair().unwrap();
        let fence = ParcelFileDescriptor::new(fence);
        let silent = wait_for(&fence, Duration::from_millis(1)).unwrap_err().to_string();
        assert!(silent.contains("did not signal"), "{silent}");
        end.write_all(&[1]).unwrap();
        wait_for(&fence, PATIENCE).unwrap();
        let (end, mut fence) = UnixStream::pair().unwrap();
        fence.write_all(&[0]).unwrap();
        drop(end); // with a byte in it
        let failed = wait_for(&ParcelFileDescriptor::new(fence), PATIENCE).unwrap_err().to_string();
        assert!(failed.contains("error"), "{failed}");
    }
}
