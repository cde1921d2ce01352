//! Compilation caching as VTS tries it, with real networks: a float and a quantised MobileNetV2, of `NNHAL_MODELS` or
//! ../shared/models; tests/ignored.sh runs these tests. `NNHAL_ROUNDS=100` for the races' long form.
use crate::common::caching::{descriptors, flip, forge, Cache};
use crate::common::*;
use binder::Strong;
use nnhal::aidl::*;
use nnhal::tflite;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A compilation of megabytes can take a while on a slow machine.
const LONG: Duration = Duration::from_secs(120);

const FLOAT: &str = "mobilenet_v2_1.0_224_f32.tflite";
const QUANTISED: &str = "mobilenet_v2_1.0_224_int8.tflite";

/// A network, an input, and what a driver without a cache makes of it.
struct Network {
    name: &'static str,
    model: Model,
    input: Vec<u8>,
    output_len: usize,
    expected: Vec<u8>,
}

impl Network {
    fn read(harness: &Harness, name: &'static str) -> Self {
        let directory = std::env::var_os("NNHAL_MODELS").map_or("../shared/models".into(), PathBuf::from);
        let path = directory.join(name);
        let bytes = std::fs::read(&path)
            .unwrap_or_else(|e| panic!("{}: {e}; set NNHAL_MODELS to its directory", path.display()));
        let imported = tflite::import(&bytes).expect("imported");
        let len = |port: &tflite::Port| port.info.byte_size().expect("known");
        let (input_len, output_len) = (len(&imported.inputs[0]), len(&imported.outputs[0]));
        let is_float = imported.inputs[0].info.ty == nnhal::tensor::OperandType::TENSOR_FLOAT32;
        let input = match is_float {
            true => floats(&(0..input_len / 4).map(|i| (i as f32 * 0.37).sin()).collect::<Vec<_>>()),
            false => (0..input_len).map(|i| (i * 31 % 251) as u8).collect(),
        };
        let model = without_softmax(imported.model);
        let mut network = Network { name, model, input, output_len, expected: vec![] };
        network.expected = network.execute(&harness.prepare(&network.model)).expect("executed");
        assert!(network.expected.iter().any(|&byte| byte != network.expected[0]), "{name}: all the same");
        network
    }

    fn both(harness: &Harness) -> [Network; 2] {
        [FLOAT, QUANTISED].map(|name| Network::read(harness, name))
    }

    fn execute(&self, model: &Strong<dyn IPreparedModel>) -> Result<Vec<u8>, ErrorStatus> {
        let (request, output) = request(&self.input, self.output_len);
        match status(&model.executeSynchronously(&request, false, -1, -1)) {
            ErrorStatus::NONE => Ok(bytes_of(&output)),
            error => Err(error),
        }
    }

    #[track_caller]
    fn assert_right(&self, model: &Strong<dyn IPreparedModel>) {
        assert!(self.execute(model).as_ref() == Ok(&self.expected), "{}", self.name);
    }

    /// Compiles, whatever the files are worth, and keeps the compilation in them.
    fn save(
        &self,
        device: &Strong<dyn IDevice>,
        models: &[&File],
        data: &[&File],
    ) -> Strong<dyn IPreparedModel> {
        let (callback, verdict) = callback();
        let launched = device.prepareModel(
            &self.model,
            ExecutionPreference::FAST_SINGLE_ANSWER,
            Priority::MEDIUM,
            -1,
            &descriptors(models),
            &descriptors(data),
            &TOKEN,
            &callback,
        );
        assert_eq!(status(&launched), ErrorStatus::NONE, "{}", self.name);
        verdict.recv_timeout(LONG).expect("a verdict").1.expect("a model")
    }

    fn save_in(&self, device: &Strong<dyn IDevice>, cache: &Cache) -> Strong<dyn IPreparedModel> {
        self.save(device, &[&cache.model], &[&cache.data])
    }
}

