//! What a compilation depends on, as a hash: the name of what it gives in the driver's own store.
//!
//! Most of it are the constants, of which there may be gigabytes, so these are hashed where they lie, in blocks, by as
//! many threads as the compilation may have. The hash must not depend on how many those were. Sums, which are made many times
//! as fast, name a model while it is alive. If nobody waits for the hash, it is made when the model is stored, after the client
//! was told that the model is compiled: by the sums the constants are still the same then.

use super::living::Prefix;
use crate::backend::{Backend, BackendError, CompileOptions, Control, Preference};
use crate::memory::{Counted, MemoryError};
use crate::model::{Constant, Lifetime, Model, OperationKind, Subgraph};
use crate::ops::pace::Pace;
use crate::ops::{Interrupt, OpError};
use crate::scheduler::CallTurns;
use crate::tensor::TensorInfo;
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{available_parallelism, Builder};

/// How much of a constant is hashed at once.
const BLOCK: usize = 512 << 10;
/// How much of a client's memory is copied at once, to be hashed.
const CHUNK: usize = 64 << 10;
/// Models of more blocks have no name: their list takes memory.
const MOST_BLOCKS: usize = 1 << 16;
/// Another thread is not worth while for less.
const BLOCKS_PER_THREAD: usize = 2;
const MOST_THREADS: usize = 8;

type Digest256 = [u8; 32];

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

/// Whether the machine has nothing else to do than one job, which has one of `turns` and, on the `backend`, so many more.
pub(super) fn is_idle(backend: &dyn Backend, turns: &CallTurns, computing: usize) -> bool {
    let (computed, hashed) = (backend.load_now().unwrap_or_default(), turns.load());
    computed.running <= computing && hashed.running <= 1 && computed.waiting + hashed.waiting == 0
}

/// What a compilation depends on, to be hashed.
pub(super) struct Outline {
    /// Hash of all but the constants' bytes.
    hash: Sha256,
    constants: Vec<Constant>,
    /// Of the list of constants.
    _counted: Counted,
}

impl Outline {
    /// `None` for a model without a name: its constants may be counted by the million, and lie in the same memory; or its client
    /// has no memory left for the list of them. There may be very many operands and operations, too: it comes by yield points of
    /// `interrupt`.
    pub fn new(
        model: &Model,
        options: &CompileOptions,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<Self>, BackendError> {
        let mut hash = Hash { hash: Sha256::new(), pace: Pace::of(interrupt) };
        let Some((mut constants, counted)) = room(model, &mut hash.pace)? else { return Ok(None) };
        hash.model(model, options)?;
        hash.pace.each(graphs(model).flat_map(|graph| &graph.operands), 1, |operand| {
            if let Lifetime::Constant(constant) = &operand.lifetime {
                constants.push(constant.clone());
            }
        })?;
        Ok(Some(Outline { hash: hash.hash, constants, _counted: counted }))
    }

    /// What the hash of every model with this outline begins with.
    pub fn prefix(&self) -> Prefix {
        let [a, b, c, d, e, f, g, h, ..]: Digest256 = self.hash.clone().finalize().into();
        [a, b, c, d, e, f, g, h]
    }

    /// A hash of all that decides what a compilation gives, made by up to `threads` threads, and the sums of the constants. A
    /// client that changes these meanwhile gets, later, what it compiled then: it deceives nobody else, as nobody else sees its
    /// entries.
    pub fn hash(&self, threads: Threads, control: &Control) -> Result<(Digest256, Vec<Sum>), BackendError> {
        let hashed = each(&self.blocks(), threads, control, |block, chunk| {
            let (mut hash, mut sum) = (Sha256::new(), Sum::default());
            block.read(chunk, |bytes| {
                hash.update(bytes);
                sum.add(bytes);
            })?;
            Ok((Digest256::from(hash.finalize()), sum))
        })?;
        let (digests, sums): (Vec<_>, Vec<_>) = hashed.into_iter().unzip();
        Ok((self.join(digests.iter().map(Digest256::as_slice)), sums))
    }

    /// Sums of the constants.
    pub fn sums(&self, threads: Threads, control: &Control) -> Result<Vec<Sum>, BackendError> {
        each(&self.blocks(), threads, control, |block, chunk| {
            let mut sum = Sum::default();
            block.read(chunk, |bytes| sum.add(bytes))?;
            Ok(sum)
        })
    }

    /// As [`Outline::hash`], later and by one thread: `None` where the constants are not what they were when these sums were
    /// made.
    pub fn hash_unless_changed(
        &self,
        sums: &[Sum],
        control: &Control,
    ) -> Result<Option<Digest256>, BackendError> {
        let (hash, found) = self.hash(Threads::ONE, control)?;
        Ok((found == sums).then_some(hash))
    }

    /// What a model of these sums goes by as long as it is alive.
    pub fn name(&self, sums: &[Sum]) -> Digest256 {
        self.join(sums.iter().map(Sum::bytes))
    }

    /// A hash of what is told of each block.
    fn join(&self, blocks: impl Iterator<Item = impl AsRef<[u8]>>) -> Digest256 {
        let mut hash = self.hash.clone();
        // How long the constants are has been hashed, and so which of them each block is of.
        blocks.for_each(|block| hash.update(block));
        let mut token: Digest256 = hash.finalize().into();
        let prefix = self.prefix();
        token[..prefix.len()].copy_from_slice(&prefix);
        token
    }

    /// All constants, in order.
    fn blocks(&self) -> Vec<Block<'_>> {
        let of_constant = |constant| {
            let len = Constant::len(constant);
            (0..len).step_by(BLOCK).map(move |start| Block { constant, start, len: BLOCK.min(len - start) })
        };
        self.constants.iter().flat_map(of_constant).collect()
    }
}

