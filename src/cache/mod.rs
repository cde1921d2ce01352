//! Compiled models on disk, and the proof that they are ours.
//!
//! The files that a client hands over are its own: it may change them at any moment. So the registry, which is ours,
//! remembers for each client and token the hash of the model cache, and only what has that hash is ever parsed. The
//! data cache has a checksum there, which finds accidents: clients cut and write anew a file that another of their
//! threads has us write. It is no proof, so the data cache must not matter but for values.
//!
//! What is saved, in this order, so that a crash at any point leaves a miss and never a wrong hit:
//! 1. The first model cache begins with a salt, so that no two saves have the same hash, and with the lengths and
//!    checksums of the data caches. The hash, over all model caches, is computed in memory.
//! 2. The registry records it, durably. From here on no earlier files fit.
//! 3. The model caches are emptied, then the data caches written and synced, then the model caches written. They are the
//!    last to be whole, and need no sync: what a power cut leaves of them has the hash or has not.
//!
//! On loading, the model cache is copied to private memory, hashed there, compared in constant time, then used. A client's
//! data cache is copied, too: once a model is prepared, whatever becomes of the files is the client's affair. Only the
//! driver's own store is computed with where it lies, and rewritten by nobody meanwhile. So the store keeps the large data
//! of clients' caches that are in use, under the hash of their model caches: what it has of them needs no copy, as long as
//! the client's data caches look as they were left.
//!
//! A token may stand for several files at once, as two processes of a client with a directory each have it, if all hold
//! the same model. A save of another model voids what its token stood for before, in whatever files.
//!
//! Files may be reserved for what is compiled later. They are filled only if they and the registry still are as they were
//! left then: what the client has changed, emptied or used for something else stays as it is.

mod apart;
mod content;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod data_tests;
mod entry;
mod error;
mod files;
#[cfg(test)]
mod kept_tests;
mod mapped;
mod marker;
mod offline;
mod registry;
#[cfg(test)]
mod reserve_tests;
#[cfg(test)]
mod several_files_tests;
mod store;
#[cfg(test)]
mod store_tests;
mod table;
#[cfg(test)]
mod tests;

pub use content::{Content, Hash, Loaded, Origin, Parts};
pub use entry::{Entry, FileId, Key, Record, Token};
pub use error::CacheError;
pub use files::{CacheFiles, Reading};
pub use offline::{Offline, Recorded};
pub use registry::Registry;
pub use store::Store;
pub use table::Limits;

use crate::memory::Counted;
use crate::ops::{Interrupt, NeverInterrupted};
use apart::Writers;
use content::{
    data_facts, facts_of_head, hash, hash_data, head, head_len, identify, salt, same, LastChange, SALT,
};
use files::{FilesInUse, Lock};
use std::path::Path;

/// Largest model caches that are written, all together: nothing that steers is that large, and it is read whole.
const MAX_MODEL_BYTES: usize = 256 << 20;

/// How files were left that are to be filled later: what they must still be like.
#[derive(Clone, Debug)]
pub struct Reserved {
    /// What the model caches hold.
    record: Record,
    data: Vec<LastChange>,
}

/// What has become of files that were written.
struct Written {
    /// They are still locked.
    lock: Lock,
    /// Of the model caches.
    hash: Hash,
    /// The entries that were dropped for it.
    dropped: Vec<Key>,
}

/// The caches of all clients.
pub struct Cache {
    registry: Registry,
    /// Whether the files are the driver's own: one place for each key, data caches hashed as well, for people who look
    /// whether they are whole, and computed with where they lie.
    owns_files: bool,
    in_use: FilesInUse,
    writers: Writers,
}

impl Cache {
    /// Caches recorded in `directory`, which is made when it is first needed; without one, for the life of this process
    /// only. Entries that a driver of another `fingerprint` made are dropped.
    pub fn new(directory: Option<&Path>, fingerprint: &str) -> Self {
        let registry = Registry::new(directory, fingerprint, Limits::default());
        Cache::of(registry, false)
    }

    fn of(registry: Registry, owns_files: bool) -> Self {
        Cache { registry, owns_files, in_use: FilesInUse::default(), writers: Writers::default() }
    }

