//! Compilation caching over binder, as VTS tries it: chains of a hundred operations, saved, changed, swapped, raced.

use crate::common::caching::*;
use crate::common::*;
use nnhal::aidl::*;
use nnhal::cache::{CacheFiles, Content, Key, Store};
use nnhal::memory::ClientSlice;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ROUNDS: usize = 100;

/// A small generator: the same changes in each run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Turns over a bit among the first `len` bytes.
fn damage(file: &File, len: u64, noise: &mut Noise) {
    let at = noise.below(len);
    flip(file, at, noise.below(8));
}

fn append(file: &File, noise: &mut Noise) {
    let bytes: Vec<u8> = (0..1 + noise.below(256)).map(|_| noise.below(256) as u8).collect();
    file.write_all_at(&bytes, file.metadata().unwrap().len()).unwrap();
}

#[test]
fn two_files_are_needed() {
    let numbers = Harness::new().device().getNumberOfCacheFilesNeeded().unwrap();
    assert_eq!((numbers.numModelCache, numbers.numDataCache), (1, 1));
}

#[test]
fn a_model_comes_back_from_its_cache() {
    let harness = Harness::new();
    let cache = Cache::new(1);
    // What the files hold before does not matter.
    cache.model.write_all_at(&[1; 20_000], 0).unwrap();
    cache.data.write_all_at(&[1; 2], 0).unwrap();
    let input: Vec<f32> = (0..32).map(|i| i as f32 / 8.0).collect();
    let compiled = save(harness.device(), &layer(), &cache);
    let (status, loaded) = load(harness.device(), &cache);
    assert_eq!(status, ErrorStatus::NONE);
    let expected = execute(&compiled, &input).unwrap();
    assert_eq!(execute(&loaded.unwrap(), &input).unwrap(), expected);
    // Loading takes nothing away.
    assert_eq!(load(harness.device(), &cache).0, ErrorStatus::NONE);
}

#[test]
fn a_cache_outlives_the_driver_if_it_has_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::new(1);
    save(Harness::with_data(Some(directory.path())).device(), &add(), &cache);
    let harness = Harness::with_data(Some(directory.path()));
    let (_, model) = load(harness.device(), &cache);
    assert_eq!(execute(&model.expect("a hit"), &[1.0]), Ok(vec![added()]));
    assert_general_failure(Harness::new().device(), &cache, "a driver that never wrote it");
}

#[test]
fn without_a_usable_directory_models_are_prepared_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), b"").unwrap();
    let harness = Harness::with_data(Some(&directory.path().join("file/data")));
    let cache = Cache::new(1);
    assert_eq!(execute(&save(harness.device(), &add(), &cache), &[1.0]), Ok(vec![added()]));
    assert_general_failure(harness.device(), &cache, "nothing was recorded");
}

#[test]
fn wrong_files_do_not_hinder_preparing_and_do_not_load() {
    let harness = Harness::new();
    let cache = Cache::new(1);
    let (m, d, other) = (&cache.model, &cache.data, &memfd(&[]));
    let reopened = |file: &File, options: &mut OpenOptions| {
        use std::os::fd::AsRawFd;
        options.open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
    };
    let read = |file| reopened(file, OpenOptions::new().read(true));
    let write = |file| reopened(file, OpenOptions::new().write(true));
    let (read_m, read_d, write_m, write_d) = (&read(m), &read(d), &write(m), &write(d));
    let wrong: [(&[&File], &[&File]); 9] = [
        (&[m, other], &[d]),
        (&[], &[d]),
        (&[m], &[d, other]),
        (&[m], &[]),
        (&[read_m], &[d]),
        (&[m], &[read_d]),
        (&[write_m], &[d]),
        (&[m], &[write_d]),
        (&[m], &[m]),
    ];
    for (models, data) in wrong {
        let model = save_in(harness.device(), &add(), models, data, &cache.token);
        assert_eq!(execute(&model, &[1.0]), Ok(vec![added()]));
        assert_wrong(load_from(harness.device(), models, data, &cache.token).0);
    }
    save(harness.device(), &add(), &cache);
    for (models, data) in wrong {
        assert_wrong(load_from(harness.device(), models, data, &cache.token).0);
    }
    for token in [&[][..], &[1; 31], &[1; 33]] {
        let model = save_in(harness.device(), &add(), &[m], &[d], token);
        assert_eq!(execute(&model, &[1.0]), Ok(vec![added()]));
        assert_wrong(load_from(harness.device(), &[m], &[d], token).0);
    }
    assert_eq!(load(harness.device(), &cache).0, ErrorStatus::NONE);
}

