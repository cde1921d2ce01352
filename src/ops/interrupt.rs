//! How a running operation is told to stop.

use super::OpError;

/// Tells a running operation to stop, or to wait while others compute.
pub trait Interrupt: Sync {
    /// An error if the work is to stop: deadline passed, client gone, execution cancelled. For any thread.
    fn check(&self) -> Result<(), OpError>;

    /// As [`check`](Self::check), and waits while it is others' turn to compute. Long work comes by here at least every
    /// millisecond, on the one thread that it was given to: helpers only check. The caller must not hold a lock.
    fn yield_point(&self) -> Result<(), OpError> {
        self.check()
    }

    /// For work that is about to wait for something else: lets others compute until the next yield point, where that is
    /// possible.
    fn before_waiting(&self) {}
}

/// An interrupt that never comes, for validation, constant folding and tests.
pub struct NeverInterrupted;

impl Interrupt for NeverInterrupted {
    fn check(&self) -> Result<(), OpError> {
        Ok(())
    }
}
