//! Why memory could not be used.

/// Why memory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The client's description is wrong.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Access(&'static str),
    /// The driver cannot use memory of this kind.
    #[error("{0}")]
    Unsupported(&'static str),
    #[error("cannot map the memory: {0}")]
    Map(std::io::Error),
    #[error("no memory for {0} bytes")]
    OutOfMemory(usize),
    /// Its file shrank while we used it.
    #[error("the memory vanished: its file was truncated while in use")]
    Vanished,
    /// A limit of this process; trying again later can help.
    #[error("{0}")]
    Exhausted(&'static str),
}
