//! What holds for one compilation or run: its deadline, its limits, and whether it was cancelled.

use super::Priority;
use crate::ops::{Interrupt, OpError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// The terms of one compilation or run.
#[derive(Clone, Debug)]
pub struct Control {
    /// Nanoseconds of CLOCK_BOOTTIME; `None` for no deadline.
    pub deadline_ns: Option<u64>,
    /// How long each WHILE may run.
    pub loop_timeout: Duration,
    pub priority: Priority,
    /// Set to stop the work at its next check.
    pub cancelled: Arc<AtomicBool>,
}

impl Default for Control {
    fn default() -> Self {
        Control {
            deadline_ns: None,
            loop_timeout: Duration::from_secs(2),
            priority: Priority::default(),
            cancelled: Arc::default(),
        }
    }
}

impl Interrupt for Control {
    fn check(&self) -> Result<(), OpError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(OpError::Cancelled);
        }
        match self.deadline_ns {
            Some(deadline) if boottime_ns() >= deadline => Err(OpError::DeadlinePassed),
            _ => Ok(()),
        }
    }
}

/// Now, in nanoseconds of CLOCK_BOOTTIME, the clock of the interface's deadlines.
pub fn boottime_ns() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map_or(0, |now| {
        (now.tv_sec() as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec() as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_at_deadline_and_cancellation() {
        let control = Control::default();
        assert_eq!(control.check(), Ok(()));
        let late = Control { deadline_ns: Some(boottime_ns()), ..control.clone() };
        assert_eq!(late.check(), Err(OpError::DeadlinePassed));
        control.cancelled.store(true, Ordering::Relaxed);
        assert_eq!(control.check(), Err(OpError::Cancelled));
    }
}
