//! Executions that end before, while and after somebody waits for them, or never.

use super::*;
use crate::backend::{pend, submission_threads, Binding};
use crate::scheduler::awake::{sleeps_through, WHILE};
use crate::scheduler::{boottime_ns, Holds};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::resource::{setrlimit, Resource};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

const PATIENCE: Duration = Duration::from_secs(20);

fn outcome() -> Outcome {
    Outcome { outputs: Vec::new(), on_device: Duration::from_millis(3) }
}

fn failed(result: Result<Outcome, BackendError>) -> bool {
    matches!(result, Err(BackendError::Failed(_)))
}

/// A fence, and what signals it.
fn fence() -> (OwnedFd, UnixStream) {
    let (fence, signal) = UnixStream::pair().unwrap();
    (fence.into(), signal)
}

#[test]
fn a_completer_ends_it_before_or_while_somebody_waits() {
    let (completer, pending) = Pending::promised();
    completer.complete(Ok(outcome()));
    assert_eq!(pending.wait(&Control::default()).unwrap(), outcome());
    let (completer, pending) = Pending::promised();
    let waiting = std::thread::spawn(move || pending.wait(&Control::default()));
    completer.complete(Err(BackendError::DeviceLost("as told".into())));
    assert!(matches!(waiting.join().unwrap(), Err(BackendError::DeviceLost(_))));
}

#[test]
fn a_completer_that_is_dropped_fails_it() {
    let (completer, pending) = Pending::promised();
    drop(completer);
    assert!(failed(pending.wait(&Control::default())));
}

#[test]
fn a_fence_ends_it_signalled_or_broken() {
    let (descriptor, mut signal) = fence();
    signal.write_all(&[1]).unwrap();
    assert_eq!(Pending::fenced(descriptor, || Ok(outcome())).wait(&Control::default()).unwrap(), outcome());
    let (descriptor, signal) = fence();
    drop(signal);
    let lost = || Err(BackendError::DeviceLost("its end is closed".into()));
    let result = Pending::fenced(descriptor, lost).wait(&Control::default());
    assert!(matches!(result, Err(BackendError::DeviceLost(_))));
}

#[test]
fn a_callback_is_called_once_whenever_the_end_comes() {
    let watcher = Watcher::new().unwrap();
    for early in [true, false] {
        let (told, outcomes) = channel();
        let tell = move |result: Result<Outcome, BackendError>| told.send(result.is_ok()).unwrap();
        let (completer, pending) = Pending::promised();
        if early {
            completer.complete(Ok(outcome()));
            pending.then(&watcher, Box::new(tell));
        } else {
            pending.then(&watcher, Box::new(tell));
            completer.complete(Ok(outcome()));
        }
        assert!(outcomes.recv_timeout(PATIENCE).unwrap());
        assert!(outcomes.recv_timeout(Duration::from_millis(10)).is_err(), "told twice");
    }
    let (told, outcomes) = channel();
    let (descriptor, mut signal) = fence();
    let tell = move |result: Result<Outcome, BackendError>| told.send(result.is_ok()).unwrap();
    Pending::fenced(descriptor, || Ok(outcome())).then(&watcher, Box::new(tell));
    assert!(outcomes.try_recv().is_err());
    signal.write_all(&[1]).unwrap();
    assert!(outcomes.recv_timeout(PATIENCE).unwrap());
}

