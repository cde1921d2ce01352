//! Any backend, with every execution pending: what a device does that works by itself.
//!
//! It makes nothing faster. Suites that pass over a backend and over this one have tried both ways through the driver.

use super::synchronous::pend;
use super::{
    Arguments, Artifact, Backend, BackendError, Binding, ClientMemory, CompileOptions, Control, Description,
    DeviceMemory, Executable, Info, Interface, Load, Saved, Submission,
};
use crate::model::Model;
use crate::tensor::TensorInfo;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A backend whose executions never are done when they are submitted.
pub struct Asynchronous(pub Arc<dyn Backend>);

struct Pends(Arc<dyn Executable>);

struct PendingBinding(Arc<dyn Binding>);

impl Backend for Asynchronous {
    fn info(&self) -> Info {
        self.0.info()
    }

    fn support(&self, model: &Model) -> Vec<Result<(), String>> {
        self.0.support(model)
    }

    fn load_now(&self) -> Option<Load> {
        self.0.load_now()
    }

    fn compile(
        &self,
        model: &Model,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(Pends(self.0.compile(model, options, control)?)))
    }

    fn load(
        &self,
        saved: Saved,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(Arc::new(Pends(self.0.load(saved, options, control)?)))
    }

    fn import(&self, memory: &ClientMemory) -> Result<Option<Arc<dyn DeviceMemory>>, BackendError> {
        self.0.import(memory)
    }

    fn allocate(&self, operand: &TensorInfo) -> Result<Option<Arc<dyn DeviceMemory>>, BackendError> {
        self.0.allocate(operand)
    }
}

impl Executable for Pends {
    fn interface(&self) -> &Interface {
        self.0.interface()
    }

    fn bind(self: Arc<Self>, arguments: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        Ok(Arc::new(PendingBinding(self.0.clone().bind(arguments)?)))
    }

    fn artifact(&self) -> Option<Artifact> {
        self.0.artifact()
    }

    fn describe(&self) -> Option<Description> {
        self.0.describe()
    }
}

impl Binding for PendingBinding {
    fn submit(self: Arc<Self>, _: Vec<OwnedFd>, control: &Control) -> Result<Submission, BackendError> {
        pend(self.0.clone(), control)
    }
}
