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
        let interface = &self.program.interface;
        let (inputs, outputs) = (&arguments.request.inputs, &arguments.request.outputs);
        let count = inputs.len() + outputs.len();
        let job = Region::new(&self.link, JOB_ARGUMENTS + count * ARGUMENT_BYTES)?;
        let mut words = vec![0; job.len];
        put(&mut words, JOB_STREAM, &[self.stream.start, self.stream.len]);
        put(&mut words, JOB_ARGUMENT_COUNT, &[count]);
        for (at, region) in JOB_CONSTANTS.into_iter().zip(&self.constants) {
            put(&mut words, at, &[region.start, region.len]);
        }
        let mut binding = Bound {
            sufficient: vec![true; outputs.len()],
            copies_in: Vec::new(),
            copies_out: Vec::new(),
            held: Vec::new(),
            submitted: AtomicBool::new(false),
            model: self.clone(),
            job,
        };
        let infos = interface.inputs.iter().chain(&interface.outputs);
        for (i, (argument, info)) in inputs.iter().chain(outputs).zip(infos).enumerate() {
            let is_output = i >= inputs.len();
            let shape = Shape::of(&info.dims);
            let entry = match argument {
                // The interface lets clients leave arguments out. This device wants its inputs; an output that nobody
                // wants still needs a place to go to.
                None if is_output => binding.stage(None, shape, is_output)?,
                None => return Err(BackendError::Failed(format!("input {i} has no value"))),
                Some(argument) if argument.length < shape.plain_len() && is_output => {
                    binding.sufficient[i - inputs.len()] = false;
                    continue;
                }
                Some(argument) => {
                    let memory = arguments.memory(argument)?;
                    binding.place(memory, argument, shape, is_output)?
                }
            };
            put(&mut words, JOB_ARGUMENTS + i * ARGUMENT_BYTES, &entry);
        }
        binding.job.slice().and_then(|slice| slice.write(&words)).map_err(faulty)?;
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
    held: Vec<Held>,
    /// Whether the device has its job.
    submitted: AtomicBool,
    model: Arc<Loaded>,
}

enum Held {
    Staging { _region: Region },
    Memory { _memory: Memory },
}

impl Bound {
    /// Finds the words that tell the device where an argument is: memory, offset, length, layout.
    fn place(
        &mut self,
        memory: &Memory,
        argument: &Argument,
        shape: Shape,
        is_output: bool,
    ) -> Result<[usize; 4], BackendError> {
        let stale = || BackendError::DeviceLost("this memory was the device's before it was lost".into());
        let device = match memory {
            Memory::Mapped(mapping) => {
                let slice = ClientSlice::new(mapping.clone(), argument.offset, shape.plain_len());
                return self.stage(Some(slice.map_err(arguments_memory)?), shape, is_output);
            }
            Memory::Device(device) => device,
        };
        self.held.push(Held::Memory { _memory: memory.clone() });
        if let Some(imported) = device.as_any().downcast_ref::<Imported>() {
            let same = Arc::ptr_eq(&imported.link, &self.model.link);
            let entry = [imported.id as usize, argument.offset, shape.plain_len(), PLAIN as usize];
            return same.then_some(entry).ok_or_else(stale);
        }
        // Memory that this backend did not make never comes here. A buffer is used whole, and has the operand's shape.
        let tiled = device.as_any().downcast_ref::<Tiled>().filter(|tiled| tiled.shape == shape);
        let tiled =
            tiled.ok_or_else(|| BackendError::Failed("a memory of another shape or device".into()))?;
        let same = Arc::ptr_eq(&tiled.region.link, &self.model.link);
        same.then_some([0, tiled.region.start, tiled.region.len, TILED as usize]).ok_or_else(stale)
    }

    /// A place in device memory for an argument that the device cannot reach.
    fn stage(
        &mut self,
        client: Option<ClientSlice>,
        shape: Shape,
        is_output: bool,
    ) -> Result<[usize; 4], BackendError> {
        let region = Region::new(&self.model.link, shape.plain_len())?;
        if let Some(client) = client {
            let staged = region.slice().map_err(faulty)?;
            if is_output {
                self.copies_out.push((staged, client));
            } else {
                self.copies_in.push((client, staged));
            }
        }
        let entry = [0, region.start, region.len, PLAIN as usize];
        self.held.push(Held::Staging { _region: region });
        Ok(entry)
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

/// Writes numbers to `words` from byte `at` on.
fn put(words: &mut [u8], at: usize, numbers: &[usize]) {
    for (to, number) in words[at..].chunks_exact_mut(8).zip(numbers) {
        to.copy_from_slice(&(*number as u64).to_le_bytes());
    }
}
