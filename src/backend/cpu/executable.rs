//! Compiled models as the driver sees them, and their executions: on the caller's thread, or in line for a turn.
//!
//! A model that is compiled just in time has private copies of its constants, as the client's may be gone by then.

use super::arguments::{Bound, Held, Memories};
use super::little::LittleCores;
use super::on_demand::OnDemand;
use super::pool::ThreadPool;
use super::program::{threads, Program};
use crate::backend::{
    pend, Argument, Arguments, Artifact, BackendError, Binding, CompileOptions, Completer, Control,
    Description, Executable, Interface, Memory, Outcome, Pending, Preference, Saved, Submission,
};
use crate::memory::ClientSlice;
use crate::model::{CountedModel, Model};
use crate::ops::Interrupt;
use crate::scheduler::limits::BUSY;
use crate::scheduler::marks::{self, Phase};
use crate::scheduler::{time_slices, Activity, Quota, ThreadCache, Turn, Turns, Underway};
use std::os::fd::OwnedFd;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What all models of one backend compute on.
pub struct Cores {
    pub pool: Arc<ThreadPool>,
    /// Whose turn it is to compute, on whatever thread.
    pub turns: Arc<Turns>,
    /// The threads of executions that were submitted. Each begins when it is its execution's turn: so there are few at once.
    /// One whose memory may be a device's begins sooner, because it waits for that first.
    executors: Arc<ThreadCache>,
    /// Who has how many of those.
    busy: Arc<Quota>,
    /// Where models run that are to save power, if the machine has such.
    pub little: Option<LittleCores>,
}

/// A compiled model, or one that its first run compiles.
pub struct CpuExecutable {
    interface: Interface,
    options: CompileOptions,
    cores: Arc<Cores>,
    program: OnDemand<CountedModel, Program>,
    /// Whether the last run took so long that long time slices are worth it.
    is_long: AtomicBool,
}

impl Cores {
    /// As many as `threads`, the caller's included.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let executors = ThreadCache::new("nnhal-execute", Duration::from_secs(5));
        let (pool, turns) = (Arc::new(ThreadPool::new(threads)?), Turns::new(threads));
        let (executors, busy, little) = (Arc::new(executors), BUSY.quota(), LittleCores::of_machine());
        Ok(Cores { pool, turns, executors, busy, little })
    }

    /// `control` with a turn, waited for as long as it allows; or with the one that its caller has.
    pub fn take_turn(&self, control: &Control) -> Result<Control, BackendError> {
        if control.turn.is_some() {
            return Ok(control.clone());
        }
        let turn = self.turns.take(control.client, control.priority, control)?;
        Ok(with_turn(control, turn))
    }
}

fn with_turn(control: &Control, turn: Turn) -> Control {
    Control { turn: Some(Arc::new(turn)), ..control.clone() }
}

impl CpuExecutable {
    /// Compiles a model of which every operation is supported.
    pub fn compile(
        model: &Model,
        options: &CompileOptions,
        cores: &Arc<Cores>,
        control: &Control,
    ) -> Result<Self, BackendError> {
        let _account = control.on_account();
        let (interface, options, cores) = (Interface::of(model), *options, cores.clone());
        let control = cores.take_turn(control)?;
        let (_long, _computes) = (time_slices::long_later(), control.computes());
        let program = if options.just_in_time {
            OnDemand::of(CountedModel::new(model.to_private(&control)?, &control)?)
        } else {
            OnDemand::made(Program::compile(model, &options, cores.pool.clone(), &control)?)
        };
        Ok(CpuExecutable { interface, options, cores, program, is_long: AtomicBool::new(false) })
    }

