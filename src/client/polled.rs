//! A connection to a driver whose answers are polled for while they come soon: to be woken costs a short execution more than
//! what it computes. It must not know what is sent.

use crate::ipc::left_to_inner;
use crate::scheduler::{Poller, PollingBudget};
use binder::rpc::transport::UnixTransport;
use binder::rpc::{RpcResult, RpcTransport};
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

thread_local! {
    /// Whether the thread only sleeps for answers.
    static SLEEPS: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work`, and has the calls of the driver that it makes on this thread wait without polling: where power is dearer
/// than some microseconds.
pub fn without_polling<T>(work: impl FnOnce() -> T) -> T {
    let before = SLEEPS.replace(true);
    let done = work();
    SLEEPS.set(before);
    done
}

/// A connection on which what is sent is answered.
pub struct Polled {
    inner: UnixTransport,
    /// The same socket, to look at it.
    socket: UnixStream,
    state: Mutex<Sent>,
}

struct Sent {
    poller: Poller,
    /// Whether something was sent and nothing received since: what comes next is the answer.
    waits: bool,
}

impl Polled {
    /// Connects to the socket at `path`. What is polled for is within `budget`.
    pub fn connect(path: &Path, budget: &Arc<PollingBudget>) -> RpcResult<Self> {
        let stream = UnixStream::connect(path)?;
        let socket = stream.try_clone()?;
        let state = Mutex::new(Sent { poller: Poller::new(Some(budget.clone())), waits: false });
        Ok(Polled { inner: UnixTransport::from_stream(stream)?, socket, state })
    }

    fn sent<T>(&self, result: RpcResult<T>) -> RpcResult<T> {
        let mut sent = self.state();
        sent.poller.answered();
        sent.waits = true;
        result
    }

    fn state(&self) -> MutexGuard<'_, Sent> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive<T>(&self, receive: impl FnOnce() -> RpcResult<T>) -> RpcResult<T> {
        let mut sent = self.state();
        if !std::mem::take(&mut sent.waits) {
            drop(sent); // for a call of the driver's, which comes when it comes
            return receive();
        }
        let poller = sent.poller.clone();
        drop(sent);
        if !SLEEPS.get() {
            poller.poll_foreseen(self.socket.as_fd());
        }
        let received = receive();
        self.state().poller.arrived();
        received
    }
}

impl RpcTransport for Polled {
    fn send_frame(&self, buf: &[u8]) -> RpcResult<()> {
        self.inner.send_frame(buf)
    }

    fn recv_frame(&self) -> RpcResult<Vec<u8>> {
        self.inner.recv_frame()
    }

    left_to_inner!();

    fn send_raw(&self, buf: &[u8]) -> RpcResult<()> {
        self.sent(self.inner.send_raw(buf))
    }

    fn recv_raw(&self, buf: &mut [u8]) -> RpcResult<usize> {
        self.receive(|| self.inner.recv_raw(buf))
    }

    fn send_raw_with_fds(&self, buf: &[u8], fds: &[BorrowedFd<'_>]) -> RpcResult<()> {
        self.sent(self.inner.send_raw_with_fds(buf, fds))
    }

    fn recv_raw_with_fds(&self, buf: &mut [u8]) -> RpcResult<(usize, Vec<OwnedFd>)> {
        self.receive(|| self.inner.recv_raw_with_fds(buf))
    }

    fn send_raw_draining(
        &self,
        buf: &[u8],
        fds: &[BorrowedFd<'_>],
        drain: &mut dyn FnMut() -> RpcResult<()>,
    ) -> RpcResult<()> {
        self.sent(self.inner.send_raw_draining(buf, fds, drain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    /// An answer of four bytes.
    fn answer(polled: &Polled) -> Option<[u8; 4]> {
        let (mut bytes, mut have) = ([0; 4], 0);
        while have < bytes.len() {
            match polled.recv_raw(&mut bytes[have..]) {
                Ok(count) if count > 0 => have += count,
                _ => return None,
            }
        }
        Some(bytes)
    }

    #[test]
    fn answers_and_the_end_are_received_polled_for_or_not() {
        for polling in [0, 1] {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let path = dir.path().join("socket");
            let listener = UnixListener::bind(&path).expect("bind");
            let polled = Polled::connect(&path, &PollingBudget::new(polling)).expect("connected");
            let (mut peer, _) = listener.accept().expect("accepted");
            let echo = std::thread::spawn(move || {
                let mut bytes = [0; 4];
                while peer.read_exact(&mut bytes).is_ok() && bytes != [0; 4] {
                    // In two pieces, the second of which nothing was sent for.
                    peer.write_all(&bytes[..2]).and_then(|()| peer.write_all(&bytes[2..])).expect("sent");
                }
            });
            for i in 1..=100 {
                polled.send_raw(&[i; 4]).expect("sent");
                assert!(polled.state().waits, "for an answer");
                assert_eq!(answer(&polled), Some([i; 4]));
                assert!(!polled.state().waits, "it came");
            }
            polled.send_raw(&[0; 4]).expect("sent");
            assert_eq!(answer(&polled), None, "the peer has left");
            echo.join().expect("it ends");
        }
    }

    #[test]
    fn a_thread_that_spares_power_only_sleeps() {
        without_polling(|| {
            without_polling(|| assert!(SLEEPS.get()));
            assert!(SLEEPS.get());
        });
        assert!(!SLEEPS.get());
    }
}
