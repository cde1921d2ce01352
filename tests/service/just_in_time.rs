//! What is saved when over binder: at once, once it was used, or once it is compiled just in time; and what must not be
//! written. Results are the same bytes whenever a model is compiled.

use crate::common::caching::*;
use crate::common::process::wait_until;
use crate::common::*;
use binder::Strong;
use nnhal::aidl::*;
use nnhal::cache::Store;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Large enough that the driver stores it; its weights pass through a call.
const SIZE: i32 = 300;

/// Longer than anything in the background takes, and than the clock that files are dated by takes to move on.
const WHILE: Duration = Duration::from_millis(400);

fn input() -> Vec<f32> {
    (0..SIZE).map(|i| i as f32 / 8.0 - 9.0).collect()
}

/// What the layer makes of its input.
fn expected(harness: &Harness) -> Vec<f32> {
    execute(&harness.prepare(&layer_of(SIZE)), &input()).expect("executed")
}

#[track_caller]
fn assert_right(model: &Strong<dyn IPreparedModel>, expected: &[f32]) {
    assert_eq!(execute(model, &input()).as_deref(), Ok(expected));
}

/// All bytes of the cache files.
fn content(cache: &Cache) -> [Vec<u8>; 2] {
    [bytes_of(&cache.model), bytes_of(&cache.data)]
}

/// Waits until the files are others than these, and whole.
#[track_caller]
fn wait_until_filled(cache: &Cache, place: &[Vec<u8>; 2]) {
    let start = Instant::now();
    // The model cache is the last to be written.
    while cache.model.metadata().unwrap().len() == 0 || bytes_of(&cache.model) == place[0] {
        assert!(start.elapsed() < PATIENCE, "nothing is saved");
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_ne!(bytes_of(&cache.data), place[1]);
}

/// How many duplicates of this file this process has open.
fn descriptors_of(file: &File) -> usize {
    use std::os::unix::fs::MetadataExt;
    let own = file.metadata().unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let same = |path: std::path::PathBuf| {
        path.metadata().is_ok_and(|facts| (facts.dev(), facts.ino()) == (own.dev(), own.ino()))
    };
    open.filter(|entry| same(entry.path())).count()
}

#[test]
fn what_is_saved_is_whole_at_once() {
    let (harness, cache) = (Harness::with_data(None), Cache::new(1));
    let expected = expected(&harness);
    let compiled = save(harness.device(), &layer_of(SIZE), &cache);
    let saved = content(&cache);
    // The thread that served the call closes what came with it once it has answered.
    wait_until("all that is open is the client's", || {
        descriptors_of(&cache.model) + descriptors_of(&cache.data) == 2
    });
    let loaded = load(harness.device(), &cache).1.expect("a hit");
    for model in [&compiled, &loaded] {
        assert_right(model, &expected);
    }
    std::thread::sleep(WHILE);
    assert!(content(&cache) == saved, "it was written once more");
    // What it computes with is its own.
    cache.data.set_len(0).unwrap();
    assert_right(&loaded, &expected);
}

#[test]
fn saving_anew_does_nothing_to_models_that_were_loaded() {
    let (harness, cache) = (Harness::new(), Cache::new(1));
    let expected = expected(&harness);
    drop(save(harness.device(), &layer_of(SIZE), &cache));
    let loaded = load(harness.device(), &cache).1.expect("a hit");
    let mut other = layer_of(SIZE);
    other.operandValues[2] ^= 0x20;
    let again = save(harness.device(), &other, &cache);
    assert_right(&loaded, &expected);
    let others = execute(&again, &input()).expect("executed");
    assert_ne!(others, expected);
    assert_eq!(execute(&load(harness.device(), &cache).1.expect("a hit"), &input()), Ok(others));
}

#[test]
fn what_a_client_does_to_its_files_is_never_undone() {
    let harness = Harness::new();
    let (expected, other) = (expected(&harness), Cache::new(2));
    drop(save(harness.device(), &add(), &other));
    type Change = fn(&Harness, &Cache, &Cache);
    let changes: [(&str, bool, Change); 8] = [
        ("a bit of the model", false, |_, cache, _| flip(&cache.model, 40, 0)),
        ("a longer model", false, |_, cache, _| {
            cache.model.write_all_at(&[1], cache.model.metadata().unwrap().len()).unwrap();
        }),
        ("no model", false, |_, cache, _| cache.model.set_len(0).unwrap()),
        ("no data", false, |_, cache, _| cache.data.set_len(0).unwrap()),
        ("other data", false, |_, cache, _| cache.data.write_all_at(&[1; 999], 5).unwrap()),
        ("forged data", true, |_, cache, _| forge(&cache.data, 64)),
        ("another model's files", false, |_, cache, other| {
            cache.model.set_len(0).unwrap();
            cache.model.write_all_at(&bytes_of(&other.model), 0).unwrap();
        }),
        ("used for another token", false, |harness, cache, _| {
            drop(save_in(harness.device(), &mul(), &[&cache.model], &[&cache.data], &[9; 32]));
        }),
    ];
    for (what, loads, change) in changes {
        let cache = Cache::new(1);
        let compiled = save(harness.device(), &layer_of(SIZE), &cache);
        std::thread::sleep(Duration::from_millis(30));
        change(&harness, &cache, &other);
        let before = content(&cache);
        assert_right(&compiled, &expected);
        std::thread::sleep(WHILE);
        assert!(content(&cache) == before, "{what}: it was rewritten");
        let (status, _) = load(harness.device(), &cache);
        assert_eq!(status == ErrorStatus::NONE, loads, "{what}: {status:?}");
    }
}

#[test]
fn data_that_change_before_they_are_loaded_change_values_only() {
    let expected = expected(&Harness::new());
    for word in [0, 77, (SIZE * SIZE / 4) as u64] {
        let (cache, directory) = (Cache::new(1), tempfile::tempdir().unwrap());
        // By another driver, as this one may have the model still.
        drop(save(Harness::with_data(Some(directory.path())).device(), &layer_of(SIZE), &cache));
        forge(&cache.data, word * 8);
        let harness = Harness::with_data(Some(directory.path()));
        let loaded = load(harness.device(), &cache).1.expect("a hit");
        // Nothing that comes later reaches it, packed or not.
        cache.data.write_all_at(&[0; 64], 0).unwrap();
        let changed = execute(&loaded, &input()).expect("values are all that changes");
        assert_ne!(changed, expected);
        cache.data.write_all_at(&[1; 64], 0).unwrap();
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&execute(&loaded, &input()).expect("executed")), bits(&changed));
        assert_eq!(self::expected(&harness), expected);
    }
}

