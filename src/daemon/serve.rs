//! The service on a Unix socket, or on the kernel's binder.

use crate::aidl::IDevice;
use crate::scheduler::limits::EXECUTIONS;
use binder::entry::WireVersion;
use binder::rpc::{FileDescriptorTransportMode as FdMode, RpcServer};
use binder::{Interface, ProcessState, StatusCode, Strong};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The interface's name, under which instances are registered.
pub const INTERFACE: &str = "android.hardware.neuralnetworks.IDevice";

/// Connections that one client's session may have for its calls.
const CONNECTIONS_PER_SESSION: u32 = 16;
/// Connections in all: each has a thread. More wait until one ends.
const MAX_CONNECTIONS: usize = 512;
/// How long a client may take to answer a callback, which costs it nothing but a hand-over. Its session ends then.
const PATIENCE: Duration = Duration::from_secs(30);
/// Calls served at once over the kernel's binder besides executions: such as wait for nobody.
const QUICK_CALLS: u64 = 32;
const KERNEL_DEVICE: &str = "/dev/binder";

/// Why the service cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{} is served by another daemon already: stop that one, or choose another path", .0.display())]
    Taken(PathBuf),
    #[error("{} exists and is no socket: remove it, or choose another path", .0.display())]
    NotASocket(PathBuf),
    #[error("cannot listen on {}: {why}", .path.display())]
    Listen { path: PathBuf, why: String },
    #[error(
        "{INTERFACE}/{0} is served by another daemon already: stop that one, or choose another instance"
    )]
    Registered(String),
    #[error("no kernel binder at {KERNEL_DEVICE} ({0}): use --service unix:PATH")]
    NoKernelBinder(String),
    #[error("the service manager does not register {INTERFACE}/{instance}: {why}")]
    Register { instance: String, why: String },
}

/// A service on a Unix socket; ends, and removes its socket, when dropped.
pub struct UnixService {
    server: Arc<RpcServer>,
    accepting: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl UnixService {
    /// Serves `device` on `path`, for any libbinder client from Android 13 on: it is the root object.
    pub fn start(path: &Path, device: &Strong<dyn IDevice>) -> Result<Self, ServeError> {
        let listen = |why| match why {
            StatusCode::AlreadyExists => ServeError::NotASocket(path.into()),
            StatusCode::Errno(errno) if errno == -libc::EADDRINUSE => ServeError::Taken(path.into()),
            StatusCode::NameNotFound => {
                ServeError::Listen { path: path.into(), why: "its directory does not exist".into() }
            }
            why => ServeError::Listen { path: path.into(), why: why.to_string() },
        };
        check_free(path)?;
        let server = RpcServer::setup_unix_server(path).map_err(listen)?;
        server.set_android13plus(WireVersion::MAX.get());
        server.set_supported_fd_modes(&[FdMode::None, FdMode::Unix]);
        server.set_max_threads(CONNECTIONS_PER_SESSION);
        server.set_max_connections(MAX_CONNECTIONS);
        server.set_reply_timeout(Some(PATIENCE));
        server.set_root(device.as_binder()).map_err(listen)?;
        let accepting = Some(server.run_background());
        Ok(UnixService { server, accepting, path: path.into() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For a process about to exit: removes the socket, and waits for no call that is under way.
    pub fn abandon(self) {
        self.server.stop_accepting();
        if let Err(why) = std::fs::remove_file(&self.path) {
            log::warn!("{} is left behind: {why}", self.path.display());
        }
        std::mem::forget(self);
    }
}

/// Finds out, before the binder crate does and says so in a log line of its own, whether `path` is taken. What a dead
/// daemon left there is not: it is replaced.
fn check_free(path: &Path) -> Result<(), ServeError> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => Err(ServeError::NotASocket(path.into())),
        Ok(_) if UnixStream::connect(path).is_ok() => Err(ServeError::Taken(path.into())),
        _ => Ok(()),
    }
}

impl Drop for UnixService {
    fn drop(&mut self) {
        self.server.stop_accepting();
        if let Some(accepting) = self.accepting.take() {
            if accepting.join().is_err() {
                log::error!("the thread that accepts connections panicked");
            }
        }
        self.server.terminate();
    }
}

/// Registers `device` as `instance` with the kernel binder's service manager. It is served on threads of its own for
/// as long as the process lives.
pub fn register(instance: &str, device: &Strong<dyn IDevice>) -> Result<(), ServeError> {
    let threads = u32::try_from(EXECUTIONS.total() + QUICK_CALLS).unwrap_or(u32::MAX);
    if let Err(why) = ProcessState::init(KERNEL_DEVICE, threads) {
        // The text may have lines.
        let why = why.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        return Err(ServeError::NoKernelBinder(why));
    }
    // Whoever finds the service may call it at once.
    ProcessState::start_thread_pool();
    let name = format!("{INTERFACE}/{instance}");
    if binder::hub::check_interface::<dyn IDevice>(&name).is_ok() {
        return Err(ServeError::Registered(instance.into()));
    }
    binder::hub::add_service(&name, device.as_binder())
        .map_err(|why| ServeError::Register { instance: instance.into(), why: why.to_string() })
}
