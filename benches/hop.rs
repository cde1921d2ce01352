//! The hop: what it costs to have a driver in another process do next to nothing, by every way to execute, beside what
//! the bare transport takes for a call that carries one descriptor.
//!
//!     cargo bench --bench hop
//!
//! The model is one ADD of single floats, with inputs and output in one memory, so that a request carries one
//! descriptor as the echo does. Criterion compares each way with its last run. The table at the end has the medians of
//! single round trips, and whether the goals are met; for it the ways take turns, a few calls each, so that whatever else
//! the machine does meets all of them alike.
//!
//! What a call costs depends above all on whether client and service run on one core or on two, and left alone that is the
//! scheduler's choice, another one each time. So both are bound to cores: to two for Criterion, and then to two and to one
//! for a table each.

mod common;

use binder::entry::{WireProfile, WireVersion};
use binder::rpc::{FileDescriptorTransportMode as FdMode, RpcServer};
use binder::{BinderResult, Client, Endpoint, Interface, Strong, Uri};
use common::{setting, us, wait_for, Daemon, Figures, Process};
use criterion::Criterion;
use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::unistd::Pid;
use nnhal::aidl::{self, BnBuffer, ErrorStatus, ExecutionPreference, IBuffer, IPreparedModel, Memory};
use nnhal::client::builder::Builder;
use nnhal::client::fmq_burst::{FmqBurst, POLLING};
use nnhal::client::shared::Shared;
use nnhal::client::{ConnectOptions, Mode, Runner};
use nnhal::client::{Driver, PrepareOptions};
use nnhal::ops::OperationType;
use nnhal::tensor::{OperandType, TensorInfo};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The flag by which this program serves the echo.
const SERVE_ECHO: &str = "--serve-echo";
/// Connections for calls, and as many for callbacks.
const CONNECTIONS: u32 = 4;
/// A burst over memory that only its open file tells from other memory, as it does regions of ashmem.
const BY_OPEN_FILE: &str = "burst, by open file";
/// Calls that a way makes before the next has its turn, for the table.
const CALLS_IN_A_ROW: usize = 20;

fn main() {
    let mut arguments = std::env::args().skip(1);
    if let (Some(SERVE_ECHO), Some(socket)) = (arguments.next().as_deref(), arguments.next()) {
        return echo::serve(Path::new(&socket));
    }
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(5))
        .configure_from_args();
    let request = AddRequest::new();
    let ((mut server, _directory), echo) = echo::start();
    let daemon = Daemon::start();
    let options = ConnectOptions { connections: CONNECTIONS, ..Default::default() };
    let driver = Driver::connect(&daemon.address(), &options).expect("a driver");
    let mut ways = ways(&driver, &echo, &request);
    let services = [server.child().id(), daemon.id()];
    let place = |core: CpuSet| services.map(|service| bind(service, &core));
    let (first, second) = cores();
    bind(std::process::id(), &first);
    place(second);
    for (name, call) in &mut ways {
        criterion.bench_function(&format!("hop/{name}"), |bencher| bencher.iter(&mut *call));
    }
    criterion.final_summary();
    for (what, core) in [("on two cores", second), ("on one core", first)] {
        place(core);
        println!("\nclient and service {what}:\n");
        Table::measure(&mut ways).print();
    }
}

/// Two of the cores that this program may use.
fn cores() -> (CpuSet, CpuSet) {
    let all = sched_getaffinity(Pid::from_raw(0)).expect("the cores");
    let mut cores = (0..CpuSet::count()).filter(|&core| all.is_set(core).unwrap_or(false)).map(|core| {
        let mut set = CpuSet::new();
        set.set(core).expect("a core");
        set
    });
    (cores.next().expect("a core"), cores.next().expect("a second core"))
}

/// Has all threads of a process, and those that they start, run on `core`.
fn bind(process: u32, core: &CpuSet) {
    for task in std::fs::read_dir(format!("/proc/{process}/task")).expect("its threads") {
        let id = task.ok().and_then(|task| task.file_name().to_str()?.parse().ok()).expect("a thread");
        let _ = sched_setaffinity(Pid::from_raw(id), core); // it may have ended
    }
}

/// A way to make a call, and its name.
type Called<'a> = (&'static str, Box<dyn FnMut() + 'a>);

