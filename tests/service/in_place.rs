//! Arguments that kernels read and write in the client's memory: exact results wherever they lie, nothing else touched.

use crate::common::conv::Convolutions;
use crate::common::*;
use binder::{BinderResult, Strong};
use nnhal::aidl::*;
use std::fs::File;
use std::os::unix::fs::FileExt;

const READ: i32 = libc::PROT_READ;
const WRITE: i32 = libc::PROT_WRITE;
/// What lies where nothing is to be written.
const UNTOUCHED: u8 = 0xee;

/// A file of `len` bytes, untouched but for `parts`.
fn file_with(len: usize, parts: &[(usize, &[f32])]) -> File {
    let file = memfd(&vec![UNTOUCHED; len]);
    for (offset, values) in parts {
        file.write_all_at(&floats(values), *offset as u64).expect("written");
    }
    file
}

fn pools(files: &[(&File, usize)]) -> Vec<RequestMemoryPool> {
    files.iter().map(|(file, size)| RequestMemoryPool::Pool(ashmem(file, *size as i64))).collect()
}

/// An argument of `len` bytes at `offset` in `pool`.
fn at(pool: i32, offset: usize, len: usize) -> RequestArgument {
    argument(pool, offset as i64, len as i64)
}

#[track_caller]
fn assert_parts(file: &File, parts: &[(usize, &[u8])]) {
    let mut expected = vec![UNTOUCHED; bytes_of(file).len()];
    for (offset, bytes) in parts {
        expected[*offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    assert!(bytes_of(file) == expected);
}

/// Executes in a way that maps memory however small: a single execution would read and write it by calls.
fn execute(model: &Strong<dyn IPreparedModel>, request: &Request) -> BinderResult<ExecutionResult> {
    let config = ExecutionConfig { loopTimeoutDurationNs: -1, ..Default::default() };
    model.createReusableExecution(request, &config)?.executeSynchronously(-1)
}

#[test]
fn arguments_lie_anywhere_and_side_by_side_in_one_pool() {
    let harness = Harness::new();
    for (window, channels, offset) in [(1, 5, 1), (1, 16, 0), (3, 5, 3), (3, 35, 2), (1, 37, 4095)] {
        let images = Convolutions { count: 2, side: 9, channels, window, ..Default::default() };
        let (model, len) = (harness.prepare(&images.model()), images.bytes());
        let (first, second) = (images.image(1), images.image(2));
        // Two inputs, two outputs without a gap between them, and a few bytes more.
        let places = [offset, offset + len + 1, offset + 2 * len + 2, offset + 3 * len + 2];
        let size = places[3] + len + 3;
        let file = file_with(size, &[(places[0], &first), (places[1], &second)]);
        let request = Request {
            inputs: vec![at(0, places[0], len), at(0, places[1], len)],
            outputs: vec![at(0, places[2], len), at(0, places[3], len)],
            pools: pools(&[(&file, size)]),
        };
        let burst = model.configureExecutionBurst().expect("a burst");
        for round in 0..3 {
            file.write_all_at(&vec![UNTOUCHED; 2 * len], places[2] as u64).expect("written");
            match round {
                0 => model.executeSynchronously(&request, false, -1, -1).expect("executed"),
                _ => burst.executeSynchronously(&request, &[7], false, -1, -1).expect("executed"),
            };
            let (inputs, results) = (
                [floats(&first), floats(&second)],
                [Convolutions::result(&first), Convolutions::result(&second)],
            );
            let all = inputs.iter().chain(&results).map(Vec::as_slice);
            assert_parts(&file, &places.into_iter().zip(all).collect::<Vec<_>>());
        }
    }
}

/// Two pools of one file are two memories to the driver. Whoever lays an output over an input by them gets what comes of
/// it; nothing else is touched, and nobody else notices.
#[test]
fn two_pools_of_one_file_may_overlap() {
    let harness = Harness::new();
    for (window, channels) in [(1, 16), (3, 35)] {
        let images = Convolutions { window, channels, ..Default::default() };
        let (model, len, image) = (harness.prepare(&images.model()), images.bytes(), images.image(4));
        let apart = |offset: usize| offset == 2 * len;
        for offset in [0, 4, len / 2, len - 4, 2 * len] {
            let size = 4 * len;
            let file = file_with(size, &[(len / 2, &image)]);
            let request = Request {
                inputs: vec![at(0, len / 2, len)],
                outputs: vec![at(1, offset, len)],
                pools: pools(&[(&file, size), (&file, size)]),
            };
            for _ in 0..3 {
                execute(&model, &request).expect("executed");
            }
            let bytes = bytes_of(&file);
            let written = |at: usize| (offset..offset + len).contains(&at);
            let given = floats(&image);
            for (at, &byte) in bytes.iter().enumerate().filter(|&(at, _)| !written(at)) {
                let before = at.checked_sub(len / 2).and_then(|at| given.get(at));
                assert_eq!(byte, *before.unwrap_or(&UNTOUCHED), "byte {at}, output at {offset}");
            }
            assert!(!apart(offset) || bytes[offset..][..len] == Convolutions::result(&image));
        }
        let (request, output) = request(&floats(&image), len);
        model.executeSynchronously(&request, false, -1, -1).expect("executed");
        assert!(bytes_of(&output) == Convolutions::result(&image), "what came after");
    }
}

#[test]
fn one_place_may_be_several_inputs() {
    let harness = Harness::new();
    let images = Convolutions { count: 3, ..Default::default() };
    let (model, len, image) = (harness.prepare(&images.model()), images.bytes(), images.image(5));
    let (input, output) = (file_with(len, &[(0, &image)]), file_with(3 * len, &[]));
    let request = Request {
        inputs: vec![at(0, 0, len); 3],
        outputs: (0..3).map(|i| at(1, i * len, len)).collect(),
        pools: pools(&[(&input, len), (&output, 3 * len)]),
    };
    execute(&model, &request).expect("executed");
    assert!(bytes_of(&output) == Convolutions::result(&image).repeat(3));
}

#[test]
fn what_other_operations_read_is_copied_for_them() {
    let harness = Harness::new();
    let images = Convolutions { count: 2, ..Default::default() };
    let mut model = images.model();
    // FLOOR reads the first input and the first result as well; all values are whole numbers.
    let output = model.main.operands.last().expect("an output").clone();
    for read in [model.main.inputIndexes[0], model.main.outputIndexes[0]] {
        let floor = model.main.operands.len() as i32;
        model.main.operands.push(output.clone());
        model.main.outputIndexes.push(floor);
        model.main.operations.push(Operation {
            r#type: OperationType::FLOOR,
            inputs: vec![read],
            outputs: vec![floor],
        });
    }
    let (model, len) = (harness.prepare(&model), images.bytes());
    let (first, second) = (images.image(1), images.image(2));
    let input = file_with(2 * len, &[(0, &first), (len, &second)]);
    let output = file_with(4 * len, &[]);
    let request = Request {
        inputs: vec![at(0, 0, len), at(0, len, len)],
        outputs: (0..4).map(|i| at(1, i * len, len)).collect(),
        pools: pools(&[(&input, 2 * len), (&output, 4 * len)]),
    };
    execute(&model, &request).expect("executed");
    let result = Convolutions::result(&first);
    assert!(
        bytes_of(&output)
            == [&result, &Convolutions::result(&second), &floats(&first), &result].map(Vec::clone).concat()
    );
}

#[test]
fn an_output_too_small_leaves_all_as_they_are() {
    let harness = Harness::new();
    let images = Convolutions { count: 2, untold: true, ..Default::default() };
    let (model, len, image) = (harness.prepare(&images.model()), images.bytes(), images.image(3));
    let (input, output) = (file_with(len, &[(0, &image)]), file_with(2 * len, &[]));
    let request = |second: usize| Request {
        inputs: vec![at(0, 0, len); 2],
        outputs: vec![at(1, 0, len), at(1, len, second)],
        pools: pools(&[(&input, len), (&output, 2 * len)]),
    };
    for second in [4, len - 1] {
        let result = execute(&model, &request(second)).expect("executed");
        let sufficient: Vec<bool> = result.outputShapes.iter().map(|shape| shape.isSufficient).collect();
        assert_eq!((result.outputSufficientSize, sufficient), (false, vec![true, false]));
        assert_parts(&output, &[]);
    }
    execute(&model, &request(len)).expect("executed");
    assert!(bytes_of(&output) == Convolutions::result(&image).repeat(2));
}

#[test]
fn memory_is_used_only_as_it_allows() {
    let harness = Harness::new();
    let images = Convolutions::default();
    let (model, len, image) = (harness.prepare(&images.model()), images.bytes(), images.image(4));
    let (input, output) = (file_with(len, &[(0, &image)]), file_with(len, &[]));
    let run = |input_prot, output_prot| {
        let pools = [(&input, input_prot), (&output, output_prot)];
        let request = Request {
            inputs: vec![at(0, 0, len)],
            outputs: vec![at(1, 0, len)],
            pools: pools
                .map(|(file, prot)| RequestMemoryPool::Pool(mappable(file, prot, 0, len as i64)))
                .into(),
        };
        execute(&model, &request)
    };
    assert_refused(run(READ, READ), ErrorStatus::INVALID_ARGUMENT, "output 0 lies in pool 1");
    assert_refused(run(WRITE, WRITE), ErrorStatus::INVALID_ARGUMENT, "input 0 lies in pool 0");
    assert_parts(&output, &[]);
    run(READ, WRITE).expect("no more is needed");
    assert!(bytes_of(&output) == Convolutions::result(&image));
}

/// A request with one file for two pools, whose outputs, in the second, may lie over inputs in the first.
fn over(file: &File, len: usize, inputs: &[usize], outputs: &[usize]) -> Request {
    let size = bytes_of(file).len();
    Request {
        inputs: inputs.iter().map(|&offset| at(0, offset, len)).collect(),
        outputs: outputs.iter().map(|&offset| at(1, offset, len)).collect(),
        pools: pools(&[(file, size), (file, size)]),
    }
}

#[test]
fn kernels_work_in_the_clients_memory() {
    let harness = Harness::new();
    let images = Convolutions { count: 2, ..Default::default() };
    let (model, len) = (harness.prepare(&images.model()), images.bytes());
    let (first, second) = (images.image(1), images.image(2));
    // The first result lies over the second input, so the second kernel reads what the first has written there: nobody
    // sees that two pools are one file.
    let file = file_with(3 * len, &[(0, &first), (len, &second)]);
    execute(&model, &over(&file, len, &[0, len], &[len, 2 * len])).expect("executed");
    let once: Vec<f32> = first.iter().map(|x| 2.0 * x + 1.0).collect();
    assert!(bytes_of(&file) == [floats(&first), floats(&once), Convolutions::result(&once)].concat());
}

#[test]
fn outputs_over_inputs_are_refused_or_as_if_they_were_apart() {
    let harness = Harness::new();
    for window in [1, 3] {
        let images = Convolutions { window, ..Default::default() };
        let (model, len, image) = (harness.prepare(&images.model()), images.bytes(), images.image(6));
        let burst = model.configureExecutionBurst().expect("a burst");
        for shift in [0, 1, 4, len - 1] {
            let file = file_with(2 * len, &[(0, &image)]);
            let mut request = over(&file, len, &[0], &[shift]);
            request.outputs[0].location.poolIndex = 0;
            let answer = execute(&model, &request);
            assert_refused(answer, ErrorStatus::INVALID_ARGUMENT, "output 0 overlaps input 0");
            request.outputs[0].location.poolIndex = 1;
            // Two mappings: whatever comes out, it comes out.
            execute(&model, &request).expect("executed");
            // One mapping.
            file.write_all_at(&floats(&image), 0).expect("written");
            burst.executeSynchronously(&request, &[7, 7], false, -1, -1).expect("executed");
            assert!(bytes_of(&file)[shift..][..len] == Convolutions::result(&image), "{shift}");
        }
    }
}

#[test]
fn device_buffers_are_computed_with_in_place() {
    let harness = Harness::new();
    let images = Convolutions::default();
    let (model, len, image) = (harness.prepare(&images.model()), images.bytes(), images.image(7));
    let buffer = |inputs: &[BufferRole], outputs: &[BufferRole]| {
        let parcel = IPreparedModelParcel { preparedModel: Some(model.clone()) };
        let allocated = harness.device().allocate(&BufferDesc::default(), &[parcel], inputs, outputs);
        let allocated = allocated.expect("allocated");
        (allocated.buffer.expect("a buffer"), allocated.token)
    };
    let role = BufferRole { modelIndex: 0, ioIndex: 0, probability: 1.0 };
    let (input, input_token) = buffer(std::slice::from_ref(&role), &[]);
    let (output, output_token) = buffer(&[], &[role]);
    let file = file_with(len, &[(0, &image)]);
    input.copyFrom(&ashmem(&file, len as i64), &[]).expect("copied");
    let request = Request {
        inputs: vec![at(0, 0, 0)],
        outputs: vec![at(1, 0, 0)],
        pools: [input_token, output_token].map(RequestMemoryPool::Token).into(),
    };
    execute(&model, &request).expect("executed");
    output.copyTo(&ashmem(&file, len as i64)).expect("copied");
    assert!(bytes_of(&file) == Convolutions::result(&image));
}
