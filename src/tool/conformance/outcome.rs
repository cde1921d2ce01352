//! How a model fared in a suite, and the errors by which a suite stops early.

use crate::client::ClientError;
use crate::tool::error::ToolError;

/// Why a model could not be judged: the rules of FORMAT.md allow these and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skip {
    /// The driver does not take these operations of the model.
    Unsupported(Vec<String>),
    /// The model needs a later version of the interface.
    Version(i32),
    /// No way of execution that the suite needs is there.
    NoPath,
    /// The driver declined an execution in a way that the suite allows.
    Declined(String),
    /// The suite has nothing to do with this model after all.
    Inapplicable(&'static str),
}

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Skip::Unsupported(operations) => write!(f, "unsupported: {}", operations.join(", ")),
            Skip::Version(version) => write!(f, "needs interface version {version}"),
            Skip::NoPath => f.write_str("no way of execution that the suite needs"),
            Skip::Declined(why) => write!(f, "declined: {why}"),
            Skip::Inapplicable(why) => f.write_str(why),
        }
    }
}

/// What became of one model in one suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed(String),
    Skipped(Skip),
}

/// Why a suite went no further with a model.
#[derive(Debug)]
pub enum Stop {
    Skip(Skip),
    Fail(String),
    /// There is no driver any more, or this machine cannot go on.
    Fatal(ToolError),
}

/// The result of a step of a suite.
pub type Step<T = ()> = Result<T, Stop>;

/// Ends the model as failed.
pub fn fail<T>(why: impl Into<String>) -> Step<T> {
    Err(Stop::Fail(why.into()))
}

impl Stop {
    /// This stop, with words on where it happened.
    pub fn at(self, place: impl std::fmt::Display) -> Self {
        match self {
            Stop::Fail(why) => Stop::Fail(format!("{place}: {why}")),
            other => other,
        }
    }
}

impl From<ClientError> for Stop {
    fn from(error: ClientError) -> Self {
        if error.is_fatal() {
            Stop::Fatal(error.into())
        } else {
            Stop::Fail(error.to_string())
        }
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Stop::Fatal(ToolError::Memory(error))
    }
}
