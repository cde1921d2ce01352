//! What can go wrong in the tool, and the exit code that tells so.

use crate::cache::CacheError;
use crate::client::ClientError;
use crate::daemon::embedded::StartError;
use crate::tflite::ImportError;
use crate::tool::conformance::corpus::CorpusError;
use std::path::PathBuf;

/// An error of a subcommand, in one line.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot start the embedded driver: {0}")]
    Embedded(#[from] StartError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    #[error("{}: {why}", .path.display())]
    File { path: PathBuf, why: std::io::Error },
    #[error("{}: {why}", .path.display())]
    Model { path: PathBuf, why: ImportError },
    /// The reader of standard output has gone, as `head` does: the tool ends without a word, before all work is done.
    #[error("nobody reads standard output any more")]
    Unread,
    #[error("no shared memory: {0}")]
    Memory(std::io::Error),
    /// What was asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The work was done, and what it was to find out is: no.
    #[error("{0}")]
    Failed(String),
    #[error("the driver has not answered for {0} s")]
    Hung(u64),
    /// The driver was lost in the middle of the work, and for good.
    #[error("{lost} (while running {doing}), and did not come back within {wait} s ({why}): start it again, or say how with --restart")]
    Gone { lost: String, doing: String, wait: u64, why: Box<ToolError> },
}

impl ToolError {
    /// 1 when the work was done and failed, 2 when it could not be done.
    pub fn exit_code(&self) -> u8 {
        match self {
            ToolError::Failed(_) => 1,
            _ => 2,
        }
    }
}
