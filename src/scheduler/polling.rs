//! Adaptive polling: to look for a packet, or the next call, again and again, where it comes so soon that sleeping would cost
//! more. It must not know what a packet is.

use nix::errno::Errno;
use nix::sys::socket::{recv, MsgFlags};
use std::cell::Cell;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A packet that came this soon after the last answer was worth polling for: so is the next, it is assumed.
const SOON: Duration = Duration::from_micros(250);
/// Polling saves a sleep, which is a small part of a request that took longer than this. It is not worth a processor, which
/// the client may need to come back with the next request.
const SHORT: Duration = Duration::from_millis(2);
/// How long to poll for a packet. One that takes longer has cost this much of a processor, once.
const WINDOW: Duration = SOON;
/// So many looks at memory between two looks at the clock. A look at a socket is a call of the kernel, worth a look at the clock
/// itself.
const LOOKS: u32 = 32;

/// How many threads may poll at once, in all bursts together.
#[derive(Debug)]
pub struct PollingBudget {
    free: AtomicUsize,
}

impl PollingBudget {
    pub fn new(threads: usize) -> Arc<Self> {
        Arc::new(PollingBudget { free: AtomicUsize::new(threads) })
    }

    /// A machine spares half of its processors for polling. Polling on its only one would keep the peer from work.
    pub fn for_processors(processors: usize) -> Arc<Self> {
        Self::new(processors / 2)
    }

    fn take(&self) -> Option<Polling<'_>> {
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1));
        taken.ok().map(|_| Polling(self))
    }
}

/// A place in the budget.
struct Polling<'a>(&'a PollingBudget);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::Relaxed);
    }
}

thread_local! {
    /// Within what may be polled for the next call.
    static NEXT: Cell<Option<Arc<PollingBudget>>> = const { Cell::new(None) };
}

/// Says that whoever made the call that the thread serves is likely to make another one: it may be polled for within `budget`.
pub fn expect_next(budget: &Arc<PollingBudget>) {
    let _ = NEXT.try_with(|next| next.set(Some(budget.clone()))); // a thread that ends waits for nothing
}

/// What was said of the call that the thread has just served.
pub fn expected_next() -> Option<Arc<PollingBudget>> {
    NEXT.try_with(Cell::take).ok().flatten()
}

/// Whether there is something to receive from `socket`, an end or an error as well.
fn has_come(socket: BorrowedFd<'_>) -> bool {
    let look = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    recv(socket.as_raw_fd(), &mut [0], look) != Err(Errno::EAGAIN)
}

/// The polling of a burst, or of a connection.
#[derive(Debug)]
pub struct Poller {
    /// `None` never polls.
    budget: Option<Arc<PollingBudget>>,
    arrived: Instant,
    answered: Instant,
    soon: bool,
}

impl Poller {
    /// Polls within `budget`, or never with none: so must it be where power is dear.
    pub fn new(budget: Option<Arc<PollingBudget>>) -> Self {
        let now = Instant::now();
        Poller { budget, arrived: now, answered: now, soon: false }
    }

    /// Polls within another budget from now on.
    pub fn within(&mut self, budget: Arc<PollingBudget>) {
        self.budget = Some(budget);
    }

    /// Polls until `there` says that there is something, or something to stop for; false when it is time to sleep.
    pub fn poll<E>(&self, there: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        self.poll_by(LOOKS, there)
    }

    /// Polls until there is something to receive from `socket`, or it is time to sleep: what is received tells which.
    pub fn poll_socket(&self, socket: BorrowedFd<'_>) {
        let (Ok(_) | Err(())) = self.poll_by(1, || Ok(has_come(socket)));
    }

    /// Polls by so many looks at a time.
    fn poll_by<E>(&self, looks: u32, mut there: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        let Some(_polling) = self.budget.as_ref().filter(|_| self.soon).and_then(|budget| budget.take())
        else {
            return Ok(false);
        };
        let began = Instant::now();
        loop {
            for _ in 0..looks {
                if there()? {
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            if began.elapsed() >= WINDOW {
                return Ok(false);
            }
            // The peer may be waiting for this very processor.
            std::thread::yield_now();
        }
    }

    /// A packet has come.
    pub fn arrived(&mut self) {
        self.arrived = Instant::now();
        self.soon = self.arrived.saturating_duration_since(self.answered) <= SOON;
    }

    /// It was dealt with: the wait for the next begins.
    pub fn answered(&mut self) {
        self.answered = Instant::now();
        self.soon &= self.answered.saturating_duration_since(self.arrived) <= SHORT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn polls(poller: &Poller) -> bool {
        let mut looks = 0;
        let there = poller.poll(|| -> Result<bool, ()> {
            looks += 1;
            Ok(false)
        });
        assert_eq!(there, Ok(false));
        looks > 0
    }

    #[test]
    fn what_has_come_is_seen_and_stays_to_be_received() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        assert!(!has_come(ours.as_fd()));
        theirs.write_all(&[7]).unwrap();
        assert!(has_come(ours.as_fd()) && has_come(ours.as_fd()));
        assert_eq!((&ours).read(&mut [0; 2]).unwrap(), 1);
        assert!(!has_come(ours.as_fd()));
        drop(theirs);
        assert!(has_come(ours.as_fd()), "its end");
    }

    #[test]
    fn it_polls_while_packets_come_soon() {
        let mut poller = Poller::new(Some(PollingBudget::new(1)));
        assert!(!polls(&poller), "nothing has come yet");
        // Nothing takes long where the clock is ahead.
        let ahead = || Instant::now() + Duration::from_secs(60);
        poller.answered = ahead();
        poller.arrived();
        assert!(polls(&poller));
        assert_eq!(poller.poll(|| Ok::<_, ()>(true)), Ok(true));
        assert_eq!(poller.poll(|| Err("over")), Err("over"));
        poller.arrived = ahead();
        poller.answered();
        assert!(polls(&poller));
        std::thread::sleep(2 * SOON);
        poller.arrived();
        assert!(!polls(&poller), "it came late");
        let mut poller = Poller { soon: true, ..poller };
        std::thread::sleep(2 * SHORT);
        poller.answered();
        assert!(!polls(&poller), "to answer it took its time");
    }

    #[test]
    fn what_is_expected_is_said_once_and_on_its_thread() {
        let budget = PollingBudget::new(1);
        expect_next(&budget);
        assert!(std::thread::scope(|scope| scope.spawn(|| expected_next().is_none()).join().unwrap()));
        assert!(expected_next().is_some_and(|next| Arc::ptr_eq(&next, &budget)));
        assert!(expected_next().is_none());
    }

    #[test]
    fn the_budget_holds_and_low_power_never_polls() {
        let budget = PollingBudget::new(1);
        let soon = |budget| Poller { soon: true, ..Poller::new(budget) };
        let (first, second) = (soon(Some(budget.clone())), soon(Some(budget)));
        let held = first.poll(|| -> Result<bool, ()> {
            assert!(!polls(&second));
            Ok(true)
        });
        assert_eq!(held, Ok(true));
        assert!(polls(&second), "the place was not given back");
        assert!(!polls(&soon(None)));
        assert!(!polls(&soon(Some(PollingBudget::for_processors(1)))));
    }
}
