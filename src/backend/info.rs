//! What a backend says of itself.

use crate::model::Extension;
use crate::tensor::OperandType;

/// What a backend says of itself, once: it does not change while the driver lives.
#[derive(Clone, Debug)]
pub struct Info {
    /// What the driver adds to its version string: changes whenever compiled models or results do.
    pub version: String,
    pub device_type: DeviceType,
    /// The vendor extensions whose operand types and operations its models may use.
    pub extensions: Vec<Extension>,
    pub capabilities: Capabilities,
    /// The files that a client has to keep for a compiled model, if it caches it.
    pub cache_files: CacheFileCounts,
    /// How many executions the device takes at once; more wait in the driver, in fair shares. `None` if that is the
    /// backend's own affair.
    pub depth: Option<usize>,
    /// Whether the device waits for fences itself, in half of its `depth` places at most. Otherwise, and where times count from
    /// when the last is signalled, executions are submitted once they all are.
    pub waits_for_fences: bool,
}

/// How many files a compiled model is saved in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheFileCounts {
    /// For what steers execution, which is proven before it is parsed; 0 where models cannot be saved.
    pub models: u32,
    /// For mere data, which is not proven.
    pub data: u32,
}

impl CacheFileCounts {
    /// The most of each kind that the interface has.
    pub const MOST: u32 = 32;
    /// No compiled model is saved.
    pub const NONE: CacheFileCounts = CacheFileCounts { models: 0, data: 0 };
}

/// What kind of device this is, in the interface's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceType {
    Other,
    Cpu,
    Gpu,
    Accelerator,
}

/// Time and power relative to the runtime's CPU code: lower is better, and only below 1 does the runtime choose us.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Performance {
    pub exec_time: f32,
    pub power_usage: f32,
}

/// What a backend says of its speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Capabilities {
    pub relaxed_scalar: Performance,
    pub relaxed_tensor: Performance,
    /// By the type of an operation's first input, sorted by type.
    pub operands: Vec<(OperandType, Performance)>,
    pub if_performance: Performance,
    pub while_performance: Performance,
}

impl Capabilities {
    /// The same performance whatever the operand.
    pub fn uniform(performance: Performance) -> Self {
        let types = OperandType::ALL.into_iter().filter(|&ty| ty != OperandType::SUBGRAPH);
        Capabilities {
            relaxed_scalar: performance,
            relaxed_tensor: performance,
            operands: types.map(|ty| (ty, performance)).collect(),
            if_performance: performance,
            while_performance: performance,
        }
    }
}
