//! What the runtime calls in the place of the nodes that a partition has replaced.

use crate::abi::{ARENA_RW, CUSTOM};
use crate::delegate::Shared;
use crate::partition::Ready;
use crate::runtime::{no_tensor, Runtime};
use crate::work::{Ends, Work};
use std::ops::Range;
use std::sync::Arc;

/// A kernel of the runtime's.
pub struct Kernel {
    shared: Arc<Shared>,
    /// `None` once it has been given back.
    work: Option<Work>,
    ends: Ends,
    /// Tensors that live in the work's memory.
    placed: Vec<usize>,
    /// Whether this kernel is all that the graph runs: only then may its tensors move, because the runtime may share
    /// one tensor's memory among others where it has nodes of its own.
    is_whole_graph: bool,
}

impl Kernel {
    pub fn new(shared: Arc<Shared>, ready: Ready, is_whole_graph: bool) -> Self {
        let Ready { work, ends, .. } = ready;
        Kernel { shared, work: Some(work), ends, placed: Vec::new(), is_whole_graph }
    }

    /// Before the tensors are placed: outputs get their dimensions, and what can lives in shared memory.
    pub fn prepare(&mut self, runtime: &Runtime) -> Result<(), String> {
        let work = self.work.as_ref().ok_or(GONE)?;
        for (&tensor, port) in self.ends.outputs.iter().zip(&work.outputs) {
            runtime.resize(tensor, &port.dims)?;
        }
        if !self.is_whole_graph {
            return Ok(());
        }
        let inputs = self.ends.inputs.iter().enumerate().map(|(i, &tensor)| (tensor, work.input(i)));
        let outputs = self.ends.outputs.iter().enumerate().map(|(i, &tensor)| (tensor, work.output(i)));
        for (tensor, range) in inputs.chain(outputs) {
            let is_alike =
                runtime.tensors().get(tensor).is_some_and(|t| t.bytes == range.len() && t.is_variable == 0);
            if is_alike && runtime.place(tensor, (ARENA_RW, CUSTOM), work.map.at(&range)) {
                self.placed.push(tensor);
            }
        }
        Ok(())
    }

    /// Runs the partition.
    pub fn invoke(&mut self, runtime: &Runtime) -> Result<(), String> {
        let work = self.work.as_mut().ok_or(GONE)?;
        for (i, &tensor) in self.ends.inputs.iter().enumerate() {
            let range = work.input(i);
            let data = data(runtime, tensor, &range)?;
            if data != work.map.at(&range) {
                // SAFETY: the tensor has as many bytes, and the runtime writes none while the delegate runs.
                unsafe { work.map.fill(&range, data) };
            }
        }
        work.run(&self.shared.link, &self.shared.options)?;
        for (i, &tensor) in self.ends.outputs.iter().enumerate() {
            let range = work.output(i);
            let data = data(runtime, tensor, &range)?;
            if data != work.map.at(&range) {
                // SAFETY: the tensor has as many bytes, which are this kernel's to write.
                unsafe { work.map.take(&range, data) };
            }
        }
        Ok(())
    }

    /// Takes the tensors out of the shared memory and gives the work back, for a graph that is the same.
    pub fn end(&mut self, runtime: Option<&Runtime>) {
        let Some(work) = self.work.take() else { return };
        for tensor in self.placed.drain(..) {
            if let Some(runtime) = runtime {
                runtime.place(tensor, (CUSTOM, ARENA_RW), std::ptr::null_mut());
            }
        }
        self.shared.keep(work);
    }
}

const GONE: &str = "the kernel has been freed";

/// Where a tensor's bytes are, which must be as many as the partition's.
fn data(runtime: &Runtime, tensor: usize, range: &Range<usize>) -> Result<*mut std::ffi::c_void, String> {
    let found = runtime.tensors().get(tensor).ok_or_else(|| no_tensor(tensor))?;
    if found.data.is_null() || found.bytes != range.len() {
        return Err(format!(
            "tensor {tensor} has {} bytes in the runtime and {} in the driver: call allocate_tensors() first",
            found.bytes,
            range.len()
        ));
    }
    Ok(found.data)
}
