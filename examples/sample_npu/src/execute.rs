//! Binding memory, submitting, completing.
//!
//! A binding has a job block in device memory, written once: where stream, constants and arguments are. To execute is to
//! copy what the device cannot reach, and to put the job into the ring.

use crate::compile::Program;
use crate::layout::Shape;
use crate::link::Link;
use crate::memory::{Imported, Tiled};
use crate::protocol::*;
use crate::region::Region;
use nnhal::backend::{
    Arguments, Artifact, BackendError, Binding, Control, Executable, Interface, Memory, Outcome, OutputShape,
    Pending, Submission,
};
use nnhal::memory::{ClientSlice, MemoryError};
use nnhal::ops::Interrupt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// What messages call memory that a client gave, and the device's own.
const ARGUMENT: &str = "an argument";
const DEVICE: &str = "the device's memory";

/// A model whose stream and constants are in device memory.
pub struct Loaded {
    program: Program,
    link: Arc<Link>,
    /// Stream, weights, tables.
    regions: [Region; 3],
}

impl Loaded {
    pub fn new(program: Program, link: &Arc<Link>) -> Result<Self, BackendError> {
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

    fn artifact(&self) -> Option<Artifact> {
        self.program.save()
    }

    /// All that needs to be done only once for many executions happens here.
    fn bind(self: Arc<Self>, arguments: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        self.link.check()?;
        let (request, Interface { inputs, outputs, .. }) = (&arguments.request, &self.program.interface);
        let count = inputs.len() + outputs.len();
        let mut binding = Bound {
            job: Region::new(&self.link, 8 * (JOB_WORDS + count * ARGUMENT_WORDS))?,
            copies_in: Vec::new(),
            copies_out: Vec::new(),
            shapes: Vec::new(),
            memories: Vec::new(),
            staging: Vec::new(),
            submitted: AtomicBool::new(false),
            model: self.clone(),
        };
        // Status, time and cancellation are set with each execution.
        let mut words = vec![0; 3];
        words.extend(self.regions.iter().flat_map(Region::place));
        words.push(count as u64);
        for (argument, info) in request.inputs.iter().zip(inputs) {
            // The interface lets clients leave arguments out; this device wants its inputs.
            let argument = argument.as_ref().ok_or(BackendError::Failed("an input has no value".into()))?;
            let memory = arguments.memory(argument)?;
            words.extend(binding.place(memory, argument.offset, Shape::of(&info.dims), false)?);
        }
        for (argument, info) in request.outputs.iter().zip(outputs) {
            let shape = Shape::of(&info.dims);
            let fits = argument.as_ref().is_none_or(|argument| argument.length >= shape.plain_len());
            binding.shapes.push(OutputShape { dims: info.dims.clone(), sufficient: fits });
            words.extend(match argument.as_ref().filter(|_| fits) {
                Some(argument) => binding.place(arguments.memory(argument)?, argument.offset, shape, true)?,
                // An output that nobody wants still needs a place to go to.
                None => binding.stage(shape)?.1,
            });
        }
        let written = binding.job.slice().and_then(|job| job.write(&bytes_of(words)));
        written.map_err(BackendError::memory(DEVICE))?;
        Ok(Arc::new(binding))
    }
}

/// A model with its arguments.
struct Bound {
    job: Region,
    /// Copied before an execution, and after it, because the device cannot reach the client's memory: from, to.
    copies_in: Vec<(ClientSlice, ClientSlice)>,
    copies_out: Vec<(ClientSlice, ClientSlice)>,
    /// What the driver is told of the outputs: all dimensions are known, and whether each fits its memory.
    shapes: Vec<OutputShape>,
    /// What the device uses must stay until it is done, which may be long after its client has lost interest.
    memories: Vec<Memory>,
    staging: Vec<Region>,
    /// Whether the device has its job.
    submitted: AtomicBool,
    model: Arc<Loaded>,
}

/// The words that tell the device where an argument is: memory, offset, bytes, layout.
type Place = [u64; ARGUMENT_WORDS];

impl Bound {
    fn place(
        &mut self,
        memory: &Memory,
        offset: usize,
        shape: Shape,
        is_output: bool,
    ) -> Result<Place, BackendError> {
        let len = shape.plain_len();
        let device = match memory {
            Memory::Device(device) => device,
            Memory::Mapped(mapping) => {
                let client = ClientSlice::new(mapping.clone(), offset, len);
                let client = client.map_err(BackendError::memory(ARGUMENT))?;
                let (staged, place) = self.stage(shape)?;
                match is_output {
                    true => self.copies_out.push((staged, client)),
                    false => self.copies_in.push((client, staged)),
                }
                return Ok(place);
            }
        };
        self.memories.push(memory.clone());
        let (link, place) = if let Some(imported) = device.downcast::<Imported>() {
            (&imported.link, [imported.id, offset as u64, len as u64, PLAIN])
        } else {
            // Memory that this backend did not make never comes here. A buffer is used whole, and has the operand's shape.
            let tiled = device.downcast::<Tiled>().filter(|tiled| tiled.shape == shape);
            let strange = BackendError::Failed("a memory of another shape or device".into());
            let region = &tiled.ok_or(strange)?.region;
            let [start, len] = region.place();
            (&region.link, [0, start, len, TILED])
        };
        match Arc::ptr_eq(link, &self.model.link) {
            true => Ok(place),
            false => Err(BackendError::DeviceLost("this memory was the device's before it was lost".into())),
        }
    }

