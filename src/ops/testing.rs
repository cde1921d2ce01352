//! Shorthand for tests of operations: tensors from literals, one call, outputs as vectors.

use super::{evaluate::evaluate, Arg, Computed, Interrupt, NeverInterrupted, OpError, Operation};
use crate::memory::AlignedBuf;
use crate::tensor::{OperandType, TensorInfo};
use bytemuck::NoUninit;
use smallvec::smallvec;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// An operand with its value.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub info: TensorInfo,
    pub data: AlignedBuf,
}

/// Counts yield points.
#[derive(Default)]
pub struct Counting(AtomicUsize);

impl Counting {
    /// How many there were since this was last asked.
    pub fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl Interrupt for Counting {
    fn check(&self) -> Result<(), OpError> {
        Ok(())
    }

    fn yield_point(&self) -> Result<(), OpError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// A tensor or scalar (`dims` empty) of `values`, which must be of the type's size.
pub fn tensor<T: NoUninit>(info: TensorInfo, values: &[T]) -> Tensor {
    Tensor { info, data: AlignedBuf::copy_of(bytemuck::cast_slice(values)).unwrap() }
}

pub fn f32s(dims: &[u32], values: &[f32]) -> Tensor {
    tensor(TensorInfo::new(OperandType::TENSOR_FLOAT32, dims), values)
}

pub fn i32s(dims: &[u32], values: &[i32]) -> Tensor {
    tensor(TensorInfo::new(OperandType::TENSOR_INT32, dims), values)
}

pub fn int(value: i32) -> Tensor {
    tensor(TensorInfo::new(OperandType::INT32, &[]), &[value])
}

pub fn boolean(value: bool) -> Tensor {
    tensor(TensorInfo::new(OperandType::BOOL, &[]), &[u8::from(value)])
}

pub fn float(value: f32) -> Tensor {
    tensor(TensorInfo::new(OperandType::FLOAT32, &[]), &[value])
}

/// An interrupt that comes once it has been asked a number of times.
pub struct InterruptedAfter(AtomicU32);

impl InterruptedAfter {
    pub fn checks(n: u32) -> Self {
        InterruptedAfter(AtomicU32::new(n))
    }
}

impl Interrupt for InterruptedAfter {
    fn check(&self) -> Result<(), OpError> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| OpError::Cancelled)
    }
}

/// Calls `operation` on `inputs`.
pub fn call(
    operation: &Operation,
    inputs: &[Option<Tensor>],
    outputs: &[TensorInfo],
) -> Result<Vec<Computed>, OpError> {
    let args: Vec<_> =
        inputs.iter().map(|t| t.as_ref().map(|t| Arg { info: &t.info, data: Some(&t.data) })).collect();
    evaluate(operation, &args, outputs, &NeverInterrupted)
}

/// Calls an operation whose inputs are all given and whose only output is of the first input's type and quantisation;
/// gives the output's dimensions and elements.
pub fn call_simple<T: bytemuck::AnyBitPattern>(
    operation: &Operation,
    inputs: &[Tensor],
) -> Result<(Vec<u32>, Vec<T>), OpError> {
    let inputs: Vec<_> = inputs.iter().cloned().map(Some).collect();
    let out = TensorInfo { dims: smallvec![], ..inputs[0].as_ref().unwrap().info.clone() };
    let result = call(operation, &inputs, &[out])?.remove(0);
    Ok((result.dims.to_vec(), bytemuck::cast_slice(&result.data).to_vec()))
}
