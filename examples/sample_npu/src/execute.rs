//! Binding memory, submitting, completing.
//!
//! A binding has a job in device memory, written once: where stream, constants and arguments are. To execute is to copy what
//! the device cannot reach, and to put the job into the ring.

use crate::compile::Program;
use crate::layout::Shape;
use crate::link::Link;
use crate::memory::{Region, Tiled};
use crate::protocol::*;
use crate::Result;
use nnhal::backend::{
    Argument, Arguments, Artifact, BackendError, Binding, Control, Executable, Interface, Memory, Outcome,
    OutputShape, Pending, Submission,
};
use nnhal::memory::{ClientSlice, MemoryError};
use nnhal::ops::Interrupt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// What messages call memory that a client gave.
const ARGUMENT: &str = "an argument";

/// A model whose stream and constants are in device memory.
pub struct Loaded {
    program: Program,
    link: Arc<Link>,
    /// Stream, weights, tables.
    regions: [Region; 3],
}

impl Loaded {
    pub fn new(program: Program, link: &Arc<Link>) -> Result<Self> {
        let [weights, tables] = &program.constants;
        let region = |bytes: &[u8]| Region::of(link, bytes);
        let regions = [region(&program.stream)?, region(weights)?, region(tables)?];
        Ok(Loaded { program, link: link.clone(), regions })
    }
}

impl Executable for Loaded {
    fn interface(&self) -> &Interface {
        &self.program.interface
    }

    fn artifact(&self, _: &Control) -> Result<Option<Artifact>> {
        Ok(self.program.save())
    }

    /// All that needs to be done only once for many executions happens here.
    fn bind(self: Arc<Self>, arguments: Arguments) -> Result<Arc<dyn Binding>> {
        self.link.check()?;
        let (request, Interface { inputs, outputs, .. }) = (&arguments.request, &self.program.interface);
        let mut placed = Placed {
            link: self.link.clone(),
            spans: self.regions.iter().map(Region::span).collect(),
            copies_in: Vec::new(),
            copies_out: Vec::new(),
            in_use: Vec::new(),
        };
        for (argument, info) in request.inputs.iter().zip(inputs) {
            // The interface lets clients leave arguments out; this device wants its inputs.
            let argument = argument.as_ref().ok_or(BackendError::Failed("an input has no value".into()))?;
            placed.place(&arguments, Some(argument), Shape::of(&info.dims), false)?;
        }
        let mut shapes = Vec::new();
        for (argument, info) in request.outputs.iter().zip(outputs) {
            let shape = Shape::of(&info.dims);
            let sufficient = argument.as_ref().is_none_or(|argument| argument.length >= shape.plain_len());
            shapes.push(OutputShape { dims: info.dims.clone(), sufficient });
            placed.place(&arguments, argument.as_ref().filter(|_| sufficient), shape, true)?;
        }
        // Status, time and cancellation are set with each execution.
        let words = [0; JOB_SPANS / 8].into_iter().chain(placed.spans.concat());
        let job = Region::of(&self.link, &bytes_of(words))?;
        Ok(Arc::new(Bound { job, placed, shapes, _model: self }))
    }
}

/// A model with its arguments.
struct Bound {
    job: Region,
    placed: Placed,
    /// What the driver is told of the outputs: all dimensions are known, and whether each fits its memory.
    shapes: Vec<OutputShape>,
    /// Its stream and constants are in the job.
    _model: Arc<Loaded>,
}

/// Where the arguments are.
struct Placed {
    link: Arc<Link>,
    spans: Vec<Span>,
    /// Copied before an execution, and after it, because the device cannot reach the client's memory: from, to.
    copies_in: Vec<(ClientSlice, ClientSlice)>,
    copies_out: Vec<(ClientSlice, ClientSlice)>,
    /// What the device uses must stay until it is done, which may be long after its client has lost interest.
    in_use: Vec<Memory>,
}

