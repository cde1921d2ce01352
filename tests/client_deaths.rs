//! Clients that die: alone in its process, as it counts what the driver has, which may be in this very process.

mod common;

use binder::{ParcelFileDescriptor, Strong};
use common::campaign::amount;
use common::fences::ClientFence;
use common::fmq::*;
use common::*;
use nnhal::aidl::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Threads of bursts, descriptors and mappings of files of a process.
type Resources = (usize, usize, usize);

fn resources(process: u32) -> Resources {
    let directory = |name: &str| {
        let path = format!("/proc/{process}/{name}");
        std::fs::read_dir(&path).unwrap_or_else(|why| panic!("{path}: {why}"))
    };
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.expect("a task").path().join("comm")).unwrap_or_default()
    };
    let threads = directory("task").map(name).filter(|name| name.trim() == "nnhal-fmq").count();
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("mappings");
    // Those of files, by their inode: the others are the allocator's and the stacks of threads, which come and go.
    let maps = maps.lines().filter(|line| line.split_whitespace().nth(4) != Some("0")).count();
    (threads, directory("fd").count(), maps)
}

/// How many clients die.
fn deaths() -> usize {
    amount("NNHAL_CLIENT_DEATHS", 60, 10_000) as usize
}

/// Set for the client process that dies: what it does until then.
const VICTIM: &str = "NNHAL_TEST_VICTIM";
/// What it prints once it does that.
const BUSY: &str = "busy";

/// What a client does, by name.
type Way = (&'static str, fn(&Harness));

const WAYS: [Way; 6] = [
    ("queues", over_queues),
    ("execution", executes),
    ("burst", in_a_burst),
    ("fences", waits_for_fences),
    ("buffers", has_buffers),
    ("compilations", compiles),
];

fn busy() {
    println!("{BUSY}");
}

fn over_queues(harness: &Harness) {
    let mut burst = Burst::open(&extension(&harness.prepare(&floor_model(&[1, 3]))));
    assert_eq!(burst.run(&packet()).status, 0);
    busy();
    loop {
        assert_eq!(burst.run(&packet()).status, 0);
    }
}

/// A model of some work, and a request for it.
fn work(harness: &Harness) -> (Strong<dyn IPreparedModel>, Request) {
    const ELEMENTS: usize = 1 << 16;
    let model = harness.prepare(&long_model(ELEMENTS as i32, 50));
    (model, request(&vec![0; 4 * ELEMENTS], 4 * ELEMENTS).0)
}

fn executes(harness: &Harness) {
    let (model, request) = work(harness);
    busy();
    loop {
        model.executeSynchronously(&request, false, -1, -1).expect("executed");
    }
}

fn in_a_burst(harness: &Harness) {
    let (model, request) = work(harness);
    let burst = model.configureExecutionBurst().expect("a burst");
    burst.executeSynchronously(&request, &[0, 1], false, -1, -1).expect("executed");
    busy();
    loop {
        burst.executeSynchronously(&request, &[0, 1], false, -1, -1).expect("executed");
    }
}

fn waits_for_fences(harness: &Harness) {
    let model = harness.prepare(&floor_model(&[1]));
    let (request, _output) = request(&floats(&[1.5]), 4);
    let never = ClientFence::new();
    let launch = |_| model.executeFenced(&request, &never.list(), false, -1, -1, -1).expect("launched");
    let waiting: Vec<_> = (0..50).map(launch).collect();
    busy();
    std::thread::sleep(PATIENCE);
    drop(waiting);
}

fn has_buffers(harness: &Harness) {
    let model = harness.prepare(&floor_model(&[1024]));
    let roles = [BufferRole { modelIndex: 0, ioIndex: 0, probability: 1.0 }];
    let parcel = || IPreparedModelParcel { preparedModel: Some(model.clone()) };
    let allocate = |_| harness.device().allocate(&BufferDesc::default(), &[parcel()], &roles, &[]);
    // Several clients' worth of these are more than one client may have.
    let buffers: Vec<_> = (0..900).map(|i| allocate(i).expect("allocated")).collect();
    busy();
    std::thread::sleep(PATIENCE);
    drop(buffers);
}

fn compiles(harness: &Harness) {
    const NO_FILES: &[ParcelFileDescriptor] = &[];
    let (model, files) = (caching::layer_of(300), caching::Cache::new(1));
    let (models, data) = ([&files.model], [&files.data]);
    busy();
    loop {
        let (callback, _verdicts) = callback();
        let preference = ExecutionPreference::FAST_SINGLE_ANSWER;
        let priority = Priority::MEDIUM;
        // Over its quota it is refused now and then.
        let _ = harness.device().prepareModel(
            &model,
            preference,
            priority,
            -1,
            NO_FILES,
            NO_FILES,
            &[],
            &callback,
        );
        caching::save_in(harness.device(), &model, &models, &data, &files.token);
    }
}

/// Not a test by itself: a client that does what it is told until it is killed.
#[test]
#[ignore = "the client of clients_that_die_leave_nothing"]
fn victim() {
    let Ok(way) = std::env::var(VICTIM) else { return };
    let (_, act) = WAYS.iter().find(|(name, _)| *name == way).expect("a way");
    act(&Harness::new());
}

fn start(way: &str, harness: &Harness) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "--nocapture", "victim"])
        .env(VICTIM, way)
        .env(SERVICE, harness.endpoint().to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a client")
}

/// Waits until the client does what it was told.
fn await_busy(client: &mut Child, way: &str) {
    let output = BufReader::new(client.stdout.take().expect("piped"));
    let mut lines = output.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with(BUSY)), "the client of {way:?} ended too early");
}

#[test]
fn clients_that_die_leave_nothing() {
    let harness = Harness::new();
    let driver = harness.process();
    #[cfg(feature = "tool")]
    let teller = status::connect(&harness);
    // Whatever is made once only is made before the count.
    Burst::open(&extension(&harness.prepare(&floor_model(&[1, 3])))).run(&packet());
    let settled = |fits: &dyn Fn(Resources) -> bool| {
        let began = Instant::now();
        while !fits(resources(driver)) && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        resources(driver)
    };
    let before = settled(&|(threads, ..)| threads == 0);
    #[cfg(feature = "tool")]
    let held = status::holding(&teller);
    assert_eq!(before.0, 0, "a burst outlives its context");
    for i in 0..deaths() {
        let (way, _) = WAYS[i % WAYS.len()];
        let mut client = start(way, &harness);
        // One in four dies anywhere from before it connects on, the others while they do what they do.
        if i / WAYS.len() % 4 != 3 {
            await_busy(&mut client, way);
        }
        std::thread::sleep(Duration::from_micros(i as u64 * 7919 % 60_000));
        client.kill().expect("killed");
        client.wait().expect("dead");
    }
    // Far fewer than the clients that died had.
    let slack = 8;
    let fits = |now: Resources| now.0 == 0 && now.1 <= before.1 + 2 && now.2 <= before.2 + slack;
    let after = settled(&fits);
    println!("threads, descriptors and mappings before {before:?}, after {after:?}");
    assert!(fits(after), "threads, descriptors and mappings before {before:?}, after {after:?}");
    #[cfg(feature = "tool")]
    status::assert_back(&teller, &held, "things of clients that are dead");
    let (request, output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    let model = harness.prepare(&floor_model(&[1, 3]));
    model.executeSynchronously(&request, false, -1, -1).expect("served still");
    assert_eq!(bytes_of(&output), floats(&[1.0, -1.0, 3.0]));
}
