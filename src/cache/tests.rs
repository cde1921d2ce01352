//! What was saved comes back; what was changed, swapped, or is somebody else's does not.

use super::*;
use crate::memory::{AlignedBuf, ClientSlice};
use crate::memory::{Mapping, Weights};
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tempfile::TempDir;

pub(super) const MODEL: &[u8] = b"all that steers";

pub(super) struct Pair {
    pub model: File,
    pub data: File,
}

impl Pair {
    pub fn new() -> Self {
        let file = || {
            File::from(nix::sys::memfd::memfd_create(c"cache", nix::sys::memfd::MFdFlags::empty()).unwrap())
        };
        Pair { model: file(), data: file() }
    }

    pub fn files(&self) -> CacheFiles {
        CacheFiles::new(&[&self.model], &[&self.data]).unwrap()
    }
}

/// A directory in memory, where there is such a place: to sync takes no time there.
pub(super) fn in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    TempDir::new_in(if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() }).unwrap()
}

pub(super) fn key(uid: u32, token: u8) -> Key {
    Key { uid, token: [token; 32] }
}

fn entry(key: Key, record: Record) -> Entry {
    Entry { key, file: FileId::STORE, record, last_use: 0 }
}

pub(super) fn data(bytes: &[u8]) -> Vec<(u64, Weights)> {
    vec![(0, AlignedBuf::copy_of(b"first").unwrap().into()), (64, AlignedBuf::copy_of(bytes).unwrap().into())]
}

/// What is saved in one file of each kind.
pub(super) struct One([Vec<u8>; 1], [Parts; 1]);

pub(super) fn one(model: &[u8], data: &[(u64, Weights)]) -> One {
    One([model.to_vec()], [data.to_vec()])
}

impl One {
    pub(super) fn content(&self) -> Content<'_> {
        Content { models: &self.0, data: &self.1 }
    }
}

pub(super) fn bytes_of(mapping: &Arc<Mapping>) -> Vec<u8> {
    ClientSlice::new(mapping.clone(), 0, mapping.len()).unwrap().to_private().unwrap().to_vec()
}

/// Makes the byte at `at` another, whatever it was.
pub(super) fn flip(file: &File, at: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

pub(super) fn save(cache: &Cache, key: &Key, pair: &Pair, what: &One) -> Result<Origin, CacheError> {
    cache.save(key, &pair.files(), what.content(), &NeverInterrupted)
}

pub(super) fn load(cache: &Cache, key: &Key, pair: &Pair) -> Result<Vec<u8>, CacheError> {
    cache.load(key, &pair.files()).map(|mut loaded| loaded.models.remove(0))
}

pub(super) fn saved() -> (Cache, Pair) {
    let (cache, pair) = (Cache::new(None, "driver"), Pair::new());
    save(&cache, &key(1, 1), &pair, &one(MODEL, &data(b"weights"))).unwrap();
    (cache, pair)
}

#[test]
fn files_that_append_are_refused() {
    let (directory, pair) = (TempDir::new().unwrap(), Pair::new());
    let open = |append| {
        File::options()
            .read(true)
            .append(append)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.path().join("file"))
    };
    let (appends, usual) = (open(true).unwrap(), open(false).unwrap());
    for [model, data] in [[&appends, &pair.data], [&pair.model, &appends]] {
        assert!(matches!(CacheFiles::new(&[model], &[data]), Err(CacheError::Access(_))));
    }
    assert!(CacheFiles::new(&[&usual], &[&pair.data]).is_ok());
}

