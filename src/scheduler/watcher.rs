//! One thread that waits for descriptors and times on behalf of all clients, so that no binder thread has to.
//!
//! What it calls when something happens must be quick and wait for nobody. It closes nothing that a client gave by itself: that
//! is the client's [errand](super::errands).

use super::clock::{boottime_ns, sleep_until, LONGEST_SLEEP};
use super::errands::Errands;
use super::starter::Starter;
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::any::Any;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The key by which the wake-up descriptor is known.
const WAKE: u64 = 0;
/// So much that has happened of one client is told, and so many times that have come, before it is others' turn: one may have
/// thousands of descriptors, to all of which something happens at once.
const AT_ONCE: usize = 8;
/// So many events are had of the kernel at a time.
const EVENTS: usize = 1024;
/// How often a descriptor is looked at that the kernel does not watch.
const LOOK: Duration = Duration::from_millis(10);

/// What happened to a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Ready,
    Error,
}

/// Gets the descriptor that something happened to.
type OnEvent = Box<dyn FnOnce(Event, &OwnedFd) + Send>;
type OnTime = Box<dyn FnOnce() + Send>;

/// A descriptor that is waited for, and whose it is: what is of no client is the driver's own.
pub struct Watched {
    descriptor: OwnedFd,
    client: Option<(u32, Held)>,
}

/// What is dropped once a client's descriptor is closed, as a permit for it.
type Held = Arc<dyn Any + Send + Sync>;

impl Watched {
    /// A descriptor that `client` gave, or whose other end it has. `held` is dropped once it is closed.
    pub fn of(client: u32, descriptor: OwnedFd, held: Held) -> Self {
        Watched { descriptor, client: Some((client, held)) }
    }

    /// What has happened to it, if anything has.
    fn happened(&self) -> Option<Event> {
        let mut asked = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        poll(&mut asked, PollTimeout::ZERO).ok().filter(|&ready| ready > 0)?;
        let failed = asked[0].revents().is_none_or(|events| events.contains(PollFlags::POLLERR));
        Some(if failed { Event::Error } else { Event::Ready })
    }
}

impl From<OwnedFd> for Watched {
    fn from(descriptor: OwnedFd) -> Self {
        Watched { descriptor, client: None }
    }
}

/// Waits, and calls once for each wait that ends. Its thread ends when it is dropped.
pub struct Watcher {
    shared: Arc<Shared>,
    starter: Starter,
}

struct Shared {
    epoll: Epoll,
    wake: EventFd,
    waits: Mutex<Waits>,
    stop: AtomicBool,
    /// To close what clients gave.
    closing: Arc<Errands>,
}

#[derive(Default)]
struct Waits {
    last_key: u64,
    descriptors: HashMap<u64, (Watched, OnEvent)>,
    /// By time in nanoseconds of CLOCK_BOOTTIME, then key.
    times: BTreeMap<(u64, u64), OnTime>,
}

/// What has happened and was not told yet: by client, the keys of descriptors and whether they failed.
type Happened = BTreeMap<Option<u32>, VecDeque<(u64, bool)>>;

/// What the kernel does not watch, and what was to follow.
struct Refused {
    why: std::io::Error,
    watched: Watched,
    then: OnEvent,
}

/// A wait that can be forgotten.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    Descriptor(u64),
    Time(u64, u64),
}

