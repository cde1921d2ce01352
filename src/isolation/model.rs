//! A model on its way to the other process: its structure as bytes, its constants as parts of one file.
//!
//! Constants that operands share go over once, as the part of their memory that is used.

use super::codec::{from_bytes, to_bytes, wire_enum, wire_struct, Blob, Reader, Wire};
use super::constants::{constant_file, not_copied, Part};
use crate::backend::{BackendError, ExtensionOperand};
use crate::memory::{AlignedBuf, ClientSlice, Mapping, MemoryError};
use crate::model::{Constant, Lifetime, Model, Operand, Operation, OperationKind, Subgraph};
use crate::ops::{Interrupt, OperationType};
use crate::scheduler::{Copier, CopyError};
use crate::tensor::TensorInfo;
use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

/// Constants of so many bytes in all go with the structure.
const INLINE: usize = 8 << 10;
/// Each constant begins at a multiple of this, or where it does within its client's memory.
const ALIGNMENT: usize = 64;

/// A model as it goes over.
pub struct Packed {
    pub bytes: Vec<u8>,
    /// A file of its constants, unless they are few.
    pub constants: Option<File>,
}

struct Whole {
    graphs: Vec<Graph>,
    relaxed: bool,
    inline: Blob,
}

struct Graph {
    operands: Vec<Value>,
    operations: Vec<Step>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

struct Value {
    info: TensorInfo,
    lifetime: Life,
    extension: Option<ExtensionOperand>,
}

enum Life {
    Temporary,
    Input,
    Output,
    NoValue,
    Subgraph(usize),
    Constant { start: usize, len: usize, private: bool },
}

struct Step {
    kind: Kind,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

enum Kind {
    Known { code: i32, signature_index: usize },
    Extension { extension: String, code: u16 },
    Unsupported(String),
}

wire_struct!(Whole { graphs, relaxed, inline });
wire_struct!(Graph { operands, operations, inputs, outputs });
wire_struct!(Value { info, lifetime, extension });
wire_struct!(Step { kind, inputs, outputs });
wire_enum!(Life {
    0u8 Temporary {}, 1u8 Input {}, 2u8 Output {}, 3u8 NoValue {}, 4u8 Subgraph { 0: index },
    5u8 Constant { start: start, len: len, private: private }
});
wire_enum!(Kind {
    0u8 Known { code: code, signature_index: signature_index },
    1u8 Extension { extension: extension, code: code },
    2u8 Unsupported { 0: why }
});

/// Where constants go.
#[derive(Default)]
struct Places {
    parts: Vec<(usize, Part)>,
    /// By the address of a client's memory: which of its bytes are used, and where they go.
    shared: HashMap<usize, Shared>,
    /// The same of private bytes.
    private: HashMap<usize, usize>,
    len: usize,
}

struct Shared {
    any: ClientSlice,
    first: usize,
    end: usize,
    start: usize,
}

fn graphs(model: &Model) -> impl Iterator<Item = &Subgraph> {
    std::iter::once(&model.main).chain(&model.referenced)
}

fn constants(model: &Model) -> impl Iterator<Item = &Constant> {
    graphs(model).flat_map(|graph| &graph.operands).filter_map(|operand| match &operand.lifetime {
        Lifetime::Constant(constant) => Some(constant),
        _ => None,
    })
}

impl Places {
    fn of(model: &Model) -> Result<Self, MemoryError> {
        let mut places = Places::default();
        for constant in constants(model) {
            match constant {
                Constant::Private(bytes) => {
                    let key = Arc::as_ptr(bytes) as usize;
                    if !places.private.contains_key(&key) {
                        let start = places.room(bytes.len())?;
                        places.private.insert(key, start);
                        places.parts.push((start, Part::Private(bytes.clone())));
                    }
                }
                Constant::Client(slice) => {
                    let (first, end) = (slice.offset(), slice.offset() + slice.len());
                    let fresh = || Shared { any: slice.clone(), first, end, start: 0 };
                    let shared = places.shared.entry(address(slice)).or_insert_with(fresh);
                    (shared.first, shared.end) = (shared.first.min(first), shared.end.max(end));
                }
            }
        }
        let mut shared = std::mem::take(&mut places.shared);
        for shared in shared.values_mut() {
            // Keeps the alignment that it has in its client's memory.
            let skip = shared.first % ALIGNMENT;
            shared.start = places.room(skip + shared.end - shared.first)? + skip;
            let used = shared.any.sibling(shared.first, shared.end - shared.first)?;
            places.parts.push((shared.start, Part::Client(used)));
        }
        places.shared = shared;
        Ok(places)
    }

    fn room(&mut self, len: usize) -> Result<usize, MemoryError> {
        let end = self.len.checked_add(len).and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
        Ok(std::mem::replace(&mut self.len, end.ok_or(MemoryError::OutOfMemory(len))?))
    }

