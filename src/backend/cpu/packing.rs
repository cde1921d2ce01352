//! Kernels with their weights, which are packed as the model is compiled.
//!
//! Which kernel a call has is settled by what steers alone, as only that is known when the compiled model is loaded.
//! Weights that are the client's still are packed where they lie, if the kernel can, or else from a copy in a scratch, of
//! which there are as many as threads: a copy of all of them is never made. Those that are to be widened are so there.

use super::constant::Constant;
use super::graph::Graph;
use super::kernels::was_bytes::was_bytes;
use super::kernels::{self, Kernel, Pack, Source};
use super::routine::is_data;
use crate::backend::BackendError;
use crate::memory::{forget_refusals, refused, Access, Accessed, AlignedBuf, MemoryError, Slab};
use crate::ops::pace::Pace;
use crate::ops::scratch::reserved;
use crate::ops::sort::sort;
use crate::ops::{Arg, Args, Few, Interrupt, OpError, Operation};
use crate::tensor::TensorInfo;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What it costs to look at a constant, in the steps that [`Pace`] counts.
const LOOK: usize = 16;

/// A call of an operation as it is known ahead.
pub struct Call<'g> {
    pub operation: &'static Operation,
    pub signature_index: usize,
    pub inputs: Vec<Option<Known<'g>>>,
    /// With all dimensions known.
    pub outputs: &'g [TensorInfo],
}

/// An input, and its bytes if it is a constant.
pub struct Known<'g> {
    pub info: &'g TensorInfo,
    pub constant: Option<&'g Constant>,
}

/// Packs the weights of calls.
pub struct Packer {
    weights: Slab,
    /// Scratches that no call uses.
    scratches: Mutex<Vec<AlignedBuf>>,
}

impl Packer {
    /// For calls of a graph.
    pub fn new(graph: &Graph, pace: &mut Pace) -> Result<Self, OpError> {
        let mut places = reserved(graph.values.len())?;
        let mut all = 0usize;
        for value in &graph.values {
            pace.spend(LOOK)?;
            let packed = |len| kernels::packed_bytes(&value.declared, len);
            match &value.constant {
                Some(Constant::Client(slice)) => {
                    let place = (std::ptr::from_ref(slice.mapping()).addr(), slice.offset(), slice.len());
                    places.push((place, packed(slice.len())));
                }
                Some(constant @ Constant::Widened(_)) => all = all.saturating_add(packed(constant.len())),
                _ => {}
            }
        }
        // Many may lie in one place, which is packed once: steps of a recurrent layer, say.
        sort(&mut places, usize::MAX, pace, |(a, _), (b, _)| a.cmp(b))?;
        let each = places.chunk_by(|(a, _), (b, _)| a == b).map(|same| same[0].1);
        pace.each(each, 1, |packed| all = all.saturating_add(packed))?;
        Ok(Packer { weights: Slab::new(all), scratches: Mutex::default() })
    }

