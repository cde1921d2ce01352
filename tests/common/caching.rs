//! Models to cache, cache files, and the calls that save and load.

use super::*;
use std::os::unix::fs::FileExt;

pub const LENGTH: usize = 100;

/// A chain of ADD or MUL with the constant 1 or 2 on a single float.
pub fn chain(operation: OperationType, constant: f32) -> Model {
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

pub fn add() -> Model {
    chain(OperationType::ADD, 1.0)
}

pub fn mul() -> Model {
    chain(OperationType::MUL, 2.0)
}

/// What the chains make of 1.
pub fn added() -> f32 {
    1.0 + LENGTH as f32
}

pub fn multiplied() -> f32 {
    2f32.powi(LENGTH as i32)
}

/// A fully connected layer, so that there is something in the data cache.
pub fn layer() -> Model {
    layer_of(32)
}

/// Such a layer of `size` inputs and outputs.
pub fn layer_of(size: i32) -> Model {
    use OperandLifeTime as L;
    let (count, bytes) = (size * size, i64::from(size) * 4);
    let weights: Vec<f32> = (0..count).map(|i| (i % 7) as f32 - 3.0).collect();
    let mut values = floats(&weights);
    values.extend(floats(&vec![0.5; size as usize]));
    values.extend(0i32.to_le_bytes());
    let at = |offset, length| DataLocation { poolIndex: 0, offset, length, padding: 0 };
    let tensor = |dims: &[i32], offset, length| Operand {
        location: at(offset, length),
        ..operand(OperandType::TENSOR_FLOAT32, dims, L::CONSTANT_COPY)
    };
    let weight_bytes = i64::from(count) * 4;
    let activation = at(weight_bytes + bytes, 4);
    let operands = vec![
        operand(OperandType::TENSOR_FLOAT32, &[1, size], L::SUBGRAPH_INPUT),
        tensor(&[size, size], 0, weight_bytes),
        tensor(&[size], weight_bytes, bytes),
        Operand { location: activation, ..operand(OperandType::INT32, &[], L::CONSTANT_COPY) },
        operand(OperandType::TENSOR_FLOAT32, &[1, size], L::SUBGRAPH_OUTPUT),
    ];
    let operation =
        Operation { r#type: OperationType::FULLY_CONNECTED, inputs: vec![0, 1, 2, 3], outputs: vec![4] };
    let main =
        Subgraph { operands, operations: vec![operation], inputIndexes: vec![0], outputIndexes: vec![4] };
    Model { main, operandValues: values, ..Default::default() }
}

/// [`layer_of`], with its constants in memory that its client goes on to have.
pub fn layer_in_memory(size: i32) -> (Model, File) {
    let mut model = layer_of(size);
    let values = std::mem::take(&mut model.operandValues);
    let memory = memfd(&values);
    model.pools = vec![ashmem(&memory, values.len() as i64)];
    for operand in &mut model.main.operands {
        if operand.lifetime == OperandLifeTime::CONSTANT_COPY {
            operand.lifetime = OperandLifeTime::CONSTANT_POOL;
        }
    }
    (model, memory)
}

/// [`layer_in_memory`] with this bias of its first output, and what it makes of ones: one that its client has not prepared yet, as
/// the driver gives a client what it has already.
pub fn another_layer(size: i32, bias: f32) -> (Model, File, Vec<f32>) {
    use std::os::unix::fs::FileExt;
    let (model, memory) = layer_in_memory(size);
    memory.write_all_at(&bias.to_le_bytes(), 4 * (size * size) as u64).expect("written");
    let mut output = layer_output(size as usize);
    output[0] += bias - 0.5;
    (model, memory, output)
}

/// What a layer of this size makes of ones.
pub fn layer_output(size: usize) -> Vec<f32> {
    let row = |row: usize| (0..size).map(|i| ((row * size + i) % 7) as f32 - 3.0).sum::<f32>();
    (0..size).map(|i| 0.5 + row(i)).collect()
}

/// A client's cache files.
pub struct Cache {
    pub model: File,
    pub data: File,
    pub token: [u8; 32],
}

impl Cache {
    pub fn new(token: u8) -> Self {
        Cache { model: memfd(&[]), data: memfd(&[]), token: [token; 32] }
    }
}

pub fn descriptors(files: &[&File]) -> Vec<ParcelFileDescriptor> {
    files.iter().filter_map(|file| descriptor(file)).collect()
}

pub fn save_in(
    device: &Strong<dyn IDevice>,
    model: &Model,
    models: &[&File],
    data: &[&File],
    token: &[u8],
) -> Strong<dyn IPreparedModel> {
    let (status, model) = try_save_in(device, model, models, data, token);
    assert_eq!(status, ErrorStatus::NONE);
    model.expect("a model")
}

/// What the callback is told, or how the call is refused.
pub fn try_save_in(
    device: &Strong<dyn IDevice>,
    model: &Model,
    models: &[&File],
    data: &[&File],
    token: &[u8],
) -> Verdict {
    let (callback, verdict) = callback();
    let launched = device.prepareModel(
        model,
        ExecutionPreference::FAST_SINGLE_ANSWER,
        Priority::MEDIUM,
        -1,
        &descriptors(models),
        &descriptors(data),
        token,
        &callback,
    );
    match status(&launched) {
        ErrorStatus::NONE => verdict.recv_timeout(PATIENCE).expect("a verdict"),
        refused => (refused, None),
    }
}

pub fn save(device: &Strong<dyn IDevice>, model: &Model, cache: &Cache) -> Strong<dyn IPreparedModel> {
    save_in(device, model, &[&cache.model], &[&cache.data], &cache.token)
}

pub fn load_from(device: &Strong<dyn IDevice>, models: &[&File], data: &[&File], token: &[u8]) -> Verdict {
    let (callback, verdict) = callback();
    let launched =
        device.prepareModelFromCache(-1, &descriptors(models), &descriptors(data), token, &callback);
    let (told, model) = verdict.recv_timeout(PATIENCE).expect("a verdict");
    assert!(launched.is_ok() || status(&launched) == told, "what is thrown is told as well");
    assert_eq!(model.is_some(), told == ErrorStatus::NONE);
    assert!(verdict.recv_timeout(Duration::from_millis(1)).is_err(), "told once");
    (told, model)
}

pub fn load(device: &Strong<dyn IDevice>, cache: &Cache) -> Verdict {
    load_from(device, &[&cache.model], &[&cache.data], &cache.token)
}

pub fn assert_general_failure(device: &Strong<dyn IDevice>, cache: &Cache, what: &str) {
    assert_eq!(load(device, cache).0, ErrorStatus::GENERAL_FAILURE, "{what}");
}

pub fn assert_wrong(status: ErrorStatus) {
    assert!(matches!(status, ErrorStatus::INVALID_ARGUMENT | ErrorStatus::GENERAL_FAILURE), "{status:?}");
}

pub fn execute(model: &Strong<dyn IPreparedModel>, input: &[f32]) -> Result<Vec<f32>, ErrorStatus> {
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

/// Asks for a model to be compiled just in time, by the hint, under a prefix that the client chose.
pub fn just_in_time_config(value: &[u8]) -> PrepareModelConfig {
    PrepareModelConfig {
        preference: ExecutionPreference::FAST_SINGLE_ANSWER,
        priority: Priority::MEDIUM,
        deadlineNs: -1,
        compilationHints: vec![TokenValuePair { token: 0x123_0001, value: value.to_vec() }],
        extensionNameToPrefix: vec![ExtensionNameAndPrefix {
            name: "vendor.nnhal.hints".into(),
            prefix: 0x123,
        }],
        ..Default::default()
    }
}

pub fn prepare_by(
    device: &Strong<dyn IDevice>,
    model: &Model,
    config: &PrepareModelConfig,
) -> Strong<dyn IPreparedModel> {
    let (callback, verdict) = callback();
    let launched = device.prepareModelWithConfig(model, config, &callback);
    assert_eq!(status(&launched), ErrorStatus::NONE);
    let (status, prepared) = verdict.recv_timeout(PATIENCE).expect("a verdict");
    assert_eq!(status, ErrorStatus::NONE);
    prepared.expect("a model")
}

/// Prepares a model just in time, to be saved once it is compiled.
pub fn save_later(device: &Strong<dyn IDevice>, model: &Model, cache: &Cache) -> Strong<dyn IPreparedModel> {
    let config = PrepareModelConfig {
        modelCache: descriptors(&[&cache.model]),
        dataCache: descriptors(&[&cache.data]),
        cacheToken: cache.token,
        ..just_in_time_config(&[1])
    };
    prepare_by(device, model, &config)
}

/// Turns over one of the eight bits of the byte at `at`, so that it is another whatever it was.
pub fn flip(file: &File, at: u64, bit: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ (1 << bit)], at).expect("written");
}

/// Changes two words of a data cache, from byte `at` on, so that its checksum stays: each word counts as often as its odd
/// number says.
pub fn forge(data: &File, at: u64) {
    assert!(at.is_multiple_of(8), "words begin at multiples of eight");
    let mut words = [[0; 8]; 2];
    data.read_exact_at(words.as_flattened_mut(), at).expect("read");
    let [first, second] = [at / 8 * 2 + 1, at / 8 * 2 + 3];
    let change = 0x0123_4567_89ab_cdef_u64;
    let [a, b] = words.map(u64::from_le_bytes);
    let a = a.wrapping_add(change.wrapping_mul(second));
    let b = b.wrapping_sub(change.wrapping_mul(first));
    data.write_all_at([a, b].map(u64::to_le_bytes).as_flattened(), at).expect("written");
}

/// The store's one compiled model, once it is whole: its data.
pub fn stored(directory: &std::path::Path) -> File {
    let started = std::time::Instant::now();
    loop {
        let files = std::fs::read_dir(directory.join("store")).into_iter().flatten().flatten();
        let model = files.map(|file| file.path()).find(|path| path.extension().is_some_and(|e| e == "model"));
        if let Some(model) = model.filter(|path| path.metadata().is_ok_and(|facts| facts.len() > 0)) {
            return File::options().read(true).write(true).open(model.with_extension("data")).unwrap();
        }
        assert!(started.elapsed() < PATIENCE, "nothing is stored");
        std::thread::sleep(Duration::from_millis(5));
    }
}
