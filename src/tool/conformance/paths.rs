//! The ways to execute a prepared model, and how an execution may end.

use crate::aidl::*;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A way to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutionPath {
    Sync,
    SyncConfig,
    Reusable,
    Burst,
    BurstConfig,
    Fenced,
    FencedConfig,
    FencedReusable,
    /// Over fast message queues, by the extension of prepared models.
    Fmq,
}

impl ExecutionPath {
    pub const ALL: [ExecutionPath; 9] = [
        Self::Sync,
        Self::SyncConfig,
        Self::Reusable,
        Self::Burst,
        Self::BurstConfig,
        Self::Fenced,
        Self::FencedConfig,
        Self::FencedReusable,
        Self::Fmq,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::SyncConfig => "sync-config",
            Self::Reusable => "reusable",
            Self::Burst => "burst",
            Self::BurstConfig => "burst-config",
            Self::Fenced => "fenced",
            Self::FencedConfig => "fenced-config",
            Self::FencedReusable => "fenced-reusable",
            Self::Fmq => "fmq",
        }
    }

    pub fn is_burst(self) -> bool {
        matches!(self, Self::Burst | Self::BurstConfig)
    }

    /// Whether it runs an object made for the request, more than once.
    pub fn is_reusable(self) -> bool {
        matches!(self, Self::Reusable | Self::FencedReusable)
    }

    pub fn is_fenced(self) -> bool {
        matches!(self, Self::Fenced | Self::FencedConfig | Self::FencedReusable)
    }

    /// Whether an execution can have a deadline, a limit on its loops, and memory of the driver's: queues know none.
    pub fn has_terms(self) -> bool {
        self != Self::Fmq
    }

    /// First interface version that has it.
    pub fn version(self) -> i32 {
        match self {
            Self::Sync | Self::Burst | Self::Fenced | Self::Fmq => 1,
            _ => 4,
        }
    }
}

impl std::fmt::Display for ExecutionPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How many executions were asked for, by path.
pub type Executions = BTreeMap<ExecutionPath, u64>;

thread_local! {
    static EXECUTIONS: RefCell<Executions> = const { RefCell::new(BTreeMap::new()) };
}

/// Counts an execution that this thread asks the driver for.
pub fn count(path: ExecutionPath) {
    EXECUTIONS.with_borrow_mut(|executions| *executions.entry(path).or_default() += 1);
}

/// The executions that this thread counted since it last asked.
pub fn take_executions() -> Executions {
    EXECUTIONS.take()
}

/// How an execution ended.
#[derive(Clone, Debug)]
pub struct Ran {
    pub status: ErrorStatus,
    /// The driver's own words.
    pub message: String,
    pub shapes: Vec<OutputShape>,
    pub timing: Timing,
    /// The object to execute on was refused; nothing was executed.
    pub at_creation: bool,
}

impl Ran {
    pub fn new(status: ErrorStatus) -> Self {
        let timing = Timing { timeOnDeviceNs: -1, timeInDriverNs: -1 };
        Ran { status, message: String::new(), shapes: Vec::new(), timing, at_creation: false }
    }

    /// The status with the driver's words.
    pub fn tell(&self) -> String {
        let name = crate::client::name(self.status);
        if self.message.is_empty() {
            name
        } else {
            format!("{name} ({})", self.message)
        }
    }
}
