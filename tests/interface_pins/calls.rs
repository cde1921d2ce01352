//! Descriptors, transaction codes and the order of arguments: calls are put together by hand from the frozen
//! numbers and sent over a socket, and a recorder tells what arrived.

use std::sync::Arc;

use binder::rpc::{FileDescriptorTransportMode as FdMode, RpcProxy, RpcServer};
use binder::{Client, Parcel, ParcelFileDescriptor, Result, SIBinder, Stability, Status, StatusCode};
use nnhal::aidl::*;

use crate::recorder::{Log, Recorder};

const GET_INTERFACE_HASH: u32 = 0x00ff_fffe;
const GET_INTERFACE_VERSION: u32 = 0x00ff_ffff;

struct Session {
    server: Arc<RpcServer>,
    client: Client,
    object: SIBinder,
    descriptor: &'static str,
    log: Log,
    _dir: tempfile::TempDir,
}

impl Session {
    /// Serves what `make` wraps a recorder in.
    fn new(interface: &'static str, make: fn(Recorder) -> SIBinder) -> Self {
        let (recorder, log) = Recorder::new();
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("nn.sock");
        let server = RpcServer::setup_unix_server(&path).expect("bind");
        server.set_android13plus(1);
        server.set_supported_fd_modes(&[FdMode::None, FdMode::Unix]);
        let object = make(recorder);
        assert_eq!(object.stability(), Stability::Vintf, "the runtime takes no other from a declared HAL");
        server.set_root(object).expect("a local root");
        server.run_background();
        let uri = format!("unix://{}?profile=android13plus", path.display());
        let uri: binder::Uri = uri.parse().expect("a URI");
        let client = Client::open_with(uri, |o, _| o.fd_mode = Some(FdMode::Unix)).expect("connect");
        let object = client.session().expect("an RPC client").get_root().expect("a root");
        Self { server, client, object, descriptor: interface, log, _dir: dir }
    }

    fn transact(&self, code: u32, arguments: impl FnOnce(&mut Parcel) -> Result<()>) -> Result<Parcel> {
        let proxy = self.object.as_any().downcast_ref::<RpcProxy>().expect("an RPC proxy");
        let mut request = proxy.build_request(self.descriptor)?;
        arguments(&mut request).expect("write the arguments");
        let mut reply = proxy.transact(code, &request, 0)?.expect("no method is oneway");
        assert!(reply.read::<Status>()?.is_ok());
        Ok(reply)
    }

    /// Sends `code` with the arguments; exactly `expected` arrives.
    #[track_caller]
    fn call(&self, code: u32, expected: &str, arguments: impl FnOnce(&mut Parcel) -> Result<()>) {
        self.transact(code, arguments).unwrap_or_else(|e| panic!("{expected}: {e:?}"));
        assert_eq!(self.arrived(), [expected], "{} code {code}", self.descriptor);
    }

    fn arrived(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().expect("no panic while held"))
    }

    /// There are `methods` methods and no more, and the object says what it is.
    #[track_caller]
    fn finish(self, methods: u32) {
        let error = self.transact(methods + 1, |_| Ok(())).map(|_| ()).expect_err("no such method");
        assert_eq!(error, StatusCode::UnknownTransaction);
        assert_eq!(self.transact(GET_INTERFACE_VERSION, |_| Ok(())).and_then(|mut r| r.read()), Ok(4));
        let hash: String =
            self.transact(GET_INTERFACE_HASH, |_| Ok(())).and_then(|mut r| r.read()).expect("one");
        assert_eq!(hash, "53178f8de9b8861df391cf0593f6f3e08adad33d");
        self.client.session().expect("an RPC client").close_session();
        self.server.stop_accepting();
        self.server.terminate();
    }
}

fn nothing(_: &mut Parcel) -> Result<()> {
    Ok(())
}

fn model() -> Model {
    Model { operandValues: vec![7], ..Default::default() }
}

fn request() -> Request {
    Request { pools: vec![RequestMemoryPool::Token(1)], ..Default::default() }
}

fn config() -> ExecutionConfig {
    ExecutionConfig { loopTimeoutDurationNs: 8, ..Default::default() }
}

