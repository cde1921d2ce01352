//! What a driver does with its caches in some of its lives, and what must hold of them ever after.
//!
//! It speaks to the caches themselves: whether what is loaded is what was saved can be told to the byte.

use super::changes::mark;
use nnhal::cache::{Cache, CacheFiles, Content, Key, Loaded, Offline, Parts, Store};
use nnhal::memory::{AlignedBuf, ClientSlice};
use nnhal::ops::NeverInterrupted;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Which model a client's token stands for: it is saved anew now and then.
pub type Version = u8;

pub const FIRST: Version = b'A';
pub const SECOND: Version = b'B';
/// What [`heal`] saves.
pub const LAST: Version = b'C';

/// Marks before and after the second version is saved under the first one's token.
pub const SAVING: &str = "saving";
pub const SAVED: &str = "saved";

/// Room for two models in the driver's own store.
const STORE_BYTES: u64 = 12_000;
/// Far more than a registry of a few entries has.
const MOST_REGISTRY_BYTES: u64 = 4 << 20;

/// The driver's data directory.
pub fn data(root: &Path) -> PathBuf {
    root.join("data")
}

/// Makes the files of the client, which its driver finds there.
pub fn make_files(root: &Path) {
    for number in 1..=2 {
        files(root, number);
    }
}

/// A client's files for its token of this number.
fn files(root: &Path, number: u8) -> CacheFiles {
    let open = |kind: &str| {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        options.open(root.join(format!("{kind}{number}"))).expect("a file of the client's")
    };
    CacheFiles::new(&[open("model")], &[open("data")]).expect("files")
}

fn key(number: u8) -> Key {
    Key { uid: 1000, token: [number; 32] }
}

/// What is saved of a model: what steers, and data in two parts.
struct Compiled([Vec<u8>; 1], [Parts; 1]);

impl Compiled {
    fn new(version: Version, number: u8) -> Self {
        let bytes = |len: usize| (0..len).map(|i| version ^ number ^ i as u8).collect::<Vec<u8>>();
        let part = |start, len| (start, AlignedBuf::copy_of(&bytes(len)).expect("memory").into());
        Compiled([bytes(900)], [vec![part(0, 700), part(1024, 3000)]])
    }

    fn content(&self) -> Content<'_> {
        Content { models: &self.0, data: &self.1 }
    }

    fn is(&self, loaded: &Loaded) -> bool {
        let data = |i: usize| {
            let slice = ClientSlice::new(loaded.data[i].clone(), 0, loaded.data[i].len()).expect("a slice");
            slice.to_private().expect("bytes").to_vec()
        };
        let mut expected = Vec::new();
        for (start, part) in &self.1[0] {
            expected.resize(*start as usize, 0);
            expected.extend_from_slice(&part.to_private().expect("bytes"));
        }
        loaded.models == self.0 && loaded.data.len() == 1 && data(0) == expected
    }
}

/// Says what is wrong if what was loaded is none of these versions of this number.
fn judge(what: &str, loaded: &Loaded, number: u8, versions: &[Version]) -> Result<(), String> {
    let fits = versions.iter().any(|&version| Compiled::new(version, number).is(loaded));
    fits.then_some(()).ok_or_else(|| format!("{what} gave none of {versions:?}"))
}

/// A driver's caches, open.
struct Keeper {
    cache: Cache,
    store: Store,
}

impl Keeper {
    fn start(root: &Path) -> Self {
        let data = data(root);
        let keeper = Keeper {
            cache: Cache::new(Some(&data), "driver"),
            store: Store::new(&data, "driver", STORE_BYTES),
        };
        keeper.cache.open_ahead();
        keeper.store.open_ahead();
        keeper
    }

    /// Whether it was saved in a client's files.
    fn save(&self, files: &CacheFiles, version: Version, number: u8) -> Result<(), String> {
        let saved =
            self.cache.save(&key(number), files, Compiled::new(version, number).content(), &NeverInterrupted);
        saved.map(|_hash| ()).map_err(|why| why.to_string())
    }

    /// Loads from a client's files; whether there was anything.
    fn load(&self, files: &CacheFiles, number: u8, versions: &[Version]) -> Result<bool, String> {
        match self.cache.load(&key(number), files) {
            Ok(loaded) => judge("a client's file", &loaded, number, versions).map(|()| true),
            Err(_) => Ok(false),
        }
    }

    fn store(&self, number: u8) -> Result<(), String> {
        let saved = self.store.save(&key(number), Compiled::new(FIRST, number).content(), &NeverInterrupted);
        saved.map_err(|why| why.to_string())
    }

    fn load_stored(&self, number: u8) -> Result<bool, String> {
        if !self.store.has_like(key(number).uid, &[number]) {
            return Ok(false);
        }
        match self.store.load(&key(number)) {
            Ok(loaded) => judge("the store", &loaded, number, &[FIRST]).map(|()| true),
            Err(_) => Ok(false),
        }
    }
}

/// Files that are opened ahead of what a driver does.
pub struct Files([CacheFiles; 2]);

impl Files {
    pub fn open(root: &Path) -> Self {
        Files([files(root, 1), files(root, 2)])
    }
}

