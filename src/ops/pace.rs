//! How often a long evaluation comes by a yield point: by work done, so that it costs nothing beside the work.

use super::{Args, Interrupt, OpError};
use std::ops::Range;

/// Work between two yield points, in elementary steps (a multiplication or so).
const STRIDE: usize = 1 << 16;

/// Bytes of a page, mostly.
pub const PAGE: usize = 4096;
/// What a byte counts that is the first on its page: a page that is touched for the first time takes a microsecond or two.
const TOUCHED: usize = 4;

/// Bytes that each of so many units counts for an input of `bytes` of which it reads a part, from some `places`, however little that
/// is: each may be the first on its page.
pub fn touched(bytes: usize, units: usize, places: usize) -> usize {
    /// Units that lie nearer share their pages with many.
    const APART: usize = PAGE / 16;
    match bytes / units.max(1) {
        ..APART => 0,
        apart => apart.min(PAGE.saturating_mul(places)),
    }
}

/// The same in the steps that are counted here, of `elements` of four bytes.
pub fn steps_to_touch(elements: usize, units: usize, places: usize) -> usize {
    touched(elements.saturating_mul(4), units, places) / TOUCHED
}

/// Counts work, and comes by a yield point each time enough has been done.
pub struct Pace<'a> {
    interrupt: &'a dyn Interrupt,
    done: usize,
}

impl<'a> Pace<'a> {
    pub fn new(args: &Args<'a>) -> Self {
        Pace::of(args.interrupt)
    }

    /// That of work which is not a call's.
    pub fn of(interrupt: &'a dyn Interrupt) -> Self {
        Pace { interrupt, done: 0 }
    }

    /// Whose yield points these are.
    pub fn interrupt(&self) -> &'a dyn Interrupt {
        self.interrupt
    }

    /// Calls `work` for each of `items`, each of which costs `steps`. To find that there are none costs a step as well: else
    /// very many calls of it, each over nothing, would come by no yield point.
    pub fn each<I>(
        &mut self,
        items: impl IntoIterator<Item = I>,
        steps: usize,
        mut work: impl FnMut(I),
    ) -> Result<(), OpError> {
        let mut since = 0;
        for item in items {
            work(item);
            since += steps;
            if since >= STRIDE {
                self.spend(std::mem::take(&mut since))?;
            }
        }
        self.spend(since.max(1))
    }

    /// Parts of `0..len`, each of which is short enough to be worked on in one go. Each but the last is a multiple of what is
    /// added up side by side anywhere, so that sums do not depend on how they are cut.
    pub fn stretches(len: usize) -> impl Iterator<Item = Range<usize>> {
        (0..len).step_by(STRIDE).map(move |start| start..len.min(start + STRIDE))
    }

    /// Calls `work` for one of the [`stretches`](Self::stretches) of `0..len` after the other, each element of which costs
    /// `steps`. As with [`each`](Self::each), nothing costs a step.
    pub fn in_stretches(
        &mut self,
        len: usize,
        steps: usize,
        mut work: impl FnMut(Range<usize>),
    ) -> Result<(), OpError> {
        self.spend(1)?;
        Pace::stretches(len).try_for_each(|part| {
            self.spend(part.len().saturating_mul(steps))?;
            work(part);
            Ok(())
        })
    }

    /// Notes `steps` of work about to be done. The interrupt's error must be passed on at once.
    pub fn spend(&mut self, steps: usize) -> Result<(), OpError> {
        self.done = self.done.saturating_add(steps);
        if self.done < STRIDE {
            return Ok(());
        }
        self.done = 0;
        self.interrupt.yield_point()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Counting(AtomicU32);

    impl Interrupt for Counting {
        fn check(&self) -> Result<(), OpError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(OpError::Cancelled)
        }
    }

    #[test]
    fn many_items_are_interrupted_between_them() {
        let interrupt = Counting(AtomicU32::new(0));
        let args = Args { signature_index: 0, inputs: &[], outputs: &[], interrupt: &interrupt };
        let (mut seen, items) = (0, 10 * STRIDE);
        assert_eq!(Pace::new(&args).each(0..items, 2, |_| seen += 1), Err(OpError::Cancelled));
        assert_eq!(seen, STRIDE / 2);
        assert_eq!(Pace::new(&args).each(0..STRIDE - 1, 1, |_| seen += 1), Ok(()));
        assert_eq!(seen, STRIDE / 2 + STRIDE - 1);
    }

    #[test]
    fn many_walks_over_nothing_are_interrupted_too() {
        let interrupt = Counting(AtomicU32::new(0));
        let mut pace = Pace::of(&interrupt);
        let walks = (0..2 * STRIDE).take_while(|_| pace.each(0..0, 1, drop).is_ok()).count();
        assert_eq!(walks, STRIDE - 1);
        let walks = (0..2 * STRIDE).take_while(|_| pace.in_stretches(0, 1, drop).is_ok()).count();
        assert_eq!(walks, STRIDE - 1);
    }

    #[test]
    fn asks_once_per_stride_of_work() {
        let interrupt = Counting(AtomicU32::new(0));
        let args = Args { signature_index: 0, inputs: &[], outputs: &[], interrupt: &interrupt };
        let mut pace = Pace::new(&args);
        let stops = (0..1000).filter(|_| pace.spend(STRIDE / 10).is_err()).count();
        assert_eq!((stops, interrupt.0.load(Ordering::Relaxed)), (90, 90)); // every eleventh tenth passes the stride
        assert_eq!(pace.spend(usize::MAX), Err(OpError::Cancelled));
    }
}
