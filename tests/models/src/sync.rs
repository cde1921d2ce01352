//! What the modules under test have in place of `src/sync.rs`: the checker's locks, atomics and threads, and a clock that
//! goes the same way in every run.

use std::cell::Cell;
use std::time::Duration;

pub use loom::sync::{Condvar, Mutex, MutexGuard};

pub mod atomic {
    pub use loom::sync::atomic::{fence, AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
}

pub mod thread {
    use std::cell::Cell;
    use std::io;

    // All that is done before a thread is woken counts as seen by it: whether what it waits for must be stored with
    // Release cannot be found out here.
    pub use loom::thread::{current, park, yield_now, JoinHandle, Thread};

    /// Time wakes nobody here. A thread that only time would wake waits for ever, and the checker finds it.
    pub fn park_timeout(_: std::time::Duration) {
        loom::thread::park();
    }

    thread_local! {
        /// How many more threads cannot be started.
        static REFUSED: Cell<usize> = const { Cell::new(0) };
    }

    /// More than any model starts.
    pub const ALWAYS: usize = usize::MAX;

    /// Has the next `count` threads refused, as if the process could have no more.
    pub fn refuse(count: usize) {
        REFUSED.set(count);
    }

    /// Whether no thread can be had any more.
    pub fn are_refused() -> bool {
        REFUSED.get() == ALWAYS
    }

    pub struct Builder(loom::thread::Builder);

    impl Builder {
        pub fn new() -> Self {
            Builder(loom::thread::Builder::new())
        }

        pub fn name(self, name: String) -> Self {
            Builder(self.0.name(name))
        }

        pub fn spawn<T: Send + 'static>(
            self,
            work: impl FnOnce() -> T + Send + 'static,
        ) -> io::Result<JoinHandle<T>> {
            match REFUSED.get() {
                0 => return self.0.spawn(work),
                ALWAYS => {}
                count => REFUSED.set(count - 1),
            }
            Err(io::ErrorKind::WouldBlock.into())
        }
    }
}

/// The clock goes on by this much with each look at it.
const TICK: Duration = Duration::from_micros(100);

thread_local! {
    /// The threads of a model are all in one of the system's.
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

pub fn restart_clock() {
    NOW.set(Duration::ZERO);
}

/// A time on the model's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    pub fn now() -> Self {
        let now = NOW.get() + TICK;
        NOW.set(now);
        Instant(now)
    }

    pub fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(*self)
    }

    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Instant(self.0 + time)
    }
}