    /// A kernel for this call, if there is a faster one than the plain evaluation, and it has all constants that it is
    /// packed from. It does not depend on how much memory is left: where some is missing, that is an error.
    pub fn kernel(
        &self,
        call: &Call,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<Box<dyn Kernel>>, BackendError> {
        forget_refusals();
        let kernel = self.first_kernel(call, interrupt)?;
        match refused() {
            // A kernel that memory was missing for does not tell why it is not there: this is another one, or none.
            Some(bytes) => Err(BackendError::OutOfMemory(bytes)),
            None => Ok(kernel),
        }
    }

    /// The first that there is memory for.
    fn first_kernel(
        &self,
        call: &Call,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<Box<dyn Kernel>>, BackendError> {
        let steering: Few<_> = call.inputs.iter().map(|known| known.as_ref()?.steering()).collect();
        let mut later = Source::later();
        let Some(chosen) = call.select(&steering, &mut later, interrupt) else {
            // It may have been told to stop.
            interrupt.check()?;
            return Ok(None);
        };
        if later.is_enough_for(&*chosen) {
            return Ok(Some(chosen));
        }
        let mut scratch; // what borrows of it goes before it
        let mut data = steering.to_vec();
        let memory = |source| BackendError::Memory { what: "weights to be packed".into(), source };
        let Some(others) = call.not_private(&*chosen, &mut data) else { return Ok(None) };
        let (mut copies, mut accesses) = (Vec::new(), Vec::new());
        for (input, constant) in others {
            let in_place = match constant {
                // What is packed of one place once is not packed again, so it must be the same for all calls.
                Constant::Client(slice) if chosen.packed_in_place().contains(&input) => {
                    Some(slice).filter(|slice| slice.mapping().lies_still())
                }
                _ => None,
            };
            let access = in_place.map(|slice| Accessed::new(slice.mapping(), Access::Read)).transpose();
            match in_place.zip(access.map_err(memory)?.flatten()) {
                Some((slice, access)) => accesses.push((input, slice, access)),
                None => copies.push((input, constant)),
            }
        }
        let mut views = vec![None; data.len()];
        for (input, slice, access) in &accesses {
            views[*input] = access.view(slice);
        }
        let size = copies.iter().map(|(_, constant)| constant.scratch()).fold(0, usize::saturating_add);
        scratch = self.scratch(size).ok_or(memory(MemoryError::OutOfMemory(size)))?;
        let mut rest = &mut scratch.bytes[..];
        for (input, constant) in copies {
            let (own, behind) = rest.split_at_mut(constant.scratch());
            (data[input], rest) = (Some(constant.copied(own, interrupt)?), behind);
        }
        let pack = Pack { slab: &self.weights, views: &views, interrupt };
        let kernel = call.select(&data, &mut Source::Pack(pack), interrupt);
        for (_, _, access) in accesses {
            access.end().map_err(memory)?;
        }
        if kernel.is_none() {
            // It was selected before: it was told to stop, or memory is missing.
            interrupt.check()?;
            let sizes = data.iter().flatten().map(|bytes| bytes.len());
            return Err(BackendError::OutOfMemory(sizes.fold(0, usize::saturating_add)));
        }
        Ok(kernel)
    }
}

impl Packer {
    fn scratches(&self) -> MutexGuard<'_, Vec<AlignedBuf>> {
        self.scratches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A scratch of at least `size` bytes; `None` where there is no memory.
    fn scratch(&self, size: usize) -> Option<Scratch<'_>> {
        if size == 0 {
            return Some(Scratch { packer: self, bytes: AlignedBuf::default() });
        }
        let left = self.scratches().pop().filter(|left| left.len() >= size);
        // One that is too small is gone by now.
        let bytes = left.map_or_else(|| AlignedBuf::zeroed(size), Some)?;
        Some(Scratch { packer: self, bytes })
    }
}

/// A scratch, for the next call when dropped.
struct Scratch<'p> {
    packer: &'p Packer,
    bytes: AlignedBuf,
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.packer.scratches().push(std::mem::take(&mut self.bytes));
        }
    }
}

impl<'g> Known<'g> {
    fn bytes(&self) -> Option<&'g [u8]> {
        self.constant?.bytes().map(|bytes| &bytes[..])
    }

    /// The bytes of what may steer.
    fn steering(&self) -> Option<&'g [u8]> {
        self.bytes().filter(|bytes| !is_data(self.info, bytes.len()))
    }
}

impl<'g> Call<'g> {
    /// Adds the constants that a kernel packs to the `data` of inputs, but for those that are not private, which it gives.
    /// `None` where one has no bytes.
    fn not_private(
        &self,
        kernel: &dyn Kernel,
        data: &mut [Option<&'g [u8]>],
    ) -> Option<Vec<(usize, &'g Constant)>> {
        let mut others = Vec::new();
        for &input in kernel.packed_inputs() {
            let known = self.inputs.get(input)?.as_ref()?;
            let constant = known.constant.filter(|bytes| Some(bytes.len()) == known.info.byte_size())?;
            let narrow = constant.narrow().filter(|_| kernel.packs_narrow() && was_bytes(known.info));
            match narrow.map_or(constant, |(_, narrow)| narrow) {
                Constant::Private(bytes) => data[input] = Some(bytes),
                other => others.push((input, other)),
            }
        }
        Some(others)
    }

    /// The kernel for this call; `data` are the inputs' bytes, as far as it may have them.
    fn select(
        &self,
        data: &[Option<&[u8]>],
        source: &mut Source,
        interrupt: &dyn Interrupt,
    ) -> Option<Box<dyn Kernel>> {
        let inputs = self.inputs.iter().zip(data);
        let inputs: Few<Option<Arg>> =
            inputs.map(|(known, &data)| Some(Arg { info: known.as_ref()?.info, data })).collect();
        let args =
            Args { signature_index: self.signature_index, inputs: &inputs, outputs: self.outputs, interrupt };
        kernels::select(self.operation, &args, source)
    }
}
