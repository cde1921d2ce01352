//! Binding memory, submitting, completing.
//!
//! A binding has a job block in device memory, written once: where stream, constants and arguments are. To execute is to
//! copy what the device cannot reach, to clear the block's status and to put it into the ring.

use crate::compile::Program;
use crate::layout::Shape;
use crate::link::Link;
use crate::memory::{Imported, Tiled};
use crate::protocol::*;
use crate::region::Region;
use nnhal::backend::{
    Argument, Arguments, Artifact, BackendError, Binding, Control, Executable, Interface, Memory, Outcome,
    OutputShape, Pending, Submission,
};
use nnhal::memory::{ClientSlice, MemoryError};
use nnhal::ops::Interrupt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// A model whose stream and constants are in device memory.
pub struct Loaded {
    program: Program,
    link: Arc<Link>,
    stream: Region,
    constants: [Region; 2],
}

impl Loaded {
    pub fn new(program: Program, link: &Arc<Link>) -> Result<Self, BackendError> {
        let stream = Region::of(link, &program.stream)?;
        let [weights, tables] = &program.constants;
        let constants = [Region::of(link, weights)?, Region::of(link, tables)?];
        Ok(Loaded { program, link: link.clone(), stream, constants })
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
        let (inputs, outputs) = (&arguments.request.inputs, &arguments.request.outputs);
        let count = inputs.len() + outputs.len();
        let job = Region::new(&self.link, 8 * (JOB_WORDS + count * ARGUMENT_WORDS))?;
        let [weights, tables] = &self.constants;
        // Status, time and cancellation are set with each execution.
        let mut words = vec![0; 3];
        words.extend([&self.stream, weights, tables].iter().flat_map(|region| region.place()));
        words.push(count as u64);
        let mut binding = Bound {
            sufficient: vec![true; outputs.len()],
            copies_in: Vec::new(),
            copies_out: Vec::new(),
            memories: Vec::new(),
            staging: Vec::new(),
            submitted: AtomicBool::new(false),
            model: self.clone(),
            job,
        };
        let Interface { inputs: of_inputs, outputs: of_outputs, .. } = &self.program.interface;
        for (i, (argument, info)) in inputs.iter().zip(of_inputs).enumerate() {
            // The interface lets clients leave arguments out; this device wants its inputs.
            let missing = || BackendError::Failed(format!("input {i} has no value"));
            let argument = argument.as_ref().ok_or_else(missing)?;
            let memory = arguments.memory(argument)?;
            words.extend(binding.place(memory, argument, Shape::of(&info.dims), false)?);
        }
        for (i, (argument, info)) in outputs.iter().zip(of_outputs).enumerate() {
            let shape = Shape::of(&info.dims);
            words.extend(match argument {
                // An output that nobody wants still needs a place to go to.
                None => binding.stage(shape)?.1,
                Some(argument) if argument.length < shape.plain_len() => {
                    binding.sufficient[i] = false;
                    [0; ARGUMENT_WORDS]
                }
                Some(argument) => binding.place(arguments.memory(argument)?, argument, shape, true)?,
            });
        }
        binding.job.slice().and_then(|job| job.write(&bytes_of(words))).map_err(faulty)?;
        Ok(Arc::new(binding))
    }
}