#[test]
fn what_was_saved_is_loaded_whatever_the_files_held() {
    let (cache, mut pair) = (Cache::new(None, "driver"), Pair::new());
    for file in [&mut pair.model, &mut pair.data] {
        file.write_all(&[9; 5000]).unwrap();
        file.seek(std::io::SeekFrom::Start(77)).unwrap();
    }
    save(&cache, &key(1, 1), &pair, &one(MODEL, &data(b"weights"))).unwrap();
    let loaded = cache.load(&key(1, 1), &pair.files()).unwrap();
    assert_eq!(loaded.models[0], MODEL);
    let bytes = bytes_of(&loaded.data[0]);
    assert_eq!((bytes.len(), &bytes[..6], &bytes[64..]), (71, &b"first\0"[..], &b"weights"[..]));
    assert_eq!(pair.data.metadata().unwrap().len(), crate::memory::guarded_len(71).unwrap());
}

#[test]
fn a_changed_model_cache_is_refused() {
    let (cache, pair) = saved();
    let len = pair.model.metadata().unwrap().len();
    for at in 0..len {
        flip(&pair.model, at);
        assert!(matches!(load(&cache, &key(1, 1), &pair), Err(CacheError::Changed)), "byte {at}");
        flip(&pair.model, at);
    }
    for other in [0, 5, len - 1, len + 1] {
        let mut copy = vec![0; len as usize];
        pair.model.read_exact_at(&mut copy, 0).unwrap();
        pair.model.set_len(other).unwrap();
        assert!(matches!(load(&cache, &key(1, 1), &pair), Err(CacheError::Changed)), "{other} bytes");
        pair.model.set_len(0).unwrap();
        pair.model.write_all_at(&copy, 0).unwrap();
    }
    assert_eq!(load(&cache, &key(1, 1), &pair).unwrap(), MODEL);
}

#[test]
fn other_tokens_and_other_clients_miss() {
    let (cache, pair) = saved();
    for other in [key(1, 2), key(2, 1)] {
        assert!(matches!(load(&cache, &other, &pair), Err(CacheError::Unknown)));
    }
    // Valid files of another model, under this token.
    let other = Pair::new();
    save(&cache, &key(1, 2), &other, &one(b"another model", &[])).unwrap();
    assert!(matches!(load(&cache, &key(1, 1), &other), Err(CacheError::Changed)));
    let swapped = CacheFiles::new(&[&other.model], &[&pair.data]).unwrap();
    assert!(matches!(cache.load(&key(1, 1), &swapped), Err(CacheError::Changed)));
    // The same token, used by two clients.
    save(&cache, &key(2, 1), &other, &one(b"another client's", &[])).unwrap();
    assert_eq!(load(&cache, &key(1, 1), &pair).unwrap(), MODEL);
    assert!(matches!(load(&cache, &key(2, 1), &pair), Err(CacheError::Changed)));
}

#[test]
fn the_latest_save_under_a_token_wins() {
    let (cache, pair) = saved();
    let mut old = vec![0; pair.model.metadata().unwrap().len() as usize];
    pair.model.read_exact_at(&mut old, 0).unwrap();
    save(&cache, &key(1, 1), &pair, &one(MODEL, &data(b"WEIGHTS"))).unwrap();
    assert_eq!(load(&cache, &key(1, 1), &pair).unwrap(), MODEL);
    // Not even the same model saved before: its data may be gone.
    pair.model.write_all_at(&old, 0).unwrap();
    assert!(matches!(load(&cache, &key(1, 1), &pair), Err(CacheError::Changed)));
}

#[test]
fn a_save_that_stops_anywhere_leaves_a_miss() {
    let pair = Pair::new();
    let cache = Cache::new(None, "driver");
    save(&cache, &key(1, 1), &pair, &one(MODEL, &data(b"weights"))).unwrap();
    // As far as the registry, before the files.
    let record = Record { hash: [1; 32], model_len: 31, data_len: 71, data_hash: None, model: 9 };
    cache.registry.put(&entry(key(1, 1), record)).unwrap();
    assert!(matches!(load(&cache, &key(1, 1), &pair), Err(CacheError::Changed)));
    // Files that nothing is recorded for.
    cache.registry.remove(&key(1, 1), |_| true).unwrap();
    assert!(matches!(load(&cache, &key(1, 1), &pair), Err(CacheError::Unknown)));
}

