//! The seam: what a vendor implements to put a device behind the driver, and nothing else.
//!
//! - [`Backend`] compiles models, [`Executable`] is a compiled model, [`Binding`] one that memory was bound to
//! - `info`: what a backend says of itself; `submission`: an execution that was handed over; `error`: why it failed
//! - `synchronous`: makes a backend of three functions that compute on the calling thread; `asynchronous`: has every
//!   execution of a backend pend
//! - `description`: what a compiled model tells people of itself
//! - `cpu`: the backend for the cores of this machine
//!
//! Everything above (binder, validation, caching, memory, fences, fair shares) is the same for every backend. A backend
//! sees valid models and checked arguments only, and must not know of binder.

mod asynchronous;
pub mod cpu;
mod description;
mod error;
mod info;
mod submission;
mod synchronous;

pub use crate::memory::{ClientMemory, ClientMemoryKind, DeviceMemory, Memory};
pub use crate::model::{Argument, Extension, ExtensionOperand, ExtensionOperandType, Request};
pub use crate::scheduler::{
    boottime_ns, Activity, Control, Load, Noted, OperationId, Priority, Recorder, Span, Stop, Underway,
};
pub use asynchronous::Asynchronous;
pub use description::{
    Description, KernelName, Peaks, StepDescription, SubgraphDescription, ValuePlace, MOST_DESCRIBED,
};
pub use error::BackendError;
pub use info::{CacheFileCounts, Capabilities, DeviceType, Info, Performance};
pub(crate) use submission::GRACE;
pub use submission::{Completer, Outcome, OutputShape, Pending, Submission};
pub(crate) use synchronous::{pend, submission_threads};
pub use synchronous::{Synchronous, SynchronousBackend};

use crate::memory::{Mapping, Weights};
use crate::model::Model;
use crate::tensor::{Dims, TensorInfo};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Compiles models for one device.
pub trait Backend: Send + Sync {
    /// What the backend is.
    fn info(&self) -> Info;

    /// For each operation of the main subgraph: whether this backend takes it, or why not. What it takes here,
    /// [`compile`](Self::compile) must compile. An IF or WHILE is taken only if all operations in its subgraphs are. Nobody
    /// hears the answer once `control` says that the work is to stop.
    fn support(&self, model: &Model, control: &Control) -> Vec<Result<(), String>>;

    /// How many executions and compilations wait in the backend, and how many it works at, where it has them wait itself:
    /// for people who look at the driver. It must not wait for anything.
    fn load_now(&self) -> Option<Load> {
        None
    }

    /// Compiles a model of which every operation is supported. Called on a thread of its own.
    fn compile(
        &self,
        model: &Model,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError>;

    /// Loads what [`Executable::artifact`] gave to a backend of the same [`version`](Info::version), compiled with these
    /// options. Called on a thread of its own.
    fn load(
        &self,
        _saved: Saved,
        _options: &CompileOptions,
        _control: &Control,
    ) -> Result<Arc<dyn Executable>, BackendError> {
        Err(BackendError::Unsupported("this backend does not load compiled models".into()))
    }

    /// Takes client memory into the device, so that executions use it where it lies. Without it, the memory is mapped
    /// into this process, guarded against whatever its client does to it.
    fn import(&self, _memory: &ClientMemory) -> Result<Option<Arc<dyn DeviceMemory>>, BackendError> {
        Ok(None)
    }

    /// Memory of the device for a device buffer (a memory domain) that holds a value of this operand, all of whose
    /// dimensions are known. Without it, the buffer lies in this process's memory.
    fn allocate(&self, _operand: &TensorInfo) -> Result<Option<Arc<dyn DeviceMemory>>, BackendError> {
        Ok(None)
    }

    /// What the device does at the most, for people to compare a profile with. It may be measured anew, for a moment;
    /// `None` if it is not known.
    fn peaks(&self, _control: &Control) -> Option<Peaks> {
        None
    }

    /// Whether it only computes, with memory and threads that the process has: a daemon then confines itself to the system
    /// calls that this takes. What speaks to a device, starts processes or loads code later needs more.
    fn only_computes() -> bool
    where
        Self: Sized,
    {
        false
    }
}

/// A compiled model. It may be bound and executed by several threads at once, and be that of several prepared models of one
/// client.
pub trait Executable: Send + Sync {
    /// The model's inputs and outputs, with dimensions as the model declares them.
    fn interface(&self) -> &Interface;

    /// Binds memory: whatever must be done once for all executions over the same arguments. A single execution is
    /// bound, too.
    fn bind(self: Arc<Self>, arguments: Arguments) -> Result<Arc<dyn Binding>, BackendError>;

    /// The compiled model as bytes, for [`Backend::load`]; `None` if it cannot be kept, or not yet: what is compiled just in
    /// time is kept after its first execution. Called on a thread of its own. After an error the model is as it was.
    fn artifact(&self, _control: &Control) -> Result<Option<Artifact>, BackendError> {
        Ok(None)
    }

