//! Every call on a file fails, in turn.

use super::keeper::{self, Files};
use super::trace::{be_traced, is_of_bytes, run, Fault, Traced};
use super::*;
use nix::sys::wait::WaitStatus;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a child says at its end if all is well.
pub const WELL: &str = "all is well";
/// How long a child may take, in seconds.
const PATIENCE: u32 = 300;

const ERRORS: [i32; 5] = [libc::EIO, libc::ENOSPC, libc::EMFILE, libc::EINTR, libc::ENOMEM];

/// What may become of a call of this name.
fn faults(name: &str) -> Vec<Fault> {
    let mut faults: Vec<_> = ERRORS.into_iter().map(Fault::Fails).collect();
    // Not EINTR: who is interrupted tries again.
    faults.extend([libc::ENOSPC, libc::EIO, libc::EMFILE].map(Fault::FailFrom));
    if is_of_bytes(name) {
        faults.push(Fault::Half);
    }
    faults
}

fn ends_well(traced: &Traced) -> bool {
    matches!(traced.ended, WaitStatus::Exited(_, 0)) && traced.said.contains(WELL)
}

/// In a child, which a tracer may see: does `work` in a thread that it sees, and judges the rest by `then` in this one.
pub fn do_traced<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    nix::unistd::alarm::set(PATIENCE);
    std::thread::scope(|scope| {
        let traced = scope.spawn(|| {
            assert!(be_traced(), "a tracer is missing");
            work()
        });
        traced.join().expect("no panic")
    })
}

/// Runs the child `name` without faults, then once for each call and `most` of the faults that it may have.
pub fn try_each_call(name: &str, most: usize) {
    let dry = directory();
    let traced = run(&mut child(name, dry.path()), dry.path(), None);
    assert!(ends_well(&traced), "without any fault: {:?}: {}", traced.ended, traced.said);
    let mut cases = Vec::new();
    for (turn, call) in traced.calls.iter().enumerate() {
        let faults = faults(call);
        // Each call meets others first.
        let some = (0..most.min(faults.len())).map(|i| faults[(turn + i * 3) % faults.len()]);
        let mut some: Vec<_> = if most >= faults.len() { faults.clone() } else { some.collect() };
        some.dedup();
        cases.extend(some.into_iter().map(|fault| (turn, fault)));
    }
    let (count, failed) = (cases.len(), AtomicUsize::new(0));
    let worst = Mutex::new(Vec::new());
    each(cases, |(turn, fault)| {
        let root = directory();
        let traced = run(&mut child(name, root.path()), root.path(), Some((turn, fault)));
        failed.fetch_add(usize::from(traced.has_failed), Ordering::Relaxed);
        if !ends_well(&traced) {
            let call = traced.calls.get(turn).copied().unwrap_or("nothing");
            let line = format!("{call} in turn {turn}, {fault:?}: {:?}: {}", traced.ended, traced.said);
            worst.lock().expect("no panic while held").push(line);
        }
    });
    let (worst, failed) = (worst.into_inner().expect("no panic"), failed.into_inner());
    println!(
        "{name}: {failed} of {count} cases over {} calls: {:?}",
        traced.calls.len(),
        traced.count_by_name()
    );
    assert!(worst.is_empty(), "{} of {count}:\n{}", worst.len(), worst.join("\n"));
    // The order of threads may move a call or two behind the last.
    assert!(failed * 10 >= count * 9, "only {failed} of {count} came to be");
}

#[test]
#[ignore = "the child of caches_survive_every_call_that_fails"]
fn keeper_child() {
    let Some(root) = root_of_child() else { return };
    keeper::make_files(&root);
    let files = Files::open(&root);
    let versions = do_traced(|| keeper::work(&root, &files)).expect("nothing wrong");
    drop(files);
    keeper::heal(&root, &versions).expect("in order");
    println!("{WELL}");
}

#[test]
fn caches_survive_every_call_that_fails() {
    try_each_call("calls::keeper_child", if is_long() { usize::MAX } else { 1 });
}