#[test]
fn files_are_counted_and_their_access_checked() {
    let pair = Pair::new();
    let none: [&File; 0] = [];
    assert!(matches!(CacheFiles::new(&none, &[&pair.data]), Err(CacheError::NoModel)));
    let (cache, alone) = (Cache::new(None, "driver"), CacheFiles::new(&[&pair.model], &none).unwrap());
    let refused = cache.save(&key(1, 1), &alone, one(MODEL, &[]).content(), &NeverInterrupted);
    assert!(matches!(refused, Err(CacheError::Count(1, 2))));
    assert!(matches!(CacheFiles::new(&[&pair.model], &[&pair.model]), Err(CacheError::SameFile)));
    let reopened = |options: &mut std::fs::OpenOptions| {
        use std::os::fd::AsRawFd;
        options.open(format!("/proc/self/fd/{}", pair.data.as_raw_fd())).unwrap()
    };
    let read = reopened(std::fs::OpenOptions::new().read(true));
    let write = reopened(std::fs::OpenOptions::new().write(true));
    for file in [&read, &write] {
        assert!(matches!(CacheFiles::new(&[&pair.model], &[file]), Err(CacheError::Access("data"))));
    }
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let socket = OwnedFd::from(socket);
    assert!(CacheFiles::new(&[socket.as_fd()], &[pair.data.as_fd()]).is_err());
}

#[test]
fn the_registry_outlives_the_process_but_not_the_driver() {
    let (directory, pair) = (TempDir::new().unwrap(), Pair::new());
    let open = |fingerprint| Cache::new(Some(directory.path()), fingerprint);
    save(&open("one"), &key(1, 1), &pair, &one(MODEL, &[])).unwrap();
    assert_eq!(load(&open("one"), &key(1, 1), &pair).unwrap(), MODEL);
    assert!(matches!(load(&open("two"), &key(1, 1), &pair), Err(CacheError::Unknown)));
    assert!(matches!(load(&open("one"), &key(1, 1), &pair), Err(CacheError::Unknown)));
}

#[test]
fn loading_writes_nothing_and_saving_still_can() {
    let (directory, pair) = (TempDir::new().unwrap(), Pair::new());
    let open = || Cache::new(Some(directory.path()), "driver");
    save(&open(), &key(1, 1), &pair, &one(MODEL, &[])).unwrap();
    let registry = || std::fs::read(directory.path().join(table::FILE)).unwrap();
    let before = registry();
    // Whoever opens the table to write has it alone.
    let (first, second) = (open(), open());
    for cache in [&first, &second, &first] {
        assert_eq!(load(cache, &key(1, 1), &pair).unwrap(), MODEL);
    }
    assert!(registry() == before);
    drop(second);
    save(&first, &key(1, 2), &pair, &one(b"another", &[])).unwrap();
    assert_eq!(load(&first, &key(1, 2), &pair).unwrap(), b"another");
    let last_uses: Vec<_> = first.registry().list().unwrap().iter().map(|entry| entry.last_use).collect();
    assert_eq!(last_uses, [3, 4], "what was read before is not forgotten");
}

#[test]
fn a_registry_that_is_broken_is_made_anew_and_one_in_use_is_left_alone() {
    let (directory, pair) = (TempDir::new().unwrap(), Pair::new());
    std::fs::write(directory.path().join("registry.redb"), [7; 9000]).unwrap();
    let cache = Cache::new(Some(directory.path()), "driver");
    save(&cache, &key(1, 1), &pair, &one(MODEL, &[])).unwrap();
    let second = Cache::new(Some(directory.path()), "driver");
    assert!(matches!(load(&second, &key(1, 1), &pair), Err(CacheError::Registry(_))));
    assert_eq!(load(&cache, &key(1, 1), &pair).unwrap(), MODEL);
}

