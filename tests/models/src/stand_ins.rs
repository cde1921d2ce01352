//! What the modules under test know of others: as little of it as they use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

pub mod ops {
    #[derive(Debug)]
    pub struct OpError;

    pub trait Interrupt {
        fn check(&self) -> Result<(), OpError>;
    }
}

pub mod memory {
    #[derive(Clone)]
    pub struct Account;

    impl Account {
        pub fn of_thread() -> Self {
            Account
        }

        pub fn enter(self) -> Entered {
            Entered
        }
    }

    pub struct Entered;
}

pub mod scheduler {
    /// Nothing is recorded.
    #[derive(Clone)]
    pub struct Underway;

    impl Underway {
        pub fn part(&self) -> Option<Self> {
            None
        }

        pub fn end(self) {}
    }
}

pub mod clock {
    /// No model has a deadline.
    pub fn boottime_ns() -> u64 {
        0
    }
}

pub mod slow_calls {
    pub struct Wait;

    pub fn wait_for(_: &'static str) -> Wait {
        Wait
    }
}

pub mod control {
    use super::*;

    pub trait Yield {
        fn pass(&self, control: &Control) -> Result<(), ops::OpError>;
        #[allow(dead_code)] // of no model's interest
        fn threads(&self) -> usize;
    }

    #[derive(Default)]
    pub struct Control {
        pub deadline_ns: Option<u64>,
        pub cancelled: Arc<AtomicBool>,
    }

    impl ops::Interrupt for Control {
        fn check(&self) -> Result<(), ops::OpError> {
            match self.cancelled.load(Ordering::Relaxed) {
                true => Err(ops::OpError),
                false => Ok(()),
            }
        }
    }
}

pub mod status {
    #[derive(Debug)]
    pub enum ServiceError {
        Failed(String),
    }
}
