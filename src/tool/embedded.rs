//! The one place where the tool starts a driver in its own process; from there on it is a client like any other.

use std::convert::Infallible;
use std::path::Path;

/// A driver in this process. Uninhabited until the service lands.
pub struct EmbeddedDaemon(Infallible);

impl EmbeddedDaemon {
    pub fn socket(&self) -> &Path {
        match self.0 {}
    }
}

/// Starts a driver with this many worker threads; `None` lets it choose.
pub fn start(_threads: Option<usize>) -> Result<EmbeddedDaemon, String> {
    Err("this build has no embedded driver; use --service unix:PATH or binder:INSTANCE".into())
}
