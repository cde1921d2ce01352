//! Tests that compiling and running give the turn up often, whatever there is much of in a model. What is measured is the
//! processor time of the thread between two yield points, beside all of it: what else the machine does is not in it.

use super::arguments::{Bound, Held, Memories};
use super::compile::compile_for;
use super::constant::Constant as Compiled;
use super::executable::{Cores, CpuExecutable};
use super::little::{listed, LittleCores};
use super::pool::ThreadPool;
use super::program::Program;
use super::samples::{data_of, f32_info, floats, Build};
use crate::backend::{
    Argument, Arguments, Artifact, BackendError, Binding, CompileOptions, Control, Executable, Memory,
    Preference, Saved,
};
use crate::memory::{Budget, ClientSlice, Mapping};
use crate::model::{Constant, Lifetime, Model, Request, Subgraph};
use crate::ops::{NeverInterrupted, OpError, OperationType};
use crate::scheduler::{boottime_ns, Stop, Yield};
use crate::tensor::{OperandType, TensorInfo};
use nix::sched::sched_getaffinity;
use nix::time::{clock_gettime, ClockId};
use nix::unistd::Pid;
use smallvec::smallvec;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Operations, or inputs and outputs, of a model.
const MANY: usize = 30_000;
/// A stretch is at most one part in so many of the work, or so short that nobody minds.
const PARTS: u32 = 40;
const SHORT: Duration = Duration::from_millis(2);
/// Another thread may use up the caches, or the kernel's time be counted: each stretch's least time of so many.
const TRIES: usize = 5;

/// The stretches between yield points of one thread.
#[derive(Debug)]
struct Stretches(Mutex<Found>);

#[derive(Debug)]
struct Found {
    last: Duration,
    /// How long each took.
    each: Vec<Duration>,
    /// How often it was lent.
    lent: usize,
}

fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

impl Found {
    fn note(&mut self) {
        self.each.push(now() - self.last);
        // Whatever the list takes is not the work's.
        self.last = now();
    }
}

impl Yield for Stretches {
    fn pass(&self, _: &Control) -> Result<(), OpError> {
        self.0.lock().unwrap().note();
        Ok(())
    }

    fn lend(&self) {
        self.0.lock().unwrap().lent += 1;
    }

    fn threads(&self) -> usize {
        1
    }
}

/// What `work` comes by, and what it gives.
fn stretches<T>(work: impl FnOnce(&Control) -> T) -> (Found, T) {
    let stretches = Arc::new(Stretches(Mutex::new(Found { last: now(), each: Vec::new(), lent: 0 })));
    let control = Control { turn: Some(stretches.clone()), ..Control::default() };
    let given = work(&control);
    drop(control);
    let mut found = Arc::into_inner(stretches).unwrap().0.into_inner().unwrap();
    found.note();
    (found, given)
}

/// How often `work` could have given the turn up.
fn yield_points<T>(work: impl FnOnce(&Control) -> T) -> usize {
    stretches(work).0.each.len()
}

fn longest(each: &[Duration]) -> Duration {
    each.iter().copied().max().unwrap_or_default()
}

fn assert_gives_way<T>(what: &str, mut work: impl FnMut(&Control) -> T) {
    let mut least = Vec::new();
    for _ in 0..TRIES {
        let each = stretches(&mut work).0.each;
        if least.len() == each.len() {
            least.iter_mut().zip(each).for_each(|(least, took)| *least = took.min(*least));
        } else {
            least = each;
        }
        if longest(&least) <= SHORT.max(least.iter().sum::<Duration>() / PARTS) {
            return;
        }
    }
    let at = least.iter().position(|&took| took == longest(&least));
    let all: Duration = least.iter().sum();
    panic!("{what}: stretch {at:?} of {} takes {:?} of {all:?}", least.len(), longest(&least));
}

fn one() -> TensorInfo {
    f32_info(&[1])
}

/// Operations one after the other.
fn chain(count: usize) -> Subgraph {
    let mut b = Build::new();
    let mut last = b.input(one());
    for _ in 0..count {
        last = b.call(OperationType::FLOOR, 0, &[last], one());
    }
    b.finish(last)
}

