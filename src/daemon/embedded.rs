//! A driver in the tool's own process, reached over a socket as any other is.

use super::serve::ServeError;
use super::unix::{UnixService, SOCKET_MODE};
use crate::backend::cpu::CpuBackend;
use crate::backend::Backend;
use crate::service::Driver;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How the driver is set up.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads that compute; `None` for one per core.
    pub threads: Option<usize>,
    /// Where the driver keeps what must survive it; `None` if nothing has to.
    pub data: Option<PathBuf>,
    /// Bytes of compiled models that it keeps there for clients that give no cache files; 0 for none, `None` for the
    /// driver's choice.
    pub store: Option<u64>,
    /// Bytes of private memory for all clients together; `None` for half of what the process may use.
    pub memory: Option<u64>,
}

/// Why the driver could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot make a directory at {}: {source}", .path.display())]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("cannot start threads: {0}")]
    Threads(std::io::Error),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// A driver that is served until this is dropped.
pub struct EmbeddedDaemon {
    service: UnixService,
    driver: Driver,
    _directory: PrivateDirectory, // after the service, whose socket is in it
}

/// Starts a driver with the CPU backend on a fresh socket that only this user can reach.
pub fn start(options: &Options) -> Result<EmbeddedDaemon, StartError> {
    let backend = match options.threads {
        Some(threads) => CpuBackend::new(threads),
        None => CpuBackend::on_all_cores(),
    };
    start_with(Arc::new(backend.map_err(StartError::Threads)?), options)
}

/// The same with any backend, which has its threads already.
pub fn start_with(backend: Arc<dyn Backend>, options: &Options) -> Result<EmbeddedDaemon, StartError> {
    let directory = PrivateDirectory::new()?;
    let builder = Driver::builder(backend).data(options.data.clone()).memory(options.memory);
    let builder = match options.store {
        Some(bytes) => builder.store(bytes),
        None => builder,
    };
    let driver = builder.build().map_err(StartError::Threads)?;
    let path = directory.0.join("nnhal.sock");
    let service = UnixService::start(&path, &driver.device, driver.for_transport(), SOCKET_MODE)?;
    driver.tell_of(service.quotas());
    Ok(EmbeddedDaemon { service, driver, _directory: directory })
}

impl EmbeddedDaemon {
    /// Where it is served.
    pub fn socket(&self) -> &Path {
        self.service.path()
    }
}

impl Drop for EmbeddedDaemon {
    fn drop(&mut self) {
        self.driver.settle(); // the process may end with it
    }
}

/// How long a driver may take to close what it kept.
const CLOSING: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// A directory that nobody else may enter, removed when dropped.
pub struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn new() -> Result<Self, StartError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mut tries = 0;
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("nnhal-{}-{count}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(PrivateDirectory(path)),
                // Left behind by a process of the same number.
                Err(e) if e.kind() == ErrorKind::AlreadyExists && tries < 1000 => tries += 1,
                Err(source) => return Err(StartError::Directory { path, source }),
            }
        }
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // A driver that kept something in it may write to that once more as its last connection ends.
        let began = Instant::now();
        while let Err(why) = std::fs::remove_dir_all(&self.0) {
            if why.kind() != ErrorKind::DirectoryNotEmpty || began.elapsed() > CLOSING {
                log::warn!("{} is left behind: {why}", self.0.display());
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_removed_that_is_written_to_for_a_moment_more() {
        let directory = PrivateDirectory::new().unwrap();
        let path = directory.path().to_path_buf();
        let writer = std::thread::spawn({
            let path = path.clone();
            move || (0..).find(|i| std::fs::write(path.join(i.to_string()), b"more").is_err() || *i > 2000)
        });
        while std::fs::read_dir(&path).unwrap().next().is_none() {
            std::thread::yield_now();
        }
        drop(directory);
        writer.join().unwrap();
        assert!(!path.exists());
    }
}
