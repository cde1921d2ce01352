//! Where drivers are, and how to get to them there.

use super::error::{one_line, ClientError};
use super::ConnectOptions;
use crate::aidl::IDevice;
use binder::entry::{WireProfile, WireVersion};
use binder::rpc::FileDescriptorTransportMode as FdMode;
use binder::{Client, Endpoint, StatusCode, Strong, Uri};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The name that a driver goes by, less its instance.
pub(super) const INTERFACE: &str = "android.hardware.neuralnetworks.IDevice";
/// The instance that our own daemon serves in a directory of services.
const INSTANCE: &str = "nnhal";
pub(super) const BINDER_DEVICE: &str = "/dev/binder";

/// Where a driver is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceName {
    /// In this process, behind a socket of its own.
    Embedded,
    /// Behind a Unix socket, over binder RPC.
    Unix(PathBuf),
    /// An instance registered with the service manager of the kernel's binder.
    Binder(String),
}

impl FromStr for ServiceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "embedded" => Ok(Self::Embedded),
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("binder", instance)) if !instance.is_empty() => Ok(Self::Binder(instance.into())),
            _ => Err("expected embedded, unix:PATH or binder:INSTANCE".into()),
        }
    }
}

impl std::fmt::Display for ServiceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Embedded => f.write_str("embedded"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Binder(instance) => write!(f, "binder:{instance}"),
        }
    }
}

pub(super) fn connect_unix(
    path: &Path,
    options: &ConnectOptions,
) -> Result<(Client, Strong<dyn IDevice>), ClientError> {
    // The transport takes absolute paths only.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let uri = Uri::new(Endpoint::unix(absolute)).with_wire(WireProfile::Android13Plus(WireVersion::MAX));
    let connections = options.connections.max(1);
    let client = Client::open_with(uri, |o, _| {
        o.fd_mode = Some(FdMode::Unix);
        o.outgoing_connections = Some(connections);
        o.incoming_connections = Some(connections);
        o.timeout = options.timeout;
    })
    .map_err(|status| why_not_open(path, status))?;
    match find_device(&client) {
        Ok(device) => Ok((client, device)),
        Err(status) => {
            if let Some(session) = client.session() {
                session.close_session();
            }
            Err(ClientError::NotADriver { path: path.into(), why: status.to_string() })
        }
    }
}

/// The device is the root object itself, or in the directory that the root is.
fn find_device(client: &Client) -> Result<Strong<dyn IDevice>, StatusCode> {
    let session = client.session().ok_or(StatusCode::InvalidOperation)?;
    // A cast over RPC proves nothing; a device tells its version.
    let root = session.get_root().and_then(|root| root.into_interface::<dyn IDevice>());
    if let Some(device) = root.ok().filter(|device| device.getInterfaceVersion().is_ok()) {
        return Ok(device);
    }
    client.get::<dyn IDevice>(&format!("{INTERFACE}/{INSTANCE}"))
}

/// The transport tells little of why it could not connect: a plain connection tells whether anybody listens.
fn why_not_open(path: &Path, status: StatusCode) -> ClientError {
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) => ClientError::NobodyServes { path: path.into(), why: error.to_string() },
        Ok(_) => ClientError::NotADriver { path: path.into(), why: status.to_string() },
    }
}

pub(super) fn connect_kernel(
    instance: &str,
    options: &ConnectOptions,
) -> Result<Strong<dyn IDevice>, ClientError> {
    binder::ProcessState::init(BINDER_DEVICE, options.connections)
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
    use crate::tool::client::Driver;

    #[test]
    fn service_names_round_trip() {
        for text in ["embedded", "unix:/run/nn.sock", "binder:nnhal"] {
            assert_eq!(text.parse::<ServiceName>().expect(text).to_string(), text);
        }
        for text in ["", "unix:", "unix", "binder:", "tcp:1", "embedded:x"] {
            assert!(text.parse::<ServiceName>().is_err(), "{text}");
        }
    }

    fn refusal(service: &str) -> ClientError {
        let service = service.parse().expect("a service name");
        Driver::connect(&service, &ConnectOptions::default()).err().expect("nothing is there")
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
    fn kernel_binder_is_missed_by_name() {
        if Path::new(BINDER_DEVICE).exists() {
            println!("skipped: this machine has a kernel binder");
            return;
        }
        let error = refusal("binder:nnhal");
        assert!(matches!(error, ClientError::NoKernelBinder(_)), "{error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}
