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
//!
//! What was saved may be replaced later by the same model compiled further. That is nobody's wish but ours, so it is done
//! only if the files and the registry still are as the earlier save, or the load, left them: what the client has changed,
//! emptied or used for something else stays as it is. Nor is it done while a prepared model of this process maps the data
//! cache. A save that a client asks for is done whatever maps it: those who do, in this process or another, find that
//! their memory has vanished, and fail.

mod entry;
mod files;
mod mapped;
mod offline;
mod registry;
#[cfg(test)]
mod replace_tests;
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
use files::{Lock, Look, Purpose};
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
    /// To read from it could block for ever.
    #[error("the {0} cache lies in a file system that another process serves")]
    Served(&'static str),
    #[error("the cache files are in use by others")]
    Busy,
    #[error("a prepared model computes with the data cache")]
    Mapped,
    #[error("nothing is recorded for this token")]
    Unknown,
    #[error("the model cache is not what this driver wrote for this token")]
    Changed,
    #[error("the data cache has changed since")]
    DataChanged,
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
    pub written: Written,
}

/// How a save, or a load, left the files and the registry: what they must still be like for it to be replaced.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Of what the model cache holds.
    record: Record,
    /// Whether the registry knows of it.
    recorded: bool,
    data: Look,
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

    /// Gets ready to load, for a client that asks about caching.
    pub fn open_ahead(&self) {
        self.registry.open_ahead();
    }

    /// Saves a compiled model in a client's files, in place of what was saved for `key` before.
    pub fn save(
        &self,
        key: &Key,
        files: &CacheFiles,
        model: &[u8],
        data: &[(u64, Weights)],
    ) -> Result<Written, CacheError> {
        self.write(key, &files.lock(Purpose::Write)?, model, data).map(|(written, _)| written)
    }

    /// Empties a client's files of what was saved for `key` before, to be replaced by what will be compiled.
    pub fn reserve(&self, key: &Key, files: &CacheFiles) -> Result<Written, CacheError> {
        // It tells this reservation from all others.
        let ticket = files::salt::<SALT>()?;
        let lock = files.lock(Purpose::Write)?;
        if self.registry.get(key)?.is_some() {
            self.registry.remove(key)?;
        }
        lock.write_model(&ticket)?;
        let record = Record { hash: hash(&ticket), model_len: SALT as u64, data_len: 0, data_hash: None };
        Ok(Written { record, recorded: false, data: lock.look_at_data()? })
    }

    /// Saves a compiled model in place of what was `written`, if all is still as that left it.
    pub fn replace(
        &self,
        key: &Key,
        files: &CacheFiles,
        written: &Written,
        model: &[u8],
        data: &[(u64, Weights)],
    ) -> Result<(), CacheError> {
        let lock = files.lock(Purpose::Write)?;
        if self.registry.get(key)? != written.recorded.then_some(written.record) {
            return Err(CacheError::Changed);
        }
        self.read(&lock, &written.record)?;
        if lock.look_at_data()? != written.data {
            return Err(CacheError::DataChanged);
        }
        if lock.is_mapped() {
            return Err(CacheError::Mapped);
        }
        self.write(key, &lock, model, data).map(drop)
    }

    /// Writes files that are locked; gives also what entries were dropped for it.
    fn write(
        &self,
        key: &Key,
        lock: &Lock,
        model: &[u8],
        data: &[(u64, Weights)],
    ) -> Result<(Written, Vec<Key>), CacheError> {
        if model.len() > MAX_MODEL_BYTES {
            return Err(CacheError::TooLarge(model.len()));
        }
        let model = [&files::salt::<SALT>()?[..], model].concat();
        let data_len = data.last().map_or(0, |(start, part)| start + part.len() as u64);
        let data_hash = if self.hash_data { Some(hash_data(data)?) } else { None };
        let record = Record { hash: hash(&model), model_len: model.len() as u64, data_len, data_hash };
        let dropped = self.registry.put(key, &record)?;
        let written = lock.write(&model, data, data_len).and_then(|()| lock.look_at_data());
        if written.is_err() {
            // It is a miss as it is; this only frees its place.
            self.registry.remove(key)?;
        }
        Ok((Written { record, recorded: true, data: written? }, dropped))
    }

    /// The model cache, if it still is what `record` says.
    fn read(&self, lock: &Lock, record: &Record) -> Result<Vec<u8>, CacheError> {
        let model = lock.read_model(record.model_len)?;
        if !same(&hash(&model), &record.hash) || model.len() < SALT {
            return Err(CacheError::Changed);
        }
        Ok(model)
    }

    /// Loads what was saved for `key`, if the model cache still is what was saved.
    pub fn load(&self, key: &Key, files: &CacheFiles) -> Result<Loaded, CacheError> {
        let lock = files.lock(Purpose::Read)?;
        let record = self.registry.get(key)?.ok_or(CacheError::Unknown)?;
        let mut model = self.read(&lock, &record)?;
        let data = lock.map_data(record.data_len)?;
        model.drain(..SALT);
        let written = Written { record, recorded: true, data: lock.look_at_data()? };
        Ok(Loaded { model, data, written })
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
