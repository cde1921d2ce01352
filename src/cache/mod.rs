//! Compiled models on disk, and the proof that they are ours.
//!
//! The files that a client hands over are its own: it may change them at any moment. So the registry, which is ours,
//! remembers for each client and token the hash of the model cache, and only what has that hash is ever parsed. The
//! data cache is not proven at all, and must not matter but for values.
//!
//! What is saved, in this order, so that a crash at any point leaves a miss and never a wrong hit:
//! 1. The model cache begins with a salt, so that no two saves have the same hash. The hash is computed in memory.
//! 2. The registry records it, durably. From here on no earlier files fit.
//! 3. The model cache is emptied, then the data cache written and synced, then the model cache written. It is the last
//!    to be whole, and needs no sync: what a power cut leaves of it has the hash or has not.
//!
//! On loading, the model cache is copied to private memory, hashed there, compared in constant time, then used.

mod entry;
mod files;
mod offline;
mod registry;
mod store;
mod table;
#[cfg(test)]
mod tests;

pub use entry::{Entry, Key, Record, Token};
pub use files::CacheFiles;
pub use offline::{Offline, Shelf};
pub use registry::{Limits, Registry};
pub use store::Store;

use crate::memory::{Mapping, MemoryError, Weights};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;

/// How many files of each kind this driver writes.
pub const MODEL_FILES: usize = 1;
pub const DATA_FILES: usize = 1;

/// Largest model cache that is written: nothing that steers is that large, and it is read whole.
const MAX_MODEL_BYTES: usize = 256 << 20;

const SALT: usize = 16;

/// Why nothing was saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error("{models} model and {data} data cache files, expected {MODEL_FILES} and {DATA_FILES}")]
    Count { models: usize, data: usize },
    #[error("the {0} cache is not a regular file opened for reading and writing")]
    Access(&'static str),
    #[error("the model cache and the data cache are the same file")]
    SameFile,
    #[error("the cache files are in use by others")]
    Busy,
    #[error("nothing is recorded for this token")]
    Unknown,
    #[error("the model cache is not what this driver wrote for this token")]
    Changed,
    #[error("a compiled model of {0} bytes is too large")]
    TooLarge(usize),
    #[error("the {what} cache: {why}")]
    Io { what: &'static str, why: std::io::Error },
    #[error("the data cache: {0}")]
    Data(MemoryError),
    #[error("the registry of caches: {0}")]
    Registry(String),
    /// Of people's own looks at the caches.
    #[error("{0}")]
    Offline(String),
}

/// What a cache gave back.
pub struct Loaded {
    /// Private, and proven to be what was saved.
    pub model: Vec<u8>,
    /// Anything at all, of the length that was saved.
    pub data: Arc<Mapping>,
}

/// The caches of all clients.
pub struct Cache {
    registry: Registry,
    /// Whether data caches are hashed as well, for people who look whether they are whole.
    hash_data: bool,
}

impl Cache {
    /// Caches recorded in `directory`, which is made when it is first needed; without one, for the life of this process
    /// only. Entries that a driver of another `fingerprint` made are dropped.
    pub fn new(directory: Option<&Path>, fingerprint: &str) -> Self {
        Cache { registry: Registry::new(directory, fingerprint, Limits::default()), hash_data: false }
    }

    /// Saves a compiled model in a client's files, replacing what was saved for `key` before.
    pub fn save(
        &self,
        key: &Key,
        files: &CacheFiles,
        model: &[u8],
        data: &[(u64, Weights)],
    ) -> Result<(), CacheError> {
        self.save_and_evict(key, files, model, data).map(drop)
    }

    /// Saves likewise; gives what entries were dropped for it.
    fn save_and_evict(
        &self,
        key: &Key,
        files: &CacheFiles,
        model: &[u8],
        data: &[(u64, Weights)],
    ) -> Result<Vec<Key>, CacheError> {
        if model.len() > MAX_MODEL_BYTES {
            return Err(CacheError::TooLarge(model.len()));
        }
        let model = [&files::salt::<SALT>()?[..], model].concat();
        let data_len = data.last().map_or(0, |(start, part)| start + part.len() as u64);
        let data_hash = if self.hash_data { Some(hash_data(data)?) } else { None };
        let lock = files.lock()?;
        let record = Record { hash: hash(&model), model_len: model.len() as u64, data_len, data_hash };
        let dropped = self.registry.put(key, &record)?;
        let written = lock.write(&model, data, data_len);
        if written.is_err() {
            // It is a miss as it is; this only frees its place.
            self.registry.remove(key)?;
        }
        written.map(|()| dropped)
    }

    /// Loads what was saved for `key`, if the model cache still is what was saved.
    pub fn load(&self, key: &Key, files: &CacheFiles) -> Result<Loaded, CacheError> {
        let lock = files.lock()?;
        let record = self.registry.get(key)?.ok_or(CacheError::Unknown)?;
        let mut model = lock.read_model(record.model_len)?;
        if !same(&hash(&model), &record.hash) || model.len() < SALT {
            return Err(CacheError::Changed);
        }
        let data = lock.map_data(record.data_len)?;
        model.drain(..SALT);
        Ok(Loaded { model, data })
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// Over the number of model cache files, and the length and bytes of each.
fn hash(model: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update((MODEL_FILES as u64).to_le_bytes());
    hasher.update((model.len() as u64).to_le_bytes());
    hasher.update(model);
    hasher.finalize().into()
}

/// Over the bytes of a data cache.
fn hash_data(data: &[(u64, Weights)]) -> Result<[u8; 32], CacheError> {
    let mut hasher = Sha256::new();
    files::for_each_part(data, |_, bytes| {
        hasher.update(bytes);
        Ok(())
    })?;
    Ok(hasher.finalize().into())
}

/// Compares in a time that does not tell where they differ.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let difference = a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b));
    std::hint::black_box(difference) == 0
}
