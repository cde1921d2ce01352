//! What the service builds on in the binder crate, over an RPC socket: whoever updates that crate learns here what moved.

#![allow(non_snake_case)]

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use binder::entry::{WireProfile, WireVersion};
use binder::rpc::{FileDescriptorTransportMode as FdMode, RpcServer};
use binder::{
    Binder, BinderResult, Client, DeathRecipient, Endpoint, ExceptionCode, Interface, ParcelFileDescriptor,
    SIBinder, Status, StatusCode, Strong, Uri, WIBinder, EXTENSION_TRANSACTION,
};
use nnhal::aidl::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn error(status: ErrorStatus, message: &str) -> Status {
    Status::new_service_specific_error(status.0, Some(message.into()))
}

/// What a prepared model is to the driver; binder objects come and go around it.
struct Compiled {
    name: String,
}

struct Prepared;
impl Interface for Prepared {}
impl IPreparedModel for Prepared {
    fn executeSynchronously(&self, _: &Request, _: bool, _: i64, _: i64) -> BinderResult<ExecutionResult> {
        Err(error(ErrorStatus::GENERAL_FAILURE, "not here"))
    }
    fn executeFenced(
        &self,
        _: &Request,
        _: &[ParcelFileDescriptor],
        _: bool,
        _: i64,
        _: i64,
        _: i64,
    ) -> BinderResult<FencedExecutionResult> {
        panic!("a handler may panic and the server lives")
    }
    fn configureExecutionBurst(&self) -> BinderResult<Strong<dyn IBurst>> {
        Err(error(ErrorStatus::GENERAL_FAILURE, "not here"))
    }
    fn createReusableExecution(
        &self,
        _: &Request,
        _: &ExecutionConfig,
    ) -> BinderResult<Strong<dyn IExecution>> {
        Err(error(ErrorStatus::GENERAL_FAILURE, "not here"))
    }
    fn executeSynchronouslyWithConfig(
        &self,
        _: &Request,
        _: &ExecutionConfig,
        _: i64,
    ) -> BinderResult<ExecutionResult> {
        Err(error(ErrorStatus::GENERAL_FAILURE, "not here"))
    }
    fn executeFencedWithConfig(
        &self,
        _: &Request,
        _: &[ParcelFileDescriptor],
        _: &ExecutionConfig,
        _: i64,
        _: i64,
    ) -> BinderResult<FencedExecutionResult> {
        Err(error(ErrorStatus::GENERAL_FAILURE, "not here"))
    }
}

/// No descriptor at all is what a parcelable cut short leaves behind.
fn open(memory: &Ashmem) -> BinderResult<std::fs::File> {
    let fd = memory.fd.as_ref().ok_or(StatusCode::UnexpectedNull)?;
    Ok(fd.as_fd().try_clone_to_owned().map_err(|_| StatusCode::NoMemory)?.into())
}

struct Buffer;
impl Interface for Buffer {}
impl IBuffer for Buffer {
    fn copyFrom(&self, _: &Memory, _: &[i32]) -> BinderResult<()> {
        Ok(())
    }
    fn copyTo(&self, dst: &Memory) -> BinderResult<()> {
        let Memory::Ashmem(dst) = dst else { return Err(error(ErrorStatus::INVALID_ARGUMENT, "not ashmem")) };
        open(dst)?.write_all(b"from the driver").map_err(|_| StatusCode::NoMemory)?;
        Ok(())
    }
}

struct Obituary(Mutex<Sender<()>>);
impl DeathRecipient for Obituary {
    fn binder_died(&self, _: &WIBinder) {
        let _ = self.0.lock().expect("no panic while held").send(());
    }
}