/// As many inputs and outputs as operations.
fn wide(count: usize) -> Subgraph {
    let mut b = Build::new();
    let inputs: Vec<_> = (0..count).map(|_| b.input(one())).collect();
    let outputs: Vec<_> = inputs.iter().map(|&v| b.call(OperationType::FLOOR, 0, &[v], one())).collect();
    let mut model = b.finish(outputs[0]);
    outputs.iter().for_each(|&v| model.operands[v].lifetime = Lifetime::Output);
    model.outputs = outputs;
    model
}

/// Values that live long, and are read two by two.
fn pairs(count: usize) -> Subgraph {
    let mut b = Build::new();
    let (input, none) = (b.input(one()), b.ints(&[0])[0]);
    let made: Vec<_> = (0..count / 2).map(|_| b.call(OperationType::FLOOR, 0, &[input], one())).collect();
    let mut sum = made[0];
    for &other in made.iter().rev() {
        sum = b.call(OperationType::ADD, 0, &[sum, other, none], one());
    }
    b.finish(sum)
}

/// Helpers take some of the calls, but the thread that has the turn makes many itself.
#[test]
fn a_thread_gives_its_turn_up_between_calls_that_helpers_make_with_it() {
    let model = chain(MANY);
    let pool = ThreadPool::new(3).unwrap();
    let passed = |threads: usize| {
        yield_points(|control| compile_for(&model, (None, false), pool.team(threads), control).unwrap())
    };
    let (alone, together) = (passed(1), passed(3));
    // There is one for each call in a pass before.
    assert!(
        alone > 2 * MANY && together > MANY + MANY / 6,
        "{alone} yield points alone, {together} together"
    );
}

fn program(model: &Model, control: &Control) -> Program {
    let pool = Arc::new(ThreadPool::new(1).unwrap());
    Program::compile(model, &CompileOptions::default(), pool, control).unwrap()
}

fn saved(artifact: &Artifact) -> Saved {
    Saved { models: artifact.models.clone(), data: vec![data_of(artifact)] }
}

fn load(saved: Saved, control: &Control) -> Result<Program, BackendError> {
    let pool = Arc::new(ThreadPool::new(1).unwrap());
    Program::load(saved, Preference::default(), pool, control)
}

fn model(main: Subgraph) -> Model {
    Model { main, referenced: vec![], relaxed: false }
}

#[test]
fn models_of_many_operations_are_compiled_and_run_in_short_stretches() {
    for (name, graph) in
        [("a chain", chain(MANY)), ("inputs and outputs", wide(MANY)), ("pairs", pairs(MANY))]
    {
        let model = model(graph);
        assert_gives_way(&format!("{name}, compiled"), |control| program(&model, control));
        let program = program(&model, &Control::default());
        assert_gives_way(&format!("{name}, saved"), |control| program.artifact(control).unwrap());
        let artifact = program.artifact(&NeverInterrupted).unwrap();
        let mut saved: Vec<_> = (0..TRIES).map(|_| saved(&artifact)).collect();
        assert_gives_way(&format!("{name}, loaded"), |control| load(saved.pop().unwrap(), control).unwrap());
        let bound = |list: &[usize]| -> Vec<_> {
            let mapping = Arc::new(Mapping::anonymous(4 * MANY).unwrap());
            let slice = |i, len| ClientSlice::new(mapping.clone(), 4 * i, 4 * len).unwrap();
            let dims = list.iter().map(|&v| model.main.operands[v].info.dims.clone());
            dims.enumerate().map(|(i, dims)| Some(Bound { data: slice(i, dims[0] as usize), dims })).collect()
        };
        let (inputs, outputs) = (bound(&model.main.inputs), bound(&model.main.outputs));
        let memories = Memories::of(&inputs, &outputs);
        let held = |_| Held::new(&inputs, &outputs, &memories).unwrap();
        let mut held: Vec<_> = (0..TRIES).map(held).collect();
        assert_gives_way(&format!("{name}, run"), |control| {
            program.run(held.pop().unwrap(), control).unwrap()
        });
    }
}

