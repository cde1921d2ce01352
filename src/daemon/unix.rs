//! The service on a Unix socket, over binder RPC. Must know nothing of the kernel's binder.

use super::connections::Connections;
use super::serve::ServeError;
use crate::aidl::IDevice;
use crate::scheduler::{CallTurns, Quota, Watcher};
use binder::entry::WireVersion;
use binder::rpc::{FileDescriptorTransportMode as FdMode, RpcServer};
use binder::{Interface, StatusCode, Strong};
use nix::sys::socket::Backlog;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections that one client's session may have for its calls.
const CONNECTIONS_PER_SESSION: u32 = 16;
/// How long a client may take to answer a callback, or to read an answer. Its session ends then.
///
/// A client that answers at all does so at once; but its process may be stopped meanwhile, by its user, by a debugger, or
/// by a system that freezes apps out of sight. Whatever it holds counts on its own share, so that others do not miss it.
const PATIENCE: Duration = Duration::from_secs(600);
/// Who may connect, unless told otherwise: the user that the daemon runs as.
pub const SOCKET_MODE: u32 = 0o600;

/// A service on a Unix socket; ends, and removes its socket, when dropped.
pub struct UnixService {
    server: Arc<RpcServer>,
    connections: Arc<Connections>,
    listener: Arc<UnixListener>,
    threads: Vec<JoinHandle<()>>,
    path: PathBuf,
}

impl UnixService {
    /// Serves `device` on `path` as the root object, for any libbinder client from Android 13 on. Users whom the file's
    /// `mode` lets write to it may connect. Large messages are read by `turns`, and `watcher` waits for connections to end.
    pub fn start(
        path: &Path,
        device: &Strong<dyn IDevice>,
        (turns, watcher): (CallTurns, Arc<Watcher>),
        mode: u32,
    ) -> Result<Self, ServeError> {
        let listener = Arc::new(listen(path, mode)?);
        let internal = |why: StatusCode| ServeError::Listen { path: path.into(), why: why.to_string() };
        // The crate insists on a socket of its own. Nobody connects to it, because we accept the connections ourselves.
        let server = RpcServer::setup_unix_server_abstract(&unused_name()).map_err(internal)?;
        server.set_android13plus(WireVersion::MAX.get());
        server.set_supported_fd_modes(&[FdMode::None, FdMode::Unix]);
        server.set_max_threads(CONNECTIONS_PER_SESSION);
        server.set_reply_timeout(Some(PATIENCE));
        server.set_root(device.as_binder()).map_err(internal)?;
        let connections = Connections::new(turns, watcher);
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

/// How many may wait to be accepted.
const LINE: i32 = 128;

/// Makes a socket at `path` with this mode, in place of one that a dead daemon left there.
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
    // Shorter than the standard library has it: who connects behind one that floods it waits for all of these.
    let few = Backlog::new(LINE).map_err(std::io::Error::from).map_err(failed)?;
    nix::sys::socket::listen(&listener, few).map_err(|why| failed(why.into()))?;
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
