//! Cores of threads: a worker is of no use on the core on which its caller works along.
//!
//! A kernel likes to put a thread on the core of the one that woke it, which it expects to sleep soon. A caller does not: the two
//! would take turns there for many milliseconds, while another core rests. It knows nothing of jobs.

use nix::sched::{sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// The core that this thread runs on, as far as that is known.
pub fn core() -> Option<usize> {
    // An interpreter has no cores.
    if cfg!(miri) {
        return None;
    }
    sched_getcpu().ok()
}

/// Moves this thread to another core, if it runs on `theirs`: to any that the process may use. There it stays clear of that one
/// until it leaves another.
pub fn leave(theirs: Option<usize>) {
    let Some(theirs) = theirs.filter(|_| theirs == core()) else { return };
    // Those of its first thread, which is never moved: this one may have left a core before.
    let Ok(mut cores) = sched_getaffinity(Pid::this()) else { return };
    // Where there is no other core, or the kernel does not let it move, it works where it is.
    let _ = cores.unset(theirs).and_then(|()| sched_setaffinity(Pid::from_raw(0), &cores));
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::CpuSet;

    #[test]
    fn a_thread_leaves_the_core_of_another_and_no_other() {
        let cores = match sched_getaffinity(Pid::this()) {
            Ok(all) => (0..CpuSet::count()).filter(|&core| all.is_set(core).unwrap()).collect(),
            Err(_) => vec![],
        };
        let [one, other, ..] = cores[..] else {
            eprintln!("skipped: the process has {} cores", cores.len());
            return;
        };
        std::thread::spawn(move || {
            for (mine, theirs) in [(one, one), (other, other), (one, other)] {
                let mut only = CpuSet::new();
                only.set(mine).unwrap();
                sched_setaffinity(Pid::from_raw(0), &only).unwrap();
                leave(Some(theirs));
                let now = sched_getaffinity(Pid::from_raw(0)).unwrap();
                assert_eq!(now.is_set(mine).unwrap(), mine != theirs, "{mine} and {theirs}");
                assert_eq!(core() == Some(mine), mine != theirs, "{mine} and {theirs}");
            }
            leave(None);
            assert_eq!(core(), Some(one), "nobody knows whose core it is");
        })
        .join()
        .unwrap();
    }
}
