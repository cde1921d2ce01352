//! Adaptive polling: to look for a packet, or the next call, again and again, where it comes so soon that sleeping would cost
//! more. It must not know what a packet is.

use nix::errno::Errno;
use nix::poll::{ppoll, PollFd, PollFlags};
use nix::sys::socket::{recv, MsgFlags};
use nix::sys::time::TimeSpec;
use std::cell::Cell;
use std::ops::RangeInclusive;
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
/// An answer that took longer than this is not worth foreseeing: a wake-up is nothing beside it.
const FORESEEN: Duration = Duration::from_millis(20);
/// By so much sooner than an answer is due is it polled for: timers wake late, by some 50 us on purpose, and so do processors.
const AHEAD: Duration = Duration::from_micros(150);
/// Between two looks that are this far apart the processor was another's, who needs it more than one who only waits.
const WANTED: Duration = Duration::from_micros(30);
/// So many polls are left out after that, and twice as many each time it happens again at once.
const LEFT_OUT: RangeInclusive<usize> = 2..=1024;
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
        take_one(&self.free).then(|| Polling(self))
    }
}

/// Whether there was one to take.
fn take_one(count: &AtomicUsize) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok()
}

/// How many polls of a burst or a connection are left out, as others wanted the processor, and how many will be when they want
/// it again.
#[derive(Debug)]
struct LeftOut {
    still: AtomicUsize,
    next: AtomicUsize,
}

impl Default for LeftOut {
    fn default() -> Self {
        LeftOut { still: AtomicUsize::new(0), next: AtomicUsize::new(*LEFT_OUT.start()) }
    }
}

