//! What a kernel is to those who run it, and how it reaches its operands.

use super::work::Work;
use crate::memory::{Target, View, Weights};
use crate::ops::OpError;
use bytemuck::AnyBitPattern;

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

    /// Its packed weights, in the order in which it took them from its [`Source`](super::Source); most kernels have none.
    fn weights(&self) -> Vec<&Weights> {
        Vec::new()
    }

    /// Inputs whose data are in the packed weights: a run does without them.
    fn packed_inputs(&self) -> &'static [usize] {
        &[]
    }

    /// Of these, the ones that are packed where they lie, which may be in a client's memory: see [`Source::view`].
    ///
    /// [`Source::view`]: super::Source::view
    fn packed_in_place(&self) -> &'static [usize] {
        &[]
    }
}

/// Input `i` as elements.
pub(super) fn input<'a, T: AnyBitPattern>(
    inputs: &[Option<View<'a, u8>>],
    i: usize,
) -> Result<View<'a, T>, OpError> {
    let bytes = inputs.get(i).copied().flatten().ok_or(OpError::Unresolved)?;
    bytes.elements().ok_or_else(|| OpError::failed("operand's bytes do not fit its type"))
}

/// Output `i` as elements.
pub(super) fn output<'a, T: AnyBitPattern>(
    outputs: &'a mut [Target<u8>],
    i: usize,
) -> Result<Target<'a, T>, OpError> {
    let bytes = outputs.get_mut(i).ok_or(OpError::Unresolved)?;
    bytes.elements().ok_or_else(|| OpError::failed("output's bytes do not fit its type"))
}
