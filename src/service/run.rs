//! The one path that every way to execute takes once its arguments are known: bind, run, report.

use super::arguments::{check_access, resolve, FindMemory};
use super::buffer;
use super::prepared::Prepared;
use super::status::ServiceError;
use super::terms::{check_deadline, Terms};
use crate::aidl;
use crate::backend::{
    Argument, Arguments, BackendError, Binding, Control, Memory, Outcome, OutputShape, Preference,
};
use crate::buffer::{Claims, Uses};
use crate::memory::{Counted, MemoryError};
use crate::model::{Request, RequestPool};
use crate::ops::pace::Pace;
use crate::ops::{Interrupt, NeverInterrupted};
use crate::scheduler::marks::{self, Phase};
use crate::scheduler::{caller_gone, polling, Holds, Permit, Stop, Turn};
use crate::statistics::Running;
use crate::tensor::{Dims, TensorInfo};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many arguments, or pools, are checked without a turn.
const FEW: usize = 1000;
/// An execution is long to begin and to end where what describes it, or the memory that it has mapped, is more than this.
const LONG_DESCRIPTION: usize = 128 << 10;
const MUCH_MAPPED: usize = 64 << 20;
/// Elementary steps that it takes to find where a claimed argument lies, about.
const CLAIMED: usize = 64;

/// Where arguments lie in device buffers each run has copies of its own of what describes them, bound and claimed: about so many
/// times as much with what the execution keeps.
const WITH_RUNS: usize = 3;

/// A request that has been checked and whose memory was found: all that is left is to run it.
pub(super) struct Execution {
    prepared: Arc<Prepared>,
    bound: Bound,
    /// How many memories it has mapped, at most.
    mappings: usize,
    terms: Terms,
    /// The first output whose dimensions nobody knows yet.
    unknown_output: Option<usize>,
    /// About the bytes of what describes its arguments and pools, of which there may be very many.
    described_by: usize,
    /// Bytes of the memory that it has mapped.
    mapped: usize,
    _counted: Counted,
}

/// What an execution is bound to.
enum Bound {
    /// All of its memory.
    Whole(Arc<dyn Binding>),
    /// Nothing yet: some arguments are device buffers, whose memory is known only while they are claimed.
    WithBuffers { arguments: Arguments, buffers: Uses },
}

/// What an execution is for.
#[derive(Clone, Copy)]
pub(super) struct Purpose {
    pub terms: Terms,
    /// A fenced execution needs every output's dimensions ahead.
    pub fenced: bool,
    /// Whether it is likely to run more than once.
    pub reused: bool,
}

impl Execution {
    /// Checks `request`, which the calling client makes, against the model and finds the memory of its pools by `find`.
    pub fn new(
        prepared: &Arc<Prepared>,
        request: &aidl::Request,
        purpose: Purpose,
        find: FindMemory,
    ) -> Result<Self, ServiceError> {
        let interface = prepared.executable.interface();
        let (ins, outs) = (&interface.inputs, &interface.outputs);
        let (inputs, outputs) = (&request.inputs, &request.outputs);
        let turn = turn_to_check(prepared, [inputs.len(), outputs.len(), request.pools.len()], caller_gone)?;
        let interrupt = interrupt(turn.as_ref().map(|(turn, _)| turn));
        let pools = RequestPool::decode(&request.pools, interrupt)?;
        let checked = Request::new(inputs, outputs, &pools, ins, outs, purpose.fenced, interrupt)?;
        let (tracker, owner) = (&prepared.core.buffers, buffer::caller());
        let buffers = Uses::new(tracker, owner, prepared.id, &checked, &pools, interrupt)?;
        drop(turn);
        let memories = resolve(&checked, &pools, find)?;
        Execution::bound(prepared, checked, memories, buffers, purpose)
    }