#[test]
fn a_changed_model_cache_or_token_is_a_general_failure() {
    let harness = Harness::new();
    for seed in 0..10 {
        let cache = Cache::new(1);
        save(harness.device(), &add(), &cache);
        damage(&cache.model, cache.model.metadata().unwrap().len(), &mut Noise(seed));
        assert_general_failure(harness.device(), &cache, "a bit");
        save(harness.device(), &add(), &cache);
        append(&cache.model, &mut Noise(seed));
        assert_general_failure(harness.device(), &cache, "more bytes");
        let mut cache = Cache::new(1);
        save(harness.device(), &add(), &cache);
        let bit = Noise(seed).below(256) as usize;
        cache.token[bit / 8] ^= 1 << (bit % 8);
        assert_general_failure(harness.device(), &cache, "another token");
    }
}

#[test]
fn a_changed_data_cache_is_a_general_failure() {
    let harness = Harness::new();
    for seed in 0..10 {
        let cache = Cache::new(1);
        let model = save(harness.device(), &layer(), &cache);
        append(&cache.data, &mut Noise(seed));
        let loaded = load(harness.device(), &cache).1.expect("what follows the data is of no matter");
        assert_eq!(execute(&loaded, &[1.0; 32]), execute(&model, &[1.0; 32]));
        // Among the weights.
        damage(&cache.data, 32 * 32 * 4, &mut Noise(seed));
        assert_general_failure(harness.device(), &cache, "a bit");
    }
}

#[test]
fn a_forged_data_cache_changes_values_only() {
    let harness = Harness::new();
    for seed in 0..10 {
        let cache = Cache::new(1);
        save(harness.device(), &layer(), &cache);
        (0..20).for_each(|_| forge(&cache.data, Noise(seed).below(32 * 32 / 4) * 16));
        let model = load(harness.device(), &cache).1.expect("the checksum is what it was");
        execute(&model, &[1.0; 32]).unwrap();
    }
}

#[test]
fn what_was_loaded_needs_its_files_no_more() {
    let harness = Harness::new();
    let (input, cache) = ([1.0; 300], Cache::new(1));
    let compiled = save(harness.device(), &layer_of(300), &cache);
    let expected = execute(&compiled, &input).unwrap();
    let whole = bytes_of(&cache.data);
    for left in [whole.len() - 1, 8192, 4096, 100, 0] {
        cache.data.write_all_at(&whole, 0).unwrap();
        let loaded = load(harness.device(), &cache).1.unwrap();
        cache.data.write_all_at(&[0xee; 64], 0).unwrap();
        cache.data.set_len(left as u64).unwrap();
        for model in [&compiled, &loaded] {
            assert_eq!(execute(model, &input).as_ref(), Ok(&expected), "{left} bytes are left");
        }
        assert_general_failure(harness.device(), &cache, "a data cache that is too short");
    }
}

