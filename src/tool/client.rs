//! The tool's way to a driver: over binder, as any client goes, wherever the driver is.
//!
//! Must not know what a driver is made of: an embedded one is started and then talked to over its socket.

use crate::aidl::*;
use crate::service::embedded::{self, EmbeddedDaemon, StartError};
use crate::service::Options;
use binder::entry::{WireProfile, WireVersion};
use binder::rpc::FileDescriptorTransportMode as FdMode;
use binder::{
    BinderResult, Client, DeathRecipient, Endpoint, ExceptionCode, Interface, ParcelFileDescriptor,
    StatusCode, Strong, Uri, WIBinder,
};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The name that a driver goes by, less its instance.
const INTERFACE: &str = "android.hardware.neuralnetworks.IDevice";
/// The instance that our own daemon serves in a directory of services.
const INSTANCE: &str = "nnhal";
const BINDER_DEVICE: &str = "/dev/binder";
/// How often a wait looks whether the driver has died meanwhile.
const PULSE: Duration = Duration::from_millis(100);

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

/// How to connect.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// How many calls may be under way at once (RPC only; a server may allow fewer).
    pub connections: u32,
    /// Longest wait for any answer; `None` waits for as long as the driver lives. The kernel's binder knows no such
    /// limit: there it bounds compilations only.
    pub timeout: Option<Duration>,
    /// Worker threads of an embedded driver; `None` lets it choose.
    pub threads: Option<usize>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions { connections: 4, timeout: None, threads: None }
    }
}

/// How to compile.
#[derive(Clone, Copy, Debug)]
pub struct PrepareOptions {
    pub preference: ExecutionPreference,
    pub priority: Priority,
    /// On CLOCK_BOOTTIME, in nanoseconds; -1 is none.
    pub deadline_ns: i64,
    /// Whether to ask by prepareModelWithConfig.
    pub with_config: bool,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        PrepareOptions {
            preference: ExecutionPreference::FAST_SINGLE_ANSWER,
            priority: Priority::MEDIUM,
            deadline_ns: -1,
            with_config: false,
        }
    }
}

/// What a driver tells the callback of a compilation.
pub type Verdict = (ErrorStatus, Option<Strong<dyn IPreparedModel>>);

/// A connection to a driver. Ends when dropped, and an embedded driver with it.
pub struct Driver {
    device: Strong<dyn IDevice>,
    vitals: Arc<Vitals>,
    timeout: Option<Duration>,
    client: Option<Client>,
    // Last: it must outlive the connection.
    _daemon: Option<EmbeddedDaemon>,
}

impl Driver {
    pub fn connect(service: &ServiceName, options: &ConnectOptions) -> Result<Driver, ClientError> {
        match service {
            ServiceName::Embedded => {
                let daemon = embedded::start(&Options { threads: options.threads })?;
                let (client, device) = connect_unix(daemon.socket(), options)?;
                Ok(Self::new(device, Some(client), Some(daemon), options))
            }
            ServiceName::Unix(path) => {
                let (client, device) = connect_unix(path, options)?;
                Ok(Self::new(device, Some(client), None, options))
            }
            ServiceName::Binder(instance) => {
                Ok(Self::new(connect_kernel(instance, options)?, None, None, options))
            }
        }
    }

    fn new(
        device: Strong<dyn IDevice>,
        client: Option<Client>,
        daemon: Option<EmbeddedDaemon>,
        options: &ConnectOptions,
    ) -> Self {
        let vitals = Arc::new(Vitals { dead: AtomicBool::new(false) });
        if let Err(error) = device.link_to_death_arc(&vitals) {
            // Already dead, or the transport cannot tell: the next call will.
            log::debug!("no notice of the driver's death: {error}");
        }
        Driver { device, vitals, timeout: options.timeout, client, _daemon: daemon }
    }

    pub fn device(&self) -> &Strong<dyn IDevice> {
        &self.device
    }

    /// Longest wait for any answer.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Whether the driver is known to have died, or the connection to have ended.
    pub fn is_dead(&self) -> bool {
        let ended = self.client.as_ref().and_then(Client::session).is_some_and(|s| s.is_ended());
        ended || self.vitals.dead.load(Ordering::Acquire)
    }

    /// The value of a call, or its failure under its name.
    pub fn answer<T>(&self, call: &'static str, result: BinderResult<T>) -> Result<T, ClientError> {
        let status = match result {
            Ok(value) => return Ok(value),
            Err(status) => status,
        };
        if status.exception_code() == ExceptionCode::ServiceSpecific {
            let message = status.message().unwrap_or_default().to_string();
            return Err(ClientError::Refused {
                call,
                status: ErrorStatus(status.service_specific_error()),
                message,
            });
        }
        match (status.transaction_error(), self.timeout) {
            (StatusCode::TimedOut, Some(after)) => Err(ClientError::TimedOut { call, after }),
            (StatusCode::DeadObject, _) => Err(ClientError::Died { call }),
            _ if self.is_dead() => Err(ClientError::Died { call }),
            _ => Err(ClientError::Call { call, why: status.to_string() }),
        }
    }

