//! Who may connect.
//!
//! The binder crate takes connections without regard to who makes them. So connections are accepted here, shared out by uid,
//! and each is handed to the crate behind a transport that counts what comes in by it ([`guarded`](super::guarded)). One whose
//! message does not end is closed, and so is an idle one where there is no room ([`crowding`]).

use super::crowding::{self, Seen};
use super::floods::{self, Floods};
use super::guarded::{refusal, Guarded, Messages, Pending};
use super::line::{Line, Pace};
use crate::scheduler::{limits, CallTurns, Key, Permit, Quota, Stop, Watched, Watcher};
use binder::rpc::transport::UnixTransport;
use binder::rpc::RpcServer;
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{
    getsockopt, recv, shutdown, sockopt::PeerCredentials, MsgFlags, Shutdown, UnixCredentials,
};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a message may take from its header to its end: its sender may be stopped in the midst of it.
const MESSAGE_TIME: Duration = Duration::from_secs(600);
/// The time between two looks for messages that take longer, and between two for idle connections while no place is left.
const LOOK: Duration = Duration::from_secs(1);
/// A process that had no call served for so long is idle. What it has prepared goes with its connections.
const IDLE: Duration = Duration::from_secs(300);

/// The descriptors that a connection takes: the crate's, ours, and the one that is watched for its end.
const DESCRIPTORS_EACH: u64 = 3;
/// How fast connections of one client are served. Each gets threads, whose beginning and end hold up all others of the process;
/// a session has up to twenty, and a client may start many at once, but needs no new ones without end.
const PACE: Pace = Pace { at_once: 256, every: Duration::from_millis(5) };

/// What all connections of a service share.
pub struct Connections {
    places: Arc<Quota>,
    /// The descriptors of connections, of refused ones, too, until the last is closed. They are only counted.
    descriptors: Arc<Quota>,
    messages: Arc<Messages>,
    watcher: Arc<Watcher>,
    /// Those that are about to be served: to accept one costs little, its threads cost more.
    accepted: Line<Guarded>,
    open: Mutex<Open>,
    changed: Condvar,
    times: Times,
    /// Whether nearly all descriptors of the process are in use.
    is_crowded: fn() -> bool,
    ended: AtomicBool,
}

struct Times {
    /// See [`MESSAGE_TIME`].
    message: Duration,
    /// See [`IDLE`].
    idle: Duration,
    /// See [`LOOK`].
    look: Duration,
}

#[derive(Default)]
struct Open {
    last_key: u64,
    by_key: HashMap<u64, Arc<Pending>>,
    /// The last look for idle ones.
    looked: Option<Instant>,
}

impl Connections {
    /// Messages may take [`MESSAGE_TIME`], and are read by `turns` where they are large.
    pub fn new(turns: CallTurns, watcher: Arc<Watcher>) -> Arc<Self> {
        let times = Times { message: MESSAGE_TIME, idle: IDLE, look: LOOK };
        let places = limits::CONNECTIONS.quota();
        Self::with((turns, watcher), places, times, crowding::descriptors_are_short)
    }

    fn with(
        (turns, watcher): (CallTurns, Arc<Watcher>),
        places: Arc<Quota>,
        times: Times,
        is_crowded: fn() -> bool,
    ) -> Arc<Self> {
        Arc::new(Connections {
            places,
            descriptors: Quota::new(u64::MAX, u64::MAX),
            messages: Arc::new(Messages::new(turns)),
            watcher,
            accepted: Line::new(PACE, Guarded::is_gone),
            open: Mutex::default(),
            changed: Condvar::new(),
            times,
            is_crowded,
            ended: AtomicBool::new(false),
        })
    }

