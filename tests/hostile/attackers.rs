//! Clients that do what they can to take the driver from others, until they are killed. Each is a process: this program
//! again.

use crate::common::fmq::{extension, packet, Burst};
use crate::common::loops::loop_model;
use crate::common::{argument, ashmem, floats, long_model, memfd, request, sum_model, Connection};
use crate::floods;
use binder::{BinderResult, Interface, Strong};
use nnhal::aidl::*;
use nnhal::client::PrepareOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Set for an attacker's process: the way it attacks, and the daemon's socket.
const WAY: &str = "NNHAL_TEST_WAY";
const SOCKET: &str = "NNHAL_TEST_SOCKET";

/// What an attacker does, by name.
type Way = (&'static str, fn(&Path));

/// The way of [`WAYS`] whose compilations last.
pub const ENDLESS_COMPILATIONS: usize = 4;
/// The one that has models decoded.
pub const LARGE_MODELS: usize = 5;

pub const WAYS: [Way; 22] = [
    ("memory that vanishes", has_memory_vanish),
    ("endless loops", loops_for_ever),
    ("large work", works_without_end),
    ("compilations", compiles_without_end),
    ("endless compilations", crate::compiling::compiles_endlessly),
    ("models of very many operations", asks_about_large_models),
    ("bursts over queues", opens_bursts),
    ("connections", opens_connections),
    ("frames never finished", begins_frames),
    ("answers never read", crate::socket::reads_no_answers),
    ("parked calls", crate::socket::parks_calls),
    ("callbacks never answered", answers_no_callbacks),
    ("saves and loads", crate::storage::saves_and_loads),
    ("damaged cache files", crate::storage::damages_files),
    ("a full disk", crate::storage::fills_the_disk),
    ("small calls", floods::calls_without_end),
    ("its state asked for", floods::asks_for_its_state),
    ("packets that fail", floods::sends_bad_packets),
    ("fences at once", floods::signals_at_once),
    ("bytes far apart", floods::maps_much),
    ("files given up", floods::gives_up_files),
    ("short runs", floods::runs_shortly),
];

/// What an honest client does with as much work as the attackers': one execution after the other. Its number as a way is the
/// one after theirs.
pub const HONEST: Way = ("an honest neighbour", works_one_by_one);

/// Processes that compute themselves, so that no core is left free: the same client beside such a thread for each core but one, and
/// two that never call the driver. What the innocent client waits for beside these is for the kernel to share out, not for the driver.
/// Their numbers as ways come after the honest one's.
pub const COMPUTING: [Way; 3] = [
    ("an honest neighbour that computes itself", works_and_computes),
    ("nothing but computing", computes),
    ("nothing but computing on sixteen threads", computes_on_many_threads),
];

/// By their numbers.
pub fn all_ways() -> impl Iterator<Item = Way> {
    WAYS.into_iter().chain([HONEST]).chain(COMPUTING)
}

/// Starts an attacker, as another user where there is one. `NNHAL_NICE` says how little of the cores its own process is to have.
pub fn start(way: usize, user: Option<u32>, socket: &Path) -> Child {
    let nice = std::env::var("NNHAL_NICE").unwrap_or_else(|_| "0".into());
    let mut command = Command::new("nice");
    command
        .args(["-n", &nice])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "attackers::attacks_until_it_is_killed"])
        .env(WAY, way.to_string())
        .env(SOCKET, socket)
        // It panics at whatever is refused, and to find where takes longer than all else that it does.
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    command.spawn().expect("an attacker")
}

