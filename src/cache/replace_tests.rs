//! What was saved is replaced by what was compiled further, where it still is what was saved, and nowhere else.

use super::tests::{bytes_of, data, key, load, one, saved, Pair, MODEL};
use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// What is there is replaced by this.
fn replace(cache: &Cache, pair: &Pair, written: &Written) -> Result<(), CacheError> {
    cache.replace(&key(1, 1), &pair.files(), written, one(b"further", &data(b"packed")).content())
}

fn written() -> (Cache, Pair, Written) {
    let (cache, pair) = (Cache::new(None, "driver"), Pair::new());
    let written = cache.save(&key(1, 1), &pair.files(), one(MODEL, &data(b"weights")).content()).unwrap();
    (cache, pair, written)
}

#[test]
fn what_was_written_is_replaced_once() {
    let (cache, pair, written) = written();
    let of_load = cache.load(&key(1, 1), &pair.files()).unwrap().written;
    replace(&cache, &pair, &of_load).unwrap();
    let loaded = cache.load(&key(1, 1), &pair.files()).unwrap();
    assert_eq!((&loaded.models[0][..], &bytes_of(&loaded.data[0])[64..]), (&b"further"[..], &b"packed"[..]));
    drop(loaded);
    // It is another by now.
    assert!(matches!(replace(&cache, &pair, &written), Err(CacheError::Changed)));
    assert_eq!(load(&cache, &key(1, 1), &pair).unwrap(), b"further");
}

#[test]
fn what_a_client_did_to_its_files_is_left_alone() {
    type Change = fn(&Cache, &Pair);
    let changes: [Change; 9] = [
        |_, pair| pair.model.write_all_at(&[1], 20).unwrap(),
        |_, pair| pair.model.write_all_at(&[1], 500).unwrap(),
        |_, pair| pair.model.set_len(0).unwrap(),
        |_, pair| pair.model.set_len(20).unwrap(),
        |_, pair| pair.data.set_len(0).unwrap(),
        |_, pair| pair.data.write_all_at(&[1], 1 << 20).unwrap(),
        |_, pair| pair.data.write_all_at(&[1], 3).unwrap(),
        |cache, _| cache.registry.remove(&key(1, 1), |_| true).unwrap(),
        |cache, pair| {
            cache.save(&key(1, 2), &pair.files(), one(b"another", &[]).content()).unwrap();
        },
    ];
    for (i, change) in changes.iter().enumerate() {
        let (cache, pair, written) = written();
        // Longer than the clock that files are dated by takes to move on.
        std::thread::sleep(std::time::Duration::from_millis(30));
        change(&cache, &pair);
        let content = |file: &File| {
            let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        let before = [&pair.model, &pair.data].map(content);
        let refused = replace(&cache, &pair, &written);
        assert!(
            matches!(refused, Err(CacheError::Changed | CacheError::DataChanged)),
            "change {i}: {refused:?}"
        );
        assert!(before == [&pair.model, &pair.data].map(content), "change {i}");
    }
    // Saved again under its token, even though by the same client and from the same model.
    let (cache, pair, written) = written();
    cache.save(&key(1, 1), &pair.files(), one(MODEL, &data(b"weights")).content()).unwrap();
    assert!(matches!(replace(&cache, &pair, &written), Err(CacheError::Changed)));
    assert_eq!(load(&cache, &key(1, 1), &pair).unwrap(), MODEL);
}

#[test]
fn a_place_is_kept_for_what_is_compiled_later() {
    let (cache, pair) = saved();
    let mine = |cache: &Cache, pair: &Pair| cache.reserve(&key(1, 1), &pair.files()).unwrap();
    let first = mine(&cache, &pair);
    assert!(matches!(load(&cache, &key(1, 1), &pair), Err(CacheError::Unknown)), "the earlier one is gone");
    let second = mine(&cache, &pair);
    assert!(matches!(replace(&cache, &pair, &first), Err(CacheError::Changed)), "it is another's place now");
    replace(&cache, &pair, &second).unwrap();
    assert_eq!(load(&cache, &key(1, 1), &pair).unwrap(), b"further");
    let third = mine(&cache, &pair);
    pair.model.write_all_at(&[1; 64], 0).unwrap();
    assert!(matches!(replace(&cache, &pair, &third), Err(CacheError::Changed)));
    assert!(matches!(load(&cache, &key(1, 1), &pair), Err(CacheError::Unknown)));
}
