//! Elementwise operations: a function of one element, or of an element of each of two inputs that broadcast.
//!
//! Results are those of the plain evaluation, byte for byte, but for exponentials and their kin, whose last bits differ.

mod binary;
mod blocks;
mod broadcast;
mod call;
mod functions;
pub(super) mod half;
mod in_place;
mod loops;
pub(super) mod math;
mod merged;
mod quantised;
mod quick;
mod round;
mod table;
#[cfg(test)]
mod tests;
mod unary;

use super::{Kernel, Source};
pub(super) use call::select;
pub use call::{Call as MergedCall, Input};
pub(super) use functions::Element;
pub use merged::{is_elementwise, merge};
pub(super) use round::round;
pub(super) use unary::quantiser;
