//! Fast kernels. Each replaces the plain evaluation of an operation where it can, and is tested against it.

mod batch_matmul;
mod conv;
mod depthwise;
mod elementwise;
mod fully_connected;
mod gather;
mod gemm;
mod lstm;
mod movement;
#[cfg(target_arch = "aarch64")]
mod neon;
mod peaks;
mod pool;
mod reduce;
mod resize;
pub mod simd;
mod softmax;
mod source;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twin_tests;
#[cfg(test)]
mod twins;
mod vector;
#[cfg(test)]
mod work_tests;

pub use peaks::peaks;
pub use source::Source;

use super::pool::Team;
use crate::memory::{Target, View, Weights};
use crate::ops::{Args, Interrupt, OpError, Operation, OperationType};
use bytemuck::AnyBitPattern;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Duration;

/// A kernel made for one call of an operation: geometry resolved, weights packed.
pub trait Kernel: Send + Sync {
    /// What to call it in a profile: its kind, and the instructions that were chosen where that makes a difference.
    fn name(&self) -> String;

    /// Fills the outputs, which have the dimensions known at compilation, from the inputs, by index. Of those that are
    /// packed there may be none.
    ///
    /// All may lie in client memory, which changes meanwhile: an input is for arithmetic only, and what was written must
    /// not be read. A kernel that goes by an input's values must copy them first.
    fn run(&self, inputs: &[Option<View<u8>>], outputs: &mut [Target<u8>], work: Work)
        -> Result<(), OpError>;

    /// Its packed weights, in the order in which it took them from its [`Source`]; most kernels have none.
    fn weights(&self) -> Vec<&Weights> {
        Vec::new()
    }

    /// Inputs whose data are in the packed weights: a run does without them.
    fn packed_inputs(&self) -> &'static [usize] {
        &[]
    }
}

/// A kernel for this call, if there is a faster one than the plain evaluation. All dimensions are known, those of the
/// outputs too; constants have data, but for those whose packed form the source has.
///
/// Everything that steers the kernel follows from `args`; the source gives nothing but values.
pub fn select(operation: &Operation, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    select_for(simd::Isa::detect(), operation, args, source)
}

/// The same for an instruction set.
fn select_for(
    isa: simd::Isa,
    operation: &Operation,
    args: &Args,
    source: &mut Source,
) -> Option<Box<dyn Kernel>> {
    match operation.ty {
        OperationType::BATCH_MATMUL => batch_matmul::select(isa, args),
        OperationType::CONV_2D => conv::select(isa, args, source),
        OperationType::DEPTHWISE_CONV_2D => depthwise::select(isa, args, source),
        OperationType::FULLY_CONNECTED => fully_connected::select(isa, args, source),
        OperationType::LSTM | OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM => {
            lstm::select(isa, operation.ty, args, source)
        }
        ty => elementwise::select(operation, args, source)
            .or_else(|| movement::select(operation, args))
            .or_else(|| gather::select(ty, args))
            .or_else(|| pool::select(ty, args))
            .or_else(|| reduce::select(ty, args))
            .or_else(|| resize::select(ty, args, source))
            .or_else(|| softmax::select(ty, args)),
    }
}

/// Counts the changes to which calls have kernels, and to their results: what an earlier generation compiled is not to
/// be mixed with this one.
const GENERATION: u32 = 4;

/// The instruction set that kernels are chosen for, and their generation.
pub fn instruction_set() -> String {
    format!("{}.{GENERATION}", simd::Isa::detect().name())
}

/// Input `i` as elements.
fn input<'a, T: AnyBitPattern>(inputs: &[Option<View<'a, u8>>], i: usize) -> Result<View<'a, T>, OpError> {
    let bytes = inputs.get(i).copied().flatten().ok_or(OpError::Unresolved)?;
    bytes.elements().ok_or_else(|| OpError::failed("operand's bytes do not fit its type"))
}

/// Output `i` as elements.
fn output<'a, T: AnyBitPattern>(outputs: &'a mut [Target<u8>], i: usize) -> Result<Target<'a, T>, OpError> {
    let bytes = outputs.get_mut(i).ok_or(OpError::Unresolved)?;
    bytes.elements().ok_or_else(|| OpError::failed("output's bytes do not fit its type"))
}

/// Who does a kernel's work, and who may stop it.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    pub team: Team<'a>,
    pub interrupt: &'a dyn Interrupt,
}

impl Work<'_> {
    /// Calls `work(first element, chunk)` for chunks of an output on all threads, until done or interrupted.
    fn for_each_chunk<T: AnyBitPattern + Send>(
        self,
        out: Target<T>,
        chunk: usize,
        work: impl Fn(usize, Target<T>) + Sync,
    ) -> Result<(), OpError> {
        self.in_parts(out.len(), chunk, |part| {
            // SAFETY: parts do not overlap, and each is handed out once.
            work(part.start, unsafe { out.disjoint_part(part.start, part.len()) });
        })
    }

    /// Calls `work(units)` for all units below `count`, several at a time, each of which takes so many picoseconds.
    fn for_each_range(
        self,
        count: usize,
        picoseconds: usize,
        work: impl Fn(Range<usize>) + Sync,
    ) -> Result<(), OpError> {
        self.in_parts(count, self.units_per_task(count, picoseconds), work)
    }

    /// Elements for each task of a kernel that spends so many picoseconds on each: all of them where handing them out
    /// takes longer than it saves, otherwise few enough that no thread waits long for another, and that a task takes
    /// well under a millisecond.
    fn per_task(self, elements: usize, picoseconds: usize) -> usize {
        self.units_per_task(elements, picoseconds).next_multiple_of(256)
    }

    /// The same for units that are more than an element.
    fn units_per_task(self, units: usize, picoseconds: usize) -> usize {
        const NANOSECOND: usize = 1000;
        let at_most = |nanoseconds: usize| (nanoseconds * NANOSECOND / picoseconds.max(1)).max(1);
        let alone = Duration::from_nanos((units.saturating_mul(picoseconds) / NANOSECOND) as u64);
        let even = match self.team.threads_for(alone) {
            1 => units,
            threads => units.div_ceil(4 * threads).max(at_most(2000)),
        };
        even.min(at_most(250_000)).max(1)
    }

    /// Calls `work` for parts of `0..len`, each but the last of `part` of them, on all threads, until done or interrupted.
    fn in_parts(self, len: usize, part: usize, work: impl Fn(Range<usize>) + Sync) -> Result<(), OpError> {
        let (part, stopped) = (part.max(1), OnceLock::new());
        // Only who has the turn may pass it on; the helpers' next parts are few.
        let owner = std::thread::current().id();
        let interrupted = || {
            if std::thread::current().id() == owner {
                self.interrupt.yield_point()
            } else {
                self.interrupt.check()
            }
        };
        self.team.for_each(len.div_ceil(part), &|i| {
            if stopped.get().is_some() {
                return;
            }
            match interrupted() {
                Ok(()) => work(i * part..len.min((i + 1) * part)),
                // Whoever was first has told already.
                Err(why) => drop(stopped.set(why)),
            }
        });
        stopped.into_inner().map_or(Ok(()), Err)
    }
}