fn fds(count: usize) -> Vec<ParcelFileDescriptor> {
    (0..count).map(|_| std::fs::File::open("/dev/null").expect("open").into()).collect()
}

fn memory() -> Memory {
    Memory::Ashmem(Ashmem { fd: fds(1).pop(), size: 6 })
}

fn callback() -> SIBinder {
    BnPreparedModelCallback::new_binder(Recorder::new().0).into()
}

/// The reply is a parcelable of a binder, then of one word.
#[track_caller]
fn assert_binder_and(last: i32, mut reply: Parcel) {
    let mut words: Vec<i32> = vec![];
    while reply.has_more_data() {
        words.push(reply.read().expect("a word"));
    }
    // There is one, its size; there is a binder, its address, what one of a declared HAL is labelled with.
    assert!(matches!(words[..], [1, 24, 1, _, _, 0x3f, l] if l == last), "{words:x?}");
}

#[test]
fn results_with_binders() {
    let device = Session::new("android.hardware.neuralnetworks.IDevice", |r| BnDevice::new_binder(r).into());
    let buffer = device.transact(1, |p| {
        p.write(&BufferDesc::default())?;
        (0..3).try_for_each(|_| p.write(&0i32))
    });
    assert_binder_and(5, buffer.expect("a buffer"));
    device.finish(10);
    let descriptor = "android.hardware.neuralnetworks.IExecution";
    let execution = Session::new(descriptor, |r| BnExecution::new_binder(r).into());
    let no_fence = execution.transact(2, |p| {
        p.write(&fds(0))?;
        p.write(&-1i64)?;
        p.write(&-1i64)
    });
    assert_binder_and(0, no_fence.expect("a callback"));
    execution.finish(2);
}

#[test]
fn device() {
    let s = Session::new("android.hardware.neuralnetworks.IDevice", |r| BnDevice::new_binder(r).into());
    let prepared = BnPreparedModel::new_binder(Recorder::new().0);
    s.call(1, "allocate([9], [true, false], 2, 3)", |p| {
        p.write(&BufferDesc { dimensions: vec![9] })?;
        p.write(&2i32)?;
        p.write(&IPreparedModelParcel { preparedModel: Some(prepared) })?;
        // Another parcelable: there is one, its size, a null binder, whose label is 0.
        [1, 12, 0, 0].iter().try_for_each(|word: &i32| p.write(word))?;
        p.write(&vec![BufferRole::default(); 2])?;
        p.write(&vec![BufferRole::default(); 3])
    });
    s.call(2, "getCapabilities()", nothing);
    s.call(3, "getNumberOfCacheFilesNeeded()", nothing);
    s.call(4, "getSupportedExtensions()", nothing);
    s.call(5, "getSupportedOperations([7])", |p| p.write(&model()));
    s.call(6, "getType()", nothing);
    s.call(7, "getVersionString()", nothing);
    s.call(8, "prepareModel([7], 1, 2, 4294967296, 1, 2, [3, 4])", |p| {
        p.write(&model())?;
        p.write(&1i32)?;
        p.write(&2i32)?;
        p.write(&(1i64 << 32))?;
        p.write(&fds(1))?;
        p.write(&fds(2))?;
        p.write(&vec![3u8, 4])?;
        p.write(&callback())
    });
    s.call(9, "prepareModelFromCache(4294967296, 1, 2, [3, 4])", |p| {
        p.write(&(1i64 << 32))?;
        p.write(&fds(1))?;
        p.write(&fds(2))?;
        p.write(&vec![3u8, 4])?;
        p.write(&callback())
    });
    s.call(10, "prepareModelWithConfig([7], 5)", |p| {
        p.write(&model())?;
        p.write(&PrepareModelConfig { deadlineNs: 5, ..Default::default() })?;
        p.write(&callback())
    });
    s.finish(10);
}