    /// Checks a request whose arguments lie in `memories`, one per pool, unless it is `cancelled`.
    pub fn over(
        prepared: &Arc<Prepared>,
        (inputs, outputs): (&[aidl::RequestArgument], &[aidl::RequestArgument]),
        memories: &[Memory],
        purpose: Purpose,
        cancelled: &Arc<Stop>,
    ) -> Result<Self, ServiceError> {
        let interface = prepared.executable.interface();
        let known = |memory: &Memory| RequestPool::Known { size: memory.len(), is_image: memory.is_image() };
        let pools: Vec<_> = memories.iter().map(known).collect();
        let turn = turn_to_check(prepared, [inputs.len(), outputs.len(), pools.len()], || cancelled.clone())?;
        let (ins, outs) = (&interface.inputs, &interface.outputs);
        let interrupt = interrupt(turn.as_ref().map(|(turn, _)| turn));
        let checked = Request::new(inputs, outputs, &pools, ins, outs, purpose.fenced, interrupt)?;
        drop(turn);
        let memories: Vec<_> = memories.iter().cloned().map(Some).collect();
        check_access(&checked, &memories)?;
        Execution::bound(prepared, checked, memories, Uses::default(), purpose)
    }

    fn bound(
        prepared: &Arc<Prepared>,
        request: Request,
        pools: Vec<Option<Memory>>,
        buffers: Uses,
        purpose: Purpose,
    ) -> Result<Self, ServiceError> {
        let unknown_output = unknown_output(&prepared.executable.interface().outputs, &request.outputs);
        let mappings = pools.iter().flatten().count();
        let mapped = pools.iter().flatten().fold(0_usize, |sum, pool| sum.saturating_add(pool.len()));
        let described_by = request.footprint() + size_of_val(&pools[..]) + buffers.footprint();
        let bytes = if buffers.is_empty() { described_by } else { WITH_RUNS * described_by };
        let out_of_memory = || {
            let source = MemoryError::OutOfMemory(bytes);
            ServiceError::Memory { what: "the request's arguments".into(), source }
        };
        let counted = Counted::take(bytes).ok_or_else(out_of_memory)?;
        let arguments = Arguments { request, pools, reused: purpose.reused };
        let bound = if buffers.is_empty() {
            Bound::Whole(prepared.executable.clone().bind(arguments)?)
        } else {
            Bound::WithBuffers { arguments, buffers }
        };
        let (prepared, terms) = (prepared.clone(), purpose.terms);
        Ok(Execution {
            prepared,
            bound,
            mappings,
            terms,
            unknown_output,
            described_by,
            mapped,
            _counted: counted,
        })
    }

    /// Counts what describes its arguments and pools once more, for who keeps that as it came, too. `None` where its client has
    /// no room.
    pub fn count_again(&self) -> Option<Counted> {
        Counted::take(self.described_by)
    }

    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// Whether to begin it, or to let go of what it holds, may take a thread too long that others wait for.
    pub fn is_long(&self) -> bool {
        self.described_by > LONG_DESCRIPTION || self.mapped > MUCH_MAPPED
    }

    /// How many memories it has mapped, at most.
    pub fn mappings(&self) -> usize {
        self.mappings
    }

    pub fn prepared(&self) -> &Arc<Prepared> {
        &self.prepared
    }

    /// Checks that it can be fenced: nobody could be told that an output was too small.
    pub fn check_fenced(&self) -> Result<(), ServiceError> {
        match self.unknown_output {
            Some(i) => Err(ServiceError::argument(format!(
                "output {i}: its dimensions must be known for a fenced execution"
            ))),
            None => Ok(()),
        }
    }

    /// Checks that its device buffers could be used right now: an error that the call must give at once, not behind a fence.
    pub fn check_buffers(&self) -> Result<(), ServiceError> {
        if let Bound::WithBuffers { buffers, .. } = &self.bound {
            let turn = || turn_within_a_place(&self.prepared, caller_gone());
            let turn = self.is_long_to_claim().then(turn).transpose()?;
            buffers.claim(interrupt(turn.as_ref().map(|(turn, _)| turn)))?;
        }
        Ok(())
    }

    fn is_long_to_claim(&self) -> bool {
        self.described_by > LONG_DESCRIPTION
    }

    /// A turn to claim and bind arguments in device buffers by, if they are many.
    fn turn_to_claim(&self, control: &Control) -> Result<Option<Control>, ServiceError> {
        if !self.is_long_to_claim() {
            return Ok(None);
        }
        let turn = self.prepared.core.call_turns.check(control);
        turn.yield_point().map_err(BackendError::from)?;
        Ok(Some(turn))
    }

