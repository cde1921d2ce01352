//! The driver's own store of compiled models, for clients that give no cache files, and of large data that belong to those
//! who do: a client may change its files, so a driver that has only these copies what it computes with.
//!
//! Its entries are files in the driver's data directory, saved and loaded as a client's are, under the hash of the
//! model's content in place of a token. A model that the store loses is compiled again, so nothing here is an error to
//! a client.

use super::content::data_len;
use super::{
    Cache, CacheError, CacheFiles, Content, Entry, Hash, Key, Limits, Loaded, Origin, Parts, Registry,
};
use crate::ops::Interrupt;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, SystemTime};

/// The store's place in the driver's data directory.
pub(super) const STORE: &str = "store";
pub(super) const MODEL: &str = "model";
pub(super) const DATA: &str = "data";

/// Compiled models of all clients; none sees another's.
pub struct Store {
    cache: Cache,
    directory: PathBuf,
    most_bytes: u64,
    /// The opening of the registry after which the directory was swept.
    swept: Mutex<Option<u64>>,
    /// Held from a save until the dropped files are deleted, because one of them may be saved again. As a save waits for the
    /// disk, nobody waits for this.
    saving: Mutex<()>,
    /// What is to be forgotten once the save ends that is under way.
    to_forget: Mutex<Vec<Key>>,
    /// The models and bytes that it held when it was last counted.
    models: AtomicU64,
    bytes: AtomicU64,
}

/// The only one who saves or deletes.
type Alone<'s> = MutexGuard<'s, ()>;

/// A model that nobody has loaded for so long is freed: its app may be gone, and drivers are not told of that.
const LONGEST_UNUSED: Duration = Duration::from_secs(90 * DAY);
/// The disk notes when a model was last loaded, as its file's time, but no more often than this.
const NOTED_EVERY: Duration = Duration::from_secs(DAY);
const DAY: u64 = 24 * 3600;

/// Nobody has looked yet.
const UNKNOWN: u64 = u64::MAX;

impl Store {
    /// A store of up to `most_bytes` in the driver's data `directory`.
    pub fn new(directory: &Path, fingerprint: &str, most_bytes: u64) -> Self {
        let limits = Limits { bytes: most_bytes, ..Limits::default() };
        let registry = Registry::within(directory, STORE, fingerprint, limits);
        let directory = directory.join(STORE);
        let cache = Cache::of(registry, true);
        let (swept, saving, to_forget) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (models, bytes) = (AtomicU64::new(UNKNOWN), AtomicU64::new(0));
        Store { cache, directory, most_bytes, swept, saving, to_forget, models, bytes }
    }

    /// Opens the registry that an earlier driver has left, so that no client waits for the disk to do it. Without one nothing is
    /// stored, and it is made with the first save: to make it waits for the disk, and so would the first compilation.
    pub fn open_ahead(&self) {
        if !self.is_ready() {
            self.measure(&[]);
        }
    }

    /// Whether anything was saved for this client under a token that begins so.
    pub fn has_like(&self, uid: u32, prefix: &[u8]) -> bool {
        self.is_ready() && self.cache.registry.has_like(uid, prefix).unwrap_or(false)
    }

    /// What was saved for `key`.
    pub fn load(&self, key: &Key) -> Result<Loaded, CacheError> {
        self.find(key).inspect_err(|why| log::info!("a compiled model is not loaded from the store: {why}"))
    }

    /// Keeps the data that a client's caches of this origin hold.
    pub fn keep_data(
        &self,
        uid: u32,
        of: &Origin,
        data: &[Parts],
        interrupt: &dyn Interrupt,
    ) -> Result<(), CacheError> {
        // What steers is the client's to keep. The head of this entry's model says what the data are like.
        self.save(&Key { uid, token: of.hash }, Content { models: &[of.data_to_bytes()], data }, interrupt)
    }

    /// The data that a client's caches of this origin held when they were kept, if the client has not touched its files
    /// since: what it has changed, or cut, is to be looked at.
    pub fn data_of(&self, uid: u32, of: &Origin) -> Option<Loaded> {
        let kept = self.find(&Key { uid, token: of.hash }).ok()?;
        (kept.models == [of.data_to_bytes()]).then_some(kept)
    }

    /// Forgets the data caches of a client's model caches that are no more: now, or when the save ends that is under way.
    pub fn forget_data(&self, uid: u32, of: Hash) {
        let key = Key { uid, token: of };
        let registry = &self.cache.registry;
        if !registry.is_there() || !registry.get(&key).is_ok_and(|entries| !entries.is_empty()) {
            return;
        }
        let mut to_forget = lock(&self.to_forget);
        if !to_forget.contains(&key) {
            to_forget.push(key);
        }
        drop(to_forget);
        if let Some(alone) = self.alone() {
            self.forget_due(&alone);
        }
    }