    /// Loads what [`Executable::artifact`] gave.
    pub fn load(
        saved: Saved,
        options: &CompileOptions,
        cores: &Arc<Cores>,
        control: &Control,
    ) -> Result<Self, BackendError> {
        let _account = control.on_account();
        let control = cores.take_turn(control)?;
        let (_long, _computes) = (time_slices::long_later(), control.computes());
        // Reading the files may have taken long.
        control.yield_point()?;
        let program = Program::load(saved, options.preference, cores.pool.clone(), &control)?;
        // There may be very many inputs and outputs: nobody waits until they are described once more.
        control.before_waiting();
        let (interface, cores) = (program.interface().clone(), cores.clone());
        let (program, is_long) = (OnDemand::made(program), AtomicBool::new(false));
        Ok(CpuExecutable { interface, options: *options, cores, program, is_long })
    }

    /// The program, compiled if it is not yet. For a thread that has a turn.
    fn program(&self, control: &Control) -> Result<&Program, BackendError> {
        if let Some(program) = self.program.get() {
            return Ok(program);
        }
        // Whoever compiles it waits for turns, which those who wait for the program must not have meanwhile.
        control.before_waiting();
        let program = self.program.get_or_make(control, |model| {
            control.yield_point()?;
            let _long = time_slices::long_later();
            Program::compile(model, &self.options, self.cores.pool.clone(), control)
        })?;
        control.yield_point()?;
        Ok(program)
    }
}

impl Executable for CpuExecutable {
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn bind(self: Arc<Self>, arguments: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        let bound = |what: &str, list: &[Option<Argument>]| {
            let bind = |(i, argument): (usize, &Option<Argument>)| {
                argument.as_ref().map(|argument| bind(&arguments, what, i, argument)).transpose()
            };
            list.iter().enumerate().map(bind).collect::<Result<Vec<_>, _>>()
        };
        let inputs = bound("input", &arguments.request.inputs)?;
        let outputs = bound("output", &arguments.request.outputs)?;
        let uses_pool = threads(self.options.preference) > 1;
        let ready = (arguments.reused && uses_pool).then(|| Box::new(self.cores.pool.warm()) as Ready);
        let memories = Memories::of(&inputs, &outputs);
        Ok(Arc::new(CpuBinding { executable: self, inputs, outputs, memories, _ready: ready }))
    }

    fn artifact(&self, control: &Control) -> Result<Option<Artifact>, BackendError> {
        let Some(program) = self.program.get() else { return Ok(None) };
        let _account = control.on_account();
        let control = self.cores.take_turn(control)?;
        let (_long, _computes) = (time_slices::long_later(), control.computes());
        Ok(Some(program.artifact(&control)?))
    }

    fn is_lost(&self) -> bool {
        self.program.get().is_some_and(Program::has_lost_data)
    }

    fn described(&self) -> usize {
        self.program.get().map_or(0, Program::described)
    }

    fn describe(&self, control: &Control) -> Result<Option<Description>, BackendError> {
        Ok(self.program.get().map(|program| program.describe(control)).transpose()?)
    }
}

/// Where `argument` lies in this process.
fn bind(arguments: &Arguments, what: &str, i: usize, argument: &Argument) -> Result<Bound, BackendError> {
    let Memory::Mapped(mapping) = arguments.memory(argument)? else {
        return Err(BackendError::Failed(format!("{what} {i} lies in the memory of another device")));
    };
    let data = ClientSlice::new(mapping.clone(), argument.offset, argument.length);
    let data = data.map_err(|source| BackendError::Memory { what: format!("{what} {i}"), source })?;
    Ok(Bound { data, dims: argument.dims.clone() })
}

/// Has the pool's threads stay awake for a while between runs.
type Ready = Box<dyn Send + Sync>;

/// A compiled model with the memory of its arguments.
struct CpuBinding {
    executable: Arc<CpuExecutable>,
    inputs: Vec<Option<Bound>>,
    outputs: Vec<Option<Bound>>,
    memories: Memories,
    _ready: Option<Ready>,
}

