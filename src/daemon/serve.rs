//! The service on a Unix socket, or on the kernel's binder.

use super::connections::Connections;
use crate::aidl::IDevice;
use crate::scheduler::limits::EXECUTIONS;
use crate::scheduler::Quota;
use binder::entry::WireVersion;
use binder::rpc::{FileDescriptorTransportMode as FdMode, RpcServer};
use binder::{Interface, ProcessState, StatusCode, Strong};
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The interface's name, under which instances are registered.
pub const INTERFACE: &str = "android.hardware.neuralnetworks.IDevice";

/// Connections that one client's session may have for its calls.
const CONNECTIONS_PER_SESSION: u32 = 16;
/// How long a client may take to answer a callback, or to read an answer. Its session ends then.
///
/// A client that answers at all does so at once; but its process may be stopped meanwhile, by its user, by a debugger, or
/// by a system that freezes apps out of sight. Whatever it holds counts on its own share, so that others do not miss it.
const PATIENCE: Duration = Duration::from_secs(600);
/// Who may connect, unless told otherwise: the user that the daemon runs as.
pub const SOCKET_MODE: u32 = 0o600;
/// Calls served at once over the kernel's binder besides executions: such as wait for nobody.
const QUICK_CALLS: u64 = 32;
const KERNEL_DEVICE: &str = "/dev/binder";

/// Why the service cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{} is served by another daemon already: stop that one, or choose another path", .0.display())]
    Taken(PathBuf),
    #[error("{} exists and is not a socket: remove it, or choose another path", .0.display())]
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
    connections: Arc<Connections>,
    listener: Arc<UnixListener>,
    threads: Vec<JoinHandle<()>>,
    path: PathBuf,
}

impl UnixService {
    /// Serves `device` on `path`, for any libbinder client from Android 13 on: it is the root object. Whom the file's
    /// `mode` lets write may connect.
    pub fn start(path: &Path, device: &Strong<dyn IDevice>, mode: u32) -> Result<Self, ServeError> {
        let listener = Arc::new(listen(path, mode)?);
        let internal = |why: StatusCode| ServeError::Listen { path: path.into(), why: why.to_string() };
        // The crate wants a socket of its own, by which nobody connects: connections are accepted by us.
        let server = RpcServer::setup_unix_server_abstract(&unused_name()).map_err(internal)?;
        server.set_android13plus(WireVersion::MAX.get());
        server.set_supported_fd_modes(&[FdMode::None, FdMode::Unix]);
        server.set_max_threads(CONNECTIONS_PER_SESSION);
        server.set_reply_timeout(Some(PATIENCE));
        server.set_root(device.as_binder()).map_err(internal)?;
        let connections = Connections::new();
        let threads = connections.accept(listener.clone(), server.clone());
        let threads =
            threads.map_err(|why| ServeError::Listen { path: path.into(), why: why.to_string() })?.into();
        Ok(UnixService { server, connections, listener, threads, path: path.into() })
    }

    /// What is shared out among connections, and what it counts.
    pub fn quotas(&self) -> Vec<(&'static str, Arc<Quota>)> {
        self.connections.quotas()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For a process about to exit: removes the socket, and waits for no call that is under way.
    pub fn abandon(self) {
        self.server.stop_accepting();
        self.stop_accepting();
        std::mem::forget(self);
    }
}

/// A socket at `path` with this mode. What a dead daemon left there is replaced.
fn listen(path: &Path, mode: u32) -> Result<UnixListener, ServeError> {
    let failed = |why: std::io::Error| match why.kind() {
        ErrorKind::AddrInUse => ServeError::Taken(path.into()),
        ErrorKind::NotFound => {
            ServeError::Listen { path: path.into(), why: "its directory does not exist".into() }
        }
        _ => ServeError::Listen { path: path.into(), why: why.to_string() },
    };
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(ServeError::NotASocket(path.into())),
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(ServeError::Taken(path.into())),
        Ok(_) => std::fs::remove_file(path).map_err(failed)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    // Until then the process's umask decides its mode.
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed)?;
    Ok(listener)
}

/// A name that no other socket has.
fn unused_name() -> Vec<u8> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("nnhal-unused-{}-{count}", std::process::id()).into_bytes()
}

impl UnixService {
    /// Removes the socket, and has the threads that accept connections end.
    fn stop_accepting(&self) {
        self.connections.end(&self.listener);
        if let Err(why) = std::fs::remove_file(&self.path) {
            log::warn!("{} is left behind: {why}", self.path.display());
        }
    }
}

impl Drop for UnixService {
    fn drop(&mut self) {
        self.stop_accepting();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                log::error!("a thread that accepts connections panicked");
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
    // A client may call the service as soon as it is registered.
    ProcessState::start_thread_pool();
    let name = format!("{INTERFACE}/{instance}");
    if binder::hub::check_interface::<dyn IDevice>(&name).is_ok() {
        return Err(ServeError::Registered(instance.into()));
    }
    binder::hub::add_service(&name, device.as_binder())
        .map_err(|why| ServeError::Register { instance: instance.into(), why: why.to_string() })
}
