//! What a compiled model tells people of itself: what runs its operations, and where its values lie. Nothing is steered
//! by it.

use std::ops::Range;

/// So many steps and values are told, as an answer has to fit a transaction.
pub const MOST_DESCRIBED: usize = 1 << 16;
/// About the bytes that the allocator takes for a step's operations and its kernel's name, in two forms.
const OF_LISTS: usize = 128;

/// A compiled model, subgraph by subgraph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// The main one first, then those that IF and WHILE refer to, in the model's order.
    pub subgraphs: Vec<SubgraphDescription>,
}

impl Description {
    /// How many steps and values it tells of.
    pub fn count(&self) -> usize {
        self.subgraphs.iter().map(|subgraph| subgraph.steps.len() + subgraph.places.len()).sum()
    }

    /// About the bytes of a description of so many steps and values, together with what is made of it to be sent.
    pub fn footprint(len: usize) -> usize {
        len.saturating_mul(2 * size_of::<StepDescription>() + OF_LISTS)
    }
}

/// A compiled subgraph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SubgraphDescription {
    /// What is left to run, in order. Operations of the model that are in none of them were computed when it was
    /// compiled, or nobody needs what they give.
    pub steps: Vec<StepDescription>,
    /// By the model's operand indices: where values lie during a run.
    pub places: Vec<ValuePlace>,
    /// Bytes of the memory that a run's values share.
    pub arena: u64,
}

/// One or more operations that run as one.
#[derive(Clone, Debug, PartialEq)]
pub struct StepDescription {
    /// Their indices in the model's subgraph: a profile knows the step by the first.
    pub operations: Vec<usize>,
    /// What runs it, on this machine.
    pub kernel: KernelName,
    /// Multiplications with additions of one run; `None` if it makes none, or if they are not known ahead.
    pub multiply_adds: Option<u64>,
    /// Bytes of all operands, each counted once; `None` if they are not known ahead.
    pub bytes: Option<u64>,
}

/// What runs a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelName {
    /// A fast kernel.
    Fast(String),
    /// The operation's plain evaluation, which is slow.
    Plain,
    /// Nobody: its output is its input, where it lies.
    Nothing,
    /// Its subgraphs, whose operations have kernels of their own.
    Subgraphs,
}

/// Where a value lies during a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuePlace {
    /// With the model: so many bytes.
    Constant(u64),
    /// The same, in a form of its kernel's own.
    Packed(u64),
    /// In this part of the arena.
    Arena(Range<u64>),
    /// Where its client has it; in this part of the arena, should that memory not allow it.
    Client(Range<u64>),
    /// In memory of its own, as only a run knows its size.
    Own,
    /// Nowhere: no run needs it.
    Nowhere,
}

/// What the machine does at the most, measured by the backend's own code: what a profile is to be compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Threads that it was measured on.
    pub threads: usize,
    /// Multiply-adds of floats, in a second, on operands in near caches.
    pub float_multiply_adds: f64,
    /// The same of bytes.
    pub byte_multiply_adds: f64,
    /// Bytes copied within a near cache, in a second: read and written.
    pub cached_bytes: f64,
    /// The same of memory that no near cache holds.
    pub memory_bytes: f64,
}

impl std::fmt::Display for KernelName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            KernelName::Fast(name) => name,
            KernelName::Plain => "plain",
            KernelName::Nothing => "nothing to do",
            KernelName::Subgraphs => "subgraphs",
        })
    }
}