    /// Gets ready to load, for a client that asks about caching. It reads from the disk.
    pub fn open_ahead(&self) {
        self.registry.open_ahead();
    }

    /// Gets ready to load what an earlier driver has saved, for a start.
    pub fn open_left(&self) {
        self.registry.open_left();
    }

    /// Whether it is ready to load.
    pub fn is_open(&self) -> bool {
        self.registry.is_open()
    }

    /// Saves a compiled model in a client's files, in place of what was saved for `key` before. Gives where its data are
    /// from now on. An error where `interrupt` says that it is to stop: what is written by then goes on to its end, on a thread
    /// that nobody waits for.
    pub fn save(
        &self,
        key: &Key,
        files: &CacheFiles,
        content: Content,
        interrupt: &dyn Interrupt,
    ) -> Result<Origin, CacheError> {
        check_counts(files, content)?;
        let lock = files.lock(&self.in_use, interrupt)?;
        let Written { lock, hash, .. } = self.write(key, lock, content, interrupt)?;
        Ok(Origin { hash, data: lock.data_changes()? })
    }

    /// The hashes of the model caches that stand for `key`.
    pub fn hashes(&self, key: &Key) -> Result<Vec<Hash>, CacheError> {
        Ok(self.registry.get(key)?.iter().map(|entry| entry.record.hash).collect())
    }

    /// Whether a client's files are in use, and who wants them has to wait for a while.
    pub fn has_to_wait_for(&self, files: &CacheFiles) -> bool {
        files.are_waited_for(&self.in_use)
    }

    /// Has these files in use, for as long as what this gives is there; they are waited for.
    #[cfg(test)]
    pub fn hold(&self, files: &CacheFiles) -> impl Sized {
        files.lock(&self.in_use, &NeverInterrupted).unwrap().waited_for()
    }

    /// Empties a client's files of what was saved for `key` before, to be filled with what will be compiled. An error where
    /// `interrupt` says that the work is to stop.
    pub fn reserve(
        &self,
        key: &Key,
        files: &CacheFiles,
        interrupt: &dyn Interrupt,
    ) -> Result<Reserved, CacheError> {
        // It tells this reservation from all others.
        let ticket = salt::<SALT>()?;
        let lock = files.lock(&self.in_use, interrupt)?;
        let file = lock.first_model();
        // What the client has in other directories under this token is not concerned.
        let is_of_these = |entry: &Entry| entry.file == file;
        if self.registry.get(key)?.iter().any(is_of_these) {
            self.registry.remove(key, is_of_these)?;
        }
        let write = move |lock: &Lock| lock.write_model(&ticket);
        let (lock, written) = self.writers.write(key.uid, lock, interrupt, write)?;
        written?;
        let mut models = vec![&[][..]; files.counts().0];
        models[0] = &ticket;
        let record = Record {
            hash: hash(&[], &models, &NeverInterrupted)?,
            model_len: SALT as u64,
            data_len: 0,
            data_hash: None,
            model: 0,
        };
        Ok(Reserved { record, data: lock.data_changes()? })
    }

    /// Saves a compiled model in files that were reserved for it, if all is still as that left it.
    pub fn fill(
        &self,
        key: &Key,
        files: &CacheFiles,
        reserved: &Reserved,
        content: Content,
        interrupt: &dyn Interrupt,
    ) -> Result<(), CacheError> {
        check_counts(files, content)?;
        let lock = files.lock(&self.in_use, interrupt)?;
        let file = lock.first_model();
        if self.registry.get(key)?.iter().any(|entry| entry.file == file) {
            return Err(CacheError::Changed);
        }
        self.read(&lock, &[reserved.record], interrupt)?;
        if lock.data_changes()? != reserved.data {
            return Err(CacheError::DataChanged);
        }
        self.write(key, lock, content, interrupt).map(drop)
    }