struct Device {
    obituary: Arc<Obituary>,
    /// A binder keeps its death recipients no more than weakly, and forgets them when it is dropped.
    watched: Mutex<Vec<Strong<dyn IPreparedModelCallback>>>,
}
impl Interface for Device {}
impl IDevice for Device {
    fn allocate(
        &self,
        _: &BufferDesc,
        models: &[IPreparedModelParcel],
        _: &[BufferRole],
        _: &[BufferRole],
    ) -> BinderResult<DeviceBuffer> {
        let model = models.first().and_then(|m| m.preparedModel.as_ref());
        let model =
            model.ok_or_else(|| error(ErrorStatus::INVALID_ARGUMENT, "no prepared model"))?.as_binder();
        if model.is_remote() {
            return Err(error(ErrorStatus::INVALID_ARGUMENT, "the prepared model is not of this device"));
        }
        let compiled =
            Binder::<BnPreparedModel>::try_from(model)?.find_object::<Compiled>().ok_or_else(|| {
                error(ErrorStatus::INVALID_ARGUMENT, "the prepared model is not of this device")
            })?;
        assert_eq!(compiled.name, "it", "the very object that was attached");
        Ok(DeviceBuffer { buffer: Some(BnBuffer::new_binder(Buffer)), token: 7 })
    }
    fn getCapabilities(&self) -> BinderResult<Capabilities> {
        Ok(Capabilities::default())
    }
    fn getNumberOfCacheFilesNeeded(&self) -> BinderResult<NumberOfCacheFiles> {
        Ok(NumberOfCacheFiles { numModelCache: binder::get_calling_pid(), numDataCache: 0 })
    }
    fn getSupportedExtensions(&self) -> BinderResult<Vec<Extension>> {
        Ok(vec![])
    }
    /// True for every byte read from the first pool that is not 0.
    fn getSupportedOperations(&self, model: &Model) -> BinderResult<Vec<bool>> {
        let Some(Memory::Ashmem(pool)) = model.pools.first() else {
            return Err(error(ErrorStatus::INVALID_ARGUMENT, "the model has no pool"));
        };
        let mut bytes = [0; 3];
        open(pool)?.read_exact(&mut bytes).map_err(|_| StatusCode::BadValue)?;
        Ok(bytes.iter().map(|b| *b != 0).collect())
    }
    fn getType(&self) -> BinderResult<DeviceType> {
        Ok(DeviceType(binder::get_calling_uid() as i32))
    }
    fn getVersionString(&self) -> BinderResult<String> {
        Ok("smoke".into())
    }
    fn prepareModel(
        &self,
        _: &Model,
        preference: ExecutionPreference,
        _: Priority,
        _: i64,
        _: &[ParcelFileDescriptor],
        _: &[ParcelFileDescriptor],
        _: &[u8],
        callback: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        assert_eq!(preference.0, 77, "no enum value is lost on the way");
        callback.notify(ErrorStatus::INVALID_ARGUMENT, None)?;
        Err(error(ErrorStatus::INVALID_ARGUMENT, "as told"))
    }
    fn prepareModelFromCache(
        &self,
        _: i64,
        _: &[ParcelFileDescriptor],
        _: &[ParcelFileDescriptor],
        _: &[u8],
        _: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        Err(error(ErrorStatus::GENERAL_FAILURE, "no cache"))
    }
    fn prepareModelWithConfig(
        &self,
        _: &Model,
        config: &PrepareModelConfig,
        callback: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        assert_eq!(config.cacheToken, [9; 32]);
        callback.link_to_death_arc(&self.obituary)?;
        let callback = callback.clone();
        self.watched.lock().expect("no panic while held").push(callback.clone());
        std::thread::spawn(move || {
            let model = BnPreparedModel::new_binder(Prepared);
            let local = Binder::<BnPreparedModel>::try_from(model.as_binder()).expect("just made here");
            local.attach_object(Arc::new(Compiled { name: "it".into() }));
            callback.notify(ErrorStatus::NONE, Some(&model)).expect("the client is there");
        });
        Ok(())
    }
}

type Verdict = (ErrorStatus, Option<Strong<dyn IPreparedModel>>);

struct Callback(Mutex<Sender<Verdict>>);
impl Interface for Callback {}
impl IPreparedModelCallback for Callback {
    fn notify(&self, status: ErrorStatus, model: Option<&Strong<dyn IPreparedModel>>) -> BinderResult<()> {
        let _ = self.0.lock().expect("no panic while held").send((status, model.cloned()));
        Ok(())
    }
}

