//! What stands in for the service on a socket where the binder library serves none: libbinder_rs has no RPC server that
//! vendors may use. Must not pretend to serve.

use super::serve::ServeError;
use crate::aidl::IDevice;
use crate::ipc::Strong;
use crate::quota::Quota;
use crate::scheduler::{CallTurns, Watcher};
use std::path::Path;
use std::sync::Arc;

/// The mode that a socket would have.
pub const SOCKET_MODE: u32 = 0o600;

/// There is none.
pub enum UnixService {}

impl UnixService {
    /// Always fails.
    pub fn start(
        path: &Path,
        _: &Strong<dyn IDevice>,
        _: (CallTurns, Arc<Watcher>),
        _: u32,
    ) -> Result<Self, ServeError> {
        let why = "this build serves the kernel's binder alone".into();
        Err(ServeError::Listen { path: path.into(), why })
    }

    /// Of no service.
    pub fn quotas(&self) -> Vec<(&'static str, Arc<Quota>)> {
        match *self {}
    }

    /// Of no service.
    pub fn abandon(self) {
        match self {}
    }
}
