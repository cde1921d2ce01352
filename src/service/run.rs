//! The one path that every way to execute takes once its arguments are known: check, map, run, report.

use super::arguments::{self, MapPool};
use super::buffer;
use super::prepared_model::Prepared;
use super::status::ServiceError;
use super::terms::{check_deadline, Terms};
use crate::aidl;
use crate::backend::{BackendError, Control, InputTensor, OutputShape, OutputTensor};
use crate::buffer::{Claims, Uses};
use crate::memory::Mapping;
use crate::model::{Argument, Request, RequestPool};
use crate::scheduler::Turn;
use crate::tensor::{Dims, TensorInfo};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request that has been checked and mapped: all that is left is to run it.
pub(super) struct Execution {
    prepared: Arc<Prepared>,
    inputs: Vec<Option<InputTensor>>,
    outputs: Vec<Option<OutputTensor>>,
    /// Arguments in device buffers, which `inputs` and `outputs` leave out.
    buffers: Uses,
    terms: Terms,
    /// The first output whose dimensions nobody knows yet.
    unknown_output: Option<usize>,
}

/// What a run gave.
pub(super) struct Finished {
    pub outputs: Vec<OutputShape>,
    /// How long the backend was at it.
    pub on_device: Duration,
}

impl Execution {
    /// Checks `request`, which the calling client makes, against the model and maps its pools by `map`. A fenced
    /// execution needs every output's dimensions ahead.
    pub fn new(
        prepared: &Arc<Prepared>,
        request: &aidl::Request,
        terms: Terms,
        fenced: bool,
        map: MapPool,
    ) -> Result<Self, ServiceError> {
        let interface = prepared.executable.interface();
        let checked = Request::new(request, &interface.inputs, &interface.outputs, fenced)?;
        let tracker = &prepared.core.buffers;
        let buffers = Uses::new(tracker, buffer::caller(), prepared.id, &checked, &request.pools)?;
        let (inputs, outputs) = arguments::resolve(&checked, &request.pools, map)?;
        let unknown_output = unknown_output(&interface.outputs, &checked.outputs);
        Ok(Execution { prepared: prepared.clone(), inputs, outputs, buffers, terms, unknown_output })
    }

    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// How many memories it has mapped, at most.
    pub fn mappings(&self) -> usize {
        self.inputs.iter().flatten().count() + self.outputs.iter().flatten().count()
    }

