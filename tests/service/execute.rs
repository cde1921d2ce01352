//! Models compiled and executed over binder: memories of every kind, shapes, times.

use crate::common::*;
use nnhal::aidl::*;
use nnhal::backend::boottime_ns;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const READ: i32 = libc::PROT_READ;
const WRITE: i32 = libc::PROT_WRITE;

#[test]
fn a_model_runs_end_to_end() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[1, 3]));
    let (request, output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    let result = model.executeSynchronously(&request, false, -1, -1).expect("executed");
    assert!(result.outputSufficientSize);
    assert_eq!(result.outputShapes, [OutputShape { dimensions: vec![1, 3], isSufficient: true }]);
    assert_eq!(result.timing, Timing { timeOnDeviceNs: -1, timeInDriverNs: -1 });
    assert_eq!(bytes_of(&output), floats(&[1.0, -1.0, 3.0]));
    let config = ExecutionConfig { measureTiming: true, loopTimeoutDurationNs: -1, ..Default::default() };
    let result = model.executeSynchronouslyWithConfig(&request, &config, -1).expect("executed");
    let Timing { timeOnDeviceNs: device, timeInDriverNs: driver } = result.timing;
    assert!(0 < device && device <= driver, "{device} {driver}");
}

#[test]
fn arguments_may_lie_anywhere_in_mappable_files() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[3]));
    let mut bytes = vec![0; 5000];
    bytes[4101..4113].copy_from_slice(&floats(&[0.5, 2.25, -7.5]));
    let (input, output) = (memfd(&bytes), memfd(&[0xee; 10_000]));
    let pools = [mappable(&input, READ, 4099, 100), mappable(&output, READ | WRITE, 8191, 64)];
    let request = Request {
        inputs: vec![argument(0, 2, 12)],
        outputs: vec![argument(1, 5, 12)],
        pools: pools.into_iter().map(RequestMemoryPool::Pool).collect(),
    };
    model.executeSynchronously(&request, false, -1, -1).expect("executed");
    let written = bytes_of(&output);
    assert_eq!(written[8196..8208], floats(&[0.0, 2.0, -8.0]));
    assert!(written[..8196].iter().chain(&written[8208..]).all(|&b| b == 0xee), "nothing else is touched");
    assert_eq!(bytes_of(&input), bytes);
}

#[test]
fn memory_is_used_only_as_it_allows() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[1]));
    let file = memfd(&[0; 64]);
    let run = |input_prot, output_prot| {
        let request = Request {
            inputs: vec![argument(0, 0, 4)],
            outputs: vec![argument(1, 0, 4)],
            pools: vec![
                RequestMemoryPool::Pool(mappable(&file, input_prot, 0, 32)),
                RequestMemoryPool::Pool(mappable(&file, output_prot, 32, 32)),
            ],
        };
        model.executeSynchronously(&request, false, -1, -1)
    };
    run(READ, WRITE).expect("no more is needed");
    assert_refused(run(READ, READ), ErrorStatus::INVALID_ARGUMENT, "output 0 lies in pool 1");
    assert_refused(run(WRITE, WRITE), ErrorStatus::INVALID_ARGUMENT, "input 0 lies in pool 0");
    assert_refused(run(READ, 0), ErrorStatus::INVALID_ARGUMENT, "protection");
    assert_refused(run(READ, READ | WRITE | libc::PROT_EXEC), ErrorStatus::INVALID_ARGUMENT, "protection");
    // A descriptor that is only open for reading allows no more, whatever the client says of it.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let read_only = std::fs::File::open(path).expect("open again");
    let (mut request, _output) = request(&floats(&[1.5]), 4);
    request.pools[0] = RequestMemoryPool::Pool(ashmem(&read_only, 64));
    model.executeSynchronously(&request, false, -1, -1).expect("an input need not be writable");
    request.outputs = vec![argument(0, 32, 4)];
    let answer = model.executeSynchronously(&request, false, -1, -1);
    assert_refused(answer, ErrorStatus::INVALID_ARGUMENT, "output 0 lies in pool 0, which can only be read");
    request.pools[0] = RequestMemoryPool::Pool(mappable(&read_only, READ | WRITE, 0, 64));
    let answer = model.executeSynchronously(&request, false, -1, -1);
    assert_eq!(status(&answer), ErrorStatus::INVALID_ARGUMENT);
}

/// FLOOR of a constant in a pool.
fn constant_model(memory: Memory, count: i32, offset: i64) -> Model {
    let mut model = floor_model(&[count]);
    model.main.inputIndexes = vec![];
    model.main.operands[0].lifetime = OperandLifeTime::CONSTANT_POOL;
    model.main.operands[0].location =
        DataLocation { poolIndex: 0, offset, length: i64::from(count) * 4, padding: 0 };
    model.pools = vec![memory];
    model
}

