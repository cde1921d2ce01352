//! Fast kernels. Each replaces the plain evaluation of an operation where it can, and is tested against it.

pub mod gemm_f32;
pub mod gemm_i8;
pub mod simd;

use super::pool::ThreadPool;
use crate::ops::{Args, OpError, Operation, Out};

/// A kernel made for one call of an operation: geometry resolved, weights packed.
pub trait Kernel: Send + Sync {
    /// Fills the outputs, which have the dimensions known at compilation.
    fn run(&self, args: &Args, outs: &mut [Out], pool: &ThreadPool) -> Result<(), OpError>;
}

/// A kernel for this call, if there is a faster one than the plain evaluation. All dimensions are known; constants have
/// data. `outs` are the resolved outputs.
pub fn select(_operation: &Operation, _args: &Args) -> Option<Box<dyn Kernel>> {
    None
}

/// The instruction set that kernels are chosen for.
pub fn instruction_set() -> &'static str {
    simd::Isa::detect().name()
}
