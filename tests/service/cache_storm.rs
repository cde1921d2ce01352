//! Clients that share one cache directory and one token, as the NNAPI runtime of a process with many threads does: all
//! compile, load and run one model, and write the files anew under models that were loaded from them. No execution fails, none
//! gives anything but the right values. `NNHAL_CAMPAIGN=long` runs 10,000 executions.

use crate::common::caching::*;
use crate::common::campaign::amount;
use crate::common::*;
use nnhal::aidl::*;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

const CLIENTS: usize = 10;
const SIZE: i32 = 96;

fn executions() -> usize {
    amount("NNHAL_EXECUTIONS", 600, 10_000) as usize
}

/// The files as a client opens them: made where they are not there.
fn open(directory: &Path) -> Cache {
    let file = |name: &str| {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        options.open(directory.join(name)).expect("opened")
    };
    Cache { model: file("model"), data: file("data"), token: [7; 32] }
}

/// What clients do to files that others have loaded models from.
fn vandalise(directory: &Path, round: usize) {
    let cache = open(directory);
    match round % 5 {
        0 => cache.data.set_len(0).expect("truncated"),
        1 => cache.model.set_len(0).expect("truncated"),
        2 => ["model", "data"].iter().for_each(|name| drop(std::fs::remove_file(directory.join(name)))),
        _ => {} // loaded once more
    }
}

#[test]
fn files_that_are_rewritten_truncated_and_deleted_hurt_no_prepared_model() {
    let (harness, directory) = (Harness::new(), tempfile::tempdir().expect("a directory"));
    let input = vec![1.0; SIZE as usize];
    let expected = execute(&harness.prepare(&layer_of(SIZE)), &input).expect("executed");
    let [done, hits, saves] = [(); 3].map(|()| AtomicUsize::new(0));
    let (harness, directory, input, expected) = (&harness, directory.path(), &input, &expected);
    let client = |number: usize| {
        let connection = harness.connect();
        let mut round = number;
        while done.load(Ordering::Relaxed) < executions() {
            round += 1;
            let cache = open(directory);
            let loaded = load(&connection.device, &cache);
            let count = if loaded.1.is_some() { &hits } else { &saves };
            count.fetch_add(1, Ordering::Relaxed);
            let model = loaded.1.unwrap_or_else(|| {
                assert_eq!(loaded.0, ErrorStatus::GENERAL_FAILURE, "a miss, and no other failure");
                save(&connection.device, &layer_of(SIZE), &cache)
            });
            for _ in 0..5 {
                assert_eq!(execute(&model, input).as_ref(), Ok(expected), "client {number}, round {round}");
                done.fetch_add(1, Ordering::Relaxed);
                vandalise(directory, round);
            }
        }
    };
    std::thread::scope(|scope| (0..CLIENTS).for_each(|number| drop(scope.spawn(move || client(number)))));
    let [done, hits, saves] = [&done, &hits, &saves].map(|count| count.load(Ordering::Relaxed));
    println!("{done} executions of {hits} loaded and {saves} compiled models");
    assert!(hits > 0 && saves > 1, "nothing was loaded, or nothing was saved anew: {hits} and {saves}");
}