#[test]
fn without_a_usable_directory_nothing_is_cached() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let (cache, pair) = (Cache::new(Some(&file.join("data")), "driver"), Pair::new());
    let refused = save(&cache, &key(1, 1), &pair, &one(MODEL, &[]));
    assert!(matches!(refused, Err(CacheError::Registry(_))));
    assert_eq!(pair.model.metadata().unwrap().len(), 0);
}

#[test]
fn a_registry_opened_ahead_is_read_only_and_makes_nothing() {
    let (directory, pair) = (TempDir::new().unwrap(), Pair::new());
    let data_directory = directory.path().join("data");
    let cache = Cache::new(Some(&data_directory), "driver");
    cache.open_ahead();
    assert!(!data_directory.exists());
    save(&cache, &key(1, 1), &pair, &one(MODEL, &[])).unwrap();
    drop(cache);
    let (cache, other) =
        (Cache::new(Some(&data_directory), "driver"), Cache::new(Some(&data_directory), "driver"));
    cache.open_ahead();
    other.open_ahead();
    assert!(cache.load(&key(1, 1), &pair.files()).is_ok() && other.load(&key(1, 1), &pair.files()).is_ok());
    drop(other);
    save(&cache, &key(1, 2), &pair, &one(MODEL, &[])).unwrap();
    assert!(cache.load(&key(1, 2), &pair.files()).is_ok());
}

#[test]
fn the_least_recently_used_entries_of_the_greediest_client_go() {
    let registry = Registry::new(None, "driver", Limits { entries: 4, entries_per_uid: 3, bytes: 1000 });
    let record = Record { hash: [0; 32], model_len: 0, data_len: 0, data_hash: None, model: 0 };
    let put = |uid, token| drop(registry.put(&entry(key(uid, token), record)).unwrap());
    let has = |uid, token| {
        let found = registry.get(&key(uid, token)).unwrap();
        found.iter().for_each(|entry| registry.used(entry));
        !found.is_empty()
    };
    (1..=3).for_each(|token| put(1, token));
    assert!(has(1, 1));
    put(1, 4);
    assert!(!has(1, 2), "the one not used for longest");
    put(2, 1);
    put(2, 2);
    let left: Vec<_> = registry.list().unwrap().iter().map(|e| (e.key.uid, e.key.token[0])).collect();
    assert_eq!(left, [(1, 1), (1, 4), (2, 1), (2, 2)]);
    left.iter().for_each(|&(uid, token)| registry.remove(&key(uid, token), |_| true).unwrap());
    assert!(!has(1, 1));
    // By bytes, which count in all.
    put(1, 1);
    let large = Record { model_len: 100, data_len: 500, ..record };
    assert_eq!(registry.put(&entry(key(2, 1), large)).unwrap(), []);
    assert_eq!(registry.put(&entry(key(2, 2), large)).unwrap(), [key(2, 1)]);
}

#[test]
fn concurrent_saves_under_one_token_leave_one_of_them() {
    let (cache, pair) = (Cache::new(None, "driver"), Pair::new());
    std::thread::scope(|scope| {
        for i in 0..4u8 {
            let (cache, pair) = (&cache, &pair);
            scope.spawn(move || {
                for _ in 0..5 {
                    save(cache, &key(1, 1), pair, &one(&[i; 100], &data(&[i; 500]))).unwrap();
                    let loaded = cache.load(&key(1, 1), &pair.files()).unwrap();
                    assert!(loaded.models[0].iter().all(|&byte| byte == loaded.models[0][0]));
                }
            });
        }
    });
}

