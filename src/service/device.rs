//! IDevice: what the driver is, and where compilations begin.

use super::announce::Announcement;
use super::buffer;
use super::call::{self, handle};
use super::core::{version, Core};
use super::diagnostics;
use super::prepared::Prepared;
use super::status::ServiceError;
use super::terms;
use crate::aidl::*;
use crate::backend::{self, CompileOptions, Control};
use crate::compiler::{CachePlace, CachingError, ClientFiles, Job, Outcome, Work};
use crate::ipc::{self, BinderResult, Interface, ParcelFileDescriptor, StatusCode, Strong};
use crate::model::hints::{self, Hints};
use crate::model::{self, CountedModel};
use crate::scheduler::{caller_gone, Permit};
use std::io::Write;
use std::sync::Arc;

struct Device {
    core: Arc<Core>,
}

/// The device of a driver.
pub(super) fn new_binder(core: Arc<Core>) -> Strong<dyn IDevice> {
    let extension = diagnostics::new_binder(core.clone());
    let device = ipc::object!(BnDevice, Device { core });
    // A client that does not know the extension never asks for it.
    if let Err(why) = ipc::set_extension::<BnDevice>(&device.as_binder(), &extension.as_binder()) {
        log::error!("the device is without its extension: {why:?}");
    }
    device
}

/// What prepareModel and prepareModelWithConfig have in common, checked.
struct Compilation {
    model: CountedModel,
    options: CompileOptions,
    deadline: Option<u64>,
    /// Where it is to be saved.
    place: Option<CachePlace>,
    /// For the model's pools, which stay mapped for a while; `None` where the client has too many mapped, and constants are
    /// copied.
    mappings: Option<Permit>,
}

impl Compilation {
    fn new(
        core: &Core,
        model: &Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadline: i64,
        control: &Control,
    ) -> Result<Self, ServiceError> {
        let options = CompileOptions {
            preference: terms::preference(preference)?,
            priority: terms::priority(priority)?,
            ..CompileOptions::default()
        };
        let deadline = terms::deadline(deadline)?;
        let mappings = core.quotas.mappings(ipc::calling_uid(), model.pools.len()).ok();
        let control = Control { deadline_ns: deadline, priority: options.priority, ..control.clone() };
        let turn = core.call_turns.check(&control);
        // With its place, as it holds the thread while constants are copied, too.
        let (mut model, _place) = core.model(model, &turn)?;
        if mappings.is_none() {
            // They would stay mapped while it stands in line, and would not be counted.
            model = CountedModel::new(model.to_private(&turn)?, &turn)?;
        }
        Ok(Compilation { model, options, deadline, place: None, mappings })
    }

    /// This compilation, to be saved in these files. If something is wrong with the files, it is just not saved.
    fn cached(
        self,
        core: &Core,
        token: &[u8],
        models: &[ParcelFileDescriptor],
        data: &[ParcelFileDescriptor],
    ) -> Self {
        if models.is_empty() && data.is_empty() {
            return self;
        }
        match core.cache_place(token, models, data) {
            Ok(place) => Compilation { place: Some(place), ..self },
            Err(why) => {
                log::warn!("a compilation is not cached: {why}");
                self
            }
        }
    }
}

impl Core {
    /// The calling client's files for a compilation, checked.
    fn cache_place(
        &self,
        token: &[u8],
        models: &[ParcelFileDescriptor],
        data: &[ParcelFileDescriptor],
    ) -> Result<CachePlace, CachingError> {
        let [models, data] = [models, data].map(|files| files.iter().map(ipc::file).collect::<Vec<_>>());
        CachePlace::new(ipc::calling_uid(), token, (&models, &data), self.info.cache_files)
    }

    /// Checks and decodes a model, with the extensions that the backend knows, on the calling client's account, as long as
    /// `control` allows. It comes with its place among the models that calls check.
    fn model(&self, model: &Model, control: &Control) -> Result<(CountedModel, Permit), ServiceError> {
        let place = self.quotas.check(ipc::calling_uid())?;
        let model = model::Model::with_extensions(model, &self.info.extensions, control)?;
        Ok((CountedModel::new(model, control)?, place))
    }

