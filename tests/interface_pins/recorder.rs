//! Implements every interface and writes down which method was called with what.

use std::sync::{Arc, Mutex};

use binder::{BinderResult, Interface, ParcelFileDescriptor, Strong};
use nnhal::aidl::*;

pub type Log = Arc<Mutex<Vec<String>>>;

#[derive(Clone)]
pub struct Recorder(Log);

impl Recorder {
    pub fn new() -> (Self, Log) {
        let log = Log::default();
        (Self(log.clone()), log)
    }
}

/// Notes the name of the method and the arguments.
macro_rules! note {
    ($self:ident, $method:literal $(, $argument:expr)* $(,)?) => {{
        let arguments: Vec<String> = vec![$(format!("{:?}", $argument)),*];
        let line = format!("{}({})", $method, arguments.join(", "));
        $self.0.lock().expect("no panic while held").push(line);
    }};
}

impl Interface for Recorder {}

impl IDevice for Recorder {
    fn allocate(
        &self,
        desc: &BufferDesc,
        preparedModels: &[IPreparedModelParcel],
        inputRoles: &[BufferRole],
        outputRoles: &[BufferRole],
    ) -> BinderResult<DeviceBuffer> {
        let present: Vec<bool> = preparedModels.iter().map(|m| m.preparedModel.is_some()).collect();
        note!(self, "allocate", desc.dimensions, present, inputRoles.len(), outputRoles.len());
        Ok(DeviceBuffer { buffer: Some(BnBuffer::new_binder(self.clone())), token: 5 })
    }

    fn getCapabilities(&self) -> BinderResult<Capabilities> {
        note!(self, "getCapabilities");
        Ok(Capabilities::default())
    }

    fn getNumberOfCacheFilesNeeded(&self) -> BinderResult<NumberOfCacheFiles> {
        note!(self, "getNumberOfCacheFilesNeeded");
        Ok(NumberOfCacheFiles::default())
    }

    fn getSupportedExtensions(&self) -> BinderResult<Vec<Extension>> {
        note!(self, "getSupportedExtensions");
        Ok(vec![])
    }

    fn getSupportedOperations(&self, model: &Model) -> BinderResult<Vec<bool>> {
        note!(self, "getSupportedOperations", model.operandValues);
        Ok(vec![])
    }

    fn getType(&self) -> BinderResult<DeviceType> {
        note!(self, "getType");
        Ok(DeviceType::CPU)
    }

    fn getVersionString(&self) -> BinderResult<String> {
        note!(self, "getVersionString");
        Ok(String::new())
    }

    fn prepareModel(
        &self,
        model: &Model,
        preference: ExecutionPreference,
        priority: Priority,
        deadlineNs: i64,
        modelCache: &[ParcelFileDescriptor],
        dataCache: &[ParcelFileDescriptor],
        token: &[u8],
        _: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        let (models, data) = (modelCache.len(), dataCache.len());
        note!(
            self,
            "prepareModel",
            model.operandValues,
            preference.0,
            priority.0,
            deadlineNs,
            models,
            data,
            token
        );
        Ok(())
    }

    fn prepareModelFromCache(
        &self,
        deadlineNs: i64,
        modelCache: &[ParcelFileDescriptor],
        dataCache: &[ParcelFileDescriptor],
        token: &[u8],
        _: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        note!(self, "prepareModelFromCache", deadlineNs, modelCache.len(), dataCache.len(), token);
        Ok(())
    }

    fn prepareModelWithConfig(
        &self,
        model: &Model,
        config: &PrepareModelConfig,
        _: &Strong<dyn IPreparedModelCallback>,
    ) -> BinderResult<()> {
        note!(self, "prepareModelWithConfig", model.operandValues, config.deadlineNs);
        Ok(())
    }
}

impl IPreparedModel for Recorder {
    fn executeSynchronously(
        &self,
        request: &Request,
        measureTiming: bool,
        deadlineNs: i64,
        loopTimeoutDurationNs: i64,
    ) -> BinderResult<ExecutionResult> {
        note!(
            self,
            "executeSynchronously",
            request.pools.len(),
            measureTiming,
            deadlineNs,
            loopTimeoutDurationNs
        );
        Ok(ExecutionResult::default())
    }

    fn executeFenced(
        &self,
        request: &Request,
        waitFor: &[ParcelFileDescriptor],
        measureTiming: bool,
        deadlineNs: i64,
        loopTimeoutDurationNs: i64,
        durationNs: i64,
    ) -> BinderResult<FencedExecutionResult> {
        let (pools, fences) = (request.pools.len(), waitFor.len());
        note!(
            self,
            "executeFenced",
            pools,
            fences,
            measureTiming,
            deadlineNs,
            loopTimeoutDurationNs,
            durationNs
        );
        Ok(fenced(self))
    }

