//! Clients that die amid long calls: alone in its process, as it counts what the driver has and uses, which may be in
//! this very process.

mod common;

use binder::ParcelFileDescriptor;
use common::process::wait_until;
use common::*;
use nnhal::aidl::*;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Set for the client process that dies.
const VICTIM: &str = "NNHAL_TEST_VICTIM";
/// Executions that wait for a fence which nobody signals.
const FENCED: usize = 10_000;

static ALONE: Mutex<()> = Mutex::new(());

/// Starts the ignored test `name` as a client of its own.
fn client(harness: &Harness, name: &str) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", name])
        .env(VICTIM, "")
        .env(SERVICE, harness.endpoint().to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a client")
}

/// In the client process: the driver.
fn driver() -> Option<Harness> {
    std::env::var_os(VICTIM).map(|_| Harness::new())
}

fn descriptors(harness: &Harness) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", harness.process())).expect("descriptors").count()
}

/// Processor time that the driver uses within `time`, its backend's process included but not `victim`, which a driver in
/// this process has started as well; in the kernel's ticks of 10 ms.
fn ticks_within(time: Duration, harness: &Harness, victim: u32) -> u64 {
    let used = || -> u64 {
        let entries = std::fs::read_dir("/proc").expect("processes").flatten();
        let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        stats.filter_map(|stat| ticks_of(&stat, harness.process(), victim)).sum()
    };
    let before = used();
    std::thread::sleep(time);
    used().saturating_sub(before)
}

/// The ticks that a process has used by its `stat`, if it is the driver's, or one that this has started.
fn ticks_of(stat: &str, driver: u32, victim: u32) -> Option<u64> {
    let (number, rest) = stat.split_once(' ')?;
    // The name, which may hold anything, is in parentheses; the parent is the 4th field, the times are the 14th and 15th.
    let (_, fields) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let (number, parent): (u32, u32) = (number.parse().ok()?, fields.get(1)?.parse().ok()?);
    let counts = [number, parent].contains(&driver) && number != victim;
    counts.then(|| fields.get(11..13)?.iter().map(|ticks| ticks.parse::<u64>().ok()).sum())?
}

#[test]
#[ignore = "the client of work_for_a_dead_client_stops"]
fn computes_for_minutes() {
    let Some(harness) = driver() else { return };
    // Minutes at the least, though no single operation is long.
    let prepared = harness.prepare(&long_model(1 << 24, 6_000));
    let bytes = vec![0; 4 << 24];
    loop {
        let _ = prepared.executeSynchronously(&request(&bytes, bytes.len()).0, false, -1, -1);
    }
}

#[test]
fn work_for_a_dead_client_stops() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let harness = Harness::new();
    let moment = Duration::from_millis(500);
    let mut victim = client(&harness, "computes_for_minutes");
    wait_until("the driver works for its client", || ticks_within(moment, &harness, victim.id()) > 12);
    victim.kill().expect("killed");
    victim.wait().expect("dead");
    wait_until("the driver works no more", || ticks_within(moment, &harness, victim.id()) < 3);
    harness.prepare(&floor_model(&[4]));
}

#[test]
#[ignore = "the client of fences_that_nobody_signals_hold_up_nobody"]
fn waits_for_ever() {
    let Some(harness) = driver() else { return };
    let prepared = harness.prepare(&floor_model(&[4]));
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
    std::thread::sleep(3 * PATIENCE);
    drop(callbacks);
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
    let before = descriptors(&harness);
    let mut victim = client(&harness, "waits_for_ever");
    wait_until("fences are waited for", || descriptors(&harness) > before + 100);
    for _ in 0..100 {
        serve();
    }
    assert!(victim.try_wait().expect("alive").is_none(), "the client ended by itself");
    victim.kill().expect("killed");
    victim.wait().expect("dead");
    wait_until("everything is given back", || descriptors(&harness) <= before + 2);
    serve();
}
