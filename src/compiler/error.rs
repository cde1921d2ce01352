//! Why a compilation failed.

use super::CachingError;
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
    /// A compilation could not be prepared from its client's cache files.
    #[error(transparent)]
    Caching(CachingError),
    #[error("the backend panicked; this is a fault of the driver")]
    Panicked,
}
