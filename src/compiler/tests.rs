//! Compilations with a backend that does as the test says.

use super::*;
use crate::aidl;
use crate::backend::{Arguments, Artifact, BackendError, Binding, Info, Interface};
use crate::cache::{CacheError, Key};
use crate::memory::{memory_of_a_busy_device, ClientSlice};
use crate::model::{Constant, Lifetime, Model, Operand};
use crate::ops::NeverInterrupted;
use crate::scheduler::limits::Total;
use crate::scheduler::Exhausted;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Mutex;
use std::time::Duration;

pub(super) const PATIENCE: Duration = Duration::from_secs(10);
pub(super) const CLIENT: u32 = 7;

/// Compiles nothing; does what it is told when it is asked to.
struct Puppet(Mutex<Receiver<fn() -> BackendError>>);

impl Backend for Puppet {
    fn info(&self) -> Info {
        unreachable!("not asked for here")
    }

    fn support(&self, _: &Model, _: &Control) -> Vec<Result<(), String>> {
        Vec::new()
    }

    fn compile(&self, _: &Model, _: &CompileOptions, _: &Control) -> Compiled {
        let act = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv_timeout(PATIENCE);
        Err(act.expect("told what to do")())
    }
}

/// So many jobs, of one client one part in `parts`.
fn jobs(count: u64, parts: u64) -> Limit {
    Limit { what: "jobs", total: Total::Count(count), parts, floor: 1 }
}

type Compiled = Result<Arc<dyn Executable>, BackendError>;

pub(super) fn model() -> Model {
    let operand = |lifetime| aidl::Operand {
        r#type: aidl::OperandType::TENSOR_FLOAT32,
        dimensions: vec![1],
        lifetime,
        ..Default::default()
    };
    let main = aidl::Subgraph {
        operands: vec![
            operand(aidl::OperandLifeTime::SUBGRAPH_INPUT),
            operand(aidl::OperandLifeTime::SUBGRAPH_OUTPUT),
        ],
        operations: vec![aidl::Operation {
            r#type: aidl::OperationType::FLOOR,
            inputs: vec![0],
            outputs: vec![1],
        }],
        inputIndexes: vec![0],
        outputIndexes: vec![1],
    };
    Model::new(&aidl::Model { main, ..Default::default() }).unwrap()
}

/// Cache files of the client, and a token of this byte.
pub(super) fn files(token: u8) -> ClientFiles {
    let file =
        || File::from(nix::sys::memfd::memfd_create(c"cache", nix::sys::memfd::MFdFlags::empty()).unwrap());
    let (models, data) = ([file()], [file()]);
    let expected = crate::backend::CacheFileCounts { models: 1, data: 1 };
    let place = CachePlace::new(CLIENT, &[token; 32], (&models, &data), expected).unwrap();
    ClientFiles { place, permit: limits::CACHE_FILES.quota().take(CLIENT, 2).unwrap() }
}

/// What a compiler goes by.
pub fn turns() -> (CallTurns, Arc<Watcher>) {
    (CallTurns::new(2), Arc::new(Watcher::new().unwrap()))
}

struct Bench {
    compiler: Compiler,
    acts: Sender<fn() -> BackendError>,
    told: Receiver<CompileError>,
    tell: Sender<CompileError>,
}

impl Bench {
    fn new(limits: Limits) -> Self {
        let (acts, puppet) = channel();
        let (tell, told) = channel();
        let puppet = Arc::new(Puppet(Mutex::new(puppet)));
        let cache = Arc::new(Cache::new(None, "driver"));
        let compiler = Compiler::new(puppet, limits, cache, None, turns()).unwrap();
        Bench { compiler, acts, told, tell }
    }

    fn submit(&self, client: u32, control: Control) -> Result<(), CompileError> {
        self.submit_model(client, control, model())
    }

    fn submit_model(&self, client: u32, control: Control, model: Model) -> Result<(), CompileError> {
        let model = CountedModel::new(model, &NeverInterrupted).unwrap();
        let options = CompileOptions::default();
        self.submit_work(client, control, Work::Compile { model, options, files: None, mappings: None })
    }