#[test]
#[ignore = "an attacker of everything_at_once_hurts_no_innocent_client"]
fn attacks_until_it_is_killed() {
    let (Ok(way), Some(socket)) = (std::env::var(WAY), std::env::var_os(SOCKET)) else { return };
    let way = way.parse::<usize>().expect("a number");
    let (_, attack) = all_ways().nth(way).expect("a way");
    loop {
        // What the driver refuses, it tries again.
        let _ = std::panic::catch_unwind(|| attack(Path::new(&socket)));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `attack` on some threads for ever.
pub fn on_threads(count: usize, attack: impl Fn() + Sync) {
    std::thread::scope(|threads| {
        for _ in 0..count {
            threads.spawn(|| loop {
                attack();
            });
        }
    });
}

fn has_memory_vanish(socket: &Path) {
    const ELEMENTS: usize = 100 << 10;
    const BYTES: usize = 4 * ELEMENTS;
    let connection = Connection::new(socket);
    let weights = memfd(&floats(&vec![1.0; ELEMENTS]));
    let model = connection.prepare(&sum_model(ELEMENTS as i32, ashmem(&weights, BYTES as i64)));
    let [input, output] = [(); 2].map(|()| memfd(&vec![0; BYTES]));
    let request = Request {
        inputs: vec![argument(0, 0, BYTES as i64)],
        outputs: vec![argument(1, 0, BYTES as i64)],
        pools: [&input, &output].map(|f| RequestMemoryPool::Pool(ashmem(f, BYTES as i64))).into(),
    };
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for i in 0usize.. {
                let file = [&input, &output][i % 2];
                file.set_len((i * 4099 % BYTES) as u64).expect("truncated");
                std::thread::sleep(Duration::from_micros(20));
                file.set_len(BYTES as u64).expect("extended");
                file.write_all_at(&[0xff; 4096], (i * 4096 % (BYTES - 4096)) as u64).expect("written");
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        loop {
            let _ = model.executeSynchronously(&request, false, -1, -1);
        }
    });
}

fn loops_for_ever(socket: &Path) {
    let connection = Connection::new(socket);
    let model = connection.prepare(&loop_model());
    let file = memfd(&[1; 4096]);
    let pool = || RequestMemoryPool::Pool(ashmem(&file, 4096));
    let request = Request {
        inputs: vec![argument(0, 0, 1), argument(0, 64, 4)],
        outputs: vec![argument(1, 128, 4)],
        pools: vec![pool(), pool()],
    };
    on_threads(8, || {
        let _ = model.executeSynchronously(&request, false, -1, 10_000_000_000);
    });
}

fn works_one_by_one(socket: &Path) {
    let connection = Connection::new(socket);
    let model = connection.prepare(&long_model(1 << 20, 50));
    let (request, _output) = request(&vec![0; 4 << 20], 4 << 20);
    loop {
        let _ = model.executeSynchronously(&request, false, -1, -1);
    }
}

fn works_and_computes(socket: &Path) {
    std::thread::scope(|threads| {
        for _ in 1..cores() {
            threads.spawn(compute);
        }
        works_one_by_one(socket);
    });
}

fn computes(_: &Path) {
    on_threads(cores(), compute);
}

/// Each sleeps at times, as those do that wait for an answer: so the kernel lets it go first as soon.
fn computes_on_many_threads(_: &Path) {
    on_threads(16, || {
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_millis(20));
    });
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

fn compute() {
    loop {
        std::hint::spin_loop();
    }
}

fn works_without_end(socket: &Path) {
    let connection = Connection::new(socket);
    let model = connection.prepare(&long_model(1 << 20, 50));
    let (request, _output) = request(&vec![0; 4 << 20], 4 << 20);
    on_threads(8, || {
        let _ = model.executeSynchronously(&request, false, -1, -1);
    });
}

fn compiles_without_end(socket: &Path) {
    let connection = Connection::new(socket);
    let model = long_model(1 << 10, 500);
    let driver = nnhal::client::Driver::connect(
        &nnhal::client::Address::Unix(socket.into()),
        &nnhal::client::ConnectOptions::default(),
    );
    let driver = driver.expect("a driver");
    let mut kept = Vec::new();
    loop {
        let (launch, listener) = driver.launch(&model, &PrepareOptions::default());
        match launch {
            Ok(()) => kept.push(listener),
            Err(_) => drop(connection.device.getVersionString()),
        }
    }
}

struct NeverAnswers;
impl Interface for NeverAnswers {}
impl IPreparedModelCallback for NeverAnswers {
    fn notify(&self, _: ErrorStatus, _: Option<&Strong<dyn IPreparedModel>>) -> BinderResult<()> {
        loop {
            std::thread::park();
        }
    }
}

fn answers_no_callbacks(socket: &Path) {
    let model = crate::common::floor_model(&[1, 3]);
    let options = (ExecutionPreference::FAST_SINGLE_ANSWER, Priority::MEDIUM);
    let mut kept = Vec::new();
    loop {
        let connection = Connection::new(socket);
        let callback = BnPreparedModelCallback::new_binder(NeverAnswers);
        let launch = || {
            connection.device.prepareModel(&model, options.0, options.1, -1, &[], &[], &[0; 32], &callback)
        };
        while launch().is_ok() {}
        kept.push((connection, callback.clone()));
        if kept.len() > 20 {
            kept.clear();
        }
    }
}

/// Has models decoded that take long to be checked, and are never compiled: as large as so many calls at once may be.
fn asks_about_large_models(socket: &Path) {
    const CALLS: usize = 16;
    let model = long_model(1, 15_000);
    std::thread::scope(|threads| {
        for _ in 0..CALLS {
            threads.spawn(|| {
                // One whose message is more than this client may have sent at once loses its connection.
                loop {
                    let connection = Connection::new(socket);
                    while connection.device.getSupportedOperations(&model).is_ok() {}
                }
            });
        }
    });
}

fn opens_bursts(socket: &Path) {
    let connection = Connection::new(socket);
    let model = connection.prepare(&crate::common::floor_model(&[1, 3]));
    let mut bursts = Vec::new();
    loop {
        let mut burst = Burst::open(&extension(&model));
        burst.run(&packet());
        bursts.push(burst);
    }
}

fn opens_connections(socket: &Path) {
    let mut open = Vec::new();
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) if open.len() < 500 => open.push(stream),
            _ => open.clear(),
        }
    }
}

fn begins_frames(socket: &Path) {
    let mut open = Vec::new();
    loop {
        let mut stream = UnixStream::connect(socket).expect("connected");
        let _ = stream.write_all(&crate::socket::begun_frame());
        open.push(stream);
        if open.len() > 200 {
            open.clear();
        }
    }
}