#[test]
fn locks_that_others_hold_change_nothing() {
    let (harness, cache) = (Harness::new(), Cache::new(1));
    let expected = expected(&harness);
    let compiled = save(harness.device(), &layer_of(SIZE), &cache);
    // An open file of its own, as another process has.
    let path = format!("/proc/self/fd/{}", cache.data.as_raw_fd());
    let other = OpenOptions::new().read(true).write(true).open(path).unwrap();
    other.lock().unwrap();
    assert_right(&load(harness.device(), &cache).1.expect("a hit"), &expected);
    assert_right(&compiled, &expected);
    assert_right(&save(harness.device(), &layer_of(SIZE), &cache), &expected);
    assert_right(&load(harness.device(), &cache).1.expect("a hit"), &expected);
}

#[test]
fn a_store_keeps_what_was_used_only() {
    let directory = tempfile::tempdir().unwrap();
    let harness = Harness::with_data(Some(directory.path()));
    let model = harness.prepare(&layer_of(SIZE));
    std::thread::sleep(WHILE);
    assert_eq!(Store::count(directory.path()), 0);
    let expected = execute(&model, &input()).expect("executed");
    drop(model);
    let start = Instant::now();
    while Store::count(directory.path()) == 0 {
        assert!(start.elapsed() < PATIENCE, "it was used, and is whole, though nobody has it any more");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_right(&harness.prepare(&layer_of(SIZE)), &expected);
}

#[test]
fn first_executions_at_once_agree() {
    let harness = Harness::new();
    let expected = expected(&harness);
    for _ in 0..5 {
        let models = [harness.prepare(&layer_of(SIZE)), just_in_time(&harness, &layer_of(SIZE))];
        std::thread::scope(|scope| {
            for i in 0..8 {
                let (models, expected) = (&models, &expected);
                scope.spawn(move || assert_right(&models[i % 2], expected));
            }
        });
    }
}

#[test]
fn a_first_execution_keeps_its_deadline() {
    let harness = Harness::new();
    let expected = expected(&harness);
    for model in [harness.prepare(&layer_of(SIZE)), just_in_time(&harness, &layer_of(SIZE))] {
        let (request, _output) = request(&floats(&input()), input().len() * 4);
        let late = model.executeSynchronously(&request, false, 1, -1);
        assert_eq!(status(&late), ErrorStatus::MISSED_DEADLINE_PERSISTENT);
        assert_right(&model, &expected);
    }
}

fn just_in_time(harness: &Harness, model: &Model) -> Strong<dyn IPreparedModel> {
    prepare_by(harness.device(), model, &just_in_time_config(&[1]))
}

#[test]
fn just_in_time_gives_the_same_bytes() {
    let harness = Harness::new();
    let expected = expected(&harness);
    for value in [&[1][..], &[0], &[], &[7, 7]] {
        let model = prepare_by(harness.device(), &layer_of(SIZE), &just_in_time_config(value));
        assert_right(&model, &expected);
        assert_right(&model, &expected);
    }
    assert_eq!(execute(&just_in_time(&harness, &add()), &[1.0]), Ok(vec![added()]));
    // What is invalid is said at once, as ever.
    let mut invalid = layer_of(SIZE);
    invalid.main.operations[0].inputs.pop();
    let mut twice = just_in_time_config(&[1]);
    twice.compilationHints.extend(just_in_time_config(&[1]).compilationHints);
    for (model, config) in [(&invalid, &just_in_time_config(&[1])), (&layer_of(SIZE), &twice)] {
        let (callback, verdict) = callback();
        let launched = harness.device().prepareModelWithConfig(model, config, &callback);
        assert_eq!(status(&launched), ErrorStatus::INVALID_ARGUMENT);
        assert_eq!(verdict.recv_timeout(PATIENCE).expect("a verdict").0, ErrorStatus::INVALID_ARGUMENT);
    }
}

#[test]
fn what_is_compiled_just_in_time_is_cached_once_it_is_compiled() {
    let harness = Harness::new();
    let expected = expected(&harness);
    let cache = Cache::new(1);
    // An earlier model under the same token is gone.
    drop(save(harness.device(), &add(), &cache));
    let model = save_later(harness.device(), &layer_of(SIZE), &cache);
    assert_general_failure(harness.device(), &cache, "it was not compiled yet");
    let place = content(&cache);
    assert_right(&model, &expected);
    wait_until_filled(&cache, &place);
    assert_right(&load(harness.device(), &cache).1.expect("a hit"), &expected);
    // Not where its place was taken meanwhile.
    let cache = Cache::new(2);
    let model = save_later(harness.device(), &layer_of(SIZE), &cache);
    flip(&cache.model, 3, 0);
    assert_right(&model, &expected);
    std::thread::sleep(WHILE);
    assert_general_failure(harness.device(), &cache, "the client has written there");
}
