//! The clock of deadlines.

/// Now, in nanoseconds of CLOCK_BOOTTIME, the clock of the interface's deadlines.
pub fn boottime_ns() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map_or(0, |now| {
        (now.tv_sec() as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec() as u64)
    })
}