#[test]
fn prepared_model() {
    let descriptor = "android.hardware.neuralnetworks.IPreparedModel";
    let s = Session::new(descriptor, |r| BnPreparedModel::new_binder(r).into());
    s.call(1, "executeSynchronously(1, true, 2, 3)", |p| {
        p.write(&request())?;
        p.write(&true)?;
        p.write(&2i64)?;
        p.write(&3i64)
    });
    s.call(2, "executeFenced(1, 2, true, 3, 4, 5)", |p| {
        p.write(&request())?;
        p.write(&fds(2))?;
        p.write(&true)?;
        p.write(&3i64)?;
        p.write(&4i64)?;
        p.write(&5i64)
    });
    s.call(3, "configureExecutionBurst()", nothing);
    s.call(4, "createReusableExecution(1, 8)", |p| {
        p.write(&request())?;
        p.write(&config())
    });
    s.call(5, "executeSynchronouslyWithConfig(1, 8, 2)", |p| {
        p.write(&request())?;
        p.write(&config())?;
        p.write(&2i64)
    });
    s.call(6, "executeFencedWithConfig(1, 2, 8, 3, 4)", |p| {
        p.write(&request())?;
        p.write(&fds(2))?;
        p.write(&config())?;
        p.write(&3i64)?;
        p.write(&4i64)
    });
    s.finish(6);
}

#[test]
fn burst() {
    let s = Session::new("android.hardware.neuralnetworks.IBurst", |r| BnBurst::new_binder(r).into());
    s.call(1, "executeSynchronously(1, [-1, 2], true, 3, 4)", |p| {
        p.write(&request())?;
        p.write(&vec![-1i64, 2])?;
        p.write(&true)?;
        p.write(&3i64)?;
        p.write(&4i64)
    });
    s.call(2, "releaseMemoryResource(-5)", |p| p.write(&-5i64));
    s.call(3, "executeSynchronouslyWithConfig(1, [-1, 2], 8, 3)", |p| {
        p.write(&request())?;
        p.write(&vec![-1i64, 2])?;
        p.write(&config())?;
        p.write(&3i64)
    });
    s.finish(3);
}

#[test]
fn buffer() {
    let s = Session::new("android.hardware.neuralnetworks.IBuffer", |r| BnBuffer::new_binder(r).into());
    s.call(1, "copyFrom(true, [1, 2])", |p| {
        p.write(&memory())?;
        p.write(&vec![1i32, 2])
    });
    s.call(2, "copyTo(true)", |p| p.write(&memory()));
    s.finish(2);
}

#[test]
fn execution() {
    let s = Session::new("android.hardware.neuralnetworks.IExecution", |r| BnExecution::new_binder(r).into());
    s.call(1, "executeSynchronously(-1)", |p| p.write(&-1i64));
    s.call(2, "executeFenced(2, 3, 4)", |p| {
        p.write(&fds(2))?;
        p.write(&3i64)?;
        p.write(&4i64)
    });
    s.finish(2);
}

#[test]
fn prepared_model_callback() {
    let descriptor = "android.hardware.neuralnetworks.IPreparedModelCallback";
    let s = Session::new(descriptor, |r| BnPreparedModelCallback::new_binder(r).into());
    s.call(1, "notify(4, false)", |p| {
        p.write(&4i32)?;
        p.write(&None::<SIBinder>)
    });
    s.call(1, "notify(0, true)", |p| {
        p.write(&0i32)?;
        p.write::<SIBinder>(&BnPreparedModel::new_binder(Recorder::new().0).into())
    });
    s.finish(1);
}

/// The only method with results beside its return value, which comes first.
#[test]
fn fenced_execution_callback() {
    let descriptor = "android.hardware.neuralnetworks.IFencedExecutionCallback";
    let s = Session::new(descriptor, |r| BnFencedExecutionCallback::new_binder(r).into());
    let mut reply = s.transact(1, nothing).expect("an answer");
    assert_eq!(s.arrived(), ["getExecutionInfo()"]);
    assert_eq!(reply.read(), Ok(5), "the status");
    for expected in [[1, 2], [3, 4]] {
        assert_eq!([reply.read(), reply.read()], [Ok(1), Ok(20)], "a parcelable of 20 bytes");
        assert_eq!(
            [reply.read(), reply.read()],
            expected.map(Ok::<i64, StatusCode>),
            "launched, then fenced"
        );
    }
    assert!(!reply.has_more_data());
    s.finish(1);
}
