//! For how long the kernel lets a thread compute before it looks for others: short slices for threads that serve calls, long
//! ones for those that compute.
//!
//! A thread's share does not depend on it, but which of two threads goes first does: a thread with a short slice that has
//! waited puts one with a long slice aside at once. So calls are served soon beside processes that only compute, and clients
//! come to a processor soon beside long work of the driver.
//!
//! A client that was put aside by the thread that answers it comes after one that computes until the kernel chooses again, which
//! may be in 10 ms. So long work has it [look] more often.
//!
//! Threads inherit their slices. A process that has not [begun](begin) keeps those that it has, as one does that a driver is
//! embedded in.

use crate::memory::{look_for_others, set_time_slice, time_slice};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// About the shortest that there is. Neither this nor the other is a round number, so that they are told from what others give.
const SHORT: Duration = Duration::from_nanos(100_003);
/// Longer than the usual one, of 2 to 4 ms.
const LONG: Duration = Duration::from_nanos(10_000_019);
/// Work is given long slices once it has taken so long. A thread that has just come to a processor has mostly put another aside,
/// which it would hold up until the kernel looks next; but the kernel looks whenever slices change.
const AFTER: Duration = Duration::from_micros(300);
/// How often a thread that has long slices has the kernel look whether it is another's time to run.
const LOOKS: Duration = Duration::from_micros(200);
/// What takes less is not worth it: to change a thread's slice twice takes 3 us.
pub const LONG_WORK: Duration = Duration::from_micros(600);
/// Work of which it is not known whether it is worth it is given long slices once it has taken so much longer.
const UNKNOWN: Duration = Duration::from_micros(700);

thread_local! {
    /// What slices the thread has, once it was asked.
    static OWN: Cell<Option<Own>> = const { Cell::new(None) };
    /// Since when work counts that is to have long slices, and once it has them, when the kernel last looked.
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    Short,
    Long,
    /// Others than were given here: they are left as they are.
    Given,
}

/// Gives the calling thread, and all that it starts from here on, short slices. Kernels before Linux 6.12 take no notice.
pub fn begin() -> std::io::Result<()> {
    set_time_slice(SHORT)
}

/// Gives the calling thread, if it has short slices, long ones until what this gives is dropped.
pub fn long() -> Long {
    let changes = own() == Own::Short && change(Own::Long, LONG);
    Long::since(Instant::now(), changes)
}

/// The same for work that has yield points, once it has taken so long that it is worth it.
pub fn long_later() -> Long {
    Long::once_taken(Duration::ZERO)
}

/// The same for work that may as well be over soon.
pub fn long_if_it_takes_long() -> Long {
    Long::once_taken(UNKNOWN)
}

/// At a yield point: long slices for work that has taken so long by now, and a look of the kernel whether another thread is due.
pub fn look() {
    let Some(looked) = LOOKED.get() else { return };
    let (now, is_long) = (Instant::now(), OWN.get() == Some(Own::Long));
    if now.duration_since(looked) < if is_long { LOOKS } else { AFTER } {
        return;
    }
    // What is over soon has the kernel look at nothing: its client waits for it, and perhaps others for its turn.
    let goes_on = if is_long { look_for_others() } else { change(Own::Long, LONG) };
    LOOKED.set(goes_on.then_some(now));
}

/// See [`long`].
#[must_use]
pub struct Long {
    changes: bool,
}

impl Long {
    /// For work that is to have them once it has taken so much longer than what is known to be worth it.
    fn once_taken(longer: Duration) -> Self {
        Long::since(Instant::now() + longer, own() == Own::Short && LOOKED.get().is_none())
    }

    fn since(start: Instant, changes: bool) -> Self {
        if changes {
            LOOKED.set(Some(start));
        }
        Long { changes }
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        // It may be another thread that drops it.
        if self.changes {
            LOOKED.set(None);
            if own() == Own::Long {
                change(Own::Short, SHORT);
            }
        }
    }
}

fn own() -> Own {
    OWN.get().unwrap_or_else(|| {
        let own = match time_slice() {
            Ok(SHORT) => Own::Short,
            // It was started by a thread that computes.
            Ok(LONG) if change(Own::Short, SHORT) => Own::Short,
            _ => Own::Given,
        };
        OWN.set(Some(own));
        own
    })
}

/// Whether the kernel did so. Where it does not, the thread is not asked again.
fn change(to: Own, slice: Duration) -> bool {
    let changed = set_time_slice(slice);
    if let Err(why) = &changed {
        log::debug!("a thread keeps its time slices: {why}");
    }
    OWN.set(Some(if changed.is_ok() { to } else { Own::Given }));
    changed.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `then` gives on a thread of its own.
    fn aside<T: Send + 'static>(then: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(then).join().unwrap()
    }

    fn slice() -> Option<Duration> {
        time_slice().ok().filter(|slice| !slice.is_zero())
    }

    /// Does `then` on a thread that has begun, where the kernel has slices to choose.
    fn begun(then: impl FnOnce() + Send + 'static) {
        aside(|| {
            begin().unwrap();
            match slice() {
                Some(_) => then(),
                None => eprintln!("skipped: this kernel has no slices to choose"),
            }
        });
    }

    #[test]
    fn slices_are_long_while_there_is_long_work_and_short_otherwise() {
        begun(|| {
            let inner = || (slice(), drop(long()), slice());
            assert_eq!((inner(), slice()), ((Some(SHORT), (), Some(SHORT)), Some(SHORT)));
            let outer = long();
            // The first that asked for it has it until the end.
            assert_eq!(inner(), (Some(LONG), (), Some(LONG)));
            // Who is started meanwhile has short ones again once it has done something long.
            let started = aside(|| (drop(long()), slice()));
            assert_eq!(started, ((), Some(SHORT)));
            drop(outer);
            assert_eq!(slice(), Some(SHORT));
        });
    }

    #[test]
    fn work_with_yield_points_has_long_slices_once_it_has_taken_long() {
        begun(|| {
            look();
            let work = long_later();
            let inner = long_later();
            assert_eq!(slice(), Some(SHORT));
            drop(inner);
            std::thread::sleep(AFTER);
            look();
            assert_eq!(slice(), Some(LONG));
            let looked = LOOKED.get();
            look();
            assert_eq!(LOOKED.get(), looked, "the kernel has just looked");
            std::thread::sleep(LOOKS);
            look();
            assert!(LOOKED.get() > looked, "it looks again while the work goes on");
            drop(long_later());
            assert_eq!(slice(), Some(LONG), "the first that asked for it has it until the end");
            drop(work);
            assert_eq!((slice(), LOOKED.get()), (Some(SHORT), None));
            drop(long_later());
            std::thread::sleep(AFTER);
            look();
            assert_eq!(slice(), Some(SHORT), "it was over before");
        });
    }

    #[test]
    fn work_that_may_be_over_soon_has_them_later() {
        begun(|| {
            let work = long_if_it_takes_long();
            look();
            assert_eq!(slice(), Some(SHORT));
            std::thread::sleep(AFTER + UNKNOWN);
            look();
            assert_eq!(slice(), Some(LONG));
            drop(work);
            assert_eq!((slice(), LOOKED.get()), (Some(SHORT), None));
        });
    }

    #[test]
    fn threads_that_have_not_begun_keep_their_slices() {
        let (before, during, after) = aside(|| {
            let before = slice();
            let _long = long();
            (before, slice(), slice())
        });
        assert_eq!((before, before), (during, after));
    }
}
