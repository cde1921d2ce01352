//! One thread that waits for descriptors and times on behalf of all clients, so that no binder thread has to.
//!
//! What it calls when something happens must be quick and wait for nobody.

use crate::backend::boottime_ns;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The key by which the wake-up descriptor is known.
const WAKE: u64 = 0;
/// Longest sleep: the clock of deadlines goes on while the machine is suspended, that of sleeps does not.
const LONGEST_SLEEP_NS: u64 = 60_000_000_000;

/// What happened to a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Ready,
    Error,
}

type OnEvent = Box<dyn FnOnce(Event) + Send>;
type OnTime = Box<dyn FnOnce() + Send>;

/// Waits, and calls once for each wait that ends.
pub(super) struct Watcher {
    epoll: Epoll,
    wake: EventFd,
    waits: Mutex<Waits>,
}

#[derive(Default)]
struct Waits {
    last_key: u64,
    descriptors: HashMap<u64, (OwnedFd, OnEvent)>,
    /// By time in nanoseconds of CLOCK_BOOTTIME, then key.
    times: BTreeMap<(u64, u64), OnTime>,
}

/// A wait that can be forgotten.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key {
    Descriptor(u64),
    Time(u64, u64),
}

impl Watcher {
    /// Starts the thread, which ends when the watcher is dropped.
    pub fn new() -> std::io::Result<Arc<Self>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        let watcher = Arc::new(Watcher { epoll, wake, waits: Mutex::default() });
        let weak = Arc::downgrade(&watcher);
        std::thread::Builder::new().name("nnhal-watcher".into()).spawn(move || watch(&weak))?;
        Ok(watcher)
    }

    /// Calls `then` when `descriptor` can be read or fails.
    pub fn readable(&self, descriptor: OwnedFd, then: OnEvent) -> std::io::Result<Key> {
        self.add(descriptor, EpollFlags::EPOLLIN, then)
    }

    /// Calls `then` when the other end of `descriptor` is closed.
    pub fn hangup(&self, descriptor: OwnedFd, then: OnEvent) -> std::io::Result<Key> {
        self.add(descriptor, EpollFlags::EPOLLRDHUP, then)
    }

    fn add(&self, descriptor: OwnedFd, interest: EpollFlags, then: OnEvent) -> std::io::Result<Key> {
        let mut waits = self.lock();
        waits.last_key += 1;
        let key = waits.last_key;
        self.epoll.add(&descriptor, EpollEvent::new(interest | EpollFlags::EPOLLONESHOT, key))?;
        waits.descriptors.insert(key, (descriptor, then));
        Ok(Key::Descriptor(key))
    }

    /// Calls `then` at `time`, in nanoseconds of CLOCK_BOOTTIME.
    pub fn at(&self, time: u64, then: OnTime) -> Key {
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

    /// Gives up a wait. Nothing happens if it has ended already.
    pub fn forget(&self, key: Key) {
        let mut waits = self.lock();
        let (descriptor, time) = match key {
            Key::Descriptor(key) => (waits.descriptors.remove(&key), None),
            Key::Time(time, key) => (None, waits.times.remove(&(time, key))),
        };
        drop(waits);
        if let Some((descriptor, _)) = &descriptor {
            self.remove(descriptor);
        }
        drop((descriptor, time)); // not under the lock: what they hold may want to forget, too
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
        let sleep = first.map_or(LONGEST_SLEEP_NS, |time| time.saturating_sub(boottime_ns()));
        let ms = sleep.min(LONGEST_SLEEP_NS).div_ceil(1_000_000);
        EpollTimeout::try_from(ms).unwrap_or(EpollTimeout::ZERO)
    }

    /// Waits once, and calls for all that happened.
    fn turn(&self, events: &mut [EpollEvent]) {
        let count = match self.epoll.wait(events, self.timeout()) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(why) => {
                log::error!("cannot wait for fences: {why}");
                std::thread::sleep(std::time::Duration::from_millis(100));
                0
            }
        };
        for event in &events[..count] {
            if event.data() == WAKE {
                let _ = self.wake.read(); // nothing to read: awake already
                continue;
            }
            let Some((descriptor, then)) = self.lock().descriptors.remove(&event.data()) else { continue };
            self.remove(&descriptor);
            let failed = event.events().contains(EpollFlags::EPOLLERR);
            call(|| then(if failed { Event::Error } else { Event::Ready }));
        }
        loop {
            let mut waits = self.lock();
            let due = waits.times.first_entry().filter(|first| first.key().0 <= boottime_ns());
            let Some(then) = due.map(|due| due.remove()) else { break };
            drop(waits);
            call(then);
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.wake();
    }
}

/// The thread: no more than a weak hold on the watcher while it sleeps would do, but sleeping needs the watcher's own
/// descriptors. So it sleeps on copies of them.
fn watch(watcher: &Weak<Watcher>) {
    let mut events = vec![EpollEvent::empty(); 64];
    while let Some(watcher) = watcher.upgrade() {
        watcher.turn(&mut events);
    }
}

fn call(then: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(then)).is_err() {
        log::error!("what follows a fence panicked; this is a fault of the driver");
    }
}
