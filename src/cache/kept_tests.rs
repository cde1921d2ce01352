//! Data of clients' caches that the store keeps: taken instead of the files', and only for what they belong to.

use super::tests::*;
use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use tempfile::TempDir;

/// After so long a kernel gives what is changed another time than before.
const TICK: Duration = Duration::from_millis(30);

fn content(file: &File) -> Vec<u8> {
    let mut content = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut content, 0).unwrap();
    content
}

/// What loading gives of the weights that were saved as `b"weights"`, and whether that was of the store.
fn weights(cache: &Cache, pair: &Pair, store: &Store, uid: u32) -> Result<(Vec<u8>, bool), CacheError> {
    let kept = |origin: &Origin| store.data_of(uid, origin);
    let loaded = cache.load_beside(&key(1, 1), &pair.files(), kept, Reading::FREELY)?;
    assert_eq!(loaded.models, [MODEL]);
    Ok((bytes_of(&loaded.data[0])[64..].to_vec(), loaded.kept))
}

#[test]
fn kept_data_stand_in_for_files_that_their_client_has_not_touched() {
    let directory = TempDir::new().unwrap();
    let (cache, pair) = saved();
    let ours = one(MODEL, &data(b"weights"));
    let origin = cache.load(&key(1, 1), &pair.files()).unwrap().origin;
    {
        let store = store(directory.path(), "driver");
        assert_eq!(weights(&cache, &pair, &store, 1).unwrap(), (b"weights".to_vec(), false));
        store.keep_data(1, &origin, ours.content().data, &NeverInterrupted).unwrap();
    }
    let store = store(directory.path(), "driver");
    assert_eq!(weights(&cache, &pair, &store, 1).unwrap(), (b"weights".to_vec(), true));
    assert!(!weights(&cache, &pair, &store, 2).unwrap().1, "another client's");
    // Another file, of the same bytes.
    let other = Pair::new();
    std::thread::sleep(TICK);
    other.data.write_all_at(&content(&pair.data), 0).unwrap();
    let elsewhere = CacheFiles::new(&[&pair.model], &[&other.data]).unwrap();
    let kept = |origin: &Origin| store.data_of(1, origin);
    assert!(!cache.load_beside(&key(1, 1), &elsewhere, kept, Reading::FREELY).unwrap().kept);
    // What steers is its client's, and proven as ever.
    pair.model.write_all_at(b"?", 60).unwrap();
    assert!(matches!(weights(&cache, &pair, &store, 1), Err(CacheError::Changed)));
}

#[test]
fn data_that_a_client_has_touched_are_looked_at_kept_or_not() {
    let directory = TempDir::new().unwrap();
    let ((cache, pair), store) = (saved(), store(directory.path(), "driver"));
    let ours = one(MODEL, &data(b"weights"));
    let keep = || {
        let origin = cache.load(&key(1, 1), &pair.files()).unwrap().origin;
        store.keep_data(1, &origin, ours.content().data, &NeverInterrupted).unwrap();
        assert_eq!(weights(&cache, &pair, &store, 1).unwrap(), (b"weights".to_vec(), true));
        std::thread::sleep(TICK);
    };
    let whole = content(&pair.data);
    keep();
    pair.data.write_all_at(b"WEIGHTS", 64).unwrap();
    assert!(matches!(weights(&cache, &pair, &store, 1), Err(CacheError::DataChanged)));
    pair.data.write_all_at(b"weights", 64).unwrap();
    assert_eq!(weights(&cache, &pair, &store, 1).unwrap(), (b"weights".to_vec(), false));
    // Seen to be whole, they are kept again, as they were left this time.
    keep();
    pair.data.set_len(0).unwrap();
    assert!(weights(&cache, &pair, &store, 1).is_err());
    pair.data.write_all_at(&whole, 0).unwrap();
    keep();
}

#[test]
fn other_data_than_were_saved_are_not_taken() {
    let directory = TempDir::new().unwrap();
    let ((cache, pair), store) = (saved(), store(directory.path(), "driver"));
    let origin = cache.load(&key(1, 1), &pair.files()).unwrap().origin;
    for other in [&b"WEIGHTS"[..], b"weight", b"weights!"] {
        store.keep_data(1, &origin, one(MODEL, &data(other)).content().data, &NeverInterrupted).unwrap();
        assert_eq!(weights(&cache, &pair, &store, 1).unwrap(), (b"weights".to_vec(), false));
    }
    store.keep_data(1, &origin, &[], &NeverInterrupted).unwrap();
    assert!(!weights(&cache, &pair, &store, 1).unwrap().1);
}

#[test]
fn every_save_has_a_hash_of_its_own_and_what_is_forgotten_leaves_nothing() {
    let directory = TempDir::new().unwrap();
    let ((cache, pair), store) = (saved(), store(directory.path(), "driver"));
    let ours = one(MODEL, &data(b"weights"));
    let first = cache.load(&key(1, 1), &pair.files()).unwrap().origin;
    let second = save(&cache, &key(1, 1), &pair, &ours).unwrap();
    assert_eq!(cache.hashes(&key(1, 1)).unwrap(), [second.hash]);
    assert_ne!(first.hash, second.hash);
    for origin in [&first, &second] {
        store.keep_data(1, origin, ours.content().data, &NeverInterrupted).unwrap();
    }
    store.forget_data(1, first.hash);
    store.forget_data(2, second.hash);
    assert!(store.data_of(1, &first).is_none() && store.data_of(1, &second).is_some());
    assert_eq!(store.size().unwrap().0, 1);
    store.forget_data(1, second.hash);
    assert_eq!(store.size().unwrap().0, 0);
    // The registry with its mark.
    assert_eq!(files_in(directory.path()), 2);
}
