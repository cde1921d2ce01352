//! A driver over the sample NPU, a client of it, and models for it.

#![allow(dead_code)] // no test uses all of it

use binder::entry::{WireProfile, WireVersion};
use binder::rpc::FileDescriptorTransportMode as FdMode;
use binder::{BinderResult, Client, Endpoint, Interface, ParcelFileDescriptor, Strong, Uri};
use nnhal::aidl::*;
use nnhal::daemon::embedded::{self, EmbeddedDaemon, Options};
use nnhal::testing::Sample;
use sample_npu::{SampleNpu, EXTENSION, LOOKUP, TABLE};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(120);
/// Rows, inputs and units of the layer.
pub const ROWS: i32 = 3;
pub const INPUTS: i32 = 20;
pub const UNITS: i32 = 18;
const PREFIX: u16 = 7;

pub fn npu() -> Arc<SampleNpu> {
    Arc::new(SampleNpu::new(env!("CARGO_BIN_EXE_sample_npu_device").into()))
}

pub fn kill(process: Option<u32>) {
    let process = process.expect("a device");
    let status = std::process::Command::new("kill").args(["-9", &process.to_string()]).status();
    assert!(status.expect("kill").success());
}

/// A driver, and a connection to it.
pub struct Driver {
    pub npu: Arc<SampleNpu>,
    client: Client,
    pub device: Strong<dyn IDevice>,
    _daemon: EmbeddedDaemon,
}

pub type Prepared = Strong<dyn IPreparedModel>;

impl Driver {
    pub fn new(data: Option<&Path>) -> Self {
        Driver::of(npu(), data)
    }

    pub fn of(npu: Arc<SampleNpu>, data: Option<&Path>) -> Self {
        let options = Options { data: data.map(Path::to_path_buf), ..Options::default() };
        let daemon = embedded::start_with(npu.clone(), &options).expect("a driver");
        let (client, device) = connect(daemon.socket());
        Driver { npu, client, device, _daemon: daemon }
    }

    pub fn try_prepare(&self, model: &Model, files: &[File]) -> (ErrorStatus, Option<Prepared>) {
        let (callback, verdicts) = callback();
        let (models, data) = cache_files(files);
        let preference = ExecutionPreference::FAST_SINGLE_ANSWER;
        let launched = self.device.prepareModel(
            model,
            preference,
            Priority::MEDIUM,
            -1,
            &models,
            &data,
            &[9; 32],
            &callback,
        );
        let verdict = verdicts.recv_timeout(PATIENCE).expect("a verdict");
        assert!(launched.is_ok() || verdict.0 != ErrorStatus::NONE, "what is thrown is told as well");
        verdict
    }

    pub fn prepare(&self, model: &Model) -> Prepared {
        let (status, prepared) = self.try_prepare(model, &[]);
        prepared.unwrap_or_else(|| panic!("{status:?}"))
    }

    pub fn load(&self, files: &[File]) -> (ErrorStatus, Option<Prepared>) {
        let (callback, verdicts) = callback();
        let (models, data) = cache_files(files);
        let _ = self.device.prepareModelFromCache(-1, &models, &data, &[9; 32], &callback);
        verdicts.recv_timeout(PATIENCE).expect("a verdict")
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.client.session().expect("an RPC client").close_session();
    }
}

fn connect(socket: &Path) -> (Client, Strong<dyn IDevice>) {
    let uri = Uri::new(Endpoint::unix(socket)).with_wire(WireProfile::Android13Plus(WireVersion::MAX));
    let client = Client::open_with(uri, |options, _| {
        options.fd_mode = Some(FdMode::Unix);
        options.outgoing_connections = Some(4);
        options.incoming_connections = Some(2);
        options.timeout = Some(PATIENCE);
    });
    let client = client.expect("a connection");
    let root = client.session().expect("an RPC client").get_root().expect("a root");
    let device = root.into_interface::<dyn IDevice>().expect("an IDevice");
    (client, device)
}