impl CpuBinding {
    fn hold(&self) -> Result<Held<'_>, BackendError> {
        Held::new(&self.inputs, &self.outputs, &self.memories)
    }

    /// Executes on this thread, which has a turn.
    fn compute(&self, held: Held, control: &Control) -> Result<Outcome, BackendError> {
        let (started, _computes) = (Instant::now(), control.computes());
        let underway = control.recorder.as_ref().map(|recorder| Underway::begin(recorder, Activity::Run));
        let CpuExecutable { cores, options, .. } = &*self.executable;
        let program = self.executable.program(control)?;
        let saves_power = options.preference == Preference::LowPower;
        let _stay = cores.little.as_ref().filter(|_| saves_power).map(LittleCores::stay);
        let is_long = &self.executable.is_long;
        let long = match is_long.load(Ordering::Relaxed) {
            true => time_slices::long_later(),
            false => time_slices::long_if_it_takes_long(),
        };
        let outputs = program.run(held, control);
        drop(long);
        let on_device = started.elapsed();
        is_long.store(on_device >= time_slices::LONG_WORK, Ordering::Relaxed);
        if let Some(underway) = underway {
            underway.end();
        }
        Ok(Outcome { outputs: outputs?, on_device })
    }
}

impl Binding for CpuBinding {
    fn submit(self: Arc<Self>, _: Vec<OwnedFd>, control: &Control) -> Result<Submission, BackendError> {
        if self.memories.may_be_busy() {
            let Cores { executors, busy, .. } = &*self.executable.cores;
            let place = busy.take(control.client, 1);
            let place =
                place.map_err(|why| BackendError::DeviceBusy(format!("too many {}: {why}", BUSY.what)))?;
            return pend(self.clone(), control, executors, place);
        }
        let (completer, pending) = Pending::promised();
        // Present until it begins to run, or is given up before.
        let waiting = Arc::new(Mutex::new(Some(completer)));
        let (begun, terms) = (waiting.clone(), control.clone());
        let turns = self.executable.cores.turns.clone();
        let begin = move |turn| begin(self, turn, terms, &begun);
        let in_line = turns.when_due(control.client, control.priority, Box::new(begin));
        let terms = control.clone();
        let cancel = move || {
            // With its place goes the client's memory, which nobody waits for any more.
            in_line.leave();
            cancel(&waiting, &terms);
        };
        Ok(Submission::Pending(pending.on_cancel(cancel)))
    }

    fn run(self: Arc<Self>, control: &Control) -> Result<Outcome, BackendError> {
        let _account = control.on_account();
        // Before there is a turn: while a device is busy with the memory, others can compute.
        self.memories.wait_until_idle(control)?;
        let held = self.hold()?;
        let control = self.executable.cores.take_turn(control)?;
        self.compute(held, &control)
    }
}

type Waiting = Mutex<Option<Completer>>;

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Ends an execution that stands in line still; one that runs looks to `control` itself.
fn cancel(waiting: &Waiting, control: &Control) {
    let why = match control.check() {
        Err(why) => why.into(),
        Ok(()) => {
            control.cancelled.set();
            BackendError::Cancelled
        }
    };
    if let Some(completer) = take(waiting) {
        completer.complete(Err(why));
    }
}

