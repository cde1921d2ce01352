//! Programs as bytes, and back.
//!
//! The model bytes hold all that steers: operations, types, shapes, the memory plan, indices and small constants. The
//! data bytes hold large constants and packed weights, one after the other in the order in which the model bytes
//! mention them, each from a multiple of [`WEIGHTS_ALIGNMENT`](crate::memory::WEIGHTS_ALIGNMENT) on.
//!
//! Loading takes nothing on trust. Calls are matched with their signatures again, shapes computed again, kernels chosen
//! again, all from the model bytes alone, so that data bytes can change values and nothing else, and so that even
//! model bytes that were tampered with give an error or a program that runs into one.

mod bytes;
mod check;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::read;
pub use write::write;

use super::kernels;
use crate::tensor::TensorInfo;

/// Changes whenever the format does.
const FORMAT: u32 = 7;

/// Constants up to this size are among the model bytes, whatever they are.
const SMALL: usize = 1024;

/// An input that the call leaves out.
const OMITTED: u32 = u32::MAX;

/// Where a value lives, as the format says it.
mod place {
    pub const DYNAMIC: u8 = 0;
    pub const ARENA: u8 = 1;
    pub const IN_MODEL: u8 = 2;
    pub const IN_DATA: u8 = 3;
    pub const PACKED: u8 = 4;
}

/// Whether a constant's bytes are mere data.
pub fn is_data(info: &TensorInfo, len: usize) -> bool {
    info.ty.is_plain_data() && len > SMALL
}

/// What the program was made for. Packed weights are of no use to other instruction sets.
fn made_for() -> String {
    format!("{FORMAT} {}", kernels::instruction_set())
}
