//! Compilation caching over binder, as VTS tries it: chains of a hundred operations, saved, changed, swapped, raced.

mod common;

use binder::{ParcelFileDescriptor, Strong};
use common::*;
use nnhal::aidl::*;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LENGTH: usize = 100;
const ROUNDS: usize = 100;

/// A chain of ADD or MUL with the constant 1 or 2 on a single float.
fn chain(operation: OperationType, constant: f32) -> Model {
    use OperandLifeTime as L;
    let mut values = constant.to_le_bytes().to_vec();
    values.extend(0i32.to_le_bytes());
    let at = |offset| DataLocation { poolIndex: 0, offset, length: 4, padding: 0 };
    let mut operands = vec![
        operand(OperandType::TENSOR_FLOAT32, &[1], L::SUBGRAPH_INPUT),
        Operand { location: at(0), ..operand(OperandType::TENSOR_FLOAT32, &[1], L::CONSTANT_COPY) },
        Operand { location: at(4), ..operand(OperandType::INT32, &[], L::CONSTANT_COPY) },
    ];
    let mut operations = Vec::new();
    for i in 0..LENGTH {
        let lifetime = if i + 1 == LENGTH { L::SUBGRAPH_OUTPUT } else { L::TEMPORARY_VARIABLE };
        let (from, to) = (if i == 0 { 0 } else { operands.len() as i32 - 1 }, operands.len() as i32);
        operands.push(operand(OperandType::TENSOR_FLOAT32, &[1], lifetime));
        operations.push(Operation { r#type: operation, inputs: vec![from, 1, 2], outputs: vec![to] });
    }
    let output = operands.len() as i32 - 1;
    let main = Subgraph { operands, operations, inputIndexes: vec![0], outputIndexes: vec![output] };
    Model { main, operandValues: values, ..Default::default() }
}

fn add() -> Model {
    chain(OperationType::ADD, 1.0)
}

fn mul() -> Model {
    chain(OperationType::MUL, 2.0)
}

/// What the chains make of 1.
fn added() -> f32 {
    1.0 + LENGTH as f32
}

fn multiplied() -> f32 {
    2f32.powi(LENGTH as i32)
}

/// A fully connected layer, so that there is something in the data cache.
fn layer() -> Model {
    use OperandLifeTime as L;
    let weights: Vec<f32> = (0..32 * 32).map(|i| (i % 7) as f32 - 3.0).collect();
    let mut values = floats(&weights);
    values.extend(floats(&[0.5; 32]));
    values.extend(0i32.to_le_bytes());
    let at = |offset, length| DataLocation { poolIndex: 0, offset, length, padding: 0 };
    let tensor = |dims: &[i32], offset, length| Operand {
        location: at(offset, length),
        ..operand(OperandType::TENSOR_FLOAT32, dims, L::CONSTANT_COPY)
    };
    let operands = vec![
        operand(OperandType::TENSOR_FLOAT32, &[1, 32], L::SUBGRAPH_INPUT),
        tensor(&[32, 32], 0, 4096),
        tensor(&[32], 4096, 128),
        Operand { location: at(4224, 4), ..operand(OperandType::INT32, &[], L::CONSTANT_COPY) },
        operand(OperandType::TENSOR_FLOAT32, &[1, 32], L::SUBGRAPH_OUTPUT),
    ];
    let operation =
        Operation { r#type: OperationType::FULLY_CONNECTED, inputs: vec![0, 1, 2, 3], outputs: vec![4] };
    let main =
        Subgraph { operands, operations: vec![operation], inputIndexes: vec![0], outputIndexes: vec![4] };
    Model { main, operandValues: values, ..Default::default() }
}

/// A client's cache files.
struct Cache {
    model: File,
    data: File,
    token: [u8; 32],
}

impl Cache {
    fn new(token: u8) -> Self {
        Cache { model: memfd(&[]), data: memfd(&[]), token: [token; 32] }
    }
}

fn descriptors(files: &[&File]) -> Vec<ParcelFileDescriptor> {
    files.iter().filter_map(|file| descriptor(file)).collect()
}

fn save_in(
    harness: &Harness,
    model: &Model,
    models: &[&File],
    data: &[&File],
    token: &[u8],
) -> Strong<dyn IPreparedModel> {
    let (callback, verdict) = callback();
    let launched = harness.device().prepareModel(
        model,
        ExecutionPreference::FAST_SINGLE_ANSWER,
        Priority::MEDIUM,
        -1,
        &descriptors(models),
        &descriptors(data),
        token,
        &callback,
    );
    assert_eq!(status(&launched), ErrorStatus::NONE);
    let (status, model) = verdict.recv_timeout(PATIENCE).expect("a verdict");
    assert_eq!(status, ErrorStatus::NONE);
    model.expect("a model")
}

fn save(harness: &Harness, model: &Model, cache: &Cache) -> Strong<dyn IPreparedModel> {
    save_in(harness, model, &[&cache.model], &[&cache.data], &cache.token)
}

fn load_from(harness: &Harness, models: &[&File], data: &[&File], token: &[u8]) -> Verdict {
    let (callback, verdict) = callback();
    let launched = harness.device().prepareModelFromCache(
        -1,
        &descriptors(models),
        &descriptors(data),
        token,
        &callback,
    );
    let (told, model) = verdict.recv_timeout(PATIENCE).expect("a verdict");
    assert_eq!(status(&launched), told, "thrown and told are the same");
    assert_eq!(model.is_some(), told == ErrorStatus::NONE);
    assert!(verdict.recv_timeout(Duration::from_millis(1)).is_err(), "told once");
    (told, model)
}

fn load(harness: &Harness, cache: &Cache) -> Verdict {
    load_from(harness, &[&cache.model], &[&cache.data], &cache.token)
}

fn assert_general_failure(harness: &Harness, cache: &Cache, what: &str) {
    assert_eq!(load(harness, cache).0, ErrorStatus::GENERAL_FAILURE, "{what}");
}

fn assert_wrong(status: ErrorStatus) {
    assert!(matches!(status, ErrorStatus::INVALID_ARGUMENT | ErrorStatus::GENERAL_FAILURE), "{status:?}");
}

fn execute(model: &Strong<dyn IPreparedModel>, input: &[f32]) -> Result<Vec<f32>, ErrorStatus> {
    let (request, output) = request(&floats(input), input.len() * 4);
    let result = model.executeSynchronously(&request, false, -1, -1);
    match status(&result) {
        ErrorStatus::NONE => {
            let bytes = bytes_of(&output);
            let bytes = &bytes[bytes.len() - input.len() * 4..];
            Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect())
        }
        error => Err(error),
    }
}

/// A small generator: the same changes in each run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn flip(file: &File, noise: &mut Noise) {
    let at = noise.below(file.metadata().unwrap().len());
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << noise.below(8))], at).unwrap();
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
    let compiled = save(&harness, &layer(), &cache);
    let (status, loaded) = load(&harness, &cache);
    assert_eq!(status, ErrorStatus::NONE);
    let expected = execute(&compiled, &input).unwrap();
    assert_eq!(execute(&loaded.unwrap(), &input).unwrap(), expected);
    // Loading takes nothing away.
    assert_eq!(load(&harness, &cache).0, ErrorStatus::NONE);
}