    fn submit_work(&self, client: u32, control: Control, work: Work) -> Result<(), CompileError> {
        let tell = self.tell.clone();
        let done = move |outcome: Outcome| {
            if let Err(error) = outcome {
                tell.send(error).unwrap();
            }
        };
        let control = Control { client, ..control };
        self.compiler.submit(Job { work, control, done: Box::new(done) })
    }
}

#[test]
fn jobs_are_limited_and_every_outcome_is_told() {
    let bench = Bench::new(Limits { threads: 2, jobs: jobs(4, 2) });
    bench.submit(CLIENT, Control::default()).unwrap();
    bench.submit(CLIENT, Control::default()).unwrap();
    let refused = bench.submit(CLIENT, Control::default());
    assert!(matches!(refused, Err(CompileError::TooManyJobs(Exhausted::ByClient(2)))));
    bench.submit(CLIENT + 1, Control::default()).unwrap();
    let refused = bench.submit(CLIENT + 1, Control::default());
    assert!(
        matches!(refused, Err(CompileError::TooManyJobs(Exhausted::ByShare(1)))),
        "one is left for others"
    );
    bench.submit(CLIENT + 2, Control::default()).unwrap();
    let refused = bench.submit(CLIENT + 3, Control::default());
    assert!(matches!(refused, Err(CompileError::TooManyJobs(Exhausted::ByAll(4)))));
    for _ in 0..4 {
        bench.acts.send(|| BackendError::Failed("as told".into())).unwrap();
        let told = bench.told.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(told, CompileError::Backend(BackendError::Failed(_))), "{told}");
    }
    bench.submit(CLIENT, Control::default()).expect("there is room again before the outcome is told");
    bench.acts.send(|| panic!("as the test wants it")).unwrap();
    assert!(matches!(bench.told.recv_timeout(PATIENCE), Ok(CompileError::Panicked)));
}

#[test]
fn what_waits_for_a_busy_device_has_no_thread_and_can_be_cancelled() {
    let bench = Bench::new(Limits { threads: 1, jobs: jobs(8, 1) });
    let (memory, fences) = memory_of_a_busy_device();
    let of_a_device = ClientSlice::whole(Arc::new(memory));
    let busy = || {
        let mut model = model();
        let lifetime = Lifetime::Constant(Constant::Client(of_a_device.clone()));
        model.main.operands.push(Operand { lifetime, ..model.main.operands[0].clone() });
        model
    };
    let (waits, gives_up) = (Control::default(), Control::default());
    bench.submit_model(CLIENT, waits, busy()).unwrap();
    bench.submit_model(CLIENT, gives_up.clone(), busy()).unwrap();
    bench.submit(CLIENT, Control::default()).unwrap();
    bench.acts.send(|| BackendError::Failed("not of a device".into())).unwrap();
    let told = || bench.told.recv_timeout(PATIENCE).expect("it has a thread").to_string();
    assert!(told().contains("not of a device"));
    gives_up.cancelled.set();
    assert!(told().contains("cancelled"));
    fences.write(1).unwrap();
    bench.acts.send(|| BackendError::Failed("of a device".into())).unwrap();
    assert!(told().contains("of a device"));
}

#[test]
fn what_waits_for_cache_files_has_no_thread_and_can_be_cancelled() {
    let bench = Bench::new(Limits { threads: 1, jobs: jobs(8, 1) });
    let gives_up = Control::default();
    let load = |files: ClientFiles, control: &Control| {
        let held = files.place.hold(&bench.compiler.shared.cache);
        bench.submit_work(CLIENT, control.clone(), Work::Load(files)).unwrap();
        held
    };
    let (held, _held) = (load(files(1), &Control::default()), load(files(2), &gives_up));
    bench.submit(CLIENT, Control::default()).unwrap();
    bench.acts.send(|| BackendError::Failed("of no files".into())).unwrap();
    let told = || bench.told.recv_timeout(PATIENCE).expect("it has a thread").to_string();
    assert!(told().contains("of no files"));
    gives_up.cancelled.set();
    assert!(told().contains("cancelled"));
    drop(held);
    assert_eq!(told(), CompileError::Caching(CacheError::Unknown.into()).to_string());
}

#[test]
fn what_is_late_or_cancelled_is_not_compiled() {
    let bench = Bench::new(Limits::default());
    bench.submit(CLIENT, Control { deadline_ns: Some(1), ..Control::default() }).unwrap();
    assert!(matches!(bench.told.recv_timeout(PATIENCE), Ok(CompileError::Expired)));
    let control = Control::default();
    control.cancelled.set();
    bench.submit(CLIENT, control).unwrap();
    let told = bench.told.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(told, CompileError::Backend(BackendError::Cancelled)), "{told}");
}

