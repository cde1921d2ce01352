//! IDevice: what the driver is, and where compilations begin.

use super::announce::Announcement;
use super::buffer;
use super::prepared_model::Prepared;
use super::status::{self, handle, ServiceError};
use super::terms;
use crate::aidl::*;
use crate::backend::cpu::CpuBackend;
use crate::backend::{self, Backend, CompileOptions, Control};
use crate::compiler::{Compiler, Job, Limits, Quota};
use crate::fmq::PollingBudget;
use crate::model;
use crate::model::buffer::BufferTracker;
use binder::{BinderResult, Interface, ParcelFileDescriptor, Strong};
use std::sync::Arc;

/// Callbacks that have not returned yet, in all and of one client: each holds a thread.
const MAX_CALLBACKS: u64 = 512;
const MAX_CALLBACKS_PER_CLIENT: u64 = 128;

/// Prepared models alive, in all and of one client.
const MAX_MODELS: u64 = 8192;
const MAX_MODELS_PER_CLIENT: u64 = 2048;

/// Bursts over queues, in all and of one client: each has a thread.
const MAX_FMQ_BURSTS: u64 = 128;
const MAX_FMQ_BURSTS_PER_CLIENT: u64 = 32;

/// How the driver is set up.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Threads that compute; `None` for one per core.
    pub threads: Option<usize>,
}

/// What all objects of one driver share.
pub(super) struct Core {
    backend: Arc<dyn Backend>,
    compiler: Compiler,
    callbacks: Arc<Quota>,
    models: Arc<Quota>,
    pub(super) buffers: BufferTracker,
    pub(super) fmq_bursts: Arc<Quota>,
    /// How many of those may poll.
    pub(super) polling: Arc<PollingBudget>,
}

struct Device {
    core: Arc<Core>,
}

/// A driver with the CPU backend.
pub fn new_device(options: &Options) -> std::io::Result<Strong<dyn IDevice>> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let backend: Arc<dyn Backend> = Arc::new(CpuBackend::new(options.threads.unwrap_or(cores))?);
    let compiler = Compiler::new(backend.clone(), Limits::default())?;
    let callbacks = Quota::new(MAX_CALLBACKS, MAX_CALLBACKS_PER_CLIENT);
    let models = Quota::new(MAX_MODELS, MAX_MODELS_PER_CLIENT);
    let buffers = BufferTracker::default();
    let fmq_bursts = Quota::new(MAX_FMQ_BURSTS, MAX_FMQ_BURSTS_PER_CLIENT);
    let polling = PollingBudget::for_processors(cores);
    Ok(BnDevice::new_binder(Device {
        core: Arc::new(Core { backend, compiler, callbacks, models, buffers, fmq_bursts, polling }),
    }))
}

/// What prepareModel and prepareModelWithConfig have in common, checked.
struct Compilation {
    model: model::Model,
    options: CompileOptions,
    deadline: Option<u64>,
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
        };
        let deadline = terms::deadline(deadline)?;
        Ok(Compilation { model: model::Model::new(model)?, options, deadline })
    }
}

impl Device {
    /// Starts a compilation. Whatever goes wrong is thrown and told to the callback as well.
    fn prepare(
        &self,
        callback: &Strong<dyn IPreparedModelCallback>,
        check: impl FnOnce() -> Result<Compilation, ServiceError>,
    ) -> Result<(), ServiceError> {
        let client = binder::get_calling_uid();
        let mut control = Control::default();
        let announcement =
            Announcement::new(&self.core.callbacks, client, callback, control.cancelled.clone())?;
        let launch = || {
            let Compilation { model, options, deadline } = check()?;
            let place = self.core.models.take(client, 1).map_err(|why| {
                ServiceError::Exhausted(format!("too many prepared models are alive: {why}"))
            })?;
            (control.deadline_ns, control.priority) = (deadline, options.priority);
            let (core, announcement) = (self.core.clone(), announcement.clone());
            let done = move |outcome: crate::compiler::Outcome| {
                announcement.tell(match outcome {
                    Ok(executable) => Ok(Arc::new(Prepared::new(core, executable, options, place))),
                    Err(error) => {
                        let error = ServiceError::from(error);
                        status::log("compilation", &error);
                        Err(error.status())
                    }
                });
            };
            Ok(self.core.compiler.submit(Job { client, model, options, control, done: Box::new(done) })?)
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
        Ok(NumberOfCacheFiles { numModelCache: 0, numDataCache: 0 })
    }

    fn getSupportedExtensions(&self) -> BinderResult<Vec<Extension>> {
        Ok(Vec::new())
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
        _model_cache: &[ParcelFileDescriptor],
        _data_cache: &[ParcelFileDescriptor],
        _token: &[u8],
        callback: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        handle("prepareModel", || {
            self.prepare(callback, || Compilation::new(model, preference, priority, deadline))
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
                terms::hints(&config.compilationHints, &config.extensionNameToPrefix)?;
                Compilation::new(model, config.preference, config.priority, config.deadlineNs)
            })
        })
    }

    fn prepareModelFromCache(
        &self,
        deadline: i64,
        _model_cache: &[ParcelFileDescriptor],
        _data_cache: &[ParcelFileDescriptor],
        _token: &[u8],
        callback: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        handle("prepareModelFromCache", || {
            self.prepare(callback, || {
                terms::deadline(deadline)?;
                Err(ServiceError::Failed("caching is not supported yet; prepare the model itself".into()))
            })
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

/// Unique for each build, as clients mix it into their cache tokens.
fn version(backend: &str) -> String {
    let build = option_env!("NNHAL_SOURCE_ID").unwrap_or("unknown");
    format!("nnhal-{}-{backend}-{build}", env!("CARGO_PKG_VERSION"))
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
