//! Whatever is damaged in a registry's file, a driver that dies of it leaves a mark, and a later start has a registry.

use super::tests::key;
use super::{Entry, FileId, Limits, Record, Registry};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;

/// Starts that a damage may cost: one ends amid a write, one amid the next, one finds it.
const MOST_STARTS: usize = 4;

fn entry(token: u8) -> Entry {
    let record =
        Record { hash: [token; 32], model_len: 9, data_len: 0, data_hash: None, model: u64::from(token) };
    Entry { key: key(1, token), file: FileId { device: 1, inode: 1 }, record, last_use: 0 }
}

/// What a driver does with the registry: whether it could, or `None` if it would not have survived it.
fn start(directory: &Path) -> Option<bool> {
    let work = || {
        let registry = Registry::new(Some(directory), "driver", Limits::default());
        let _ = registry.get(&entry(1).key);
        let recorded = registry.put(&entry(9)).is_ok();
        recorded && registry.get(&entry(9).key).is_ok_and(|found| !found.is_empty())
    };
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Starts until there is a registry; gives how often it died of the one there was.
fn heal(directory: &Path, what: &str) -> usize {
    let mark = directory.join("registry.mark");
    std::fs::write(&mark, "").unwrap();
    let (mut deaths, mut failures) = (0, 0);
    loop {
        match start(directory) {
            Some(true) => return deaths,
            Some(false) => failures += 1,
            None => {
                deaths += 1;
                assert!(!std::fs::read(&mark).unwrap().is_empty(), "{what}: nothing tells of the death");
            }
        }
        assert!(deaths + failures < MOST_STARTS, "{what}: it goes on");
    }
}

#[test]
fn every_damage_heals() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("registry.redb");
    {
        // Of another driver, so that the start has to write at once.
        let registry = Registry::new(Some(directory.path()), "earlier", Limits::default());
        (0..4).for_each(|token| drop(registry.put(&entry(token)).unwrap()));
    }
    let whole = std::fs::read(&path).unwrap();
    let mut deaths = 0;
    let mut try_one = |damaged: &[u8], what: &str| {
        std::fs::write(&path, damaged).unwrap();
        deaths += heal(directory.path(), what);
    };
    let blocks = whole.chunks(16).enumerate().filter(|(_, block)| block.iter().any(|&byte| byte != 0));
    for (block, _) in blocks {
        let changes: [fn(&mut [u8]); 2] =
            [|block| block[3] ^= 0xcd, |block| block[1..3].copy_from_slice(&[0, 16])];
        for change in changes {
            let mut damaged = whole.clone();
            change(&mut damaged[block * 16..][..16]);
            try_one(&damaged, &format!("block {block}"));
        }
    }
    for len in (0..whole.len()).step_by(whole.len() / 16) {
        try_one(&whole[..len], &format!("cut to {len}"));
    }
    assert!(deaths > 0, "no damage was one that ends a driver");
}

#[test]
fn a_registry_that_opens_and_cannot_be_used_is_made_anew() {
    let directory = tempfile::TempDir::new().unwrap();
    {
        let database = redb::Database::create(directory.path().join("registry.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        // The table's name, with other types.
        transaction.open_table(redb::TableDefinition::<u64, u64>::new("cache files")).unwrap();
        transaction.commit().unwrap();
    }
    assert_eq!(heal(directory.path(), "a table of other types"), 0, "no driver dies of it");
    assert!(directory.path().join("registry.damaged").exists());
}
