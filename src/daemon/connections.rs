//! Who may connect, and how much each may send before it is served.
//!
//! The binder crate takes connections without regard to who makes them, parks one-way calls with all that they carry,
//! and reads a message for as long as its sender likes. So connections are accepted here, shared out by uid, and each is
//! handed to the crate behind a transport that counts what comes in by it: what is over a share ends the connection.
//! One that breaks no rule is not looked at further, but that large messages are read by turns: the crate reads a message on
//! the thread that has received it; and that one which nobody uses is closed where there is no room ([`crowding`]).

use super::crowding::{self, Seen};
use super::frames::{Event, Frames};
use super::line::Line;
use crate::scheduler::limits;
use crate::scheduler::{polling, was_read, CallTurns, Permit, Poller, Quota};
use binder::rpc::transport::UnixTransport;
use binder::rpc::{PeerIdentity, RpcError, RpcResult, RpcServer, RpcTransport};
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, recv, shutdown, sockopt::PeerCredentials, MsgFlags, Shutdown};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a message may take from its header to its end: its sender may be stopped in the midst of it.
const MESSAGE_TIME: Duration = Duration::from_secs(600);
/// How often is looked for messages that take longer, while there are connections.
const LOOK: Duration = Duration::from_secs(1);
/// Messages up to this size are not counted, and are read without a turn: there is one to a connection at a time.
const SMALL: usize = 64 << 10;
/// A process that had no call served for so long is idle. What it has prepared goes with its connections.
const IDLE: Duration = Duration::from_secs(300);

/// What all connections of a service share.
pub struct Connections {
    places: Arc<Quota>,
    bytes: Arc<Quota>,
    descriptors: Arc<Quota>,
    turns: CallTurns,
    /// Those that are about to be served: to accept one costs little, its threads cost more.
    accepted: Line<Guarded>,
    open: Mutex<Open>,
    changed: Condvar,
    times: Times,
    /// Whether nearly all descriptors of the process are in use.
    is_crowded: fn() -> bool,
    start: Instant,
    ended: AtomicBool,
}

struct Times {
    /// See [`MESSAGE_TIME`].
    message: Duration,
    /// See [`IDLE`].
    idle: Duration,
}

#[derive(Default)]
struct Open {
    last_key: u64,
    by_key: HashMap<u64, Arc<Pending>>,
}

/// What others see of a connection.
struct Pending {
    uid: u32,
    process: i32,
    /// Milliseconds after the start since which nothing is served by it; 0 while a call is.
    quiet: AtomicU64,
    /// Given back when it is closed here, and not only once the crate has noticed.
    place: Mutex<Option<Permit>>,
    /// Milliseconds after the start at which a message began that has not ended; 0 if there is none.
    since: AtomicU64,
    /// The same socket, to end it by.
    socket: UnixStream,
}

impl Connections {
    /// Messages may take [`MESSAGE_TIME`].
    pub fn new(turns: CallTurns) -> Arc<Self> {
        let times = Times { message: MESSAGE_TIME, idle: IDLE };
        Self::with(turns, limits::CONNECTIONS.quota(), times, crowding::descriptors_are_short)
    }

    fn with(turns: CallTurns, places: Arc<Quota>, times: Times, is_crowded: fn() -> bool) -> Arc<Self> {
        Arc::new(Connections {
            places,
            bytes: limits::CALL_BYTES.quota(),
            descriptors: limits::CALL_DESCRIPTORS.quota(),
            turns,
            accepted: Line::new(),
            open: Mutex::default(),
            changed: Condvar::new(),
            times,
            is_crowded,
            start: Instant::now(),
            ended: AtomicBool::new(false),
        })
    }

    /// What is shared out here, and what it counts.
    pub fn quotas(&self) -> Vec<(&'static str, Arc<Quota>)> {
        let quotas = [&self.places, &self.bytes, &self.descriptors];
        let whats = [limits::CONNECTIONS.what, limits::CALL_BYTES.what, limits::CALL_DESCRIPTORS.what];
        whats.into_iter().zip(quotas.map(Arc::clone)).collect()
    }

