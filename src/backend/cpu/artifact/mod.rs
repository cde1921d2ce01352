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
mod format;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use bytes::Unread;
pub use read::read;
pub use write::write;