fn callback() -> (Strong<dyn IPreparedModelCallback>, Receiver<Verdict>) {
    let (sender, receiver) = channel();
    (BnPreparedModelCallback::new_binder(Callback(Mutex::new(sender))), receiver)
}

struct Harness {
    server: Arc<RpcServer>,
    accepting: Option<std::thread::JoinHandle<()>>,
    client: Client,
    device: Strong<dyn IDevice>,
    died: Receiver<()>,
    _dir: tempfile::TempDir,
}

impl Harness {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("nn.sock");
        let (sender, died) = channel();
        let device = Device { obituary: Arc::new(Obituary(Mutex::new(sender))), watched: Mutex::default() };
        let device = BnDevice::new_binder(device).as_binder();
        device.set_extension(&BnBuffer::new_binder(Buffer).as_binder()).expect("a local binder takes one");

        let server = RpcServer::setup_unix_server(&path).expect("bind");
        server.set_android13plus(WireVersion::MAX.get());
        server.set_max_threads(8);
        server.set_supported_fd_modes(&[FdMode::None, FdMode::Unix]);
        server.set_reply_timeout(Some(PATIENCE));
        server.set_root(device).expect("a local root");
        let accepting = Some(server.run_background());

        let uri = Uri::new(Endpoint::unix(&path)).with_wire(WireProfile::Android13Plus(WireVersion::MAX));
        let client = Client::open_with(uri, |o, _| {
            o.fd_mode = Some(FdMode::Unix);
            o.outgoing_connections = Some(2);
            o.incoming_connections = Some(2);
            o.timeout = Some(PATIENCE);
        })
        .expect("connect");
        let root = client.session().expect("an RPC client").get_root().expect("a root");
        let device = root.into_interface::<dyn IDevice>().expect("an IDevice");
        Self { server, accepting, client, device, died, _dir: dir }
    }

    fn prepare(&self) -> Strong<dyn IPreparedModel> {
        let (callback, verdict) = callback();
        let config = PrepareModelConfig { cacheToken: [9; 32], ..Default::default() };
        self.device.prepareModelWithConfig(&Model::default(), &config, &callback).expect("started");
        let (status, model) = verdict.recv_timeout(PATIENCE).expect("notified from another thread");
        assert_eq!(status, ErrorStatus::NONE);
        model.expect("a prepared model")
    }

    fn allocate(&self, model: Option<Strong<dyn IPreparedModel>>) -> BinderResult<DeviceBuffer> {
        let models = [IPreparedModelParcel { preparedModel: model }];
        self.device.allocate(&BufferDesc::default(), &models, &[], &[])
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        // With incoming connections the threads that serve them keep a session alive.
        self.client.session().expect("an RPC client").close_session();
        self.server.stop_accepting();
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.server.terminate();
    }
}

