//! Why an operation did not do its work.

/// An error of a check, a shape rule or an evaluation. The caller adds which operation it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// A value that the answer depends on is not known yet: try again at execution.
    #[error("depends on a value that is not known yet")]
    Unresolved,
    /// The operands make no valid call.
    #[error("{0}")]
    Failed(String),
    /// There is no memory for so many bytes of work in progress.
    #[error("no memory for {0} bytes")]
    OutOfMemory(usize),
    /// The deadline has passed.
    #[error("the deadline has passed")]
    DeadlinePassed,
    /// The execution was cancelled, or its client is gone.
    #[error("cancelled")]
    Cancelled,
}

impl OpError {
    pub fn failed(why: impl Into<String>) -> Self {
        OpError::Failed(why.into())
    }
}