    /// Claims its device buffers, for a run that is submitted by `control`: all dimensions of its outputs are known.
    pub fn claim(&self, control: &Control) -> Result<(Arc<dyn Binding>, Option<Claims>), ServiceError> {
        match &self.bound {
            Bound::Whole(binding) => Ok((binding.clone(), None)),
            Bound::WithBuffers { arguments, buffers } => {
                let dims =
                    |output: &Option<Argument>| output.as_ref().map_or_else(Dims::new, |o| o.dims.clone());
                let turn = self.turn_to_claim(control)?;
                let interrupt = interrupt(turn.as_ref());
                let mut claims = buffers.claim(interrupt)?;
                claims.make_room(&arguments.request.outputs.iter().map(dims).collect::<Vec<_>>())?;
                let arguments = claimed(arguments, &mut claims, interrupt)?;
                let binding = self.prepared.executable.clone().bind(arguments)?;
                Ok((binding, Some(claims)))
            }
        }
    }

    /// Runs to completion on the calling thread, as long as `control` allows. It has taken its time since `entered`.
    pub fn run(&self, control: &Control, entered: Instant) -> Result<Outcome, ServiceError> {
        let _mark = marks::begin(|_| Phase::Execution, "run");
        let running = Running::new(&*self.prepared.counts.executions, entered);
        check_deadline(control.deadline_ns)?;
        let slot = self.prepared.core.slot(control)?;
        let outcome = match &self.bound {
            Bound::Whole(binding) if slot.is_none() => binding.clone().run(control)?,
            Bound::Whole(binding) => {
                let holds = Holds::new(&self.prepared.core.watcher, slot);
                binding.clone().run(&holds.terms(control))?
            }
            Bound::WithBuffers { arguments, buffers } => {
                self.run_with_buffers(arguments, buffers, slot, control)?
            }
        };
        self.prepared.used();
        running.succeeded();
        Ok(outcome)
    }

    /// The terms of one run.
    pub fn control(&self, deadline_ns: Option<u64>, cancelled: Arc<Stop>) -> Control {
        let Prepared { options, life, .. } = &*self.prepared;
        Control {
            client: self.prepared.client(),
            budget: Some(self.prepared.core.budget.clone()),
            deadline_ns,
            loop_timeout: self.terms.loop_timeout,
            priority: options.priority,
            cancelled,
            orphaned: life.over(),
            turn: None,
            recorder: self.prepared.recorder(),
            held: None,
        }
    }

    /// Runs with arguments in device buffers, which no other execution uses until this returns, and the device is done with
    /// it. If the run finds that an output's buffer is too small, it runs once more.
    fn run_with_buffers(
        &self,
        arguments: &Arguments,
        buffers: &Uses,
        slot: Option<Turn>,
        control: &Control,
    ) -> Result<Outcome, ServiceError> {
        let mut turn = self.turn_to_claim(control)?;
        let claims = Arc::new(Mutex::new(buffers.claim(interrupt(turn.as_ref()))?));
        let lock = || claims.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = Holds::new(&self.prepared.core.watcher, (slot, claims.clone()));
        let control = holds.terms(control);
        let run = |turn: Option<Control>| -> Result<(Outcome, Vec<Dims>), ServiceError> {
            let arguments = claimed(arguments, &mut lock(), interrupt(turn.as_ref()))?;
            let binding = self.prepared.executable.clone().bind(arguments)?;
            drop(turn); // from here on it waits
            let outcome = binding.run(&control)?;
            let dims = outcome.outputs.iter().map(|output| output.dims.clone()).collect();
            Ok((outcome, dims))
        };
        let is_whole = |outcome: &Outcome| outcome.outputs.iter().all(|output| output.sufficient);
        let (mut outcome, mut dims) = run(turn.take())?;
        // A device's memory may be laid out for other dimensions, though it is large enough.
        if lock().make_room(&dims)? {
            (outcome, dims) = run(self.turn_to_claim(&control)?)?;
        }
        if is_whole(&outcome) {
            std::mem::take(&mut *lock()).commit(&dims)?;
        }
        Ok(outcome)
    }