    /// A place in device memory for an argument that the device cannot reach.
    fn stage(&mut self, shape: Shape) -> Result<(ClientSlice, Place), BackendError> {
        let region = Region::new(&self.model.link, shape.plain_len())?;
        let (slice, [start, len]) = (region.slice().map_err(BackendError::memory(DEVICE))?, region.place());
        self.staging.push(region);
        Ok((slice, [0, start, len, PLAIN]))
    }

    /// What the driver is told once the device has ended the job, or died. On the thread of the device's interrupt: it
    /// copies outputs, which a driver with much to copy would leave to another thread.
    fn outcome(
        &self,
        ended: Result<(JobStatus, Duration), String>,
        control: &Control,
    ) -> Result<Outcome, BackendError> {
        let (status, on_device) = ended.map_err(BackendError::DeviceLost)?;
        match status {
            JobStatus::Done => {
                copy(&self.copies_out)?;
                Ok(Outcome { outputs: self.shapes.clone(), on_device })
            }
            JobStatus::Cancelled => {
                control.check()?; // says whether it was the deadline
                Err(BackendError::Cancelled)
            }
            JobStatus::BadMemory => Err(BackendError::memory(ARGUMENT)(MemoryError::Vanished)),
            JobStatus::Fault => Err(BackendError::Failed("the device reports a fault".into())),
        }
    }
}

impl Binding for Bound {
    /// It must not wait. The device's queue is two deep, as `Info::depth` says, and the driver keeps to it.
    fn submit(self: Arc<Self>, _: Vec<OwnedFd>, control: &Control) -> Result<Submission, BackendError> {
        control.check()?;
        if self.shapes.iter().any(|shape| !shape.sufficient) {
            // Nothing may be written then, and the shapes say what is needed: no work for the device.
            let outcome = Outcome { outputs: self.shapes.clone(), on_device: Duration::ZERO };
            return Ok(Submission::Done(outcome));
        }
        // One execution at a time is submitted to a binding. One that was given up may be on the device still.
        if self.submitted.swap(true, Ordering::Acquire) {
            return Err(BackendError::DeviceBusy("the execution before is not done yet".into()));
        }
        let (completer, pending) = Pending::promised();
        // All that the device uses is held until it says that it is done.
        let (binding, terms) = (self.clone(), control.clone());
        let end = Box::new(move |ended| {
            let outcome = binding.outcome(ended, &terms);
            binding.submitted.store(false, Ordering::Release);
            drop(binding); // before anybody hears of the end
            completer.complete(outcome);
        });
        let (link, start) = (self.model.link.clone(), self.job.start);
        if let Err(why) = copy(&self.copies_in).and_then(|()| link.submit(start, end)) {
            self.submitted.store(false, Ordering::Release);
            return Err(why);
        }
        // The block is this binding's for as long as it may be cancelled.
        Ok(Submission::Pending(pending.on_cancel(move || self.model.link.cancel(self.job.start))))
    }
}

fn copy(list: &[(ClientSlice, ClientSlice)]) -> Result<(), BackendError> {
    let copied = list.iter().try_for_each(|(from, to)| from.copy_to(to));
    copied.map_err(BackendError::memory(ARGUMENT))
}