    /// Whether it can be executed no more, whatever it is given: a client that prepares the model once more gets another one then,
    /// and otherwise this one, while it has it. It must not wait for anything.
    fn is_lost(&self) -> bool {
        false
    }

    /// How many steps and values [`describe`](Self::describe) would tell of, found without making that; 0 if it is not known.
    fn described(&self) -> usize {
        0
    }

    /// What runs the model's operations, and where its values lie, for people; `None` if that is not told, or not known
    /// yet. It comes by the yield points of `control`, as there may be very many operations.
    fn describe(&self, _control: &Control) -> Result<Option<Description>, BackendError> {
        Ok(None)
    }
}

/// A compiled model with the memory of its arguments. One execution at a time is submitted to it.
pub trait Binding: Send + Sync {
    /// Hands one execution to the device. It begins once all of `fences` are signalled; there are none unless the backend
    /// [waits for fences](Info::waits_for_fences). It must not wait, neither for the device nor for anybody else: a thread
    /// that others need calls it.
    ///
    /// The device stops soon after [`control`](Control) is cancelled or its deadline has passed. A backend that knows what the
    /// device does when tells it to the [`Recorder`] in there.
    fn submit(self: Arc<Self>, fences: Vec<OwnedFd>, control: &Control) -> Result<Submission, BackendError>;

    /// Executes on behalf of a thread that has nothing else to do. A backend whose device works by itself leaves it as
    /// it is; one that computes on the processor does so on this thread.
    fn run(self: Arc<Self>, control: &Control) -> Result<Outcome, BackendError> {
        match self.submit(Vec::new(), control)? {
            Submission::Done(outcome) => Ok(outcome),
            Submission::Pending(pending) => pending.wait(control),
        }
    }
}

/// The arguments of an execution: a checked request, and the memories it names.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// Where each argument lies; those without a value are `None`. An output's dimensions are 0, or missing altogether,
    /// where the client leaves them to the driver.
    pub request: Request,
    /// By the number that arguments name; `None` for those that no argument lies in.
    pub pools: Vec<Option<Memory>>,
    /// Whether more executions over the same arguments are likely to follow.
    pub reused: bool,
}

impl Arguments {
    /// Arguments each of which fills a memory of its own: for those who execute without a client.
    pub fn in_own_memories(
        inputs: Vec<Option<(Memory, Dims)>>,
        outputs: Vec<Option<(Memory, Dims)>>,
    ) -> Self {
        let mut pools = Vec::new();
        let mut place = |list: Vec<Option<(Memory, Dims)>>| {
            let mut argument = |(memory, dims): (Memory, Dims)| {
                let (pool, length) = (pools.len(), memory.len());
                pools.push(Some(memory));
                Argument { pool, offset: 0, length, dims }
            };
            list.into_iter().map(|given| given.map(&mut argument)).collect::<Vec<_>>()
        };
        let (inputs, outputs) = (place(inputs), place(outputs));
        Arguments { request: Request { inputs, outputs }, pools, reused: false }
    }

    /// The memory that `argument` lies in.
    pub fn memory(&self, argument: &Argument) -> Result<&Memory, BackendError> {
        let memory = self.pools.get(argument.pool).and_then(Option::as_ref);
        memory.ok_or_else(|| BackendError::Failed(format!("pool {} has no memory", argument.pool)))
    }
}

/// A compiled model as bytes, of two kinds: as many of each as the backend wants [files](Info::cache_files). Data are
/// written from where they lie, so that they may be large.
#[derive(Debug)]
pub struct Artifact {
    /// All that steers execution.
    pub models: Vec<Vec<u8>>,
    /// Mere data: for each file its parts and where they start, in order.
    pub data: Vec<Vec<(u64, Weights)>>,
}

/// An [`Artifact`], read again.
#[derive(Debug)]
pub struct Saved {
    /// Private, and what was given.
    pub models: Vec<Vec<u8>>,
    /// As long as they were saved. The bytes may change at any moment, or vanish: that may change values, and nothing else.
    pub data: Vec<Arc<Mapping>>,
}

/// What a compiled model takes and gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    pub inputs: Vec<TensorInfo>,
    pub outputs: Vec<TensorInfo>,
    /// Whether it has a WHILE, which may run out of its time.
    pub may_loop: bool,
}

/// What a client asks of a compilation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileOptions {
    pub preference: Preference,
    pub priority: Priority,
    /// Whether the client would rather have it compiled by its first run, all of it. A backend need not.
    pub just_in_time: bool,
    /// Whether inputs of products may be rounded to bytes, row by row, where weights are dequantised bytes: see
    /// [`hints::DYNAMIC_RANGE`](crate::model::hints::DYNAMIC_RANGE). A backend need not.
    pub dynamic_range: bool,
}

/// What a client prefers of its executions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    LowPower,
    #[default]
    FastSingleAnswer,
    SustainedSpeed,
}