/// The echo and every way to execute, each known to work: what does not is not worth measuring.
fn ways<'a>(driver: &'a Driver, echo: &'a echo::Connection, request: &'a AddRequest) -> Vec<Called<'a>> {
    let mut ways: Vec<Called> = vec![("echo", Box::new(|| echo.call(request)))];
    let fast = prepare(driver, ExecutionPreference::FAST_SINGLE_ANSWER);
    let frugal = prepare(driver, ExecutionPreference::LOW_POWER);
    for (name, mode) in
        [("sync", Mode::Sync), ("fenced", Mode::Fenced), ("burst", Mode::Burst), ("reusable", Mode::Reusable)]
    {
        let (model, mut way) =
            (fast.clone(), Runner::open(mode, driver, &fast, &request.request).expect("the way is open"));
        let mut run = move || {
            let status = way.run(driver, &model, &request.request).expect("executed");
            assert_eq!(status, ErrorStatus::NONE);
        };
        request.check(name, &mut run);
        ways.push((name, Box::new(run)));
    }
    let by_open_file = request.by_open_file();
    let mut burst = Runner::open(Mode::Burst, driver, &fast, &by_open_file).expect("the way is open");
    let model = fast.clone();
    let mut run = move || {
        let status = burst.run(driver, &model, &by_open_file).expect("executed");
        assert_eq!(status, ErrorStatus::NONE);
    };
    request.check(BY_OPEN_FILE, &mut run);
    ways.push((BY_OPEN_FILE, Box::new(run)));
    // A driver polls unless the model is to save power; a client as it likes.
    for (name, model, polling) in [
        ("fmq, both poll", &fast, POLLING),
        ("fmq, driver polls", &fast, Duration::ZERO),
        ("fmq, client polls", &frugal, POLLING),
        ("fmq, both sleep", &frugal, Duration::ZERO),
    ] {
        let burst = FmqBurst::open(driver, model, polling).expect("a burst");
        let mut burst = burst.expect("the driver has bursts over queues");
        let packet = burst.packet(&request.request, false).expect("a packet");
        let mut run = move || {
            let result = burst.execute(driver, &packet).expect("executed");
            assert_eq!(ErrorStatus(result.status), ErrorStatus::NONE);
        };
        request.check(name, &mut run);
        ways.push((name, Box::new(run)));
    }
    ways
}

fn prepare(driver: &Driver, preference: ExecutionPreference) -> Strong<dyn IPreparedModel> {
    let mut builder = Builder::default();
    let float = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1]);
    let (a, b, sum) = (builder.input(float.clone()), builder.input(float.clone()), builder.output(float));
    let no_activation = builder.int(0);
    builder.operation(OperationType::ADD, &[a, b, no_activation], &[sum]);
    let model = builder.finish(vec![a, b], vec![sum]).expect("a model");
    driver.prepare(&model, &PrepareOptions { preference, ..Default::default() }).expect("a prepared model")
}

/// A request to add two floats, all in one memory.
struct AddRequest {
    request: aidl::Request,
    memory: Memory,
    shared: Shared,
}

impl AddRequest {
    const SUM: u64 = 8;

    fn new() -> Self {
        let shared = Shared::new(12).expect("memory");
        let request = add_request(shared.memory().expect("a descriptor"));
        shared.write(0, &1.5f32.to_le_bytes()).expect("written");
        shared.write(4, &2.25f32.to_le_bytes()).expect("written");
        let memory = shared.memory().expect("a descriptor");
        AddRequest { request, memory, shared }
    }

    /// The same over the same memory, handed over as a hardware buffer: no numbers of its file tell it apart.
    fn by_open_file(&self) -> aidl::Request {
        let Ok(Memory::Ashmem(aidl::Ashmem { fd: Some(fd), size })) = self.shared.memory() else {
            unreachable!("that is how it is handed over")
        };
        let description = aidl::HardwareBufferDescription {
            width: size as i32,
            height: 1,
            layers: 1,
            format: aidl::PixelFormat::BLOB,
            ..Default::default()
        };
        let handle = aidl::NativeHandle { fds: vec![fd], ints: Vec::new() };
        let memory = Memory::HardwareBuffer(aidl::HardwareBuffer { description, handle });
        add_request(memory)
    }

    /// What does not work is not worth measuring.
    fn check(&self, name: &str, run: &mut dyn FnMut()) {
        self.shared.write(Self::SUM, &[0; 4]).expect("written");
        run();
        let mut sum = [0; 4];
        self.shared.read(Self::SUM, &mut sum).expect("read");
        assert_eq!(f32::from_le_bytes(sum), 3.75, "{name}");
    }
}

/// Two floats in `memory`, and behind them their sum.
fn add_request(memory: Memory) -> aidl::Request {
    let argument = |offset| aidl::RequestArgument {
        location: aidl::DataLocation { offset, length: 4, ..Default::default() },
        ..Default::default()
    };
    aidl::Request {
        inputs: vec![argument(0), argument(4)],
        outputs: vec![argument(AddRequest::SUM as i64)],
        pools: vec![aidl::RequestMemoryPool::Pool(memory)],
    }
}