/// Subgraphs of which nothing is left to be computed leave a loop nothing but its rounds.
#[test]
fn a_loop_without_steps_gives_its_turn_up() {
    let constant = |b: &mut Build| b.constant(one(), &[1.5f32]);
    let mut b = Build::new();
    b.input(one());
    let [x, y] = [(); 2].map(|()| constant(&mut b));
    let is_equal = b.call(OperationType::EQUAL, 0, &[x, y], TensorInfo::new(OperandType::TENSOR_BOOL8, &[1]));
    let condition = b.finish(is_equal);
    let mut b = Build::new();
    b.input(one());
    let x = constant(&mut b);
    let floor = b.call(OperationType::FLOOR, 0, &[x], one());
    let body = b.finish(floor);
    let mut b = Build::new();
    let input = b.input(one());
    let graphs =
        [0, 1].map(|graph| b.operand(TensorInfo::new(OperandType::SUBGRAPH, &[]), Lifetime::Subgraph(graph)));
    let out = b.call(OperationType::WHILE, 0, &[graphs[0], graphs[1], input], one());
    let model = Model { main: b.finish(out), referenced: vec![condition, body], relaxed: false };
    let program = program(&model, &Control::default());
    assert!(program.routines()[1..].iter().all(|routine| routine.steps.is_empty()), "all of it is known");
    let bound = || {
        let slice = ClientSlice::new(Arc::new(Mapping::anonymous(4).unwrap()), 0, 4).unwrap();
        [Some(Bound { data: slice, dims: smallvec![1] })]
    };
    let (inputs, outputs) = (bound(), bound());
    let memories = Memories::of(&inputs, &outputs);
    let passed = yield_points(|control| {
        let control = Control { loop_timeout: Duration::from_millis(50), ..control.clone() };
        let ran = program.run(Held::new(&inputs, &outputs, &memories).unwrap(), &control);
        assert!(matches!(ran, Err(BackendError::LoopTimeout(_))), "it never ends");
    });
    assert!(passed > 100, "{passed} yield points");
}

#[test]
fn constants_are_loaded_in_short_stretches() {
    const BYTES: usize = 16 << 20;
    let mut b = Build::new();
    let info = f32_info(&[(BYTES / 4) as u32]);
    let (input, none) = (b.input(info.clone()), b.ints(&[0])[0]);
    let constant = b.constant(info.clone(), &floats(BYTES / 4, 1.0));
    let sum = b.call(OperationType::ADD, 0, &[input, constant, none], info);
    let artifact = program(&model(b.finish(sum)), &Control::default()).artifact(&NeverInterrupted).unwrap();
    let loaded = yield_points(|control| load(saved(&artifact), control).unwrap());
    assert!(loaded >= BYTES >> 20, "{loaded} yield points");
}

#[test]
fn loading_waits_for_a_turn_and_heeds_its_deadline() {
    let cores = Arc::new(Cores::new(1).unwrap());
    let artifact = program(&model(chain(MANY)), &Control::default()).artifact(&NeverInterrupted).unwrap();
    let load = |control: &Control| {
        CpuExecutable::load(saved(&artifact), &CompileOptions::default(), &cores, control).map(drop)
    };
    load(&Control::default()).unwrap();
    let other = cores.take_turn(&Control { client: 1, ..Control::default() }).unwrap();
    let soon = Control { deadline_ns: Some(boottime_ns() + 20_000_000), ..Control::default() };
    assert!(matches!(load(&soon), Err(BackendError::DeadlinePassed)), "another has the only turn");
    drop(other);
    let cancelled = Control::default();
    let turn = StopsAt(10.into(), cancelled.cancelled.clone());
    let stopped = load(&Control { turn: Some(Arc::new(turn)), ..cancelled });
    assert!(matches!(stopped, Err(BackendError::Cancelled)), "{stopped:?}");
}

#[test]
fn saving_waits_for_a_turn_heeds_its_deadline_and_leaves_the_model_as_it_was() {
    let cores = Arc::new(Cores::new(1).unwrap());
    let control = Control::default();
    let executable =
        CpuExecutable::compile(&model(chain(MANY)), &CompileOptions::default(), &cores, &control).unwrap();
    let whole = executable.artifact(&control).unwrap().unwrap();
    let other = cores.take_turn(&Control { client: 1, ..Control::default() }).unwrap();
    let soon = Control { deadline_ns: Some(boottime_ns() + 20_000_000), ..Control::default() };
    assert!(matches!(executable.artifact(&soon), Err(BackendError::DeadlinePassed)), "another has the turn");
    drop(other);
    let cancelled = Control::default();
    let turn = StopsAt(2.into(), cancelled.cancelled.clone());
    let stopped = executable.artifact(&Control { turn: Some(Arc::new(turn)), ..cancelled });
    assert!(matches!(stopped, Err(BackendError::Cancelled)));
    let budget = Budget::new(whole.models[0].len() as u64);
    let short = Control { budget: Some(budget), ..Control::default() };
    assert!(matches!(executable.artifact(&short), Err(BackendError::OutOfMemory(_))));
    assert_eq!(executable.artifact(&control).unwrap().unwrap().models, whole.models);
}

