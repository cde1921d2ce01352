//! What the daemon holds after many models came and went, and after clients were killed in the middle of everything, is
//! what it held before: descriptors, mappings, threads, memory.
//!
//! The long form: `NNHAL_CYCLES=10000 NNHAL_KILLED_CLIENTS=1000 cargo test --release --test no_leak -- --nocapture`

mod common;

use common::*;
use nnhal::aidl::*;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

/// A process that does not outlive its test.
struct Process(Child);

impl Process {
    fn path(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.0.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may be dead already
        let _ = self.0.wait();
    }
}

fn daemon(socket: &Path) -> Process {
    let child = Command::new(env!("CARGO_BIN_EXE_nnhald"))
        .args(["--service", &format!("unix:{}", socket.display()), "--threads", "1", "--data", "none"])
        // It has its allocator give back what is freed; the environment must not do it in its place.
        .env_remove("MALLOC_ARENA_MAX")
        .env_remove("MALLOC_MMAP_THRESHOLD_")
        .env_remove("MALLOC_TRIM_THRESHOLD_")
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let daemon = Process(child);
    let start = Instant::now();
    while UnixStream::connect(socket).is_err() {
        assert!(start.elapsed() < PATIENCE, "the daemon does not serve");
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon
}

/// What a process holds.
#[derive(Clone, Copy, Debug)]
struct Holdings {
    descriptors: usize,
    mappings: usize,
    threads: usize,
    resident_kib: usize,
}

impl Holdings {
    fn of(process: &Process) -> Self {
        let count = |directory| std::fs::read_dir(process.path(directory)).expect("it lives").count();
        let maps = std::fs::read_to_string(process.path("maps")).expect("it lives");
        let status = std::fs::read_to_string(process.path("status")).expect("it lives");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
        let resident = resident.trim().trim_end_matches(" kB").parse().expect("a number");
        Holdings {
            descriptors: count("fd"),
            mappings: maps.lines().count(),
            threads: count("task"),
            resident_kib: resident,
        }
    }

    /// Whether this is no more than `before`, but for pieces of the heap and threads that come and go.
    fn is_back_at(&self, before: &Holdings) -> bool {
        self.descriptors <= before.descriptors
            && self.mappings <= before.mappings + 40
            && self.threads <= before.threads + 2
            && self.resident_kib <= before.resident_kib + (8 << 10)
    }
}

/// A tensor of a MiB, so that a model or a buffer that is not freed weighs something.
const ELEMENTS: i32 = 256 << 10;
const BYTES: i64 = 4 * ELEMENTS as i64;

/// x + a constant, which lies in a pool.
fn model() -> Model {
    sum_model(ELEMENTS, ashmem(&memfd(&vec![0; BYTES as usize]), BYTES))
}

/// Compiles, runs in every way, and lets go of everything.
fn cycle(connection: &Connection, model: &Model) {
    let prepared = connection.prepare(model);
    let (request, _output) = request(&vec![0; BYTES as usize], BYTES as usize);
    prepared.executeSynchronously(&request, false, -1, -1).expect("executed");
    let burst = prepared.configureExecutionBurst().expect("a burst");
    burst.executeSynchronously(&request, &[0, 1], false, -1, -1).expect("executed");
    let buffer = connection
        .device
        .allocate(
            &BufferDesc::default(),
            &[IPreparedModelParcel { preparedModel: Some(prepared.clone()) }],
            &[BufferRole { modelIndex: 0, ioIndex: 0, probability: 1.0 }],
            &[],
        )
        .expect("allocated");
    let source = memfd(&vec![1; BYTES as usize]);
    buffer.buffer.expect("a buffer").copyFrom(&ashmem(&source, BYTES), &[]).expect("copied");
    let execution = prepared.createReusableExecution(&request, &ExecutionConfig::default());
    execution.expect("made").executeSynchronously(-1).expect("executed");
    // One that ends unless it is let go of sooner, and one that waits for ever.
    let fenced = prepared.executeFenced(&request, &[], false, -1, -1, -1).expect("launched");
    drop(fenced);
    if let Ok((_never, fence)) = UnixStream::pair() {
        let fence = binder::ParcelFileDescriptor::new(std::os::fd::OwnedFd::from(fence));
        let waiting = prepared.executeFenced(&request, &[fence], false, -1, -1, -1);
        drop(waiting.expect("launched"));
    }
}

const CLIENT: &str = "NNHAL_LEAK_TEST_SOCKET";

#[test]
#[ignore = "a part of the other test, which kills it"]
fn client_process() {
    let Some(socket) = std::env::var_os(CLIENT) else { return };
    let (connection, model) = (Connection::new(Path::new(&socket)), model());
    loop {
        cycle(&connection, &model);
    }
}

/// Starts a client, and kills it after `delay`.
fn kill_a_client(socket: &Path, delay: Duration) {
    let client = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "client_process", "--include-ignored"])
        .env(CLIENT, socket)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let client = Process(client.expect("started"));
    std::thread::sleep(delay);
    drop(client);
}

/// Does all that is to leave nothing behind, `cycles` times and with `clients` that are killed.
fn use_it(socket: &Path, cycles: usize, clients: usize) {
    let model = model();
    let connection = Connection::new(socket);
    for _ in 0..cycles {
        cycle(&connection, &model);
    }
    drop(connection);
    for i in 0..clients {
        // From before it is connected to after its first models.
        kill_a_client(socket, Duration::from_millis((i * 37 % 100) as u64));
    }
}

#[test]
fn nothing_is_left_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("nn.sock");
    let daemon = daemon(&socket);
    use_it(&socket, 20, 6);
    // Its threads are there now.
    std::thread::sleep(Duration::from_secs(1));
    let before = Holdings::of(&daemon);
    use_it(&socket, number("NNHAL_CYCLES", 200), number("NNHAL_KILLED_CLIENTS", 20));
    let start = Instant::now();
    let mut after = Holdings::of(&daemon);
    while !after.is_back_at(&before) && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
        after = Holdings::of(&daemon);
    }
    println!("before {before:?}\nafter  {after:?}");
    assert!(after.is_back_at(&before), "before {before:?}, after {after:?}");
    cycle(&Connection::new(&socket), &model());
}
