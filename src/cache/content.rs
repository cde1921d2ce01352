//! What is saved and loaded, how it is laid out in files, and the hashes that tell it from anything else.

use super::CacheError;
use crate::memory::{checksum_share, Counted, Mapping, MemoryError, Weights};
use crate::ops::Interrupt;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// What a data cache holds: parts and where they start, in order.
pub type Parts = Vec<(u64, Weights)>;

/// What is saved: as many of each kind as there are files.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// All that steers.
    pub models: &'a [Vec<u8>],
    /// Mere data.
    pub data: &'a [Parts],
}

/// What is saved, kept for a thread that may take longer than anybody waits for it.
pub struct Kept {
    models: Vec<Vec<u8>>,
    data: Vec<Parts>,
    _counted: Counted,
}

impl Content<'_> {
    /// All that steers is copied, on the account of the thread's client.
    pub fn keep(&self) -> Result<Kept, CacheError> {
        let bytes = self.models.iter().map(Vec::len).fold(0, usize::saturating_add);
        let out_of_memory = || CacheError::Data(MemoryError::OutOfMemory(bytes));
        let counted = Counted::take(bytes).ok_or_else(out_of_memory)?;
        let copy = |model: &Vec<u8>| {
            let mut copy = Vec::new();
            copy.try_reserve_exact(model.len()).map_err(|_| out_of_memory())?;
            copy.extend_from_slice(model);
            Ok(copy)
        };
        let models = self.models.iter().map(copy).collect::<Result<_, CacheError>>()?;
        Ok(Kept { models, data: self.data.to_vec(), _counted: counted })
    }
}

impl Kept {
    pub fn content(&self) -> Content<'_> {
        Content { models: &self.models, data: &self.data }
    }
}

/// What a cache gave back.
pub struct Loaded {
    /// Private, and proven to be what was saved.
    pub models: Vec<Vec<u8>>,
    /// Anything at all, of the lengths that were saved. Private, or of the driver's own store.
    pub data: Vec<Arc<Mapping>>,
    /// What the data caches were like when they were saved.
    pub(super) facts: Vec<DataFacts>,
    /// Where the data were found.
    pub origin: Origin,
    /// Whether the data are of the driver's own store, and not copied.
    pub kept: bool,
    /// For the models.
    pub(super) _counted: Counted,
}

/// SHA-256.
pub type Hash = [u8; 32];

/// How a data cache looks from outside: its length, and when it last changed. It tells of most changes, not of all: to a
/// mapping, or within the same few milliseconds. More would not be worth its price, as data decide nothing but values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastChange {
    pub len: u64,
    pub changed: (i64, i64),
}

/// Where data were saved: the model caches that they belong to, of which each save has a hash of its own, and how the data
/// caches were left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub hash: Hash,
    pub(super) data: Vec<LastChange>,
}

impl Origin {
    /// How the data caches were left, in bytes that are the same for no other way.
    pub(super) fn data_to_bytes(&self) -> Vec<u8> {
        let number = |LastChange { len, changed: (seconds, fraction) }: &LastChange| {
            [len.to_le_bytes(), seconds.to_le_bytes(), fraction.to_le_bytes()].concat()
        };
        self.data.iter().flat_map(number).collect()
    }
}

/// Bytes of the salt that the first model cache begins with.
pub const SALT: usize = 16;

/// What a data cache must be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataFacts {
    pub len: u64,
    /// Of its bytes. It tells what was lost, as when a client cuts a file that is just being written, not what was forged.
    pub checksum: u64,
}

/// What the data caches of `data` are like; an error where `interrupt` says that it is to stop.
pub fn data_facts(data: &[Parts], interrupt: &dyn Interrupt) -> Result<Vec<DataFacts>, CacheError> {
    let facts = |parts: &Parts| {
        let mut checksum = 0u64;
        for_each_part(parts, |start, bytes| {
            checksum = checksum.wrapping_add(checksum_share(start, bytes));
            interrupt.yield_point().map_err(CacheError::Stopped)
        })?;
        Ok(DataFacts { len: data_len(parts), checksum })
    };
    data.iter().map(facts).collect()
}

/// What the first model cache begins with: a salt, the number of data caches, and the facts of each.
pub fn head(salt: &[u8; SALT], data: &[DataFacts]) -> Vec<u8> {
    let mut head = salt.to_vec();
    head.extend((data.len() as u64).to_le_bytes());
    data.iter()
        .flat_map(|facts| [facts.len, facts.checksum])
        .for_each(|number| head.extend(number.to_le_bytes()));
    head
}