#[test]
fn a_cache_outlives_the_driver_if_it_has_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::new(1);
    save(&Harness::with_data(Some(directory.path())), &add(), &cache);
    let harness = Harness::with_data(Some(directory.path()));
    let (_, model) = load(&harness, &cache);
    assert_eq!(execute(&model.expect("a hit"), &[1.0]), Ok(vec![added()]));
    assert_general_failure(&Harness::new(), &cache, "a driver that never wrote it");
}

#[test]
fn without_a_usable_directory_models_are_prepared_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), b"").unwrap();
    let harness = Harness::with_data(Some(&directory.path().join("file/data")));
    let cache = Cache::new(1);
    assert_eq!(execute(&save(&harness, &add(), &cache), &[1.0]), Ok(vec![added()]));
    assert_general_failure(&harness, &cache, "nothing was recorded");
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
        let model = save_in(&harness, &add(), models, data, &cache.token);
        assert_eq!(execute(&model, &[1.0]), Ok(vec![added()]));
        assert_wrong(load_from(&harness, models, data, &cache.token).0);
    }
    save(&harness, &add(), &cache);
    for (models, data) in wrong {
        assert_wrong(load_from(&harness, models, data, &cache.token).0);
    }
    for token in [&[][..], &[1; 31], &[1; 33]] {
        let model = save_in(&harness, &add(), &[m], &[d], token);
        assert_eq!(execute(&model, &[1.0]), Ok(vec![added()]));
        assert_wrong(load_from(&harness, &[m], &[d], token).0);
    }
    assert_eq!(load(&harness, &cache).0, ErrorStatus::NONE);
}

