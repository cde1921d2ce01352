//! Connections to drivers: one for each driver, shared by all delegates of this process, and made anew when it has ended.

use crate::options::{Options, Service};
use nnhal::client::{Address, ConnectOptions, Driver};
use nnhal::daemon::embedded;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Longest wait for any answer of a driver: a compilation on a busy machine is done by then.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A way to one driver.
pub struct Link {
    address: Option<Address>,
    /// Where a driver in this process keeps what must survive it.
    data: Option<PathBuf>,
    driver: Mutex<Option<Arc<Driver>>>,
    /// A fork has no threads that serve the connection.
    process: u32,
}

static LINKS: Mutex<Vec<(Service, Weak<Link>)>> = Mutex::new(Vec::new());

impl Link {
    /// The link to the driver that `options` name.
    pub fn to(options: &Options) -> Arc<Self> {
        let service = options.service();
        let mut links = LINKS.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        links.retain(|(_, link)| link.strong_count() > 0);
        let found = links.iter().find(|(other, _)| *other == service).and_then(|(_, link)| link.upgrade());
        if let Some(link) = found.filter(|link| link.process == process) {
            return link;
        }
        let data = match &service {
            Service::Embedded(data) => data.clone(),
            Service::At(_) => None,
        };
        let link =
            Arc::new(Link { address: options.address.clone(), data, driver: Mutex::default(), process });
        links.push((service, Arc::downgrade(&link)));
        link
    }

    /// A connection that is not known to have ended.
    pub fn driver(&self) -> Result<Arc<Driver>, String> {
        self.check_process()?;
        let mut driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = driver.as_ref().filter(|driver| !driver.is_dead()) {
            return Ok(driver.clone());
        }
        // The old one goes first: a driver in this process would still hold its directory.
        *driver = None;
        Ok(driver.insert(Arc::new(self.connect()?)).clone())
    }

    /// An error in a fork of the process that made the link.
    pub fn check_process(&self) -> Result<(), String> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err("this process is a fork of the one that loaded the delegate: load it after the fork".into())
    }

    fn connect(&self) -> Result<Driver, String> {
        let options = ConnectOptions { timeout: Some(TIMEOUT), ..Default::default() };
        if let Some(address) = &self.address {
            return Driver::connect(address, &options).map_err(|why| why.to_string());
        }
        let data = self.data.clone();
        let daemon = embedded::start(&embedded::Options { data, ..Default::default() })
            .map_err(|why| format!("cannot start a driver in this process: {why}"))?;
        let address = Address::Unix(daemon.socket().into());
        let driver = Driver::connect(&address, &options).map_err(|why| why.to_string())?;
        Ok(driver.keeping(daemon))
    }
}