#[test]
fn locks_on_files_are_their_clients_affair() {
    let directory = TempDir::new().unwrap();
    let open = |name| {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(directory.path().join(name)).unwrap()
    };
    let (cache, pair) = (Cache::new(None, "driver"), Pair { model: open("model"), data: open("data") });
    // Held by another, and by the client on the very files that it hands over.
    let other = open("data");
    other.lock().unwrap();
    pair.model.lock().unwrap();
    save(&cache, &key(1, 1), &pair, &one(MODEL, &data(b"weights"))).unwrap();
    assert_eq!(load(&cache, &key(1, 1), &pair).unwrap(), MODEL);
    assert!(open("data").try_lock().is_err() && open("model").try_lock().is_err(), "both are held still");
}

#[test]
fn a_token_may_stand_for_several_files_of_one_model() {
    let (cache, first) = saved();
    let others: [_; 4] = std::array::from_fn(|_| Pair::new());
    let save = |pair: &Pair, weights: &[u8]| {
        save(&cache, &key(1, 1), pair, &one(MODEL, &data(weights))).unwrap();
    };
    let hits = |pair: &Pair| load(&cache, &key(1, 1), pair).is_ok();
    others[..3].iter().for_each(|pair| save(pair, b"weights"));
    assert!(hits(&first) && others[..3].iter().all(hits));
    // One more, and the one not used for longest goes.
    hits(&first);
    save(&others[3], b"weights");
    assert!(hits(&first) && !hits(&others[0]) && others[1..].iter().all(hits));
    // Saved again in the same place, it takes no other's.
    save(&others[3], b"weights");
    assert!(hits(&first) && others[1..].iter().all(hits));
    // Another model, though it differs in its data only.
    save(&others[0], b"WEIGHTS");
    assert!(hits(&others[0]) && !hits(&first) && !others[1..].iter().any(hits));
}

#[test]
fn a_registry_whose_user_died_of_it_is_put_aside_at_the_next_start() {
    let (directory, pair) = (TempDir::new().unwrap(), Pair::new());
    let open = || Cache::new(Some(directory.path()), "driver");
    let mark = directory.path().join("registry.mark");
    let saved_anew = || {
        save(&open(), &key(1, 1), &pair, &one(MODEL, &[])).unwrap();
        assert_eq!(std::fs::read(&mark).unwrap(), b"", "nothing is left");
        assert_eq!(load(&open(), &key(1, 1), &pair).unwrap(), MODEL);
    };
    saved_anew();
    // Killed once amid an opening or a write, as anybody may be.
    for note in ["o", "w"] {
        std::fs::write(&mark, note).unwrap();
        assert_eq!(load(&open(), &key(1, 1), &pair).unwrap(), MODEL, "{note}");
        assert_eq!(std::fs::read(&mark).unwrap(), b"s", "a doubt is left");
        assert!(!directory.path().join("registry.damaged").exists());
        saved_anew();
    }
    for note in ["so", "sw", "wo", "oo", "anything"] {
        saved_anew();
        std::fs::write(&mark, note).unwrap();
        assert!(matches!(load(&open(), &key(1, 1), &pair), Err(CacheError::Unknown)), "{note}");
        assert!(directory.path().join("registry.damaged").exists());
        saved_anew();
    }
}

#[test]
#[ignore = "mounts a file system, as root: tests/ignored.sh mounts"]
fn files_that_a_process_serves_are_refused_at_once() {
    let silent = crate::memory::blocking::tests::Silent::mount();
    let (pair, served) = (Pair::new(), silent.open());
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let as_data = CacheFiles::new(&[pair.model.as_fd()], &[served.as_fd()]).err();
        let as_model = CacheFiles::new(&[served.as_fd()], &[pair.data.as_fd()]).err();
        sender.send([as_data, as_model])
    });
    let refused = receiver.recv_timeout(std::time::Duration::from_secs(20));
    drop(silent);
    assert!(
        matches!(refused, Ok([Some(CacheError::Served("data")), Some(CacheError::Served("model"))])),
        "{refused:?}"
    );
}

pub(super) fn store(directory: &Path, fingerprint: &str) -> Store {
    Store::new(directory, fingerprint, 3000)
}