    fn configureExecutionBurst(&self) -> BinderResult<Strong<dyn IBurst>> {
        note!(self, "configureExecutionBurst");
        Ok(BnBurst::new_binder(self.clone()))
    }

    fn createReusableExecution(
        &self,
        request: &Request,
        config: &ExecutionConfig,
    ) -> BinderResult<Strong<dyn IExecution>> {
        note!(self, "createReusableExecution", request.pools.len(), config.loopTimeoutDurationNs);
        Ok(BnExecution::new_binder(self.clone()))
    }

    fn executeSynchronouslyWithConfig(
        &self,
        request: &Request,
        config: &ExecutionConfig,
        deadlineNs: i64,
    ) -> BinderResult<ExecutionResult> {
        let pools = request.pools.len();
        note!(self, "executeSynchronouslyWithConfig", pools, config.loopTimeoutDurationNs, deadlineNs);
        Ok(ExecutionResult::default())
    }

    fn executeFencedWithConfig(
        &self,
        request: &Request,
        waitFor: &[ParcelFileDescriptor],
        config: &ExecutionConfig,
        deadlineNs: i64,
        durationNs: i64,
    ) -> BinderResult<FencedExecutionResult> {
        let (pools, timeout) = (request.pools.len(), config.loopTimeoutDurationNs);
        note!(self, "executeFencedWithConfig", pools, waitFor.len(), timeout, deadlineNs, durationNs);
        Ok(fenced(self))
    }
}

fn fenced(recorder: &Recorder) -> FencedExecutionResult {
    let callback = Some(BnFencedExecutionCallback::new_binder(recorder.clone()));
    FencedExecutionResult { callback, syncFence: None }
}

impl IBurst for Recorder {
    fn executeSynchronously(
        &self,
        request: &Request,
        memoryIdentifierTokens: &[i64],
        measureTiming: bool,
        deadlineNs: i64,
        loopTimeoutDurationNs: i64,
    ) -> BinderResult<ExecutionResult> {
        let (pools, tokens) = (request.pools.len(), memoryIdentifierTokens);
        note!(self, "executeSynchronously", pools, tokens, measureTiming, deadlineNs, loopTimeoutDurationNs);
        Ok(ExecutionResult::default())
    }

    fn releaseMemoryResource(&self, memoryIdentifierToken: i64) -> BinderResult<()> {
        note!(self, "releaseMemoryResource", memoryIdentifierToken);
        Ok(())
    }

    fn executeSynchronouslyWithConfig(
        &self,
        request: &Request,
        memoryIdentifierTokens: &[i64],
        config: &ExecutionConfig,
        deadlineNs: i64,
    ) -> BinderResult<ExecutionResult> {
        let (pools, tokens) = (request.pools.len(), memoryIdentifierTokens);
        let timeout = config.loopTimeoutDurationNs;
        note!(self, "executeSynchronouslyWithConfig", pools, tokens, timeout, deadlineNs);
        Ok(ExecutionResult::default())
    }
}

impl IBuffer for Recorder {
    fn copyFrom(&self, src: &Memory, dimensions: &[i32]) -> BinderResult<()> {
        note!(self, "copyFrom", matches!(src, Memory::Ashmem(a) if a.size == 6), dimensions);
        Ok(())
    }

    fn copyTo(&self, dst: &Memory) -> BinderResult<()> {
        note!(self, "copyTo", matches!(dst, Memory::Ashmem(a) if a.size == 6));
        Ok(())
    }
}

impl IExecution for Recorder {
    fn executeSynchronously(&self, deadlineNs: i64) -> BinderResult<ExecutionResult> {
        note!(self, "executeSynchronously", deadlineNs);
        Ok(ExecutionResult::default())
    }

    fn executeFenced(
        &self,
        waitFor: &[ParcelFileDescriptor],
        deadlineNs: i64,
        durationNs: i64,
    ) -> BinderResult<FencedExecutionResult> {
        note!(self, "executeFenced", waitFor.len(), deadlineNs, durationNs);
        Ok(fenced(self))
    }
}

impl IFencedExecutionCallback for Recorder {
    fn getExecutionInfo(&self, launched: &mut Timing, fenced: &mut Timing) -> BinderResult<ErrorStatus> {
        note!(self, "getExecutionInfo");
        *launched = Timing { timeOnDeviceNs: 1, timeInDriverNs: 2 };
        *fenced = Timing { timeOnDeviceNs: 3, timeInDriverNs: 4 };
        Ok(ErrorStatus::MISSED_DEADLINE_TRANSIENT)
    }
}

impl IPreparedModelCallback for Recorder {
    fn notify(&self, status: ErrorStatus, model: Option<&Strong<dyn IPreparedModel>>) -> BinderResult<()> {
        note!(self, "notify", status.0, model.is_some());
        Ok(())
    }
}