    /// Forgets what is to be forgotten.
    fn forget_due(&self, _: &Alone) {
        let keys = std::mem::take(&mut *lock(&self.to_forget));
        if self.forget(&keys) && !keys.is_empty() {
            self.cache.registry.list().iter().for_each(|entries| self.measure(entries));
        }
    }

    /// Forgets entries and deletes their files, if the registry can be written.
    fn forget(&self, keys: &[Key]) -> bool {
        // Their files stay as long as they are recorded: without them a load would fail.
        let forgotten = keys.is_empty() || self.cache.registry.remove_all(keys).is_ok();
        if forgotten {
            keys.iter().for_each(|key| self.delete(key));
        }
        forgotten
    }

    /// `None` while a model is saved.
    fn alone(&self) -> Option<Alone<'_>> {
        match self.saving.try_lock() {
            Ok(alone) => Some(alone),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether a model is saved now: another one would have to wait.
    pub fn is_saving(&self) -> bool {
        self.alone().is_none()
    }

    /// Gets what is stored ready to be read; false where nothing is.
    fn is_ready(&self) -> bool {
        let is_there = self.cache.registry.is_there();
        if is_there {
            self.sweep();
        }
        is_there
    }

    fn find(&self, key: &Key) -> Result<Loaded, CacheError> {
        if !self.is_ready() {
            return Err(CacheError::Unknown);
        }
        let (models, data) = (open(&self.paths(key, MODEL), false)?, open(&self.paths(key, DATA), false)?);
        let files = CacheFiles::new(&models, &data)?;
        let loaded = self.cache.load(key, &files);
        if let (Ok(_), [model, ..]) = (&loaded, &models[..]) {
            note_use(model);
        }
        loaded
    }

    /// How many models it held, and of how many bytes, when that was looked at last; `None` before it was first used.
    /// Waits for nothing.
    pub fn size(&self) -> Option<(u64, u64)> {
        let [models, bytes] = [&self.models, &self.bytes].map(|count| count.load(Ordering::Relaxed));
        (models != UNKNOWN).then_some((models, bytes))
    }

    /// Bytes that it may hold.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    fn measure(&self, entries: &[Entry]) {
        let bytes = |entry: &Entry| entry.record.model_len.saturating_add(entry.record.data_len);
        self.bytes.store(entries.iter().map(bytes).fold(0, u64::saturating_add), Ordering::Relaxed);
        self.models.store(entries.len() as u64, Ordering::Relaxed);
    }

    /// Saves a compiled model, in place of what was saved for `key` before. Does not wait for another save: the store is busy then.
    /// What is hashed before comes by the yield points of `interrupt`.
    pub fn save(&self, key: &Key, content: Content, interrupt: &dyn Interrupt) -> Result<(), CacheError> {
        self.sweep();
        let models = content.models.iter().map(|model| model.len() as u64);
        let size = models.chain(content.data.iter().map(data_len)).fold(0, u64::saturating_add);
        if size > self.most_bytes / 2 {
            return Err(CacheError::TooLarge(size as usize)); // it would drive out all others
        }
        let alone = self.alone().ok_or(CacheError::Busy)?;
        let make = |kind, count| {
            let paths: Vec<_> = (0..count).map(|i| path(&self.directory, key, kind, i)).collect();
            open(&paths, true)
        };
        let (models, data) = (make(MODEL, content.models.len())?, make(DATA, content.data.len())?);
        let files = CacheFiles::new(&models, &data)?;
        let lock = files.lock(&self.cache.in_use, interrupt)?;
        if lock.is_mapped() {
            return Ok(()); // another compilation of it was saved meanwhile, and is in use
        }
        // More files than it has now would be taken for its own.
        let surplus = |kind, count| self.paths(key, kind).into_iter().skip(count);
        surplus(MODEL, models.len()).chain(surplus(DATA, data.len())).for_each(|path| remove(&path));
        let saved = self.cache.write(key, lock, content, interrupt).map(|written| written.dropped);
        match &saved {
            Ok(dropped) => dropped.iter().for_each(|key| self.delete(key)),
            Err(_) => self.delete(key),
        }
        if let Ok(entries) = self.cache.registry.list() {
            let kept = self.free_unused(entries);
            self.measure(&kept);
        }
        self.forget_due(&alone);
        saved.map(drop)
    }