/// Begins an execution whose turn it is, on a thread of its own. Gives the turn back if it was given up meanwhile.
fn begin(binding: Arc<CpuBinding>, turn: Turn, control: Control, waiting: &Waiting) -> Result<(), Turn> {
    let Some(completer) = take(waiting) else { return Err(turn) };
    let work = Arc::new(Mutex::new(Some((turn, completer))));
    let (given, executors) = (work.clone(), binding.executable.cores.executors.clone());
    let run = move || {
        if let Some((turn, completer)) = take(&given) {
            let control = with_turn(&control, turn);
            let computed = catch_unwind(AssertUnwindSafe(|| {
                let _mark = marks::begin(|_| Phase::Execution, "run submitted");
                control.check()?;
                let _account = control.on_account();
                binding.compute(binding.hold()?, &control)
            }));
            // Memory and turn are given back before anybody hears of the end.
            drop((binding, control));
            let fault =
                || Err(BackendError::Failed("the driver panicked; this is a fault of its own".into()));
            completer.complete(computed.unwrap_or_else(|_| fault()));
        }
    };
    executors.run(run).or_else(|why| match take(&work) {
        Some((turn, completer)) => {
            completer.complete(Err(BackendError::DeviceBusy(format!("no thread to run on: {why}"))));
            Err(turn)
        }
        None => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples::{f32_info, Build};
    use super::*;
    use crate::memory::{memory_of_a_busy_device, Mapping};
    use crate::model::Request;
    use crate::ops::OperationType;
    use crate::scheduler::{boottime_ns, Watcher};
    use smallvec::smallvec;
    use std::sync::mpsc::channel;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// One element in, and one out.
    fn floor(cores: &Arc<Cores>) -> Arc<CpuExecutable> {
        let mut build = Build::new();
        let input = build.input(f32_info(&[1]));
        let output = build.call(OperationType::FLOOR, 0, &[input], f32_info(&[1]));
        let model = Model { main: build.finish(output), referenced: Vec::new(), relaxed: false };
        let (options, control) = (CompileOptions::default(), Control::default());
        Arc::new(CpuExecutable::compile(&model, &options, cores, &control).unwrap())
    }

    #[test]
    fn an_execution_waits_for_a_busy_device_as_long_as_it_may() {
        let (executable, control) = (floor(&Arc::new(Cores::new(1).unwrap())), Control::default());
        let (memory, fences) = memory_of_a_busy_device();
        // It is not to be written.
        fences.write(u64::MAX - 1).unwrap();
        let pools = vec![Some(Memory::Mapped(Arc::new(memory)))];
        let argument = |offset| Some(Argument { pool: 0, offset, length: 4, dims: smallvec![1] });
        let bind = || {
            let request = Request { inputs: vec![argument(0)], outputs: vec![argument(4)] };
            let arguments = Arguments { request, pools: pools.clone(), reused: false };
            executable.clone().bind(arguments).unwrap()
        };
        let soon = boottime_ns() + Duration::from_millis(50).as_nanos() as u64;
        let late = bind().run(&Control { deadline_ns: Some(soon), ..control.clone() });
        assert!(matches!(late, Err(BackendError::DeadlinePassed)), "{late:?}");
        let Ok(Submission::Pending(pending)) = bind().submit(Vec::new(), &control) else {
            panic!("there is a thread for it");
        };
        control.cancelled.set();
        let given_up = pending.wait(&Control::default());
        assert!(matches!(given_up, Err(BackendError::Cancelled)), "{given_up:?}");
        fences.read().unwrap();
        assert_eq!(bind().run(&Control::default()).unwrap().outputs.len(), 1);
    }

    #[test]
    fn an_execution_that_is_given_up_in_line_keeps_no_memory_of_its_client() {
        let (cores, control) = (Arc::new(Cores::new(1).unwrap()), Control::default());
        let executable = floor(&cores);
        let mapping = Arc::new(Mapping::anonymous(8).unwrap());
        let argument = |offset| Some(Argument { pool: 0, offset, length: 4, dims: smallvec![1] });
        let request = Request { inputs: vec![argument(0)], outputs: vec![argument(4)] };
        let pools = vec![Some(Memory::Mapped(mapping.clone()))];
        let binding = executable.bind(Arguments { request, pools, reused: false }).unwrap();
        let other = cores.take_turn(&Control { client: 1, ..Control::default() }).unwrap();
        let Ok(Submission::Pending(pending)) = binding.submit(Vec::new(), &control) else {
            panic!("another has the only turn");
        };
        let ((tell, heard), cancel) = (channel(), pending.canceller().unwrap());
        let held = mapping.clone();
        let told = move |outcome| tell.send((outcome, Arc::strong_count(&held))).unwrap();
        pending.then(&Watcher::new().unwrap(), Box::new(told));
        assert!(Arc::strong_count(&mapping) > 2, "it stands in line with its memory");
        cancel();
        let (outcome, holders) = heard.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(outcome, Err(BackendError::Cancelled)), "{outcome:?}");
        assert_eq!(holders, 2, "this test alone has it");
        assert_eq!(cores.turns.load().waiting, 0);
        drop(other);
    }
}
