//! Where drivers are, and how to get to them there.

use super::error::{one_line, ClientError, INTERFACE};
use super::polled::Polled;
use crate::aidl::IDevice;
use crate::scheduler::PollingBudget;
use binder::entry::WireVersion;
use binder::rpc::{FileDescriptorTransportMode as FdMode, RpcClientConfig, RpcSession, RpcTransport};
use binder::{FromIBinder, StatusCode, Strong};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// The instance that our own daemon serves in a directory of services.
const INSTANCE: &str = "nnhal";

/// Where a driver is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Behind a Unix socket, over binder RPC.
    Unix(PathBuf),
    /// An instance registered with the service manager of the kernel's binder.
    Binder(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("binder", instance)) if !instance.is_empty() => Ok(Self::Binder(instance.into())),
            _ => Err("expected unix:PATH or binder:INSTANCE".into()),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Binder(instance) => write!(f, "binder:{instance}"),
        }
    }
}

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// How many calls may be under way at once (RPC only; a server may allow fewer).
    pub connections: u32,
    /// Longest wait for any answer; `None` waits for as long as the driver lives. The kernel's binder knows no such
    /// limit: there it bounds compilations only. A driver's first answers, over RPC, are waited for half a minute at most.
    pub timeout: Option<Duration>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions { connections: 4, timeout: None }
    }
}

/// Longest wait for a driver's first answers where no other is asked for: they compute nothing, but the machine may be busy.
const FIRST_ANSWERS: Duration = Duration::from_secs(30);

pub(super) fn connect_unix(
    path: &Path,
    options: &ConnectOptions,
) -> Result<(RpcSession, Strong<dyn IDevice>), ClientError> {
    let connections = options.connections.max(1);
    let polling = PollingBudget::for_processors(std::thread::available_parallelism().map_or(1, |n| n.get()));
    let connect = || Ok(Box::new(Polled::connect(path, &polling)?) as Box<dyn RpcTransport>);
    let patience = options.timeout.unwrap_or(FIRST_ANSWERS);
    let config = RpcClientConfig::new(WireVersion::MAX.get(), connect)
        .fd_mode(FdMode::Unix)
        .outgoing_connections(connections)
        .incoming_connections(connections)
        .timeout(patience);
    let found = RpcSession::setup_client_android13plus_with_config(config).and_then(|session| {
        let device = find_device(&session).inspect_err(|_| session.close_session())?;
        Ok((session, device))
    });
    match found {
        Ok((session, device)) => {
            session.set_timeout(options.timeout);
            Ok((session, device))
        }
        // To connect once more might wait for ever: the kernel lets only so many do so whom nobody takes.
        Err(StatusCode::TimedOut) => Err(ClientError::Silent { path: path.into(), after: patience }),
        Err(status) => Err(why_not_open(path, status)),
    }
}

/// The device is the root object itself, or in the directory that the root is.
fn find_device(session: &RpcSession) -> Result<Strong<dyn IDevice>, StatusCode> {
    let root = session.get_root().and_then(|root| root.into_interface::<dyn IDevice>());
    // A cast over RPC proves nothing; a device tells its version.
    match root.and_then(|device| match device.getInterfaceVersion() {
        Ok(_) => Ok(device),
        Err(status) => Err(status.transaction_error()),
    }) {
        Ok(device) => return Ok(device),
        Err(StatusCode::TimedOut) => return Err(StatusCode::TimedOut),
        Err(_) => {}
    }
    FromIBinder::try_from(session.get_service(&format!("{INTERFACE}/{INSTANCE}"))?)
}

/// The transport tells little of why there is no device: a plain connection tells whether anybody listens.
fn why_not_open(path: &Path, status: StatusCode) -> ClientError {
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) => ClientError::NobodyServes { path: path.into(), why: error.to_string() },
        Ok(_) => ClientError::NotADriver { path: path.into(), why: status.to_string() },
    }
}

/// `binder` is the path of the kernel's binder.
pub(super) fn connect_kernel(
    binder: &str,
    instance: &str,
    options: &ConnectOptions,
) -> Result<Strong<dyn IDevice>, ClientError> {
    binder::ProcessState::init(binder, options.connections)
        .map_err(|error| ClientError::NoKernelBinder(one_line(&error.to_string())))?;
    // Callbacks and death notices come in on it.
    binder::ProcessState::start_thread_pool();
    binder::hub::try_get_interface(&format!("{INTERFACE}/{instance}"))
        .map_err(ClientError::NoServiceManager)?
        .ok_or_else(|| ClientError::NotRegistered(instance.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Driver;

    #[test]
    fn addresses_round_trip() {
        for text in ["unix:/run/nn.sock", "binder:nnhal"] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
        for text in ["", "unix:", "unix", "binder:", "tcp:1", "embedded"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    fn refusal(address: &str) -> ClientError {
        let address = address.parse().expect("an address");
        Driver::connect(&address, &ConnectOptions::default()).err().expect("nothing is there")
    }

    #[test]
    fn absent_drivers_are_named() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("nn.sock");
        let error = refusal(&format!("unix:{}", path.display()));
        assert!(matches!(error, ClientError::NobodyServes { .. }), "{error}");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
        let error = refusal(&format!("unix:{}", path.display())).to_string();
        assert!(error.starts_with("nobody serves") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn a_driver_that_hangs_is_said_not_to_answer() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("nn.sock");
        // The kernel takes connections for it; a process that was stopped looks the same.
        let _listener = std::os::unix::net::UnixListener::bind(&path).expect("bind");
        let options = ConnectOptions { timeout: Some(Duration::from_millis(100)), ..Default::default() };
        let error = Driver::connect(&Address::Unix(path), &options).err().expect("nobody answers");
        assert!(matches!(error, ClientError::Silent { .. }) && error.is_fatal(), "{error}");
        assert!(error.to_string().contains("does not answer"), "{error}");
    }

    #[test]
    fn kernel_binder_is_missed_by_name() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let absent = dir.path().join("binder").display().to_string();
        let error = connect_kernel(&absent, "nnhal", &ConnectOptions::default()).expect_err("no binder");
        assert!(matches!(error, ClientError::NoKernelBinder(_)), "{error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}
