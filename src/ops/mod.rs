//! The operations of NNAPI, one place each: signature, rules, shape and plain evaluation.
//!
//! [`OperationType::operation`] is the one table that the validator, the backends, the tool and the documentation read.
//! A plain evaluation works on private memory, single-threaded and straightforward: it is what runs until a backend has
//! a faster kernel, and the twin that such a kernel is tested against. No operation may panic, whatever its operands
//! hold; values and dimensions come from clients.

mod args;
pub mod broadcast;
mod control_flow;
pub mod conv;
pub mod detection;
pub mod elementwise;
mod error;
pub mod evaluate;
#[cfg(test)]
pub mod hostile;
pub mod image;
mod in_common;
mod interrupt;
pub mod lookup;
pub mod matmul;
pub mod movement;
pub mod norm;
mod operation;
mod operation_type;
pub mod pace;
pub mod pool;
#[cfg(test)]
mod quantisation_tests;
pub mod random;
pub mod recurrent;
pub mod reduce;
pub mod resize;
pub mod scratch;
pub mod search;
pub mod signature;
pub mod sort;
mod table;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod turns_tests;
pub mod work;

pub use args::{Arg, Args, Input, Out};
pub use error::OpError;
pub use in_common::in_common;
pub use interrupt::{Interrupt, NeverInterrupted};
pub use operation::{
    axis_index, keeps_quantisation, no_check, same_as_first, same_quantisation, Computed, Operation, Run,
    Shapes,
};
pub use operation_type::OperationType;
pub use scratch::{by_parts, clear, copy, reserved};
pub use signature::Signature;

/// A list of a call's operands, without memory of its own where there are as many as nearly all calls have.
pub type Few<T> = smallvec::SmallVec<[T; 8]>;
