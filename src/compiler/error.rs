//! Why a compilation failed.

use crate::backend::BackendError;
use crate::scheduler::Exhausted;

#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    #[error("too many compilations are waiting: {0}")]
    TooManyJobs(Exhausted),
    /// The deadline had passed when the compilation was asked for.
    #[error("the deadline had passed already")]
    Expired,
    #[error(transparent)]
    Backend(BackendError),
    #[error("the backend panicked; this is a fault of the driver")]
    Panicked,
}
