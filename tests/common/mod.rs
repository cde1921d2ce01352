//! A driver and a client of it; models and requests to try it with.
//!
//! The driver is in this process, behind an RPC socket, unless [`SERVICE`] names another one. Its backend is the one that
//! [`BACKEND`] names.

#![allow(dead_code)] // no test uses all of it

pub mod caching;
pub mod campaign;
pub mod conv;
#[cfg(feature = "tool")]
pub mod corpus;
pub mod dma_buf;
pub mod domains;
pub mod fences;
pub mod fmq;
pub mod images;
pub mod loops;
pub mod native_window;
pub mod process;
pub mod recurrent;
#[cfg(feature = "tool")]
pub mod status;

use binder::{BinderResult, ExceptionCode, Interface, ParcelFileDescriptor, Strong};
use nnhal::aidl::*;
use nnhal::backend::cpu::CpuBackend;
use nnhal::backend::{Asynchronous, Backend};
pub use nnhal::client::Verdict;
use nnhal::client::{Address, ConnectOptions, Driver, PrepareOptions};
use nnhal::daemon::embedded::{self, EmbeddedDaemon, Options};
use nnhal::daemon::Endpoint;
use nnhal::isolation::Isolated;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// The variable that names a driver in another process for tests to use in place of one of their own: unix:PATH or
/// binder:INSTANCE. Tests that need a driver of a certain kind have their own all the same.
pub const SERVICE: &str = "NNHAL_SERVICE";

/// The variable that names the backend of the drivers in this process: `cpu`, which is the default, `asynchronous`, the
/// same with every execution pending, or `process`, the same in a process of its own.
pub const BACKEND: &str = "NNHAL_TEST_BACKEND";

/// A backend with two threads.
fn backend() -> Arc<dyn Backend> {
    let cpu = CpuBackend::new(2).expect("threads");
    match std::env::var(BACKEND).as_deref() {
        Err(_) | Ok("cpu") => Arc::new(cpu),
        Ok("asynchronous") => Arc::new(Asynchronous::new(Arc::new(cpu))),
        Ok("process") => {
            let command = || {
                let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_nnhald"));
                command.args(["--threads", "2", "--serve-backend"]);
                command
            };
            Arc::new(Isolated::start(command).expect("a process"))
        }
        Ok(other) => panic!("{BACKEND}: {other:?} is not a backend: expected cpu, asynchronous or process"),
    }
}

fn named_service() -> Option<Endpoint> {
    let name = std::env::var(SERVICE).ok()?;
    Some(name.parse().unwrap_or_else(|why| panic!("{SERVICE}: {why}")))
}

/// A connection to a driver.
pub struct Connection {
    driver: Driver,
    pub device: Strong<dyn IDevice>,
}

impl Connection {
    pub fn new(socket: &Path) -> Self {
        Self::to(&Endpoint::Unix(socket.into()))
    }

    pub fn to(endpoint: &Endpoint) -> Self {
        let address = match endpoint {
            Endpoint::Unix(socket) => Address::Unix(socket.clone()),
            Endpoint::Binder(instance) => Address::Binder(instance.clone()),
        };
        let options = ConnectOptions { connections: 2, timeout: Some(PATIENCE) };
        let driver = Driver::connect(&address, &options).expect("a driver");
        Connection { device: driver.device().clone(), driver }
    }

    /// Hangs up. Over the kernel's binder a process does so by ending.
    pub fn close(&self) {
        self.driver.close();
    }

    /// Compiles; gives the call's own answer and what the callback is told.
    pub fn launch(&self, model: &Model) -> (BinderResult<()>, Verdict) {
        let (launch, listener) = self.driver.launch(model, &PrepareOptions::default());
        (launch, listener.wait(&self.driver).expect("the callback is told"))
    }

    pub fn prepare(&self, model: &Model) -> Strong<dyn IPreparedModel> {
        self.prepare_as(model, Priority::MEDIUM)
    }

    pub fn prepare_as(&self, model: &Model, priority: Priority) -> Strong<dyn IPreparedModel> {
        let options = PrepareOptions { priority, ..Default::default() };
        self.driver.prepare(model, &options).expect("a prepared model")
    }
}

/// A driver with one connection to it.
pub struct Harness {
    // In this order: the connection ends before the driver does.
    pub connection: Connection,
    endpoint: Endpoint,
    daemon: Option<EmbeddedDaemon>,
}

