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
//! On loading, the model cache is copied to private memory, hashed there, compared in constant time, then used. A client's
//! data cache is copied, too: once a model is prepared, whatever becomes of the files is the client's affair. Only the
//! driver's own store is computed with where it lies, and rewritten by nobody meanwhile.
//!
//! A token may stand for several files at once, as two processes of a client with a directory each have it, if all hold
//! the same model. A save of another model voids what its token stood for before, in whatever files.
//!
//! What was saved may be replaced later by the same model compiled further. That is nobody's wish but ours, so it is done
//! only if the files and the registry still are as the earlier save, or the load, left them: what the client has changed,
//! emptied or used for something else stays as it is.

mod entry;
mod files;
mod mapped;
mod marker;
mod offline;
mod registry;
#[cfg(test)]
mod replace_tests;
mod store;
mod table;
#[cfg(test)]
mod tests;

pub use entry::{Entry, Key, Place, Record, Token};
pub use files::CacheFiles;
pub use offline::{Offline, Shelf};
pub use registry::{Limits, Registry};
pub use store::Store;

use crate::memory::{Mapping, MemoryError, Weights};
use files::{Lock, Look};
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
    /// Anything at all, of the length that was saved. Private, but for the driver's own store.
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
    /// Whether the files are the driver's own: one place for each key, data caches hashed as well, for people who look
    /// whether they are whole, and computed with where they lie.
    owns_files: bool,
}

impl Cache {
    /// Caches recorded in `directory`, which is made when it is first needed; without one, for the life of this process
    /// only. Entries that a driver of another `fingerprint` made are dropped.
    pub fn new(directory: Option<&Path>, fingerprint: &str) -> Self {
        Cache { registry: Registry::new(directory, fingerprint, Limits::default()), owns_files: false }
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
        self.write(key, &files.lock()?, model, data, None).map(|(written, _)| written)
    }

    /// Empties a client's files of what was saved for `key` before, to be replaced by what will be compiled.
    pub fn reserve(&self, key: &Key, files: &CacheFiles) -> Result<Written, CacheError> {
        // It tells this reservation from all others.
        let ticket = files::salt::<SALT>()?;
        let lock = files.lock()?;
        if !self.registry.get(key)?.is_empty() {
            self.registry.remove(key, |_| true)?;
        }
        lock.write_model(&ticket)?;
        let record =
            Record { hash: hash(&ticket), model_len: SALT as u64, data_len: 0, data_hash: None, model: 0 };
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
        let lock = files.lock()?;
        let entries = self.registry.get(key)?;
        let is_known = match written.recorded {
            true => entries.iter().any(|entry| entry.record == written.record),
            false => entries.is_empty(),
        };
        if !is_known {
            return Err(CacheError::Changed);
        }
        self.read(&lock, &[written.record])?;
        if lock.look_at_data()? != written.data {
            return Err(CacheError::DataChanged);
        }
        // Compiled further, it is the same model still.
        let same = written.recorded.then_some(written.record.model);
        self.write(key, &lock, model, data, same).map(drop)
    }

    /// Writes files that are locked; gives also what entries were dropped for it. `same` is what the model is known by, if
    /// it is.
    fn write(
        &self,
        key: &Key,
        lock: &Lock,
        model: &[u8],
        data: &[(u64, Weights)],
        same: Option<u64>,
    ) -> Result<(Written, Vec<Key>), CacheError> {
        if model.len() > MAX_MODEL_BYTES {
            return Err(CacheError::TooLarge(model.len()));
        }
        let (place, id) = match (self.owns_files, same) {
            (true, _) => (Place::STORE, 0),
            (false, Some(id)) => (lock.place(), id),
            (false, None) => (lock.place(), identify(model, data)?),
        };
        let model = [&files::salt::<SALT>()?[..], model].concat();
        let data_len = data.last().map_or(0, |(start, part)| start + part.len() as u64);
        let data_hash = if self.owns_files { Some(hash_data(data)?) } else { None };
        let record =
            Record { hash: hash(&model), model_len: model.len() as u64, data_len, data_hash, model: id };
        let dropped = self.registry.put(&Entry { key: *key, place, record, last_use: 0 })?;
        let written = lock.write(&model, data, data_len).and_then(|()| lock.look_at_data());
        if written.is_err() {
            // It is a miss as it is; this only frees its place.
            self.registry.remove(key, |entry| entry.place == place)?;
        }
        Ok((Written { record, recorded: true, data: written? }, dropped))
    }

    /// The model cache, and which of `records` says that it is what was written.
    fn read(&self, lock: &Lock, records: &[Record]) -> Result<(Vec<u8>, usize), CacheError> {
        let model = lock.read_model(records.iter().map(|record| record.model_len))?;
        let found = hash(&model);
        let known = records.iter().position(|record| same(&found, &record.hash));
        known.filter(|_| model.len() >= SALT).map(|i| (model, i)).ok_or(CacheError::Changed)
    }

    /// Loads what was saved for `key`, if the model cache still is what was saved.
    pub fn load(&self, key: &Key, files: &CacheFiles) -> Result<Loaded, CacheError> {
        let lock = files.lock()?;
        let entries = self.registry.get(key)?;
        if entries.is_empty() {
            return Err(CacheError::Unknown);
        }
        let records: Vec<_> = entries.iter().map(|entry| entry.record).collect();
        let (mut model, i) = self.read(&lock, &records)?;
        let record = records[i];
        let data = match self.owns_files {
            true => lock.map_data(record.data_len)?,
            false => lock.copy_data(record.data_len, &model)?,
        };
        self.registry.used(&entries[i]);
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

/// What tells a compiled model from others that a client saves under one token. Whoever makes two that look the same
/// deceives only itself: what is loaded is proven by a real hash.
fn identify(model: &[u8], data: &[(u64, Weights)]) -> Result<u64, CacheError> {
    let mut id = farmhash::hash64(model);
    files::for_each_part(data, |start, bytes| {
        id = farmhash::hash64_with_seeds(bytes, id, start);
        Ok(())
    })?;
    Ok(id)
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
