//! The times of a fenced execution: those that bound it, and those that its client is told.

use super::run::{timing, NO_TIMING};
use super::status::ServiceError;
use super::terms;
use crate::aidl::Timing;
use crate::backend::boottime_ns;
use std::time::{Duration, Instant};

/// The times that bound a fenced execution, and when its call came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub deadline: Option<u64>,
    /// Counted from when the last fence is signalled.
    duration: Option<Duration>,
    pub launched: Instant,
}

impl Times {
    pub fn new(deadline: i64, duration: i64) -> Result<Self, ServiceError> {
        let launched = Instant::now();
        Ok(Times { deadline: terms::deadline(deadline)?, duration: terms::duration(duration)?, launched })
    }

    /// Whether it matters when the last fence is signalled.
    pub fn count_from_fences(&self) -> bool {
        self.duration.is_some()
    }

    /// Until when it may take if its fences are signalled now, by its duration alone.
    pub fn after_fences(&self) -> Option<u64> {
        let duration = u64::try_from(self.duration?.as_nanos()).unwrap_or(u64::MAX);
        Some(boottime_ns().saturating_add(duration))
    }

    /// The timings since the launch and since the last fence of a run that the device was at for so long, if they are to be
    /// `measured`.
    pub fn told(&self, measured: bool, fenced: Instant, on_device: Duration) -> (Timing, Timing) {
        if measured {
            (timing(on_device, self.launched.elapsed()), timing(on_device, fenced.elapsed()))
        } else {
            (NO_TIMING, NO_TIMING)
        }
    }
}
