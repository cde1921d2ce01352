//! Getting to the driver, and back to it once it was lost: waited for, or started by the user's own command.

use super::context::Context;
use super::paths::ExecutionPath;
use super::probe::Available;
use crate::client::{ConnectOptions, Driver};
use crate::tool::driver::{self, ServiceName, ServiceOptions};
use crate::tool::error::ToolError;
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked whether the driver is back.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest wait for the first answer of a driver that is looked for.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// How to get to a driver.
pub struct Recovery {
    pub service: ServiceName,
    pub options: ServiceOptions,
    /// What starts the driver, in the words of the shell.
    pub restart: Option<String>,
    /// How long it may take to come back.
    pub wait: Duration,
    /// What the command last started, if it is still there.
    started: Option<Child>,
}

impl Recovery {
    pub fn new(
        service: &ServiceName,
        options: ServiceOptions,
        restart: Option<String>,
        wait: Duration,
    ) -> Self {
        Recovery { service: service.clone(), options, restart, wait, started: None }
    }

    /// Connects for the first time, and asks what there is to test.
    pub fn first(&mut self, wanted: &[ExecutionPath]) -> Result<Arc<Context>, ToolError> {
        let driver = match driver::connect(&self.service, &self.options) {
            Err(_) if self.restart.is_some() => self.again()?,
            connected => connected?,
        };
        let why = match Available::probe(&driver, wanted) {
            Ok(available) => return Ok(Arc::new(Context { driver, available })),
            Err(why) => why,
        };
        let lost = matches!(&why, ToolError::Client(error) if error.is_fatal());
        let driver = match lost {
            true => {
                driver.close();
                self.again().map_err(|gone| self.gone(why.to_string(), "a trivial model".into(), gone))?
            }
            false => driver,
        };
        let available = Available::assumed(&driver, wanted, &why)?;
        Ok(Arc::new(Context { driver, available }))
    }

    /// Connects again after a loss.
    pub fn back(&mut self, lost: &Arc<Context>) -> Result<Arc<Context>, ToolError> {
        lost.driver.close();
        // Whatever of it is stuck must not hold up who drops it last.
        std::mem::forget(lost.clone());
        let available = lost.available.clone();
        Ok(Arc::new(Context { driver: self.again()?, available }))
    }

    /// The end of a run whose driver did not come back.
    pub fn gone(&self, lost: String, doing: String, why: ToolError) -> ToolError {
        ToolError::Gone { lost, doing, wait: self.wait.as_secs(), why: Box::new(why) }
    }

    fn again(&mut self) -> Result<Driver, ToolError> {
        self.end_started();
        if let Some(command) = &self.restart {
            let mut shell = Command::new("sh");
            // In a group of its own, to be ended with all that it starts.
            shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
            let started = shell.spawn().map_err(|why| ToolError::File { path: "sh".into(), why })?;
            self.started = Some(started);
        }
        let start = Instant::now();
        loop {
            let why = match self.connect() {
                Ok(driver) => return Ok(driver),
                Err(why) => why,
            };
            if start.elapsed() >= self.wait {
                return Err(why);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Connects to a driver that answers.
    fn connect(&self) -> Result<Driver, ToolError> {
        if self.service != ServiceName::Embedded {
            // One that hangs costs no more than this.
            let timeout = self.options.client.timeout.unwrap_or(FIRST_ANSWER).min(FIRST_ANSWER);
            let client = ConnectOptions { connections: 1, timeout: Some(timeout) };
            driver::connect(&self.service, &ServiceOptions { client, ..self.options.clone() })?;
        }
        driver::connect(&self.service, &self.options)
    }

    /// Ends what the command started: a driver that hangs would not end for less.
    fn end_started(&mut self) {
        let Some(mut child) = self.started.take() else { return };
        if let Ok(group) = i32::try_from(child.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL); // it may have ended
        }
        let _ = child.wait();
    }
}

impl Drop for Recovery {
    fn drop(&mut self) {
        self.end_started();
    }
}
