//! What a compilation depends on, as a hash: the name of what it gives in the driver's own store.
//!
//! Most of it are the constants, of which there may be gigabytes, so these are hashed where they lie, in blocks, by as
//! many threads as the compilation may have. The hash must not depend on how many those were.

use crate::backend::{BackendError, CompileOptions, Control, Preference};
use crate::memory::MemoryError;
use crate::model::{Constant, Lifetime, Model, OperationKind, Subgraph};
use crate::ops::Interrupt;
use crate::tensor::TensorInfo;
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{available_parallelism, Builder};

/// How much of a constant is hashed at once.
const BLOCK: usize = 512 << 10;
/// How much of a client's memory is copied at once, to be hashed.
const CHUNK: usize = 64 << 10;
/// Another thread is not worth while for less.
const BLOCKS_PER_THREAD: usize = 2;
const MOST_THREADS: usize = 8;

type Digest256 = [u8; 32];
/// Leaves 192 bits that hold for the constants, whose collisions nobody finds.
type Prefix = [u8; 8];

/// All subgraphs.
pub(super) fn graphs(model: &Model) -> impl Iterator<Item = &Subgraph> {
    std::iter::once(&model.main).chain(&model.referenced)
}

/// How many threads a compilation with these options may have.
pub(super) fn threads(options: &CompileOptions) -> usize {
    match options.preference {
        Preference::LowPower => 1,
        _ => available_parallelism().map_or(1, |n| n.get()).min(MOST_THREADS),
    }
}

/// All that decides what a compilation gives but for the constants' bytes, of which there may be many.
pub(super) struct Outline<'m> {
    model: &'m Model,
    hash: Sha256,
}

impl<'m> Outline<'m> {
    pub fn new(model: &'m Model, options: &CompileOptions) -> Self {
        let mut hash = Hash(Sha256::new());
        hash.model(model, options);
        Outline { model, hash: hash.0 }
    }

    /// What the hash of every model with this outline begins with.
    pub fn prefix(&self) -> Prefix {
        let [a, b, c, d, e, f, g, h, ..]: Digest256 = self.hash.clone().finalize().into();
        [a, b, c, d, e, f, g, h]
    }

    /// A hash of all that decides what a compilation gives, made by up to `threads` threads. A client that changes its
    /// constants meanwhile gets, later, what it compiled then: it deceives nobody else, as nobody else sees its entries.
    pub fn hash(&self, threads: usize, control: &Control) -> Result<Digest256, BackendError> {
        let blocks = blocks(self.model);
        let digests = digests(&blocks, threads.min(blocks.len() / BLOCKS_PER_THREAD), control)?;
        let mut hash = self.hash.clone();
        // How long the constants are has been hashed, and so which of them each block is of.
        digests.iter().for_each(|digest| hash.update(digest));
        let mut token: Digest256 = hash.finalize().into();
        let prefix = self.prefix();
        token[..prefix.len()].copy_from_slice(&prefix);
        Ok(token)
    }
}

/// A part of a constant.
struct Block<'m> {
    constant: &'m Constant,
    start: usize,
    len: usize,
}

/// All constants, in order.
fn blocks(model: &Model) -> Vec<Block<'_>> {
    let constants = graphs(model).flat_map(|graph| &graph.operands).filter_map(|operand| {
        if let Lifetime::Constant(constant) = &operand.lifetime {
            return Some(constant);
        }
        None
    });
    let of_constant = |constant| {
        let len = Constant::len(constant);
        (0..len).step_by(BLOCK).map(move |start| Block { constant, start, len: BLOCK.min(len - start) })
    };
    constants.flat_map(of_constant).collect()
}

impl Block<'_> {
    fn digest(&self, chunk: &mut [u8]) -> Result<Digest256, MemoryError> {
        let slice = match self.constant {
            Constant::Private(bytes) => return Ok(Sha256::digest(&bytes[self.start..][..self.len]).into()),
            Constant::Client(slice) => slice,
        };
        let mut hash = Sha256::new();
        for start in (0..self.len).step_by(CHUNK) {
            let chunk = &mut chunk[..CHUNK.min(self.len - start)];
            slice.part(self.start + start, chunk.len())?.read(chunk)?;
            hash.update(chunk);
        }
        Ok(hash.finalize().into())
    }
}

