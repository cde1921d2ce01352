//! Models that a backend saves in several files of each kind.

use super::tests::{bytes_of, data, key, one, store, Pair, MODEL};
use super::*;
use std::os::unix::fs::FileExt;

#[test]
fn a_model_of_several_files_is_whole_or_not_loaded() {
    let cache = Cache::new(None, "driver");
    let pairs = [Pair::new(), Pair::new(), Pair::new()];
    let models = [&pairs[0].model, &pairs[1].model];
    let data_files = [&pairs[0].data, &pairs[1].data, &pairs[2].data];
    let files = CacheFiles::new(&models, &data_files).unwrap();
    let content = [b"steers".to_vec(), b"steers, too".to_vec()];
    let values = [data(b"weights"), Vec::new(), data(b"tables")];
    cache.save(&key(1, 1), &files, Content { models: &content, data: &values }, &NeverInterrupted).unwrap();
    let loaded = cache.load(&key(1, 1), &files).unwrap();
    assert_eq!(loaded.models, content);
    let lens: Vec<_> = loaded.data.iter().map(|data| data.len()).collect();
    assert_eq!(lens, [71, 0, 70]);
    assert_eq!(&bytes_of(&loaded.data[2])[64..], b"tables");
    let changed = |files: &CacheFiles| matches!(cache.load(&key(1, 1), files), Err(CacheError::Changed));
    // One of the model files, their order, their number.
    pairs[1].model.write_all_at(b"S", 0).unwrap();
    assert!(changed(&files));
    pairs[1].model.write_all_at(b"s", 0).unwrap();
    assert!(!changed(&files));
    assert!(changed(&CacheFiles::new(&[models[1], models[0]], &data_files).unwrap()));
    assert!(changed(&CacheFiles::new(&models[..1], &data_files).unwrap()));
    assert!(changed(&CacheFiles::new(&models, &data_files[..2]).unwrap()));
    // The data of another save.
    pairs[2].data.set_len(0).unwrap();
    assert!(matches!(cache.load(&key(1, 1), &files), Err(CacheError::DataChanged | CacheError::Data(_))));
}

#[test]
fn the_store_keeps_models_of_several_files_and_what_is_left_of_larger_ones_goes() {
    let directory = tempfile::tempdir().unwrap();
    let content = [b"steers".to_vec(), b"steers, too".to_vec()];
    let values = [data(b"weights"), data(b"tables")];
    {
        let store = store(directory.path(), "driver");
        store.save(&key(1, 1), Content { models: &content, data: &values }, &NeverInterrupted).unwrap();
        assert_eq!(store.load(&key(1, 1)).unwrap().models, content);
    }
    let faults = || Offline::open(directory.path()).unwrap().store.unwrap().faults();
    let paths = |kind| store::paths(&directory.path().join("store"), &key(1, 1), kind);
    assert_eq!(faults(), [""; 0]);
    let second = paths(store::DATA)[1].clone();
    std::fs::write(&second, b"short").unwrap();
    assert!(faults().len() == 1 && faults()[0].starts_with(second.to_str().unwrap()), "{:?}", faults());
    let again = store(directory.path(), "driver");
    again.save(&key(1, 1), one(MODEL, &data(b"weights")).content(), &NeverInterrupted).unwrap();
    assert_eq!(again.load(&key(1, 1)).unwrap().models, [MODEL]);
    assert_eq!([store::MODEL, store::DATA].map(|kind| paths(kind).len()), [1, 1]);
}

#[test]
fn what_one_driver_uses_another_may_use() {
    let (pair, mine, others) = (Pair::new(), FilesInUse::default(), FilesInUse::default());
    let files = pair.files();
    let _used = files.lock(&mine, &NeverInterrupted).unwrap();
    assert!(files.lock(&others, &NeverInterrupted).is_ok());
    assert!(matches!(files.lock(&mine, &NeverInterrupted), Err(CacheError::Busy)));
}
