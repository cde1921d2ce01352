//! Compilations with a backend that does as the test says.

use super::*;
use crate::aidl;
use crate::backend::{Arguments, Artifact, BackendError, Binding, Info, Interface};
use crate::cache::Key;
use crate::scheduler::limits::Total;
use crate::scheduler::Exhausted;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Mutex;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);
const CLIENT: u32 = 7;

/// Compiles nothing; does what it is told when it is asked to.
struct Puppet(Mutex<Receiver<fn() -> BackendError>>);

impl Backend for Puppet {
    fn info(&self) -> Info {
        unreachable!("not asked for here")
    }

    fn support(&self, _: &Model) -> Vec<Result<(), String>> {
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

fn model() -> Model {
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
        let compiler = Compiler::new(puppet, limits, cache, None).unwrap();
        Bench { compiler, acts, told, tell }
    }

    fn submit(&self, client: u32, control: Control) -> Result<(), CompileError> {
        let tell = self.tell.clone();
        let done = move |outcome: Outcome| {
            if let Err(error) = outcome {
                tell.send(error).unwrap();
            }
        };
        let options = CompileOptions::default();
        let work = Work::Compile { model: model(), options, files: None };
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
fn what_is_late_or_cancelled_is_not_compiled() {
    let bench = Bench::new(Limits::default());
    bench.submit(CLIENT, Control { deadline_ns: Some(1), ..Control::default() }).unwrap();
    assert!(matches!(bench.told.recv_timeout(PATIENCE), Ok(CompileError::Expired)));
    let control = Control::default();
    control.cancelled.store(true, std::sync::atomic::Ordering::Relaxed);
    bench.submit(CLIENT, control).unwrap();
    let told = bench.told.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(told, CompileError::Backend(BackendError::Cancelled)), "{told}");
}

/// Never finished; says when it is asked to, and goes on until it is told to stop.
#[derive(Default)]
struct Endless {
    asked: AtomicUsize,
    stopped: Mutex<Option<BackendError>>,
}

impl Executable for Endless {
    fn interface(&self) -> &Interface {
        unreachable!("not asked for here")
    }

    fn is_finished(&self) -> bool {
        false
    }

    fn finish(&self, control: &Control) -> Result<(), BackendError> {
        assert!(control.client == CLIENT && control.priority == Priority::Low);
        self.asked.fetch_add(1, Ordering::SeqCst);
        loop {
            if let Err(why) = control.check() {
                *self.stopped.lock().unwrap() = Some(why.into());
                return Err(BackendError::Cancelled);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn bind(self: Arc<Self>, _: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        unreachable!("not asked for here")
    }
}

fn soon(happened: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !happened() {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_used_is_finished_once_and_no_longer_than_somebody_has_it() {
    let bench = Bench::new(Limits { threads: 2, jobs: jobs(3, 3) });
    let die = |orphaned: &AtomicBool| orphaned.store(true, Ordering::Relaxed);
    for dies in [false, true] {
        let (endless, orphaned) = (Arc::new(Endless::default()), Arc::<AtomicBool>::default());
        let (executable, rest) = (endless.clone() as Arc<dyn Executable>, Rest::new(CLIENT, None));
        (0..5).for_each(|_| bench.compiler.used(&rest, &executable, &orphaned));
        soon(|| endless.asked.load(Ordering::SeqCst) == 1);
        // It counts among the client's jobs; what finds no room has it later.
        assert!(bench.submit(CLIENT, Control::default()).is_err());
        let (second, waiting) = (Arc::new(Endless::default()), Rest::new(CLIENT, None));
        bench.compiler.used(&waiting, &(second.clone() as Arc<dyn Executable>), &orphaned);
        match dies {
            true => die(&orphaned),
            false => drop(rest),
        }
        soon(|| endless.stopped.lock().unwrap().is_some());
        assert_eq!(endless.asked.load(Ordering::SeqCst), 1);
        soon(|| {
            bench.compiler.used(&waiting, &(second.clone() as Arc<dyn Executable>), &Arc::default());
            second.asked.load(Ordering::SeqCst) == 1
        });
        drop(waiting);
        soon(|| second.stopped.lock().unwrap().is_some());
        soon(|| bench.compiler.jobs.take(CLIENT, 1).is_ok());
    }
}

/// Fails to be finished as long as there are errors left, and is worth keeping then.
#[derive(Default)]
struct Fickle {
    errors: Mutex<Vec<BackendError>>,
    asked: AtomicUsize,
    finished: AtomicBool,
}

impl Executable for Fickle {
    fn interface(&self) -> &Interface {
        unreachable!("not asked for here")
    }

    fn is_finished(&self) -> bool {
        self.finished.load(Ordering::SeqCst)
    }

    fn finish(&self, _: &Control) -> Result<(), BackendError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some(error) = self.errors.lock().unwrap().pop() {
            return Err(error);
        }
        self.finished.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn artifact(&self) -> Option<Artifact> {
        Some(Artifact { models: vec![b"finished".to_vec()], data: vec![Vec::new()] })
    }

    fn bind(self: Arc<Self>, _: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        unreachable!("not asked for here")
    }
}

#[test]
fn what_failed_for_want_of_memory_is_tried_again_after_a_while_and_what_failed_for_good_is_not() {
    let bench = Bench::new(Limits { threads: 2, jobs: jobs(2, 1) });
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::new(directory.path(), "driver", 1 << 20));
    let started = std::time::Instant::now();
    let case = |token: u8, error| {
        let fickle = Arc::new(Fickle { errors: Mutex::new(vec![error]), ..Fickle::default() });
        let place = StorePlace { store: store.clone(), key: Key { uid: CLIENT, token: [token; 32] } };
        (fickle.clone(), fickle as Arc<dyn Executable>, Rest::new(CLIENT, Some(Keep::Stored(place))))
    };
    let (scarce, scarce_model, scarce_rest) = case(1, BackendError::OutOfMemory(1 << 40));
    let (broken, broken_model, broken_rest) = case(2, BackendError::Failed("as told".into()));
    let execute_both = || {
        bench.compiler.used(&broken_rest, &broken_model, &Arc::default());
        bench.compiler.used(&scarce_rest, &scarce_model, &Arc::default());
    };
    let asked = |fickle: &Fickle| fickle.asked.load(Ordering::SeqCst);
    soon(|| {
        execute_both();
        asked(&scarce) == 2
    });
    assert!(started.elapsed() >= finishing::FIRST_WAIT, "not at every execution");
    soon(|| store.load(&Key { uid: CLIENT, token: [1; 32] }).is_ok());
    execute_both();
    // Nothing is under way any more.
    soon(|| bench.compiler.jobs.take(CLIENT, 2).is_ok());
    assert_eq!((asked(&scarce), asked(&broken)), (2, 1));
    assert!(store.load(&Key { uid: CLIENT, token: [2; 32] }).is_err());
}

#[test]
fn what_could_not_be_kept_is_kept_once_there_is_room() {
    let bench = Bench::new(Limits { threads: 2, jobs: jobs(2, 1) });
    let directory = tempfile::tempdir().unwrap();
    // No directory can be made where a file is.
    std::fs::write(directory.path().join("store"), b"").unwrap();
    let store = Arc::new(Store::new(directory.path(), "driver", 1 << 20));
    let key = Key { uid: CLIENT, token: [1; 32] };
    let fickle = Arc::new(Fickle::default());
    let place = StorePlace { store: store.clone(), key };
    let (model, rest) = (fickle.clone() as Arc<dyn Executable>, Rest::new(CLIENT, Some(Keep::Stored(place))));
    bench.compiler.used(&rest, &model, &Arc::default());
    soon(|| fickle.is_finished() && bench.compiler.jobs.take(CLIENT, 2).is_ok());
    assert!(store.load(&key).is_err());
    std::fs::remove_file(directory.path().join("store")).unwrap();
    soon(|| {
        bench.compiler.used(&rest, &model, &Arc::default());
        store.load(&key).is_ok()
    });
    assert_eq!(fickle.asked.load(Ordering::SeqCst), 1, "it was finished already");
}