impl Watcher {
    pub fn new() -> std::io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let starter = Starter::new()?;
        let (waits, stop, closing) =
            (Mutex::default(), AtomicBool::new(false), Errands::new("nnhal-closing", &starter));
        let shared = Arc::new(Shared { epoll, wake, waits, stop, closing });
        let watcher = Watcher { shared: shared.clone(), starter };
        let watch = move || {
            let (mut events, mut happened) = (vec![EpollEvent::empty(); EVENTS], Happened::new());
            while !shared.stop.load(Ordering::Acquire) {
                shared.turn(&mut events, &mut happened);
            }
        };
        std::thread::Builder::new().name("nnhal-watcher".into()).spawn(watch)?;
        Ok(watcher)
    }

    /// What gets threads later where none can be had to close what clients gave. Others may use it, too.
    pub fn starter(&self) -> &Starter {
        &self.starter
    }

    /// Calls `then` when `descriptor` can be read or fails.
    pub fn readable(&self, descriptor: impl Into<Watched>, then: OnEvent) -> std::io::Result<Key> {
        self.shared.add_or_close(descriptor.into(), EpollFlags::EPOLLIN, then)
    }

    /// The same of a descriptor of the driver's own, for what must not come before: one that the kernel does not watch is looked
    /// at every so often.
    pub fn surely_readable(&self, descriptor: OwnedFd, then: OnEvent) {
        if let Err(Refused { why, watched, then }) =
            self.shared.add(descriptor.into(), EpollFlags::EPOLLIN, then)
        {
            log::warn!("a fence is looked at every so often, as it cannot be watched: {why}");
            self.shared.look_later(watched, then);
        }
    }

    /// Calls `then` when nothing can be sent or received by `descriptor` any more, a socket. One that was closed for sending
    /// only is still waited on for answers.
    pub fn closed(&self, descriptor: impl Into<Watched>, then: OnEvent) -> std::io::Result<Key> {
        // A hangup of both directions is told without being asked for.
        self.shared.add_or_close(descriptor.into(), EpollFlags::empty(), then)
    }

    /// Closes what `client` gave, on a thread that it may keep for itself.
    pub fn close(&self, client: u32, given: impl Any + Send) {
        self.shared.closing.run(client, move || drop(given));
    }

    /// Calls `then` at `time`, in nanoseconds of CLOCK_BOOTTIME.
    pub fn at(&self, time: u64, then: OnTime) -> Key {
        self.shared.at(time, then)
    }

    /// Whether what a wait for a descriptor to be readable waits for has happened, though nobody may have been told yet.
    pub fn has_happened(&self, key: Key) -> bool {
        let Key::Descriptor(key) = key else { return false };
        let waits = self.shared.lock();
        let Some((watched, _)) = waits.descriptors.get(&key) else { return true };
        watched.happened().is_some()
    }

    /// Gives up a wait. Nothing happens if it has ended already.
    pub fn forget(&self, key: Key) {
        let mut waits = self.shared.lock();
        let (watched, time) = match key {
            Key::Descriptor(key) => (waits.descriptors.remove(&key), None),
            Key::Time(time, key) => (None, waits.times.remove(&(time, key))),
        };
        drop(waits);
        drop(time); // not under the lock: what it holds may want to forget, too
        if let Some((watched, then)) = watched {
            self.shared.remove(&watched.descriptor);
            drop(then);
            self.shared.close(watched);
        }
    }
}

impl Shared {
    fn add(&self, watched: Watched, interest: EpollFlags, then: OnEvent) -> Result<Key, Refused> {
        let mut waits = self.lock();
        waits.last_key += 1;
        let key = waits.last_key;
        let interest = EpollEvent::new(interest | EpollFlags::EPOLLONESHOT, key);
        match self.epoll.add(&watched.descriptor, interest) {
            Ok(()) => drop(waits.descriptors.insert(key, (watched, then))),
            Err(why) => return Err(Refused { why: why.into(), watched, then }),
        }
        Ok(Key::Descriptor(key))
    }

    fn add_or_close(&self, watched: Watched, interest: EpollFlags, then: OnEvent) -> std::io::Result<Key> {
        self.add(watched, interest, then).map_err(|Refused { why, watched, .. }| {
            self.close(watched);
            why
        })
    }

    fn at(&self, time: u64, then: OnTime) -> Key {
        let mut waits = self.lock();
        waits.last_key += 1;
        let key = waits.last_key;
        waits.times.insert((time, key), then);
        let first = waits.times.first_key_value().is_some_and(|(&(_, first), _)| first == key);
        drop(waits);
        if first {
            self.wake();
        }
        Key::Time(time, key)
    }

    /// Looks at a descriptor every so often, until something has happened to it. That takes neither a descriptor nor a thread.
    fn look_later(self: &Arc<Self>, watched: Watched, then: OnEvent) {
        // What waits must not keep alive who waits.
        let shared = Arc::downgrade(self);
        let look = move || {
            let Some(shared) = shared.upgrade() else { return };
            match watched.happened() {
                Some(event) => {
                    call(|| then(event, &watched.descriptor));
                    shared.close(watched);
                }
                None => shared.look_later(watched, then),
            }
        };
        let next = boottime_ns().saturating_add(LOOK.as_nanos() as u64);
        self.at(next, Box::new(look));
    }

    fn close(&self, Watched { descriptor, client }: Watched) {
        match client {
            Some((client, held)) => self.closing.run(client, move || {
                drop(descriptor);
                drop(held);
            }),
            None => drop(descriptor),
        }
    }