    /// Runs for a synchronous call that came at `entered`, and makes its answer.
    pub fn run_synchronously(
        &self,
        deadline: Option<u64>,
        entered: Instant,
    ) -> Result<aidl::ExecutionResult, ServiceError> {
        let _place = self.prepared.core.quotas.execution(self.prepared.client())?;
        let outcome = self.run(&self.control(deadline, caller_gone()), entered)?;
        let sufficient = outcome.outputs.iter().all(|output| output.sufficient);
        let shape = |output: OutputShape| aidl::OutputShape {
            dimensions: output.dims.iter().map(|&d| i32::try_from(d).unwrap_or(i32::MAX)).collect(),
            isSufficient: output.sufficient,
        };
        // What was compiled for low power must not poll.
        if self.prepared.options.preference != Preference::LowPower {
            polling::expect_next(&self.prepared.core.polling);
        }
        let measured = self.terms.measure && sufficient;
        Ok(aidl::ExecutionResult {
            outputSufficientSize: sufficient,
            outputShapes: outcome.outputs.into_iter().map(shape).collect(),
            timing: if measured { timing(outcome.on_device, entered.elapsed()) } else { NO_TIMING },
        })
    }
}

/// A turn to check a request by that has so many inputs, outputs and pools, if they are many; it is counted as an execution,
/// as it holds a thread, which may wait for the turn unless it is `cancelled`.
pub(super) fn turn_to_check(
    prepared: &Prepared,
    lengths: [usize; 3],
    cancelled: impl FnOnce() -> Arc<Stop>,
) -> Result<Option<(Control, Permit)>, ServiceError> {
    if lengths.into_iter().all(|length| length <= FEW) {
        return Ok(None);
    }
    turn_within_a_place(prepared, cancelled()).map(Some)
}

fn turn_within_a_place(prepared: &Prepared, cancelled: Arc<Stop>) -> Result<(Control, Permit), ServiceError> {
    let (client, orphaned) = (prepared.client(), prepared.life.over());
    let place = prepared.core.quotas.execution(client)?;
    let control = Control { client, orphaned, cancelled, ..Control::default() };
    let control = prepared.core.call_turns.check(&control);
    control.yield_point().map_err(BackendError::from)?;
    Ok((control, place))
}

/// What the check comes by.
fn interrupt(turn: Option<&Control>) -> &dyn Interrupt {
    turn.map_or(&NeverInterrupted, |turn| turn)
}

/// All of `arguments`, those in device buffers included.
fn claimed(
    arguments: &Arguments,
    claims: &mut Claims,
    interrupt: &dyn Interrupt,
) -> Result<Arguments, BackendError> {
    let mut pace = Pace::of(interrupt);
    let mut arguments = arguments.clone();
    let Arguments { request, pools, .. } = &mut arguments;
    let mut place = |argument: &mut Option<Argument>, claimed: Option<(Memory, usize, Dims)>| {
        if let (Some(argument), Some((memory, length, dims))) = (argument, claimed) {
            pools[argument.pool] = Some(memory);
            (argument.offset, argument.length, argument.dims) = (0, length, dims);
        }
    };
    pace.each(request.inputs.iter_mut().enumerate(), CLAIMED, |(i, input)| place(input, claims.input(i)))?;
    pace.each(request.outputs.iter_mut().enumerate(), CLAIMED, |(i, output)| {
        place(output, claims.output(i))
    })?;
    Ok(arguments)
}

/// The first output whose dimensions only the run will tell.
fn unknown_output(infos: &[TensorInfo], outputs: &[Option<Argument>]) -> Option<usize> {
    let is_unknown = |(info, output): (&TensorInfo, &Option<Argument>)| {
        let known =
            |output: &Argument| TensorInfo { dims: output.dims.clone(), ..info.clone() }.is_fully_specified();
        output.as_ref().is_some_and(|output| !known(output))
    };
    infos.iter().zip(outputs).position(is_unknown)
}

/// Nothing was measured.
pub(super) const NO_TIMING: aidl::Timing = aidl::Timing { timeOnDeviceNs: -1, timeInDriverNs: -1 };

pub(super) fn timing(on_device: Duration, in_driver: Duration) -> aidl::Timing {
    let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    aidl::Timing { timeOnDeviceNs: ns(on_device), timeInDriverNs: ns(in_driver) }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