#[test]
fn what_another_version_of_the_driver_wrote_is_refused() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (cache, input) = (Cache::new(1), [1.0; 32]);
    let (expected, version) = {
        let harness = Harness::with_data(Some(ours.path()));
        let compiled = save(harness.device(), &layer(), &cache);
        (execute(&compiled, &input).unwrap(), harness.device().getVersionString().unwrap())
    };
    let key = Key { uid: ours.path().metadata().unwrap().uid(), token: cache.token };
    let files = CacheFiles::new(&[&cache.model], &[&cache.data]).unwrap();
    let this = nnhal::cache::Cache::new(Some(ours.path()), &version);
    let saved = this.load(&key, &files).expect("it is known under this version");
    // The very bytes that this version would write.
    let data = ClientSlice::whole(saved.data[0].clone()).to_private().unwrap();
    let earlier = nnhal::cache::Cache::new(Some(theirs.path()), "an earlier version");
    let content = Content { models: &saved.models, data: &[vec![(0, data.into())]] };
    earlier.save(&key, &files, content, &nnhal::ops::NeverInterrupted).unwrap();
    assert!(earlier.load(&key, &files).is_ok());
    drop(earlier);
    let harness = Harness::with_data(Some(theirs.path()));
    assert_general_failure(harness.device(), &cache, "another version's");
    assert_eq!(execute(&save(harness.device(), &layer(), &cache), &input).as_ref(), Ok(&expected));
    assert_eq!(execute(&load(harness.device(), &cache).1.unwrap(), &input), Ok(expected));
}

#[test]
fn clients_that_save_under_one_token_at_once_get_one_model_or_none() {
    let harness = Harness::new();
    let shared = Cache::new(1);
    let cases = [(add(), added()), (mul(), multiplied())];
    // In the same files, and in files of their own: either way it is one entry.
    for own_files in [false, true] {
        let own = [Cache::new(1), Cache::new(1)];
        let files = |i: usize| if own_files { &own[i] } else { &shared };
        std::thread::scope(|scope| {
            for (i, (model, own_result)) in cases.iter().enumerate() {
                let connection = harness.connect();
                scope.spawn(move || {
                    let connection = connection; // whole: the session ends with it
                    for _ in 0..10 {
                        let saved = save(&connection.device, model, files(i));
                        assert_eq!(execute(&saved, &[1.0]), Ok(vec![*own_result]));
                        if let (ErrorStatus::NONE, Some(model)) = load(&connection.device, files(i)) {
                            let result = execute(&model, &[1.0]).unwrap()[0];
                            assert!([added(), multiplied()].contains(&result), "{result}");
                            assert!(!own_files || result == *own_result, "another's files");
                        }
                    }
                });
            }
        });
        // Whoever was last has what is recorded.
        let loads = [0, 1].map(|i| load(harness.device(), files(i)).0);
        assert!(loads.contains(&ErrorStatus::NONE), "{loads:?}");
        assert!(!own_files || loads.contains(&ErrorStatus::GENERAL_FAILURE), "{loads:?}");
    }
}

#[test]
fn another_models_cache_is_refused() {
    let harness = Harness::new();
    let (ours, theirs) = (Cache::new(1), Cache::new(2));
    save(harness.device(), &add(), &ours);
    save(harness.device(), &mul(), &theirs);
    let loaded = load_from(harness.device(), &[&theirs.model], &[&theirs.data], &ours.token);
    assert_eq!(loaded.0, ErrorStatus::GENERAL_FAILURE);
    let loaded = load_from(harness.device(), &[&theirs.model], &[&ours.data], &ours.token);
    assert_eq!(loaded.0, ErrorStatus::GENERAL_FAILURE);
    // The latest model under a token is the one.
    save_in(harness.device(), &mul(), &[&ours.model], &[&ours.data], &ours.token);
    assert_eq!(execute(&load(harness.device(), &ours).1.unwrap(), &[1.0]), Ok(vec![multiplied()]));
}

/// Overwrites `cache` with another model's files, for as long as `body` runs.
fn race(cache: &Cache, other: &Cache, body: impl FnOnce()) {
    let (model, data) = (bytes_of(&other.model), bytes_of(&other.data));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                cache.model.set_len(model.len() as u64).unwrap();
                cache.model.write_all_at(&model, 0).unwrap();
                cache.data.set_len(data.len() as u64).unwrap();
                cache.data.write_all_at(&data, 0).unwrap();
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        body();
        stop.store(true, Ordering::Relaxed);
    });
}

