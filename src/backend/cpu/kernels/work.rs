//! A kernel's work, cut into parts that a team's threads do, and that may be stopped between parts.

use super::then::Then;
use crate::backend::cpu::pool::{Team, LEAST_SHARED_NS};
use crate::memory::Target;
use crate::ops::{Interrupt, OpError};
use bytemuck::AnyBitPattern;
use std::ops::Range;
use std::sync::OnceLock;
use std::thread::ThreadId;
use std::time::Duration;

/// Bytes that a task reads and writes at most, unless one unit of it has more: pages that are touched for the first time take
/// many times as long as the arithmetic.
const MOST_BYTES: usize = 512 << 10;

/// Who does a kernel's work, and who may stop it.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    pub team: Team<'a>,
    pub interrupt: &'a dyn Interrupt,
    /// What is to be done with the output, which is memory of ours then. Only of kernels that [do](super::Kernel::goes_on).
    pub then: Option<Then<'a>>,
}

impl<'a> Work<'a> {
    pub fn new(team: Team<'a>, interrupt: &'a dyn Interrupt) -> Self {
        Work { team, interrupt, then: None }
    }
}

impl Work<'_> {
    /// Calls `work(first element, chunk)` for chunks of an output on all threads, until done or interrupted, and goes on with
    /// each where it was made.
    pub(super) fn for_each_chunk<T: AnyBitPattern + Send>(
        self,
        out: Target<T>,
        chunk: usize,
        work: impl Fn(usize, Target<T>) + Sync,
    ) -> Result<(), OpError> {
        self.try_for_each_chunk(out, chunk, |first, out| {
            work(first, out);
            Ok(())
        })
    }

    /// The same of work that may fail.
    pub(super) fn try_for_each_chunk<T: AnyBitPattern + Send>(
        self,
        out: Target<T>,
        chunk: usize,
        work: impl Fn(usize, Target<T>) -> Result<(), OpError> + Sync,
    ) -> Result<(), OpError> {
        self.for_each_part(out.len(), chunk, |part| {
            // SAFETY: parts do not overlap, and each is handed out once.
            let mut made = unsafe { out.disjoint_part(part.start, part.len()) };
            let to = made.pointer(0, part.len()).wrapping_sub(part.start);
            work(part.start, made)?;
            match self.then {
                // SAFETY: the part was just written, and is memory of ours as it is gone on with.
                Some(then) => unsafe { then.on(to, 0..1, part, out.len()) },
                None => Ok(()),
            }
        })
    }

    /// Calls `work(units)` for all units below `count`, several at a time, each of which takes so many picoseconds and moves few
    /// bytes.
    pub(super) fn for_each_range(
        self,
        count: usize,
        picoseconds: usize,
        work: impl Fn(Range<usize>) + Sync,
    ) -> Result<(), OpError> {
        self.in_parts(count, self.units_per_task(count, picoseconds, 0), work)
    }

    /// Elements for each task of a kernel that spends so many picoseconds on each, besides what goes on with it, and moves so many
    /// bytes for it: all of them where handing them out takes longer than it saves, otherwise few enough that no thread
    /// waits long for another, and that a task takes well under a millisecond; and as many tasks for each thread.
    pub(super) fn per_task(self, elements: usize, picoseconds: usize, bytes: usize) -> usize {
        let after = self.then.map_or(0, |then| then.picoseconds);
        self.units_per_task(elements, picoseconds.saturating_add(after), bytes).next_multiple_of(256)
    }

    /// The same for units that are more than an element.
    pub(super) fn units_per_task(self, units: usize, picoseconds: usize, bytes: usize) -> usize {
        const NANOSECOND: usize = 1000;
        // What nobody is called for, without divisions: to do them would take as long as the smallest operations.
        let work = units.saturating_mul(picoseconds);
        if work < LEAST_SHARED_NS * NANOSECOND && units.saturating_mul(bytes.max(1)) <= MOST_BYTES {
            return units.max(1);
        }
        let at_most = |nanoseconds: usize| (nanoseconds * NANOSECOND / picoseconds.max(1)).max(1);
        let alone = Duration::from_nanos((work / NANOSECOND) as u64);
        let threads = self.team.threads_for(alone);
        let even = match threads {
            1 => units,
            threads => units.div_ceil(4 * threads).max(at_most(1000)),
        };
        let most = even.min(at_most(250_000)).min(MOST_BYTES / bytes.max(1)).max(1);
        match units.div_ceil(most) {
            tasks if tasks > threads => units.div_ceil(tasks.next_multiple_of(threads)),
            _ => most,
        }
    }

    /// Work may stop here. On the thread `owner`, which has the turn, it may also pass the turn on and wait for it; helpers
    /// must not, and have few parts left to do.
    pub(super) fn pause(self, owner: ThreadId) -> Result<(), OpError> {
        match std::thread::current().id() == owner {
            true => self.interrupt.yield_point(),
            false => self.interrupt.check(),
        }
    }

    /// Calls `work` for parts of `0..len`, each but the last of `part` of them, on all threads, until done or interrupted.
    pub(super) fn in_parts(
        self,
        len: usize,
        part: usize,
        work: impl Fn(Range<usize>) + Sync,
    ) -> Result<(), OpError> {
        self.for_each_part(len, part, |part| {
            work(part);
            Ok(())
        })
    }

    /// The same of work that may fail.
    pub(super) fn for_each_part(
        self,
        len: usize,
        part: usize,
        work: impl Fn(Range<usize>) -> Result<(), OpError> + Sync,
    ) -> Result<(), OpError> {
        let part = part.max(1);
        let count = if len <= part { usize::from(len > 0) } else { len.div_ceil(part) };
        self.for_each_task(count, |i| work(i * part..len.min((i + 1) * part)))
    }

    /// Does `count` tasks on all threads, until one fails or all are interrupted.
    pub(super) fn for_each_task(
        self,
        count: usize,
        task: impl Fn(usize) -> Result<(), OpError> + Sync,
    ) -> Result<(), OpError> {
        if count <= 1 || self.team.threads() == 1 {
            // All of it by this thread, which has the turn.
            return (0..count).try_for_each(|i| {
                self.interrupt.yield_point()?;
                task(i)
            });
        }
        let (stopped, owner) = (OnceLock::new(), std::thread::current().id());
        self.team.for_each(count, &|i| {
            if stopped.get().is_none() {
                if let Err(why) = self.pause(owner).and_then(|()| task(i)) {
                    // Whoever was first has told already.
                    let _ = stopped.set(why);
                }
            }
        });
        stopped.into_inner().map_or(Ok(()), Err)
    }
}
