//! Tests that clients whose saves wait for the disk, or for files that others use, keep nobody else from computing and
//! compiling.

use super::tests::{files, model, turns, CLIENT, PATIENCE};
use super::*;
use crate::aidl;
use crate::backend::cpu::CpuBackend;
use crate::backend::{Arguments, Artifact, BackendError, Binding, Info, Interface, Saved};
use crate::model::Model;
use crate::ops::NeverInterrupted;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Mutex;
use std::time::Duration;

/// Compiles on the CPU.
struct Slow {
    cpu: Arc<CpuBackend>,
    /// Told, as a save begins or what was found is loaded, how many compute.
    began: Sender<usize>,
    /// No save goes on while this is held.
    disk: Arc<Mutex<()>>,
}

impl Backend for Slow {
    fn info(&self) -> Info {
        self.cpu.info()
    }

    fn support(&self, model: &Model, control: &Control) -> Vec<Result<(), String>> {
        self.cpu.support(model, control)
    }

    fn compile(
        &self,
        model: &Model,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        let compiled = self.cpu.compile(model, options, control)?;
        let (cpu, began, disk) = (self.cpu.clone(), self.began.clone(), self.disk.clone());
        Ok(Arc::new(SavedSlowly { compiled, cpu, began, disk }))
    }

    fn load(
        &self,
        saved: Saved,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        self.began.send(self.cpu.load_now().unwrap().running).unwrap();
        self.cpu.load(saved, options, control)
    }
}

struct SavedSlowly {
    compiled: Arc<dyn Executable>,
    cpu: Arc<CpuBackend>,
    began: Sender<usize>,
    disk: Arc<Mutex<()>>,
}

impl Executable for SavedSlowly {
    fn interface(&self) -> &Interface {
        self.compiled.interface()
    }

    fn artifact(&self, control: &Control) -> Result<Option<Artifact>, BackendError> {
        let load = self.cpu.load_now().unwrap();
        self.began.send(load.running).unwrap();
        drop(self.disk.lock());
        self.compiled.artifact(control)
    }

    fn bind(self: Arc<Self>, arguments: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        self.compiled.clone().bind(arguments)
    }
}

#[test]
fn a_client_whose_saves_wait_keeps_no_turn_and_nobody_else_waiting() {
    const THREADS: usize = 2;
    let (began, begun) = channel();
    let (tell, told) = channel();
    let disk = Arc::<Mutex<()>>::default();
    let cpu = Arc::new(CpuBackend::new(1).unwrap());
    let backend = Arc::new(Slow { cpu, began, disk: disk.clone() });
    let cache = Arc::new(Cache::new(None, "driver"));
    let limits = Limits { threads: THREADS, jobs: limits::JOBS };
    let compiler = Compiler::new(backend, limits, cache, None, turns()).unwrap();
    let submit = |client: u32, files: Option<ClientFiles>| {
        let (options, tell) = (CompileOptions::default(), tell.clone());
        let work = Work::Compile {
            model: CountedModel::new(model(), &NeverInterrupted).unwrap(),
            options,
            files,
            mappings: None,
        };
        let done = move |outcome: Outcome| tell.send((client, outcome.is_ok())).unwrap();
        let control = Control { client, ..Control::default() };
        compiler.submit(Job { work, control, done: Box::new(done) }).unwrap();
    };
    let waits = disk.lock().unwrap();
    (0..=THREADS as u8).for_each(|token| submit(CLIENT, Some(files(token))));
    let saves: Vec<_> = (0..THREADS).map(|_| begun.recv_timeout(PATIENCE).unwrap()).collect();
    // Of two that save one may still see the other compute.
    assert!(saves.contains(&0), "who saves keeps others from computing: {saves:?}");
    assert!(begun.recv_timeout(Duration::from_millis(50)).is_err(), "its own wait for it");
    submit(CLIENT + 1, None);
    assert_eq!(told.recv_timeout(PATIENCE), Ok((CLIENT + 1, true)));
    drop(waits);
    (0..=THREADS).for_each(|_| assert_eq!(told.recv_timeout(PATIENCE), Ok((CLIENT, true))));
}