    fn remove(&self, descriptor: &OwnedFd) {
        // A client may hold the same open file: closing our descriptor would not end the wait.
        if let Err(why) = self.epoll.delete(descriptor) {
            log::warn!("a descriptor is still waited for: {why}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // It can only fail because it was written before: awake it is then.
        let _ = self.wake.write(1);
    }

    /// How long to sleep at most: until the first time.
    fn timeout(&self) -> EpollTimeout {
        let first = self.lock().times.first_key_value().map(|(&(time, _), _)| time);
        let ms = first.map_or(LONGEST_SLEEP, sleep_until).as_nanos().div_ceil(1_000_000);
        EpollTimeout::try_from(ms).unwrap_or(EpollTimeout::ZERO)
    }

    /// Waits once, unless something is left to be told, and calls for some of what has happened of each client.
    fn turn(&self, events: &mut [EpollEvent], happened: &mut Happened) {
        let timeout = if happened.is_empty() { self.timeout() } else { EpollTimeout::ZERO };
        let count = match self.epoll.wait(events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(why) => {
                log::error!("cannot wait for fences: {why}");
                std::thread::sleep(Duration::from_millis(100));
                0
            }
        };
        for event in &events[..count] {
            if event.data() == WAKE {
                let _ = self.wake.read(); // nothing to read: awake already
                continue;
            }
            let waits = self.lock();
            let Some((watched, _)) = waits.descriptors.get(&event.data()) else { continue };
            let client = watched.client.as_ref().map(|(client, _)| *client);
            let failed = event.events().contains(EpollFlags::EPOLLERR);
            happened.entry(client).or_default().push_back((event.data(), failed));
        }
        happened.retain(|_, of_client| {
            let some = of_client.len().min(AT_ONCE);
            of_client.drain(..some).for_each(|(key, failed)| self.tell(key, failed));
            !of_client.is_empty()
        });
        for _ in 0..AT_ONCE {
            let mut waits = self.lock();
            let due = waits.times.first_entry().filter(|first| first.key().0 <= boottime_ns());
            let Some(then) = due.map(|due| due.remove()) else { break };
            drop(waits);
            call(then);
        }
    }

    /// Calls for what has happened to a descriptor, unless that was forgotten meanwhile.
    fn tell(&self, key: u64, failed: bool) {
        let Some((watched, then)) = self.lock().descriptors.remove(&key) else { return };
        self.remove(&watched.descriptor);
        call(|| then(if failed { Event::Error } else { Event::Ready }, &watched.descriptor));
        self.close(watched);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake();
    }
}

fn call(then: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(then)).is_err() {
        log::error!("what follows a fence panicked; this is a fault of the driver");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn ms_from_now(ms: u64) -> u64 {
        boottime_ns() + ms * 1_000_000
    }

    #[test]
    fn descriptors_and_times_are_waited_for() {
        let watcher = Watcher::new().unwrap();
        let (told, heard) = channel();
        let tell = |name: &'static str| {
            let told = told.clone();
            move || told.send(name).unwrap()
        };
        watcher.at(ms_from_now(60), Box::new(tell("second time")));
        watcher.at(ms_from_now(20), Box::new(tell("first time")));
        let forgotten = watcher.at(ms_from_now(40), Box::new(tell("forgotten")));
        watcher.forget(forgotten);
        assert_eq!(heard.recv_timeout(PATIENCE), Ok("first time"));
        assert_eq!(heard.recv_timeout(PATIENCE), Ok("second time"));
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let then = tell("readable");
        let key = watcher.readable(
            OwnedFd::from(theirs),
            Box::new(move |event, _| {
                assert_eq!(event, Event::Ready);
                then();
            }),
        );
        assert!(heard.recv_timeout(Duration::from_millis(20)).is_err());
        ours.write_all(&[1]).unwrap();
        assert_eq!(heard.recv_timeout(PATIENCE), Ok("readable"));
        watcher.forget(key.unwrap());
    }

    #[test]
    fn what_happens_to_very_many_descriptors_of_one_client_holds_up_no_others() {
        const MANY: usize = 400;
        let watcher = Watcher::new().unwrap();
        let (tell, heard) = channel();
        let watch = |client, fence: &UnixStream| {
            let (tell, fence) = (tell.clone(), OwnedFd::from(fence.try_clone().unwrap()));
            let then = move |_: Event, _: &OwnedFd| {
                std::thread::sleep(Duration::from_millis(1));
                tell.send(client).unwrap();
            };
            watcher.readable(Watched::of(client, fence, Arc::new(())), Box::new(then)).unwrap();
        };
        let [(mut many, of_many), (mut one, of_one)] = [(); 2].map(|()| UnixStream::pair().unwrap());
        (0..MANY).for_each(|_| watch(1, &of_many));
        watch(2, &of_one);
        many.write_all(&[1]).unwrap();
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(1));
        one.write_all(&[1]).unwrap();
        let order: Vec<u32> = (0..MANY).map(|_| heard.recv_timeout(PATIENCE).unwrap()).collect();
        let before = order.iter().position(|&client| client == 2);
        assert!(
            before.is_some_and(|before| before < MANY / 2),
            "{before:?} of the other client's came before"
        );
    }

