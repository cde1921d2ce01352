//! A prepared model as the driver has it, whatever binder objects there are of it.

use super::core::Core;
use crate::aidl::{BnPreparedModel, IPreparedModel};
use crate::backend::{CompileOptions, Executable};
use crate::compiler::{Compiled, Unsaved};
use crate::ipc::{self, Strong};
use crate::scheduler::{Life, Permit, Recorder};
use crate::statistics::Listed;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What a prepared model is to the driver; binder objects come and go around it.
pub(super) struct Prepared {
    /// Given to no other prepared model, ever.
    pub id: u64,
    pub core: Arc<Core>,
    pub executable: Arc<dyn Executable>,
    /// What its client asked of it.
    pub options: CompileOptions,
    /// That of the process that asked for it: executions stop when it ends, whoever asks for them. Over the kernel's binder it may
    /// hand the model on, to a process of another uid, too. Turns, places and memory of executions are on the account of the uid
    /// that asked for the model; what the arguments of a call take, and a queue, are on that of the uid that calls.
    pub life: Arc<Life>,
    /// Its place among the prepared models of the client that asked for it.
    place: Permit,
    /// The save that waits until it was executed.
    unsaved: Unsaved,
    /// What is counted of it.
    pub counts: Listed,
    /// Notes what its executions do, as long as somebody wants to know.
    recorder: Mutex<Weak<Recorder>>,
}

impl Prepared {
    /// The uid that asked for it.
    pub fn client(&self) -> u32 {
        self.place.client()
    }

    /// The process with this id has asked for it.
    pub fn new(core: Arc<Core>, compiled: Compiled, life: Arc<Life>, place: Permit, process: i32) -> Self {
        let id = core.last_model.fetch_add(1, Ordering::Relaxed) + 1;
        let Compiled { executable, options, unsaved } = compiled;
        // Where the transport does not tell, it is no number of a process.
        let process = u32::try_from(process).ok().filter(|&process| process > 0);
        let counts = core.clients.list(place.client(), process);
        let recorder = Mutex::default();
        Prepared { id, core, executable, options, life, place, unsaved, counts, recorder }
    }

    /// Notes what an execution does that begins now; `None` if nobody asked for that.
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

/// Marks the binder object of `prepared`, so that [`find`] knows it again.
pub(super) fn mark(model: &Strong<dyn IPreparedModel>, prepared: Arc<Prepared>) {
    if let Err(why) = ipc::attach::<BnPreparedModel, _>(model.as_binder(), prepared) {
        log::error!("a prepared model cannot be marked as ours: {why:?}");
    }
}

/// What is behind a prepared model that a client handed back; `None` if it is not one of `core`'s.
pub(super) fn find(model: &Strong<dyn IPreparedModel>, core: &Arc<Core>) -> Option<Arc<Prepared>> {
    let prepared = ipc::behind::<BnPreparedModel, Prepared>(model.as_binder());
    prepared.filter(|prepared| Arc::ptr_eq(&prepared.core, core))
}