    /// What is shared out here, and what it counts.
    pub fn quotas(&self) -> Vec<(&'static str, Arc<Quota>)> {
        let quotas = [&self.places, &self.messages.bytes, &self.messages.descriptors];
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
        let mut floods = Floods::new(Instant::now());
        for stream in listener.incoming() {
            if self.ended.load(Ordering::Acquire) {
                return;
            }
            match stream {
                Ok(stream) => {
                    let peer = match getsockopt(&stream, PeerCredentials) {
                        Ok(peer) => peer,
                        Err(why) => {
                            log::warn!("a connection is refused, as its peer is unknown: {why}");
                            continue;
                        }
                    };
                    match self.admit(peer, stream) {
                        Ok(Some(transport)) => self.accepted.put(transport.uid(), transport),
                        Ok(None) => log::debug!("a connection was closed before it was accepted"),
                        Err(why) => log::warn!("a connection is refused: {why}"),
                    }
                    // Otherwise at once to the next: it may be of one who has a place.
                    if floods.note(peer.uid(), Instant::now()) {
                        std::thread::sleep(floods::PAUSE);
                    }
                }
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
            match transport.is_gone() {
                true => self.watcher.close(transport.uid(), transport),
                false => server.serve_connection(Box::new(transport)),
            }
        }
    }

    /// Nothing where the other end is closed already: a client that connects without end has the kernel's line full of such ones.
    fn admit(
        self: &Arc<Self>,
        peer: UnixCredentials,
        stream: UnixStream,
    ) -> std::io::Result<Option<Guarded>> {
        let (uid, process) = (peer.uid(), peer.pid());
        if is_hung_up(&stream) {
            self.refuse(uid, stream);
            return Ok(None);
        }
        let take = || self.places.take(uid, 1);
        let place = take().or_else(|_| {
            self.close_idle();
            take()
        });
        let place = match place {
            Ok(place) => place,
            Err(why) => {
                self.refuse(uid, stream);
                return Err(refusal(limits::CONNECTIONS.what, uid, why));
            }
        };
        let socket = match stream.try_clone() {
            Ok(socket) => socket,
            Err(why) => {
                self.refuse(uid, stream);
                return Err(why);
            }
        };
        let pending = Arc::new(Pending {
            uid,
            process,
            quiet: AtomicU64::new(self.messages.now_ms()),
            place: Mutex::new(Some(place)),
            since: AtomicU64::new(0),
            socket,
            gone: Arc::default(),
            _descriptors: self.count(uid, DESCRIPTORS_EACH),
        });
        let closed = self.watch_for_end(&pending);
        let inner = match UnixTransport::from_stream(stream) {
            Ok(inner) => inner,
            Err(why) => {
                closed.into_iter().for_each(|key| self.watcher.forget(key));
                self.watcher.close(uid, pending);
                return Err(std::io::Error::other(why));
            }
        };
        let mut open = self.lock();
        open.last_key += 1;
        let key = open.last_key;
        let is_first = open.by_key.is_empty();
        open.by_key.insert(key, pending.clone());
        drop(open);
        if is_first {
            self.changed.notify_all();
        }
        let leaves = Leaves { connections: self.clone(), key, closed };
        Ok(Some(Guarded::new(inner, self.messages.clone(), pending, Box::new(leaves))))
    }

    /// Closes a connection that is not to be served. What its client has sent by it may take long to close, and the next one need
    /// not wait for that.
    fn refuse(&self, uid: u32, stream: UnixStream) {
        // Nothing more comes in after that.
        let _ = shutdown(stream.as_raw_fd(), Shutdown::Both); // fails where the other end has closed it
        let look =
            |what| recv(stream.as_raw_fd(), &mut [0], what | MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        // An urgent byte is not seen among the others. EINVAL: none has come; EOPNOTSUPP: none can.
        match (look(MsgFlags::empty()), look(MsgFlags::MSG_OOB)) {
            (Ok(0), Err(Errno::EINVAL | Errno::EOPNOTSUPP)) => drop(stream), // it holds nothing
            _ => self.watcher.close(uid, (stream, self.count(uid, 1))),
        }
    }

    /// Counts descriptors until it is dropped.
    fn count(&self, uid: u32, descriptors: u64) -> Option<Permit> {
        self.descriptors.take(uid, descriptors).ok() // never refused: the quota has all numbers
    }

    /// Has calls by a connection stop once that is closed. It is used all the same where it cannot be watched.
    fn watch_for_end(&self, connection: &Arc<Pending>) -> Option<Key> {
        let gone: Arc<Stop> = connection.gone.clone();
        let watch = connection.socket.try_clone().and_then(|socket| {
            let socket = Watched::of(connection.uid, socket.into(), connection.clone());
            self.watcher.closed(socket, Box::new(move |_, _| gone.set()))
        });
        watch.inspect_err(|why| log::debug!("the end of a connection is not watched: {why}")).ok()
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What there is, to choose from.
    fn seen(&self, open: &Open) -> Vec<Seen> {
        let now = self.messages.now_ms();
        let seen = |(&key, connection): (&u64, &Arc<Pending>)| {
            let quiet = match connection.quiet.load(Ordering::Relaxed) {
                0 => None,
                since => Some(Duration::from_millis(now.saturating_sub(since))),
            };
            Seen { key, uid: connection.uid, process: connection.process, quiet }
        };
        open.by_key.iter().map(seen).collect()
    }

    /// Closes connections of idle processes, of clients that have many, so that others find room. Between two looks none has become
    /// so much more idle: a client that connects without end has them all looked at now and then, and not each time.
    fn close_idle(&self) {
        let mut open = self.lock();
        let now = Instant::now();
        if open.looked.is_some_and(|last| now.saturating_duration_since(last) < self.times.look) {
            return;
        }
        open.looked = Some(now);
        let half = usize::try_from(self.places.per_client() / 2).unwrap_or(usize::MAX);
        for key in crowding::idle(&self.seen(&open), half, self.times.idle) {
            close(&open, key, "its process is idle, and there is no room for others");
        }
    }

    /// Closes a connection of the client that holds the most descriptors by its connections and calls.
    fn relieve(&self) {
        let mut held = self.descriptors.by_client();
        for (uid, in_calls) in self.messages.descriptors.by_client() {
            *held.entry(uid).or_default() += in_calls;
        }
        let open = self.lock();
        if let Some(key) = crowding::worst(&self.seen(&open), &held) {
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
                        .wait_timeout(open, self.times.look.min(self.times.message))
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
            let (now, limit) = (self.messages.now_ms(), self.times.message.as_millis() as u64);
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
            drop(open);
            // A system may have to list them all: not under the lock, and not for each connection.
            if (self.is_crowded)() {
                self.relieve();
            }
            open = self.lock();
        }
    }
}

/// Whether the other end is closed: nothing can be answered.
fn is_hung_up(stream: &UnixStream) -> bool {
    let mut asked = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    let happened = poll(&mut asked, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
    happened && asked[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP))
}

/// A connection that is there, until dropped.
struct Leaves {
    connections: Arc<Connections>,
    key: u64,
    /// The watch for its end.
    closed: Option<Key>,
}

impl Drop for Leaves {
    fn drop(&mut self) {
        let closed = self.connections.lock().by_key.remove(&self.key);
        drop(closed); // not under the lock
        self.closed.into_iter().for_each(|key| self.connections.watcher.forget(key));
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

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