pub fn head_len(data_files: usize) -> usize {
    SALT + 8 * (1 + 2 * data_files)
}

/// What a head says of the data caches; `None` where there is none.
pub fn facts_of_head(model: &[u8]) -> Option<Vec<DataFacts>> {
    let mut numbers = model.get(SALT..)?.chunks_exact(8).map_while(|bytes| bytes.try_into().ok());
    let mut number = || numbers.next().map(u64::from_le_bytes);
    let count = number()?;
    // No longer than what is there, whatever it says.
    (0..count).map(|_| Some(DataFacts { len: number()?, checksum: number()? })).collect()
}

/// How much of a model cache is read or hashed at once.
pub const STRETCH: usize = 512 << 10;

/// Over the number of model cache files, and the length and bytes of each. The first begins with `head`. An error where
/// `interrupt` says that it is to stop.
pub fn hash<M: AsRef<[u8]>>(
    head: &[u8],
    models: &[M],
    interrupt: &dyn Interrupt,
) -> Result<Hash, CacheError> {
    let mut hasher = Sha256::new();
    hasher.update((models.len() as u64).to_le_bytes());
    for (i, model) in models.iter().enumerate() {
        let (head, model) = (if i == 0 { head } else { &[] }, model.as_ref());
        hasher.update(((head.len() + model.len()) as u64).to_le_bytes());
        hasher.update(head);
        for stretch in model.chunks(STRETCH) {
            interrupt.yield_point().map_err(CacheError::Stopped)?;
            hasher.update(stretch);
        }
    }
    Ok(hasher.finalize().into())
}

/// Tells a compiled model from others that a client saves under one token. A client that makes two look the same deceives
/// only itself: a real hash proves what is loaded.
pub fn identify(models: &[Vec<u8>], data: &[DataFacts]) -> u64 {
    let id = models.iter().fold(0, |id, model| farmhash::hash64_with_seeds(model, id, 0));
    data.iter()
        .fold(id, |id, facts| farmhash::hash64_with_seeds(&facts.checksum.to_le_bytes(), id, facts.len))
}

/// Over the bytes of all data caches; an error where `interrupt` says that it is to stop.
pub fn hash_data(data: &[Parts], interrupt: &dyn Interrupt) -> Result<Hash, CacheError> {
    let mut hasher = Sha256::new();
    for parts in data {
        for_each_part(parts, |_, bytes| {
            hasher.update(bytes);
            interrupt.yield_point().map_err(CacheError::Stopped)
        })?;
    }
    Ok(hasher.finalize().into())
}

/// Compares in a time that does not tell where they differ.
pub fn same(a: &Hash, b: &Hash) -> bool {
    let difference = a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b));
    std::hint::black_box(difference) == 0
}

/// How many bytes a data cache has of its own.
pub fn data_len(parts: &Parts) -> u64 {
    parts.last().map_or(0, |(start, part)| start + part.len() as u64)
}

/// Calls `each(start, bytes)` for all bytes of a data cache in order, a stretch at a time, with zeroes between its parts.
pub fn for_each_part(
    data: &Parts,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), CacheError>,
) -> Result<(), CacheError> {
    let mut end = 0;
    for (start, part) in data {
        for at in (end..*start).step_by(STRETCH) {
            each(at, &vec![0; (start - at).min(STRETCH as u64) as usize])?;
        }
        // What may change is copied first.
        let mut copy = match part {
            Weights::Private(_) => Vec::new(),
            Weights::Shared(slice) => vec![0; STRETCH.min(slice.len())],
        };
        for at in (0..part.len()).step_by(STRETCH) {
            let len = STRETCH.min(part.len() - at);
            let stretch = match part {
                Weights::Private(bytes) => &bytes[at..at + len],
                Weights::Shared(slice) => {
                    let copied = slice.part(at, len).and_then(|part| part.read(&mut copy[..len]));
                    copied.map_err(CacheError::Data)?;
                    &copy[..len]
                }
            };
            each(start + at as u64, stretch)?;
        }
        end = start + part.len() as u64;
    }
    Ok(())
}

/// Bytes that nobody can guess.
pub fn salt<const N: usize>() -> Result<[u8; N], CacheError> {
    let mut salt = [0; N];
    getrandom::fill(&mut salt).map_err(|why| CacheError::Io { what: "model", why: why.into() })?;
    Ok(salt)
}