/// The digests of `blocks`, made by up to `threads` threads.
fn digests(blocks: &[Block], threads: usize, control: &Control) -> Result<Vec<Digest256>, BackendError> {
    let (next, digests) = (AtomicUsize::new(0), Mutex::new(vec![Digest256::default(); blocks.len()]));
    let work = || -> Result<(), BackendError> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(block) = blocks.get(i) else { return Ok(()) };
            control.check()?;
            let digest = block.digest(&mut chunk);
            let digest =
                digest.map_err(|source| BackendError::Memory { what: "a constant".into(), source })?;
            digests.lock().unwrap_or_else(PoisonError::into_inner)[i] = digest;
        }
    };
    std::thread::scope(|scope| {
        // Where there is no thread to be had, fewer do it.
        let spawn = |_| Builder::new().name("nnhal-hash".into()).spawn_scoped(scope, work).ok();
        let helpers: Vec<_> = (1..threads).map_while(spawn).collect();
        let own = work();
        let others = helpers.into_iter().map(|helper| match helper.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        others.fold(own, |all, result| all.and(result))
    })?;
    Ok(digests.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Every list begins with its length, so that no two models give the same bytes.
struct Hash(Sha256);

impl Hash {
    /// All but the constants' bytes.
    fn model(&mut self, model: &Model, options: &CompileOptions) {
        self.number(options.preference as u64);
        self.number(model.relaxed.into());
        self.number(1 + model.referenced.len() as u64);
        graphs(model).for_each(|graph| self.graph(graph));
    }

    fn graph(&mut self, graph: &Subgraph) {
        self.number(graph.operands.len() as u64);
        for operand in &graph.operands {
            self.info(&operand.info);
            self.lifetime(&operand.lifetime);
            self.number(operand.extension.is_some().into());
            if let Some(extension) = &operand.extension {
                self.bytes(extension.extension.as_bytes());
                self.number(u64::from(extension.ty.code));
                self.bytes(&extension.parameters);
            }
        }
        self.number(graph.operations.len() as u64);
        for operation in &graph.operations {
            match &operation.kind {
                OperationKind::Known { operation, signature_index } => {
                    self.indices(&[operation.ty.code() as usize, *signature_index]);
                }
                OperationKind::Extension { extension, code } => {
                    self.bytes(extension.as_bytes());
                    self.number(u64::from(*code));
                }
                // It is not going to be compiled.
                OperationKind::Unsupported(_) => self.number(u64::MAX),
            }
            self.indices(&operation.inputs);
            self.indices(&operation.outputs);
        }
        self.indices(&graph.inputs);
        self.indices(&graph.outputs);
    }

    fn lifetime(&mut self, lifetime: &Lifetime) {
        match lifetime {
            Lifetime::Temporary => self.number(0),
            Lifetime::Input => self.number(1),
            Lifetime::Output => self.number(2),
            Lifetime::NoValue => self.number(3),
            Lifetime::Subgraph(index) => self.indices(&[4, *index]),
            Lifetime::Constant(constant) => self.indices(&[5, constant.len()]),
        }
    }

    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{AlignedBuf, ClientSlice, Mapping};
    use crate::model::Operand;
    use crate::tensor::OperandType;
    use std::sync::Arc;

    fn private(bytes: &[u8]) -> Constant {
        Constant::Private(Arc::new(AlignedBuf::copy_of(bytes).expect("memory")))
    }

    fn client(bytes: &[u8]) -> Constant {
        let slice = ClientSlice::whole(Arc::new(Mapping::anonymous(bytes.len()).unwrap()));
        slice.write(bytes).unwrap();
        Constant::Client(slice)
    }

    fn model(constants: &[Constant]) -> Model {
        let operand = |constant: &Constant| Operand {
            extension: None,
            info: TensorInfo::new(OperandType::TENSOR_QUANT8_ASYMM, &[]),
            lifetime: Lifetime::Constant(constant.clone()),
        };
        let operands = constants.iter().map(operand).collect();
        let main = Subgraph { operands, operations: vec![], inputs: vec![], outputs: vec![] };
        Model { main, referenced: vec![], relaxed: false }
    }

    fn hash_of(constants: &[Constant]) -> Digest256 {
        Outline::new(&model(constants), &CompileOptions::default()).hash(1, &Control::default()).unwrap()
    }

    #[test]
    fn whoever_hashes_wherever_it_lies_the_hash_is_the_same() {
        let large: Vec<u8> = (0..5 * BLOCK + CHUNK + 1).map(|i| (i * 31 % 251) as u8).collect();
        let (mine, theirs) =
            (model(&[private(&large), private(&[7; 3])]), model(&[client(&large), client(&[7; 3])]));
        let (mine, theirs) = (blocks(&mine), blocks(&theirs));
        let expected = digests(&mine, 1, &Control::default()).unwrap();
        assert_eq!((expected.len(), expected.contains(&Digest256::default())), (7, false));
        for threads in [0, 2, 3, 8] {
            assert_eq!(digests(&mine, threads, &Control::default()).unwrap(), expected);
            assert_eq!(digests(&theirs, threads, &Control::default()).unwrap(), expected);
        }
        assert_eq!(hash_of(&[client(&large)]), hash_of(&[private(&large)]));
    }

    #[test]
    fn every_byte_and_every_length_counts() {
        let bytes = vec![1; 2 * BLOCK];
        let mut hashes = vec![hash_of(&[client(&bytes)])];
        for at in [0, BLOCK - 1, BLOCK, 2 * BLOCK - 1] {
            let mut other = bytes.clone();
            other[at] ^= 0x80;
            hashes.push(hash_of(&[client(&other)]));
        }
        // All these have one outline.
        assert!(hashes.iter().all(|hash| hash[..8] == hashes[0][..8]));
        // The same bytes one after the other, and the same blocks.
        hashes.push(hash_of(&[client(&bytes[..BLOCK]), client(&bytes[BLOCK..])]));
        hashes.push(hash_of(&[client(&bytes), private(&[])]));
        hashes.push(hash_of(&[client(&bytes[1..]), client(&bytes[..1])]));
        let count = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
    }

    #[test]
    fn it_gives_up_when_it_is_told_to() {
        let model = model(&[private(&[1; 4 * BLOCK])]);
        let control = Control::default();
        control.cancelled.store(true, Ordering::Relaxed);
        for threads in [1, 3] {
            let result = digests(&blocks(&model), threads, &control);
            assert!(matches!(result, Err(BackendError::Cancelled)), "{result:?}");
        }
    }
}
