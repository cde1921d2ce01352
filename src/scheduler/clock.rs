//! The clock of deadlines.

use std::time::Duration;

/// Longest sleep: the clock of deadlines goes on while the machine is suspended, that of sleeps does not.
pub const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Now, in nanoseconds of CLOCK_BOOTTIME, the clock of the interface's deadlines.
pub fn boottime_ns() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map_or(0, |now| {
        (now.tv_sec() as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec() as u64)
    })
}

/// How long to sleep before looking whether it is `time`, on that clock: until then, or the longest sleep.
pub fn sleep_until(time: u64) -> Duration {
    Duration::from_nanos(time.saturating_sub(boottime_ns())).min(LONGEST_SLEEP)
}
