//! Indices, axes, shapes and regions that a client changes while the driver works on them: an error or a result of the
//! right size, nothing else. `NNHAL_EXECUTIONS=20000` tries each operation so often.

use crate::common::*;
use binder::Strong;
use nnhal::aidl::*;
use nnhal::backend::boottime_ns;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

fn executions() -> usize {
    std::env::var("NNHAL_EXECUTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

/// Bytes for each output: more than any result of untouched inputs needs.
const ROOM: usize = 4096;
/// Bytes of an element: floats and integers only.
const ELEMENT: usize = 4;

/// An input of an operation.
struct Input {
    operand: Operand,
    bytes: Vec<u8>,
    /// In memory that changes; the others are constants of the model.
    changes: bool,
}

struct Case {
    operation: OperationType,
    inputs: Vec<Input>,
    /// Element types of the outputs. Their dimensions are the driver's to tell.
    outputs: Vec<OperandType>,
}

fn input(ty: OperandType, dims: &[i32], bytes: Vec<u8>, changes: bool) -> Input {
    Input { operand: operand(ty, dims, OperandLifeTime::CONSTANT_POOL), bytes, changes }
}

/// A changing tensor of floats.
fn data(dims: &[i32]) -> Input {
    let values: Vec<f32> = (0..dims.iter().product()).map(|i| (i % 13) as f32 - 4.0).collect();
    input(OperandType::TENSOR_FLOAT32, dims, floats(&values), true)
}

fn float_tensor(dims: &[i32], values: &[f32]) -> Input {
    input(OperandType::TENSOR_FLOAT32, dims, floats(values), true)
}

/// A tensor of floats that the model holds.
fn weights(dims: &[i32], values: &[f32]) -> Input {
    input(OperandType::TENSOR_FLOAT32, dims, floats(values), false)
}

fn bytes_of_ints(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A changing tensor of integers, which steer.
fn steering(dims: &[i32], values: &[i32]) -> Input {
    input(OperandType::TENSOR_INT32, dims, bytes_of_ints(values), true)
}

fn changing_int(value: i32) -> Input {
    input(OperandType::INT32, &[], bytes_of_ints(&[value]), true)
}

fn int(value: i32) -> Input {
    input(OperandType::INT32, &[], bytes_of_ints(&[value]), false)
}

fn float(value: f32) -> Input {
    input(OperandType::FLOAT32, &[], floats(&[value]), false)
}

fn boolean(value: bool) -> Input {
    input(OperandType::BOOL, &[], vec![value.into()], false)
}

fn cases() -> Vec<Case> {
    use OperandType as T;
    use OperationType as O;
    const FLOAT: &[OperandType] = &[T::TENSOR_FLOAT32];
    let case =
        |operation, inputs, outputs: &[OperandType]| Case { operation, inputs, outputs: outputs.to_vec() };
    let regions: Vec<f32> = (0..4).flat_map(|i| [i as f32, 1.0, 8.0, 9.0 + i as f32]).collect();
    let boxes: Vec<f32> = (0..18).flat_map(|i| [i as f32, 1.0, i as f32 + 5.0, 8.0]).collect();
    let scores: Vec<f32> = (0..18).map(|i| (i * 7 % 18) as f32 / 18.0).collect();
    vec![
        case(O::GATHER, vec![data(&[8, 4]), changing_int(0), steering(&[6], &[0, 7, 3, 3, 1, 2])], FLOAT),
        case(O::EMBEDDING_LOOKUP, vec![steering(&[6], &[0, 7, 3, 3, 1, 2]), data(&[8, 4])], FLOAT),
        case(
            O::HASHTABLE_LOOKUP,
            vec![steering(&[3], &[5, 1, 9]), steering(&[4], &[1, 3, 5, 7]), data(&[4, 2])],
            &[T::TENSOR_FLOAT32, T::TENSOR_QUANT8_ASYMM],
        ),
        case(
            O::ROI_ALIGN,
            vec![
                data(&[2, 8, 8, 2]),
                float_tensor(&[4, 4], &regions),
                steering(&[4], &[0, 0, 1, 1]),
                changing_int(2),
                changing_int(2),
                float(2.0),
                float(2.0),
                changing_int(0),
                changing_int(4),
                boolean(false),
            ],
            FLOAT,
        ),
        case(O::RESHAPE, vec![data(&[32]), steering(&[2], &[4, -1])], FLOAT),
        case(O::PAD, vec![data(&[4, 4]), steering(&[2, 2], &[1, 0, 2, 1])], FLOAT),
        case(O::SLICE, vec![data(&[8, 8]), steering(&[2], &[1, 2]), steering(&[2], &[3, -1])], FLOAT),
        case(
            O::STRIDED_SLICE,
            vec![
                data(&[8, 8]),
                steering(&[2], &[1, 7]),
                steering(&[2], &[8, 0]),
                steering(&[2], &[2, -1]),
                int(0),
                int(0),
                int(0),
            ],
            FLOAT,
        ),
        case(O::TRANSPOSE, vec![data(&[2, 3, 4]), steering(&[3], &[2, 0, 1])], FLOAT),
        case(O::TOPK_V2, vec![data(&[4, 16]), changing_int(3)], &[T::TENSOR_FLOAT32, T::TENSOR_INT32]),
        case(
            O::BOX_WITH_NMS_LIMIT,
            vec![
                float_tensor(&[6, 3], &scores),
                float_tensor(&[6, 12], &boxes),
                steering(&[6], &[0, 0, 0, 1, 1, 1]),
                float(0.1),
                changing_int(-1),
                changing_int(0),
                float(0.4),
                float(1.0),
                float(0.3),
            ],
            &[T::TENSOR_FLOAT32, T::TENSOR_FLOAT32, T::TENSOR_INT32, T::TENSOR_INT32],
        ),
        case(O::TILE, vec![data(&[2, 3]), steering(&[2], &[2, 3])], FLOAT),
        // Its kernel reads the data where they change.
        case(
            O::CONV_2D,
            vec![
                data(&[1, 8, 8, 2]),
                weights(&[3, 1, 1, 2], &[0.5, 1.0, -1.0, 2.0, 0.0, 4.0]),
                weights(&[3], &[0.0, 1.0, -8.0]),
                int(1),
                int(1),
                int(1),
                int(0),
            ],
            FLOAT,
        ),
        case(O::REDUCE_SUM, vec![data(&[2, 3, 4]), steering(&[2], &[0, -1]), boolean(false)], FLOAT),
        case(
            O::SPACE_TO_BATCH_ND,
            vec![data(&[1, 4, 4, 2]), steering(&[2], &[2, 2]), steering(&[2, 2], &[0, 0, 0, 0])],
            FLOAT,
        ),
    ]
}

fn element_size(ty: OperandType) -> usize {
    if ty == OperandType::TENSOR_QUANT8_ASYMM {
        1
    } else {
        ELEMENT
    }
}

impl Case {
    /// All inputs one after another, each at a multiple of 4.
    fn memory(&self) -> Vec<u8> {
        let mut memory = Vec::new();
        for input in &self.inputs {
            memory.extend(&input.bytes);
            memory.resize(memory.len().next_multiple_of(ELEMENT), 0);
        }
        memory
    }

    /// Where each input lies in the memory.
    fn places(&self) -> Vec<i64> {
        let place = |at: &mut i64, input: &Input| {
            let start = *at;
            *at += input.bytes.len().next_multiple_of(ELEMENT) as i64;
            Some(start)
        };
        self.inputs.iter().scan(0, place).collect()
    }

    /// Whether input `i` is an input of the model as well, rather than a constant in `memory`.
    fn is_model_input(&self, i: usize, steered_ahead: bool) -> bool {
        let is_data = self.inputs[i].operand.r#type == OperandType::TENSOR_FLOAT32;
        self.inputs[i].changes && (is_data || !steered_ahead)
    }

    /// A model of the operation with its constants in `memory`: those that steer, too, if `steered_ahead`.
    fn model(&self, memory: &File, steered_ahead: bool) -> Model {
        let mut main = Subgraph::default();
        let places = self.places();
        let size = self.memory().len() as i64;
        for (i, input) in self.inputs.iter().enumerate() {
            let mut operand = input.operand.clone();
            if self.is_model_input(i, steered_ahead) {
                operand.lifetime = OperandLifeTime::SUBGRAPH_INPUT;
                main.inputIndexes.push(i as i32);
            } else {
                let length = input.bytes.len() as i64;
                operand.location = DataLocation { poolIndex: 0, offset: places[i], length, padding: 0 };
            }
            main.operands.push(operand);
        }
        for &ty in &self.outputs {
            main.outputIndexes.push(main.operands.len() as i32);
            let mut output = operand(ty, &[], OperandLifeTime::SUBGRAPH_OUTPUT);
            output.scale = if ty == OperandType::TENSOR_QUANT8_ASYMM { 1.0 } else { 0.0 };
            main.operands.push(output);
        }
        let inputs = (0..self.inputs.len() as i32).collect();
        let operation = Operation { r#type: self.operation, inputs, outputs: main.outputIndexes.clone() };
        main.operations.push(operation);
        Model { main, pools: vec![ashmem(memory, size)], ..Default::default() }
    }

    /// A request whose inputs lie in `memory`.
    fn request(&self, memory: &File, output: &File, steered_ahead: bool) -> Request {
        let places = self.places();
        let given = (0..self.inputs.len()).filter(|&i| self.is_model_input(i, steered_ahead));
        let size = self.memory().len() as i64;
        let room = (ROOM * self.outputs.len()) as i64;
        Request {
            inputs: given.map(|i| argument(0, places[i], self.inputs[i].bytes.len() as i64)).collect(),
            outputs: (0..self.outputs.len()).map(|i| argument(1, (i * ROOM) as i64, ROOM as i64)).collect(),
            pools: [(memory, size), (output, room)]
                .map(|(file, size)| RequestMemoryPool::Pool(ashmem(file, size)))
                .into(),
        }
    }

    /// Runs `model`; gives the output's bytes if it succeeded, and whether it was for lack of room if not.
    fn execute(
        &self,
        model: &Strong<dyn IPreparedModel>,
        request: &Request,
        output: &File,
    ) -> Result<Vec<Vec<u8>>, ErrorStatus> {
        let deadline = boottime_ns() as i64 + 5_000_000_000;
        let answer = model.executeSynchronously(request, false, deadline, -1);
        let known = [
            ErrorStatus::NONE,
            ErrorStatus::GENERAL_FAILURE,
            ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT,
            ErrorStatus::RESOURCE_EXHAUSTED_PERSISTENT,
            ErrorStatus::MISSED_DEADLINE_TRANSIENT,
        ];
        assert!(known.contains(&status(&answer)), "{:?}: {answer:?}", self.operation);
        let Ok(result) = answer else { return Err(status(&answer)) };
        assert_eq!(result.outputShapes.len(), self.outputs.len());
        let mut all = Vec::new();
        for (i, (shape, &ty)) in result.outputShapes.iter().zip(&self.outputs).enumerate() {
            let count: usize = shape.dimensions.iter().map(|&d| d as usize).product();
            let size = count * element_size(ty);
            assert_eq!(shape.isSufficient, size <= ROOM, "{:?}: {shape:?}", self.operation);
            let mut bytes = vec![0; size.min(ROOM)];
            output.read_exact_at(&mut bytes, (i * ROOM) as u64).expect("read");
            all.push(bytes);
        }
        match result.outputSufficientSize {
            true => Ok(all),
            false => Err(ErrorStatus::OUTPUT_INSUFFICIENT_SIZE),
        }
    }
}

/// Numbers that look random and are the same in every run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// A seed that has bits everywhere.
fn mixed(seed: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What integers are made to be: what is just valid, what is just not, and what is far from it.
const WORDS: [i32; 14] = [0, 1, 2, 3, 4, 7, 8, -1, -2, 100, 1 << 16, i32::MAX, i32::MIN, 0x7f80_0000];

/// Memory that changes.
struct Changing {
    file: File,
    original: Vec<u8>,
    changes: AtomicUsize,
}

impl Changing {
    fn new(original: Vec<u8>) -> Self {
        Changing { file: memfd(&original), original, changes: AtomicUsize::new(0) }
    }

    /// Changes the memory until `stop`; now and then it is as it was.
    fn scribble(&self, stop: &AtomicBool, seed: u64) {
        let mut chance = Chance(seed);
        while !stop.load(Ordering::Relaxed) {
            let at = chance.below(self.original.len() / ELEMENT) * ELEMENT;
            let write = |bytes: &[u8], at: usize| self.file.write_all_at(bytes, at as u64).expect("written");
            match chance.below(8) {
                0 => write(&self.original, 0),
                1 => {
                    let byte = at + chance.below(ELEMENT);
                    write(&[self.original[byte] ^ 1 << chance.below(8)], byte);
                }
                2 => write(&self.original[at..at + ELEMENT], at),
                _ => write(&WORDS[chance.below(WORDS.len())].to_le_bytes(), at),
            }
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Does `body` at least `count` times, while the memory is changed as often; leaves it as it was.
    fn during(&self, count: usize, seed: u64, mut body: impl FnMut()) {
        let stop = AtomicBool::new(false);
        let started = Instant::now();
        std::thread::scope(|threads| {
            threads.spawn(|| self.scribble(&stop, mixed(seed)));
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut rounds = 0;
                // Who runs when is the scheduler's choice.
                while rounds < count || self.changes.load(Ordering::Relaxed) < count {
                    assert!(rounds < count || started.elapsed() < PATIENCE, "nothing was changed");
                    body();
                    rounds += 1;
                }
            }));
            stop.store(true, Ordering::Relaxed);
            if let Err(panic) = done {
                std::panic::resume_unwind(panic);
            }
        });
        self.file.write_all_at(&self.original, 0).expect("written");
    }
}

/// Whether it failed for a reason that the next try may not meet.
fn is_for_now<T>(result: &Result<T, ErrorStatus>) -> bool {
    use ErrorStatus as E;
    matches!(result, Err(E::MISSED_DEADLINE_TRANSIENT | E::RESOURCE_EXHAUSTED_TRANSIENT))
}

fn room(case: &Case) -> File {
    memfd(&vec![0; ROOM * case.outputs.len()])
}

#[test]
fn values_that_change_during_executions_give_errors_or_results() {
    let harness = Harness::new();
    let (mut succeeded, mut failed) = (0, 0);
    for (seed, case) in (1..).zip(cases()) {
        let (memory, output) = (Changing::new(case.memory()), room(&case));
        // Its constants are not among what changes.
        let model = harness.prepare(&case.model(&memfd(&memory.original), false));
        let request = case.request(&memory.file, &output, false);
        let expected = case.execute(&model, &request, &output).expect("untouched, it works");
        memory.during(executions(), seed, || match case.execute(&model, &request, &output) {
            Ok(_) => succeeded += 1,
            Err(_) => failed += 1,
        });
        assert_eq!(case.execute(&model, &request, &output).as_ref(), Ok(&expected), "{:?}", case.operation);
    }
    println!("{succeeded} succeeded, {failed} failed");
    assert!(succeeded > 0 && failed > 0, "{succeeded} succeeded, {failed} failed");
}

#[test]
fn constants_that_change_during_compilations_are_read_once() {
    let harness = Harness::new();
    let (mut succeeded, mut failed) = (0, 0);
    for (seed, case) in (101..).zip(cases()) {
        let (memory, output) = (Changing::new(case.memory()), room(&case));
        let still = memfd(&memory.original);
        let request = case.request(&still, &output, true);
        memory.during(executions() / 10, seed, || {
            let (launch, (told, prepared)) = harness.connection.launch(&case.model(&memory.file, true));
            assert_eq!(told == ErrorStatus::NONE, prepared.is_some());
            assert!(launch.is_ok() || told == status(&launch), "{told:?}");
            let Some(model) = prepared else { return };
            // Whatever the constants were when it looked, that they are from then on.
            let [first, second] = [(); 2].map(|()| case.execute(&model, &request, &output));
            if ![&first, &second].iter().any(|result| is_for_now(result)) {
                assert_eq!(first, second, "{:?}", case.operation);
            }
            *if first.is_ok() { &mut succeeded } else { &mut failed } += 1;
        });
        let model = harness.prepare(&case.model(&memory.file, true));
        case.execute(&model, &request, &output).expect("untouched, it works");
    }
    println!("{succeeded} succeeded, {failed} failed");
    assert!(succeeded > 0 && failed > 0, "{succeeded} succeeded, {failed} failed");
}
