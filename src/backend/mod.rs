//! The two traits that a vendor implements: [`Backend`], which compiles models, and [`Executable`], which runs them.
//!
//! Everything above (binder, validation, memory, scheduling) is the same for every backend. A backend sees valid models
//! and checked arguments only, and must not know of binder.

pub mod cpu;

pub use crate::scheduler::{boottime_ns, Control, Priority};

use crate::memory::{ClientSlice, Mapping, MemoryError, Weights};
use crate::model::Model;
use crate::ops::OpError;
use crate::tensor::{Dims, OperandType, TensorInfo};
use std::sync::Arc;

/// Compiles models for one kind of hardware.
pub trait Backend: Send + Sync {
    /// What the driver adds to its version string: changes whenever compiled models or results do.
    fn version(&self) -> String;

    /// How fast and frugal this backend is, relative to the runtime's own CPU code.
    fn capabilities(&self) -> Capabilities;

    /// For each operation of the main subgraph: whether this backend takes it, or why not. What it takes here,
    /// [`compile`](Self::compile) must compile. An IF or WHILE is taken only if all operations in its subgraphs are.
    fn support(&self, model: &Model) -> Vec<Result<(), String>>;

    /// Compiles a model of which every operation is supported, as far as it must be to be run and saved:
    /// [`Executable::finish`] may do the rest.
    fn compile(
        &self,
        model: &Model,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError>;

    /// Loads what [`Executable::artifact`] gave to a backend of the same [`version`](Self::version). The model bytes
    /// are private, and most likely what was given. The data bytes may change at any moment, or vanish: that may
    /// change values, and nothing else.
    fn load(&self, _model: &[u8], _data: Arc<Mapping>) -> Result<Arc<dyn Executable>, BackendError> {
        Err(BackendError::Unsupported("this backend does not load compiled models".into()))
    }
}

/// A compiled model. It may be run from several threads at once.
pub trait Executable: Send + Sync {
    /// The model's inputs and outputs, with dimensions as the model declares them.
    fn interface(&self) -> &Interface;

    /// What it was compiled for; an artifact remembers it.
    fn preference(&self) -> Preference;

    /// Whether its runs may last however long, as those of a model with a WHILE.
    fn may_loop(&self) -> bool {
        false
    }

    /// Whether nothing of its compilation is left to do.
    fn is_finished(&self) -> bool {
        true
    }

    /// Does what its compilation has left for later. Runs may go on meanwhile, and give the same bytes before, during
    /// and after. What it cannot finish is left as it is.
    fn finish(&self, _control: &Control) -> Result<(), BackendError> {
        Ok(())
    }

    /// The compiled model as bytes, however far it is, for [`Backend::load`]; `None` if it cannot be, or not yet.
    fn artifact(&self) -> Option<Artifact> {
        None
    }

    /// Has the hardware stay ready between runs that follow each other closely, until what this gives is dropped.
    fn keep_ready(&self) -> Option<Box<dyn Send + Sync>> {
        None
    }

    /// Runs the model: `inputs` and `outputs` follow the interface, one each; a `None` was left out by the client.
    /// Gives one shape per output. Where an output's memory is too small, nothing is written to any, and the shapes say
    /// so.
    fn run(
        &self,
        inputs: &[Option<InputTensor>],
        outputs: &[Option<OutputTensor>],
        control: &Control,
    ) -> Result<Vec<OutputShape>, BackendError>;
}

/// A compiled model as bytes, of two kinds.
#[derive(Debug)]
pub struct Artifact {
    /// All that steers execution.
    pub model: Vec<u8>,
    /// Mere data: parts and where they start, in order.
    pub data: Vec<(u64, Weights)>,
}

/// What a compiled model takes and gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    pub inputs: Vec<TensorInfo>,
    pub outputs: Vec<TensorInfo>,
}

/// The value of a model input.
#[derive(Clone, Debug)]
pub struct InputTensor {
    pub data: ClientSlice,
    /// All known.
    pub dims: Dims,
}

/// Where a model output goes.
#[derive(Clone, Debug)]
pub struct OutputTensor {
    pub data: ClientSlice,
    /// What the client says of the dimensions; 0, or none at all, where it leaves them to the driver.
    pub dims: Dims,
}

/// What became of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputShape {
    pub dims: Dims,
    /// Whether the output's memory was large enough.
    pub sufficient: bool,
}

/// What a client asks of a compilation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileOptions {
    pub preference: Preference,
    pub priority: Priority,
    /// Whether the client would rather have it compiled by its first run, all of it. A backend need not.
    pub just_in_time: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    LowPower,
    #[default]
    FastSingleAnswer,
    SustainedSpeed,
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

/// Why a compilation or a run failed.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The model needs what this backend does not have.
    #[error("{0}")]
    Unsupported(String),
    /// An operation could not do its work; the text names it.
    #[error("{0}")]
    Failed(String),
    #[error("no memory for {0} bytes")]
    OutOfMemory(usize),
    /// However much memory the machine has.
    #[error("its values take {size} bytes at once; a run may take {limit}")]
    TooLarge { size: u64, limit: u64 },
    #[error("{what}: {source}")]
    Memory { what: String, source: MemoryError },
    #[error("the deadline has passed")]
    DeadlinePassed,
    /// A WHILE ran for longer than its time limit.
    #[error("a loop ran for longer than {0:?}")]
    LoopTimeout(std::time::Duration),
    #[error("cancelled")]
    Cancelled,
}

impl From<OpError> for BackendError {
    /// Without the operation's name, which whoever knows it adds.
    fn from(error: OpError) -> Self {
        match error {
            OpError::DeadlinePassed => BackendError::DeadlinePassed,
            OpError::Cancelled => BackendError::Cancelled,
            other => BackendError::Failed(other.to_string()),
        }
    }
}

impl BackendError {
    /// This error, with the place it happened at in front.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Self {
        match self {
            BackendError::Failed(why) => BackendError::Failed(format!("{place}: {why}")),
            other => other,
        }
    }
}