type Verdict = (ErrorStatus, Option<Prepared>);
struct Callback(Mutex<Sender<Verdict>>);
impl Interface for Callback {}
impl IPreparedModelCallback for Callback {
    fn notify(&self, status: ErrorStatus, model: Option<&Prepared>) -> BinderResult<()> {
        let _ = self.0.lock().expect("no panic while held").send((status, model.cloned()));
        Ok(())
    }
}

fn callback() -> (Strong<dyn IPreparedModelCallback>, std::sync::mpsc::Receiver<Verdict>) {
    let (sender, verdicts) = channel();
    (BnPreparedModelCallback::new_binder(Callback(Mutex::new(sender))), verdicts)
}

/// The first file for the model, the others for data.
fn cache_files(files: &[File]) -> (Vec<ParcelFileDescriptor>, Vec<ParcelFileDescriptor>) {
    let descriptor = |file: &File| ParcelFileDescriptor::new(file.try_clone().expect("dup"));
    let mut all: Vec<_> = files.iter().map(descriptor).collect();
    let data = if all.is_empty() { Vec::new() } else { all.split_off(1) };
    (all, data)
}

/// NONE for a call that was not refused.
pub fn status<T>(answer: &BinderResult<T>) -> ErrorStatus {
    match answer {
        Ok(_) => ErrorStatus::NONE,
        Err(error) => ErrorStatus(error.service_specific_error()),
    }
}