#[test]
fn a_changed_model_cache_or_token_is_a_general_failure() {
    let harness = Harness::new();
    for seed in 0..10 {
        let cache = Cache::new(1);
        save(&harness, &add(), &cache);
        flip(&cache.model, &mut Noise(seed));
        assert_general_failure(&harness, &cache, "a bit");
        save(&harness, &add(), &cache);
        append(&cache.model, &mut Noise(seed));
        assert_general_failure(&harness, &cache, "more bytes");
        let mut cache = Cache::new(1);
        save(&harness, &add(), &cache);
        let bit = Noise(seed).below(256) as usize;
        cache.token[bit / 8] ^= 1 << (bit % 8);
        assert_general_failure(&harness, &cache, "another token");
    }
}

#[test]
fn a_changed_data_cache_changes_values_only() {
    let harness = Harness::new();
    let input = [1.0; 32];
    for seed in 0..10 {
        let cache = Cache::new(1);
        save(&harness, &layer(), &cache);
        flip(&cache.data, &mut Noise(seed));
        let (_, model) = load(&harness, &cache);
        execute(&model.expect("the data cache is not proven"), &input).unwrap();
        append(&cache.data, &mut Noise(seed));
        let (_, model) = load(&harness, &cache);
        execute(&model.expect("the data cache is not proven"), &input).unwrap();
    }
}

#[test]
fn a_data_cache_that_vanishes_fails_executions_and_no_others() {
    let harness = Harness::new();
    let input = [1.0; 32];
    let cache = Cache::new(1);
    let compiled = save(&harness, &layer(), &cache);
    let (_, loaded) = load(&harness, &cache);
    let loaded = loaded.unwrap();
    cache.data.set_len(0).unwrap();
    assert_eq!(execute(&loaded, &input), Err(ErrorStatus::GENERAL_FAILURE));
    assert!(execute(&compiled, &input).is_ok());
    assert_general_failure(&harness, &cache, "an empty data cache");
}

#[test]
fn another_models_cache_is_refused() {
    let harness = Harness::new();
    let (ours, theirs) = (Cache::new(1), Cache::new(2));
    save(&harness, &add(), &ours);
    save(&harness, &mul(), &theirs);
    let loaded = load_from(&harness, &[&theirs.model], &[&theirs.data], &ours.token);
    assert_eq!(loaded.0, ErrorStatus::GENERAL_FAILURE);
    let loaded = load_from(&harness, &[&theirs.model], &[&ours.data], &ours.token);
    assert_eq!(loaded.0, ErrorStatus::GENERAL_FAILURE);
    // The latest model under a token is the one.
    save_in(&harness, &mul(), &[&ours.model], &[&ours.data], &ours.token);
    assert_eq!(execute(&load(&harness, &ours).1.unwrap(), &[1.0]), Ok(vec![multiplied()]));
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
    save(&harness, &mul(), &other);
    for _ in 0..ROUNDS {
        let cache = Cache::new(1);
        if while_saving {
            race(&cache, &other, || drop(save(&harness, &add(), &cache)));
        } else {
            save(&harness, &add(), &cache);
        }
        let check = || {
            if let (ErrorStatus::NONE, Some(model)) = load(&harness, &cache) {
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
