//! A driver: a backend, with everything that its binder objects share.

use super::core::{version, Core};
use super::{announce, device, diagnostics};
use crate::aidl::IDevice;
use crate::backend::{Backend, CacheFileCounts};
use crate::buffer::BufferTracker;
use crate::cache::{Cache, Store};
use crate::compiler::{Compiler, Limits};
use crate::ipc::Strong;
use crate::memory::{bytes_for_clients, Budget};
use crate::quota::Quota;
use crate::scheduler::slow_calls::Calls;
use crate::scheduler::{CallTurns, Errands, Lives, PollingBudget, Quotas, Turns, Watcher};
use crate::statistics::Errors;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Size of the driver's own store of compiled models, unless told otherwise.
const STORE_BYTES: u64 = 256 << 20;

/// A driver, of which there may be many binder objects.
///
/// ```
/// use nnhal::backend::cpu::CpuBackend;
/// use nnhal::service::Driver;
/// use std::sync::Arc;
///
/// let backend = CpuBackend::on_all_cores()?;
/// let driver = Driver::builder(Arc::new(backend)).build()?;
/// assert!(driver.device.getVersionString().is_ok());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Driver {
    core: Arc<Core>,
    pub device: Strong<dyn IDevice>,
}

/// How a driver is to be set up.
pub struct DriverBuilder {
    backend: Arc<dyn Backend>,
    data: Option<PathBuf>,
    store: u64,
    memory: Option<u64>,
    backend_process: bool,
    share_weights: bool,
}

impl Driver {
    /// A driver for `backend`, which keeps nothing unless told where.
    pub fn builder(backend: Arc<dyn Backend>) -> DriverBuilder {
        DriverBuilder {
            backend,
            data: None,
            store: STORE_BYTES,
            memory: None,
            backend_process: false,
            share_weights: false,
        }
    }

    /// Has the driver tell of these quotas as well, which its transport has: what each counts, as a sentence about too
    /// many of them has it. In place of those before.
    pub fn tell_of(&self, quotas: Vec<(&'static str, Arc<Quota>)>) {
        self.core.tell_of(quotas);
    }

    /// For its transport: what large messages are read by, and who waits for connections to end.
    pub fn for_transport(&self) -> (CallTurns, Arc<Watcher>) {
        (self.core.call_turns.clone(), self.core.watcher.clone())
    }

    /// What its clients have of private memory.
    pub fn budget(&self) -> &Budget {
        &self.core.budget
    }

    #[cfg(test)]
    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// For a process that serves from here on: opens in the background what the first client would wait for.
    pub fn open_ahead(&self) {
        self.core.compiler.open_ahead();
    }

    /// For a process that is about to end: waits, not for long, until what is being kept of compiled models is whole.
    pub fn settle(&self) {
        self.core.compiler.settle();
    }
}

impl DriverBuilder {
    /// Where the driver keeps what must survive it; `None` for nowhere.
    pub fn data(self, directory: Option<PathBuf>) -> Self {
        DriverBuilder { data: directory, ..self }
    }

    /// Bytes of compiled models to keep there for clients that give no cache files; 0 for none.
    pub fn store(self, bytes: u64) -> Self {
        DriverBuilder { store: bytes, ..self }
    }

    /// Bytes of private memory for all clients together; `None` for half of what the process may use. Of device buffers
    /// there is half as much besides.
    pub fn memory(self, bytes: Option<u64>) -> Self {
        DriverBuilder { memory: bytes, ..self }
    }

    /// Whether half of that private memory is for the backend, in a process of its own.
    pub fn backend_process(self, backend_process: bool) -> Self {
        DriverBuilder { backend_process, ..self }
    }

    /// Whether weights that are equal lie in memory once, whichever clients' models have them. How long a client's model takes to be
    /// prepared and to execute, and how much memory the machine has free, may tell it then that another client has such weights.
    pub fn share_weights(self, share_weights: bool) -> Self {
        DriverBuilder { share_weights, ..self }
    }

    /// Starts the driver's threads.
    pub fn build(self) -> std::io::Result<Driver> {
        let DriverBuilder { backend, data, store, memory, backend_process, share_weights } = self;
        let memory = memory.unwrap_or_else(bytes_for_clients);
        let info = backend.info();
        let CacheFileCounts { models, data: data_files } = info.cache_files;
        if models.max(data_files) > CacheFileCounts::MOST || (models == 0 && data_files > 0) {
            let why = format!("the backend wants {models} model and {data_files} data cache files");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why));
        }
        let (data, fingerprint) = (data.as_deref(), version(&info));
        let store = data.filter(|_| store > 0).map(|data| Store::new(data, &fingerprint, store));
        let cache = Arc::new(Cache::new(data, &fingerprint));
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        let call_turns = CallTurns::new(processors);
        let watcher = Arc::new(Watcher::new()?);
        let calls = Calls::new(watcher.clone());
        let (limits, turns) = (Limits::default(), (call_turns.clone(), watcher.clone()));
        let compiler = Compiler::new(backend.clone(), limits, cache, store, turns)?.watched(calls.clone());
        let quotas = Quotas::new();
        let bytes = if backend_process { memory / 2 } else { memory };
        let (descriptors, mapped) = (quotas.of_descriptors(), quotas.of_mapped_bytes());
        let budget = Budget::new(bytes).with_descriptors(descriptors).with_mapped(mapped);
        let budget = budget.with_large(quotas.of_large_buffers());
        let core = Core {
            slots: info.depth.map(|depth| Turns::named("a place in the device's queue", depth, usize::MAX)),
            device_waits: Core::device_waits(info.depth),
            call_turns,
            backend,
            info,
            compiler,
            buffers: BufferTracker::for_clients_with(memory),
            lives: Lives::new(&watcher),
            beginnings: Errands::new("nnhal-errand", watcher.starter()),
            endings: Errands::new("nnhal-errand", watcher.starter()),
            watcher,
            budget: if share_weights { budget.with_common() } else { budget },
            quotas,
            notifiers: announce::notifiers(),
            at_once: Core::at_once(),
            polling: PollingBudget::for_processors(processors),
            last_model: AtomicU64::default(),
            calls,
            started: Instant::now(),
            clients: Arc::default(),
            errors: Errors::default(),
            dumps: diagnostics::dumps(),
            transport: Mutex::default(),
        };
        let core = Arc::new(core);
        Ok(Driver { device: device::new_binder(core.clone()), core })
    }
}
