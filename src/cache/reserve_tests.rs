//! Files that are reserved for what is compiled later are filled where they still are as they were left, and nowhere else.

use super::tests::{data, flip, key, load, one, save, saved, Pair, MODEL};
use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt;

fn fill(cache: &Cache, pair: &Pair, reserved: &Reserved) -> Result<(), CacheError> {
    cache.fill(
        &key(1, 1),
        &pair.files(),
        reserved,
        one(b"later", &data(b"packed")).content(),
        &NeverInterrupted,
    )
}

fn reserved() -> (Cache, Pair, Reserved) {
    let (cache, pair) = saved();
    let reserved = cache.reserve(&key(1, 1), &pair.files(), &NeverInterrupted).unwrap();
    (cache, pair, reserved)
}

#[test]
fn a_place_is_kept_for_what_is_compiled_later() {
    let (cache, pair, first) = reserved();
    assert!(matches!(load(&cache, &key(1, 1), &pair), Err(CacheError::Unknown)), "the earlier one is gone");
    let second = cache.reserve(&key(1, 1), &pair.files(), &NeverInterrupted).unwrap();
    assert!(matches!(fill(&cache, &pair, &first), Err(CacheError::Changed)), "it is another's place now");
    fill(&cache, &pair, &second).unwrap();
    assert_eq!(load(&cache, &key(1, 1), &pair).unwrap(), b"later");
    assert!(matches!(fill(&cache, &pair, &second), Err(CacheError::Changed)), "once is enough");
}

#[test]
fn what_a_client_did_to_its_files_is_left_alone() {
    type Change = fn(&Cache, &Pair);
    let changes: [Change; 8] = [
        |_, pair| flip(&pair.model, 3),
        |_, pair| pair.model.write_all_at(&[1], 500).unwrap(),
        |_, pair| pair.model.set_len(0).unwrap(),
        |_, pair| pair.model.set_len(5).unwrap(),
        |_, pair| pair.data.set_len(0).unwrap(),
        |_, pair| pair.data.write_all_at(&[1], 1 << 20).unwrap(),
        |cache, pair| {
            save(cache, &key(1, 2), pair, &one(b"another", &[])).unwrap();
        },
        // Saved under its token, though by the same client.
        |cache, pair| {
            save(cache, &key(1, 1), pair, &one(MODEL, &data(b"weights"))).unwrap();
        },
    ];
    for (i, change) in changes.iter().enumerate() {
        let (cache, pair, reserved) = reserved();
        // Longer than the clock that files are dated by takes to move on.
        std::thread::sleep(std::time::Duration::from_millis(30));
        change(&cache, &pair);
        let content = |file: &File| {
            let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        let before = [&pair.model, &pair.data].map(content);
        let refused = fill(&cache, &pair, &reserved);
        assert!(
            matches!(refused, Err(CacheError::Changed | CacheError::DataChanged)),
            "change {i}: {refused:?}"
        );
        assert!(before == [&pair.model, &pair.data].map(content), "change {i}");
    }
}

#[test]
fn places_in_two_directories_are_kept_beside_each_other() {
    let (cache, pair, first) = reserved();
    let elsewhere = Pair::new();
    let second = cache.reserve(&key(1, 1), &elsewhere.files(), &NeverInterrupted).unwrap();
    fill(&cache, &pair, &first).unwrap();
    fill(&cache, &elsewhere, &second).unwrap();
    for pair in [&pair, &elsewhere] {
        assert_eq!(load(&cache, &key(1, 1), pair).unwrap(), b"later");
    }
    let again = cache.reserve(&key(1, 1), &pair.files(), &NeverInterrupted).unwrap();
    assert!(load(&cache, &key(1, 1), &pair).is_err());
    assert_eq!(load(&cache, &key(1, 1), &elsewhere).unwrap(), b"later");
    fill(&cache, &pair, &again).unwrap();
}