    #[test]
    fn a_failure_is_an_error() {
        let watcher = Watcher::new().unwrap();
        let (tell, heard) = channel();
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&theirs).write_all(&[1]).unwrap();
        let tell = move |event: Event, _: &OwnedFd| tell.send(event).unwrap();
        watcher.readable(OwnedFd::from(theirs), Box::new(tell)).unwrap();
        drop(ours);
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(Event::Error), "closed with a byte unread");
    }

    /// A file whose last close takes as long as who made it likes: a socket, one of whose bytes the other end does not read.
    fn lingers(seconds: u16) -> (OwnedFd, std::net::TcpStream) {
        use std::net::{Shutdown, TcpListener, TcpStream};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let theirs = listener.accept().unwrap().0;
        let linger = libc::linger { l_onoff: 1, l_linger: seconds.into() };
        nix::sys::socket::setsockopt(&ours, nix::sys::socket::sockopt::Linger, &linger).unwrap();
        ours.set_nonblocking(true).unwrap();
        while ours.write(&[0; 1 << 16]).is_ok() {}
        ours.shutdown(Shutdown::Read).unwrap();
        (ours.into(), theirs)
    }

    #[test]
    fn what_takes_long_to_close_is_closed_beside_the_watch_and_its_permit_goes_after_it() {
        let watcher = Watcher::new().unwrap();
        let (tell, heard) = channel();
        let ((lingering, other_end), held) = (lingers(3600), Arc::new(()));
        let (ours, theirs) = UnixStream::pair().unwrap();
        // It lies in the socket that is watched, and is closed with it.
        let files = [std::os::fd::AsRawFd::as_raw_fd(&lingering)];
        let rights = [nix::sys::socket::ControlMessage::ScmRights(&files)];
        let (bytes, no_flags) = ([std::io::IoSlice::new(&[1])], nix::sys::socket::MsgFlags::empty());
        let ends = std::os::fd::AsRawFd::as_raw_fd(&ours);
        nix::sys::socket::sendmsg::<()>(ends, &bytes, &rights, no_flags, None).unwrap();
        drop((lingering, ours));
        let told = tell.clone();
        let signalled = move |_: Event, _: &OwnedFd| told.send("signalled").unwrap();
        watcher.readable(Watched::of(1, theirs.into(), held.clone()), Box::new(signalled)).unwrap();
        assert_eq!(heard.recv_timeout(PATIENCE), Ok("signalled"));
        let closed = tell.clone();
        struct Closes(std::sync::mpsc::Sender<&'static str>);
        impl Drop for Closes {
            fn drop(&mut self) {
                let _ = self.0.send("closed");
            }
        }
        watcher.close(1, Closes(closed));
        watcher.at(boottime_ns(), Box::new(move || tell.send("time").unwrap()));
        assert_eq!(heard.recv_timeout(PATIENCE), Ok("time"));
        assert_eq!(Arc::strong_count(&held), 2, "it is counted as long as it is open");
        assert!(heard.try_recv().is_err(), "its client waits for itself");
        drop(other_end); // with bytes unread, which resets the connection
        assert_eq!(heard.recv_timeout(PATIENCE), Ok("closed"));
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn a_socket_is_closed_once_both_its_ends_are() {
        let watcher = Watcher::new().unwrap();
        let (tell, heard) = channel();
        let (ours, theirs) = UnixStream::pair().unwrap();
        watcher.closed(OwnedFd::from(ours), Box::new(move |_, _| tell.send(()).unwrap())).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(heard.recv_timeout(Duration::from_millis(20)).is_err(), "it is read from still");
        drop(theirs);
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(()));
    }
}