    /// Accepts connections to `listener` for `server` until [`end`](Self::end).
    pub fn accept(
        self: &Arc<Self>,
        listener: Arc<UnixListener>,
        server: Arc<RpcServer>,
    ) -> std::io::Result<[JoinHandle<()>; 3]> {
        let [accepting, watching, serving] = [(); 3].map(|()| self.clone());
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(work)
        };
        Ok([
            spawn("nnhal-watch", Box::new(move || watching.watch()))?,
            spawn("nnhal-accept", Box::new(move || accepting.accept_all(&listener)))?,
            spawn("nnhal-connect", Box::new(move || serving.serve_all(&server)))?,
        ])
    }

    /// Has the threads of [`accept`](Self::accept) end, which accept from `listener`.
    pub fn end(&self, listener: &UnixListener) {
        self.ended.store(true, Ordering::Release);
        // Under the lock, or the watching thread might look before and sleep after.
        drop(self.lock());
        self.changed.notify_all();
        self.accepted.end();
        // Wakes the thread that waits for a connection.
        if let Err(why) = shutdown(listener.as_raw_fd(), Shutdown::Both) {
            log::error!("the thread that accepts connections goes on: {why}");
        }
    }

    /// The kernel has one line for all clients: it has to be short, whoever fills it.
    fn accept_all(self: &Arc<Self>, listener: &UnixListener) {
        for stream in listener.incoming() {
            if self.ended.load(Ordering::Acquire) {
                return;
            }
            match stream.map(|stream| self.admit(stream)) {
                Ok(Ok(transport)) => self.accepted.put(transport.pending.uid, transport),
                // At once to the next: it may be of one who has a place.
                Ok(Err(why)) => log::warn!("a connection is refused: {why}"),
                Err(why) => {
                    log::warn!("no connection can be accepted: {why}");
                    self.relieve();
                    // Where there are no descriptors it comes again at once, and will until some are free.
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }

    fn serve_all(&self, server: &Arc<RpcServer>) {
        while let Some(transport) = self.accepted.next() {
            server.serve_connection(Box::new(transport));
        }
    }

    fn admit(self: &Arc<Self>, stream: UnixStream) -> std::io::Result<Guarded> {
        let peer = getsockopt(&stream, PeerCredentials)?;
        let (uid, process) = (peer.uid(), peer.pid());
        if (self.is_crowded)() {
            self.relieve();
        }
        let take = || self.places.take(uid, 1);
        let place = take().or_else(|_| {
            self.close_idle();
            take()
        });
        let place = place.map_err(|why| refusal(limits::CONNECTIONS.what, uid, why))?;
        let pending = Arc::new(Pending {
            uid,
            process,
            quiet: AtomicU64::new(self.now_ms()),
            place: Mutex::new(Some(place)),
            since: AtomicU64::new(0),
            socket: stream.try_clone()?,
        });
        let inner = UnixTransport::from_stream(stream).map_err(std::io::Error::other)?;
        let mut open = self.lock();
        open.last_key += 1;
        let key = open.last_key;
        open.by_key.insert(key, pending.clone());
        drop(open);
        self.changed.notify_all();
        let (reading, poller) = (Mutex::default(), Mutex::new(Poller::new(None)));
        Ok(Guarded { inner, connections: self.clone(), key, pending, reading, poller })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// What there is, to choose from.
    fn seen(&self, open: &Open) -> Vec<Seen> {
        let now = self.now_ms();
        let seen = |(&key, connection): (&u64, &Arc<Pending>)| {
            let quiet = match connection.quiet.load(Ordering::Relaxed) {
                0 => None,
                since => Some(Duration::from_millis(now.saturating_sub(since))),
            };
            Seen { key, uid: connection.uid, process: connection.process, quiet }
        };
        open.by_key.iter().map(seen).collect()
    }

    /// Closes connections of idle processes, of clients that have many, so that others find room.
    fn close_idle(&self) {
        let open = self.lock();
        let half = usize::try_from(self.places.per_client() / 2).unwrap_or(usize::MAX);
        for key in crowding::idle(&self.seen(&open), half, self.times.idle) {
            close(&open, key, "its process is idle, and there is no room for others");
        }
    }

    /// Closes a connection of the client that holds the most descriptors by its connections and calls.
    fn relieve(&self) {
        let open = self.lock();
        let in_calls = |uid| self.descriptors.held_by(uid);
        if let Some(key) = crowding::worst(&self.seen(&open), in_calls) {
            close(&open, key, "its client has the most of the descriptors, which are nearly all in use");
        }
    }

    /// Ends connections whose messages do not end, and one each time while descriptors are short.
    fn watch(&self) {
        let mut open = self.lock();
        while !self.ended.load(Ordering::Acquire) {
            open = match open.by_key.is_empty() {
                true => self.changed.wait(open).unwrap_or_else(PoisonError::into_inner),
                false => {
                    self.changed
                        .wait_timeout(open, LOOK.min(self.times.message))
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
            let (now, limit) = (self.now_ms(), self.times.message.as_millis() as u64);
            for connection in open.by_key.values() {
                let since = connection.since.load(Ordering::Relaxed);
                if since != 0 && now.saturating_sub(since) > limit {
                    log::warn!(
                        "a connection of uid {} is closed: its message has not ended after {:?}",
                        connection.uid,
                        self.times.message
                    );
                    // It fails where the other end has closed it: that is as good.
                    let _ = connection.socket.shutdown(std::net::Shutdown::Both);
                    connection.since.store(0, Ordering::Relaxed);
                }
            }
            if !open.by_key.is_empty() && (self.is_crowded)() {
                drop(open);
                self.relieve();
                open = self.lock();
            }
        }
    }
}

/// Ends a connection, whose place is free at once.
fn close(open: &Open, key: u64, why: &str) {
    let Some(connection) = open.by_key.get(&key) else { return };
    let place = connection.place.lock().unwrap_or_else(PoisonError::into_inner).take();
    // It was closed already where it has none: the crate has not noticed yet.
    if place.is_some() {
        log::warn!("a connection of uid {} is closed: {why}", connection.uid);
        let _ = connection.socket.shutdown(std::net::Shutdown::Both); // fails where the other end has closed it
    }
}

fn refusal(what: &str, uid: u32, why: impl std::fmt::Display) -> std::io::Error {
    std::io::Error::other(format!("of uid {uid}, too many {what}: {why}"))
}

/// One connection.
struct Guarded {
    inner: UnixTransport,
    connections: Arc<Connections>,
    key: u64,
    pending: Arc<Pending>,
    reading: Mutex<Reading>,
    poller: Mutex<Poller>,
}

#[derive(Default)]
struct Reading {
    frames: Frames,
    /// Whether the message that comes in is large, and to be read by turns.
    is_large: bool,
    by_turns: bool,
    /// Whether it is a call, which is served once it is whole.
    is_call: bool,
    /// Permits for the message that comes in or is being served: for its bytes, if they are many, and its descriptors.
    held: Vec<Permit>,
}

impl Guarded {
    /// Receives, after a short while of polling where the call that was served is likely to be followed by another.
    fn receive<T>(&self, receive: impl FnOnce() -> RpcResult<T>) -> RpcResult<T> {
        was_read();
        // What was called is over.
        let quiet = &self.pending.quiet;
        if quiet.load(Ordering::Relaxed) == 0 {
            quiet.store(self.connections.now_ms(), Ordering::Relaxed);
        }
        let Some(budget) = polling::expected_next() else { return receive() };
        let mut poller = self.poller.lock().unwrap_or_else(PoisonError::into_inner);
        poller.within(budget);
        poller.answered();
        // Whether anything came, or the time was up: what is received tells.
        let (Ok(_) | Err(())) = poller.poll(|| Ok(self.has_come()));
        let received = receive();
        poller.arrived();
        received
    }

    /// Whether there is something to receive, an end or an error as well.
    fn has_come(&self) -> bool {
        let look = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        recv(self.pending.socket.as_raw_fd(), &mut [0], look) != Err(Errno::EAGAIN)
    }

    /// Counts what has come in. Waits for a turn where that is the end of a large message.
    fn count(&self, bytes: &[u8], descriptors: usize) -> RpcResult<()> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let Reading { frames, is_large, by_turns, is_call, held } = &mut *reading;
        let (uid, mut to_read) = (self.pending.uid, false);
        let take = |limit: &limits::Limit, quota: &Arc<Quota>, amount: usize| {
            quota.take(uid, amount as u64).map_err(|why| refused(refusal(limit.what, uid, why)))
        };
        frames.feed(bytes, |event| {
            match event {
                Event::Began(size) => {
                    // The message before has been served: a connection's are served one after another.
                    held.clear();
                    self.pending.since.store(self.connections.now_ms(), Ordering::Relaxed);
                    (*is_large, *by_turns, *is_call) = (size > SMALL, false, false);
                    if *is_large {
                        held.push(take(&limits::CALL_BYTES, &self.connections.bytes, size)?);
                    }
                }
                Event::OneWay => {
                    let why = format!("of uid {uid}, a one-way call, of which the interface has none");
                    return Err(refused(std::io::Error::other(why)));
                }
                // Of what answers our calls there is little, and the thread that reads it may do nothing else for long.
                Event::Call => (*by_turns, *is_call) = (*is_large, true),
                Event::Ended => {
                    self.pending.since.store(0, Ordering::Relaxed);
                    let quiet = if *is_call { 0 } else { self.connections.now_ms() };
                    self.pending.quiet.store(quiet, Ordering::Relaxed);
                    to_read = *by_turns;
                }
            }
            Ok(())
        })?;
        if descriptors > 0 {
            held.push(take(&limits::CALL_DESCRIPTORS, &self.connections.descriptors, descriptors)?);
        }
        drop(reading);
        if to_read {
            self.connections.turns.read(uid);
        }
        Ok(())
    }
}

/// Ends the connection, and says so here: the crate does not tell what an error was.
fn refused(why: std::io::Error) -> RpcError {
    log::warn!("a connection is closed: {why}");
    RpcError::Io(why)
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let closed = self.connections.lock().by_key.remove(&self.key);
        drop(closed); // not under the lock
    }
}

impl RpcTransport for Guarded {
    fn send_frame(&self, buf: &[u8]) -> RpcResult<()> {
        was_read();
        self.inner.send_frame(buf)
    }

    /// Only of the wire of Android 12, which is not offered.
    fn recv_frame(&self) -> RpcResult<Vec<u8>> {
        Err(RpcError::Protocol("this transport has raw bytes only"))
    }

    fn peer_identity(&self) -> PeerIdentity {
        self.inner.peer_identity()
    }

    fn describe(&self) -> &str {
        self.inner.describe()
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> RpcResult<()> {
        self.inner.set_read_timeout(timeout)
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> RpcResult<()> {
        self.inner.set_write_timeout(timeout)
    }

    fn set_liveness(&self, timeout: Option<Duration>) -> RpcResult<()> {
        self.inner.set_liveness(timeout)
    }

    fn peer_closed(&self) -> Option<bool> {
        self.inner.peer_closed()
    }

    fn shutdown_handle(&self) -> Option<Box<dyn FnOnce() + Send>> {
        self.inner.shutdown_handle()
    }

    fn shutdown(&self) -> RpcResult<()> {
        self.inner.shutdown()
    }

    fn supports_fd_passing(&self) -> bool {
        self.inner.supports_fd_passing()
    }

    fn send_raw(&self, buf: &[u8]) -> RpcResult<()> {
        was_read();
        self.inner.send_raw(buf)
    }

    fn recv_raw(&self, buf: &mut [u8]) -> RpcResult<usize> {
        let count = self.receive(|| self.inner.recv_raw(buf))?;
        self.count(buf.get(..count).unwrap_or_default(), 0)?;
        Ok(count)
    }

    fn send_raw_with_fds(&self, buf: &[u8], fds: &[BorrowedFd<'_>]) -> RpcResult<()> {
        was_read();
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
        was_read();
        self.inner.send_raw_draining(buf, fds, drain)
    }
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
