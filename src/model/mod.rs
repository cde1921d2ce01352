//! Models and requests, decoded and checked: once you hold one, it is valid.
//!
//! Whatever steers execution is copied out of client memory before it is looked at. Nothing here runs anything.

mod context;
mod control_flow;
mod copies;
mod decode;
mod error;
mod extensions;
mod graph;
pub mod hints;
mod operand;
mod references;
mod request;
#[cfg(test)]
mod tests;

pub use error::ModelError;
pub use extensions::{check_extension_names, Extension, ExtensionOperand, ExtensionOperandType};
pub use operand::check_info;
pub use references::MAX_DEPTH as MAX_NESTING;
pub use request::{Argument, Request, RequestError, RequestPool};

use crate::memory::{Access, AlignedBuf, ClientSlice, Counted, MemoryError};
use crate::ops::pace::Pace;
use crate::ops::{self, Interrupt, OpError};
use crate::scheduler::Copier;
use crate::tensor::{TensorInfo, ALLOCATION};
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

/// Constants up to this size are copied at once, whatever their type: it is cheaper than to decide. So a compiled model has them
/// among what steers.
pub const SMALL: usize = 1024;

/// A valid model.
#[derive(Clone, Debug)]
pub struct Model {
    pub main: Subgraph,
    /// Subgraphs of IF and WHILE; the references among them have no cycle.
    pub referenced: Vec<Subgraph>,
    /// FLOAT32 may be computed with the range and precision of FLOAT16.
    pub relaxed: bool,
}

impl Model {
    /// About the memory that it takes besides the bytes of constants: how many operands and operations there are is its
    /// client's choice.
    fn footprint(&self, pace: &mut Pace) -> Result<usize, OpError> {
        let mut graphs = std::iter::once(&self.main).chain(&self.referenced);
        graphs.try_fold(0usize, |bytes, graph| Ok(bytes.saturating_add(graph.footprint(pace)?)))
    }

    /// A copy that needs nothing of its client's any more. It comes by yield points of `interrupt`.
    pub fn to_private(&self, interrupt: &dyn Interrupt) -> Result<Model, ModelError> {
        let mut pace = Pace::of(interrupt);
        let mut referenced = Vec::with_capacity(self.referenced.len());
        let main = self.main.to_private(&mut pace)?;
        for graph in &self.referenced {
            referenced.push(graph.to_private(&mut pace)?);
        }
        Ok(Model { main, referenced, relaxed: self.relaxed })
    }
}

/// Elementary steps that it takes at least to copy an operand or an operation, about.
const COPY: usize = 128;

/// And to look at one, which may have left the caches.
const LOOK: usize = 16;

/// A model on its client's account, besides the bytes of its constants, which are counted where they are.
#[derive(Debug)]
pub struct CountedModel {
    model: Model,
    /// Memories that constants lie in and a device may be busy with, each by one that lies there.
    of_devices: Box<[ClientSlice]>,
    _counted: Counted,
}

impl CountedModel {
    /// An error where the client has no more memory left, or `interrupt` says that the work is to stop.
    pub fn new(model: Model, interrupt: &dyn Interrupt) -> Result<Self, ModelError> {
        let mut pace = Pace::of(interrupt);
        let bytes = model.footprint(&mut pace)?;
        let out_of_memory =
            || ModelError::Memory { what: "the model".into(), source: MemoryError::OutOfMemory(bytes) };
        let counted = Counted::take(bytes).ok_or_else(out_of_memory)?;
        // There are no more of them than mappings, which are counted.
        let mut of_devices = BTreeMap::new();
        for graph in std::iter::once(&model.main).chain(&model.referenced) {
            pace.each(&graph.operands, LOOK, |operand| match &operand.lifetime {
                Lifetime::Constant(Constant::Client(slice)) if slice.may_be_busy() => {
                    of_devices.entry(std::ptr::from_ref(slice.mapping())).or_insert_with(|| slice.clone());
                }
                _ => {}
            })?;
        }
        let of_devices = of_devices.into_values().collect();
        Ok(CountedModel { model, of_devices, _counted: counted })
    }

    /// Whether a device is busy with memory that constants lie in and that was not copied yet.
    pub fn is_busy(&mut self) -> bool {
        let busy = self.of_devices.iter().position(|memory| !memory.mapping().is_idle(Access::Read));
        // There may be many. The next time it is looked at first.
        busy.is_some_and(|busy| {
            self.of_devices.swap(0, busy);
            true
        })
    }

    /// Copies the constants that lie in memory which a device may be busy with, and says whether there were any. That waits for the
    /// device without a turn of `interrupt`. Those who read constants later have turns, and are several at once.
    pub fn copy_busy(&mut self, interrupt: &dyn Interrupt) -> Result<bool, ModelError> {
        let Model { main, referenced, .. } = &mut self.model;
        // Many operands may name the same bytes.
        let (mut pace, mut copier, mut copies) =
            (Pace::of(interrupt), Copier::new(interrupt), BTreeMap::new());
        for operand in std::iter::once(main).chain(referenced).flat_map(|graph| &mut graph.operands) {
            pace.spend(LOOK)?;
            let Lifetime::Constant(constant) = &mut operand.lifetime else { continue };
            let Constant::Client(slice) = &*constant else { continue };
            if !slice.may_be_busy() {
                continue;
            }
            let copy = match copies.entry((std::ptr::from_ref(slice.mapping()), slice.offset(), slice.len()))
            {
                Entry::Occupied(copy) => Arc::clone(copy.get()),
                Entry::Vacant(place) => place.insert(copies::private(slice, &mut copier)?).clone(),
            };
            *constant = Constant::Private(copy);
        }
        self.of_devices = Box::default();
        Ok(!copies.is_empty())
    }
}