/// A service that does nothing: what the transport itself takes.
mod echo {
    use super::*;

    /// Answers `copyTo`, which carries one descriptor, and is the only call ever made.
    struct Echo;

    impl Interface for Echo {}

    impl IBuffer for Echo {
        fn copyTo(&self, _: &Memory) -> BinderResult<()> {
            Ok(())
        }

        fn copyFrom(&self, _: &Memory, _: &[i32]) -> BinderResult<()> {
            Ok(())
        }
    }

    /// Serves as the driver is served, until killed.
    pub fn serve(socket: &Path) {
        let server = RpcServer::setup_unix_server(socket).expect("a server");
        server.set_android13plus(WireVersion::MAX.get());
        server.set_supported_fd_modes(&[FdMode::None, FdMode::Unix]);
        server.set_max_threads(16);
        server.set_root(BnBuffer::new_binder(Echo).as_binder()).expect("a root");
        server.run_background().join().expect("served");
    }

    pub struct Connection {
        _client: Client,
        service: Strong<dyn IBuffer>,
    }

    impl Connection {
        pub fn call(&self, request: &AddRequest) {
            self.service.copyTo(&request.memory).expect("an answer");
        }
    }

    /// A server in a process of its own, and a connection such as the driver's client has.
    pub fn start() -> ((Process, tempfile::TempDir), Connection) {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("echo.sock");
        let this = std::env::current_exe().expect("this program");
        let server = Process::start(Command::new(this).arg(SERVE_ECHO).arg(&socket));
        wait_for(&socket);
        let uri = Uri::new(Endpoint::unix(&socket)).with_wire(WireProfile::Android13Plus(WireVersion::MAX));
        let client = Client::open_with(uri, |options, _| {
            options.fd_mode = Some(FdMode::Unix);
            options.outgoing_connections = Some(CONNECTIONS);
            options.incoming_connections = Some(CONNECTIONS);
        })
        .expect("a connection");
        let root = client.session().expect("an RPC client").get_root().expect("a root");
        let service = root.into_interface().expect("an echo");
        ((server, directory), Connection { _client: client, service })
    }
}

/// The ways that were measured, by name.
struct Table(Vec<(&'static str, Figures)>);

/// What each way may take at most: so many times what another takes.
const GOALS: [(&str, f64, &str); 6] = [
    ("sync", 2.0, "echo"),
    ("burst", 1.5, "echo"),
    (BY_OPEN_FILE, 1.05, "burst"),
    ("reusable", 1.2, "echo"),
    ("fmq, both poll", 1.0 / 3.0, "sync"),
    ("fmq, both sleep", 2.0 / 3.0, "sync"),
];

impl Table {
    /// Times single calls, the ways taking turns.
    fn measure(ways: &mut [Called]) -> Self {
        let mut times = vec![Vec::new(); ways.len()];
        for _ in 0..setting("NNHAL_HOP_ROUNDS", 400) {
            for ((_, call), times) in ways.iter_mut().zip(&mut times) {
                call(); // whoever has slept since the last round wakes
                for _ in 0..CALLS_IN_A_ROW {
                    let began = Instant::now();
                    call();
                    times.push(began.elapsed());
                }
            }
        }
        let figures = |((name, _), times): (&Called, &mut Vec<_>)| Some((*name, Figures::of(times)?));
        Table(ways.iter().zip(&mut times).filter_map(figures).collect())
    }

    fn median(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, figures)| us(figures.median))
    }

    fn print(&self) {
        println!("| way | median, us | p99, us | of echo | goal |\n|---|---|---|---|---|");
        for (name, figures) in &self.0 {
            let (median, p99) = (us(figures.median), us(figures.p99));
            let of_echo = self.median("echo").map_or(String::new(), |echo| format!("{:.2}", median / echo));
            println!("| {name} | {median:.1} | {p99:.1} | {of_echo} | {} |", self.goal(name));
        }
    }

    /// The goal of a way, and what it has reached.
    fn goal(&self, name: &str) -> String {
        let Some((_, most, of)) = GOALS.iter().find(|(goal, ..)| *goal == name) else { return String::new() };
        let Some((median, base)) = self.median(name).zip(self.median(of)) else { return String::new() };
        let reached = median / base;
        let verdict = if reached <= *most { "met" } else { "missed" };
        format!("at most {most:.2} of {of}: {reached:.2}, {verdict}")
    }
}