fn toctou(while_saving: bool) {
    let harness = Harness::new();
    let other = Cache::new(2);
    save(harness.device(), &mul(), &other);
    for _ in 0..ROUNDS {
        let cache = Cache::new(1);
        if while_saving {
            race(&cache, &other, || drop(save(harness.device(), &add(), &cache)));
        } else {
            save(harness.device(), &add(), &cache);
        }
        let check = || {
            if let (ErrorStatus::NONE, Some(model)) = load(harness.device(), &cache) {
                assert_eq!(execute(&model, &[1.0]), Ok(vec![added()]));
            }
        };
        if while_saving {
            check();
        } else {
            race(&cache, &other, check);
        }
    }
}

#[test]
fn files_swapped_while_saving_never_give_another_model() {
    toctou(true);
}

#[test]
fn files_swapped_while_loading_never_give_another_model() {
    toctou(false);
}

#[test]
fn a_model_prepared_before_comes_from_the_drivers_own_store() {
    let directory = tempfile::tempdir().unwrap();
    let (model, input) = (layer_of(300), vec![1.0; 300]);
    let expected = {
        let harness = Harness::with_data(Some(directory.path()));
        let expected = execute(&harness.prepare(&model), &input).unwrap();
        stored(directory.path());
        assert_eq!(execute(&harness.prepare(&model), &input).unwrap(), expected);
        expected
    };
    // In another process's life too. What it computes with is what was stored, and no other model's.
    let harness = Harness::with_data(Some(directory.path()));
    let data = stored(directory.path());
    data.write_all_at(&vec![0; data.metadata().unwrap().len() as usize], 0).unwrap();
    assert_eq!(execute(&harness.prepare(&model), &input).unwrap(), vec![0.0; 300]);
    let mut other = layer_of(300);
    other.operandValues[0] ^= 1;
    assert_ne!(execute(&harness.prepare(&other), &input).unwrap(), vec![0.0; 300]);
    assert_ne!(expected, vec![0.0; 300]);
}

#[test]
fn small_models_are_not_stored_and_no_store_is_no_store() {
    let directory = tempfile::tempdir().unwrap();
    Harness::with_data(Some(directory.path())).prepare(&layer());
    Harness::new().prepare(&layer_of(300));
    assert_eq!(Store::count(directory.path()), 0);
}

#[test]
fn what_lies_in_the_store_fills_a_clients_files() {
    let directory = tempfile::tempdir().unwrap();
    let (model, input, cache) = (layer_of(300), vec![1.0; 300], Cache::new(1));
    {
        let harness = Harness::with_data(Some(directory.path()));
        execute(&harness.prepare(&model), &input).unwrap();
        stored(directory.path());
    }
    // What the model computes shows where it comes from.
    let harness = Harness::with_data(Some(directory.path()));
    let data = stored(directory.path());
    data.write_all_at(&vec![0; data.metadata().unwrap().len() as usize], 0).unwrap();
    assert_eq!(execute(&save(harness.device(), &model, &cache), &input).unwrap(), vec![0.0; 300]);
    let (status, loaded) = load(harness.device(), &cache);
    assert_eq!(status, ErrorStatus::NONE);
    assert_eq!(execute(&loaded.unwrap(), &input).unwrap(), vec![0.0; 300]);
}

#[test]
fn a_load_keeps_its_deadline() {
    let (harness, cache) = (Harness::new(), Cache::new(1));
    save(harness.device(), &add(), &cache);
    let load = |deadline| {
        let (callback, verdict) = callback();
        let (models, data) = (descriptors(&[&cache.model]), descriptors(&[&cache.data]));
        let launched =
            harness.device().prepareModelFromCache(deadline, &models, &data, &cache.token, &callback);
        let (told, model) = verdict.recv_timeout(PATIENCE).expect("a verdict");
        assert!(launched.is_ok() || status(&launched) == told, "what is thrown is told as well");
        (told, model.is_some())
    };
    assert_eq!(load(1), (ErrorStatus::MISSED_DEADLINE_PERSISTENT, false));
    assert_eq!(load(-2), (ErrorStatus::INVALID_ARGUMENT, false));
    assert_eq!(load(i64::MAX), (ErrorStatus::NONE, true));
}
