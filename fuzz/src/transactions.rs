//! Raw transactions of every code, of all objects that a client gets to hold, over the socket that the daemon has.
//!
//! An input is a list of calls: an object, a code, and pieces of a parcel. Most pieces are plain words; others are what no
//! words can stand for: descriptors, objects, and parcelables that hold descriptors.

#![no_main]

use binder::fmq::{MQDescriptor, SynchronizedReadWrite};
use binder::{BinderResult, Interface, Parcel, SIBinder, Strong};
use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use nnhal::aidl::*;
use nnhal::client::{Address, ConnectOptions, Driver, PrepareOptions};
use nnhal::daemon::embedded;
use nnhal_fuzz::{bytes, file, making, next, pools};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// IDevice's three ways to prepare a model.
const PREPARES: std::ops::Range<u32> =
    binder::FIRST_CALL_TRANSACTION + 7..binder::FIRST_CALL_TRANSACTION + 10;

/// Compilations that have been announced.
static ANNOUNCED: AtomicUsize = AtomicUsize::new(0);

struct Callback;

impl Interface for Callback {}

impl IPreparedModelCallback for Callback {
    fn notify(&self, _: ErrorStatus, _: Option<&Strong<dyn IPreparedModel>>) -> BinderResult<()> {
        ANNOUNCED.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

impl IFmqBurstCallback for Callback {
    fn getMemories(&self, slots: &[i32]) -> BinderResult<Vec<Memory>> {
        let memory =
            |&slot: &i32| Memory::Ashmem(Ashmem { fd: Some(file(slot as u8)), size: nnhal_fuzz::FILE });
        Ok(slots.iter().map(memory).collect())
    }
}

/// A driver's objects, as its client holds them.
struct Client {
    /// Those that are called; each may be an argument as well.
    objects: Vec<SIBinder>,
    callbacks: [SIBinder; 2],
    _driver: Driver,
}

fn extension(of: &SIBinder) -> SIBinder {
    let proxy = of.as_remote().expect("a proxy");
    let question = proxy.prepare_transact(true).expect("a parcel");
    let answer = proxy.submit_transact(binder::EXTENSION_TRANSACTION, &question, 0).expect("an answer");
    answer.and_then(|mut answer| answer.read::<Option<SIBinder>>().ok().flatten()).expect("an extension")
}

impl Client {
    fn new() -> Self {
        let options = embedded::Options { threads: Some(1), ..Default::default() };
        let daemon = embedded::start(&options).expect("a daemon");
        let address = Address::Unix(daemon.socket().into());
        let driver =
            Driver::connect(&address, &ConnectOptions { connections: 1, timeout: None }).expect("connected");
        let driver = driver.keeping(daemon);
        let (_, model) = making::small_models().remove(0);
        let prepared = driver.prepare(&model, &PrepareOptions::default()).expect("it is taken");
        let prepared = &prepared;
        let device = driver.device();
        let request = making::request();
        let execution =
            prepared.createReusableExecution(&request, &ExecutionConfig::default()).expect("an execution");
        let burst = prepared.configureExecutionBurst().expect("a burst");
        let role = BufferRole { modelIndex: 0, ioIndex: 0, probability: 1.0 };
        let parcel = IPreparedModelParcel { preparedModel: Some(prepared.clone()) };
        let buffer = device.allocate(&BufferDesc::default(), &[parcel], &[role], &[]).expect("a buffer");
        let diagnostics = extension(&device.as_binder());
        let recorder = diagnostics.clone().into_interface::<dyn IDiagnostics>().expect("it is one");
        let recorder = recorder.record(prepared).expect("a recorder");
        let objects = vec![
            device.as_binder(),
            prepared.as_binder(),
            burst.as_binder(),
            execution.as_binder(),
            diagnostics,
            extension(&prepared.as_binder()),
            buffer.buffer.expect("it has one").as_binder(),
            recorder.as_binder(),
        ];
        let callbacks = [
            BnPreparedModelCallback::new_binder(Callback).as_binder(),
            BnFmqBurstCallback::new_binder(Callback).as_binder(),
        ];
        Client { objects, callbacks, _driver: driver }
    }

    /// A code of the interface's methods, which are fewer than this, or one that every object knows.
    fn code(number: u8) -> u32 {
        const COMMON: [u32; 8] = [
            binder::PING_TRANSACTION,
            binder::DUMP_TRANSACTION,
            binder::EXTENSION_TRANSACTION,
            binder::INTERFACE_TRANSACTION,
            binder::SHELL_COMMAND_TRANSACTION,
            binder::FIRST_CALL_TRANSACTION + 16_777_214,
            binder::FIRST_CALL_TRANSACTION + 16_777_213,
            u32::MAX,
        ];
        match number {
            0..240 => binder::FIRST_CALL_TRANSACTION + u32::from(number & 15),
            _ => COMMON[usize::from(number & 7)],
        }
    }

    /// Writes the next piece; false at the end of the call. Says whether a compilation will be announced.
    fn write(&self, parcel: &mut Parcel, input: &mut Unstructured, announces: &mut bool) -> Option<()> {
        let piece: u8 = next(input);
        let (kind, count) = (piece & 7, piece >> 3);
        match kind {
            1 => {
                for word in bytes(input, usize::from(count) * 4).chunks(4) {
                    let mut padded = [0; 4];
                    padded[..word.len()].copy_from_slice(word);
                    parcel.write(&i32::from_le_bytes(padded)).ok()?;
                }
            }
            2 => parcel.write(&file(count)).ok()?,
            3 => {
                *announces |= count == 0;
                let all: Vec<_> = self.callbacks.iter().chain(&self.objects).collect();
                match all.get(usize::from(count)) {
                    Some(&binder) => parcel.write(binder).ok()?,
                    None => parcel.write(&None::<SIBinder>).ok()?,
                }
            }
            4 => {
                let (length, pools) = (next::<u16>(input), pools(input));
                let mut model = binder::from_bytes::<Model>(bytes(input, length.into())).ok()?;
                model.pools.extend(pools);
                parcel.write(&model).ok()?;
            }
            5 => {
                let (length, pools) = (next::<u16>(input), pools(input));
                let mut request = binder::from_bytes::<Request>(bytes(input, length.into())).ok()?;
                request.pools.extend(pools.into_iter().map(RequestMemoryPool::Pool));
                parcel.write(&request).ok()?;
            }
            6 => {
                let length = usize::from(next::<u8>(input)) * 4;
                let sent = bytes(input, length);
                let mut sent = binder::from_bytes::<MQDescriptor<i8, SynchronizedReadWrite>>(sent).ok()?;
                sent.handle.fds.push(file(count));
                parcel.write(&sent).ok()?;
            }
            7 => parcel.write(&(0..count & 3).map(file).collect::<Vec<_>>()).ok()?,
            _ => return None,
        }
        Some(())
    }

    fn call(&self, input: &mut Unstructured) {
        let object = &self.objects[usize::from(next::<u8>(input)) % self.objects.len()];
        let code = Self::code(next(input));
        let proxy = object.as_remote().expect("a proxy");
        let Ok(mut parcel) = proxy.prepare_transact(true) else { return };
        let mut announces = false;
        while self.write(&mut parcel, input, &mut announces).is_some() {}
        let before = ANNOUNCED.load(Ordering::SeqCst);
        let answer = proxy.submit_transact(code, &parcel, 0);
        // Whatever is done of it later is this input's fault: it must not be told by a later one.
        let launched = answer.is_ok_and(|answer| {
            answer
                .is_some_and(|mut answer| answer.read::<binder::Status>().is_ok_and(|status| status.is_ok()))
        });
        let launched = launched && announces && object == &self.objects[0] && PREPARES.contains(&code);
        let began = Instant::now();
        while launched
            && ANNOUNCED.load(Ordering::SeqCst) == before
            && began.elapsed() < Duration::from_secs(10)
        {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    static CLIENT: LazyLock<Client> = LazyLock::new(Client::new);
    let mut input = Unstructured::new(bytes);
    while !input.is_empty() {
        CLIENT.call(&mut input);
    }
});
