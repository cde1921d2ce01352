//! Clients of bursts that die: alone in its process, as it counts what that has.

mod common;

use common::fmq::*;
use common::*;
use std::time::{Duration, Instant};

/// Threads of bursts, descriptors and mappings of this process, which is client and driver in one.
fn resources() -> (usize, usize, usize) {
    let lines = |path: &str| std::fs::read_to_string(path).expect(path).lines().count();
    let tasks = std::fs::read_dir("/proc/self/task").expect("tasks");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.expect("a task").path().join("comm")).unwrap_or_default()
    };
    let threads = tasks.map(name).filter(|name| name.trim() == "nnhal-fmq").count();
    let files = std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    (threads, files, lines("/proc/self/maps"))
}

/// How many clients die; raise it for a long run.
fn deaths() -> usize {
    std::env::var("NNHAL_FMQ_DEATHS").ok().and_then(|n| n.parse().ok()).unwrap_or(60)
}

/// Set for the client process that dies: the driver's socket.
const VICTIM: &str = "NNHAL_TEST_FMQ_VICTIM";

/// Not a test by itself: a client that executes until it is killed.
#[test]
#[ignore = "the client of clients_that_die_leave_nothing"]
fn victim() {
    let Some(socket) = std::env::var_os(VICTIM) else { return };
    let connection = Connection::new(socket.as_ref());
    let mut burst = Burst::open(&extension(&connection.prepare(&floor_model(&[1, 3]))));
    loop {
        assert_eq!(burst.run(&packet()).status, 0);
    }
}

#[test]
fn clients_that_die_leave_nothing() {
    let harness = Harness::new();
    // Whatever is made once only is made before the count.
    Burst::open(&extension(&harness.prepare(&floor_model(&[1, 3])))).run(&packet());
    let settled = |wanted: &dyn Fn((usize, usize, usize)) -> bool| {
        let began = Instant::now();
        while !wanted(resources()) && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        resources()
    };
    let before = settled(&|(threads, ..)| threads == 0);
    assert_eq!(before.0, 0, "a burst outlives its context");
    let mut served = 0;
    for i in 0..deaths() {
        let mut client = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "victim"])
            .env(VICTIM, harness.daemon.socket())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("a client");
        // From before it connects to amid its executions.
        std::thread::sleep(Duration::from_micros(i as u64 * 7919 % 60_000));
        served += usize::from(resources().0 > 0);
        client.kill().expect("killed");
        client.wait().expect("dead");
    }
    assert!(served > deaths() / 10, "only {served} clients had a burst when they died");
    // Some mappings are the allocator's, for threads that are gone; none may be one client's.
    let slack = 40;
    let fits = |now: (usize, usize, usize)| now.0 == 0 && now.1 <= before.1 + 2 && now.2 <= before.2 + slack;
    let after = settled(&fits);
    assert!(fits(after), "threads, descriptors and mappings before {before:?}, after {after:?}");
}