    pub fn prepared(&self) -> &Prepared {
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

    /// Checks that its device buffers could be used right now: an error to be told at once, not behind a fence.
    pub fn check_buffers(&self) -> Result<(), ServiceError> {
        self.buffers.claim()?;
        Ok(())
    }

    /// Checks a request whose arguments lie in `memories`, one per pool and mapped already.
    pub fn over(
        prepared: &Arc<Prepared>,
        inputs: &[aidl::RequestArgument],
        outputs: &[aidl::RequestArgument],
        memories: &[Arc<Mapping>],
        terms: Terms,
    ) -> Result<Self, ServiceError> {
        let interface = prepared.executable.interface();
        let pools: Vec<_> = memories.iter().map(|m| RequestPool::Memory { size: m.len() }).collect();
        let checked = Request::over(inputs, outputs, &pools, &interface.inputs, &interface.outputs, false)?;
        let (inputs, outputs) = arguments::resolve_mapped(&checked, memories)?;
        let unknown_output = unknown_output(&interface.outputs, &checked.outputs);
        let (prepared, buffers) = (prepared.clone(), Uses::default());
        Ok(Execution { prepared, inputs, outputs, buffers, terms, unknown_output })
    }

    /// Waits for a turn and runs to completion on the calling thread, as long as `deadline` and `cancelled` allow.
    pub fn run(&self, deadline: Option<u64>, cancelled: Arc<AtomicBool>) -> Result<Finished, ServiceError> {
        check_deadline(deadline)?;
        let control = self.control(deadline, cancelled);
        let turn = self.prepared.core.turns.take(self.prepared.client(), control.priority, &control);
        self.compute(turn.map_err(BackendError::from)?, control)
    }

    /// As [`run`](Self::run), with a turn that has been waited for.
    pub fn run_in(
        &self,
        turn: Turn,
        deadline: Option<u64>,
        cancelled: Arc<AtomicBool>,
    ) -> Result<Finished, ServiceError> {
        check_deadline(deadline)?;
        self.compute(turn, self.control(deadline, cancelled))
    }

    fn control(&self, deadline_ns: Option<u64>, cancelled: Arc<AtomicBool>) -> Control {
        let Prepared { priority, life, .. } = &*self.prepared;
        let (loop_timeout, orphaned) = (self.terms.loop_timeout, life.over());
        Control { deadline_ns, loop_timeout, priority: *priority, cancelled, orphaned, turn: None }
    }

    fn compute(&self, turn: Turn, mut control: Control) -> Result<Finished, ServiceError> {
        control.turn = Some(Arc::new(turn));
        let started = Instant::now();
        let outputs = if self.buffers.is_empty() {
            self.prepared.executable.run(&self.inputs, &self.outputs, &control)?
        } else {
            self.run_with_buffers(&control)?
        };
        let on_device = started.elapsed();
        self.prepared.used();
        Ok(Finished { outputs, on_device })
    }

    /// Runs with arguments in device buffers, nobody else's until this returns. A run that finds out how large an output
    /// is, and that its buffer is too small, is done once more.
    fn run_with_buffers(&self, control: &Control) -> Result<Vec<OutputShape>, ServiceError> {
        let mut claims = self.buffers.claim()?;
        let run = |claims: &mut Claims| -> Result<(Vec<OutputShape>, Vec<Dims>), ServiceError> {
            let (inputs, outputs) = self.tensors(claims);
            let shapes = self.prepared.executable.run(&inputs, &outputs, control)?;
            let dims = shapes.iter().map(|shape| shape.dims.clone()).collect();
            Ok((shapes, dims))
        };
        let (mut shapes, mut dims) = run(&mut claims)?;
        if shapes.iter().any(|shape| !shape.sufficient) && claims.make_room(&dims)? {
            (shapes, dims) = run(&mut claims)?;
        }
        if shapes.iter().all(|shape| shape.sufficient) {
            claims.commit(&dims)?;
        }
        Ok(shapes)
    }

    /// All arguments, those in device buffers included.
    fn tensors(&self, claims: &mut Claims) -> (Vec<Option<InputTensor>>, Vec<Option<OutputTensor>>) {
        let input = |(i, input): (usize, &Option<InputTensor>)| {
            claims.input(i).map(|(data, dims)| InputTensor { data, dims }).or_else(|| input.clone())
        };
        let inputs = self.inputs.iter().enumerate().map(input).collect();
        let output = |(i, output): (usize, &Option<OutputTensor>)| {
            claims.output(i).map(|(data, dims)| OutputTensor { data, dims }).or_else(|| output.clone())
        };
        (inputs, self.outputs.iter().enumerate().map(output).collect())
    }

    /// Runs for a synchronous call that came at `entered`, and makes its answer.
    pub fn run_synchronously(
        &self,
        deadline: Option<u64>,
        entered: Instant,
    ) -> Result<aidl::ExecutionResult, ServiceError> {
        let _place = self.prepared.core.quotas.execution(self.prepared.client())?;
        let finished = self.run(deadline, Arc::default())?;
        let sufficient = finished.outputs.iter().all(|output| output.sufficient);
        let shape = |output: OutputShape| aidl::OutputShape {
            dimensions: output.dims.iter().map(|&d| i32::try_from(d).unwrap_or(i32::MAX)).collect(),
            isSufficient: output.sufficient,
        };
        Ok(aidl::ExecutionResult {
            outputSufficientSize: sufficient,
            outputShapes: finished.outputs.into_iter().map(shape).collect(),
            timing: match self.terms.measure && sufficient {
                true => timing(finished.on_device, entered.elapsed()),
                false => NO_TIMING,
            },
        })
    }
}

/// Marks an object that executes one request at a time as busy, until dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<AtomicBool>);

impl Busy {
    pub fn enter(flag: &Arc<AtomicBool>, what: &str) -> Result<Self, ServiceError> {
        match flag.swap(true, Ordering::Acquire) {
            true => Err(ServiceError::Failed(format!("this {what} is executing already; wait for it"))),
            false => Ok(Busy(flag.clone())),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
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