pub fn memfd(bytes: &[u8]) -> File {
    let fd = rustix::fs::memfd_create("client", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    let mut file = File::from(fd);
    file.write_all(bytes).expect("written");
    file
}

pub fn bytes_of(file: &File, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}

fn descriptor(file: &File) -> Option<ParcelFileDescriptor> {
    Some(ParcelFileDescriptor::new(file.try_clone().expect("dup")))
}

pub fn ashmem(file: &File, size: usize) -> Memory {
    Memory::Ashmem(Ashmem { fd: descriptor(file), size: size as i64 })
}

pub fn mappable(file: &File, prot: i32, length: usize) -> Memory {
    Memory::MappableFile(MappableFile { fd: descriptor(file), prot, offset: 0, length: length as i64 })
}

pub fn argument(pool: i32, length: usize) -> RequestArgument {
    let location = DataLocation { poolIndex: pool, offset: 0, length: length as i64, padding: 0 };
    RequestArgument { location, ..Default::default() }
}

/// A request over files, one per argument.
pub fn request(input: &File, input_len: usize, output: &File, output_len: usize) -> Request {
    Request {
        inputs: vec![argument(0, input_len)],
        outputs: vec![argument(1, output_len)],
        pools: vec![
            RequestMemoryPool::Pool(ashmem(input, input_len)),
            RequestMemoryPool::Pool(ashmem(output, output_len)),
        ],
    }
}

/// A model, made operand by operand.
#[derive(Default)]
pub struct Maker(pub Model);

impl Maker {
    pub fn operand(&mut self, ty: OperandType, dims: &[i32], lifetime: OperandLifeTime) -> i32 {
        let quantised = ty == OperandType::TENSOR_QUANT8_ASYMM_SIGNED;
        let (scale, zero_point) = if quantised { (0.5, -3) } else { (0.0, 0) };
        let dimensions = dims.to_vec();
        let operand =
            Operand { r#type: ty, dimensions, lifetime, scale, zeroPoint: zero_point, ..Default::default() };
        let main = &mut self.0.main;
        main.operands.push(operand);
        let index = main.operands.len() as i32 - 1;
        match lifetime {
            OperandLifeTime::SUBGRAPH_INPUT => main.inputIndexes.push(index),
            OperandLifeTime::SUBGRAPH_OUTPUT => main.outputIndexes.push(index),
            _ => {}
        }
        index
    }

    pub fn constant(&mut self, ty: OperandType, dims: &[i32], bytes: &[u8]) -> i32 {
        let index = self.operand(ty, dims, OperandLifeTime::CONSTANT_COPY);
        let offset = self.0.operandValues.len() as i64;
        self.0.operandValues.extend(bytes);
        self.0.operandValues.resize(self.0.operandValues.len().next_multiple_of(4), 0);
        let location = DataLocation { poolIndex: 0, offset, length: bytes.len() as i64, padding: 0 };
        self.0.main.operands[index as usize].location = location;
        index
    }

    pub fn operation(&mut self, ty: OperationType, inputs: &[i32], output: i32) {
        let operation = Operation { r#type: ty, inputs: inputs.to_vec(), outputs: vec![output] };
        self.0.main.operations.push(operation);
    }

    /// A fully connected layer from `x`, of `inputs` elements a row, to `to`, of `units`.
    pub fn layer(&mut self, x: i32, inputs: i32, to: i32, units: i32) {
        let weights: Vec<u8> = (0..inputs * units).map(|i| (i * 13 + 5) as u8).collect();
        let weights = self.constant(I8, &[units, inputs], &weights);
        let bias: Vec<u8> = (0..units).flat_map(|i| (i * 90 - 700).to_le_bytes()).collect();
        let bias = self.constant(OperandType::TENSOR_INT32, &[units], &bias);
        self.0.main.operands[bias as usize].scale = 0.25;
        let none = self.constant(OperandType::INT32, &[], &0i32.to_le_bytes());
        self.0.main.operands[to as usize].scale = 30.0;
        self.operation(OperationType::FULLY_CONNECTED, &[x, weights, bias, none], to);
    }
}

pub const I8: OperandType = OperandType::TENSOR_QUANT8_ASYMM_SIGNED;

pub fn table() -> Vec<u8> {
    (0..=255u8).map(|i| i.wrapping_mul(3) ^ 0x55).collect()
}

/// A layer, and the vendor's lookup on top of it if `lookup`.
pub fn layer_model(lookup: bool) -> Model {
    use OperandLifeTime as L;
    let mut maker = Maker::default();
    let x = maker.operand(I8, &[ROWS, INPUTS], L::SUBGRAPH_INPUT);
    let last = if lookup { L::TEMPORARY_VARIABLE } else { L::SUBGRAPH_OUTPUT };
    let sums = maker.operand(I8, &[ROWS, UNITS], last);
    maker.layer(x, INPUTS, sums, UNITS);
    if lookup {
        let code = |low: u16| i32::from(PREFIX) << 16 | i32::from(low);
        let table = maker.constant(OperandType(code(TABLE.code)), &[256], &table());
        let to = maker.operand(I8, &[ROWS, UNITS], L::SUBGRAPH_OUTPUT);
        maker.operation(OperationType(code(LOOKUP)), &[sums, table], to);
        maker.0.extensionNameToPrefix =
            vec![ExtensionNameAndPrefix { name: EXTENSION.into(), prefix: PREFIX }];
    }
    maker.0
}

pub fn layer_input(seed: u8) -> Vec<u8> {
    (0..ROWS * INPUTS).map(|i| (i as u8).wrapping_mul(29).wrapping_add(seed)).collect()
}

/// What the model makes of `input`: by nnhal's plain evaluation, and the table.
pub fn layer_output(input: &[u8], lookup: bool) -> Vec<u8> {
    let sample = Sample::plain("layer", &layer_model(false), vec![input.to_vec()]).expect("a sample");
    let sums = sample.outputs.into_iter().next().expect("an output");
    let table = table();
    if lookup {
        sums.into_iter().map(|q| table[usize::from(q)]).collect()
    } else {
        sums
    }
}

/// Layer after layer: work for a while.
pub fn long_model(layers: usize) -> Model {
    use OperandLifeTime as L;
    const SIZE: i32 = 512;
    let mut maker = Maker::default();
    let mut x = maker.operand(I8, &[SIZE, SIZE], L::SUBGRAPH_INPUT);
    for i in 0..layers {
        let lifetime = if i + 1 == layers { L::SUBGRAPH_OUTPUT } else { L::TEMPORARY_VARIABLE };
        let to = maker.operand(I8, &[SIZE, SIZE], lifetime);
        let scale = maker.0.main.operands[x as usize].scale;
        maker.layer(x, SIZE, to, SIZE);
        let bias = maker.0.main.operands.len() - 2;
        maker.0.main.operands[bias].scale = scale * 0.5;
        x = to;
    }
    maker.0
}

pub const LONG_BYTES: usize = 512 * 512;