impl Placed {
    /// Adds an argument; `None` is an output that nobody wants, which still needs a place to go to.
    fn place(&mut self, all: &Arguments, argument: Option<&Argument>, shape: Shape, out: bool) -> Result<()> {
        let memory = argument.map(|argument| all.memory(argument)).transpose()?;
        let (mut offset, len) = (argument.map_or(0, |argument| argument.offset), shape.plain_len());
        let device = match memory {
            Some(Memory::Device(device)) => device.clone(),
            // The device works on a copy, in memory of its own.
            unreachable => {
                let copy = Region::new(&self.link, len)?;
                if let Some(Memory::Mapped(mapping)) = unreachable {
                    let client = ClientSlice::new(mapping.clone(), offset, len);
                    let client = client.map_err(BackendError::memory(ARGUMENT))?;
                    match out {
                        true => self.copies_out.push((whole(&copy.mapping), client)),
                        false => self.copies_in.push((client, whole(&copy.mapping))),
                    }
                }
                offset = 0;
                Arc::new(copy)
            }
        };
        let (region, span) = if let Some(region) = device.downcast::<Region>() {
            (region, [region.id, offset as u64, len as u64, PLAIN])
        } else {
            // Memory that this backend did not make never comes here. A buffer is used whole, and has the operand's shape.
            let tiled = device.downcast::<Tiled>().filter(|tiled| tiled.shape == shape);
            let strange = BackendError::Failed("a memory of another shape or device".into());
            let region = &tiled.ok_or(strange)?.region;
            (region, [region.id, 0, shape.tiled_len() as u64, TILED])
        };
        if !Arc::ptr_eq(&region.link, &self.link) {
            return Err(BackendError::DeviceLost("this memory was the device's before it was lost".into()));
        }
        self.spans.push(span);
        self.in_use.push(Memory::Device(device));
        Ok(())
    }
}

impl Bound {
    /// What the driver is told once the device has ended the job, or died. On the thread of the device's interrupt: it
    /// copies outputs, which a driver with much to copy would leave to another thread.
    fn outcome(&self, ended: Result<(JobStatus, Duration)>, control: &Control) -> Result<Outcome> {
        let (status, on_device) = ended?;
        match status {
            DONE => {
                copy(&self.placed.copies_out).map(|()| Outcome { outputs: self.shapes.clone(), on_device })
            }
            CANCELLED => {
                control.check()?; // says whether it was the deadline
                Err(BackendError::Cancelled)
            }
            BAD_MEMORY => Err(BackendError::memory(ARGUMENT)(MemoryError::Vanished)),
            _ => Err(BackendError::Failed("the device reports a fault".into())),
        }
    }
}

impl Binding for Bound {
    /// It must not wait. The device's queue is two deep, as `Info::depth` says, and the driver keeps to it.
    fn submit(self: Arc<Self>, _: Vec<OwnedFd>, control: &Control) -> Result<Submission> {
        control.check()?;
        if self.shapes.iter().any(|shape| !shape.sufficient) {
            // Nothing may be written then, and the shapes say what is needed: no work for the device.
            let outcome = Outcome { outputs: self.shapes.clone(), on_device: Duration::ZERO };
            return Ok(Submission::Done(outcome));
        }
        copy(&self.placed.copies_in)?;
        let (completer, pending) = Pending::promised();
        // All that the device uses is held until it says that it is done.
        let (binding, terms) = (self.clone(), control.clone());
        let end = move |ended| {
            let outcome = binding.outcome(ended, &terms);
            drop(binding); // before anybody hears of the end
            completer.complete(outcome);
        };
        self.placed.link.submit(self.job.id, &self.job.mapping, Box::new(end))?;
        // The job is this binding's for as long as it may be cancelled.
        Ok(Submission::Pending(pending.on_cancel(move || {
            let _ = set_word(&self.job.mapping, JOB_CANCEL, 1); // a memory of ours does not vanish
        })))
    }
}

fn copy(list: &[(ClientSlice, ClientSlice)]) -> Result<()> {
    let copied = list.iter().try_for_each(|(from, to)| from.copy_to(to));
    copied.map_err(BackendError::memory(ARGUMENT))
}
