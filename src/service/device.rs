//! IDevice: what the driver is, and where compilations begin.

use super::announce::Announcement;
use super::buffer;
use super::prepared_model::Prepared;
use super::status::{self, handle, ServiceError};
use super::terms;
use crate::aidl::*;
use crate::backend::cpu::CpuBackend;
use crate::backend::{self, Backend, CompileOptions, Control, Executable};
use crate::buffer::BufferTracker;
use crate::cache::{self, Cache, Store, Written};
use crate::compiler::{CachePlace, CachingError, Compiled, Compiler, Job, Keep, Limits};
use crate::fmq::PollingBudget;
use crate::model::{self, hints};
use crate::scheduler::{Lives, Quotas, Turns, Watcher};
use binder::{BinderResult, Interface, ParcelFileDescriptor, Strong};
use std::path::PathBuf;
use std::sync::Arc;

/// Size of the driver's own store of compiled models, unless told otherwise.
pub const STORE_BYTES: u64 = 64 << 20;

/// How the driver is set up.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads that compute; `None` for one per core.
    pub threads: Option<usize>,
    /// Where the driver keeps what must survive it; `None` if nothing has to.
    pub data: Option<PathBuf>,
    /// Bytes of compiled models that it keeps there for clients that give no cache files; 0 for none, `None` for
    /// [`STORE_BYTES`].
    pub store: Option<u64>,
}

/// What all objects of one driver share.
pub(super) struct Core {
    backend: Arc<dyn Backend>,
    pub compiler: Compiler,
    cache: Arc<Cache>,
    pub buffers: BufferTracker,
    /// Whose turn it is to compute, on whatever thread.
    pub turns: Arc<Turns>,
    pub watcher: Arc<Watcher>,
    lives: Lives,
    pub quotas: Quotas,
    /// How many bursts over queues may poll at once.
    pub polling: Arc<PollingBudget>,
}

struct Device {
    core: Arc<Core>,
}

impl Core {
    /// Saves a compilation in its client's files; gives how to rewrite them, if it will go further.
    fn save(&self, client: u32, executable: &dyn Executable, place: CachePlace) -> Option<Keep> {
        match place.save(&self.cache, executable) {
            Ok(written) => self.rewriting(client, executable, place, written),
            Err(why) => {
                log::warn!("a compilation is not cached: {why}");
                None
            }
        }
    }

    /// How to rewrite a compilation's files once it is finished, unless it is already.
    fn rewriting(
        &self,
        client: u32,
        executable: &dyn Executable,
        place: CachePlace,
        written: Written,
    ) -> Option<Keep> {
        if executable.is_finished() {
            return None;
        }
        match self.quotas.cache_files(client, cache::MODEL_FILES + cache::DATA_FILES) {
            Ok(permit) => Some(Keep::Cached { cache: self.cache.clone(), place, written, permit }),
            Err(why) => {
                log::info!("cache files will not be rewritten: {why}");
                None
            }
        }
    }
}

/// A driver, of which there may be many binder objects.
pub struct Driver {
    core: Arc<Core>,
    pub device: Strong<dyn IDevice>,
}

impl Driver {
    /// For a process that is about to end: waits, not for long, until what is being kept of compiled models is whole.
    pub fn settle(&self) {
        self.core.compiler.settle();
    }
}

/// A driver with the CPU backend.
pub fn new_driver(options: &Options) -> std::io::Result<Driver> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = options.threads.unwrap_or(cores);
    let backend: Arc<dyn Backend> = Arc::new(CpuBackend::new(threads)?);
    let (data, fingerprint) = (options.data.as_deref(), version(&backend.version()));
    let bytes = options.store.unwrap_or(STORE_BYTES);
    let store = data.filter(|_| bytes > 0).map(|data| Store::new(data, &fingerprint, bytes));
    let turns = Turns::new(threads);
    let compiler = Compiler::new(backend.clone(), turns.clone(), Limits::default(), store)?;
    let cache = Arc::new(Cache::new(data, &fingerprint));
    let watcher = Arc::new(Watcher::new()?);
    let core = Core {
        backend,
        compiler,
        cache,
        buffers: BufferTracker::default(),
        turns,
        lives: Lives::new(&watcher),
        watcher,
        quotas: Quotas::new(),
        polling: PollingBudget::for_processors(cores),
    };
    let core = Arc::new(core);
    Ok(Driver { device: BnDevice::new_binder(Device { core: core.clone() }), core })
}

