//! Tests that a client has a model once, and that clients share none.

use super::*;
use crate::backend::cpu::CpuBackend;
use crate::backend::{Arguments, BackendError, Binding, Info, Interface, Preference};
use crate::compiler::tests::{turns, PATIENCE};
use crate::compiler::*;
use crate::memory::{ClientSlice, Mapping};
use crate::model::{Constant, Lifetime, Model, Operand};
use crate::ops::NeverInterrupted;
use crate::scheduler::boottime_ns;
use crate::tensor::{OperandType, TensorInfo};
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{channel, Receiver, Sender};

const CLIENT: u32 = 7;

/// Whether it is lost.
#[derive(Default)]
struct Losable(AtomicBool);

impl Executable for Losable {
    fn interface(&self) -> &Interface {
        unreachable!("not asked for here")
    }
    fn bind(self: Arc<Self>, _: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        unreachable!("not asked for here")
    }
    fn is_lost(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Tells when it is asked whether it is lost, and does not know before it is told itself.
struct Slow {
    asked: Mutex<Sender<()>>,
    known: Mutex<Receiver<()>>,
}

impl Executable for Slow {
    fn interface(&self) -> &Interface {
        unreachable!("not asked for here")
    }
    fn bind(self: Arc<Self>, _: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        unreachable!("not asked for here")
    }
    fn is_lost(&self) -> bool {
        self.asked.lock().unwrap().send(()).unwrap();
        self.known.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        true
    }
}

fn of(client: u32) -> Control {
    Control { client, ..Control::default() }
}

fn alive(found: Found) -> Option<Arc<dyn Executable>> {
    match found {
        Found::Alive(executable) => Some(executable),
        Found::Missing(_) => None,
    }
}

fn make(living: &Living, name: Name, client: u32) -> Arc<dyn Executable> {
    let Found::Missing(making) = living.find(name, &of(client)).unwrap() else { panic!("{name:?} is alive") };
    let executable: Arc<dyn Executable> = Arc::<Losable>::default();
    making.made(&executable);
    executable
}

#[test]
fn a_model_that_is_lost_is_made_anew() {
    let (living, losable) = (Living::default(), Arc::<Losable>::default());
    let executable: Arc<dyn Executable> = losable.clone();
    let Found::Missing(making) = living.find([1; 32], &of(CLIENT)).unwrap() else { panic!("it is alive") };
    making.made(&executable);
    assert!(alive(living.find([1; 32], &of(CLIENT)).unwrap()).is_some());
    losable.0.store(true, Ordering::SeqCst);
    let again = make(&living, [1; 32], CLIENT);
    assert!(Arc::ptr_eq(&alive(living.find([1; 32], &of(CLIENT)).unwrap()).unwrap(), &again));
}

#[test]
fn a_model_is_found_while_it_is_alive_and_by_its_client_alone() {
    let (living, prefix) = (Living::default(), [3; 8]);
    let executable = make(&living, [3; 32], CLIENT);
    let found = |client| alive(living.find([3; 32], &of(client)).unwrap());
    assert!(Arc::ptr_eq(&found(CLIENT).unwrap(), &executable));
    assert!(found(CLIENT + 1).is_none());
    assert_eq!([CLIENT, CLIENT + 1].map(|uid| living.has_like(uid, &prefix)), [true, false]);
    assert!(!living.has_like(CLIENT, &[4; 8]));
    living.also(CLIENT, [4; 32], &executable);
    assert!(Arc::ptr_eq(&alive(living.find([4; 32], &of(CLIENT)).unwrap()).unwrap(), &executable));
    drop(executable);
    assert!(!living.has_like(CLIENT, &prefix));
    assert!(found(CLIENT).is_none());
}

#[test]
fn whoever_asks_for_a_model_in_the_making_waits_for_it_within_its_terms() {
    let living = Living::default();
    let Found::Missing(making) = living.find([1; 32], &of(CLIENT)).unwrap() else { panic!("it is alive") };
    let late = Control { deadline_ns: Some(boottime_ns() + 1_000_000), ..of(CLIENT) };
    assert!(matches!(living.find([1; 32], &late), Err(OpError::DeadlinePassed)));
    assert!(alive(living.find([2; 32], &of(CLIENT)).unwrap()).is_none(), "another model");
    std::thread::scope(|scope| {
        let wait = || scope.spawn(|| alive(living.find([1; 32], &of(CLIENT)).unwrap()));
        let waits = || living.waiting.waits();
        let (first, second) = (wait(), wait());
        while waits() < 2 {
            std::thread::yield_now();
        }
        // It could not be made: one of them is to.
        drop(making);
        while !first.is_finished() && !second.is_finished() {
            std::thread::yield_now();
        }
        // It dropped its place at once, so the other one got it.
        assert!(first.join().unwrap().is_none() && second.join().unwrap().is_none());
    });
}

#[test]
fn a_model_without_a_name_yet_may_be_any_that_is_like_it() {
    let (living, prefix) = (Living::default(), [1; 8]);
    let making = living.begin(CLIENT, prefix).unwrap();
    assert!(living.has_like(CLIENT, &prefix));
    assert!(living.begin(CLIENT, prefix).is_none() && living.begin(CLIENT + 1, prefix).is_some());
    let late = Control { deadline_ns: Some(boottime_ns() + 1_000_000), ..of(CLIENT) };
    let mut other = [1; 32];
    other[31] = 2;
    assert!(matches!(living.find([1; 32], &late), Err(OpError::DeadlinePassed)));
    assert!(matches!(living.find(other, &late), Err(OpError::DeadlinePassed)));
    making.name([1; 32]);
    assert!(alive(living.find(other, &of(CLIENT)).unwrap()).is_none(), "it is not that one");
    let executable: Arc<dyn Executable> = Arc::<Losable>::default();
    making.made(&executable);
    assert!(Arc::ptr_eq(&alive(living.find([1; 32], &of(CLIENT)).unwrap()).unwrap(), &executable));
    // One that could not be made is in nobody's way.
    drop(executable);
    drop(living.begin(CLIENT, prefix).unwrap());
    assert!(!living.has_like(CLIENT, &prefix));
}

#[test]
fn to_find_out_whether_a_model_is_lost_keeps_nobody_else_waiting() {
    let (living, (tell, told), (know, known)) = (Living::default(), channel(), channel());
    let slow: Arc<dyn Executable> = Arc::new(Slow { asked: Mutex::new(tell), known: Mutex::new(known) });
    let Found::Missing(making) = living.find([1; 32], &of(CLIENT)).unwrap() else { panic!("it is alive") };
    making.made(&slow);
    let (tell_other, other) = channel();
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| alive(living.find([1; 32], &of(CLIENT)).unwrap()));
        told.recv_timeout(PATIENCE).unwrap();
        scope.spawn(|| {
            make(&living, [2; 32], CLIENT + 1);
            tell_other.send(()).unwrap();
        });
        let finds = other.recv_timeout(PATIENCE / 4);
        // Meanwhile another has found it lost, and made it anew.
        let anew: Arc<dyn Executable> = Arc::<Losable>::default();
        living.lock().put((CLIENT, [1; 32]), State::Made(Arc::downgrade(&anew)));
        know.send(()).unwrap();
        assert!(Arc::ptr_eq(&asks.join().unwrap().unwrap(), &anew));
        assert_eq!(finds, Ok(()));
    });
}

