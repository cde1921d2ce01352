//! One connection, and how much its client may send by it before it is served.
//!
//! The binder crate parks one-way calls with all that they carry, and reads a message for as long as its sender likes. A
//! transport of ours counts what comes in: what is over a share ends the connection. One that breaks no rule is not looked at
//! further, but that large messages are read by turns: the crate reads a message on the thread that has received it.

use super::frames::{Event, Frames};
use crate::ipc::left_to_inner;
use crate::scheduler::{
    has_let_go, limits, polling, serves, was_served, CallTurns, Permit, Poller, Quota, Stop,
};
use binder::rpc::transport::UnixTransport;
use binder::rpc::{RpcError, RpcResult, RpcTransport};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Messages up to this size are not counted: there is one to a connection at a time.
const SMALL: usize = 64 << 10;
/// Messages up to this size are read without a turn. What one takes while it is read may be many times its size, so few are read at
/// a time.
const SHORT: usize = 8 << 10;

/// What the messages of all connections have a share of.
pub struct Messages {
    pub bytes: Arc<Quota>,
    pub descriptors: Arc<Quota>,
    turns: CallTurns,
    start: Instant,
}

impl Messages {
    pub fn new(turns: CallTurns) -> Self {
        let (bytes, descriptors) = (limits::CALL_BYTES.quota(), limits::CALL_DESCRIPTORS.quota());
        Messages { bytes, descriptors, turns, start: Instant::now() }
    }

    /// Milliseconds after the start; never 0.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

/// What others see of a connection.
pub struct Pending {
    pub uid: u32,
    pub process: i32,
    /// Milliseconds after the start since which nothing is served by it; 0 while a call is.
    pub quiet: AtomicU64,
    /// Milliseconds after the start at which a message began that has not ended; 0 if there is none.
    pub since: AtomicU64,
    /// The same socket, to end it by.
    pub socket: UnixStream,
    /// Given back when it is closed here, and not only once the crate has noticed; after the socket, whose close may take long.
    pub place: Mutex<Option<Permit>>,
    /// Set when it is closed: nobody waits for answers any more.
    pub gone: Arc<Stop>,
    /// Given back once the sockets are closed.
    pub _descriptors: Option<Permit>,
}

/// One connection.
pub struct Guarded {
    inner: UnixTransport,
    messages: Arc<Messages>,
    pending: Arc<Pending>,
    reading: Mutex<Reading>,
    poller: Mutex<Poller>,
    /// Dropped with it.
    _leaves: Box<dyn Any + Send + Sync>,
}

#[derive(Default)]
struct Reading {
    frames: Frames,
    /// Whether the message that comes in is to be read by turns, if it is a call.
    is_long: bool,
    by_turns: bool,
    /// Whether it is a call, which is served once it is whole.
    is_call: bool,
    /// Permits for the message that comes in or is being served: for its bytes, if they are many, and its descriptors.
    held: Vec<Permit>,
}

impl Guarded {
    pub fn new(
        inner: UnixTransport,
        messages: Arc<Messages>,
        pending: Arc<Pending>,
        leaves: Box<dyn Any + Send + Sync>,
    ) -> Self {
        let (reading, poller) = (Mutex::default(), Mutex::new(Poller::new(None)));
        Guarded { inner, messages, pending, reading, poller, _leaves: leaves }
    }

    pub fn uid(&self) -> u32 {
        self.pending.uid
    }

    /// Whether its client has closed it.
    pub fn is_gone(&self) -> bool {
        self.pending.gone.is_set()
    }

    /// Receives, after a short while of polling where the call that was served is likely to be followed by another.
    fn receive<T>(&self, receive: impl FnOnce() -> RpcResult<T>) -> RpcResult<T> {
        is_over();
        // What was called is over.
        let quiet = &self.pending.quiet;
        if quiet.load(Ordering::Relaxed) == 0 {
            quiet.store(self.messages.now_ms(), Ordering::Relaxed);
        }
        // The rest of a long message is received by turns, as far as it is there.
        if self.pending.since.load(Ordering::Relaxed) != 0 && self.has_more_of_a_long_one() {
            self.messages.turns.serve(self.pending.uid, &self.pending.gone);
        }
        let received = match polling::expected_next() {
            None => receive(),
            Some(budget) => {
                let mut poller = self.poller.lock().unwrap_or_else(PoisonError::into_inner);
                poller.within(budget);
                poller.answered();
                poller.poll_socket(self.pending.socket.as_fd());
                let received = receive();
                poller.arrived();
                received
            }
        };
        if received.is_err() {
            // What the connection had goes. Hundreds of one client's may end at the same moment.
            self.messages.turns.serve(self.pending.uid, &Arc::default());
        }
        received
    }