impl std::ops::Deref for CountedModel {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.model
    }
}

/// A valid subgraph: operations stand in an order in which they can run.
#[derive(Clone, Debug)]
pub struct Subgraph {
    pub operands: Vec<Operand>,
    pub operations: Vec<Operation>,
    /// Indices of operands.
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
}

impl Subgraph {
    fn to_private(&self, pace: &mut Pace) -> Result<Subgraph, ModelError> {
        let (mut operands, mut copier) =
            (Vec::with_capacity(self.operands.len()), Copier::new(pace.interrupt()));
        for operand in &self.operands {
            pace.spend(COPY.saturating_add(operand.info.heap() / size_of::<u32>()))?;
            let mut copy = operand.clone();
            if let Lifetime::Constant(Constant::Client(slice)) = &operand.lifetime {
                let private = copies::private(slice, &mut copier)?;
                copy.lifetime = Lifetime::Constant(Constant::Private(private));
            }
            operands.push(copy);
        }
        let mut operations = Vec::with_capacity(self.operations.len());
        for operation in &self.operations {
            pace.spend(COPY.saturating_add(operation.inputs.len()).saturating_add(operation.outputs.len()))?;
            operations.push(operation.clone());
        }
        Ok(Subgraph { operands, operations, inputs: self.inputs.clone(), outputs: self.outputs.clone() })
    }

    fn footprint(&self, pace: &mut Pace) -> Result<usize, OpError> {
        let operand = |operand: &Operand| {
            let extension = operand.extension.as_ref().map_or(0, |extension| {
                extension.parameters.len().saturating_add(extension.extension.len() + 3 * ALLOCATION)
            });
            let constant = match &operand.lifetime {
                Lifetime::Constant(_) => size_of::<AlignedBuf>() + 2 * ALLOCATION,
                _ => 0,
            };
            let rest = size_of::<Operand>() + constant;
            operand.info.heap().saturating_add(extension).saturating_add(rest)
        };
        let operation = |operation: &Operation| {
            let text = match &operation.kind {
                OperationKind::Known { .. } => 0,
                OperationKind::Extension { extension: text, .. } | OperationKind::Unsupported(text) => {
                    text.len()
                }
            };
            let indices = operation.inputs.len().saturating_add(operation.outputs.len());
            let rest = size_of::<Operation>() + 3 * ALLOCATION;
            indices.saturating_mul(size_of::<usize>()).saturating_add(text).saturating_add(rest)
        };
        let mut bytes = size_of::<Self>();
        let mut count = |each: usize| bytes = bytes.saturating_add(each);
        pace.each(&self.operands, LOOK, |of| count(operand(of)))?;
        pace.each(&self.operations, LOOK, |of| count(operation(of)))?;
        Ok(bytes)
    }
}

/// An operand of a subgraph.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Type, dimensions and quantisation. An operand of an extension's type is described by the plain type whose elements
    /// are as large.
    pub info: TensorInfo,
    pub lifetime: Lifetime,
    /// Present if it is of an extension's type; operations of the table take none of these. The extension of a type that the
    /// backend does not know has no name here.
    pub extension: Option<Arc<ExtensionOperand>>,
}

/// Where an operand's value comes from.
#[derive(Clone, Debug)]
pub enum Lifetime {
    Temporary,
    Input,
    Output,
    Constant(Constant),
    /// An optional operand that was left out.
    NoValue,
    /// Index into [`Model::referenced`].
    Subgraph(usize),
}

/// A constant operand's bytes.
#[derive(Clone, Debug)]
pub enum Constant {
    /// Copied already, as is everything that steers execution.
    Private(Arc<AlignedBuf>),
    /// Still the client's: tensor data that decides nothing but values.
    Client(ClientSlice),
}

impl Constant {
    /// The bytes, copied if they are the client's still.
    pub fn bytes(&self) -> Result<Arc<AlignedBuf>, MemoryError> {
        match self {
            Constant::Private(bytes) => Ok(bytes.clone()),
            Constant::Client(slice) => slice.to_private().map(Arc::new),
        }
    }

    /// Copies the bytes into `to`, which must be as long.
    pub fn read(&self, to: &mut [u8]) -> Result<(), MemoryError> {
        match self {
            Constant::Private(bytes) => to.copy_from_slice(bytes),
            Constant::Client(slice) => slice.read(to)?,
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        match self {
            Constant::Private(bytes) => bytes.len(),
            Constant::Client(slice) => slice.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A valid call of an operation.
#[derive(Clone, Debug)]
pub struct Operation {
    pub kind: OperationKind,
    /// Indices of operands.
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
}

/// Which operation it is, and whether the driver knows it.
#[derive(Clone)]
pub enum OperationKind {
    /// An operation of the table; `signature_index` is the signature that the call matches.
    Known { operation: &'static ops::Operation, signature_index: usize },
    /// An operation of an extension that the backend knows. Nothing about the call has been checked.
    Extension { extension: String, code: u16 },
    /// Valid, but nothing this driver could run. The text says what it is and why.
    Unsupported(String),
}

impl std::fmt::Debug for OperationKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OperationKind::Known { operation, signature_index } => {
                write!(f, "{}/{signature_index}", operation.ty)
            }
            OperationKind::Extension { extension, code } => write!(f, "{extension}/{code}"),
            OperationKind::Unsupported(why) => f.write_str(why),
        }
    }
}
