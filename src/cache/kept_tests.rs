//! Data of clients' caches that the store keeps: taken instead of the files', and only for what they belong to.

use super::tests::*;
use super::*;
use std::os::unix::fs::FileExt;
use tempfile::TempDir;

/// What loading gives of the weights that were saved as `b"weights"`, and whether that was of the store.
fn weights(cache: &Cache, pair: &Pair, store: &Store, uid: u32) -> Result<(Vec<u8>, bool), CacheError> {
    let loaded = cache.load_beside(&key(1, 1), &pair.files(), |hash| store.data_of(uid, hash))?;
    assert_eq!(loaded.models, [MODEL]);
    Ok((bytes_of(&loaded.data[0])[64..].to_vec(), loaded.kept))
}

#[test]
fn kept_data_stand_in_for_files_whatever_became_of_these() {
    let directory = TempDir::new().unwrap();
    let (cache, pair) = saved();
    let ours = one(MODEL, &data(b"weights"));
    let hash = cache.load(&key(1, 1), &pair.files()).unwrap().hash;
    {
        let store = store(directory.path(), "driver");
        assert_eq!(weights(&cache, &pair, &store, 1).unwrap(), (b"weights".to_vec(), false));
        store.keep_data(1, hash, ours.content().data).unwrap();
    }
    let store = store(directory.path(), "driver");
    assert_eq!(weights(&cache, &pair, &store, 1).unwrap(), (b"weights".to_vec(), true));
    assert!(!weights(&cache, &pair, &store, 2).unwrap().1, "another client's");
    pair.data.write_all_at(b"WEIGHTS", 64).unwrap();
    assert_eq!(weights(&cache, &pair, &store, 1).unwrap(), (b"weights".to_vec(), true));
    pair.data.set_len(0).unwrap();
    assert_eq!(weights(&cache, &pair, &store, 1).unwrap(), (b"weights".to_vec(), true));
    // What steers is its client's, and proven as ever.
    pair.model.write_all_at(b"?", 60).unwrap();
    assert!(matches!(weights(&cache, &pair, &store, 1), Err(CacheError::Changed)));
}

#[test]
fn other_data_than_were_saved_are_not_taken() {
    let directory = TempDir::new().unwrap();
    let ((cache, pair), store) = (saved(), store(directory.path(), "driver"));
    let hash = cache.load(&key(1, 1), &pair.files()).unwrap().hash;
    for other in [&b"WEIGHTS"[..], b"weight", b"weights!"] {
        store.keep_data(1, hash, one(MODEL, &data(other)).content().data).unwrap();
        assert_eq!(weights(&cache, &pair, &store, 1).unwrap(), (b"weights".to_vec(), false));
    }
    store.keep_data(1, hash, &[]).unwrap();
    assert!(!weights(&cache, &pair, &store, 1).unwrap().1);
}

#[test]
fn every_save_has_a_hash_of_its_own_and_what_is_forgotten_leaves_nothing() {
    let directory = TempDir::new().unwrap();
    let ((cache, pair), store) = (saved(), store(directory.path(), "driver"));
    let ours = one(MODEL, &data(b"weights"));
    let first = cache.hashes(&key(1, 1)).unwrap();
    let second = cache.save(&key(1, 1), &pair.files(), ours.content()).unwrap();
    assert_eq!(cache.hashes(&key(1, 1)).unwrap(), [second]);
    assert_ne!(first, [second]);
    for hash in [first[0], second] {
        store.keep_data(1, hash, ours.content().data).unwrap();
    }
    store.forget_data(1, first[0]);
    store.forget_data(2, second);
    assert!(store.data_of(1, &first[0]).is_none() && store.data_of(1, &second).is_some());
    assert_eq!(store.size().unwrap().0, 1);
    store.forget_data(1, second);
    assert_eq!(store.size().unwrap().0, 0);
    // The registry with its mark.
    assert_eq!(files_in(directory.path()), 2);
}