    /// Frees what was not loaded for long, all at once as that waits for the disk; gives the others.
    fn free_unused(&self, entries: Vec<Entry>) -> Vec<Entry> {
        let is_used = |entry: &Entry| !is_unused(&path(&self.directory, &entry.key, MODEL, 0));
        let (mut used, unused): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_used);
        let keys: Vec<_> = unused.iter().map(|entry| entry.key).collect();
        if !self.forget(&keys) {
            used.extend(unused);
        }
        used
    }

    /// How many models lie in the store of a driver's data `directory`, whoever uses it meanwhile.
    pub fn count(directory: &Path) -> usize {
        let files = std::fs::read_dir(directory.join(STORE)).into_iter().flatten().flatten();
        let whole = |file: &std::fs::DirEntry| {
            // The model's file is written last.
            let model = file.path().extension().is_some_and(|kind| kind == MODEL);
            model && file.metadata().is_ok_and(|facts| facts.len() > 0)
        };
        files.filter(whole).count()
    }

    fn paths(&self, key: &Key, kind: &str) -> Vec<PathBuf> {
        paths(&self.directory, key, kind)
    }

    fn delete(&self, key: &Key) {
        [MODEL, DATA].iter().flat_map(|kind| self.paths(key, kind)).for_each(|path| remove(&path));
    }

    /// Once the registry was opened: removes files that nothing is recorded for, of another driver, of a save that did not come
    /// to its end, or of a registry that was damaged. Until it can be read that is tried again, and with it the directory is made.
    fn sweep(&self) {
        let mut swept = lock(&self.swept);
        if *swept == Some(self.cache.registry.opening()) {
            return;
        }
        // A save under way has files that are not recorded yet. The next call sweeps. Held, so that nobody makes new files meanwhile.
        let Some(_alone) = self.alone() else { return };
        let Ok(entries) = self.cache.registry.list() else { return };
        *swept = Some(self.cache.registry.opening());
        // Others look up what is there, while this waits for the disk.
        drop(swept);
        let entries = self.free_unused(entries);
        self.measure(&entries);
        let paths = |key| [MODEL, DATA].into_iter().flat_map(move |kind| self.paths(key, kind));
        let known: HashSet<PathBuf> = entries.iter().flat_map(|entry| paths(&entry.key)).collect();
        let Ok(files) = std::fs::read_dir(&self.directory) else { return };
        files.flatten().map(|file| file.path()).for_each(|path| {
            if is_ours(&path) && !known.contains(&path) {
                remove(&path);
            }
        });
    }
}

/// The files of one kind that an entry has.
pub(super) fn paths(directory: &Path, key: &Key, kind: &str) -> Vec<PathBuf> {
    (0..).map(|i| path(directory, key, kind, i)).take_while(|path| path.exists()).collect()
}

/// Where file `i` of one kind of an entry is.
pub(super) fn path(directory: &Path, key: &Key, kind: &str, i: usize) -> PathBuf {
    let hash: String = key.token.iter().map(|byte| format!("{byte:02x}")).collect();
    let number = if i == 0 { String::new() } else { i.to_string() };
    directory.join(format!("{}-{hash}.{kind}{number}", key.uid))
}

/// Opens files, whatever they hold.
fn open(paths: &[PathBuf], create: bool) -> Result<Vec<File>, CacheError> {
    let open = |path| File::options().read(true).write(true).create(create).truncate(false).open(path);
    paths.iter().map(open).collect::<Result<_, _>>().map_err(|why| CacheError::Io { what: "stored", why })
}

/// Whether nobody has loaded the model in this file for long, or it is not there, as after a crash: nobody can.
fn is_unused(model: &Path) -> bool {
    match std::fs::metadata(model).and_then(|facts| facts.modified()) {
        // A time that lies ahead tells nothing.
        Ok(used) => SystemTime::now().duration_since(used).is_ok_and(|since| since >= LONGEST_UNUSED),
        Err(why) => why.kind() == ErrorKind::NotFound,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that a model was loaded now. If that fails, the model is freed too early, and compiled again.
fn note_use(model: &File) {
    let noted = model.metadata().and_then(|facts| facts.modified());
    let now = SystemTime::now();
    let lately = |noted: SystemTime| now.duration_since(noted).is_ok_and(|since| since < NOTED_EVERY);
    if !noted.is_ok_and(lately) {
        if let Err(why) = model.set_modified(now) {
            log::debug!("the use of a stored model cannot be noted: {why}");
        }
    }
}

/// Whether a file is one of the store's compiled models, by its name.
pub(super) fn is_ours(path: &Path) -> bool {
    let Some(extension) = path.extension().and_then(OsStr::to_str) else { return false };
    let number = [MODEL, DATA].iter().find_map(|kind| extension.strip_prefix(kind));
    number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
}

pub(super) fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(why) if why.kind() != ErrorKind::NotFound => {
            log::warn!("{} stays in the store: {why}", path.display());
        }
        _ => {}
    }
}