/// Cancels the work at a yield point.
#[derive(Debug)]
struct StopsAt(AtomicUsize, Arc<Stop>);

impl Yield for StopsAt {
    fn pass(&self, _: &Control) -> Result<(), OpError> {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.1.set();
        }
        Ok(())
    }

    fn threads(&self) -> usize {
        1
    }
}

/// A model of one float, with memory for its input and its output.
fn bound(executable: CpuExecutable) -> Arc<dyn Binding> {
    let argument = |offset| Some(Argument { pool: 0, offset, length: 4, dims: smallvec![1] });
    let request = Request { inputs: vec![argument(0)], outputs: vec![argument(4)] };
    let pools = vec![Some(Memory::Mapped(Arc::new(Mapping::anonymous(8).unwrap())))];
    Arc::new(executable).bind(Arguments { request, pools, reused: false }).unwrap()
}

/// Notes on how many cores the thread may run at yield points.
#[derive(Debug, Default)]
struct NotesCores(Mutex<Vec<usize>>);

impl Yield for NotesCores {
    fn pass(&self, _: &Control) -> Result<(), OpError> {
        self.0.lock().unwrap().push(own_cores().len());
        Ok(())
    }

    fn threads(&self) -> usize {
        1
    }
}

/// The cores on which this thread may run.
fn own_cores() -> Vec<usize> {
    listed(&sched_getaffinity(Pid::from_raw(0)).unwrap())
}

#[test]
fn what_is_to_save_power_runs_on_little_cores() {
    let all = own_cores();
    if all.len() < 2 {
        return eprintln!("skipped: the process has one core");
    }
    let mut cores = Cores::new(1).unwrap();
    cores.little = LittleCores::of(&all[..1]);
    let cores = Arc::new(cores);
    for (preference, expected) in [
        (Preference::LowPower, 1),
        (Preference::FastSingleAnswer, all.len()),
        (Preference::SustainedSpeed, all.len()),
    ] {
        let options = CompileOptions { preference, ..CompileOptions::default() };
        let compiled = CpuExecutable::compile(&model(chain(100)), &options, &cores, &Control::default());
        let (binding, notes) = (bound(compiled.unwrap()), Arc::new(NotesCores::default()));
        binding.run(&Control { turn: Some(notes.clone()), ..Control::default() }).unwrap();
        let noted = notes.0.lock().unwrap();
        let is_there = !noted.is_empty() && noted.iter().all(|&cores| cores == expected);
        assert!(is_there, "{preference:?}: {noted:?}");
        assert_eq!(own_cores(), all, "it came back");
    }
}

#[test]
fn what_is_compiled_just_in_time_gives_way() {
    const OPERATIONS: usize = 100;
    let (cores, model) = (Arc::new(Cores::new(1).unwrap()), model(chain(OPERATIONS)));
    let options = CompileOptions { just_in_time: true, ..CompileOptions::default() };
    let compile =
        |model: &Model, control: &Control| CpuExecutable::compile(model, &options, &cores, control).unwrap();
    let binding = bound(compile(&model, &Control::default()));
    let found = [(); 2].map(|()| stretches(|control| binding.clone().run(control).unwrap()).0);
    // While another compiles it, and before what a run had is let go of.
    assert_eq!([found[0].lent, found[1].lent], [2, 1]);
    let passed = found.map(|found| found.each.len());
    assert!(passed[0] > passed[1] + OPERATIONS, "{passed:?} yield points with and without compiling");
    let many = self::model(chain(MANY));
    assert_gives_way("copied", |control| compile(&many, control));
}