    /// Compiles a model and waits for it.
    pub fn prepare(
        &self,
        model: &Model,
        options: &PrepareOptions,
    ) -> Result<Strong<dyn IPreparedModel>, ClientError> {
        let (launch, ear) = self.launch(model, options);
        let call = ear.call;
        self.answer(call, launch)?;
        match ear.wait(self)? {
            (ErrorStatus::NONE, Some(prepared)) => Ok(prepared),
            (ErrorStatus::NONE, None) => {
                Err(ClientError::Call { call, why: "success was reported without a prepared model".into() })
            }
            (status, _) => Err(ClientError::Refused { call, status, message: String::new() }),
        }
    }

    /// Launches a compilation: the call's own answer, and an ear for what the callback will be told.
    pub fn launch(&self, model: &Model, options: &PrepareOptions) -> (BinderResult<()>, Ear) {
        let (sender, verdicts) = std::sync::mpsc::channel();
        let callback = BnPreparedModelCallback::new_binder(Callback(Mutex::new(Some(sender))));
        if options.with_config {
            let config = PrepareModelConfig {
                preference: options.preference,
                priority: options.priority,
                deadlineNs: options.deadline_ns,
                ..Default::default()
            };
            let launch = self.device.prepareModelWithConfig(model, &config, &callback);
            return (launch, Ear { call: "prepareModelWithConfig", verdicts, _callback: callback });
        }
        let token = [0; BYTE_SIZE_OF_CACHE_TOKEN as usize];
        let none: &[ParcelFileDescriptor] = &[];
        let PrepareOptions { preference, priority, deadline_ns, .. } = *options;
        let launch =
            self.device.prepareModel(model, preference, priority, deadline_ns, none, none, &token, &callback);
        (launch, Ear { call: "prepareModel", verdicts, _callback: callback })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The threads that serve callbacks keep a session alive.
        if let Some(session) = self.client.as_ref().and_then(Client::session) {
            session.close_session();
        }
    }
}

/// Listens for the verdict on a compilation.
pub struct Ear {
    call: &'static str,
    verdicts: Receiver<Verdict>,
    _callback: Strong<dyn IPreparedModelCallback>,
}

impl Ear {
    /// The call that it listens for.
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// Waits for the first notification; later ones count for nothing.
    pub fn wait(&self, driver: &Driver) -> Result<Verdict, ClientError> {
        let start = Instant::now();
        loop {
            // Asked before the wait, so that a verdict which came just before the death is not missed.
            let dead = driver.is_dead();
            match self.verdicts.recv_timeout(PULSE) {
                Ok(verdict) => return Ok(verdict),
                Err(RecvTimeoutError::Timeout) if !dead => {}
                Err(_) => return Err(ClientError::Died { call: self.call }),
            }
            if let Some(after) = driver.timeout.filter(|limit| start.elapsed() >= *limit) {
                return Err(ClientError::TimedOut { call: self.call, after });
            }
        }
    }
}

struct Callback(Mutex<Option<Sender<Verdict>>>);

impl Interface for Callback {}

impl IPreparedModelCallback for Callback {
    fn notify(&self, status: ErrorStatus, prepared: Option<&Strong<dyn IPreparedModel>>) -> BinderResult<()> {
        let sender = self.0.lock().ok().and_then(|mut first| first.take());
        match sender.map(|s| s.send((status, prepared.cloned()))) {
            Some(Ok(())) => {}
            Some(Err(_)) => log::debug!("a notification came after the wait for it ended"),
            None => log::warn!("the driver notified a compilation's callback more than once"),
        }
        Ok(())
    }
}

/// What is known of the driver's life.
struct Vitals {
    dead: AtomicBool,
}

impl DeathRecipient for Vitals {
    fn binder_died(&self, _: &WIBinder) {
        self.dead.store(true, Ordering::Release);
    }
}

fn connect_unix(path: &Path, options: &ConnectOptions) -> Result<(Client, Strong<dyn IDevice>), ClientError> {
    let uri = Uri::new(Endpoint::unix(path)).with_wire(WireProfile::Android13Plus(WireVersion::MAX));
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

fn connect_kernel(instance: &str, options: &ConnectOptions) -> Result<Strong<dyn IDevice>, ClientError> {
    binder::ProcessState::init(BINDER_DEVICE, options.connections)
        .map_err(|error| ClientError::NoKernelBinder(error.to_string()))?;
    // Callbacks and death notices come in on it.
    binder::ProcessState::start_thread_pool();
    binder::hub::try_get_interface(&format!("{INTERFACE}/{instance}"))
        .map_err(ClientError::NoServiceManager)?
        .ok_or_else(|| ClientError::NotRegistered(instance.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
