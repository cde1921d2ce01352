//! IPreparedModel: a compiled model that a client may execute.

use super::arguments::Span;
use super::driver::Core;
use super::run::{Execution, Purpose};
use super::status::{handle, ServiceError};
use super::terms::{self, Terms};
use super::{burst, execution, fenced, fmq_burst};
use crate::aidl::*;
use crate::backend::{CompileOptions, Executable};
use crate::compiler::{Compiled, Unsaved};
use crate::memory::Pool;
use crate::scheduler::{Life, Permit, Recorder};
use crate::statistics::Listed;
use binder::{Binder, BinderResult, Interface, ParcelFileDescriptor, Strong};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

/// What a prepared model is to the driver; binder objects come and go around it.
pub(super) struct Prepared {
    /// Given to no other prepared model, ever.
    pub id: u64,
    pub core: Arc<Core>,
    pub executable: Arc<dyn Executable>,
    /// What its client asked of it.
    pub options: CompileOptions,
    /// That of the process that asked for it, which alone may use it.
    pub life: Arc<Life>,
    /// Its place among the prepared models of the client that asked for it.
    place: Permit,
    /// The save that waits until it was executed.
    unsaved: Unsaved,
    /// What is counted of it.
    pub counts: Listed,
    /// Who notes what its executions do, as long as somebody wants to know.
    recorder: Mutex<Weak<Recorder>>,
}

impl Prepared {
    /// The uid that asked for it.
    pub fn client(&self) -> u32 {
        self.place.client()
    }

    /// The process with this id has asked for it.
    pub fn new(core: Arc<Core>, compiled: Compiled, life: Arc<Life>, place: Permit, process: i32) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let Compiled { executable, options, unsaved } = compiled;
        // Where the transport does not tell, it is no number of a process.
        let process = u32::try_from(process).ok().filter(|&process| process > 0);
        let counts = core.clients.list(place.client(), process);
        let recorder = Mutex::default();
        Prepared { id, core, executable, options, life, place, unsaved, counts, recorder }
    }

    /// Who notes what an execution does that begins now; mostly nobody.
    pub fn recorder(&self) -> Option<Arc<Recorder>> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Has `recorder` note what executions do that begin from here on, in place of any other, while somebody else holds it.
    pub fn record(&self, recorder: &Arc<Recorder>) {
        *self.recorder.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(recorder);
    }

    /// Notes that it was executed: it is worth saving.
    pub fn used(&self) {
        self.core.compiler.used(&self.unsaved, &self.executable);
    }
}

struct PreparedModel {
    prepared: Arc<Prepared>,
}

/// A binder object for `prepared`, by which [`find`] knows it again.
pub(super) fn new_binder(prepared: Arc<Prepared>) -> Strong<dyn IPreparedModel> {
    let model = BnPreparedModel::new_binder(PreparedModel { prepared: prepared.clone() });
    // A client that does not know the extension never asks for it.
    if let Err(why) = model.as_binder().set_extension(&fmq_burst::new_binder(prepared.clone()).as_binder()) {
        log::error!("a prepared model is without its extension: {why}");
    }
    match Binder::<BnPreparedModel>::try_from(model.as_binder()) {
        Ok(local) => {
            local.attach_object(prepared);
        }
        Err(why) => log::error!("a prepared model cannot be marked as ours: {why}"),
    }
    model
}

/// What is behind a prepared model that a client handed back; `None` if it is not one of `core`'s.
pub(super) fn find(model: &Strong<dyn IPreparedModel>, core: &Arc<Core>) -> Option<Arc<Prepared>> {
    let binder = model.as_binder();
    if binder.is_remote() {
        return None;
    }
    let local = Binder::<BnPreparedModel>::try_from(binder).ok()?;
    local.find_object::<Prepared>().filter(|prepared| Arc::ptr_eq(&prepared.core, core))
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
        let (times, terms) = (fenced::Times::new(deadline, duration)?, terms?);
        let purpose = Purpose { terms, fenced: true, reused: false };
        let find = |_: usize, pool: &Pool| self.prepared.core.memory(pool, Span::Longer);
        let execution = Execution::new(&self.prepared, request, purpose, &find)?;
        fenced::launch(Arc::new(execution), wait_for, times, None)
    }
}

impl Interface for PreparedModel {}

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
            let quotas = &self.prepared.core.quotas;
            let mappings = quotas.mappings(self.prepared.client(), execution.mappings())?;
            Ok(execution::new_binder(execution, mappings))
        })
    }
}
