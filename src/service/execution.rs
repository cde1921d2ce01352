//! IExecution: a request checked and mapped once, to be run many times.

use super::busy::Busy;
use super::call::handle;
use super::fenced;
use super::run::Execution;
use super::status::ServiceError;
use super::terms;
use super::times::Times;
use crate::aidl::*;
use crate::ipc::{self, BinderResult, Interface, ParcelFileDescriptor, Strong};
use crate::scheduler::Permit;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Instant;

struct ReusableExecution {
    execution: Arc<Execution>,
    busy: Arc<AtomicBool>,
    /// Its mappings' place among the client's.
    _mappings: Permit,
    /// Its own place among the client's objects.
    _place: Permit,
}

/// The object of `execution`, which takes a place among the client's objects, and for its memories.
pub(super) fn new_binder(execution: Execution, [place, mappings]: [Permit; 2]) -> Strong<dyn IExecution> {
    let execution = Arc::new(execution);
    ipc::object!(
        BnExecution,
        ReusableExecution { execution, busy: Arc::default(), _mappings: mappings, _place: place }
    )
}

impl ReusableExecution {
    fn enter(&self) -> Result<Busy, ServiceError> {
        Busy::enter(&self.busy, "reusable execution")
    }
}

impl Interface for ReusableExecution {}

impl IExecution for ReusableExecution {
    fn executeSynchronously(&self, deadline: i64) -> BinderResult<ExecutionResult> {
        handle(&self.execution.prepared().core, "IExecution.executeSynchronously", || {
            let entered = Instant::now();
            let deadline = terms::deadline(deadline)?;
            let _busy = self.enter()?;
            self.execution.run_synchronously(deadline, entered)
        })
    }

    fn executeFenced(
        &self,
        wait_for: &[ParcelFileDescriptor],
        deadline: i64,
        duration: i64,
    ) -> BinderResult<FencedExecutionResult> {
        handle(&self.execution.prepared().core, "IExecution.executeFenced", || {
            let times = Times::new(deadline, duration)?;
            self.execution.check_fenced()?;
            fenced::launch(self.execution.clone(), wait_for, times, Some(self.enter()?))
        })
    }
}