/// Room for a list of a model's constants, on its client's account; `None` where there is none, or they have too many blocks.
fn room(model: &Model, pace: &mut Pace) -> Result<Option<(Vec<Constant>, Counted)>, OpError> {
    let (mut count, mut blocks) = (0, 0usize);
    for operand in graphs(model).flat_map(|graph| &graph.operands) {
        pace.spend(1)?;
        if let Lifetime::Constant(constant) = &operand.lifetime {
            (count, blocks) = (count + 1, blocks.saturating_add(constant.len().div_ceil(BLOCK).max(1)));
        }
        if blocks > MOST_BLOCKS {
            return Ok(None);
        }
    }
    let (counted, mut list) = (Counted::take(size_of::<Constant>() * count), Vec::new());
    Ok(counted.filter(|_| list.try_reserve_exact(count).is_ok()).map(|counted| (list, counted)))
}

/// A sum of bytes that is made many times as fast as a hash. It tells whether a client changed its memory between two
/// looks at it, and two models of one client apart. Two memories with one sum do no harm to others: the client that makes them
/// deceives only itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum([u64; 4]);

impl Sum {
    fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.as_chunks_mut().0.iter_mut().zip(self.0).for_each(|(to, word)| *to = word.to_le_bytes());
        bytes
    }

    fn add(&mut self, bytes: &[u8]) {
        let (rows, rest) = bytes.as_chunks::<32>();
        let mut last = [0; 32];
        last[..rest.len()].copy_from_slice(rest);
        for row in rows.iter().chain((!rest.is_empty()).then_some(&last)) {
            // Each step waits for the multiplication of the one before it, so four sums go side by side.
            for (sum, word) in self.0.iter_mut().zip(row.as_chunks::<8>().0) {
                let mixed = (*sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                *sum = mixed.rotate_left(29);
            }
        }
    }
}

/// A part of a constant.
struct Block<'m> {
    constant: &'m Constant,
    start: usize,
    len: usize,
}

impl Block<'_> {
    /// Hands out the bytes in pieces, which lie in `chunk` where they are a client's.
    fn read(&self, chunk: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<(), MemoryError> {
        let slice = match self.constant {
            Constant::Private(bytes) => {
                each(&bytes[self.start..][..self.len]);
                return Ok(());
            }
            Constant::Client(slice) => slice,
        };
        for start in (0..self.len).step_by(CHUNK) {
            let chunk = &mut chunk[..CHUNK.min(self.len - start)];
            slice.part(self.start + start, chunk.len())?.read(chunk)?;
            each(chunk);
        }
        Ok(())
    }
}

/// Who hashes.
#[derive(Clone, Copy)]
pub(super) struct Threads<'a> {
    /// How many, at the most.
    pub most: usize,
    /// Whether the machine has nothing else to do. The calling thread goes by its turn, and the others, which have none, help
    /// only as long as that holds.
    pub is_idle: &'a (dyn Fn() -> bool + Sync),
}

impl Threads<'_> {
    /// The calling thread.
    pub const ONE: Threads<'static> = Threads { most: 1, is_idle: &|| false };
}