fn soon(happened: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !happened() {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A model that can be saved once it was compiled, and is as large as it was told to be.
#[derive(Default)]
struct Late {
    compiled: AtomicBool,
    bytes: usize,
    asked: AtomicUsize,
}

impl Executable for Late {
    fn interface(&self) -> &Interface {
        unreachable!("not asked for here")
    }

    fn artifact(&self, _: &Control) -> Result<Option<Artifact>, BackendError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let artifact = || Artifact { models: vec![vec![7; self.bytes]], data: vec![Vec::new()] };
        Ok(self.compiled.load(Ordering::SeqCst).then(artifact))
    }

    fn bind(self: Arc<Self>, _: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        unreachable!("not asked for here")
    }
}

const STORE_BYTES: u64 = 1 << 20;

/// A model of so many bytes that is to be stored under this token, and what it waits for.
fn unsaved(store: &Arc<Store>, token: u8, bytes: usize) -> (Arc<Late>, Arc<dyn Executable>, Unsaved) {
    let late = Arc::new(Late { bytes, ..Late::default() });
    let place =
        StorePlace { store: store.clone(), uid: CLIENT, name: saving::StoreName::Token(key(token).token) };
    let place = SavePlace::Store(place.into());
    (late.clone(), late, Unsaved::new(CLIENT, Some(place), None))
}

fn key(token: u8) -> Key {
    Key { uid: CLIENT, token: [token; 32] }
}

#[test]
fn what_is_compiled_later_is_saved_then_and_what_failed_for_good_is_not_tried_again() {
    let bench = Bench::new(Limits { threads: 2, jobs: jobs(2, 1) });
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::new(directory.path(), "driver", STORE_BYTES));
    let started = std::time::Instant::now();
    let (late, late_model, late_unsaved) = unsaved(&store, 1, 8);
    let (large, large_model, large_unsaved) = unsaved(&store, 2, STORE_BYTES as usize);
    large.compiled.store(true, Ordering::SeqCst);
    let execute_both = || {
        bench.compiler.used(&large_unsaved, &large_model);
        bench.compiler.used(&late_unsaved, &late_model);
    };
    let asked = |model: &Late| model.asked.load(Ordering::SeqCst);
    soon(|| {
        execute_both();
        asked(&late) == 1
    });
    late.compiled.store(true, Ordering::SeqCst);
    soon(|| {
        execute_both();
        store.load(&key(1)).is_ok()
    });
    assert!(started.elapsed() >= saving::FIRST_WAIT, "not at every execution");
    execute_both();
    // Nothing is under way any more.
    soon(|| bench.compiler.jobs.take(CLIENT, 2).is_ok());
    assert_eq!((asked(&late), asked(&large)), (2, 1));
    assert!(store.load(&key(2)).is_err());
}

#[test]
fn what_could_not_be_saved_is_saved_once_there_is_room() {
    let bench = Bench::new(Limits { threads: 2, jobs: jobs(2, 1) });
    let directory = tempfile::tempdir().unwrap();
    // No directory can be made where a file is.
    std::fs::write(directory.path().join("store"), b"").unwrap();
    let store = Arc::new(Store::new(directory.path(), "driver", STORE_BYTES));
    let (late, model, unsaved) = unsaved(&store, 1, 8);
    late.compiled.store(true, Ordering::SeqCst);
    // A job of its client's, it waits until there is room for it.
    let full = bench.compiler.jobs.take(CLIENT, 2).unwrap();
    bench.compiler.used(&unsaved, &model);
    assert_eq!(late.asked.load(Ordering::SeqCst), 0);
    drop(full);
    bench.compiler.used(&unsaved, &model);
    soon(|| late.asked.load(Ordering::SeqCst) == 1 && bench.compiler.jobs.take(CLIENT, 2).is_ok());
    assert!(store.load(&key(1)).is_err());
    std::fs::remove_file(directory.path().join("store")).unwrap();
    soon(|| {
        bench.compiler.used(&unsaved, &model);
        store.load(&key(1)).is_ok()
    });
}
