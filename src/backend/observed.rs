//! Any backend, with somebody in the same process who watches: what it compiled, and what its executions do when.
//!
//! It changes nothing of what the backend does, and costs next to nothing while nobody records.

use super::{
    Arguments, Artifact, Backend, BackendError, Binding, ClientMemory, CompileOptions, Control, Description,
    DeviceMemory, Executable, Info, Interface, Load, Outcome, Peaks, Saved, Submission,
};
use crate::model::Model;
use crate::scheduler::{Recorder, Span};
use crate::tensor::TensorInfo;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Who watches a backend.
#[derive(Debug)]
pub struct Observer {
    recorder: Arc<Recorder>,
    recording: AtomicBool,
    /// Models that were compiled or loaded, in this order; some are gone.
    models: Mutex<Vec<Weak<Watched>>>,
}

impl Observer {
    /// One that keeps so many spans between two times that they are taken.
    pub fn new(spans: usize) -> Arc<Self> {
        let recorder = Arc::new(Recorder::new(spans));
        Arc::new(Observer { recorder, recording: AtomicBool::new(false), models: Mutex::default() })
    }

    /// Whether executions that are submitted from here on are recorded.
    pub fn record(&self, recording: bool) {
        self.recording.store(recording, Ordering::Relaxed);
    }

    /// What was recorded since the last time, and how many spans were too many.
    pub fn take(&self) -> (Vec<Span>, u64) {
        self.recorder.take()
    }

    /// What the model says of itself that was compiled or loaded last, of those that are still there. `None` if none is,
    /// or it says nothing.
    pub fn description(&self) -> Option<Description> {
        let latest = self.models().iter().rev().find_map(Weak::upgrade)?;
        latest.executable.describe()
    }

    fn models(&self) -> MutexGuard<'_, Vec<Weak<Watched>>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `control` with the recorder, if it is wanted.
    fn over(&self, control: &Control) -> Option<Control> {
        let recording = self.recording.load(Ordering::Relaxed);
        recording.then(|| Control { recorder: Some(self.recorder.clone()), ..control.clone() })
    }
}

/// A backend that is watched.
pub struct Observed {
    backend: Arc<dyn Backend>,
    observer: Arc<Observer>,
}

impl Observed {
    pub fn new(backend: Arc<dyn Backend>, observer: Arc<Observer>) -> Self {
        Observed { backend, observer }
    }

    fn watch(&self, executable: Arc<dyn Executable>) -> Arc<dyn Executable> {
        let watched = Arc::new(Watched { executable, observer: self.observer.clone() });
        let mut models = self.observer.models();
        models.retain(|model| model.strong_count() > 0);
        models.push(Arc::downgrade(&watched));
        drop(models);
        watched
    }
}

struct Watched {
    executable: Arc<dyn Executable>,
    observer: Arc<Observer>,
}

struct WatchedBinding {
    binding: Arc<dyn Binding>,
    observer: Arc<Observer>,
}

impl Backend for Observed {
    fn info(&self) -> Info {
        self.backend.info()
    }

    fn support(&self, model: &Model) -> Vec<Result<(), String>> {
        self.backend.support(model)
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
        Ok(self.watch(self.backend.compile(model, options, control)?))
    }

    fn load(
        &self,
        saved: Saved,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        Ok(self.watch(self.backend.load(saved, options, control)?))
    }

    fn import(&self, memory: &ClientMemory) -> Result<Option<Arc<dyn DeviceMemory>>, BackendError> {
        self.backend.import(memory)
    }

    fn allocate(&self, operand: &TensorInfo) -> Result<Option<Arc<dyn DeviceMemory>>, BackendError> {
        self.backend.allocate(operand)
    }

    fn peaks(&self, control: &Control) -> Option<Peaks> {
        self.backend.peaks(control)
    }
}

impl Executable for Watched {
    fn interface(&self) -> &Interface {
        self.executable.interface()
    }

    fn bind(self: Arc<Self>, arguments: Arguments) -> Result<Arc<dyn Binding>, BackendError> {
        let binding = self.executable.clone().bind(arguments)?;
        Ok(Arc::new(WatchedBinding { binding, observer: self.observer.clone() }))
    }

    fn artifact(&self) -> Option<Artifact> {
        self.executable.artifact()
    }

    fn describe(&self) -> Option<Description> {
        self.executable.describe()
    }
}

impl Binding for WatchedBinding {
    fn submit(self: Arc<Self>, fences: Vec<OwnedFd>, control: &Control) -> Result<Submission, BackendError> {
        let recorded = self.observer.over(control);
        self.binding.clone().submit(fences, recorded.as_ref().unwrap_or(control))
    }

    fn run(self: Arc<Self>, control: &Control) -> Result<Outcome, BackendError> {
        let recorded = self.observer.over(control);
        self.binding.clone().run(recorded.as_ref().unwrap_or(control))
    }
}
