//! What a suite works with.

use super::probe::Available;
use crate::client::Driver;
use std::time::Duration;

/// How much longer many calls may take than any one answer.
pub const SLACK: Duration = Duration::from_secs(60);

/// A driver, and what it has that can be tested.
pub struct Context {
    pub driver: Driver,
    pub available: Available,
}

impl Context {
    /// The forms of preparation that the driver's interface has: without and with a configuration.
    pub fn preparations(&self) -> &'static [bool] {
        match self.available.interface_version {
            4.. => &[false, true],
            _ => &[false],
        }
    }
}
