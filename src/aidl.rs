//! The NNAPI AIDL interface, version 4, and our extensions to it, as Rust types: what `build.rs` generates from `aidl/`, under short names.
//!
//! Interfaces are `IName` (the trait), `BnName` (wraps an implementation) and `BpName` (the proxy). Enums are
//! newtypes over their wire integer, so a client can send any value: code that reads one checks its range. Nothing
//! but the generated code, its re-exports, the interface's own names and how a large model is freed belongs here, and nothing
//! here is checked yet.

#[cfg(not(feature = "platform_binder"))]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/nnapi.rs"));
}
// A platform's build has a library of what AIDL's Rust backend makes of the same descriptions.
#[cfg(feature = "platform_binder")]
use nnhal_interfaces::aidl as generated;

pub use generated::android::hardware::common::{
    Ashmem::Ashmem, MappableFile::MappableFile, NativeHandle::NativeHandle,
};
pub use generated::android::hardware::graphics::common::{
    BufferUsage::BufferUsage, HardwareBuffer::HardwareBuffer,
    HardwareBufferDescription::HardwareBufferDescription, PixelFormat::PixelFormat,
};
pub use generated::android::hardware::neuralnetworks::{
    BufferDesc::BufferDesc,
    BufferRole::BufferRole,
    Capabilities::Capabilities,
    DataLocation::DataLocation,
    DeviceBuffer::DeviceBuffer,
    DeviceType::DeviceType,
    ErrorStatus::ErrorStatus,
    ExecutionConfig::ExecutionConfig,
    ExecutionPreference::ExecutionPreference,
    ExecutionResult::ExecutionResult,
    Extension::Extension,
    ExtensionNameAndPrefix::ExtensionNameAndPrefix,
    ExtensionOperandTypeInformation::ExtensionOperandTypeInformation,
    FencedExecutionResult::FencedExecutionResult,
    FusedActivationFunc::FusedActivationFunc,
    IBuffer::{BnBuffer, BpBuffer, IBuffer},
    IBurst::{BnBurst, BpBurst, IBurst},
    IDevice::{BnDevice, BpDevice, IDevice},
    IExecution::{BnExecution, BpExecution, IExecution},
    IFencedExecutionCallback::{
        BnFencedExecutionCallback, BpFencedExecutionCallback, IFencedExecutionCallback,
    },
    IPreparedModel::{BnPreparedModel, BpPreparedModel, IPreparedModel},
    IPreparedModelCallback::{BnPreparedModelCallback, BpPreparedModelCallback, IPreparedModelCallback},
    IPreparedModelParcel::IPreparedModelParcel,
    Memory::Memory,
    Model::Model,
    NumberOfCacheFiles::NumberOfCacheFiles,
    Operand::Operand,
    OperandExtraParams::OperandExtraParams,
    OperandLifeTime::OperandLifeTime,
    OperandPerformance::OperandPerformance,
    OperandType::OperandType,
    Operation::Operation,
    OperationType::OperationType,
    OutputShape::OutputShape,
    PerformanceInfo::PerformanceInfo,
    PrepareModelConfig::PrepareModelConfig,
    Priority::Priority,
    Request::Request,
    RequestArgument::RequestArgument,
    RequestMemoryPool::RequestMemoryPool,
    Subgraph::Subgraph,
    SymmPerChannelQuantParams::SymmPerChannelQuantParams,
    Timing::Timing,
    TokenValuePair::TokenValuePair,
};

pub use generated::vendor::nnhal::burst::{
    FmqRequestDatum::FmqRequestDatum,
    FmqResultDatum::FmqResultDatum,
    IFmqBurst::{BnFmqBurst, BpFmqBurst, IFmqBurst},
    IFmqBurstCallback::{BnFmqBurstCallback, BpFmqBurstCallback, IFmqBurstCallback},
    IFmqBurstContext::{BnFmqBurstContext, BpFmqBurstContext, IFmqBurstContext},
};
pub use generated::vendor::nnhal::diagnostics::{
    Activity::Activity,
    IDiagnostics::{BnDiagnostics, BpDiagnostics, IDiagnostics},
    IRecorder::{BnRecorder, BpRecorder, IRecorder},
    KernelKind::KernelKind,
    ModelDescription::ModelDescription,
    PlaceKind::PlaceKind,
    Recorded::Recorded,
    Span::Span,
    Step::Step,
    SubgraphDescription::SubgraphDescription,
    ValuePlace::ValuePlace,
};

/// The version of the interface that every object answers.
pub const INTERFACE_VERSION: i32 = generated::android::hardware::neuralnetworks::IDevice::VERSION;
/// The hash of the frozen interface that every object answers.
pub const INTERFACE_HASH: &str = generated::android::hardware::neuralnetworks::IDevice::HASH;
pub use generated::android::hardware::neuralnetworks::IDevice::{
    BYTE_SIZE_OF_CACHE_TOKEN, EXTENSION_TYPE_HIGH_BITS_PREFIX, EXTENSION_TYPE_LOW_BITS_TYPE,
    MAX_NUMBER_OF_CACHE_FILES, OPERAND_TYPE_BASE_MAX, OPERATION_TYPE_BASE_MAX,
};
pub use generated::android::hardware::neuralnetworks::IPreparedModel::{
    DEFAULT_LOOP_TIMEOUT_DURATION_NS, MAXIMUM_LOOP_TIMEOUT_DURATION_NS,
};
/// The version of our extension that tells of the driver.
pub const DIAGNOSTICS_VERSION: i32 = generated::vendor::nnhal::diagnostics::IDiagnostics::VERSION;
/// The hash of that version.
pub const DIAGNOSTICS_HASH: &str = generated::vendor::nnhal::diagnostics::IDiagnostics::HASH;
/// The version of our extension for bursts over queues.
pub const BURST_VERSION: i32 = generated::vendor::nnhal::burst::IFmqBurst::VERSION;
/// The hash of that version.
pub const BURST_HASH: &str = generated::vendor::nnhal::burst::IFmqBurst::HASH;

/// The interface's name of a status; `None` for a number that it does not know.
pub fn status_name(status: ErrorStatus) -> Option<&'static str> {
    Some(match status {
        ErrorStatus::NONE => "NONE",
        ErrorStatus::DEVICE_UNAVAILABLE => "DEVICE_UNAVAILABLE",
        ErrorStatus::GENERAL_FAILURE => "GENERAL_FAILURE",
        ErrorStatus::OUTPUT_INSUFFICIENT_SIZE => "OUTPUT_INSUFFICIENT_SIZE",
        ErrorStatus::INVALID_ARGUMENT => "INVALID_ARGUMENT",
        ErrorStatus::MISSED_DEADLINE_TRANSIENT => "MISSED_DEADLINE_TRANSIENT",
        ErrorStatus::MISSED_DEADLINE_PERSISTENT => "MISSED_DEADLINE_PERSISTENT",
        ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT => "RESOURCE_EXHAUSTED_TRANSIENT",
        ErrorStatus::RESOURCE_EXHAUSTED_PERSISTENT => "RESOURCE_EXHAUSTED_PERSISTENT",
        _ => return None,
    })
}

/// A large one takes milliseconds to be freed. A platform's build has these types from its library, and does without.
#[cfg(not(feature = "platform_binder"))]
impl Drop for Subgraph {
    fn drop(&mut self) {
        self.operands.drain(..).for_each(passing_a_point);
        self.operations.drain(..).for_each(passing_a_point);
    }
}

#[cfg(not(feature = "platform_binder"))]
fn passing_a_point<T>(freed: T) {
    drop(freed);
    crate::points::passed();
}
