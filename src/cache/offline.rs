//! The caches on disk, while no driver uses them: for people who want to know, never for a driver.
//!
//! Must make nothing: it opens what there is, and fails where there is nothing.

use super::entry::{Entry, Key};
use super::files::data_file_len;
use super::store::{is_ours, paths, remove, STORE};
use super::table::{self, Open};
use super::{hash, CacheError};
use redb::Database;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};

/// What a driver keeps in its data directory.
pub struct Offline {
    /// What clients have in files of their own.
    pub clients: Option<Shelf>,
    /// The driver's own store.
    pub store: Option<Shelf>,
}

/// Entries of one registry, and what lies beside it.
pub struct Shelf {
    directory: PathBuf,
    database: Open,
    /// Whether the entries' files are here too.
    has_files: bool,
}

impl Offline {
    /// Opens the caches in a driver's data `directory`, and keeps drivers from using them while it lives.
    pub fn open(directory: &Path) -> Result<Self, CacheError> {
        let caches = Offline {
            clients: Shelf::open(directory, false)?,
            store: Shelf::open(&directory.join(STORE), true)?,
        };
        if caches.clients.is_none() && caches.store.is_none() {
            let directory = directory.display();
            return Err(CacheError::Offline(format!("no driver has kept anything in {directory}")));
        }
        Ok(caches)
    }
}

impl Shelf {
    fn open(directory: &Path, has_files: bool) -> Result<Option<Self>, CacheError> {
        let path = directory.join(table::FILE);
        if !path.is_file() {
            return Ok(None);
        }
        let refused = |why| CacheError::Offline(format!("{}: {why}", path.display()));
        let database = Open::ToWrite(table::open(&path, false).map_err(refused)?);
        Ok(Some(Shelf { directory: directory.into(), database, has_files }))
    }

    /// Of the driver that made the entries.
    pub fn fingerprint(&self) -> Result<Option<String>, CacheError> {
        self.database.fingerprint().map_err(failed)
    }

    /// The last used first.
    pub fn entries(&self) -> Result<Vec<Entry>, CacheError> {
        let mut entries = self.database.entries().map_err(failed)?;
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.last_use));
        Ok(entries)
    }

    /// Forgets all entries, and deletes their files. How many there were.
    pub fn clear(&self) -> Result<usize, CacheError> {
        // First the entries: files without an entry are garbage, an entry without files is a lie.
        let count = self.database.write(table::empty).map_err(failed)?;
        if self.has_files {
            let io = |why| CacheError::Offline(format!("{}: {why}", self.directory.display()));
            let files = std::fs::read_dir(&self.directory).map_err(io)?.flatten().map(|file| file.path());
            files.filter(|path| is_ours(path)).for_each(|path| remove(&path));
        }
        Ok(count)
    }

    /// All that is wrong, a line each.
    pub fn faults(&mut self) -> Vec<String> {
        let registry = self.directory.join(table::FILE);
        let Open::ToWrite(database) = &mut self.database else { return Vec::new() };
        let mut faults = Vec::from_iter(damage(database).map(|why| format!("{}: {why}", registry.display())));
        match self.entries() {
            Ok(entries) if self.has_files => {
                faults.extend(entries.iter().flat_map(|entry| self.faults_of(entry)));
            }
            Ok(_) => {}
            Err(why) if faults.is_empty() => faults.push(format!("{}: {why}", registry.display())),
            Err(_) => {}
        }
        faults
    }

    /// What is wrong with an entry's files.
    fn faults_of(&self, entry: &Entry) -> Vec<String> {
        let (record, [model, data]) = (&entry.record, self.paths(&entry.key));
        let model_fault = fault(&model, record.model_len, |bytes| hash(bytes) == record.hash);
        let data_fault = fault(&data, data_file_len(record.data_len).unwrap_or(u64::MAX), |bytes| {
            let data = &bytes[..record.data_len as usize];
            record.data_hash.is_none_or(|hash| Sha256::digest(data)[..] == hash)
        });
        let lines = [(model, model_fault), (data, data_fault)];
        lines.into_iter().filter_map(|(path, why)| Some(format!("{}: {}", path.display(), why?))).collect()
    }

    fn paths(&self, key: &Key) -> [PathBuf; 2] {
        paths(&self.directory, key)
    }
}

fn failed(why: redb::Error) -> CacheError {
    CacheError::Offline(why.to_string())
}

/// What is wrong with a registry itself.
fn damage(database: &mut Database) -> Option<String> {
    // redb takes some of what it finds for granted.
    match catch_unwind(AssertUnwindSafe(|| database.check_integrity())) {
        Ok(Ok(true)) => None,
        Ok(Ok(false)) => Some("it was damaged, and is repaired".into()),
        Ok(Err(why)) => Some(format!("it is damaged: {why}")),
        Err(_) => Some("it is damaged: checking it failed".into()),
    }
}

/// What is wrong with a file that should have `len` bytes and be `right`.
fn fault(path: &Path, len: u64, right: impl FnOnce(&[u8]) -> bool) -> Option<String> {
    let mut bytes = Vec::new();
    // One byte more than there should be tells that there are too many.
    let read = File::open(path).and_then(|file| file.take(len.saturating_add(1)).read_to_end(&mut bytes));
    match read {
        Err(why) => Some(format!("it cannot be read: {why}")),
        Ok(_) if bytes.len() as u64 != len => Some(format!("it has not the {len} bytes that were written")),
        Ok(_) if !right(&bytes) => Some("it is not what was saved: its hash is another".into()),
        Ok(_) => None,
    }
}