impl Harness {
    /// The driver that [`SERVICE`] names, or else one of its own.
    pub fn new() -> Self {
        match named_service() {
            Some(endpoint) => Harness { connection: Connection::to(&endpoint), endpoint, daemon: None },
            None => Self::with_data(None),
        }
    }

    /// A driver of its own that keeps what must survive it in `data`.
    pub fn with_data(data: Option<&Path>) -> Self {
        let options = Options { data: data.map(Path::to_path_buf), ..Options::default() };
        let daemon = embedded::start_with(backend(), &options).expect("a driver");
        let endpoint = Endpoint::Unix(daemon.socket().into());
        Harness { connection: Connection::to(&endpoint), endpoint, daemon: Some(daemon) }
    }

    /// Where the driver is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Another connection to the driver.
    pub fn connect(&self) -> Connection {
        Connection::to(&self.endpoint)
    }

    /// The driver's socket, for tests of sockets.
    pub fn socket(&self) -> &Path {
        match &self.endpoint {
            Endpoint::Unix(socket) => socket,
            Endpoint::Binder(_) => panic!("{} has no socket", self.endpoint),
        }
    }

    /// The driver's process. Beside a named one, NNHAL_SERVICE_PID says which that is.
    pub fn process(&self) -> u32 {
        match self.daemon {
            Some(_) => std::process::id(),
            None => {
                std::env::var("NNHAL_SERVICE_PID").ok().and_then(|id| id.parse().ok()).expect("a process id")
            }
        }
    }

    pub fn device(&self) -> &Strong<dyn IDevice> {
        &self.connection.device
    }

    pub fn prepare(&self, model: &Model) -> Strong<dyn IPreparedModel> {
        self.connection.prepare(model)
    }
}

struct Callback(Mutex<Sender<Verdict>>);
impl Interface for Callback {}
impl IPreparedModelCallback for Callback {
    fn notify(&self, status: ErrorStatus, model: Option<&Strong<dyn IPreparedModel>>) -> BinderResult<()> {
        let _ = self.0.lock().expect("no panic while held").send((status, model.cloned()));
        Ok(())
    }
}

pub fn callback() -> (Strong<dyn IPreparedModelCallback>, Receiver<Verdict>) {
    let (sender, receiver) = channel();
    (BnPreparedModelCallback::new_binder(Callback(Mutex::new(sender))), receiver)
}

/// The status of a refused call; NONE for one that was not.
#[track_caller]
pub fn status<T>(answer: &BinderResult<T>) -> ErrorStatus {
    match answer {
        Ok(_) => ErrorStatus::NONE,
        Err(error) => {
            assert_eq!(error.exception_code(), ExceptionCode::ServiceSpecific, "{error:?}");
            ErrorStatus(error.service_specific_error())
        }
    }
}

#[track_caller]
pub fn assert_refused<T>(answer: BinderResult<T>, expected: ErrorStatus, message: &str) {
    assert_eq!(status(&answer), expected);
    let error = answer.err().expect("refused");
    let text = error.message().unwrap_or_default();
    assert!(text.contains(message), "{text:?} does not say {message:?}");
}

/// An anonymous file.
pub fn memfd(bytes: &[u8]) -> File {
    let fd = nix::sys::memfd::memfd_create(c"pool", nix::sys::memfd::MFdFlags::empty()).expect("memfd");
    let mut file = File::from(fd);
    file.write_all(bytes).expect("write");
    file
}

pub fn bytes_of(file: &File) -> Vec<u8> {
    let mut file = file.try_clone().expect("dup");
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).expect("seek");
    file.read_to_end(&mut bytes).expect("read");
    bytes
}

pub fn descriptor(file: &File) -> Option<ParcelFileDescriptor> {
    Some(ParcelFileDescriptor::new(file.try_clone().expect("dup")))
}

pub fn ashmem(file: &File, size: i64) -> Memory {
    Memory::Ashmem(Ashmem { fd: descriptor(file), size })
}

pub fn mappable(file: &File, prot: i32, offset: i64, length: i64) -> Memory {
    Memory::MappableFile(MappableFile { fd: descriptor(file), prot, offset, length })
}