    /// Whether a long message is coming in, and some of it can be received at once.
    fn has_more_of_a_long_one(&self) -> bool {
        let is_long = self.reading.lock().unwrap_or_else(PoisonError::into_inner).is_long;
        let mut asked = [PollFd::new(self.pending.socket.as_fd(), PollFlags::POLLIN)];
        is_long && poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Counts what has come in. Waits for a turn where that is the end of a large message.
    fn count(&self, bytes: &[u8], descriptors: usize) -> RpcResult<()> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let Reading { frames, is_long, by_turns, is_call, held } = &mut *reading;
        let (uid, mut to_read, mut to_serve) = (self.pending.uid, false, false);
        let take = |limit: &limits::Limit, quota: &Arc<Quota>, amount: usize| {
            quota.take(uid, amount as u64).map_err(|why| refused(refusal(limit.what, uid, why)))
        };
        frames.feed(bytes, |event| {
            match event {
                Event::Began(size) => {
                    // The message before has been served: a connection's are served one after another.
                    held.clear();
                    self.pending.since.store(self.messages.now_ms(), Ordering::Relaxed);
                    (*is_long, *by_turns, *is_call) = (size > SHORT, false, false);
                    if size > SMALL {
                        held.push(take(&limits::CALL_BYTES, &self.messages.bytes, size)?);
                    }
                }
                Event::OneWay => {
                    let why = format!("of uid {uid}, a one-way call, of which the interface has none");
                    return Err(refused(std::io::Error::other(why)));
                }
                // Of what answers our calls there is little, and the thread that reads it may do nothing else for long.
                Event::Call => (*by_turns, *is_call) = (*is_long, true),
                Event::Ended => {
                    self.pending.since.store(0, Ordering::Relaxed);
                    let quiet = if *is_call { 0 } else { self.messages.now_ms() };
                    self.pending.quiet.store(quiet, Ordering::Relaxed);
                    (to_read, to_serve) = (*by_turns, *is_call);
                    if *is_call {
                        serves(&self.pending.gone);
                    }
                }
            }
            Ok(())
        })?;
        if descriptors > 0 {
            held.push(take(&limits::CALL_DESCRIPTORS, &self.messages.descriptors, descriptors)?);
        }
        drop(reading);
        if to_read {
            self.messages.turns.read(uid);
        } else if to_serve {
            self.messages.turns.serve(uid, &self.pending.gone);
        }
        Ok(())
    }
}

/// What the thread did for a call is done.
fn is_over() {
    has_let_go();
    was_served();
}

/// Ends the connection, and says so here: the crate does not tell what an error was.
fn refused(why: std::io::Error) -> RpcError {
    log::warn!("a connection is closed: {why}");
    RpcError::Io(why)
}

impl RpcTransport for Guarded {
    fn send_frame(&self, buf: &[u8]) -> RpcResult<()> {
        is_over();
        self.inner.send_frame(buf)
    }

    /// Only of the wire of Android 12, which is not offered.
    fn recv_frame(&self) -> RpcResult<Vec<u8>> {
        Err(RpcError::Protocol("this transport has raw bytes only"))
    }

    left_to_inner!();

    fn send_raw(&self, buf: &[u8]) -> RpcResult<()> {
        is_over();
        self.inner.send_raw(buf)
    }

    fn recv_raw(&self, buf: &mut [u8]) -> RpcResult<usize> {
        let count = self.receive(|| self.inner.recv_raw(buf))?;
        self.count(buf.get(..count).unwrap_or_default(), 0)?;
        Ok(count)
    }

    fn send_raw_with_fds(&self, buf: &[u8], fds: &[BorrowedFd<'_>]) -> RpcResult<()> {
        is_over();
        self.inner.send_raw_with_fds(buf, fds)
    }

    fn recv_raw_with_fds(&self, buf: &mut [u8]) -> RpcResult<(usize, Vec<OwnedFd>)> {
        let (count, descriptors) = self.receive(|| self.inner.recv_raw_with_fds(buf))?;
        self.count(buf.get(..count).unwrap_or_default(), descriptors.len())?;
        Ok((count, descriptors))
    }

    fn send_raw_draining(
        &self,
        buf: &[u8],
        fds: &[BorrowedFd<'_>],
        drain: &mut dyn FnMut() -> RpcResult<()>,
    ) -> RpcResult<()> {
        is_over();
        self.inner.send_raw_draining(buf, fds, drain)
    }
}

pub fn refusal(what: &str, uid: u32, why: impl std::fmt::Display) -> std::io::Error {
    std::io::Error::other(format!("of uid {uid}, too many {what}: {why}"))
}