#[test]
fn the_place_of_a_model_that_was_made_and_lost_is_its_next_makers() {
    let (living, losable) = (Living::default(), Arc::<Losable>::default());
    let executable: Arc<dyn Executable> = losable.clone();
    let Found::Missing(making) = living.find([1; 32], &of(CLIENT)).unwrap() else { panic!("it is alive") };
    making.give_up_for(&executable);
    losable.0.store(true, Ordering::SeqCst);
    let Found::Missing(anew) = living.find([1; 32], &of(CLIENT)).unwrap() else { panic!("it is alive") };
    drop(making);
    let late = Control { deadline_ns: Some(boottime_ns() + 1_000_000), ..of(CLIENT) };
    assert!(matches!(living.find([1; 32], &late), Err(OpError::DeadlinePassed)), "it is in the making");
    drop(anew);
}

#[test]
fn a_model_that_is_saved_over_and_over_has_one_other_name() {
    let living = Living::default();
    let name = |i: u32| {
        let mut name = [7; 32];
        name[..4].copy_from_slice(&i.to_le_bytes());
        name
    };
    let [executable, other] = [[200; 32], [201; 32]].map(|name| make(&living, name, CLIENT));
    living.also(CLIENT, [202; 32], &other);
    (0..10_000).for_each(|i| living.also(CLIENT, name(i), &executable));
    assert_eq!(living.lock().by_name.len(), 4);
    for found in [[200; 32], name(9_999)] {
        assert!(Arc::ptr_eq(&alive(living.find(found, &of(CLIENT)).unwrap()).unwrap(), &executable));
    }
    assert!(Arc::ptr_eq(&alive(living.find([202; 32], &of(CLIENT)).unwrap()).unwrap(), &other));
}

