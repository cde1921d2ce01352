//! What a suite works with.

use super::probe::Available;
use crate::client::Driver;

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
