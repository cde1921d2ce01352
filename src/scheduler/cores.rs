//! The cores that threads run on.
//!
//! A kernel likes to put a thread on the core of the one that woke it, which it expects to sleep soon, or on the one that it ran on
//! last, and leaves it there for a while whatever else comes up: two threads that compute then take turns on one core while another
//! rests. It knows nothing of jobs.

use nix::sched::{sched_getaffinity, sched_getcpu, sched_setaffinity, CpuSet};
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

/// Moves this thread to a core that the process may use and that none of `taken` is, and tells to which; it may go elsewhere from
/// there. `None` if none is left, or the kernel does not do it.
pub fn go_beside(taken: impl Iterator<Item = usize>) -> Option<usize> {
    let this = Pid::from_raw(0);
    let own = sched_getaffinity(this).ok()?;
    let mut free = own;
    for core in taken.filter(|&core| core < CpuSet::count()) {
        free.unset(core).ok()?;
    }
    // The kernel refuses a set without a core.
    sched_setaffinity(this, &free).ok()?;
    let here = core();
    // What a thread asks for stays with it. Who asked for nothing asks for every core: it is to use those, too, that the process may
    // use later.
    let asks_for_nothing = every()
        .is_some_and(|every| sched_setaffinity(this, &every).is_ok() && sched_getaffinity(this) == Ok(own));
    match asks_for_nothing {
        true => here,
        false => sched_setaffinity(this, &own).ok().and(here),
    }
}

fn every() -> Option<CpuSet> {
    let mut cores = CpuSet::new();
    (0..CpuSet::count()).try_for_each(|core| cores.set(core)).ok().map(|()| cores)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_thread_goes_where_others_are_not_and_may_go_on_from_there() {
        let (own, here) = (sched_getaffinity(Pid::from_raw(0)), core());
        let (Ok(own), Some(here)) = (own, here) else {
            eprintln!("skipped: the kernel does not say which cores there are");
            return;
        };
        let others = (0..CpuSet::count()).filter(|&core| core != here && own.is_set(core).unwrap()).count();
        assert_eq!(go_beside([here, usize::MAX].into_iter()).is_some_and(|new| new != here), others > 0);
        assert_eq!(go_beside(0..CpuSet::count()), None, "they are on all of them");
        assert_eq!(sched_getaffinity(Pid::from_raw(0)), Ok(own));
    }
}
