//! What a driver let pass that it must refuse, kept until all has been tried.

use crate::aidl::ErrorStatus;
use crate::client::ClientError;
use crate::tool::conformance::outcome::{fail, Step, Stop};

/// So many of a model's faults are told; the others are counted.
const TOLD: usize = 3;

/// The answer must be INVALID_ARGUMENT.
pub fn invalid<T>(call: &str, answer: Result<T, ClientError>) -> Step {
    match answer {
        Err(ClientError::Refused { status: ErrorStatus::INVALID_ARGUMENT, .. }) => Ok(()),
        Err(error @ ClientError::Refused { .. }) => fail(format!("not INVALID_ARGUMENT: {error}")),
        Err(error) => Err(error.into()),
        Ok(_) => fail(format!("{call} accepted it")),
    }
}

/// What a driver let pass.
#[derive(Default)]
pub struct Faults {
    tried: usize,
    count: usize,
    told: Vec<String>,
}

impl Faults {
    /// Keeps a failure for later; anything else that stops is passed on.
    pub fn note(&mut self, what: &str, step: Step) -> Step {
        self.tried += 1;
        match step {
            Err(Stop::Fail(why)) => {
                self.count += 1;
                if self.told.len() < TOLD {
                    self.told.push(format!("{what}: {why}"));
                }
                Ok(())
            }
            step => step,
        }
    }

    pub fn verdict(self) -> Step {
        match self.count {
            0 => Ok(()),
            count => fail(format!("{count} of {} mutations: {}", self.tried, self.told.join("; "))),
        }
    }
}
