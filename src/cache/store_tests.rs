//! Saves in the driver's own store by several threads at once.

use super::tests::{bytes_of, data, in_memory, key, one, MODEL};
use super::*;

#[test]
fn a_save_that_drops_a_model_leaves_the_files_of_one_that_is_saved_anew() {
    // Long to write, so that the other save comes amid it: half of all there may be.
    const LARGE: usize = 48 << 20;
    let directory = in_memory();
    let store = Store::new(directory.path(), "driver", 2 * (LARGE as u64 + 1000));
    let (small, first, second) = (key(1, 1), key(1, 2), key(1, 3));
    let save = |key: &Key, bytes: usize| {
        let model = one(MODEL, &data(&vec![key.token[0]; bytes]));
        // Nobody waits for another's save.
        while let Err(why) = store.save(key, model.content(), &NeverInterrupted) {
            assert!(matches!(why, CacheError::Busy), "{why}");
            std::thread::yield_now();
        }
    };
    save(&small, 4000);
    save(&first, LARGE);
    std::thread::scope(|scope| {
        scope.spawn(|| save(&second, LARGE));
        // There is no room for all three, and the small one was not used for longest.
        while store.has_like(small.uid, &small.token) {
            std::thread::yield_now();
        }
        save(&small, 4000);
    });
    assert!(store.has_like(small.uid, &small.token), "it was saved last");
    assert_eq!(bytes_of(&store.load(&small).unwrap().data[0])[64], 1);
}

#[test]
fn nothing_is_made_on_the_disk_before_the_first_save() {
    let directory = in_memory();
    let store = Store::new(directory.path(), "driver", 1 << 20);
    let of = Origin { hash: key(1, 1).token, data: vec![] };
    store.open_ahead();
    assert!(!store.has_like(1, &[1]) && store.data_of(1, &of).is_none());
    assert!(matches!(store.load(&key(1, 1)), Err(CacheError::Unknown)));
    store.forget_data(1, of.hash);
    assert_eq!(store.size(), Some((0, 0)));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    store.save(&key(1, 1), one(MODEL, &data(&[1; 4000])).content(), &NeverInterrupted).unwrap();
    assert!(store.load(&key(1, 1)).is_ok());
    // The next driver opens what this one has left.
    drop(store);
    let store = Store::new(directory.path(), "driver", 1 << 20);
    store.open_ahead();
    assert_eq!(store.size().map(|(models, _)| models), Some(1));
    assert!(store.has_like(1, &key(1, 1).token[..4]));
}

#[test]
fn a_model_whose_file_is_gone_takes_no_room() {
    let directory = in_memory();
    let store = Store::new(directory.path(), "driver", 1 << 20);
    let save =
        |key: &Key| store.save(key, one(MODEL, &data(&[1; 4000])).content(), &NeverInterrupted).unwrap();
    save(&key(1, 1));
    let lost = super::store::path(&directory.path().join("store"), &key(1, 1), super::store::MODEL, 0);
    std::fs::remove_file(lost).unwrap();
    save(&key(1, 2));
    assert_eq!(store.size().map(|(models, _)| models), Some(1));
    assert!(!store.has_like(1, &key(1, 1).token[..4]) && store.has_like(1, &key(1, 2).token[..4]));
}

#[test]
fn a_model_that_would_be_dropped_at_once_is_refused_before_it_is_written() {
    let directory = in_memory();
    let store = Store::new(directory.path(), "driver", 256 << 10);
    let save = |key: &Key, kilobytes: usize| {
        store.save(key, one(MODEL, &data(&vec![1; kilobytes << 10])).content(), &NeverInterrupted)
    };
    let (first, second, large) = (key(1, 1), key(2, 1), key(3, 1));
    save(&first, 90).unwrap();
    save(&second, 80).unwrap();
    let before = store.size();
    // Its client would have the most.
    assert!(matches!(save(&large, 100), Err(CacheError::TooLarge(bytes)) if bytes >= 100 << 10));
    let of = Origin { hash: large.token, data: vec![] };
    let weights = one(&[], &data(&vec![1; 100 << 10]));
    let kept = store.keep_data(large.uid, &of, weights.content().data, &NeverInterrupted);
    assert!(matches!(kept, Err(CacheError::TooLarge(_))), "{kept:?}");
    assert!(store.load(&first).is_ok() && store.load(&second).is_ok());
    assert_eq!(store.size(), before);
    let files = std::fs::read_dir(directory.path().join("store")).unwrap().flatten();
    assert_eq!(files.filter(|file| file.file_name().to_string_lossy().starts_with("3-")).count(), 0);
    // One that takes no more than another client has drives out that one's.
    save(&large, 88).unwrap();
    assert!(store.load(&large).is_ok() && store.load(&first).is_err() && store.load(&second).is_ok());
}
