//! IPreparedModel: a compiled model that a client may execute.

use super::arguments::Span;
use super::call::handle;
use super::prepared::{self, Prepared};
use super::run::{Execution, Purpose};
use super::status::ServiceError;
use super::terms::{self, Terms};
use super::times::Times;
use super::{burst, execution, fenced, fmq_burst};
use crate::aidl::*;
use crate::ipc::{self, BinderResult, Interface, ParcelFileDescriptor, Strong};
use crate::memory::Pool;
use std::sync::Arc;
use std::time::Instant;

struct PreparedModel {
    prepared: Arc<Prepared>,
}

/// A binder object for `prepared`.
pub(super) fn new_binder(prepared: Arc<Prepared>) -> Strong<dyn IPreparedModel> {
    let model = ipc::object!(BnPreparedModel, PreparedModel { prepared: prepared.clone() });
    // A client that does not know the extension never asks for it.
    let extension = fmq_burst::new_binder(prepared.clone()).as_binder();
    if let Err(why) = ipc::set_extension::<BnPreparedModel>(&model.as_binder(), &extension) {
        log::error!("a prepared model is without its extension: {why:?}");
    }
    prepared::mark(&model, prepared);
    model
}

impl PreparedModel {
    fn execute(
        &self,
        request: &Request,
        terms: Result<Terms, ServiceError>,
        deadline: i64,
    ) -> Result<ExecutionResult, ServiceError> {
        let entered = Instant::now();
        let (terms, deadline) = (terms?, terms::deadline(deadline)?);
        let purpose = Purpose { terms, fenced: false, reused: false };
        let find = |_: usize, pool: &Pool| self.prepared.core.memory(pool, Span::Once);
        Execution::new(&self.prepared, request, purpose, &find)?.run_synchronously(deadline, entered)
    }

    fn execute_fenced(
        &self,
        request: &Request,
        wait_for: &[ParcelFileDescriptor],
        terms: Result<Terms, ServiceError>,
        deadline: i64,
        duration: i64,
    ) -> Result<FencedExecutionResult, ServiceError> {
        let (times, terms) = (Times::new(deadline, duration)?, terms?);
        let purpose = Purpose { terms, fenced: true, reused: false };
        let find = |_: usize, pool: &Pool| self.prepared.core.memory(pool, Span::Longer);
        let execution = Execution::new(&self.prepared, request, purpose, &find)?;
        fenced::launch(Arc::new(execution), wait_for, times, None)
    }
}

impl Interface for PreparedModel {}

#[cfg(feature = "platform_binder")]
impl ipc::Holds<Prepared> for BnPreparedModel {
    fn held(&self) -> Option<Arc<Prepared>> {
        self.downcast_binder::<PreparedModel>().map(|model| model.prepared.clone())
    }
}

impl IPreparedModel for PreparedModel {
    fn executeSynchronously(
        &self,
        request: &Request,
        measure: bool,
        deadline: i64,
        loop_timeout: i64,
    ) -> BinderResult<ExecutionResult> {
        handle(&self.prepared.core, "executeSynchronously", || {
            self.execute(request, Terms::new(measure, loop_timeout), deadline)
        })
    }

    fn executeSynchronouslyWithConfig(
        &self,
        request: &Request,
        config: &ExecutionConfig,
        deadline: i64,
    ) -> BinderResult<ExecutionResult> {
        handle(&self.prepared.core, "executeSynchronouslyWithConfig", || {
            self.execute(request, Terms::from_config(config), deadline)
        })
    }

    fn executeFenced(
        &self,
        request: &Request,
        wait_for: &[ParcelFileDescriptor],
        measure: bool,
        deadline: i64,
        loop_timeout: i64,
        duration: i64,
    ) -> BinderResult<FencedExecutionResult> {
        handle(&self.prepared.core, "executeFenced", || {
            self.execute_fenced(request, wait_for, Terms::new(measure, loop_timeout), deadline, duration)
        })
    }

    fn executeFencedWithConfig(
        &self,
        request: &Request,
        wait_for: &[ParcelFileDescriptor],
        config: &ExecutionConfig,
        deadline: i64,
        duration: i64,
    ) -> BinderResult<FencedExecutionResult> {
        handle(&self.prepared.core, "executeFencedWithConfig", || {
            self.execute_fenced(request, wait_for, Terms::from_config(config), deadline, duration)
        })
    }

    fn configureExecutionBurst(&self) -> BinderResult<Strong<dyn IBurst>> {
        handle(&self.prepared.core, "configureExecutionBurst", || {
            let mappings = self.prepared.core.quotas.mappings(self.prepared.client(), burst::MAX_MAPPINGS)?;
            Ok(burst::new_binder(self.prepared.clone(), mappings))
        })
    }

    fn createReusableExecution(
        &self,
        request: &Request,
        config: &ExecutionConfig,
    ) -> BinderResult<Strong<dyn IExecution>> {
        handle(&self.prepared.core, "createReusableExecution", || {
            let terms = Terms::from_config(config)?;
            let purpose = Purpose { terms, fenced: false, reused: true };
            let find = |_: usize, pool: &Pool| self.prepared.core.memory(pool, Span::Longer);
            let execution = Execution::new(&self.prepared, request, purpose, &find)?;
            let (quotas, client) = (&self.prepared.core.quotas, self.prepared.client());
            let places = [quotas.object(client)?, quotas.mappings(client, execution.mappings())?];
            Ok(execution::new_binder(execution, places))
        })
    }
}
