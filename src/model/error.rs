//! Why a model was not accepted.

use crate::memory::MemoryError;
use crate::ops::OpError;

#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The model breaks a rule of the interface. The text names subgraph, operation and operand.
    #[error("{0}")]
    Invalid(String),
    /// A valid model that is beyond this driver's limits.
    #[error("{0}")]
    TooLarge(String),
    #[error("{what}: {source}")]
    Memory { what: String, source: MemoryError },
    /// Nobody waits for it any more: cancelled, or past its deadline.
    #[error(transparent)]
    Interrupted(#[from] OpError),
}

impl ModelError {
    pub(super) fn invalid(why: impl Into<String>) -> Self {
        ModelError::Invalid(why.into())
    }
}
