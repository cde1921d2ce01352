//! The large data of clients' caches, which the driver's own store keeps: loading computes with these and copies nothing.

use crate::common::caching::*;
use crate::common::{bytes_of, Harness};
use nnhal::aidl::ErrorStatus;
use nnhal::cache::Store;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// A driver with this directory, which has compiled the layer and run it once; gives what it answers.
fn saved(directory: &Path, cache: &Cache, input: &[f32]) -> Vec<f32> {
    let harness = Harness::with_data(Some(directory));
    let expected = execute(&save(harness.device(), &layer_of(300), cache), input).unwrap();
    stored(directory);
    expected
}

#[test]
fn what_a_client_has_cached_and_used_is_kept_and_not_copied() {
    let directory = tempfile::tempdir().unwrap();
    let (input, cache) = (vec![1.0; 300], Cache::new(1));
    let expected = saved(directory.path(), &cache, &input);
    let harness = Harness::with_data(Some(directory.path()));
    let (status, loaded) = load(harness.device(), &cache);
    assert_eq!((status, execute(&loaded.unwrap(), &input)), (ErrorStatus::NONE, Ok(expected)));
    assert_kept(&harness, directory.path(), &cache, &input);
    // The model cache is the client's, and has to be what was saved.
    cache.model.write_all_at(&[0xee; 8], 40).unwrap();
    assert_general_failure(harness.device(), &cache, "a changed model cache");
}

/// Damages the data that the store keeps of a layer: what it computes then shows where a load takes them from.
fn assert_kept(harness: &Harness, directory: &Path, cache: &Cache, input: &[f32]) {
    let data = stored(directory);
    data.write_all_at(&vec![0; data.metadata().unwrap().len() as usize - 64], 0).unwrap();
    assert_eq!(execute(&load(harness.device(), cache).1.unwrap(), input), Ok(vec![0.0; input.len()]));
}

#[test]
fn what_a_client_does_to_its_data_cache_counts_whether_they_are_kept_or_not() {
    let directory = tempfile::tempdir().unwrap();
    let (input, cache) = (vec![1.0; 300], Cache::new(1));
    let expected = saved(directory.path(), &cache, &input);
    let harness = Harness::with_data(Some(directory.path()));
    let whole = bytes_of(&cache.data);
    // Long enough for the time of the last change to be another.
    std::thread::sleep(Duration::from_millis(30));
    cache.data.set_len(0).unwrap();
    assert_general_failure(harness.device(), &cache, "no data");
    cache.data.write_all_at(&whole, 0).unwrap();
    assert_eq!(execute(&load(harness.device(), &cache).1.unwrap(), &input), Ok(expected));
    cache.data.write_all_at(&[1; 999], 5).unwrap();
    assert_general_failure(harness.device(), &cache, "other data");
}

#[test]
fn what_was_loaded_from_files_is_kept_once_it_was_used() {
    let directory = tempfile::tempdir().unwrap();
    let (input, cache) = (vec![1.0; 300], Cache::new(1));
    // Compiled, but not used. By another driver: what was compiled may be alive for a moment, and is not loaded then.
    save(Harness::with_data(Some(directory.path())).device(), &layer_of(300), &cache);
    assert_eq!(Store::count(directory.path()), 0);
    let harness = Harness::with_data(Some(directory.path()));
    let expected = execute(&load(harness.device(), &cache).1.unwrap(), &input).unwrap();
    stored(directory.path());
    assert_eq!(execute(&load(harness.device(), &cache).1.unwrap(), &input), Ok(expected));
    assert_kept(&harness, directory.path(), &cache, &input);
}

#[test]
fn small_data_are_copied_and_what_a_later_save_voids_goes() {
    let directory = tempfile::tempdir().unwrap();
    let (input, cache) = (vec![1.0; 300], Cache::new(1));
    saved(directory.path(), &cache, &input);
    let harness = Harness::with_data(Some(directory.path()));
    // Another model under the same token.
    execute(&save(harness.device(), &layer(), &cache), &[1.0; 32]).unwrap();
    assert_eq!(Store::count(directory.path()), 0);
    assert_eq!(load(harness.device(), &cache).0, ErrorStatus::NONE);
    cache.data.set_len(0).unwrap();
    assert_general_failure(harness.device(), &cache, "small data lie in the file only");
}

#[test]
fn what_is_to_be_compiled_later_voids_what_was_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (input, cache) = (vec![1.0; 300], Cache::new(1));
    saved(directory.path(), &cache, &input);
    let harness = Harness::with_data(Some(directory.path()));
    save_later(harness.device(), &layer_of(300), &cache);
    assert_eq!(Store::count(directory.path()), 0);
}
