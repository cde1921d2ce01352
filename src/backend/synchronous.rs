//! A backend of three functions that compute on the thread that calls them.

use super::{
    Arguments, Backend, BackendError, Binding, CompileOptions, Control, Executable, Info, Interface, Outcome,
    OutputShape, Pending, Submission,
};
use crate::model::{Model, OperationKind};
use crate::ops::{Interrupt, OperationType};
use crate::scheduler::ThreadCache;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What must be known of a device that ordinary code drives; [`Synchronous`] makes a [`Backend`] of it.
pub trait SynchronousBackend: Send + Sync + 'static {
    /// A compiled model.
    type Compiled: Send + Sync + 'static;

    /// As [`Backend::support`].
    fn support(&self, model: &Model, control: &Control) -> Vec<Result<(), String>>;

    /// As [`Backend::compile`].
    fn compile(
        &self,
        model: &Model,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Self::Compiled, BackendError>;

    /// Executes, and gives one shape per output. Where an output's memory is too small, it writes to none, and the
    /// shapes say so.
    fn run(
        &self,
        compiled: &Self::Compiled,
        arguments: &Arguments,
        control: &Control,
    ) -> Result<Vec<OutputShape>, BackendError>;
}

/// A [`Backend`] made of a [`SynchronousBackend`].
pub struct Synchronous<B> {
    info: Info,
    code: Arc<B>,
    submitted: Arc<ThreadCache>,
}

impl<B: SynchronousBackend> Synchronous<B> {
    /// A backend that says `info` of itself. It should name a depth: so many executions run at once, each on a thread.
    pub fn new(info: Info, code: B) -> Self {
        Synchronous { info, code: Arc::new(code), submitted: submission_threads() }
    }
}

struct Compiled<B: SynchronousBackend> {
    code: Arc<B>,
    compiled: B::Compiled,
    interface: Interface,
    submitted: Arc<ThreadCache>,
}

struct Bound<B: SynchronousBackend> {
    model: Arc<Compiled<B>>,
    arguments: Arguments,
}

impl<B: SynchronousBackend> Backend for Synchronous<B> {
    fn info(&self) -> Info {
        self.info.clone()
    }

    fn support(&self, model: &Model, control: &Control) -> Vec<Result<(), String>> {
        self.code.support(model, control)
    }

    fn compile(
        &self,
        model: &Model,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        let compiled = self.code.compile(model, options, control)?;
        let (code, interface, submitted) = (self.code.clone(), Interface::of(model), self.submitted.clone());
        Ok(Arc::new(Compiled { code, compiled, interface, submitted }))
    }
}

impl<B: SynchronousBackend> Executable for Compiled<B> {
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn bind(self: Arc<Self>, arguments: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        Ok(Arc::new(Bound { model: self, arguments }))
    }
}

impl<B: SynchronousBackend> Binding for Bound<B> {
    fn submit(self: Arc<Self>, _: Vec<OwnedFd>, control: &Control) -> Result<Submission, BackendError> {
        let submitted = self.model.submitted.clone();
        pend(self, control, &submitted, ())
    }

    fn run(self: Arc<Self>, control: &Control) -> Result<Outcome, BackendError> {
        let (model, started) = (&self.model, Instant::now());
        let outputs = model.code.run(&model.compiled, &self.arguments, control)?;
        Ok(Outcome { outputs, on_device: started.elapsed() })
    }
}

/// Threads that wait for executions which were submitted by threads that must not.
pub(crate) fn submission_threads() -> Arc<ThreadCache> {
    Arc::new(ThreadCache::new("nnhal-submitted", Duration::from_secs(5)))
}

/// Has `binding` run on a thread of its own, which is one of `threads`. `place` is dropped when it has run, before anybody hears
/// of that.
pub(crate) fn pend(
    binding: Arc<dyn Binding>,
    control: &Control,
    threads: &Arc<ThreadCache>,
    place: impl Send + 'static,
) -> Result<Submission, BackendError> {
    let (completer, pending) = Pending::promised();
    let (control, terms) = (control.clone(), control.clone());
    threads
        .run(move || {
            let outcome = binding.run(&control);
            drop(place);
            completer.complete(outcome);
        })
        .map_err(|why| BackendError::DeviceBusy(format!("no thread to run on: {why}")))?;
    // One whose deadline has passed sees that itself.
    let cancel = move || {
        if terms.check().is_ok() {
            terms.cancelled.set();
        }
    };
    Ok(Submission::Pending(pending.on_cancel(cancel)))
}

impl Interface {
    /// That of `model`.
    pub fn of(model: &Model) -> Self {
        let infos = |list: &[usize]| list.iter().map(|&v| model.main.operands[v].info.clone()).collect();
        let graphs = std::iter::once(&model.main).chain(&model.referenced);
        let may_loop = graphs.flat_map(|graph| &graph.operations).any(|operation| {
            matches!(operation.kind, OperationKind::Known { operation, .. } if operation.ty == OperationType::WHILE)
        });
        Interface { inputs: infos(&model.main.inputs), outputs: infos(&model.main.outputs), may_loop }
    }
}