#[test]
fn constants_come_from_pools_and_are_kept() {
    let harness = Harness::new();
    for count in [3, 1000] {
        let values: Vec<f32> = (0..count).map(|i| i as f32 + 0.5).collect();
        let expected: Vec<f32> = (0..count).map(|i| i as f32).collect();
        let mut bytes = vec![0; 4107];
        bytes.extend(floats(&values));
        let file = memfd(&bytes);
        let length = count as i64 * 4;
        for (memory, offset) in [
            (ashmem(&file, 4107 + length), 4107),
            (mappable(&file, READ, 4100, length + 7), 7),
            (mappable(&file, READ, 4107, length), 0),
        ] {
            file.write_all_at(&bytes, 0).expect("write");
            let model = harness.prepare(&constant_model(memory, count, offset));
            file.write_all_at(&vec![0xff; bytes.len()], 0).expect("write");
            let (mut request, output) = request(&[0], length as usize);
            request.inputs = vec![];
            model.executeSynchronously(&request, false, -1, -1).expect("executed");
            assert_eq!(bytes_of(&output), floats(&expected));
        }
    }
    let file = memfd(&[0; 100]);
    for (memory, offset) in [(ashmem(&file, 100), 90), (ashmem(&file, 4000), 0), (ashmem(&file, 0), 0)] {
        let model = constant_model(memory, 3, offset);
        let (launch, (told, prepared)) = harness.connection.launch(&model);
        assert_eq!((status(&launch), told), (ErrorStatus::INVALID_ARGUMENT, ErrorStatus::INVALID_ARGUMENT));
        assert!(prepared.is_none());
    }
}

#[test]
fn unknown_shapes_are_told_and_small_outputs_are_no_error() {
    let harness = Harness::new();
    let mut model = floor_model(&[0, 2]);
    model.main.operands[1].dimensions = vec![];
    let model = harness.prepare(&model);
    let input = floats(&[1.5; 6]);
    let run = |length: usize, dims: &[i32]| {
        let (mut request, output) = request(&input, length);
        request.inputs[0].dimensions = vec![3, 2];
        request.outputs[0].dimensions = dims.to_vec();
        (model.executeSynchronously(&request, true, -1, -1), output)
    };
    let shape = |fits| [OutputShape { dimensions: vec![3, 2], isSufficient: fits }];
    for (length, dims) in [(24, vec![]), (24, vec![3, 2]), (100, vec![]), (100, vec![0, 2])] {
        let (result, output) = run(length, &dims);
        let result = result.expect("executed");
        assert_eq!((result.outputSufficientSize, &result.outputShapes[..]), (true, &shape(true)[..]));
        assert_eq!(bytes_of(&output)[..24], floats(&[1.0; 6]));
        assert!(bytes_of(&output)[24..].iter().all(|&b| b == 0xee));
        assert!(result.timing.timeInDriverNs > 0);
    }
    let (result, output) = run(23, &[]);
    let result = result.expect("executed");
    assert_eq!((result.outputSufficientSize, &result.outputShapes[..]), (false, &shape(false)[..]));
    assert_eq!(result.timing, Timing { timeOnDeviceNs: -1, timeInDriverNs: -1 });
    assert_eq!(bytes_of(&output), [0xee; 23]);
    let (mut unknown, _output) = request(&input, 24);
    assert_refused(
        model.executeSynchronously(&unknown, false, -1, -1),
        ErrorStatus::INVALID_ARGUMENT,
        "input 0",
    );
    unknown.inputs[0].dimensions = vec![3, 2];
    unknown.outputs[0] = RequestArgument { hasNoValue: true, ..Default::default() };
    let result = model.executeSynchronously(&unknown, false, -1, -1).expect("nobody wants the output");
    assert_eq!(result.outputShapes, shape(true));
}

/// Far less than the minutes that are cut short, and far more than a machine with other work takes to notice.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn deadlines_of_an_execution_hold() {
    let harness = Harness::new();
    // Minutes, of which none is waited for.
    const ELEMENTS: usize = 1 << 24;
    let model = harness.prepare(&long_model(ELEMENTS as i32, 6000));
    let (request, _output) = request(&vec![0; 4 * ELEMENTS], 4 * ELEMENTS);
    let config = ExecutionConfig { loopTimeoutDurationNs: -1, ..Default::default() };
    // The call must arrive within the second.
    for left in [Duration::ZERO, Duration::from_secs(1)] {
        let start = Instant::now();
        let deadline = boottime_ns() as i64 + left.as_nanos() as i64;
        let answer = model.executeSynchronouslyWithConfig(&request, &config, deadline);
        let missed = status(&answer);
        let expected = match left.is_zero() {
            true => ErrorStatus::MISSED_DEADLINE_PERSISTENT,
            false => ErrorStatus::MISSED_DEADLINE_TRANSIENT,
        };
        assert_eq!(missed, expected);
        assert!((left..left + SOON).contains(&start.elapsed()), "{:?}", start.elapsed());
    }
}

#[test]
fn terms_of_an_execution_are_checked() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[1]));
    let (request, _output) = request(&floats(&[1.5]), 4);
    for (deadline, timeout, good) in [
        (-1, 0, true),
        (i64::MAX, 15_000_000_000, true),
        (-2, -1, false),
        (i64::MIN, -1, false),
        (-1, -2, false),
        (-1, 15_000_000_001, false),
        (-1, i64::MAX, false),
    ] {
        let expected = if good { ErrorStatus::NONE } else { ErrorStatus::INVALID_ARGUMENT };
        let config = ExecutionConfig { loopTimeoutDurationNs: timeout, ..Default::default() };
        assert_eq!(status(&model.executeSynchronously(&request, false, deadline, timeout)), expected);
        assert_eq!(status(&model.executeSynchronouslyWithConfig(&request, &config, deadline)), expected);
    }
    let hint = TokenValuePair { token: 1, value: vec![] };
    let mut config = ExecutionConfig { executionHints: vec![hint.clone()], ..Default::default() };
    model.executeSynchronouslyWithConfig(&request, &config, -1).expect("unknown hints are ignored");
    config.executionHints.push(hint);
    let answer = model.executeSynchronouslyWithConfig(&request, &config, -1);
    assert_refused(answer, ErrorStatus::INVALID_ARGUMENT, "hint 1 is given twice");
}
