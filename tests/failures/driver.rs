//! Every call on a file that a whole driver makes fails, in turn: what its clients are told is right, or an error.

use super::calls::{do_traced, try_each_call, WELL};
use super::keeper::{data, listing};
use super::*;
use crate::common::caching::*;
use crate::common::{callback, status, Connection, Harness, PATIENCE};
use binder::Strong;
use nnhal::aidl::*;
use nnhal::backend::cpu::CpuBackend;
use nnhal::daemon::embedded::{self, Options};
use std::fs::File;
use std::sync::Arc;

/// A layer of this size is large enough for the driver's own store.
const SIZE: usize = 264;

/// Files of a client.
fn cache_files(root: &Path, token: u8) -> Cache {
    let file = |kind: &str| {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        options.open(root.join(format!("{kind}{token}"))).expect("a file of the client's")
    };
    Cache { model: file("model"), data: file("data"), token: [token; 32] }
}

/// One life of a driver whose calls are traced, and what a client does meanwhile, which is not.
fn live(root: &Path, client: impl FnOnce(&Strong<dyn IDevice>)) {
    let daemon = do_traced(|| {
        let options = Options { data: Some(data(root)), ..Options::default() };
        embedded::start_with(Arc::new(CpuBackend::new(1).expect("threads")), &options).expect("it starts")
    });
    let connection = Connection::new(daemon.socket());
    client(&connection.device);
    connection.close();
    drop(connection);
    do_traced(move || drop(daemon));
}

/// What a client was told; a model comes with nothing but NONE.
fn told(
    what: &str,
    status: ErrorStatus,
    model: Option<Strong<dyn IPreparedModel>>,
) -> Option<Strong<dyn IPreparedModel>> {
    println!("\ntold {what}: {status:?}");
    assert_eq!(status == ErrorStatus::NONE, model.is_some(), "{what}: {status:?}");
    model
}

/// Prepares a model, with files or without.
fn prepare(
    device: &Strong<dyn IDevice>,
    model: &Model,
    cache: Option<&Cache>,
) -> Option<Strong<dyn IPreparedModel>> {
    let (callback, verdict) = callback();
    let models = cache.map(|cache| descriptors(&[&cache.model])).unwrap_or_default();
    let data = cache.map(|cache| descriptors(&[&cache.data])).unwrap_or_default();
    let token = cache.map(|cache| &cache.token[..]).unwrap_or_default();
    let preference = ExecutionPreference::FAST_SINGLE_ANSWER;
    let launched =
        device.prepareModel(model, preference, Priority::MEDIUM, -1, &models, &data, token, &callback);
    let (verdict, model) = verdict.recv_timeout(PATIENCE).expect("a verdict");
    assert!(launched.is_ok() || status(&launched) == verdict, "what is thrown is told as well");
    told("preparing", verdict, model)
}

fn load_it(device: &Strong<dyn IDevice>, cache: &Cache) -> Option<Strong<dyn IPreparedModel>> {
    let (status, model) = load(device, cache);
    told("loading", status, model)
}

/// Executes, if there is a model; its answer must be one of these.
fn check(model: Option<Strong<dyn IPreparedModel>>, input: &[f32], answers: &[&[f32]]) -> bool {
    let Some(model) = model else { return false };
    match execute(&model, input) {
        Ok(answer) => assert!(answers.contains(&&answer[..]), "a wrong answer"),
        Err(status) => drop(told("executing", status, None)),
    }
    true
}

#[test]
#[ignore = "the child of drivers_survive_every_call_that_fails"]
fn driver_child() {
    let Some(root) = root_of_child() else { return };
    let root = root.as_path();
    let [first, second] = [1, 2].map(|token| cache_files(root, token));
    let (layer, ones, output) = (layer_of(SIZE as i32), [1.0; SIZE], layer_output(SIZE));
    let (sum, product) = ([added()], [multiplied()]);
    live(root, |device| {
        check(prepare(device, &add(), Some(&first)), &[1.0], &[&sum]);
        check(load_it(device, &first), &[1.0], &[&sum]);
        check(prepare(device, &layer, Some(&second)), &ones, &[&output]);
        check(prepare(device, &layer, None), &ones, &[&output]);
    });
    live(root, |device| {
        check(load_it(device, &first), &[1.0], &[&sum]);
        check(load_it(device, &second), &ones, &[&output]);
        check(prepare(device, &layer, None), &ones, &[&output]);
        check(prepare(device, &mul(), Some(&first)), &[1.0], &[&product]);
        // That need not have been saved.
        check(load_it(device, &first), &[1.0], &[&sum, &product]);
    });
    // Now nothing fails.
    for life in 0..2 {
        let harness = Harness::with_data(Some(&data(root)));
        let device = harness.device();
        let hit = check(load_it(device, &first), &[1.0], &[&sum, &product]);
        assert!(hit || life == 0, "what was saved is not loaded");
        for model in [add(), layer_of(32)] {
            prepare(device, &model, Some(&first)).expect("a model");
        }
        assert!(check(prepare(device, &add(), Some(&first)), &[1.0], &[&sum]));
        assert!(check(load_it(device, &first), &[1.0], &[&sum]), "it is not saved");
        assert!(check(prepare(device, &layer, None), &ones, &[&output]));
    }
    // The last driver's threads let its registries go a little later.
    let began = std::time::Instant::now();
    while let Err(why) = listing(root) {
        assert!(began.elapsed() < PATIENCE, "{why}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    println!("{WELL}");
}

#[test]
fn drivers_survive_every_call_that_fails() {
    try_each_call("driver::driver_child", if is_long() { usize::MAX } else { 1 });
}
