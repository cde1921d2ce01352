//! Why a cache could not be used.

use crate::memory::MemoryError;
use crate::ops::OpError;

/// Why nothing was saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error("no model cache file")]
    NoModel,
    #[error("{0} cache files for a compiled model in {1}")]
    Count(usize, usize),
    #[error("the {0} cache is not a regular file opened for reading and writing")]
    Access(&'static str),
    #[error("two cache files are the same file")]
    SameFile,
    /// Reading from it could block for ever.
    #[error("the {0} cache lies in a file system that another process serves")]
    Served(&'static str),
    #[error("the cache files are in use by others")]
    Busy,
    #[error("nothing is recorded for this token")]
    Unknown,
    #[error("the model cache is not what this driver wrote for this token")]
    Changed,
    #[error("the data cache has changed since")]
    DataChanged,
    #[error("a compiled model of {0} bytes is too large")]
    TooLarge(usize),
    #[error("the {what} cache: {why}")]
    Io { what: &'static str, why: std::io::Error },
    #[error("the data cache: {0}")]
    Data(MemoryError),
    #[error("the registry of caches: {0}")]
    Registry(String),
    #[error("what the caches are read for is to stop: {0}")]
    Stopped(OpError),
    /// Of people's own looks at the caches.
    #[error("{0}")]
    Offline(String),
}
