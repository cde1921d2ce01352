//! Device buffers, NNAPI's memory domains: operand values that stay in the driver from one execution to the next.
//!
//! Who may use which buffer for what, and what is in it, is decided here; bytes are kept and copied by `memory`. Nothing
//! here knows of binder objects: a prepared model is a number that nobody else has, a client a uid and a pid.

mod account;
mod allocate;
#[cfg(test)]
mod copy_tests;
mod device_buffer;
#[cfg(test)]
mod tests;
mod tracker;
mod uses;

pub use allocate::{check_counts, plan, Plan, RoleModel};
pub use device_buffer::DeviceBuffer;
pub use tracker::{BufferHandle, BufferTracker};
pub use uses::{Claims, Uses};

use crate::memory::{DeviceMemory, MemoryError};
use crate::ops::evaluate::check_rank;
use crate::ops::OpError;
use crate::tensor::{Dims, TensorInfo};
use std::sync::Arc;

/// Gives memory of a device for a value of this operand, all of whose dimensions are known; `None` where this process's
/// own will do.
pub type Allocator =
    Arc<dyn Fn(&TensorInfo) -> Result<Option<Arc<dyn DeviceMemory>>, BufferError> + Send + Sync>;

/// The process that a buffer belongs to. A token is worth nothing to any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    pub uid: u32,
    pub pid: i32,
}

/// What a buffer may be used as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Role {
    /// The prepared model, by a number that is never given twice.
    pub model: u64,
    pub direction: Direction,
    /// Index among the model's inputs or outputs.
    pub index: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    Input,
    Output,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Direction::Input => "input",
            Direction::Output => "output",
        })
    }
}

/// Why a buffer could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum BufferError {
    /// The client breaks a rule of the interface.
    #[error("{0}")]
    Invalid(String),
    /// A valid wish that cannot be fulfilled, now or ever: no contents to read, in use, not supported.
    #[error("{0}")]
    Failed(String),
    /// A quota is used up; freeing buffers helps.
    #[error("{0}")]
    Exhausted(String),
    #[error("{what}: {source}")]
    Memory { what: &'static str, source: MemoryError },
    /// Nobody waits for it any more.
    #[error(transparent)]
    Interrupted(#[from] OpError),
}

fn invalid<T>(why: impl Into<String>) -> Result<T, BufferError> {
    Err(BufferError::Invalid(why.into()))
}

fn failed<T>(why: impl Into<String>) -> Result<T, BufferError> {
    Err(BufferError::Failed(why.into()))
}

/// Dimensions as the interface passes them, unless there are more than any tensor has: these are neither copied nor printed.
fn decode_dims(dims: &[i32]) -> Result<Dims, BufferError> {
    check_rank(dims.len()).map_err(|why| BufferError::Invalid(why.to_string()))?;
    dims.iter()
        .map(|&d| u32::try_from(d).map_err(|_| BufferError::Invalid(format!("dimension {d} is negative"))))
        .collect()
}