    fn find(&self, constant: &Constant) -> Option<usize> {
        match constant {
            Constant::Private(bytes) => self.private.get(&(Arc::as_ptr(bytes) as usize)).copied(),
            Constant::Client(slice) => {
                let shared = self.shared.get(&address(slice))?;
                Some(shared.start + slice.offset() - shared.first)
            }
        }
    }
}

fn address(slice: &ClientSlice) -> usize {
    std::ptr::from_ref(slice.mapping()) as usize
}

/// Packs a model, by the yield points of `interrupt`. `count` is told how many bytes that takes, constants and structure, and
/// may refuse.
pub fn pack<P>(
    model: &Model,
    count: impl FnOnce(usize) -> Result<P, BackendError>,
    interrupt: &dyn Interrupt,
) -> Result<(Packed, P), BackendError> {
    let memory = BackendError::memory("a constant");
    let places = Places::of(model).map_err(memory)?;
    let in_file = places.len > INLINE;
    let mut inline = Blob(Vec::new());
    if !in_file {
        inline.0.resize(places.len, 0);
        for (start, part) in &places.parts {
            match part {
                Part::Private(bytes) => inline.0[*start..start + bytes.len()].copy_from_slice(bytes),
                Part::Client(slice) => {
                    slice.read(&mut inline.0[*start..start + slice.len()]).map_err(memory)?;
                }
            }
        }
    }
    let graphs = graphs(model).map(|graph| pack_graph(graph, &places)).collect();
    let bytes = to_bytes(&Whole { graphs, relaxed: model.relaxed, inline });
    let permit = count(bytes.len().saturating_add(if in_file { places.len } else { 0 }))?;
    let copy = || constant_file(&mut Copier::new(interrupt), places.len, &places.parts);
    let constants = in_file.then(copy).transpose().map_err(not_copied("a constant"))?;
    Ok((Packed { bytes, constants }, permit))
}

fn pack_graph(graph: &Subgraph, places: &Places) -> Graph {
    let value = |operand: &Operand| {
        let lifetime = match &operand.lifetime {
            Lifetime::Temporary => Life::Temporary,
            Lifetime::Input => Life::Input,
            Lifetime::Output => Life::Output,
            Lifetime::NoValue => Life::NoValue,
            Lifetime::Subgraph(index) => Life::Subgraph(*index),
            Lifetime::Constant(constant) => Life::Constant {
                start: places.find(constant).unwrap_or(usize::MAX), // all have a place
                len: constant.len(),
                private: matches!(constant, Constant::Private(_)),
            },
        };
        let extension = operand.extension.as_deref().cloned();
        Value { info: operand.info.clone(), lifetime, extension }
    };
    let step = |operation: &Operation| {
        let kind = match &operation.kind {
            OperationKind::Known { operation, signature_index } => {
                Kind::Known { code: operation.ty.code(), signature_index: *signature_index }
            }
            OperationKind::Extension { extension, code } => {
                Kind::Extension { extension: extension.clone(), code: *code }
            }
            OperationKind::Unsupported(why) => Kind::Unsupported(why.clone()),
        };
        Step { kind, inputs: operation.inputs.clone(), outputs: operation.outputs.clone() }
    };
    Graph {
        operands: graph.operands.iter().map(value).collect(),
        operations: graph.operations.iter().map(step).collect(),
        inputs: graph.inputs.clone(),
        outputs: graph.outputs.clone(),
    }
}

/// The model that was packed; `constants` is the file that came with it. The bytes are the service's, and are believed.
/// Constants are copied by the yield points of `interrupt`.
pub fn unpack(
    bytes: &[u8],
    constants: Option<Arc<Mapping>>,
    interrupt: &dyn Interrupt,
) -> Result<Model, CopyError> {
    let nonsense = || MemoryError::Invalid("it makes no sense".into());
    let whole: Whole = from_bytes(bytes).ok_or_else(nonsense)?;
    let mut copier = Copier::new(interrupt);
    let mut constant = |start: usize, len: usize, private: bool| -> Result<Constant, CopyError> {
        let slice = match &constants {
            Some(mapping) => ClientSlice::new(mapping.clone(), start, len)?,
            None => {
                let bytes = start.checked_add(len).and_then(|end| whole.inline.0.get(start..end));
                let copy = AlignedBuf::copy_of(bytes.ok_or_else(nonsense)?);
                return Ok(Constant::Private(copy.ok_or(MemoryError::OutOfMemory(len))?.into()));
            }
        };
        Ok(match private {
            true => Constant::Private(copier.to_private(&slice)?.into()),
            false => Constant::Client(slice),
        })
    };
    let mut value = |value: Value| -> Result<Operand, CopyError> {
        let lifetime = match value.lifetime {
            Life::Temporary => Lifetime::Temporary,
            Life::Input => Lifetime::Input,
            Life::Output => Lifetime::Output,
            Life::NoValue => Lifetime::NoValue,
            Life::Subgraph(index) => Lifetime::Subgraph(index),
            Life::Constant { start, len, private } => Lifetime::Constant(constant(start, len, private)?),
        };
        Ok(Operand { info: value.info, lifetime, extension: value.extension.map(Arc::new) })
    };
    let step = |Step { kind, inputs, outputs }| -> Option<Operation> {
        let kind = match kind {
            Kind::Known { code, signature_index } => OperationKind::Known {
                operation: OperationType::from_code(code)?.operation()?,
                signature_index,
            },
            Kind::Extension { extension, code } => OperationKind::Extension { extension, code },
            Kind::Unsupported(why) => OperationKind::Unsupported(why),
        };
        Some(Operation { kind, inputs, outputs })
    };
    let graph = |graph: Graph| -> Result<Subgraph, CopyError> {
        let operations = graph.operations.into_iter().map(step).collect::<Option<_>>();
        Ok(Subgraph {
            operands: graph.operands.into_iter().map(&mut value).collect::<Result<_, _>>()?,
            operations: operations.ok_or_else(nonsense)?,
            inputs: graph.inputs,
            outputs: graph.outputs,
        })
    };
    let mut graphs = whole.graphs.into_iter().map(graph);
    let main = graphs.next().ok_or_else(nonsense)??;
    Ok(Model { main, referenced: graphs.collect::<Result<_, _>>()?, relaxed: whole.relaxed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Control;
    use crate::memory::Access;
    use crate::ops::NeverInterrupted;
    use crate::scheduler::{Stop, STRETCH};
    use crate::tensor::OperandType;
    use std::os::fd::AsFd;

    fn model_of(constants: Vec<Constant>) -> Model {
        let operand = |constant: Constant| Operand {
            info: TensorInfo::new(OperandType::TENSOR_QUANT8_ASYMM, &[constant.len() as u32]),
            lifetime: Lifetime::Constant(constant),
            extension: None,
        };
        let operands = constants.into_iter().map(operand).collect();
        let main = Subgraph { operands, operations: vec![], inputs: vec![], outputs: vec![] };
        Model { main, referenced: vec![], relaxed: false }
    }

    #[test]
    fn constants_arrive_and_nobody_copies_large_ones_who_is_to_stop() {
        let (stopped, len) = (Control { cancelled: Stop::already(), ..Control::default() }, 2 * STRETCH);
        let shared = ClientSlice::whole(Mapping::anonymous(len).unwrap().into());
        shared.write(&vec![7; len]).unwrap();
        let private = AlignedBuf::copy_of(&vec![9; len]).unwrap();
        let model = model_of(vec![Constant::Client(shared), Constant::Private(private.into())]);
        let (packed, _) = pack(&model, Ok, &NeverInterrupted).unwrap();
        assert!(matches!(pack(&model, Ok, &stopped), Err(BackendError::Cancelled)));
        let file = packed.constants.unwrap();
        let len_of_file = file.metadata().unwrap().len() as usize;
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len_of_file, Access::Read).unwrap());
        let unpacked = unpack(&packed.bytes, Some(mapping.clone()), &NeverInterrupted).unwrap();
        for (constant, value) in constants(&unpacked).zip([7, 9]) {
            assert!(constant.len() == len && constant.bytes().unwrap().iter().all(|&byte| byte == value));
        }
        let stops = unpack(&packed.bytes, Some(mapping), &stopped).err().unwrap();
        assert!(matches!(not_copied("a model")(stops), BackendError::Cancelled));
    }

    #[test]
    fn constants_and_structure_are_counted() {
        const OPERANDS: usize = 10_000;
        for constant in [INLINE / 2, 2 * INLINE] {
            let bytes = AlignedBuf::zeroed(constant).unwrap();
            let operand = |lifetime| Operand {
                info: TensorInfo::new(OperandType::TENSOR_QUANT8_ASYMM, &[constant as u32]),
                lifetime,
                extension: None,
            };
            let mut operands = vec![operand(Lifetime::Temporary); OPERANDS];
            operands.push(operand(Lifetime::Constant(Constant::Private(bytes.into()))));
            let main = Subgraph { operands, operations: vec![], inputs: vec![], outputs: vec![] };
            let model = Model { main, referenced: vec![], relaxed: false };
            let (packed, counted) = pack(&model, Ok, &NeverInterrupted).unwrap();
            let structure = packed.bytes.len();
            assert!(structure > OPERANDS, "{structure} bytes");
            let file = packed.constants.map_or(0, |file| file.metadata().unwrap().len() as usize);
            assert_eq!(file > 0, constant > INLINE);
            assert_eq!(counted, structure + file);
            let refuse = |_| Err::<(), _>(BackendError::Cancelled);
            assert!(pack(&model, refuse, &NeverInterrupted).is_err());
        }
    }
}
