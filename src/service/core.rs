//! What all objects of one driver share.

use super::status::ServiceError;
use crate::backend::{Backend, BackendError, Control, Info};
use crate::buffer::BufferTracker;
use crate::compiler::Compiler;
use crate::memory::Budget;
use crate::quota::Quota;
use crate::scheduler::slow_calls::Calls;
use crate::scheduler::{
    CallTurns, Errands, Lives, Load, PollingBudget, Quotas, ThreadCache, Turn, Turns, Watcher,
};
use crate::statistics::{Clients, Errors};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// So many fenced executions of one client, and of all, begin and end at once where that comes about.
const AT_ONCE: (u64, u64) = (8, 64);

/// What all objects of one driver share.
pub(super) struct Core {
    pub backend: Arc<dyn Backend>,
    /// What the backend says of itself.
    pub info: Info,
    pub compiler: Compiler,
    pub buffers: BufferTracker,
    /// Places in the device's queue, shared out among clients; `None` if that is the backend's own affair.
    pub slots: Option<Arc<Turns>>,
    /// Executions whose fences the device waits for, each in one of those places.
    pub device_waits: Arc<Quota>,
    /// For what calls do on their own threads.
    pub call_turns: CallTurns,
    pub watcher: Arc<Watcher>,
    pub lives: Lives,
    pub quotas: Quotas,
    /// Private memory of clients.
    pub budget: Budget,
    /// Threads that tell clients what became of compilations.
    pub notifiers: Arc<ThreadCache>,
    /// Fenced executions that begin and end on threads that others need. Those beyond have lines of their clients' own, and so
    /// have those that are long to begin or end: one in which they begin, and another in which they end, so that one that has
    /// a place in the device's queue never waits for ends.
    pub at_once: Arc<Quota>,
    pub beginnings: Arc<Errands>,
    pub endings: Arc<Errands>,
    /// How many bursts over queues may poll at once.
    pub polling: Arc<PollingBudget>,
    /// The number of the model that was prepared last.
    pub last_model: AtomicU64,
    /// Calls of clients that are under way.
    pub calls: Arc<Calls>,
    pub started: Instant,
    /// What was counted of clients and their prepared models.
    pub clients: Arc<Clients>,
    /// What was refused or failed.
    pub errors: Errors,
    /// Limits how many reports are written to clients' files at once.
    pub dumps: Arc<Quota>,
    /// What the transport shares out.
    pub transport: Mutex<Vec<(&'static str, Arc<Quota>)>>,
}

impl Core {
    /// Waits for a place in the device's queue, as long as `control` allows.
    pub fn slot(&self, control: &Control) -> Result<Option<Turn>, ServiceError> {
        let take = |slots: &Arc<Turns>| slots.take(control.client, control.priority, control);
        Ok(self.slots.as_ref().map(take).transpose().map_err(BackendError::from)?)
    }

    /// How many executions wait for a place in the device's queue, and how many have one; `None` if that is the backend's
    /// own affair.
    pub fn queue(&self) -> Option<Load> {
        self.slots.as_ref().map(|slots| slots.load())
    }

    /// Of fenced executions.
    pub fn at_once() -> Arc<Quota> {
        let (of_one, of_all) = AT_ONCE;
        Quota::with_floor(of_all, of_one, of_one)
    }

    /// Of executions whose fences the device waits for: half of the places that it has, and half of that for one client, as fences
    /// may never be signalled.
    pub fn device_waits(depth: Option<usize>) -> Arc<Quota> {
        let most = depth.map_or(u64::MAX, |depth| depth as u64 / 2);
        Quota::new(most, most.div_ceil(2))
    }

    /// Has these quotas, which the transport has, told in place of those before.
    pub fn tell_of(&self, quotas: Vec<(&'static str, Arc<Quota>)>) {
        *self.transport.lock().unwrap_or_else(PoisonError::into_inner) = quotas;
    }

    pub fn transport_quotas(&self) -> Vec<(&'static str, Arc<Quota>)> {
        self.transport.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Calls `start` once there is a place in the device's queue, which it may refuse. No thread waits for that.
    pub fn when_slot(
        &self,
        control: &Control,
        start: impl FnOnce(Option<Turn>) -> Result<(), Option<Turn>> + Send + 'static,
    ) {
        match &self.slots {
            Some(slots) => {
                let start = move |turn| match start(Some(turn)) {
                    Err(Some(turn)) => Err(turn),
                    _ => Ok(()),
                };
                slots.when_due(control.client, control.priority, Box::new(start));
            }
            None => drop(start(None)),
        }
    }
}

// VERSION, and SOURCE_ID, a digest of what the driver is built from. Whatever builds it has to make this file: two builds that
// had the same would take each other's caches for their own.
include!(concat!(env!("OUT_DIR"), "/source_id.rs"));

/// Unique for each build, as clients mix it into their cache tokens.
pub(super) fn version(info: &Info) -> String {
    format!("nnhal-{VERSION}-{}-{SOURCE_ID}", info.version)
}