    /// For each operation of the main subgraph: whether the driver takes it, or why not.
    pub fn support(&self, model: &Model) -> Result<Vec<Result<(), String>>, ServiceError> {
        let orphaned = self.lives.of(ipc::calling_pid()).over();
        let (client, cancelled) = (ipc::calling_uid(), caller_gone());
        let control = Control { client, orphaned, cancelled, ..Control::default() };
        // A backend may wait for its device: without the turn, if there is one, and with the place, as the call's thread waits.
        let (model, _place) = self.model(model, &self.call_turns.check(&control))?;
        Ok(self.backend.support(&model, &control))
    }
}

impl Device {
    /// Has the work that `check` gives done on a compiling thread. Whatever goes wrong before is thrown, and told to the
    /// callback as well, but for a deadline that passes; what goes wrong later is told.
    fn submit(
        &self,
        callback: &Strong<dyn IPreparedModelCallback>,
        check: impl FnOnce(&Control) -> Result<(Work, Option<u64>), ServiceError>,
    ) -> Result<(), ServiceError> {
        let client = ipc::calling_uid();
        let budget = Some(self.core.budget.clone());
        let process = ipc::calling_pid();
        let life = self.core.lives.of(process);
        let mut control = Control { client, budget, orphaned: life.over(), ..Control::default() };
        let owing = (&self.core.quotas, &self.core.notifiers);
        let announcement = Announcement::new(owing, client, callback, control.cancelled.clone())?;
        let launch = || {
            let (work, deadline) = check(&control)?;
            let place = self.core.quotas.model(client)?;
            let priority = match &work {
                Work::Compile { options, .. } => options.priority,
                Work::Load(_) => backend::Priority::default(),
            };
            (control.deadline_ns, control.priority) = (deadline, priority);
            let (core, announcement) = (self.core.clone(), announcement.clone());
            let done = move |outcome: Outcome| {
                announcement.tell(match outcome {
                    Ok(compiled) => Ok(Arc::new(Prepared::new(core, compiled, life, place, process))),
                    Err(error) => {
                        let error = ServiceError::from(error);
                        call::note(&core, "compilation", &error);
                        Err(error.status())
                    }
                });
            };
            Ok(self.core.compiler.submit(Job { work, control, done: Box::new(done) })?)
        };
        let launched: Result<(), ServiceError> = launch();
        let Err(error) = launched else { return Ok(()) };
        announcement.tell(Err(error.status()));
        match error.status() {
            // The call was in order: whether the deadline passes before the model is checked or after is no business of the client's.
            ErrorStatus::MISSED_DEADLINE_TRANSIENT => {
                call::note(&self.core, "compilation", &error);
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn prepare(
        &self,
        callback: &Strong<dyn IPreparedModelCallback>,
        check: impl FnOnce(&Control) -> Result<Compilation, ServiceError>,
    ) -> Result<(), ServiceError> {
        self.submit(callback, |control| {
            let Compilation { model, options, deadline, place, mappings } = check(control)?;
            let files = place.and_then(|place| {
                let files = self.files(place);
                files.inspect_err(|why| log::info!("a compilation is not cached: {why}")).ok()
            });
            Ok((Work::Compile { model, options, files, mappings }, deadline))
        })
    }

    /// Cache files of the calling client, unless it has too many open.
    fn files(&self, place: CachePlace) -> Result<ClientFiles, ServiceError> {
        let counts = self.core.info.cache_files;
        let count = (counts.models + counts.data) as usize;
        let permit = self.core.quotas.cache_files(ipc::calling_uid(), count)?;
        Ok(ClientFiles { place, permit })
    }
}

impl Interface for Device {
    fn dump(&self, writer: &mut dyn Write, arguments: &[ipc::DumpArgument]) -> Result<(), StatusCode> {
        diagnostics::dump(&self.core, writer, arguments)
    }
}

impl IDevice for Device {
    fn getCapabilities(&self) -> BinderResult<Capabilities> {
        handle(&self.core, "getCapabilities", || Ok(capabilities(&self.core.info.capabilities)))
    }

    fn getNumberOfCacheFilesNeeded(&self) -> BinderResult<NumberOfCacheFiles> {
        handle(&self.core, "getNumberOfCacheFilesNeeded", || {
            // A client that asks is about to save or load.
            self.core.compiler.open_registry_ahead();
            let counts = self.core.info.cache_files;
            Ok(NumberOfCacheFiles { numModelCache: counts.models as i32, numDataCache: counts.data as i32 })
        })
    }

    fn getSupportedExtensions(&self) -> BinderResult<Vec<Extension>> {
        let ours = Extension { name: hints::EXTENSION.into(), operandTypes: Vec::new() };
        let operand_type = |ty: &backend::ExtensionOperandType| ExtensionOperandTypeInformation {
            r#type: ty.code as _,
            isTensor: ty.is_tensor,
            byteSize: i32::try_from(ty.byte_size).unwrap_or(i32::MAX),
        };
        let extension = |extension: &backend::Extension| Extension {
            name: extension.name.clone(),
            operandTypes: extension.operand_types.iter().map(operand_type).collect(),
        };
        Ok(std::iter::once(ours).chain(self.core.info.extensions.iter().map(extension)).collect())
    }

    fn getSupportedOperations(&self, model: &Model) -> BinderResult<Vec<bool>> {
        handle(&self.core, "getSupportedOperations", || {
            let support = self.core.support(model)?;
            for (i, why) in
                support.iter().enumerate().filter_map(|(i, s)| s.as_ref().err().map(|why| (i, why)))
            {
                log::debug!("operation {i} is not taken: {why}");
            }
            Ok(support.iter().map(Result::is_ok).collect())
        })
    }

    fn getType(&self) -> BinderResult<DeviceType> {
        Ok(match self.core.info.device_type {
            backend::DeviceType::Other => DeviceType::OTHER,
            backend::DeviceType::Cpu => DeviceType::CPU,
            backend::DeviceType::Gpu => DeviceType::GPU,
            backend::DeviceType::Accelerator => DeviceType::ACCELERATOR,
        })
    }

    fn getVersionString(&self) -> BinderResult<String> {
        handle(&self.core, "getVersionString", || Ok(version(&self.core.info)))
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
        handle(&self.core, "prepareModel", || {
            self.prepare(callback, |control| {
                let compilation =
                    Compilation::new(&self.core, model, preference, priority, deadline, control)?;
                Ok(compilation.cached(&self.core, token, model_cache, data_cache))
            })
        })
    }

    fn prepareModelWithConfig(
        &self,
        model: &Model,
        config: &PrepareModelConfig,
        callback: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        handle(&self.core, "prepareModelWithConfig", || {
            self.prepare(callback, |control| {
                let (hints, extensions) = (&config.compilationHints, &config.extensionNameToPrefix);
                terms::hints(hints, extensions)?;
                let mut compilation = Compilation::new(
                    &self.core,
                    model,
                    config.preference,
                    config.priority,
                    config.deadlineNs,
                    control,
                )?;
                let Hints { just_in_time, dynamic_range } = Hints::of(hints, extensions)?;
                compilation.options = CompileOptions { just_in_time, dynamic_range, ..compilation.options };
                let (models, data) = (&config.modelCache, &config.dataCache);
                Ok(compilation.cached(&self.core, &config.cacheToken, models, data))
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
        handle(&self.core, "prepareModelFromCache", || {
            self.submit(callback, |_| {
                let deadline = terms::deadline(deadline)?;
                terms::check_deadline(deadline)?;
                let place = self.core.cache_place(token, model_cache, data_cache)?;
                Ok((Work::Load(self.files(place)?), deadline))
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
        handle(&self.core, "allocate", || buffer::allocate(&self.core, desc, models, inputs, outputs))
    }
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

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
