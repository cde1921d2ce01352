//! The tool's way to a driver: over binder, as any client goes, wherever the driver is.
//!
//! Must not know what a driver is made of: an embedded one is started and then talked to over its socket.

mod connect;
mod error;
pub mod fence;

pub use connect::ServiceName;
pub use error::{name, ClientError};

use crate::aidl::*;
use crate::daemon::embedded::{self, EmbeddedDaemon, Options};
use crate::model::hints;
use binder::{
    BinderResult, Client, DeathRecipient, Endpoint, ExceptionCode, Interface, ParcelFileDescriptor,
    StatusCode, Strong, WIBinder,
};
use connect::{connect_kernel, connect_unix};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often a wait looks whether the driver has died meanwhile.
const PULSE: Duration = Duration::from_millis(100);

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
    /// Where an embedded driver keeps what must survive it.
    pub data: Option<PathBuf>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions { connections: 4, timeout: None, threads: None, data: None }
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
    /// Whether to hint that all of it that can wait should wait for the first execution, which only a configuration can.
    pub just_in_time: bool,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        PrepareOptions {
            preference: ExecutionPreference::FAST_SINGLE_ANSWER,
            priority: Priority::MEDIUM,
            deadline_ns: -1,
            with_config: false,
            just_in_time: false,
        }
    }
}

/// Files that a driver keeps a compilation in, and the name that it knows them by.
pub struct CacheFiles {
    pub model: Vec<ParcelFileDescriptor>,
    pub data: Vec<ParcelFileDescriptor>,
    pub token: [u8; BYTE_SIZE_OF_CACHE_TOKEN as usize],
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
                let daemon = embedded::start(&Options {
                    threads: options.threads,
                    data: options.data.clone(),
                    ..Options::default()
                })?;
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

    /// The process that the driver runs in; `None` where the transport does not tell.
    pub fn process(&self) -> Option<u32> {
        if self._daemon.is_some() {
            return Some(std::process::id());
        }
        let Endpoint::Unix(path) = self.client.as_ref()?.endpoint() else { return None };
        let stream = std::os::unix::net::UnixStream::connect(path).ok()?;
        let peer = getsockopt(&stream, PeerCredentials).ok()?;
        u32::try_from(peer.pid()).ok()
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
        self.conclude(launch, &ear)
    }

    /// Compiles a model and has the driver keep the compilation in these files.
    pub fn prepare_into(
        &self,
        model: &Model,
        files: &CacheFiles,
    ) -> Result<Strong<dyn IPreparedModel>, ClientError> {
        let PrepareOptions { preference, priority, deadline_ns, .. } = PrepareOptions::default();
        let CacheFiles { model: models, data, token } = files;
        let ear = Ear::new("prepareModel");
        let launch = self.device.prepareModel(
            model,
            preference,
            priority,
            deadline_ns,
            models,
            data,
            token,
            &ear.callback,
        );
        self.conclude(launch, &ear)
    }

    /// Loads a compilation from files that an earlier one was kept in.
    pub fn prepare_from(&self, files: &CacheFiles) -> Result<Strong<dyn IPreparedModel>, ClientError> {
        let CacheFiles { model: models, data, token } = files;
        let ear = Ear::new("prepareModelFromCache");
        let launch = self.device.prepareModelFromCache(-1, models, data, token, &ear.callback);
        self.conclude(launch, &ear)
    }

    /// The prepared model of a compilation that was launched.
    fn conclude(
        &self,
        launch: BinderResult<()>,
        ear: &Ear,
    ) -> Result<Strong<dyn IPreparedModel>, ClientError> {
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
        let PrepareOptions { preference, priority, deadline_ns, with_config, just_in_time } = *options;
        if with_config || just_in_time {
            let ear = Ear::new("prepareModelWithConfig");
            let mut config =
                PrepareModelConfig { preference, priority, deadlineNs: deadline_ns, ..Default::default() };
            if just_in_time {
                hint(&mut config, hints::JUST_IN_TIME, vec![1]);
            }
            return (self.device.prepareModelWithConfig(model, &config, &ear.callback), ear);
        }
        let ear = Ear::new("prepareModel");
        let token = [0; BYTE_SIZE_OF_CACHE_TOKEN as usize];
        let launch = self.device.prepareModel(
            model,
            preference,
            priority,
            deadline_ns,
            &[],
            &[],
            &token,
            &ear.callback,
        );
        (launch, ear)
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

/// Adds a hint of the driver's own extension. A driver that does not know it ignores it.
fn hint(config: &mut PrepareModelConfig, number: u16, value: Vec<u8>) {
    const PREFIX: u16 = 1;
    let token = i32::from(PREFIX) << EXTENSION_TYPE_LOW_BITS_TYPE | i32::from(number);
    config.compilationHints.push(TokenValuePair { token, value });
    config
        .extensionNameToPrefix
        .push(ExtensionNameAndPrefix { name: hints::EXTENSION.into(), prefix: PREFIX });
}

/// Listens for the verdict on a compilation.
pub struct Ear {
    call: &'static str,
    verdicts: Receiver<Verdict>,
    callback: Strong<dyn IPreparedModelCallback>,
}

impl Ear {
    fn new(call: &'static str) -> Self {
        let (sender, verdicts) = std::sync::mpsc::channel();
        let callback = BnPreparedModelCallback::new_binder(Callback(Mutex::new(Some(sender))));
        Ear { call, verdicts, callback }
    }

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