/// What prepareModel and prepareModelWithConfig have in common, checked.
struct Compilation {
    model: model::Model,
    options: CompileOptions,
    deadline: Option<u64>,
    /// Where it is to be saved.
    place: Option<CachePlace>,
}

impl Compilation {
    fn new(
        model: &Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline: i64,
    ) -> Result<Self, ServiceError> {
        let options = CompileOptions {
            preference: terms::preference(preference)?,
            priority: terms::priority(priority)?,
            ..CompileOptions::default()
        };
        let deadline = terms::deadline(deadline)?;
        Ok(Compilation { model: model::Model::new(model)?, options, deadline, place: None })
    }

    /// This compilation, to be saved in these files. What is wrong with them means that it is not, nothing else.
    fn cached(self, token: &[u8], models: &[ParcelFileDescriptor], data: &[ParcelFileDescriptor]) -> Self {
        if models.is_empty() && data.is_empty() {
            return self;
        }
        match CachePlace::new(binder::get_calling_uid(), token, models, data) {
            Ok(place) => Compilation { place: Some(place), ..self },
            Err(why) => {
                log::warn!("a compilation is not cached: {why}");
                self
            }
        }
    }
}

impl Device {
    /// Prepares a model from its cache, at once. Whatever goes wrong is thrown and told to the callback as well.
    fn load(
        &self,
        callback: &Strong<dyn IPreparedModelCallback>,
        deadline: i64,
        place: impl FnOnce(u32) -> Result<CachePlace, CachingError>,
    ) -> Result<(), ServiceError> {
        let client = binder::get_calling_uid();
        let announcement = Announcement::new(&self.core.quotas, client, callback, Arc::default())?;
        let load = || {
            terms::check_deadline(terms::deadline(deadline)?)?;
            let permit = self.core.quotas.model(client)?;
            let place = place(client)?;
            let (executable, written) = place.load(&self.core.cache, &*self.core.backend)?;
            let keep = self.core.rewriting(client, &*executable, place, written);
            let life = self.core.lives.of(binder::get_calling_pid());
            let priority = backend::Priority::default();
            Ok(Prepared::new(self.core.clone(), (executable, keep), priority, life, permit))
        };
        let loaded: Result<Prepared, ServiceError> = load();
        match loaded {
            Ok(prepared) => {
                announcement.tell(Ok(Arc::new(prepared)));
                Ok(())
            }
            Err(error) => {
                announcement.tell(Err(error.status()));
                Err(error)
            }
        }
    }

    /// Starts a compilation. Whatever goes wrong is thrown and told to the callback as well.
    fn prepare(
        &self,
        callback: &Strong<dyn IPreparedModelCallback>,
        check: impl FnOnce() -> Result<Compilation, ServiceError>,
    ) -> Result<(), ServiceError> {
        let client = binder::get_calling_uid();
        let mut control = Control::default();
        let announcement = Announcement::new(&self.core.quotas, client, callback, control.cancelled.clone())?;
        let launch = || {
            let Compilation { model, options, deadline, place: cache_place } = check()?;
            let place = self.core.quotas.model(client)?;
            (control.deadline_ns, control.priority) = (deadline, options.priority);
            let life = self.core.lives.of(binder::get_calling_pid());
            let (core, announcement) = (self.core.clone(), announcement.clone());
            let stored = cache_place.is_none();
            let done = move |outcome: crate::compiler::Outcome| {
                announcement.tell(match outcome {
                    Ok(Compiled { executable, store_as }) => {
                        let keep = match cache_place {
                            Some(files) => core.save(client, &*executable, files),
                            None => store_as.map(Keep::Stored),
                        };
                        let compiled = (executable, keep);
                        Ok(Arc::new(Prepared::new(core, compiled, options.priority, life, place)))
                    }
                    Err(error) => {
                        let error = ServiceError::from(error);
                        status::log("compilation", &error);
                        Err(error.status())
                    }
                });
            };
            let job = Job { client, model, options, control, stored, done: Box::new(done) };
            Ok(self.core.compiler.submit(job)?)
        };
        let launched: Result<(), ServiceError> = launch();
        if let Err(error) = &launched {
            announcement.tell(Err(error.status()));
        }
        launched
    }
}

impl Interface for Device {}

impl IDevice for Device {
    fn getCapabilities(&self) -> BinderResult<Capabilities> {
        handle("getCapabilities", || Ok(capabilities(&self.core.backend.capabilities())))
    }

