//! Why a driver could not be reached, or what it answered.

use super::connect::{BINDER_DEVICE, INTERFACE};
use crate::aidl::ErrorStatus;
use crate::daemon::embedded::StartError;
use binder::StatusCode;
use std::path::PathBuf;
use std::time::Duration;

/// Why a driver could not be reached, or what it answered.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("nobody serves {}: start a driver there with `nnhald --service unix:{}` ({why})", .path.display(), .path.display())]
    NobodyServes { path: PathBuf, why: String },
    #[error("{} does not speak binder RPC as a driver does: {why}", .path.display())]
    NotADriver { path: PathBuf, why: String },
    #[error("this machine has no kernel binder ({BINDER_DEVICE}: {0}): use --service unix:PATH or embedded")]
    NoKernelBinder(String),
    #[error("no service manager answers on {BINDER_DEVICE} ({0}): start servicemanager or rsb_hub")]
    NoServiceManager(StatusCode),
    #[error("{INTERFACE}/{0} is not registered: start a driver with `nnhald --service binder:{0}`")]
    NotRegistered(String),
    #[error("cannot start the embedded driver: {0}")]
    Embedded(#[from] StartError),
    /// The driver's own answer.
    #[error("the driver refused {call}: {}{}", name(*.status), because(.message))]
    Refused { call: &'static str, status: ErrorStatus, message: String },
    #[error("the driver died during {call}")]
    Died { call: &'static str },
    #[error("the driver gave no answer to {call} within {} s", .after.as_secs())]
    TimedOut { call: &'static str, after: Duration },
    /// Neither an answer nor a death: the call itself did not work.
    #[error("{call} failed: {why}")]
    Call { call: &'static str, why: String },
}

impl ClientError {
    /// What the driver answered; `None` if it did not.
    pub fn status(&self) -> Option<ErrorStatus> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether there is no driver any more, or none that answers.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Self::Refused { .. } | Self::Call { .. })
    }
}

/// The transport's messages may end in a line break.
pub(super) fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn because(message: &str) -> String {
    if message.is_empty() {
        String::new()
    } else {
        format!(": {message}")
    }
}

/// The interface's name of an error status.
pub fn name(status: ErrorStatus) -> String {
    match status {
        ErrorStatus::NONE => "NONE",
        ErrorStatus::DEVICE_UNAVAILABLE => "DEVICE_UNAVAILABLE",
        ErrorStatus::GENERAL_FAILURE => "GENERAL_FAILURE",
        ErrorStatus::OUTPUT_INSUFFICIENT_SIZE => "OUTPUT_INSUFFICIENT_SIZE",
        ErrorStatus::INVALID_ARGUMENT => "INVALID_ARGUMENT",
        ErrorStatus::MISSED_DEADLINE_TRANSIENT => "MISSED_DEADLINE_TRANSIENT",
        ErrorStatus::MISSED_DEADLINE_PERSISTENT => "MISSED_DEADLINE_PERSISTENT",
        ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT => "RESOURCE_EXHAUSTED_TRANSIENT",
        ErrorStatus::RESOURCE_EXHAUSTED_PERSISTENT => "RESOURCE_EXHAUSTED_PERSISTENT",
        ErrorStatus(other) => return format!("error {other}"),
    }
    .into()
}