#[test]
fn what_is_dead_is_forgotten() {
    let living = Living::default();
    let kept = make(&living, [254; 32], CLIENT);
    for i in 0..10_000u32 {
        let mut name = [0; 32];
        name[..4].copy_from_slice(&i.to_le_bytes());
        make(&living, name, CLIENT);
    }
    let noted = living.lock().by_name.len();
    assert!(noted <= 200, "{noted}");
    assert!(Arc::ptr_eq(&alive(living.find([254; 32], &of(CLIENT)).unwrap()).unwrap(), &kept));
}

/// Compiles on the CPU, and counts that.
struct Counting {
    cpu: CpuBackend,
    compiled: AtomicUsize,
}

impl Backend for Counting {
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
        self.compiled.fetch_add(1, Ordering::SeqCst);
        // The others come meanwhile.
        std::thread::sleep(Duration::from_millis(50));
        self.cpu.compile(model, options, control)
    }
}

/// FLOOR beside a constant of so many bytes, each of that value.
fn model(bytes: usize, value: u8) -> Model {
    let mut model = crate::compiler::tests::model();
    let slice = ClientSlice::whole(Arc::new(Mapping::anonymous(bytes).unwrap()));
    slice.write(&vec![value; bytes]).unwrap();
    model.main.operands.push(Operand {
        extension: None,
        info: TensorInfo::new(OperandType::TENSOR_QUANT8_ASYMM, &[bytes as u32]),
        lifetime: Lifetime::Constant(Constant::Client(slice)),
    });
    model
}

struct Bench {
    compiler: Compiler,
    backend: Arc<Counting>,
}

impl Bench {
    fn new() -> Self {
        let backend = Arc::new(Counting { cpu: CpuBackend::new(1).unwrap(), compiled: AtomicUsize::new(0) });
        let limits = Limits { threads: 4, ..Limits::default() };
        let cache = Arc::new(Cache::new(None, "driver"));
        let compiler = Compiler::new(backend.clone(), limits, cache, None, turns()).unwrap();
        Bench { compiler, backend }
    }

    fn begin(&self, client: u32, model: Model, options: CompileOptions) -> Receiver<Arc<dyn Executable>> {
        let (tell, told) = channel();
        let done = move |outcome: Outcome| {
            let _ = tell.send(outcome.unwrap().executable);
        };
        let work = Work::Compile {
            model: CountedModel::new(model, &NeverInterrupted).unwrap(),
            options,
            files: None,
            mappings: limits::MAPPINGS.quota().take(client, 1).ok(),
        };
        self.compiler.submit(Job { work, control: of(client), done: Box::new(done) }).unwrap();
        told
    }

    fn compiled(&self) -> usize {
        self.backend.compiled.swap(0, Ordering::SeqCst)
    }
}

fn told(all: Vec<Receiver<Arc<dyn Executable>>>) -> Vec<Arc<dyn Executable>> {
    all.into_iter().map(|told| told.recv_timeout(PATIENCE).unwrap()).collect()
}

#[test]
fn eight_compilations_of_one_client_make_one_model() {
    let (bench, plain) = (Bench::new(), CompileOptions::default());
    let eight =
        |client| told((0..8).map(|_| bench.begin(client, model(LEAST_CONSTANTS, 1), plain)).collect());
    let all = eight(CLIENT);
    assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])));
    assert_eq!(bench.compiled(), 1);
    let others = eight(CLIENT + 1);
    assert!(!Arc::ptr_eq(&others[0], &all[0]), "another client has its own");
    assert_eq!(bench.compiled(), 1);
    drop(all);
    eight(CLIENT);
    assert_eq!(bench.compiled(), 1, "what is gone is made anew");
}

#[test]
fn other_constants_and_other_wishes_make_other_models() {
    let (bench, plain) = (Bench::new(), CompileOptions::default());
    let low_power = CompileOptions { preference: Preference::LowPower, ..plain };
    let urgent = CompileOptions { priority: Priority::High, ..plain };
    let just_in_time = CompileOptions { just_in_time: true, ..plain };
    let large = 3 * LEAST_CONSTANTS;
    let all = told(vec![
        bench.begin(CLIENT, model(large, 1), plain),
        bench.begin(CLIENT, model(large, 2), plain),
        bench.begin(CLIENT, model(large + 1, 1), plain),
        bench.begin(CLIENT, model(large, 1), low_power),
        bench.begin(CLIENT, model(large, 1), urgent),
    ]);
    assert_eq!((bench.compiled(), all.len()), (5, 5));
    // Nothing is known of these, and these are made sooner than found.
    let others = [(large, just_in_time), (LEAST_CONSTANTS - 1, plain)];
    for (bytes, options) in others {
        told((0..2).map(|_| bench.begin(CLIENT, model(bytes, 1), options)).collect());
        assert_eq!(bench.compiled(), 2, "{bytes}");
    }
}