#[test]
fn a_deadline_or_a_cancellation_asks_the_device_to_stop() {
    for cancelled in [true, false] {
        let asked = Arc::new(AtomicUsize::new(0));
        let (completer, pending) = Pending::promised();
        let (completer, seen) = (Mutex::new(Some(completer)), asked.clone());
        let pending = pending.on_cancel(move || {
            seen.fetch_add(1, Ordering::Relaxed);
            if let Some(completer) = completer.lock().unwrap().take() {
                completer.complete(Err(BackendError::Cancelled));
            }
        });
        let control = Control { deadline_ns: (!cancelled).then_some(1), ..Control::default() };
        if cancelled {
            control.cancelled.set();
        }
        let result = pending.wait(&control);
        let expected = if cancelled { BackendError::Cancelled } else { BackendError::DeadlinePassed };
        assert_eq!(result.unwrap_err().to_string(), expected.to_string());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn who_waits_for_a_device_sleeps_until_there_is_a_reason_to_wake() {
    let asked = Arc::new(AtomicUsize::new(0));
    for (fenced, orphaned) in [(false, false), (false, true), (true, false), (true, true)] {
        let (descriptor, signal) = fence();
        let ends = Mutex::new(Some(signal));
        let (completer, promised) = Pending::promised();
        let completer = Mutex::new(Some(completer));
        let fails = || Err(BackendError::Cancelled);
        let pending = if fenced { Pending::fenced(descriptor, fails) } else { promised };
        let seen = asked.clone();
        let pending = pending.on_cancel(move || {
            seen.fetch_add(1, Ordering::Relaxed);
            drop(ends.lock().unwrap().take());
            if let Some(completer) = completer.lock().unwrap().take() {
                completer.complete(Err(BackendError::Cancelled));
            }
        });
        let control = Control::default();
        let stop = if orphaned { &control.orphaned } else { &control.cancelled }.clone();
        let waits = std::thread::spawn(move || sleeps_through(|| pending.wait(&control)));
        std::thread::sleep(WHILE + WHILE / 10);
        stop.set();
        assert!(matches!(waits.join().unwrap(), Err(BackendError::Cancelled)));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    let (descriptor, _signal) = fence();
    let (_completer, promised) = Pending::promised();
    for pending in [Pending::fenced(descriptor, || Ok(outcome())), promised] {
        let in_a_while = Some(boottime_ns() + WHILE.as_nanos() as u64);
        let control = Control { deadline_ns: in_a_while, ..Control::default() };
        let waited = sleeps_through(|| pending.wait(&control));
        assert!(matches!(waited, Err(BackendError::DeadlinePassed)));
    }
}

#[test]
fn a_device_that_does_not_stop_is_left_to_itself() {
    let (completer, pending) = Pending::promised();
    let control = Control { deadline_ns: Some(1), ..Control::default() };
    let began = Instant::now();
    assert!(matches!(pending.wait(&control), Err(BackendError::DeadlinePassed)));
    assert!(began.elapsed() >= GRACE);
    completer.complete(Ok(outcome())); // nobody is there to hear it, and nothing breaks
}

/// Has `pending` given up, and looks whether what it holds lasts until the device is done, which `end` brings about.
fn lasts_until(pending: Pending, watcher: &Arc<Watcher>, end: impl FnOnce()) {
    let what = Arc::new(());
    let holds = Holds::new(watcher, what.clone());
    let control = holds.terms(&Control { deadline_ns: Some(1), ..Control::default() });
    let given_up = pending.wait(&control);
    assert!(matches!(given_up, Err(BackendError::DeadlinePassed)), "{given_up:?}");
    drop((holds, control));
    // Longer than between two looks.
    std::thread::sleep(3 * LOOK);
    assert_eq!(Arc::strong_count(&what), 2, "the device is at it still");
    end();
    let began = Instant::now();
    while Arc::strong_count(&what) > 1 {
        assert!(began.elapsed() < PATIENCE, "it lasts for ever");
        std::thread::yield_now();
    }
}

/// A fence that no epoll watches, because it watches another, and that another, as many times as the kernel allows; and what
/// signals it as long as the rest is there.
fn unwatched() -> (OwnedFd, UnixStream, Vec<OwnedFd>) {
    let (mut fence, signal) = fence();
    let mut inner = Vec::new();
    loop {
        let outer = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        if outer.add(&fence, EpollEvent::new(EpollFlags::EPOLLIN, 0)).is_err() {
            return (fence, signal, inner);
        }
        inner.push(std::mem::replace(&mut fence, outer.0));
        assert!(inner.len() < 100, "the kernel watches whatever it is given");
    }
}

#[test]
fn what_an_execution_holds_that_is_given_up_lasts_until_its_device_is_done() {
    let watcher = Arc::new(Watcher::new().unwrap());
    let (completer, promised) = Pending::promised();
    lasts_until(promised, &watcher, || completer.complete(Ok(outcome())));
    let (descriptor, mut signal) = fence();
    lasts_until(Pending::fenced(descriptor, || Ok(outcome())), &watcher, || signal.write_all(&[1]).unwrap());
    let (descriptor, mut signal, _inner) = unwatched();
    lasts_until(Pending::fenced(descriptor, || Ok(outcome())), &watcher, || signal.write_all(&[1]).unwrap());
    // Of one that was not given up nothing is left.
    let (completer, pending) = Pending::promised();
    let what = Arc::new(());
    let holds = Holds::new(&watcher, what.clone());
    let control = holds.terms(&Control::default());
    completer.complete(Ok(outcome()));
    assert_eq!(pending.wait(&control).unwrap(), outcome());
    drop(holds);
    assert_eq!(Arc::strong_count(&what), 1, "though its terms are there still");
}

#[test]
fn nobody_hears_the_end_of_a_fence_that_cannot_be_watched_before_it_comes() {
    let (descriptor, mut signal, _inner) = unwatched();
    let (watcher, (told, outcomes)) = (Watcher::new().unwrap(), channel());
    let tell = move |result: Result<Outcome, BackendError>| told.send(result.unwrap()).unwrap();
    Pending::fenced(descriptor, || Ok(outcome())).then(&watcher, Box::new(tell));
    assert!(outcomes.recv_timeout(3 * LOOK).is_err(), "the device is at it still");
    signal.write_all(&[1]).unwrap();
    assert_eq!(outcomes.recv_timeout(PATIENCE).unwrap(), outcome());
}

#[test]
fn a_fence_is_waited_for_where_descriptors_are_short() {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "backend::submission::tests::child_without_descriptors", "--include-ignored"]);
    let ended = child.env("NNHAL_SUBMISSION_TEST", "1").output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}

#[test]
#[ignore = "a part of another test, which runs it in a process of its own"]
fn child_without_descriptors() {
    if std::env::var_os("NNHAL_SUBMISSION_TEST").is_none() {
        return;
    }
    let watcher = Arc::new(Watcher::new().unwrap());
    let ((first, mut ends_first), (second, mut ends_second)) = (fence(), fence());
    setrlimit(Resource::RLIMIT_NOFILE, 3, 3).unwrap();
    assert!(UnixStream::pair().is_err(), "there are descriptors still");
    ends_first.write_all(&[1]).unwrap();
    assert_eq!(Pending::fenced(first, || Ok(outcome())).wait(&Control::default()).unwrap(), outcome());
    let asked = Arc::<AtomicUsize>::default();
    let seen = asked.clone();
    let pending = Pending::fenced(second, || Ok(outcome()));
    let pending = pending.on_cancel(move || _ = seen.fetch_add(1, Ordering::Relaxed));
    lasts_until(pending, &watcher, || ends_second.write_all(&[1]).unwrap());
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

/// Runs at once.
struct Runs;

impl Binding for Runs {
    fn submit(self: Arc<Self>, _: Vec<OwnedFd>, control: &Control) -> Result<Submission, BackendError> {
        self.run(control).map(Submission::Done)
    }

    fn run(self: Arc<Self>, _: &Control) -> Result<Outcome, BackendError> {
        Ok(outcome())
    }
}

#[test]
fn a_place_comes_back_before_anybody_hears_of_the_end() {
    let (held, watcher) = (Arc::new(()), Watcher::new().unwrap());
    let submitted = pend(Arc::new(Runs), &Control::default(), &submission_threads(), held.clone());
    let Ok(Submission::Pending(pending)) = submitted else { panic!("it has a thread of its own") };
    let (tell, heard) = channel();
    let told = move |outcome| tell.send((outcome, Arc::strong_count(&held))).unwrap();
    pending.then(&watcher, Box::new(told));
    let (ended, holders) = heard.recv_timeout(PATIENCE).unwrap();
    assert_eq!((ended.unwrap(), holders), (outcome(), 1));
}