pub fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub fn operand(ty: OperandType, dims: &[i32], lifetime: OperandLifeTime) -> Operand {
    Operand { r#type: ty, dimensions: dims.to_vec(), lifetime, ..Default::default() }
}

/// Work for some tenths of a second: FLOOR after FLOOR.
pub fn long_model(count: i32, steps: i32) -> Model {
    let mut model = floor_model(&[count]);
    let output = model.main.operands.pop().expect("the output");
    for _ in 1..steps {
        let lifetime = OperandLifeTime::TEMPORARY_VARIABLE;
        model.main.operands.push(Operand { lifetime, ..output.clone() });
    }
    model.main.operands.push(output);
    let step = |i| Operation { r#type: OperationType::FLOOR, inputs: vec![i], outputs: vec![i + 1] };
    model.main.operations = (0..steps).map(step).collect();
    model.main.outputIndexes = vec![steps];
    model
}

/// A [`long_model`] of 2^18 floats on which this machine works for `least` and longer, and how long it worked: how many
/// steps that takes differs by twenty between machines and profiles.
pub fn model_that_lasts(harness: &Harness, least: Duration) -> (Strong<dyn IPreparedModel>, Duration) {
    let (request, _output) = request(&vec![0; 4 << 18], 4 << 18);
    let mut steps = 100;
    loop {
        let model = harness.prepare(&long_model(1 << 18, steps));
        let run = |_| {
            let start = Instant::now();
            model.executeSynchronously(&request, false, i64::MAX, -1).expect("there is time");
            start.elapsed()
        };
        // The shortest of some: others may have used this machine meanwhile.
        let whole = (0..3).map(run).min().expect("three");
        if whole >= least {
            return (model, whole);
        }
        steps *= 2;
    }
}

/// FLOOR of one float tensor.
pub fn floor_model(dims: &[i32]) -> Model {
    let float = |lifetime| operand(OperandType::TENSOR_FLOAT32, dims, lifetime);
    Model {
        main: Subgraph {
            operands: vec![float(OperandLifeTime::SUBGRAPH_INPUT), float(OperandLifeTime::SUBGRAPH_OUTPUT)],
            operations: vec![Operation { r#type: OperationType::FLOOR, inputs: vec![0], outputs: vec![1] }],
            inputIndexes: vec![0],
            outputIndexes: vec![1],
        },
        ..Default::default()
    }
}

/// x + weights, the weights in a pool of the model's.
pub fn sum_model(elements: i32, weights: Memory) -> Model {
    let float = |lifetime| operand(OperandType::TENSOR_FLOAT32, &[elements], lifetime);
    let location = |length| DataLocation { length, ..Default::default() };
    let constant =
        Operand { location: location(4 * i64::from(elements)), ..float(OperandLifeTime::CONSTANT_POOL) };
    let none = operand(OperandType::INT32, &[], OperandLifeTime::CONSTANT_COPY);
    Model {
        main: Subgraph {
            operands: vec![
                float(OperandLifeTime::SUBGRAPH_INPUT),
                constant,
                Operand { location: location(4), ..none },
                float(OperandLifeTime::SUBGRAPH_OUTPUT),
            ],
            operations: vec![Operation {
                r#type: OperationType::ADD,
                inputs: vec![0, 1, 2],
                outputs: vec![3],
            }],
            inputIndexes: vec![0],
            outputIndexes: vec![3],
        },
        operandValues: vec![0; 4],
        pools: vec![weights],
        ..Default::default()
    }
}

pub fn argument(pool: i32, offset: i64, length: i64) -> RequestArgument {
    RequestArgument {
        location: DataLocation { poolIndex: pool, offset, length, padding: 0 },
        ..Default::default()
    }
}

/// A request for a model of one input and one output, and the file that the output goes to.
pub fn request(input: &[u8], output_len: usize) -> (Request, File) {
    let (inputs, outputs) = (memfd(input), memfd(&vec![0xee; output_len]));
    let request = Request {
        inputs: vec![argument(0, 0, input.len() as i64)],
        outputs: vec![argument(1, 0, output_len as i64)],
        pools: vec![
            RequestMemoryPool::Pool(ashmem(&inputs, input.len() as i64)),
            RequestMemoryPool::Pool(ashmem(&outputs, output_len as i64)),
        ],
    };
    (request, outputs)
}
