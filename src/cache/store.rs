//! The driver's own store of compiled models, for clients that give no cache files.
//!
//! Its entries are files in the driver's data directory, saved and loaded as a client's are, under the hash of the
//! model's content in place of a token. What the store loses is compiled again, so nothing here is an error to a
//! client.

use super::{Cache, CacheError, CacheFiles, Key, Limits, Loaded, Registry};
use crate::memory::Weights;
use std::collections::HashSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The store's place in the driver's data directory.
pub(super) const STORE: &str = "store";
const KINDS: [&str; 2] = ["model", "data"];

/// Compiled models of all clients; none sees another's.
pub struct Store {
    cache: Cache,
    directory: PathBuf,
    most_bytes: u64,
    swept: Mutex<bool>,
    /// Held by who saves until it has deleted what was dropped: one of those may be saved again.
    saving: Mutex<()>,
}

impl Store {
    /// A store of up to `most_bytes` in the driver's data `directory`.
    pub fn new(directory: &Path, fingerprint: &str, most_bytes: u64) -> Self {
        let directory = directory.join(STORE);
        let limits = Limits { bytes: most_bytes, ..Limits::default() };
        let cache =
            Cache { registry: Registry::new(Some(&directory), fingerprint, limits), owns_files: true };
        Store { cache, directory, most_bytes, swept: Mutex::default(), saving: Mutex::default() }
    }

    /// What was saved for `key`.
    pub fn load(&self, key: &Key) -> Option<Loaded> {
        self.sweep();
        let files = self.files(key, false).ok()?;
        let loaded = self.cache.load(key, &files);
        loaded.inspect_err(|why| log::info!("a compiled model is not loaded from the store: {why}")).ok()
    }

    pub fn save(&self, key: &Key, model: &[u8], data: &[(u64, Weights)]) -> Result<(), CacheError> {
        self.sweep();
        let size = data.last().map_or(0, |(start, part)| start + part.len() as u64) + model.len() as u64;
        if size > self.most_bytes / 2 {
            return Err(CacheError::TooLarge(size as usize)); // it would drive out all others
        }
        let _alone = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let files = self.files(key, true)?;
        let lock = files.lock()?;
        if lock.is_mapped() {
            return Ok(()); // another compilation of it was saved meanwhile, and is in use
        }
        let saved = self.cache.write(key, &lock, model, data, None);
        drop(lock);
        match &saved {
            Ok((_, dropped)) => dropped.iter().for_each(|key| self.delete(key)),
            Err(_) => self.delete(key),
        }
        saved.map(drop)
    }

    /// How many models lie in the store of a driver's data `directory`, whoever uses it meanwhile.
    pub fn count(directory: &Path) -> usize {
        let files = std::fs::read_dir(directory.join(STORE)).into_iter().flatten().flatten();
        let whole = |file: &std::fs::DirEntry| {
            // The model is what is written last.
            let model = file.path().extension().is_some_and(|kind| kind == KINDS[0]);
            model && file.metadata().is_ok_and(|facts| facts.len() > 0)
        };
        files.filter(whole).count()
    }

    fn files(&self, key: &Key, create: bool) -> Result<CacheFiles, CacheError> {
        let open =
            |path: &PathBuf| File::options().read(true).write(true).create(create).truncate(false).open(path);
        let [model, data] = paths(&self.directory, key);
        let model = open(&model).map_err(|why| CacheError::Io { what: "model", why })?;
        let data = open(&data).map_err(|why| CacheError::Io { what: "data", why })?;
        CacheFiles::new(&[model], &[data])
    }

    fn delete(&self, key: &Key) {
        paths(&self.directory, key).iter().for_each(|path| remove(path));
    }

    /// Once: removes files that nothing is recorded for, of another driver or of a save that did not come to its end.
    /// Until the registry can be read that is tried again, and with it the directory is made.
    fn sweep(&self) {
        // Held, so that nobody makes new files meanwhile.
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if *swept {
            return;
        }
        let Ok(entries) = self.cache.registry.list() else { return };
        *swept = true;
        let known: HashSet<PathBuf> =
            entries.iter().flat_map(|entry| paths(&self.directory, &entry.key)).collect();
        let Ok(files) = std::fs::read_dir(&self.directory) else { return };
        files.flatten().map(|file| file.path()).for_each(|path| {
            if is_ours(&path) && !known.contains(&path) {
                remove(&path);
            }
        });
    }
}

/// Where the model and the data of an entry are.
pub(super) fn paths(directory: &Path, key: &Key) -> [PathBuf; 2] {
    let hash: String = key.token.iter().map(|byte| format!("{byte:02x}")).collect();
    KINDS.map(|kind| directory.join(format!("{}-{hash}.{kind}", key.uid)))
}

/// Whether a file is one of the store's compiled models, by its name.
pub(super) fn is_ours(path: &Path) -> bool {
    KINDS.iter().any(|kind| path.extension().is_some_and(|extension| extension == *kind))
}

pub(super) fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(why) if why.kind() != ErrorKind::NotFound => {
            log::warn!("{} stays in the store: {why}", path.display());
        }
        _ => {}
    }
}