impl LeftOut {
    /// Notes whether others wanted the processor of one who polled.
    fn note(&self, wanted: bool) {
        let mut next = *LEFT_OUT.start();
        if wanted {
            let now = self.next.load(Ordering::Relaxed);
            self.still.store(now, Ordering::Relaxed);
            next = (2 * now).min(*LEFT_OUT.end());
        }
        self.next.store(next, Ordering::Relaxed);
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
#[derive(Clone, Debug)]
pub struct Poller {
    /// `None` never polls.
    budget: Option<Arc<PollingBudget>>,
    arrived: Instant,
    answered: Instant,
    /// How long the last packet took to come: so long takes the next, it is assumed. `None` where that says nothing.
    took: Option<Duration>,
    left_out: Arc<LeftOut>,
}

impl Poller {
    /// Polls within `budget`, or never with none: so must it be where power is dear.
    pub fn new(budget: Option<Arc<PollingBudget>>) -> Self {
        let now = Instant::now();
        Poller { budget, arrived: now, answered: now, took: None, left_out: Arc::default() }
    }

    /// Polls within another budget from now on.
    pub fn within(&mut self, budget: Arc<PollingBudget>) {
        self.budget = Some(budget);
    }

    /// How long the next packet is assumed to take, where that is no longer than `most` and it is to be polled for.
    fn due(&self, most: Duration) -> Option<Duration> {
        let took = self.took.filter(|took| *took <= most && self.budget.is_some())?;
        (!take_one(&self.left_out.still)).then_some(took)
    }

    /// Polls until `there` says that there is something, or something to stop for; false when it is time to sleep.
    pub fn poll<E>(&self, there: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        self.due(SOON).map_or(Ok(false), |_| self.poll_by(LOOKS, there))
    }

    /// Polls until there is something to receive from `socket`, or it is time to sleep: what is received tells which.
    pub fn poll_socket(&self, socket: BorrowedFd<'_>) {
        if self.due(SOON).is_some() {
            self.look_at(socket);
        }
    }

    /// The same for an answer that may take longer: it is slept for until it is nearly due. So its receiver is awake when it
    /// comes, and has hardly kept a processor from those who work on it.
    pub fn poll_foreseen(&self, socket: BorrowedFd<'_>) {
        let Some(took) = self.due(FORESEEN) else { return };
        let slept_for = || {
            let nearly_due = TimeSpec::from_duration(took.saturating_sub(AHEAD));
            ppoll(&mut [PollFd::new(socket, PollFlags::POLLIN)], Some(nearly_due), None) != Ok(0)
        };
        // Only who polls has a place in the budget, not who sleeps.
        if took <= WINDOW || !slept_for() {
            self.look_at(socket);
        }
    }

    fn look_at(&self, socket: BorrowedFd<'_>) {
        let (Ok(_) | Err(())) = self.poll_by(1, || Ok(has_come(socket)));
    }

    /// Polls by so many looks at a time.
    fn poll_by<E>(&self, looks: u32, mut there: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        let Some(_polling) = self.budget.as_ref().and_then(|budget| budget.take()) else { return Ok(false) };
        let began = Instant::now();
        let (mut looked, mut wanted) = (began, false);
        while !wanted && looked.saturating_duration_since(began) < WINDOW {
            for _ in 0..looks {
                if there()? {
                    self.left_out.note(false);
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            // The peer may be waiting for this very processor.
            std::thread::yield_now();
            let now = Instant::now();
            wanted = now.saturating_duration_since(looked) > WANTED;
            looked = now;
        }
        self.left_out.note(wanted);
        Ok(false)
    }

    /// A packet has come.
    pub fn arrived(&mut self) {
        self.arrived = Instant::now();
        self.took = Some(self.arrived.saturating_duration_since(self.answered));
    }

    /// It was dealt with: the wait for the next begins.
    pub fn answered(&mut self) {
        self.answered = Instant::now();
        if self.answered.saturating_duration_since(self.arrived) > SHORT {
            self.took = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn polls(poller: &Poller) -> bool {
        nothing_left_out(poller);
        let mut looks = 0;
        let there = poller.poll(|| -> Result<bool, ()> {
            looks += 1;
            Ok(false)
        });
        assert_eq!(there, Ok(false));
        looks > 0
    }

    /// Forgets what else this machine did in earlier polls.
    fn nothing_left_out(poller: &Poller) {
        poller.left_out.still.store(0, Ordering::Relaxed);
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
        nothing_left_out(&poller);
        assert_eq!(poller.poll(|| Ok::<_, ()>(true)), Ok(true));
        assert_eq!(poller.poll(|| Err("over")), Err("over"));
        poller.arrived = ahead();
        poller.answered();
        assert!(polls(&poller));
        std::thread::sleep(2 * SOON);
        poller.arrived();
        assert!(!polls(&poller), "it came late");
        let mut poller = Poller { took: Some(SOON), ..poller };
        std::thread::sleep(2 * SHORT);
        poller.answered();
        assert!(!polls(&poller), "to answer it took its time");
    }

    #[test]
    fn an_answer_that_takes_longer_is_slept_for_until_it_is_nearly_due() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let within =
            |places, took| Poller { took: Some(took), ..Poller::new(Some(PollingBudget::new(places))) };
        let after = |took| within(1, took);
        let took = Duration::from_millis(5);
        // To sleep takes no place in the budget.
        for places in [0, 1] {
            let began = Instant::now();
            within(places, took).poll_foreseen(ours.as_fd());
            assert!(began.elapsed() >= took - AHEAD, "nothing came, and it did not wait");
        }
        assert!(!has_come(ours.as_fd()));
        // As it comes sooner than foreseen, the wait ends with it.
        std::thread::scope(|scope| {
            scope.spawn(|| theirs.write_all(&[7]).unwrap());
            after(FORESEEN).poll_foreseen(ours.as_fd());
            assert!(has_come(ours.as_fd()));
        });
        // What took longer than that is not polled for, nor counted as left out.
        let poller = after(FORESEEN + Duration::from_nanos(1));
        poller.left_out.still.store(1, Ordering::Relaxed);
        poller.poll_foreseen(ours.as_fd());
        assert_eq!(poller.left_out.still.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn polls_are_left_out_after_others_wanted_the_processor() {
        let poller = Poller { took: Some(SOON), ..Poller::new(Some(PollingBudget::new(1))) };
        let left_out = || {
            let mut count = 0;
            while poller.due(SOON).is_none() {
                count += 1;
            }
            count
        };
        let mut looks = 0;
        let slow = poller.poll(|| -> Result<bool, ()> {
            std::thread::sleep(WANTED); // as if another had run here
            looks += 1;
            Ok(false)
        });
        assert_eq!((slow, looks), (Ok(false), LOOKS), "it went on");
        assert_eq!(left_out(), *LEFT_OUT.start());
        for wanted in [4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            poller.left_out.note(true);
            assert_eq!(left_out(), wanted);
        }
        poller.left_out.note(false);
        assert_eq!(left_out(), 0);
        poller.left_out.note(true);
        assert_eq!(left_out(), *LEFT_OUT.start());
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
        let soon = |budget| Poller { took: Some(SOON), ..Poller::new(budget) };
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