    fn getNumberOfCacheFilesNeeded(&self) -> BinderResult<NumberOfCacheFiles> {
        // Who asks is going to cache.
        self.core.cache.open_ahead();
        Ok(NumberOfCacheFiles {
            numModelCache: cache::MODEL_FILES as i32,
            numDataCache: cache::DATA_FILES as i32,
        })
    }

    fn getSupportedExtensions(&self) -> BinderResult<Vec<Extension>> {
        Ok(vec![Extension { name: hints::EXTENSION.into(), operandTypes: Vec::new() }])
    }

    fn getSupportedOperations(&self, model: &Model) -> BinderResult<Vec<bool>> {
        handle("getSupportedOperations", || {
            let support = self.core.backend.support(&model::Model::new(model)?);
            for (i, why) in
                support.iter().enumerate().filter_map(|(i, s)| s.as_ref().err().map(|why| (i, why)))
            {
                log::debug!("operation {i} is not taken: {why}");
            }
            Ok(support.iter().map(Result::is_ok).collect())
        })
    }

    fn getType(&self) -> BinderResult<DeviceType> {
        Ok(DeviceType::CPU)
    }

    fn getVersionString(&self) -> BinderResult<String> {
        handle("getVersionString", || Ok(version(&self.core.backend.version())))
    }

    fn prepareModel(
        &self,
        model: &Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline: i64,
        model_cache: &[ParcelFileDescriptor],
        data_cache: &[ParcelFileDescriptor],
        token: &[u8],
        callback: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        handle("prepareModel", || {
            self.prepare(callback, || {
                let compilation = Compilation::new(model, preference, priority, deadline)?;
                Ok(compilation.cached(token, model_cache, data_cache))
            })
        })
    }

    fn prepareModelWithConfig(
        &self,
        model: &Model,
        config: &PrepareModelConfig,
        callback: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        handle("prepareModelWithConfig", || {
            self.prepare(callback, || {
                let (hints, extensions) = (&config.compilationHints, &config.extensionNameToPrefix);
                terms::hints(hints, extensions)?;
                let mut compilation =
                    Compilation::new(model, config.preference, config.priority, config.deadlineNs)?;
                compilation.options.just_in_time = hints::just_in_time(hints, extensions)?;
                Ok(compilation.cached(&config.cacheToken, &config.modelCache, &config.dataCache))
            })
        })
    }

    fn prepareModelFromCache(
        &self,
        deadline: i64,
        model_cache: &[ParcelFileDescriptor],
        data_cache: &[ParcelFileDescriptor],
        token: &[u8],
        callback: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        handle("prepareModelFromCache", || {
            self.load(callback, deadline, |uid| CachePlace::new(uid, token, model_cache, data_cache))
        })
    }

    fn allocate(
        &self,
        desc: &BufferDesc,
        models: &[IPreparedModelParcel],
        inputs: &[BufferRole],
        outputs: &[BufferRole],
    ) -> BinderResult<DeviceBuffer> {
        handle("allocate", || buffer::allocate(&self.core, desc, models, inputs, outputs))
    }
}

// SOURCE_ID, a digest of what the driver is built from. Whatever builds it has to make this file: two builds that had the
// same would take each other's caches for their own.
include!(concat!(env!("OUT_DIR"), "/source_id.rs"));

/// Unique for each build, as clients mix it into their cache tokens.
fn version(backend: &str) -> String {
    format!("nnhal-{}-{backend}-{SOURCE_ID}", env!("CARGO_PKG_VERSION"))
}

fn capabilities(capabilities: &backend::Capabilities) -> Capabilities {
    let performance =
        |p: backend::Performance| PerformanceInfo { execTime: p.exec_time, powerUsage: p.power_usage };
    let operand = |(ty, p): &(crate::tensor::OperandType, backend::Performance)| OperandPerformance {
        r#type: OperandType(ty.code()),
        info: performance(*p),
    };
    Capabilities {
        relaxedFloat32toFloat16PerformanceScalar: performance(capabilities.relaxed_scalar),
        relaxedFloat32toFloat16PerformanceTensor: performance(capabilities.relaxed_tensor),
        operandPerformance: capabilities.operands.iter().map(operand).collect(),
        ifPerformance: performance(capabilities.if_performance),
        whilePerformance: performance(capabilities.while_performance),
    }
}
