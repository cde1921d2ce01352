//! For tests: how often a thread goes to sleep while it waits, and so how often it was woken.

use std::time::Duration;

/// So long a wait that one by looking every few milliseconds would show.
pub const WHILE: Duration = Duration::from_millis(300);
/// So often a wait may sleep: for its end, and where others have a lock.
const FEW: u64 = 10;

fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    sleeps.unwrap().trim().parse().unwrap()
}

/// What `wait` gives, which takes a while, and must sleep through it. On a machine that does much else the while may have
/// begun before.
pub fn sleeps_through<T>(wait: impl FnOnce() -> T) -> T {
    let (before, began) = (sleeps(), std::time::Instant::now());
    let waited = wait();
    let slept = sleeps() - before;
    assert!(slept <= FEW, "it slept {slept} times in {:?}", began.elapsed());
    waited
}