fn memfd(bytes: &[u8]) -> std::fs::File {
    let fd = nix::sys::memfd::memfd_create(c"pool", nix::sys::memfd::MFdFlags::empty()).expect("memfd");
    let mut file = std::fs::File::from(fd);
    file.write_all(bytes).expect("write");
    file.seek(SeekFrom::Start(0)).expect("seek");
    file
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(answer: BinderResult<T>, status: ErrorStatus, message: &str) {
    let error = answer.expect_err("refused");
    assert_eq!(error.exception_code(), ExceptionCode::ServiceSpecific, "{error:?}");
    assert_eq!(error.service_specific_error(), status.0);
    assert_eq!(error.message(), Some(message));
}

#[test]
fn answers_and_knows_its_caller() {
    let harness = Harness::new();
    assert_eq!(harness.device.getVersionString().expect("an answer"), "smoke");
    assert_eq!(harness.device.getInterfaceVersion().expect("an answer"), INTERFACE_VERSION);
    assert_eq!(harness.device.getInterfaceHash().expect("an answer"), INTERFACE_HASH);
    let pid = harness.device.getNumberOfCacheFilesNeeded().expect("an answer").numModelCache;
    assert_eq!(pid, std::process::id() as i32);
    let uid = std::fs::metadata("/proc/self").expect("procfs").uid();
    assert_eq!(harness.device.getType().expect("an answer").0, uid as i32);
}

#[test]
fn descriptors_cross_both_ways() {
    let harness = Harness::new();
    let pool = |f: &std::fs::File| {
        Memory::Ashmem(Ashmem { fd: Some(ParcelFileDescriptor::new(f.try_clone().expect("dup"))), size: 3 })
    };
    let file = memfd(&[1, 0, 5]);
    let model = Model { pools: vec![pool(&file)], ..Default::default() };
    assert_eq!(harness.device.getSupportedOperations(&model).expect("an answer"), [true, false, true]);

    let buffer = harness.allocate(Some(harness.prepare())).expect("a buffer");
    assert_eq!(buffer.token, 7);
    let file = memfd(&[]);
    buffer.buffer.expect("never null").copyTo(&pool(&file)).expect("copied");
    let mut text = String::new();
    let mut file = file;
    file.seek(SeekFrom::Start(0)).expect("seek");
    file.read_to_string(&mut text).expect("read");
    assert_eq!(text, "from the driver");
}

#[test]
fn null_and_foreign_models_reach_the_driver() {
    let harness = Harness::new();
    assert_refused(harness.allocate(None), ErrorStatus::INVALID_ARGUMENT, "no prepared model");
    let foreign = BnPreparedModel::new_binder(Prepared);
    let message = "the prepared model is not of this device";
    assert_refused(harness.allocate(Some(foreign)), ErrorStatus::INVALID_ARGUMENT, message);
}

#[test]
fn null_reaches_the_client_while_it_waits() {
    let harness = Harness::new();
    let (callback, verdict) = callback();
    let answer = harness.device.prepareModel(
        &Model::default(),
        ExecutionPreference(77),
        Priority::LOW,
        -1,
        &[],
        &[],
        &[],
        &callback,
    );
    assert_refused(answer, ErrorStatus::INVALID_ARGUMENT, "as told");
    let (status, model) = verdict.recv_timeout(PATIENCE).expect("notified");
    assert_eq!((status, model.is_none()), (ErrorStatus::INVALID_ARGUMENT, true));
}

#[test]
fn extension_is_found() {
    let harness = Harness::new();
    let device = harness.device.as_binder();
    // The crate's get_extension asks over the kernel driver only; over RPC it answers None unasked.
    assert!(device.get_extension().expect("an answer").is_none(), "the crate asks by itself now");
    let proxy = device.as_remote().expect("a proxy");
    // Unlike libbinder's, its server wants the interface token before this question too.
    let question = proxy.prepare_transact(true).expect("a parcel");
    let answer = proxy.submit_transact(EXTENSION_TRANSACTION, &question, 0).expect("an answer");
    let extension: Option<SIBinder> = answer.expect("a reply").read().expect("a binder");
    let extension = extension.expect("an extension");
    let extension = extension.into_interface::<dyn IBuffer>().expect("an IBuffer");
    extension.copyFrom(&Memory::default(), &[]).expect_err("a default Memory has no descriptor to send");
    assert_eq!(extension.getInterfaceVersion().expect("an answer"), INTERFACE_VERSION);
}

#[test]
fn panic_in_a_handler_is_an_error_and_no_more() {
    let harness = Harness::new();
    let model = harness.prepare();
    model.executeFenced(&Request::default(), &[], false, -1, -1, -1).expect_err("it panicked");
    assert_eq!(harness.device.getVersionString().expect("the server lives"), "smoke");
}

#[test]
fn the_death_of_a_client_is_told() {
    let harness = Harness::new();
    let _model = harness.prepare();
    harness.client.session().expect("an RPC client").close_session();
    harness.died.recv_timeout(PATIENCE).expect("an obituary");
}
