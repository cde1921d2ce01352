//! Executions that must end, and what they gave.

use super::samples::Sample;
use crate::backend::{Arguments, BackendError, Binding, Control, Executable, Memory, Outcome, Submission};
use crate::memory::{ClientSlice, Mapping};
use crate::tensor::OperandType;
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;

/// How long anything may take, even on a slow machine: what takes longer counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `work` gives; an error if it hangs or panics.
pub fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (sender, results) = channel();
    let thread = std::thread::Builder::new().name("nnhal-testing".into());
    let started = thread.spawn(move || drop(sender.send(work())));
    let thread = started.map_err(|why| format!("no thread to try it on: {why}"))?;
    match results.recv_timeout(PATIENCE) {
        Ok(result) => {
            let _ = thread.join(); // it has sent, so it does not panic
            Ok(result)
        }
        Err(RecvTimeoutError::Timeout) => Err(format!("it hangs: {PATIENCE:?} are over")),
        Err(RecvTimeoutError::Disconnected) => Err("it panics".into()),
    }
}

/// A sample's arguments, each in a memory of its own.
pub struct Bound {
    pub binding: Arc<dyn Binding>,
    pub outputs: Vec<Memory>,
}

/// Memory of this process that holds `bytes`.
pub fn mapped(bytes: &[u8]) -> Result<Memory, String> {
    let mapping = Arc::new(Mapping::anonymous(bytes.len()).map_err(|why| why.to_string())?);
    ClientSlice::whole(mapping.clone()).write(bytes).map_err(|why| why.to_string())?;
    Ok(Memory::Mapped(mapping))
}

/// The bytes of a memory.
pub fn bytes(memory: &Memory) -> Result<Vec<u8>, String> {
    let copied = match memory {
        Memory::Mapped(mapping) => ClientSlice::whole(mapping.clone()).to_private(),
        Memory::Device(device) => Mapping::anonymous(device.len()).and_then(|mapping| {
            let copy = ClientSlice::whole(Arc::new(mapping));
            device.read(&copy)?;
            copy.to_private()
        }),
    };
    copied.map(|copy| copy.to_vec()).map_err(|why| why.to_string())
}

/// Binds a sample's inputs, and outputs that are `short` bytes too small, if they have as many.
pub fn bind(executable: &Arc<dyn Executable>, sample: &Sample, short: usize) -> Result<Bound, String> {
    let inputs: Result<Vec<_>, _> = sample.inputs.iter().map(|bytes| mapped(bytes)).collect();
    let room = |bytes: &Vec<u8>| mapped(&vec![0xa5; bytes.len().saturating_sub(short).max(1)]);
    let outputs: Result<Vec<_>, _> = sample.outputs.iter().map(room).collect();
    bind_to(executable, sample, inputs?, outputs?)
}

/// Binds these memories.
pub fn bind_to(
    executable: &Arc<dyn Executable>,
    sample: &Sample,
    inputs: Vec<Memory>,
    outputs: Vec<Memory>,
) -> Result<Bound, String> {
    let main = &sample.model.main;
    let place = |memories: Vec<Memory>, list: &[usize]| {
        let dims = list.iter().map(|&operand| main.operands[operand].info.dims.clone());
        memories.into_iter().zip(dims).map(Some).collect::<Vec<_>>()
    };
    let arguments =
        Arguments::in_own_memories(place(inputs, &main.inputs), place(outputs.clone(), &main.outputs));
    let binding = executable.clone().bind(arguments).map_err(|why| format!("bind() fails: {why}"))?;
    Ok(Bound { binding, outputs })
}

/// Runs on a thread that has nothing else to do.
pub fn run(bound: &Bound, control: &Control) -> Result<Result<Outcome, BackendError>, String> {
    let (binding, control) = (bound.binding.clone(), control.clone());
    within(move || binding.run(&control))
}

/// Submits, does `meanwhile`, and waits. `meanwhile` is given what asks the device to stop.
pub fn submit(
    bound: &Bound,
    control: &Control,
    meanwhile: impl FnOnce(&dyn Fn()) + Send + 'static,
) -> Result<Result<Outcome, BackendError>, String> {
    let (binding, control) = (bound.binding.clone(), control.clone());
    within(move || match binding.submit(Vec::new(), &control)? {
        Submission::Done(outcome) => Ok(outcome),
        Submission::Pending(pending) => {
            let cancel = pending.canceller();
            meanwhile(&|| cancel.iter().for_each(|cancel| cancel()));
            pending.wait(&control)
        }
    })
}

/// Whether the outputs are what the sample expects, or which is not.
pub fn compare(bound: &Bound, sample: &Sample) -> Result<(), String> {
    let main = &sample.model.main;
    for (i, (memory, expected)) in bound.outputs.iter().zip(&sample.outputs).enumerate() {
        let (got, ty) = (bytes(memory)?, main.operands[main.outputs[i]].info.ty);
        if !same(ty, &got, expected) {
            let at = got.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
            let (is, be) = (got.get(at), expected.get(at));
            return Err(format!("output {i}, byte {at}: is {is:?}, must be {be:?}"));
        }
    }
    Ok(())
}

/// Whether two values are the same: floats as numbers, as both zeroes are right.
fn same(ty: OperandType, a: &[u8], b: &[u8]) -> bool {
    let each = |size: usize, equal: fn(&[u8], &[u8]) -> bool| {
        a.len() == b.len() && a.chunks(size).zip(b.chunks(size)).all(|(a, b)| a == b || equal(a, b))
    };
    fn zeroes(a: &[u8], b: &[u8]) -> bool {
        [a, b].iter().all(|bytes| {
            bytes.split_last().is_some_and(|(sign, rest)| sign & 0x7f == 0 && rest.iter().all(|&b| b == 0))
        })
    }
    match ty {
        OperandType::TENSOR_FLOAT32 => each(4, zeroes),
        OperandType::TENSOR_FLOAT16 => each(2, zeroes),
        _ => a == b,
    }
}
