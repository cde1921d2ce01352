//! Compilations by way of the driver's own store: a model that its client has compiled before is loaded.

use super::{CachingError, Compiled, StorePlace};
use crate::backend::{Backend, BackendError, CompileOptions, Control, Executable};
use crate::cache::{Key, Store};
use crate::memory::{ClientSlice, MemoryError};
use crate::model::{Constant, Lifetime, Model, OperationKind, Subgraph};
use crate::tensor::TensorInfo;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Models of smaller constants, in bytes, are compiled as fast as they are found: at once, and not stored.
pub const LEAST_CONSTANTS: usize = 256 << 10;

const CHUNK: usize = 64 << 10;

/// Compiles the model of the client with this uid, or loads what the store has of it.
pub(super) fn compile(
    store: Option<&Arc<Store>>,
    uid: u32,
    backend: &dyn Backend,
    (model, options): (&Model, &CompileOptions),
    control: &Control,
) -> Result<Compiled, BackendError> {
    let small = constants(model) < LEAST_CONSTANTS;
    let place = match store {
        Some(store) if !small => content(model, options)
            .map(|token| Some(StorePlace { store: store.clone(), key: Key { uid, token } }))
            .map_err(|source| BackendError::Memory { what: "a constant".into(), source })?,
        _ => None,
    };
    if let Some(loaded) = place.as_ref().and_then(|place| place.store.load(&place.key)) {
        match backend.load(&loaded.model, loaded.data) {
            Ok(executable) => return Ok(Compiled { executable, store_as: None }),
            Err(why) => log::warn!("a compiled model in the store is of no use: {why}"),
        }
    }
    let executable = backend.compile(model, options, control)?;
    if small && !options.just_in_time {
        executable.finish(control)?;
    }
    Ok(Compiled { executable, store_as: place })
}

pub(super) fn save(store: &Store, key: &Key, executable: &dyn Executable) -> Result<(), CachingError> {
    let artifact = executable.artifact().ok_or(CachingError::NotCacheable)?;
    Ok(store.save(key, &artifact.model, &artifact.data)?)
}

fn graphs(model: &Model) -> impl Iterator<Item = &Subgraph> {
    std::iter::once(&model.main).chain(&model.referenced)
}

/// Bytes of constants.
fn constants(model: &Model) -> usize {
    let sizes = graphs(model).flat_map(|graph| &graph.operands).map(|operand| match &operand.lifetime {
        Lifetime::Constant(constant) => constant.len(),
        _ => 0,
    });
    sizes.fold(0, usize::saturating_add)
}

/// A hash of all that decides what a compilation gives. A client that changes its constants meanwhile gets, later, what
/// it compiled then: it deceives nobody else, as nobody else sees its entries.
fn content(model: &Model, options: &CompileOptions) -> Result<[u8; 32], MemoryError> {
    let mut hash = Hash(Sha256::new());
    hash.number(options.preference as u64);
    hash.number(model.relaxed.into());
    hash.number(1 + model.referenced.len() as u64);
    for graph in graphs(model) {
        hash.number(graph.operands.len() as u64);
        for operand in &graph.operands {
            hash.info(&operand.info);
            hash.lifetime(&operand.lifetime)?;
        }
        hash.number(graph.operations.len() as u64);
        for operation in &graph.operations {
            match &operation.kind {
                OperationKind::Known { operation, form } => {
                    hash.indices(&[operation.ty.code() as usize, *form]);
                }
                // It is not going to be compiled.
                OperationKind::Unsupported(_) => hash.number(u64::MAX),
            }
            hash.indices(&operation.inputs);
            hash.indices(&operation.outputs);
        }
        hash.indices(&graph.inputs);
        hash.indices(&graph.outputs);
    }
    Ok(hash.0.finalize().into())
}

/// Every list begins with its length, so that no two models give the same bytes.
struct Hash(Sha256);

impl Hash {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn indices(&mut self, list: &[usize]) {
        self.number(list.len() as u64);
        list.iter().for_each(|&index| self.number(index as u64));
    }

    fn info(&mut self, info: &TensorInfo) {
        self.number(info.ty.code() as u64);
        self.number(info.dims.len() as u64);
        info.dims.iter().for_each(|&dim| self.number(dim.into()));
        self.number(info.scale.to_bits().into());
        self.number(info.zero_point as u64);
        let quant = info.channel_quant.as_ref();
        self.number(quant.map_or(0, |quant| 1 + quant.scales.len() as u64));
        if let Some(quant) = quant {
            self.number(quant.dim.into());
            quant.scales.iter().for_each(|scale| self.number(scale.to_bits().into()));
        }
    }

    fn lifetime(&mut self, lifetime: &Lifetime) -> Result<(), MemoryError> {
        match lifetime {
            Lifetime::Temporary => self.number(0),
            Lifetime::Input => self.number(1),
            Lifetime::Output => self.number(2),
            Lifetime::NoValue => self.number(3),
            Lifetime::Subgraph(index) => self.indices(&[4, *index]),
            Lifetime::Constant(constant) => {
                self.indices(&[5, constant.len()]);
                match constant {
                    Constant::Private(bytes) => self.0.update(&bytes[..]),
                    Constant::Client(slice) => self.client(slice)?,
                }
            }
        }
        Ok(())
    }

    fn client(&mut self, slice: &ClientSlice) -> Result<(), MemoryError> {
        let mut chunk = vec![0; CHUNK.min(slice.len())];
        for start in (0..slice.len()).step_by(CHUNK) {
            let part = slice.part(start, CHUNK.min(slice.len() - start))?;
            let chunk = &mut chunk[..part.len()];
            part.read(chunk)?;
            self.0.update(chunk);
        }
        Ok(())
    }
}
