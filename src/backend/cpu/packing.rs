//! Kernels that pack their weights when they are first needed.
//!
//! Which kernel a call has is settled when the model is compiled, so that results are the same bytes whenever the
//! weights are packed, and by whom. Until then the call's constants are kept as they are.

use super::artifact::is_data;
use super::kernels::{self, Kernel, Source};
use super::late::Late;
use crate::backend::BackendError;
use crate::memory::{AlignedBuf, MemoryError, Weights};
use crate::ops::{Arg, Args, Interrupt, NeverInterrupted, Operation};
use crate::tensor::TensorInfo;
use std::sync::Arc;

/// A call of an operation as it is known ahead.
pub struct Call {
    pub operation: &'static Operation,
    pub form: usize,
    pub inputs: Vec<Option<Known>>,
    /// With all dimensions known.
    pub outputs: Vec<TensorInfo>,
}

/// An input, and its bytes if it is a constant. What may steer is private, mere data may lie in a file that changes.
pub struct Known {
    pub info: TensorInfo,
    pub constant: Option<Weights>,
}

/// A kernel, packed or to be packed.
pub struct LateKernel {
    packed_inputs: &'static [usize],
    kernel: Late<Call, Box<dyn Kernel>>,
}

/// How far a kernel is.
pub enum Stage {
    /// Its weights.
    Packed(Vec<Weights>),
    /// What it will be packed from, by input.
    Draft(Vec<(usize, Weights)>),
}

impl LateKernel {
    /// A kernel for this call, if there is a faster one than the plain evaluation, and it has all constants that it is
    /// packed from.
    pub fn draft(call: Call) -> Option<Self> {
        let steering = call.steering();
        let packed_inputs = call.select(&steering, &mut Source::Later, &NeverInterrupted)?.packed_inputs();
        if packed_inputs.is_empty() {
            // There is nothing that could wait.
            return call.select(&steering, &mut Source::Pack, &NeverInterrupted).map(LateKernel::packed);
        }
        let has_constant = |&i: &usize| {
            let known = call.inputs.get(i)?.as_ref()?;
            known.constant.as_ref().filter(|bytes| Some(bytes.len()) == known.info.byte_size())
        };
        let complete = packed_inputs.iter().all(|i| has_constant(i).is_some());
        complete.then(|| LateKernel { packed_inputs, kernel: Late::of(call) })
    }

    /// One that an earlier compilation has packed.
    pub fn packed(kernel: Box<dyn Kernel>) -> Self {
        LateKernel { packed_inputs: kernel.packed_inputs(), kernel: Late::made(kernel) }
    }

    /// Inputs whose data only the kernel needs.
    pub fn packed_inputs(&self) -> &'static [usize] {
        self.packed_inputs
    }

    pub fn is_packed(&self) -> bool {
        self.kernel.get().is_some()
    }

    /// What its kernel is called, packed or not.
    pub fn name(&self) -> Option<String> {
        match self.kernel.source() {
            Some(call) => {
                let kernel = call.select(&call.steering(), &mut Source::Later, &NeverInterrupted);
                kernel.map(|kernel| kernel.name())
            }
            None => self.kernel.get().map(|kernel| kernel.name()),
        }
    }

    /// The kernel, with its weights packed now if they have not been.
    pub fn pack(&self, interrupt: &dyn Interrupt) -> Result<&dyn Kernel, BackendError> {
        self.kernel.get_or_make(interrupt, |call| call.pack(interrupt)).map(|kernel| &**kernel)
    }

    pub fn stage(&self) -> Stage {
        if let Some(call) = self.kernel.source() {
            let constant = |&i: &usize| Some((i, call.inputs.get(i)?.as_ref()?.constant.clone()?));
            return Stage::Draft(self.packed_inputs.iter().filter_map(constant).collect());
        }
        let weights = self.kernel.get().map(|kernel| kernel.weights().into_iter().cloned().collect());
        Stage::Packed(weights.unwrap_or_default())
    }

    /// Whether it reads from memory that is not private.
    pub fn is_shared(&self) -> bool {
        let is_shared = |weights: &Weights| matches!(weights, Weights::Shared(_));
        match self.stage() {
            Stage::Packed(weights) => weights.iter().any(is_shared),
            Stage::Draft(constants) => constants.iter().any(|(_, weights)| is_shared(weights)),
        }
    }
}

impl Call {
    /// The constants that decide which kernel it is, by input.
    fn steering(&self) -> Vec<Option<Arc<AlignedBuf>>> {
        let steering = |known: &Known| match &known.constant {
            Some(Weights::Private(bytes)) if !is_data(&known.info, bytes.len()) => Some(bytes.clone()),
            _ => None,
        };
        self.inputs.iter().map(|known| known.as_ref().and_then(steering)).collect()
    }

    /// The kernel for this call; `constants` are the inputs' bytes, as far as it may have them.
    fn select(
        &self,
        constants: &[Option<Arc<AlignedBuf>>],
        source: &mut Source,
        interrupt: &dyn Interrupt,
    ) -> Option<Box<dyn Kernel>> {
        let inputs: Vec<Option<Arg>> = self
            .inputs
            .iter()
            .zip(constants)
            .map(|(known, data)| {
                Some(Arg { info: &known.as_ref()?.info, data: data.as_ref().map(|bytes| &bytes[..]) })
            })
            .collect();
        let args = Args { form: self.form, inputs: &inputs, outputs: &self.outputs, interrupt };
        kernels::select(self.operation, &args, source)
    }

    fn pack(&self, interrupt: &dyn Interrupt) -> Result<Box<dyn Kernel>, BackendError> {
        let private = |known: &Option<Known>| -> Result<Option<Arc<AlignedBuf>>, MemoryError> {
            let constant = known.as_ref().and_then(|known| known.constant.as_ref());
            constant.map(Weights::to_private).transpose()
        };
        let constants = self
            .inputs
            .iter()
            .map(private)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|source| BackendError::Memory { what: "a constant to be packed".into(), source })?;
        let size = constants.iter().flatten().map(|bytes| bytes.len()).sum();
        if let Some(kernel) = self.select(&constants, &mut Source::Pack, interrupt) {
            return Ok(kernel);
        }
        // It was selected before: it was told to stop, or memory is missing.
        interrupt.check()?;
        Err(BackendError::OutOfMemory(size))
    }
}
