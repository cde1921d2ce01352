//! What an execution is of, what it asks for, and how a driver's answer to it is taken.

use super::outcome::Step;
use super::paths::Ran;
use crate::aidl::{ExecutionConfig, IPreparedModel, Request};
use crate::client::{ClientError, Driver};
use binder::{BinderResult, Strong};

/// A prepared model and a request for it.
pub struct Target<'a> {
    pub driver: &'a Driver,
    pub prepared: &'a Strong<dyn IPreparedModel>,
    pub request: &'a Request,
}

/// What an execution asks for besides its outputs.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub measure: bool,
    /// On CLOCK_BOOTTIME; -1 is none.
    pub deadline_ns: i64,
    pub loop_timeout_ns: i64,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { measure: false, deadline_ns: -1, loop_timeout_ns: -1 }
    }
}

impl Terms {
    /// No limits.
    pub fn measured(measure: bool) -> Self {
        Terms { measure, ..Default::default() }
    }

    pub fn config(&self) -> ExecutionConfig {
        ExecutionConfig {
            measureTiming: self.measure,
            loopTimeoutDurationNs: self.loop_timeout_ns,
            ..Default::default()
        }
    }
}

/// The value, or a refusal at creation.
pub fn answer<T>(driver: &Driver, name: &'static str, result: BinderResult<T>) -> Step<Result<T, Ran>> {
    match driver.answer(name, result) {
        Ok(value) => Ok(Ok(value)),
        Err(ClientError::Refused { status, message, .. }) => {
            Ok(Err(Ran { message, at_creation: true, ..Ran::new(status) }))
        }
        Err(error) => Err(error.into()),
    }
}
