//! Getting to the driver, and back to it once it was lost: waited for, or started by the user's own command.

use super::context::{Context, SLACK};
use super::paths::ExecutionPath;
use super::probe::Available;
use crate::client::{ConnectOptions, Driver};
use crate::tool::driver::{self, ServiceName, ServiceOptions};
use crate::tool::error::ToolError;
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked whether the driver is back.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest wait for the first answer of a driver that is looked for.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// Does `work`, which asks a driver, and waits for it for so long and no longer: a call over the kernel's binder has no
/// end of its own. What never comes back stays behind.
pub fn bounded<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ToolError> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(limit).map_err(|why| match why {
        RecvTimeoutError::Timeout => ToolError::Hung(limit.as_secs()),
        RecvTimeoutError::Disconnected => ToolError::Failed("this tool panicked; please report it".into()),
    })
}

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
        let asked = wanted.to_vec();
        let probe = move || {
            let available = Available::probe(&driver, &asked);
            (driver, available)
        };
        let (driver, why) = match bounded(self.limit(), probe) {
            Ok((driver, Ok(available))) => return Ok(Arc::new(Context { driver, available })),
            Ok((driver, Err(why))) => (Some(driver), why),
            Err(why) => (None, why),
        };
        let is_lost = matches!(&why, ToolError::Client(error) if error.is_fatal());
        let driver = match driver {
            Some(driver) if !is_lost => driver,
            lost => {
                lost.iter().for_each(Driver::close);
                self.again().map_err(|gone| self.gone(why.to_string(), "a trivial model".into(), gone))?
            }
        };
        let asked = wanted.to_vec();
        let assume = move || {
            let available = Available::assumed(&driver, &asked, &why);
            (driver, available)
        };
        let (driver, available) = bounded(self.limit(), assume)?;
        Ok(Arc::new(Context { driver, available: available? }))
    }

    /// Longest that many calls may take.
    pub fn limit(&self) -> Duration {
        self.options.client.timeout.unwrap_or_default() + SLACK
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_come_back_is_not_waited_for() {
        assert_eq!(bounded(Duration::from_secs(60), || 7).unwrap(), 7);
        let (_sender, never) = std::sync::mpsc::channel::<()>();
        let stuck = bounded(Duration::from_millis(10), move || never.recv());
        assert!(matches!(stuck, Err(ToolError::Hung(_))), "{stuck:?}");
    }
}
