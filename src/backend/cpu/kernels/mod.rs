//! Fast kernels. Each replaces the plain evaluation of an operation where it can, and is tested against it.

mod conv;
mod depthwise;
mod fully_connected;
pub mod gemm_f32;
pub mod gemm_i8;
pub mod simd;
mod source;
#[cfg(test)]
mod tests;

pub use source::Source;

use super::pool::Team;
use crate::memory::Weights;
use crate::ops::{Args, Interrupt, OpError, Operation, OperationType, Out};
use std::sync::OnceLock;

/// A kernel made for one call of an operation: geometry resolved, weights packed.
pub trait Kernel: Send + Sync {
    /// Fills the outputs, which have the dimensions known at compilation.
    fn run(&self, args: &Args, outs: &mut [Out], team: Team) -> Result<(), OpError>;

    /// Its packed weights, in the order in which it took them from its [`Source`].
    fn weights(&self) -> Vec<&Weights>;

    /// Inputs whose data are in the packed weights: a run does without them.
    fn packed_inputs(&self) -> &'static [usize];
}

/// A kernel for this call, if there is a faster one than the plain evaluation. All dimensions are known, those of the
/// outputs too; constants have data, but for those whose packed form the source has.
///
/// Everything that steers the kernel follows from `args`; the source gives nothing but values.
pub fn select(operation: &Operation, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    let isa = simd::Isa::detect();
    match operation.ty {
        OperationType::CONV_2D => conv::select(isa, args, source),
        OperationType::DEPTHWISE_CONV_2D => depthwise::select(isa, args, source),
        OperationType::FULLY_CONNECTED => fully_connected::select(isa, args, source),
        _ => None,
    }
}

/// The instruction set that kernels are chosen for.
pub fn instruction_set() -> &'static str {
    simd::Isa::detect().name()
}

/// Calls `work(first element, chunk)` for chunks of an output on all threads, until done or interrupted.
fn for_each_chunk<T: Send>(
    team: Team,
    interrupt: &dyn Interrupt,
    out: &mut [T],
    chunk: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) -> Result<(), OpError> {
    let stopped = OnceLock::new();
    team.for_each_chunk(out, chunk, &|first, part| {
        if stopped.get().is_some() {
            return;
        }
        match interrupt.check() {
            Ok(()) => work(first, part),
            // Whoever was first has told already.
            Err(why) => drop(stopped.set(why)),
        }
    });
    stopped.into_inner().map_or(Ok(()), Err)
}

/// Rows for each task: enough that handing them out costs little, few enough that all threads have some and that none
/// takes much over a millisecond, as only between tasks is looked whether to stop.
fn rows_per_task(rows: usize, cost_per_row: usize, threads: usize) -> usize {
    let even = rows.div_ceil(threads * 4);
    let worthwhile = (64 * 1024 / cost_per_row.max(1)).max(1);
    let short = (32 * 1024 * 1024 / cost_per_row.max(1)).max(1);
    even.max(worthwhile).min(short).next_multiple_of(12)
}
