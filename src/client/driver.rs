//! A connection to a driver: its device, its death, and its answers.

use super::connect::{connect_kernel, connect_unix, Address, ConnectOptions};
use super::error::{ClientError, BINDER_DEVICE};
use crate::aidl::{ErrorStatus, IDevice};
use binder::rpc::RpcSession;
use binder::{BinderResult, DeathRecipient, ExceptionCode, StatusCode, Strong, WIBinder};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// A connection to a driver; it ends when dropped. All threads may share it.
pub struct Driver {
    device: Strong<dyn IDevice>,
    vitals: Arc<Vitals>,
    timeout: Option<Duration>,
    address: Address,
    session: Option<RpcSession>,
    // Last: it must outlive the connection.
    _server: Option<Box<dyn Send + Sync>>,
}

impl Driver {
    /// Connects to the driver at `address`.
    pub fn connect(address: &Address, options: &ConnectOptions) -> Result<Driver, ClientError> {
        let (session, device) = match address {
            Address::Unix(path) => {
                let (session, device) = connect_unix(path, options)?;
                (Some(session), device)
            }
            Address::Binder(instance) => (None, connect_kernel(BINDER_DEVICE, instance, options)?),
        };
        let vitals = Arc::new(Vitals { dead: AtomicBool::new(false) });
        if let Err(error) = device.link_to_death_arc(&vitals) {
            // Already dead, or the transport cannot tell: the next call will.
            log::debug!("no notice of the driver's death: {error}");
        }
        let address = address.clone();
        Ok(Driver { device, vitals, timeout: options.timeout, address, session, _server: None })
    }

    /// Keeps `server`, which is what serves the driver where that is in this process, until the connection has ended.
    pub fn keeping(mut self, server: impl Send + Sync + 'static) -> Self {
        self._server = Some(Box::new(server));
        self
    }

    /// Where the driver is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Another connection to the same driver, as another client has it.
    pub fn again(&self, options: &ConnectOptions) -> Result<Driver, ClientError> {
        Driver::connect(&self.address, options)
    }

    /// The driver's device object, for every call of the interface.
    pub fn device(&self) -> &Strong<dyn IDevice> {
        &self.device
    }

    /// The process that the driver runs in; `None` where the transport does not tell.
    pub fn process(&self) -> Option<u32> {
        let Address::Unix(path) = &self.address else { return None };
        let stream = UnixStream::connect(path).ok()?;
        let peer = getsockopt(&stream, PeerCredentials).ok()?;
        u32::try_from(peer.pid()).ok()
    }

    /// Ends the connection: no call works any more. Over the kernel's binder a process has one connection to all drivers,
    /// which ends with the process, and this does nothing.
    pub fn close(&self) {
        // The threads that serve callbacks keep a session alive.
        if let Some(session) = &self.session {
            session.close_session();
        }
    }

    /// Longest wait for any answer.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Whether the driver is known to have died, or the connection to have ended.
    pub fn is_dead(&self) -> bool {
        let ended = self.session.as_ref().is_some_and(RpcSession::is_ended);
        ended || self.vitals.dead.load(Ordering::Acquire)
    }

    /// What it means that `call` found no driver any more.
    pub(super) fn lost(&self, call: &'static str) -> ClientError {
        match &self.address {
            Address::Unix(path) if is_served(path) => ClientError::Disconnected { call },
            _ => ClientError::Died { call },
        }
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
            (StatusCode::DeadObject, _) => Err(self.lost(call)),
            _ if self.is_dead() => Err(self.lost(call)),
            _ => Err(ClientError::Call { call, why: status.to_string() }),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whether somebody accepts connections at `path`, and will for a while: one who is about to be gone may do so still.
fn is_served(path: &Path) -> bool {
    const A_WHILE: Duration = Duration::from_millis(200);
    let probe = || {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(A_WHILE))?;
        stream.read(&mut [0])
    };
    // Nothing is sent to who says nothing.
    probe().is_err_and(|why| why.kind() == ErrorKind::WouldBlock)
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