pub(super) fn files_in(directory: &Path) -> usize {
    std::fs::read_dir(directory.join("store")).unwrap().count()
}

#[test]
fn the_store_gives_back_what_it_was_given_to_the_same_client() {
    let directory = TempDir::new().unwrap();
    {
        let store = store(directory.path(), "driver");
        assert!(store.load(&key(1, 1)).is_err());
        store.save(&key(1, 1), one(MODEL, &data(b"weights")).content(), &NeverInterrupted).unwrap();
    }
    let store = store(directory.path(), "driver");
    let loaded = store.load(&key(1, 1)).unwrap();
    // Saved once more, by who compiled it at the same time: whoever uses it does not lose it.
    store.save(&key(1, 1), one(MODEL, &data(b"weights")).content(), &NeverInterrupted).unwrap();
    assert!(!loaded.data[0].vanished());
    assert_eq!((&loaded.models[0][..], bytes_of(&loaded.data[0]).len()), (MODEL, 71));
    assert!(store.load(&key(2, 1)).is_err());
}

#[test]
fn the_store_keeps_to_its_size_and_frees_what_is_not_needed() {
    let directory = TempDir::new().unwrap();
    {
        let store = store(directory.path(), "driver");
        assert!(store.save(&key(1, 1), one(MODEL, &data(&[1; 4000])).content(), &NeverInterrupted).is_err());
        (1..=4).for_each(|token| {
            store
                .save(&key(1, token), one(MODEL, &data(&[token; 1000])).content(), &NeverInterrupted)
                .unwrap()
        });
        assert!(store.load(&key(1, 2)).is_err());
        assert_eq!(bytes_of(&store.load(&key(1, 4)).unwrap().data[0])[64], 4);
        // The registry with its mark, and two files each of two entries.
        assert_eq!(files_in(directory.path()), 6);
    }
    let store = store(directory.path(), "another driver");
    assert!(store.load(&key(1, 4)).is_err());
    assert_eq!(files_in(directory.path()), 2);
}

#[test]
fn the_store_frees_what_nobody_has_loaded_for_long() {
    const DAY: u64 = 24 * 3600;
    let directory = TempDir::new().unwrap();
    let ago = |days| std::time::SystemTime::now() - std::time::Duration::from_secs(days * DAY);
    let model = |token| {
        let name =
            |path: &std::path::PathBuf| path.to_str().unwrap().ends_with(&format!("{token:02x}.model"));
        let files = std::fs::read_dir(directory.path().join("store")).unwrap();
        let path = files.map(|file| file.unwrap().path()).find(name)?;
        Some(File::options().write(true).open(path).unwrap())
    };
    let age = |token, days| model(token).unwrap().set_modified(ago(days)).unwrap();
    {
        let store = store(directory.path(), "driver");
        for token in [1, 2, 3] {
            store
                .save(&key(1, token), one(MODEL, &data(&[token; 100])).content(), &NeverInterrupted)
                .unwrap();
        }
        [(1, 91), (2, 89), (3, 60)].into_iter().for_each(|(token, days)| age(token, days));
        store.load(&key(1, 3)).unwrap();
    }
    assert!(model(3).unwrap().metadata().unwrap().modified().unwrap() > ago(1), "its use is noted");
    {
        let store = store(directory.path(), "driver");
        assert!(store.load(&key(1, 1)).is_err());
        assert_eq!(store.size().unwrap().0, 2);
        assert!(model(1).is_none(), "nobody would ever free it");
        // A daemon that lives for long frees whenever it saves.
        age(2, 91);
        store.save(&key(1, 4), one(MODEL, &data(&[4; 100])).content(), &NeverInterrupted).unwrap();
        assert_eq!(store.size().unwrap().0, 2);
    }
    let store = store(directory.path(), "driver");
    let there: Vec<_> = (1..=4).map(|token| store.load(&key(1, token)).is_ok()).collect();
    assert_eq!(there, [false, false, true, true]);
}
