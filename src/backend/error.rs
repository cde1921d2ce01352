//! Why a compilation or an execution failed.

use crate::memory::MemoryError;
use crate::model::ModelError;
use crate::ops::OpError;

/// Why a compilation or an execution failed. Each becomes one binder status, at the service's edge.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The model needs what this backend does not have.
    #[error("{0}")]
    Unsupported(String),
    /// An operation could not do its work; the text names it.
    #[error("{0}")]
    Failed(String),
    #[error("no memory for {0} bytes")]
    OutOfMemory(usize),
    /// The device has no room for so many bytes now; it may have later.
    #[error("the device has no memory for {0} bytes")]
    OutOfDeviceMemory(u64),
    /// However much memory the machine has.
    #[error("its values take {size} bytes at once; a run may take {limit}")]
    TooLarge { size: u64, limit: u64 },
    #[error("{what}: {source}")]
    Memory { what: String, source: MemoryError },
    /// The device, or the process that drives it, is gone. What was prepared must be prepared again.
    #[error("the device is lost: {0}")]
    DeviceLost(String),
    /// The device takes no more work now; it will later.
    #[error("the device is busy: {0}")]
    DeviceBusy(String),
    #[error("the deadline has passed")]
    DeadlinePassed,
    /// A WHILE ran for longer than its time limit.
    #[error("a loop ran for longer than {0:?}")]
    LoopTimeout(std::time::Duration),
    #[error("cancelled")]
    Cancelled,
}

impl From<OpError> for BackendError {
    /// Without the operation's name, which the caller adds.
    fn from(error: OpError) -> Self {
        match error {
            OpError::DeadlinePassed => BackendError::DeadlinePassed,
            OpError::Cancelled => BackendError::Cancelled,
            OpError::OutOfMemory(bytes) => BackendError::OutOfMemory(bytes),
            other => BackendError::Failed(other.to_string()),
        }
    }
}

impl From<ModelError> for BackendError {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::Interrupted(why) => why.into(),
            ModelError::Memory { what, source } => BackendError::Memory { what, source },
            why => BackendError::Failed(why.to_string()),
        }
    }
}

impl BackendError {
    /// For `map_err`: memory could not be read, written or mapped; `what` names it.
    pub fn memory(what: &'static str) -> impl Fn(MemoryError) -> Self + Copy {
        move |source| BackendError::Memory { what: what.into(), source }
    }

    /// This error, with the place where it happened in front.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Self {
        match self {
            BackendError::Failed(why) => BackendError::Failed(format!("{place}: {why}")),
            other => other,
        }
    }
}
