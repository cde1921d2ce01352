//! Why a driver could not be reached, or what it answered.

use crate::aidl::{status_name, ErrorStatus};
use binder::StatusCode;
use std::path::PathBuf;
use std::time::Duration;

/// The name that a driver is registered by, without its instance.
pub(super) const INTERFACE: &str = "android.hardware.neuralnetworks.IDevice";
pub(super) const BINDER_DEVICE: &str = "/dev/binder";

/// Why a driver could not be reached, or what it answered.
#[allow(missing_docs)] // of the fields, which the messages explain
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens on the socket.
    #[error("nobody serves {}: start a driver there with `nnhald --service unix:{}` ({why})", .path.display(), .path.display())]
    NobodyServes { path: PathBuf, why: String },
    /// Something listens, but its root object is not a device.
    #[error("{} does not speak binder RPC as a driver does: {why}", .path.display())]
    NotADriver { path: PathBuf, why: String },
    /// Somebody listens, and says nothing.
    #[error(
        "the driver at {} does not answer: nothing came within {} s of connecting; it hangs or was stopped, or has no \
         connection left",
        .path.display(), .after.as_secs()
    )]
    Silent { path: PathBuf, after: Duration },
    /// The kernel has no binder driver, or this process may not open it.
    #[error("this machine has no kernel binder ({BINDER_DEVICE}: {0}): use unix:PATH")]
    NoKernelBinder(String),
    /// The binder driver is there, but nobody keeps its directory of services.
    #[error("no service manager answers on {BINDER_DEVICE} ({0}): start servicemanager or rsb_hub")]
    NoServiceManager(StatusCode),
    /// The directory of services does not have this instance.
    #[error("{INTERFACE}/{0} is not registered: start a driver with `nnhald --service binder:{0}`")]
    NotRegistered(String),
    /// The driver's own answer.
    #[error("the driver refused {call}: {}{}", name(*.status), because(.message))]
    Refused { call: &'static str, status: ErrorStatus, message: String },
    /// The driver's word on an execution that it took.
    #[error("{}", ended(*.0))]
    Ended(ErrorStatus),
    /// The driver's process ended, or the connection to it.
    #[error("the driver died during {call}")]
    Died { call: &'static str },
    /// The connection ended, but not the driver; or another has taken its place.
    #[error(
        "the connection to the driver ended during {call}, and a driver is there still: it was restarted, or gave this \
         client up, as one that did not answer for minutes; its log says"
    )]
    Disconnected { call: &'static str },
    /// No answer came within [`ConnectOptions::timeout`](super::ConnectOptions::timeout).
    #[error("the driver gave no answer to {call} within {} s", .after.as_secs())]
    TimedOut { call: &'static str, after: Duration },
    /// Neither an answer nor a death: the call itself did not work.
    #[error("{call} failed: {why}")]
    Call { call: &'static str, why: String },
    /// A file of the client's own, such as a cache file.
    #[error("{}: {why}", .path.display())]
    File { path: PathBuf, why: std::io::Error },
    /// Shared memory could not be made, written or read.
    #[error("no shared memory: {0}")]
    Memory(std::io::Error),
    /// The prepared model lacks the extension object that bursts over queues need.
    #[error("this driver has no bursts over queues")]
    NoQueues,
}

impl ClientError {
    /// What the driver answered; `None` if it did not.
    pub fn status(&self) -> Option<ErrorStatus> {
        match self {
            Self::Refused { status, .. } | Self::Ended(status) => Some(*status),
            _ => None,
        }
    }

    /// Whether there is no driver any more, or none that answers.
    pub fn is_fatal(&self) -> bool {
        !matches!(
            self,
            Self::Refused { .. }
                | Self::Ended(_)
                | Self::Call { .. }
                | Self::File { .. }
                | Self::Memory(_)
                | Self::NoQueues
        )
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

fn ended(status: ErrorStatus) -> String {
    match status {
        ErrorStatus::OUTPUT_INSUFFICIENT_SIZE => {
            "the driver found the outputs larger than the model says: its shapes are wrong".into()
        }
        other => format!("the execution ended in {}", name(other)),
    }
}

/// The interface's name of an error status, or its number.
pub fn name(status: ErrorStatus) -> String {
    status_name(status).map_or_else(|| format!("error {}", status.0), str::to_owned)
}
