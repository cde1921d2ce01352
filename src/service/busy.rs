//! Objects that execute one request at a time: who holds the mark may use what the object keeps between executions.

use super::status::ServiceError;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Marks an object that executes one request at a time as busy, until dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<AtomicBool>);

impl Busy {
    pub fn enter(flag: &Arc<AtomicBool>, what: &str) -> Result<Self, ServiceError> {
        // A refused call writes nothing.
        match flag.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Busy(flag.clone())),
            Err(_) => Err(ServiceError::Failed(format!("this {what} is executing already; wait for it"))),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
