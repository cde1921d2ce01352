//! Elementwise operations: a function of one element, or of an element of each of two inputs that broadcast.
//!
//! Results are those of the plain evaluation, byte for byte, but for exponentials and their kin, whose last bits differ.

mod binary;
mod broadcast;
mod functions;
pub(super) mod half;
mod in_place;
pub(super) mod loops;
pub(super) mod math;
#[cfg(target_arch = "x86_64")]
mod products_x86;
mod quantised;
mod quick;
mod round;
#[cfg(target_arch = "aarch64")]
mod sums_neon;
pub(super) mod table;
#[cfg(test)]
mod tests;
mod unary;

use super::{Kernel, Source};
use crate::ops::{Args, Operation, OperationType};
pub(super) use functions::Element;
pub(super) use round::round;
pub(super) use unary::quantiser;

/// A kernel for this call, if it is of an elementwise operation.
pub(super) fn select(operation: &Operation, args: &Args, source: &Source) -> Option<Box<dyn Kernel>> {
    binary::select(operation.ty, args).or_else(|| unary::select(operation, args, source))
}

/// Whether the operation makes each element of its output of one element of each input, or of that of an input which has
/// no other.
pub fn is_elementwise(ty: OperationType) -> bool {
    use OperationType::{ADD, DIV, MAXIMUM, MINIMUM, MUL, POW, PRELU, SUB};
    unary::is_unary(ty) || [ADD, DIV, MAXIMUM, MINIMUM, MUL, POW, PRELU, SUB].contains(&ty)
}
