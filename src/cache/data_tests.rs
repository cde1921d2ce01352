//! Data caches that were changed, lost or taken from elsewhere.

use super::tests::*;
use super::*;
use crate::ops::testing::{Counting, InterruptedAfter};
use crate::ops::OpError;
use nix::unistd::{lseek64, Whence};
use std::os::unix::fs::FileExt;

#[test]
fn data_that_were_changed_or_lost_are_refused_and_what_follows_them_is_nothing() {
    let (cache, pair) = saved();
    pair.data.set_len(100_000).unwrap();
    pair.data.write_all_at(b"more", 71).unwrap();
    assert_eq!(load(&cache, &key(1, 1), &pair).unwrap(), MODEL);
    for at in [0, 4, 5, 63, 64, 70] {
        flip(&pair.data, at);
        assert!(matches!(load(&cache, &key(1, 1), &pair), Err(CacheError::DataChanged)), "byte {at}");
        flip(&pair.data, at);
    }
    pair.data.set_len(70).unwrap();
    assert!(matches!(load(&cache, &key(1, 1), &pair), Err(CacheError::Data(_))));
    // What a client leaves that opens the file to save anew, while it is just being written for another of its threads.
    pair.data.set_len(0).unwrap();
    pair.data.set_len(100_000).unwrap();
    assert!(matches!(load(&cache, &key(1, 1), &pair), Err(CacheError::DataChanged)));
}

#[test]
fn what_was_loaded_stays_whatever_becomes_of_the_files() {
    let (cache, pair) = saved();
    let large: Vec<u8> = (0..9_000_001u32).map(|i| (i % 251) as u8).collect();
    for content in [&b"weights"[..], &large] {
        save(&cache, &key(1, 1), &pair, &one(MODEL, &data(content))).unwrap();
        let loaded = cache.load(&key(1, 1), &pair.files()).unwrap();
        pair.data.write_all_at(&[0xee; 100], 0).unwrap();
        pair.data.set_len(0).unwrap();
        assert!(!loaded.data[0].vanished());
        assert!(bytes_of(&loaded.data[0])[64..] == *content, "{} bytes", content.len());
    }
}

struct Stopped;

impl Interrupt for Stopped {
    fn check(&self) -> Result<(), OpError> {
        Err(OpError::DeadlinePassed)
    }
}

#[test]
fn data_are_copied_no_longer_than_anybody_waits_for_them() {
    let (cache, pair) = saved();
    let load = |interrupt: &dyn Interrupt| {
        let by = Reading { interrupt, ..Reading::FREELY };
        cache.load_beside(&key(1, 1), &pair.files(), |_| None, by).map(drop)
    };
    assert!(matches!(load(&Stopped), Err(CacheError::Stopped(OpError::DeadlinePassed))));
    // The model cache is read and hashed first.
    assert!(matches!(load(&InterruptedAfter::checks(2)), Err(CacheError::Data(_))));
    load(&NeverInterrupted).unwrap();
}

/// Nothing is begun that would be left undone.
#[test]
fn a_save_comes_by_yield_points_and_changes_nothing_where_it_is_stopped() {
    let other = one(b"another model", &data(&vec![7; 9 << 20]));
    let save = |(cache, pair): &(Cache, Pair), interrupt: &dyn Interrupt| {
        cache.save(&key(1, 1), &pair.files(), other.content(), interrupt).map(drop)
    };
    let counting = Counting::default();
    save(&saved(), &counting).unwrap();
    let points = counting.take() as u32;
    assert!(points >= 18, "{points} yield points");
    let before = saved();
    for after in 0..points {
        let stopped = save(&before, &InterruptedAfter::checks(after));
        assert!(matches!(stopped, Err(CacheError::Stopped(_))), "{after} of {points}: {stopped:?}");
        assert_eq!(load(&before.0, &key(1, 1), &before.1).unwrap(), MODEL);
    }
    save(&before, &InterruptedAfter::checks(points)).unwrap();
    assert_eq!(load(&before.0, &key(1, 1), &before.1).unwrap(), b"another model");
}

#[test]
fn data_of_another_save_is_not_taken() {
    let (cache, pair) = saved();
    let other = Pair::new();
    save(&cache, &key(1, 2), &other, &one(MODEL, &data(b"WEIGHTS"))).unwrap();
    let mixed = CacheFiles::new(&[&pair.model], &[&other.data]).unwrap();
    assert!(matches!(cache.load(&key(1, 1), &mixed), Err(CacheError::DataChanged)));
    assert_eq!(load(&cache, &key(1, 1), &pair).unwrap(), MODEL);
}

#[test]
fn caches_are_read_and_hashed_with_pauses_and_alone_where_nobody_may_help() {
    const BYTES: usize = 8 << 20;
    let (cache, pair, interrupt) = (Cache::new(None, "a driver"), Pair::new(), Counting::default());
    let large = one(&[1; BYTES], &data(&vec![2; BYTES]));
    for (content, least) in [(one(&[1; BYTES], &data(b"weights")), BYTES >> 20), (large, BYTES >> 17)] {
        save(&cache, &key(1, 1), &pair, &content).unwrap();
        let by = Reading { interrupt: &interrupt, may_help: &|| false };
        let loaded = cache.load_beside(&key(1, 1), &pair.files(), |_| None, by).unwrap();
        assert_eq!(loaded.models, content.content().models);
        let passed = interrupt.take();
        assert!(passed >= least, "{passed} yield points");
    }
}

/// A file system in memory has nothing to put into a hole once it is full.
#[test]
fn the_last_page_of_a_data_cache_is_no_hole() {
    let (_, pair) = saved();
    let last = pair.data.metadata().unwrap().len() as i64 - 1;
    assert_eq!(lseek64(&pair.data, last, Whence::SeekData), Ok(last));
}