/// A model with its arguments.
struct Bound {
    job: Region,
    /// Copied before an execution, and after it, because the device cannot reach the client's memory: from, to.
    copies_in: Vec<(ClientSlice, ClientSlice)>,
    copies_out: Vec<(ClientSlice, ClientSlice)>,
    /// Whether each output fits its memory.
    sufficient: Vec<bool>,
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
        argument: &Argument,
        shape: Shape,
        is_output: bool,
    ) -> Result<Place, BackendError> {
        let (offset, len) = (argument.offset, shape.plain_len());
        let device = match memory {
            Memory::Mapped(mapping) => {
                let client = ClientSlice::new(mapping.clone(), offset, len).map_err(arguments_memory)?;
                let (staged, place) = self.stage(shape)?;
                match is_output {
                    true => self.copies_out.push((staged, client)),
                    false => self.copies_in.push((client, staged)),
                }
                return Ok(place);
            }
            Memory::Device(device) => device.as_any(),
        };
        self.memories.push(memory.clone());
        let (link, place) = if let Some(imported) = device.downcast_ref::<Imported>() {
            (&imported.link, [imported.id, offset as u64, len as u64, PLAIN])
        } else {
            // Memory that this backend did not make never comes here. A buffer is used whole, and has the operand's shape.
            let tiled = device.downcast_ref::<Tiled>().filter(|tiled| tiled.shape == shape);
            let strange = || BackendError::Failed("a memory of another shape or device".into());
            let region = &tiled.ok_or_else(strange)?.region;
            let [start, len] = region.place();
            (&region.link, [0, start, len, TILED])
        };
        let stale = || BackendError::DeviceLost("this memory was the device's before it was lost".into());
        Arc::ptr_eq(link, &self.model.link).then_some(place).ok_or_else(stale)
    }

    /// A place in device memory for an argument that the device cannot reach.
    fn stage(&mut self, shape: Shape) -> Result<(ClientSlice, Place), BackendError> {
        let region = Region::new(&self.model.link, shape.plain_len())?;
        let (slice, [start, len]) = (region.slice().map_err(faulty)?, region.place());
        self.staging.push(region);
        Ok((slice, [0, start, len, PLAIN]))
    }

    fn shapes(&self) -> Vec<OutputShape> {
        let outputs = self.model.program.interface.outputs.iter().zip(&self.sufficient);
        outputs.map(|(info, &sufficient)| OutputShape { dims: info.dims.clone(), sufficient }).collect()
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
                Ok(Outcome { outputs: self.shapes(), on_device })
            }
            JobStatus::Cancelled => {
                control.check()?; // says whether it was the deadline
                Err(BackendError::Cancelled)
            }
            JobStatus::BadMemory => Err(arguments_memory(MemoryError::Vanished)),
            JobStatus::Fault => Err(BackendError::Failed("the device reports a fault".into())),
        }
    }
}

impl Binding for Bound {
    /// It must not wait. The device's queue is two deep, as `Info::depth` says, and the driver keeps to it.
    fn submit(self: Arc<Self>, _: Vec<OwnedFd>, control: &Control) -> Result<Submission, BackendError> {
        control.check()?;
        if self.sufficient.contains(&false) {
            // Nothing may be written then, and the shapes say what is needed: no work for the device.
            return Ok(Submission::Done(Outcome { outputs: self.shapes(), on_device: Duration::ZERO }));
        }
        // One execution at a time is submitted to a binding. One that was given up may be on the device still.
        if self.submitted.swap(true, Ordering::Acquire) {
            return Err(BackendError::DeviceBusy("the execution before is not done yet".into()));
        }
        let submitted = self.clone().enqueue(control);
        if submitted.is_err() {
            self.submitted.store(false, Ordering::Release);
        }
        submitted
    }
}

impl Bound {
    fn enqueue(self: Arc<Self>, control: &Control) -> Result<Submission, BackendError> {
        copy(&self.copies_in)?;
        let word = |at| self.job.word(at).map_err(faulty);
        let (status, time, cancel) = (word(JOB_STATUS)?, word(JOB_TIME)?, word(JOB_CANCEL)?);
        status.store(0).and_then(|()| cancel.store(0)).map_err(faulty)?;
        let (completer, pending) = Pending::promised();
        // All that the device uses is held until it says that it is done.
        let (binding, control) = (self.clone(), control.clone());
        let end = move |ended| {
            let outcome = binding.outcome(ended, &control);
            binding.submitted.store(false, Ordering::Release);
            drop(binding); // before anybody hears of the end
            completer.complete(outcome);
        };
        self.model.link.submit(self.job.start, status, time, Box::new(end))?;
        let binding = self.clone();
        Ok(Submission::Pending(pending.on_cancel(move || {
            if let Err(why) = binding.job.word(JOB_CANCEL).and_then(|cancel| cancel.store(1)) {
                log::warn!("an execution cannot be stopped: {why}");
            }
        })))
    }
}

fn copy(list: &[(ClientSlice, ClientSlice)]) -> Result<(), BackendError> {
    list.iter().try_for_each(|(from, to)| from.copy_to(to)).map_err(arguments_memory)
}

fn arguments_memory(source: MemoryError) -> BackendError {
    BackendError::Memory { what: "an argument".into(), source }
}

fn faulty(source: MemoryError) -> BackendError {
    BackendError::Memory { what: "the device's memory".into(), source }
}