/// What `of` gives of each of the `blocks`, made by these threads.
fn each<T: Clone + Default + Send>(
    blocks: &[Block],
    threads: Threads,
    control: &Control,
    of: impl Fn(&Block, &mut [u8]) -> Result<T, MemoryError> + Sync,
) -> Result<Vec<T>, BackendError> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(vec![T::default(); blocks.len()]));
    let work = |helps: bool| -> Result<(), BackendError> {
        let mut chunk = vec![0; CHUNK];
        loop {
            match helps {
                true if !(threads.is_idle)() => return Ok(()),
                true => control.check()?,
                false => control.yield_point()?,
            }
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(block) = blocks.get(i) else { return Ok(()) };
            let result = of(block, &mut chunk).map_err(BackendError::memory("a constant"))?;
            results.lock().unwrap_or_else(PoisonError::into_inner)[i] = result;
        }
    };
    std::thread::scope(|scope| {
        // Where there is no thread to be had, fewer do it.
        let help = move || work(true);
        let spawn = |_| Builder::new().name("nnhal-hash".into()).spawn_scoped(scope, help).ok();
        let most = threads.most.min(blocks.len() / BLOCKS_PER_THREAD);
        let helpers: Vec<_> = (1..most).map_while(spawn).collect();
        let own = work(false);
        let others = helpers.into_iter().map(|helper| match helper.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        others.fold(own, |all, result| all.and(result))
    })?;
    Ok(results.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Every list begins with its length, so that no two models give the same bytes.
struct Hash<'a> {
    hash: Sha256,
    pace: Pace<'a>,
}

/// Steps that a number is worth, as [`Pace`] counts them.
const NUMBER: usize = 8;

impl Hash<'_> {
    /// All but the constants' bytes.
    fn model(&mut self, model: &Model, options: &CompileOptions) -> Result<(), OpError> {
        self.number(options.preference as u64)?;
        // A device may take it into what it makes of the model.
        self.number(options.priority as u64)?;
        self.number(options.dynamic_range.into())?;
        self.number(model.relaxed.into())?;
        self.number(1 + model.referenced.len() as u64)?;
        graphs(model).try_for_each(|graph| self.graph(graph))
    }

    fn graph(&mut self, graph: &Subgraph) -> Result<(), OpError> {
        self.number(graph.operands.len() as u64)?;
        for operand in &graph.operands {
            self.info(&operand.info)?;
            self.lifetime(&operand.lifetime)?;
            self.number(operand.extension.is_some().into())?;
            if let Some(extension) = &operand.extension {
                self.bytes(extension.extension.as_bytes())?;
                self.number(u64::from(extension.ty.code))?;
                self.bytes(&extension.parameters)?;
            }
        }
        self.number(graph.operations.len() as u64)?;
        for operation in &graph.operations {
            match &operation.kind {
                OperationKind::Known { operation, signature_index } => {
                    self.indices(&[operation.ty.code() as usize, *signature_index])?;
                }
                OperationKind::Extension { extension, code } => {
                    self.bytes(extension.as_bytes())?;
                    self.number(u64::from(*code))?;
                }
                // It is not going to be compiled.
                OperationKind::Unsupported(_) => self.number(u64::MAX)?,
            }
            self.indices(&operation.inputs)?;
            self.indices(&operation.outputs)?;
        }
        self.indices(&graph.inputs)?;
        self.indices(&graph.outputs)
    }

    fn lifetime(&mut self, lifetime: &Lifetime) -> Result<(), OpError> {
        match lifetime {
            Lifetime::Temporary => self.number(0),
            Lifetime::Input => self.number(1),
            Lifetime::Output => self.number(2),
            Lifetime::NoValue => self.number(3),
            Lifetime::Subgraph(index) => self.indices(&[4, *index]),
            Lifetime::Constant(constant) => self.indices(&[5, constant.len()]),
        }
    }

    fn number(&mut self, number: u64) -> Result<(), OpError> {
        self.pace.spend(NUMBER)?;
        self.hash.update(number.to_le_bytes());
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), OpError> {
        self.number(bytes.len() as u64)?;
        self.pace.in_stretches(bytes.len(), 1, |part| self.hash.update(&bytes[part]))
    }

    fn indices(&mut self, list: &[usize]) -> Result<(), OpError> {
        self.number(list.len() as u64)?;
        list.iter().try_for_each(|&index| self.number(index as u64))
    }

    /// A list whose length was hashed: of scales there may be more than of all else.
    fn words(&mut self, list: &[u32]) -> Result<(), OpError> {
        let bytes = bytemuck::cast_slice::<_, u8>(list);
        self.pace.in_stretches(bytes.len(), 1, |part| self.hash.update(&bytes[part]))
    }

    fn info(&mut self, info: &TensorInfo) -> Result<(), OpError> {
        self.number(info.ty.code() as u64)?;
        self.number(info.dims.len() as u64)?;
        self.words(&info.dims)?;
        self.number(info.scale.to_bits().into())?;
        self.number(info.zero_point as u64)?;
        let quant = info.channel_quant.as_ref();
        self.number(quant.map_or(0, |quant| 1 + quant.scales.len() as u64))?;
        if let Some(quant) = quant {
            self.number(quant.dim.into())?;
            self.words(bytemuck::cast_slice(&quant.scales))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