#[test]
fn what_a_product_is_gone_on_with_may_take_longer_than_the_product() {
    const ROWS: u32 = 1 << 14;
    const COLUMNS: u32 = 32;
    const STEPS: usize = 20;
    let mut b = Build::new();
    let input = b.input(f32_info(&[ROWS, 1]));
    let filter = b.constant(f32_info(&[COLUMNS, 1]), &floats(COLUMNS as usize, 1.0));
    let bias = b.constant(f32_info(&[COLUMNS]), &floats(COLUMNS as usize, 2.0));
    let (none, image) = (b.ints(&[0])[0], f32_info(&[ROWS, COLUMNS]));
    let mut last = b.call(OperationType::FULLY_CONNECTED, 0, &[input, filter, bias, none], image.clone());
    for _ in 0..STEPS {
        last = b.call(OperationType::SIN, 0, &[last], image.clone());
    }
    let sum = b.call(OperationType::ADD, 0, &[last, last, none], image.clone());
    let largest = b.call(OperationType::MAXIMUM, 0, &[sum, input], image);
    let model = b.finish(largest);
    let pool = Arc::new(ThreadPool::new(1).unwrap());
    let routine = compile_for(&model, (None, false), pool.team(1), &Control::default()).unwrap();
    assert_eq!(routine.followed[0].steps, 0..STEPS + 2, "they go together");
    let program = Program::of_routine(routine, pool);
    let slice = |len: u32| ClientSlice::whole(Arc::new(Mapping::anonymous(4 * len as usize).unwrap()));
    let bound = |dims: [u32; 2]| [Some(Bound { data: slice(dims[0] * dims[1]), dims: dims[..].into() })];
    let (inputs, outputs) = (bound([ROWS, 1]), bound([ROWS, COLUMNS]));
    let memories = Memories::of(&inputs, &outputs);
    let held = Held::new(&inputs, &outputs, &memories).unwrap();
    let passed = yield_points(|control| program.run(held, control).unwrap());
    // A step of an element takes some nanoseconds.
    assert!(passed >= ROWS as usize * COLUMNS as usize * STEPS / 1_000_000, "{passed} yield points");
}

#[test]
fn constants_are_copied_in_short_stretches() {
    const BYTES: usize = 16 << 20;
    let slice = ClientSlice::whole(Arc::new(Mapping::anonymous(BYTES).unwrap()));
    let constant = Constant::Client(slice);
    let compiled = Compiled::from(constant.clone());
    let copied = yield_points(|control| compiled.private(control).unwrap());
    let mut b = Build::new();
    let info = f32_info(&[(BYTES / 4) as u32]);
    let (input, constant) = (b.input(info.clone()), b.operand(info.clone(), Lifetime::Constant(constant)));
    let none = b.ints(&[0])[0];
    let sum = b.call(OperationType::ADD, 0, &[input, constant, none], info);
    let model = model(b.finish(sum));
    let compiled = yield_points(|control| program(&model, control));
    let made_private = yield_points(|control| model.to_private(control).unwrap());
    assert!(
        copied.min(compiled).min(made_private) >= BYTES >> 20,
        "{copied}, {compiled}, {made_private} yield points"
    );
}

#[test]
fn filters_are_packed_in_short_stretches() {
    use OperandType::*;
    const CHANNELS: u32 = 1 << 20;
    let types = [TENSOR_FLOAT32, TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED];
    for (ty, bias) in types.into_iter().zip([TENSOR_FLOAT32, TENSOR_INT32, TENSOR_INT32]) {
        let mut b = Build::new();
        let info = |ty, dims: &[u32], scale| TensorInfo::quantised(ty, dims, scale, 0);
        let scale = if ty == TENSOR_FLOAT32 { 0.0 } else { 0.5 };
        let pixel = info(ty, &[1, 1, 1, CHANNELS], scale);
        let input = b.input(info(ty, &[1, 3, 1, CHANNELS], scale));
        let filter = info(ty, &[1, 3, 1, CHANNELS], scale);
        let bytes = vec![0u8; filter.byte_size().unwrap()];
        let filter = b.constant(filter, &bytes);
        let bias = b.constant(info(bias, &[CHANNELS], scale * scale), &vec![0u8; 4 * CHANNELS as usize]);
        let steering = b.ints(&[2, 1, 1, 1, 0]);
        let out = b.call(
            OperationType::DEPTHWISE_CONV_2D,
            0,
            &[&[input, filter, bias][..], &steering].concat(),
            pixel,
        );
        let model = b.finish(out);
        let pool = ThreadPool::new(1).unwrap();
        let passed =
            yield_points(|control| compile_for(&model, (None, false), pool.team(1), control).unwrap());
        assert!(passed >= (3 * CHANNELS as usize) >> 16, "{ty}: {passed} yield points");
    }
}