/// The sum of an input and of constants that are worth storing.
fn large_model() -> Model {
    use aidl::OperandLifeTime as L;
    const ELEMENTS: usize = LEAST_CONSTANTS / 4;
    let operand = |ty, dims: &[i32], lifetime, [offset, length]: [i64; 2]| aidl::Operand {
        r#type: ty,
        dimensions: dims.to_vec(),
        lifetime,
        location: aidl::DataLocation { offset, length, ..Default::default() },
        ..Default::default()
    };
    let floats =
        |lifetime, place| operand(aidl::OperandType::TENSOR_FLOAT32, &[ELEMENTS as i32], lifetime, place);
    let bytes = LEAST_CONSTANTS as i64;
    let operands = vec![
        floats(L::SUBGRAPH_INPUT, [0, 0]),
        floats(L::CONSTANT_COPY, [0, bytes]),
        operand(aidl::OperandType::INT32, &[], L::CONSTANT_COPY, [bytes, 4]),
        floats(L::SUBGRAPH_OUTPUT, [0, 0]),
    ];
    let add = aidl::Operation { r#type: aidl::OperationType::ADD, inputs: vec![0, 1, 2], outputs: vec![3] };
    let main =
        aidl::Subgraph { operands, operations: vec![add], inputIndexes: vec![0], outputIndexes: vec![3] };
    let values = vec![0; LEAST_CONSTANTS + 4];
    Model::new(&aidl::Model { main, operandValues: values, ..Default::default() }).unwrap()
}

/// A compiler with a store, whose saves and loads tell how many had a turn, and compilations of a client's with it.
struct Stored {
    compiler: Compiler,
    watcher: Arc<Watcher>,
    begun: Receiver<usize>,
    _directory: tempfile::TempDir,
}

impl Stored {
    fn new() -> Self {
        let (began, begun) = channel();
        let directory = tempfile::tempdir().unwrap();
        let cpu = Arc::new(CpuBackend::new(1).unwrap());
        let backend = Arc::new(Slow { cpu, began, disk: Arc::default() });
        let store = Store::new(directory.path(), "driver", 64 << 20);
        let cache = Arc::new(Cache::new(None, "driver"));
        let (turns, watcher) = turns();
        let turns = (turns, watcher.clone());
        let compiler = Compiler::new(backend, Limits::default(), cache, Some(store), turns).unwrap();
        Stored { compiler, watcher, begun, _directory: directory }
    }

    fn compile(&self, client: u32) -> Compiled {
        let (tell, told) = channel();
        let model = CountedModel::new(large_model(), &NeverInterrupted).unwrap();
        let options = CompileOptions::default();
        let work = Work::Compile { model, options, files: None, mappings: None };
        let control = Control { client, ..Control::default() };
        let done = move |outcome: Outcome| tell.send(outcome.ok()).unwrap();
        self.compiler.submit(Job { work, control, done: Box::new(done) }).unwrap();
        told.recv_timeout(PATIENCE).unwrap().expect("it is compiled")
    }
}

#[test]
fn what_is_looked_up_in_the_store_keeps_no_turn() {
    let stored = Stored::new();
    let first = stored.compile(CLIENT);
    assert!(stored.begun.try_recv().is_err(), "there is nothing to be found");
    stored.compiler.used(&first.unsaved, &first.executable);
    assert_eq!(stored.begun.recv_timeout(PATIENCE), Ok(0), "who saves keeps others from computing");
    stored.compiler.settle();
    // Its client would get it again otherwise.
    drop(first);
    stored.compile(CLIENT);
    assert_eq!(stored.begun.recv_timeout(PATIENCE), Ok(0), "who loads keeps others from computing");
}

#[test]
fn saves_that_are_not_yet_due_have_no_thread() {
    let stored = Stored::new();
    let (hold, held) = channel::<()>();
    stored.watcher.at(0, Box::new(move || _ = held.recv()));
    let compiled: Vec<_> = (0..4).map(|i| stored.compile(CLIENT + i)).collect();
    let busy = || stored.compiler.load().running + stored.compiler.load().waiting;
    while busy() > 0 {
        // Who compiled the last one has told of it, and is about to end.
        std::thread::yield_now();
    }
    compiled.iter().for_each(|model| stored.compiler.used(&model.unsaved, &model.executable));
    assert_eq!(busy(), 0, "time does not pass for the watcher");
    drop(hold);
    assert_eq!(stored.begun.recv_timeout(PATIENCE), Ok(0), "they are made");
    stored.compiler.settle();
}
