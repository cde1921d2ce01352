//! The caches on disk, while no driver uses them: for people who want to know, never for a driver.
//!
//! Must make nothing: it opens what there is, and fails where there is nothing.

use super::content::{facts_of_head, hash, DataFacts};
use super::entry::Entry;
use super::files::data_file_len;
use super::store::{is_ours, path, paths, remove, DATA, MODEL, STORE};
use super::table::{self, Open};
use super::CacheError;
use crate::ops::NeverInterrupted;
use redb::Database;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};

/// What a driver keeps in its data directory.
pub struct Offline {
    /// What clients have in files of their own.
    pub clients: Option<Recorded>,
    /// The driver's own store.
    pub store: Option<Recorded>,
}

/// Entries of one registry, and what lies beside it.
pub struct Recorded {
    directory: PathBuf,
    database: Open,
    /// Whether the entries' files are here too.
    has_files: bool,
}

impl Offline {
    /// Opens the caches in a driver's data `directory`, and keeps drivers from using them while it lives.
    pub fn open(directory: &Path) -> Result<Self, CacheError> {
        let caches = Offline {
            clients: Recorded::open(directory, false)?,
            store: Recorded::open(&directory.join(STORE), true)?,
        };
        if caches.clients.is_none() && caches.store.is_none() {
            let directory = directory.display();
            return Err(CacheError::Offline(format!("no driver has kept anything in {directory}")));
        }
        Ok(caches)
    }
}

impl Recorded {
    fn open(directory: &Path, has_files: bool) -> Result<Option<Self>, CacheError> {
        let path = directory.join(table::FILE);
        if !path.is_file() {
            return Ok(None);
        }
        let refused = |why| CacheError::Offline(format!("{}: {why}", path.display()));
        let database = Open::ToWrite(table::open(&path, false).map_err(refused)?);
        Ok(Some(Recorded { directory: directory.into(), database, has_files }))
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
        let path = |kind, i| path(&self.directory, &entry.key, kind, i);
        let line = |path: &Path, why: &str| format!("{}: {why}", path.display());
        let count = paths(&self.directory, &entry.key, MODEL).len().max(1);
        let models: Vec<_> = (0..count).map(|i| path(MODEL, i)).collect();
        let record = &entry.record;
        let (mut faults, lens) = match read_models(&models, record.model_len) {
            Ok(found) if hash(&[], &found, &NeverInterrupted).is_ok_and(|hash| hash == record.hash) => {
                (Vec::new(), facts_of_head(&found[0]).map(lens))
            }
            Ok(_) => (vec![line(&models[0], OTHER)], None),
            Err((path, why)) => (vec![line(path, &why)], None),
        };
        // Which data belong to a model, that says itself; without it, one file is known to have all.
        let alone = paths(&self.directory, &entry.key, DATA).len() <= 1;
        let Some(lens) = lens.or_else(|| alone.then(|| vec![record.data_len])) else { return faults };
        let (mut hasher, mut whole) = (Sha256::new(), true);
        for (i, &len) in lens.iter().enumerate() {
            match read(&path(DATA, i), data_file_len(len).unwrap_or(u64::MAX)) {
                Ok(bytes) => hasher.update(&bytes[..len as usize]),
                Err(why) => {
                    whole = false;
                    faults.push(line(&path(DATA, i), &why));
                }
            }
        }
        let found: [u8; 32] = hasher.finalize().into();
        if whole && record.data_hash.is_some_and(|hash| hash != found) {
            faults.push(line(&path(DATA, 0), OTHER));
        }
        faults
    }
}

/// The lengths of data caches.
fn lens(facts: Vec<DataFacts>) -> Vec<u64> {
    facts.iter().map(|facts| facts.len).collect()
}

const OTHER: &str = "it is not what was saved: its hash is another";

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

/// Model files, which should have `len` bytes together; else which one is wrong, and why.
fn read_models(paths: &[PathBuf], len: u64) -> Result<Vec<Vec<u8>>, (&PathBuf, String)> {
    let (mut models, mut left) = (Vec::new(), len);
    for (i, path) in paths.iter().enumerate() {
        let last = i + 1 == paths.len();
        let model = read_up_to(path, left).map_err(|why| (path, why))?;
        let fits = if last { model.len() as u64 == left } else { model.len() as u64 <= left };
        if !fits {
            return Err((path, format!("it has not the {left} bytes that were written")));
        }
        left -= model.len() as u64;
        models.push(model);
    }
    Ok(models)
}

/// A file that should have `len` bytes; else what is wrong with it.
fn read(path: &Path, len: u64) -> Result<Vec<u8>, String> {
    let bytes = read_up_to(path, len)?;
    let fits = bytes.len() as u64 == len;
    fits.then_some(bytes).ok_or_else(|| format!("it has not the {len} bytes that were written"))
}

/// One byte more than there should be tells that there are too many.
fn read_up_to(path: &Path, len: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(len.saturating_add(1)).read_to_end(&mut bytes));
    read.map(|_| bytes).map_err(|why| format!("it cannot be read: {why}"))
}