/// Leaves the registry marked as by two drivers that died while they opened it.
fn mark_damaged(root: &Path) {
    let mark = File::options().write(true).open(data(root).join("registry.mark"));
    let _ = mark.and_then(|mark| mark.write_all_at(b"so", 0)); // it may fail, as all else
}

/// Three lives of a driver, the last over a registry that those before are said to have died of. Gives which versions the first token may stand for afterwards; else what went wrong, which is no
/// failure to save, but anything else than what was saved.
pub fn work(root: &Path, files: &Files) -> Result<Vec<Version>, String> {
    let Files([first, second]) = files;
    let mut versions = vec![FIRST];
    {
        let driver = Keeper::start(root);
        let _ = driver.save(first, FIRST, 1); // it may fail
        driver.load(first, 1, &versions)?;
        let compiled = Compiled::new(FIRST, 2);
        let reserved = driver.cache.reserve(&key(2), second, &NeverInterrupted);
        let _ = reserved.and_then(|reserved| {
            driver.cache.fill(&key(2), second, &reserved, compiled.content(), &NeverInterrupted)
        });
        for number in 1..=2 {
            let _ = driver.store(number);
        }
    }
    {
        let driver = Keeper::start(root);
        driver.load(first, 1, &versions)?;
        driver.load(second, 2, &[FIRST])?;
        driver.load_stored(1)?;
        mark(root, SAVING);
        versions = match driver.save(first, SECOND, 1) {
            Ok(()) => vec![SECOND],
            Err(_) => vec![FIRST, SECOND],
        };
        mark(root, SAVED);
        driver.load(first, 1, &versions)?;
        // The first is dropped for it.
        let _ = driver.store(3);
        for number in 1..=3 {
            driver.load_stored(number)?;
        }
    }
    mark_damaged(root);
    let driver = Keeper::start(root);
    driver.load(first, 1, &versions)?;
    let _ = driver.save(first, SECOND, 1);
    driver.load(first, 1, &versions)?;
    Ok(versions)
}

/// Does `look` while a driver has both registries open to write.
pub fn while_it_runs<T>(root: &Path, look: impl FnOnce() -> T) -> T {
    let driver = Keeper::start(root);
    driver.save(&files(root, 2), FIRST, 2).expect("saved");
    driver.store(5).expect("stored");
    look()
}

/// What a fresh driver finds, and whether it works: it loads what was saved or nothing, saves, and leaves nothing behind.
/// How many of its loads found something at first.
pub fn heal(root: &Path, versions: &[Version]) -> Result<usize, String> {
    let mut hits = 0;
    let mut listings = Vec::new();
    for life in 0..3 {
        let (first, second) = (files(root, 1), files(root, 2));
        {
            let driver = Keeper::start(root);
            let allowed = if life == 0 { versions } else { &[LAST] };
            let found = driver.load(&first, 1, allowed)?;
            let stored = driver.load_stored(4)?;
            if life == 0 {
                let loads = [found, driver.load(&second, 2, &[FIRST])?];
                hits += loads.into_iter().filter(|&found| found).count();
                for number in 1..=3 {
                    hits += usize::from(driver.load_stored(number)?);
                }
            } else if !found || !stored {
                return Err(format!("what was saved is not loaded in life {life}: {found}, {stored}"));
            }
            driver.save(&first, LAST, 1).map_err(|why| format!("cannot save: {why}"))?;
            driver.store(4).map_err(|why| format!("cannot store: {why}"))?;
            let now = (driver.load(&first, 1, &[LAST])?, driver.load_stored(4)?);
            if now != (true, true) {
                return Err(format!("what is saved is not loaded: {now:?}"));
            }
        }
        listings.push(listing(root)?);
    }
    match listings[1] == listings[2] {
        true => Ok(hits),
        false => Err(format!("what is kept grows: {listings:?}")),
    }
}

/// What lies in the data directory, if it is no more than may lie there.
pub fn listing(root: &Path) -> Result<Vec<PathBuf>, String> {
    let stored = Offline::open(&data(root)).map_err(|why| why.to_string())?.store;
    let entries = stored.ok_or("there is no store")?.entries().map_err(|why| why.to_string())?.len();
    let (mut all, mut models) = (Vec::new(), 0);
    for directory in [data(root), data(root).join("store")] {
        for file in std::fs::read_dir(&directory).map_err(|why| why.to_string())?.flatten() {
            let path = file.path();
            let name = file.file_name().into_string().unwrap_or_default();
            let len = file.metadata().map_err(|why| why.to_string())?.len();
            match &name[..] {
                "registry.redb" | "registry.damaged" if len <= MOST_REGISTRY_BYTES => {}
                "registry.mark" if len <= 16 => {}
                "store" => {}
                _ if name.ends_with(".model") || name.ends_with(".data") => models += 1,
                _ => return Err(format!("{} of {len} bytes is left behind", path.display())),
            }
            all.push(path);
        }
    }
    if models > 2 * entries {
        return Err(format!("{models} files of {entries} stored models: {all:?}"));
    }
    all.sort();
    Ok(all)
}