/// The network without the SOFTMAX at its end: on an image of nothing that makes all classes alike, and then quantised
/// to zero, which would tell right from wrong no more.
fn without_softmax(mut model: Model) -> Model {
    let main = &mut model.main;
    let last = main.operations.pop().expect("operations");
    assert_eq!(last.r#type, OperationType::SOFTMAX);
    let (from, to, beta) = (last.inputs[0], last.outputs[0], last.inputs[1] as usize);
    let output =
        Operand { lifetime: OperandLifeTime::SUBGRAPH_OUTPUT, ..main.operands[from as usize].clone() };
    main.operands[to as usize] = output;
    // An operand that nobody uses must be one that nobody has to write.
    main.operands[from as usize] = main.operands[beta].clone();
    let outputs = main.operations.iter_mut().flat_map(|operation| &mut operation.outputs);
    outputs.filter(|output| **output == from).for_each(|output| *output = to);
    model
}

const TOKEN: [u8; 32] = [1; 32];

fn load_from(device: &Strong<dyn IDevice>, models: &[&File], data: &[&File], token: &[u8]) -> Verdict {
    let (callback, verdict) = callback();
    let launched =
        device.prepareModelFromCache(-1, &descriptors(models), &descriptors(data), token, &callback);
    let (told, model) = verdict.recv_timeout(LONG).expect("a verdict");
    assert!(launched.is_ok() || status(&launched) == told, "what is thrown is told as well");
    assert_eq!(model.is_some(), told == ErrorStatus::NONE);
    (told, model)
}

fn load(device: &Strong<dyn IDevice>, cache: &Cache) -> Verdict {
    load_from(device, &[&cache.model], &[&cache.data], &cache.token)
}

/// Turns over a bit of a file that depends on `seed`; a second time, back.
fn damage(file: &File, seed: u64) {
    let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    flip(file, mixed % file.metadata().unwrap().len(), seed % 8);
}

fn comes_back_whatever_the_files_held(name: &'static str) {
    let harness = Harness::new();
    let network = Network::read(&harness, name);
    let mut cache = Cache::new(TOKEN[0]);
    for file in [&mut cache.model, &mut cache.data] {
        file.write_all_at(&[0xab; 2], 0).unwrap();
        file.seek(SeekFrom::Start(2)).unwrap();
    }
    network.assert_right(&network.save_in(harness.device(), &cache));
    for file in [&mut cache.model, &mut cache.data] {
        file.seek(SeekFrom::Start(1)).unwrap();
    }
    network.assert_right(&load(harness.device(), &cache).1.expect("a hit"));
}

#[test]
#[ignore = "needs models: tests/ignored.sh models"]
fn a_float_network_comes_back_whatever_the_files_held() {
    comes_back_whatever_the_files_held(FLOAT);
}

#[test]
#[ignore = "needs models: tests/ignored.sh models"]
fn a_quantised_network_comes_back_whatever_the_files_held() {
    comes_back_whatever_the_files_held(QUANTISED);
}

#[test]
#[ignore = "needs models: tests/ignored.sh models"]
fn wrong_files_hinder_no_network_and_load_none() {
    let harness = Harness::new();
    for network in Network::both(&harness) {
        let cache = Cache::new(TOKEN[0]);
        let (m, d, other) = (&cache.model, &cache.data, &memfd(&[]));
        let reopened = |file: &File, options: &mut OpenOptions| {
            options.open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
        };
        let (read_m, read_d) =
            (&reopened(m, OpenOptions::new().read(true)), &reopened(d, OpenOptions::new().read(true)));
        let (write_m, write_d) =
            (&reopened(m, OpenOptions::new().write(true)), &reopened(d, OpenOptions::new().write(true)));
        let wrong: [(&[&File], &[&File]); 6] = [
            (&[m, other], &[d]),
            (&[], &[d]),
            (&[m], &[d, other]),
            (&[m], &[]),
            (&[read_m], &[d]),
            (&[m], &[read_d]),
        ];
        let refused = |models: &[&File], data: &[&File]| {
            let (status, _) = load_from(harness.device(), models, data, &TOKEN);
            let expected = [ErrorStatus::INVALID_ARGUMENT, ErrorStatus::GENERAL_FAILURE];
            assert!(expected.contains(&status), "{}: {status:?}", network.name);
        };
        for (models, data) in wrong {
            network.assert_right(&network.save(harness.device(), models, data));
            refused(models, data);
        }
        network.save_in(harness.device(), &cache);
        wrong.into_iter().for_each(|(models, data)| refused(models, data));
        refused(&[write_m], &[d]);
        refused(&[m], &[write_d]);
        network.assert_right(&load(harness.device(), &cache).1.expect("a hit"));
    }
}

#[test]
#[ignore = "needs models: tests/ignored.sh models"]
fn changed_files_and_tokens_of_networks() {
    let harness = Harness::new();
    for network in Network::both(&harness) {
        let cache = Cache::new(TOKEN[0]);
        network.save_in(harness.device(), &cache);
        let refused = |cache: &Cache, what: &str| {
            assert_eq!(load(harness.device(), cache).0, ErrorStatus::GENERAL_FAILURE, "{what}");
        };
        let whole = cache.model.metadata().unwrap().len();
        for seed in 0..10 {
            damage(&cache.model, seed);
            refused(&cache, "a bit of the model cache");
            damage(&cache.model, seed);
            cache.model.write_all_at(&vec![seed as u8; 1 + 25 * seed as usize], whole).unwrap();
            refused(&cache, "more model cache");
            cache.model.set_len(whole).unwrap();
            let mut token = TOKEN;
            token[3 * seed as usize] ^= 1 << (seed % 8);
            let loaded = load_from(harness.device(), &[&cache.model], &[&cache.data], &token);
            assert_eq!(loaded.0, ErrorStatus::GENERAL_FAILURE, "another token");
            damage(&cache.data, seed);
            refused(&cache, "a bit of the data cache");
            damage(&cache.data, seed);
            forge(&cache.data, seed * 1024);
        }
        // Whatever the changes made of the values.
        let changed = load(harness.device(), &cache).1.expect("the checksum is what it was");
        network.execute(&changed).expect("executed");
        cache.data.write_all_at(&[1; 256], cache.data.metadata().unwrap().len()).unwrap();
        assert!(load(harness.device(), &cache).1.is_some(), "more data cache");
    }
}

#[test]
#[ignore = "needs models: tests/ignored.sh models"]
fn one_networks_files_never_give_another() {
    let harness = Harness::new();
    let [float, quantised] = Network::both(&harness);
    let (ours, theirs) = (Cache::new(TOKEN[0]), Cache::new(TOKEN[0] + 1));
    quantised.save(harness.device(), &[&theirs.model], &[&theirs.data]);
    let (model, data) = (bytes_of(&theirs.model), bytes_of(&theirs.data));
    float.save_in(harness.device(), &ours);
    let loaded = load_from(harness.device(), &[&theirs.model], &[&theirs.data], &TOKEN);
    assert_eq!(loaded.0, ErrorStatus::GENERAL_FAILURE, "the latest model under a token is the one");
    let rounds = std::env::var("NNHAL_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    for round in 0..rounds {
        // Overwritten by the other's, while it is saved and then while it is loaded.
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    ours.model.set_len(model.len() as u64).unwrap();
                    ours.model.write_all_at(&model, 0).unwrap();
                    ours.data.write_all_at(&data, 0).unwrap();
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
            if round % 2 == 0 {
                drop(float.save_in(harness.device(), &ours));
            }
            if let (ErrorStatus::NONE, Some(model)) = load(harness.device(), &ours) {
                float.assert_right(&model);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
    float.assert_right(&float.save_in(harness.device(), &ours));
    float.assert_right(&load(harness.device(), &ours).1.expect("a hit"));
}
