//! When long work asks whether to stop.

use crate::ops::{Interrupt, OpError};

/// Counts work and asks the interrupt about once per million steps: well under a millisecond of optimised code, and
/// rarely enough to cost nothing.
pub struct Pace<'a> {
    interrupt: &'a dyn Interrupt,
    since_asked: usize,
}

impl<'a> Pace<'a> {
    const STEPS: usize = 1 << 20;

    pub fn new(interrupt: &'a dyn Interrupt) -> Self {
        Pace { interrupt, since_asked: 0 }
    }

    /// Counts `steps` of work, a multiplication or the copy of an element being one.
    pub fn spend(&mut self, steps: usize) -> Result<(), OpError> {
        self.since_asked = self.since_asked.saturating_add(steps);
        if self.since_asked < Self::STEPS {
            return Ok(());
        }
        self.since_asked = 0;
        self.interrupt.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Stop;

    impl Interrupt for Stop {
        fn check(&self) -> Result<(), OpError> {
            Err(OpError::Cancelled)
        }
    }

    #[test]
    fn asks_after_a_million_steps() {
        let mut pace = Pace::new(&Stop);
        assert_eq!(pace.spend(Pace::STEPS - 1), Ok(()));
        assert_eq!(pace.spend(1), Err(OpError::Cancelled));
        assert_eq!(pace.spend(1), Ok(()));
        assert_eq!(pace.spend(usize::MAX), Err(OpError::Cancelled));
    }
}
