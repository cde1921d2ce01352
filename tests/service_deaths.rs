//! Clients that die amid their calls: alone in its process, as it counts what that has and uses.

mod common;

use binder::ParcelFileDescriptor;
use common::*;
use nix::sys::resource::{getrusage, UsageWho};
use nnhal::aidl::*;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Set for the client process that dies: the driver's socket.
const VICTIM: &str = "NNHAL_TEST_VICTIM";
/// Executions that wait for a fence which nobody signals.
const FENCED: usize = 10_000;

static ALONE: Mutex<()> = Mutex::new(());

/// Starts the ignored test `name` as a client of its own.
fn client(harness: &Harness, name: &str) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", name])
        .env(VICTIM, harness.daemon.socket())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a client")
}

fn connection() -> Option<Connection> {
    std::env::var_os(VICTIM).map(|socket| Connection::new(socket.as_ref()))
}

/// Waits until `reached`, for as long as a slow machine may need.
fn wait_until(what: &str, reached: impl Fn() -> bool) {
    let began = Instant::now();
    while !reached() {
        assert!(began.elapsed() < 3 * PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

/// Processor time that this process, and so the driver, uses within `time`.
fn used_within(time: Duration) -> Duration {
    let used = || {
        let usage = getrusage(UsageWho::RUSAGE_SELF).expect("usage").user_time();
        Duration::from_micros((usage.tv_sec() * 1_000_000 + usage.tv_usec()) as u64)
    };
    let before = used();
    std::thread::sleep(time);
    used() - before
}

#[test]
#[ignore = "the client of work_for_a_dead_client_stops"]
fn computes_for_minutes() {
    let Some(connection) = connection() else { return };
    // Minutes at the least, though no single operation is long.
    let prepared = connection.prepare(&long_model(1 << 22, 60_000));
    let bytes = vec![0; 4 << 22];
    loop {
        let _ = prepared.executeSynchronously(&request(&bytes, bytes.len()).0, false, -1, -1);
    }
}

#[test]
fn work_for_a_dead_client_stops() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let harness = Harness::new();
    let tick = Duration::from_millis(200);
    let mut victim = client(&harness, "computes_for_minutes");
    wait_until("the driver works for its client", || used_within(tick) > tick / 4);
    victim.kill().expect("killed");
    victim.wait().expect("dead");
    wait_until("the driver works no more", || used_within(tick) < tick / 20);
    harness.prepare(&floor_model(&[4]));
}

#[test]
#[ignore = "the client of fences_that_nobody_signals_hold_up_nobody"]
fn waits_for_ever() {
    let Some(connection) = connection() else { return };
    let prepared = connection.prepare(&floor_model(&[4]));
    let (fence, _signal) = nix::unistd::pipe().expect("a pipe");
    let fence = [ParcelFileDescriptor::new(fence)];
    let request = request(&floats(&[1.5; 4]), 16).0;
    let mut callbacks = Vec::new();
    for _ in 0..FENCED {
        match prepared.executeFenced(&request, &fence, false, -1, -1, -1) {
            Ok(result) => callbacks.push(result.callback),
            Err(error) => {
                assert_eq!(status::<()>(&Err(error)), ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT)
            }
        }
    }
    // Says that all are launched, which the other side sees by what is left of them.
    println!("{} wait", callbacks.len());
    std::thread::sleep(3 * PATIENCE);
}

#[test]
fn fences_that_nobody_signals_hold_up_nobody() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let harness = Harness::new();
    let prepared = harness.prepare(&floor_model(&[4]));
    let serve = || {
        let (request, output) = request(&floats(&[1.5; 4]), 16);
        prepared.executeSynchronously(&request, false, -1, -1).expect("executed");
        assert_eq!(bytes_of(&output), floats(&[1.0; 4]));
        let fenced = prepared.executeFenced(&request, &[], false, -1, -1, -1);
        assert!([ErrorStatus::NONE, ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT].contains(&status(&fenced)));
    };
    serve();
    let before = descriptors();
    let mut victim = client(&harness, "waits_for_ever");
    wait_until("fences are waited for", || descriptors() > before + 100);
    for _ in 0..100 {
        serve();
    }
    assert!(victim.try_wait().expect("alive").is_none(), "the client ended by itself");
    victim.kill().expect("killed");
    victim.wait().expect("dead");
    wait_until("everything is given back", || descriptors() <= before + 2);
    serve();
}
