//! Any backend, with every execution pending: what a device does that works by itself.
//!
//! It makes nothing faster. Suites that pass over a backend and over this one have tried both ways through the driver.

use super::synchronous::{pend, submission_threads};
use super::{
    Arguments, Artifact, Backend, BackendError, Binding, ClientMemory, CompileOptions, Control, Description,
    DeviceMemory, Executable, Info, Interface, Load, Saved, Submission,
};
use crate::model::Model;
use crate::scheduler::ThreadCache;
use crate::tensor::TensorInfo;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A backend whose executions never are done when they are submitted.
pub struct Asynchronous {
    backend: Arc<dyn Backend>,
    submitted: Arc<ThreadCache>,
}

impl Asynchronous {
    /// As `backend`, but for that.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Asynchronous { backend, submitted: submission_threads() }
    }

    fn pends(&self, executable: Arc<dyn Executable>) -> Arc<dyn Executable> {
        Arc::new(Pends { executable, submitted: self.submitted.clone() })
    }
}

struct Pends {
    executable: Arc<dyn Executable>,
    submitted: Arc<ThreadCache>,
}

struct PendingBinding {
    binding: Arc<dyn Binding>,
    submitted: Arc<ThreadCache>,
}

impl Backend for Asynchronous {
    fn info(&self) -> Info {
        self.backend.info()
    }

    fn support(&self, model: &Model, control: &Control) -> Vec<Result<(), String>> {
        self.backend.support(model, control)
    }

    fn load_now(&self) -> Option<Load> {
        self.backend.load_now()
    }

    fn compile(
        &self,
        model: &Model,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(self.pends(self.backend.compile(model, options, control)?))
    }

    fn load(
        &self,
        saved: Saved,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(self.pends(self.backend.load(saved, options, control)?))
    }

    fn import(&self, memory: &ClientMemory) -> Result<Option<Arc<dyn DeviceMemory>>, BackendError> {
        self.backend.import(memory)
    }

    fn allocate(&self, operand: &TensorInfo) -> Result<Option<Arc<dyn DeviceMemory>>, BackendError> {
        self.backend.allocate(operand)
    }
}

impl Executable for Pends {
    fn interface(&self) -> &Interface {
        self.executable.interface()
    }

    fn bind(self: Arc<Self>, arguments: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        let binding = self.executable.clone().bind(arguments)?;
        Ok(Arc::new(PendingBinding { binding, submitted: self.submitted.clone() }))
    }

    fn artifact(&self, control: &Control) -> Result<Option<Artifact>, BackendError> {
        self.executable.artifact(control)
    }

    fn is_lost(&self) -> bool {
        self.executable.is_lost()
    }

    fn described(&self) -> usize {
        self.executable.described()
    }

    fn describe(&self, control: &Control) -> Result<Option<Description>, BackendError> {
        self.executable.describe(control)
    }
}

impl Binding for PendingBinding {
    fn submit(self: Arc<Self>, _: Vec<OwnedFd>, control: &Control) -> Result<Submission, BackendError> {
        pend(self.binding.clone(), control, &self.submitted, ())
    }
}