    /// Writes files that are locked.
    fn write(
        &self,
        key: &Key,
        lock: Lock,
        content: Content,
        interrupt: &dyn Interrupt,
    ) -> Result<Written, CacheError> {
        let facts = data_facts(content.data, interrupt)?;
        let head = head(&salt::<SALT>()?, &facts);
        let model_len = content.models.iter().fold(head.len(), |len, model| len.saturating_add(model.len()));
        if model_len > MAX_MODEL_BYTES {
            return Err(CacheError::TooLarge(model_len));
        }
        let (file, id) = match self.owns_files {
            true => (FileId::STORE, 0),
            false => (lock.first_model(), identify(content.models, &facts)),
        };
        let record = Record {
            hash: hash(&head, content.models, interrupt)?,
            model_len: model_len as u64,
            data_len: facts.iter().map(|facts| facts.len).fold(0, u64::saturating_add),
            data_hash: if self.owns_files { Some(hash_data(content.data, interrupt)?) } else { None },
            model: id,
        };
        let kept = if self.owns_files { None } else { Some(content.keep()?) };
        // For the disk.
        interrupt.before_waiting();
        let dropped = self.registry.put(&Entry { key: *key, file, record, last_use: 0 })?;
        let (lock, written) = match kept {
            None => {
                let written = lock.write(&head, content);
                (lock, written)
            }
            Some(kept) => {
                let write = move |lock: &Lock| lock.write(&head, kept.content());
                // What takes longer than anybody waits for it may be whole in the end, and so stays recorded.
                self.writers.write(key.uid, lock, interrupt, write)?
            }
        };
        if written.is_err() {
            // It is a miss in any case; this only frees its place.
            self.registry.remove(key, |entry| entry.file == file)?;
        }
        written.map(|()| Written { lock, hash: record.hash, dropped })
    }

    /// The model caches, and which of `records` says that they are what was written.
    fn read(
        &self,
        lock: &Lock,
        records: &[Record],
        interrupt: &dyn Interrupt,
    ) -> Result<(Vec<Vec<u8>>, Counted, usize), CacheError> {
        let lengths = records.iter().map(|record| record.model_len);
        let (models, counted) = lock.read_models(lengths, interrupt)?;
        let found = hash(&[], &models, interrupt)?;
        let known = records.iter().position(|record| same(&found, &record.hash));
        known.map(|i| (models, counted, i)).ok_or(CacheError::Changed)
    }

    /// Loads what was saved for `key`, if the model caches still are what was saved.
    pub fn load(&self, key: &Key, files: &CacheFiles) -> Result<Loaded, CacheError> {
        self.load_beside(key, files, |_| None, Reading::FREELY)
    }

    /// The same; takes the data that the driver has `kept` itself of this origin, rather than copy the files', which is
    /// done `by` these terms. An error once the work is to stop.
    pub fn load_beside(
        &self,
        key: &Key,
        files: &CacheFiles,
        kept: impl FnOnce(&Origin) -> Option<Loaded>,
        by: Reading,
    ) -> Result<Loaded, CacheError> {
        let lock = files.lock(&self.in_use, by.interrupt)?;
        let entries = self.registry.get(key)?;
        if entries.is_empty() {
            return Err(CacheError::Unknown);
        }
        let records: Vec<_> = entries.iter().map(|entry| entry.record).collect();
        let (mut models, counted, i) = self.read(&lock, &records, by.interrupt)?;
        let facts = facts_of_head(&models[0]).ok_or(CacheError::Changed)?;
        if facts.len() != files.counts().1 {
            return Err(CacheError::Changed);
        }
        let origin = Origin { hash: entries[i].record.hash, data: lock.data_changes()? };
        // For the disk, maybe.
        by.interrupt.before_waiting();
        let kept = kept(&origin).filter(|kept| kept.facts == facts);
        let (data, kept) = match kept {
            Some(kept) => (kept.data, true),
            None if self.owns_files => (lock.map_data(&facts)?, true),
            None => (lock.copy_data(&facts, by)?, false),
        };
        self.registry.used(&entries[i]);
        models[0].drain(..head_len(facts.len()));
        Ok(Loaded { models, data, facts, origin, kept, _counted: counted })
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}

fn check_counts(files: &CacheFiles, content: Content) -> Result<(), CacheError> {
    let (given, needed) = (files.counts(), (content.models.len(), content.data.len()));
    let all = |(models, data): (usize, usize)| models + data;
    (given == needed).then_some(()).ok_or(CacheError::Count(all(given), all(needed)))
}
