//! The sample NPU behind the driver, through binder: every way to execute, caching, device buffers, hostile memory, and a
//! device that dies.

mod common;

use common::*;
use nnhal::aidl::*;
use sample_npu::SampleNpu;
use std::os::fd::AsFd;
use std::sync::Arc;

const IN: usize = (ROWS * INPUTS) as usize;
const OUT: usize = (ROWS * UNITS) as usize;

/// Waits for a fenced execution: its status.
fn wait(launched: &FencedExecutionResult) -> ErrorStatus {
    if let Some(fence) = &launched.syncFence {
        let fence = fence.as_fd();
        let mut fds = [rustix::event::PollFd::new(&fence, rustix::event::PollFlags::IN)];
        let patience = rustix::event::Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&patience)).expect("polled"), 1, "it never ends");
    }
    let (mut since_launch, mut since_fence) = (Timing::default(), Timing::default());
    let callback = launched.callback.as_ref().expect("a callback");
    callback.getExecutionInfo(&mut since_launch, &mut since_fence).expect("told")
}

#[test]
fn every_way_to_execute_gives_the_same_bytes() {
    let driver = Driver::new(None);
    let prepared = driver.prepare(&layer_model(true));
    let (input, output) = (memfd(&layer_input(0)), memfd(&[0; OUT]));
    let request = request(&input, IN, &output, OUT);
    let config = ExecutionConfig { loopTimeoutDurationNs: -1, ..Default::default() };
    let burst = prepared.configureExecutionBurst().expect("a burst");
    let reusable = prepared.createReusableExecution(&request, &config).expect("an execution");
    for round in 0..12u8 {
        use std::os::unix::fs::FileExt;
        input.write_all_at(&layer_input(round), 0).expect("written");
        output.write_all_at(&[0; OUT], 0).expect("written");
        match round % 5 {
            0 => {
                let result = prepared.executeSynchronously(&request, true, -1, -1).expect("executed");
                assert!(result.outputSufficientSize && result.timing.timeOnDeviceNs > 0, "{result:?}");
            }
            1 => {
                let launched = prepared.executeFenced(&request, &[], false, -1, -1, -1).expect("launched");
                assert_eq!(wait(&launched), ErrorStatus::NONE);
            }
            2 => drop(burst.executeSynchronously(&request, &[1, 2], false, -1, -1).expect("executed")),
            3 => drop(reusable.executeSynchronously(-1).expect("executed")),
            _ => {
                let launched = reusable.executeFenced(&[], -1, -1).expect("launched");
                assert_eq!(wait(&launched), ErrorStatus::NONE);
            }
        }
        assert_eq!(bytes_of(&output, OUT), layer_output(&layer_input(round), true), "round {round}");
    }
}

#[test]
fn a_driver_starts_before_its_device() {
    let driver = Driver::of(Arc::new(SampleNpu::new("/nowhere/a_device".into())), None);
    assert!(driver.device.getVersionString().expect("answered").contains("sample-npu"));
    let (status, prepared) = driver.try_prepare(&layer_model(false), &[]);
    assert!(status == ErrorStatus::DEVICE_UNAVAILABLE && prepared.is_none(), "{status:?}");
    assert_eq!(driver.npu.device_process(), None);
    // A device that is there starts with the first model.
    let driver = Driver::new(None);
    driver.device.getVersionString().expect("answered");
    assert_eq!(driver.npu.device_process(), None);
    driver.prepare(&layer_model(false));
    assert!(driver.npu.device_process().is_some());
}

#[test]
fn what_the_device_does_not_take_is_refused() {
    let driver = Driver::new(None);
    let extensions = driver.device.getSupportedExtensions().expect("extensions");
    assert!(extensions.iter().any(|extension| extension.name == sample_npu::EXTENSION), "{extensions:?}");
    let supported = driver.device.getSupportedOperations(&layer_model(true)).expect("an answer");
    assert_eq!(supported, [true, true]);
    use OperandLifeTime as L;
    let mut maker = Maker::default();
    let x = maker.operand(I8, &[4], L::SUBGRAPH_INPUT);
    let y = maker.operand(I8, &[4], L::TEMPORARY_VARIABLE);
    let z = maker.operand(I8, &[4], L::SUBGRAPH_OUTPUT);
    maker.operation(OperationType::RELU, &[x], y);
    maker.operation(OperationType::ABS, &[y], z);
    // ABS is not for 8 bits at all: the model is not valid.
    assert_eq!(status(&driver.device.getSupportedOperations(&maker.0)), ErrorStatus::INVALID_ARGUMENT);
    maker.0.main.operations[1].r#type = OperationType::HARD_SWISH;
    assert_eq!(driver.device.getSupportedOperations(&maker.0).expect("an answer"), [true, false]);
    assert_eq!(driver.try_prepare(&maker.0, &[]).0, ErrorStatus::GENERAL_FAILURE);
}

#[test]
fn device_buffers_lie_in_the_device() {
    let driver = Driver::new(None);
    let prepared = driver.prepare(&layer_model(false));
    let parcel = || IPreparedModelParcel { preparedModel: Some(prepared.clone()) };
    let role = [BufferRole { modelIndex: 0, ioIndex: 0, probability: 1.0 }];
    let allocate = |inputs: &[BufferRole], outputs: &[BufferRole]| {
        driver.device.allocate(&BufferDesc::default(), &[parcel()], inputs, outputs).expect("allocated")
    };
    let (source, sink) = (allocate(&role, &[]), allocate(&[], &role));
    let (from, to) = (memfd(&layer_input(3)), memfd(&[0; OUT]));
    let object = |buffer: &DeviceBuffer| buffer.buffer.clone().expect("a buffer");
    object(&source).copyFrom(&ashmem(&from, IN), &[]).expect("copied");
    let request = Request {
        inputs: vec![argument(0, 0)],
        outputs: vec![argument(1, 0)],
        pools: vec![RequestMemoryPool::Token(source.token), RequestMemoryPool::Token(sink.token)],
    };
    prepared.executeSynchronously(&request, false, -1, -1).expect("executed");
    object(&sink).copyTo(&ashmem(&to, OUT)).expect("copied");
    assert_eq!(bytes_of(&to, OUT), layer_output(&layer_input(3), false));
    // They are lost with the device, though not with an error that blames the client.
    kill(driver.npu.device_process());
    let answer = prepared.executeSynchronously(&request, false, -1, -1);
    assert_eq!(status(&answer), ErrorStatus::DEVICE_UNAVAILABLE);
}

#[test]
fn memory_that_may_only_be_read_is_no_output() {
    let driver = Driver::new(None);
    let prepared = driver.prepare(&layer_model(false));
    let (input, output) = (memfd(&layer_input(0)), memfd(&[0; OUT]));
    let mut request = request(&input, IN, &output, OUT);
    request.pools[1] = RequestMemoryPool::Pool(mappable(&output, 1, OUT));
    let answer = prepared.executeSynchronously(&request, false, -1, -1);
    assert_eq!(status(&answer), ErrorStatus::INVALID_ARGUMENT);
    request.pools[1] = RequestMemoryPool::Pool(mappable(&output, 3, OUT));
    prepared.executeSynchronously(&request, false, -1, -1).expect("executed");
    assert_eq!(bytes_of(&output, OUT), layer_output(&layer_input(0), false));
}

#[test]
fn memory_that_vanishes_costs_one_execution() {
    let driver = Driver::new(None);
    let prepared = driver.prepare(&layer_model(false));
    let (input, output) = (memfd(&layer_input(0)), memfd(&[0; OUT]));
    let request = request(&input, IN, &output, OUT);
    let config = ExecutionConfig { loopTimeoutDurationNs: -1, ..Default::default() };
    let reusable = prepared.createReusableExecution(&request, &config).expect("an execution");
    reusable.executeSynchronously(-1).expect("executed");
    let process = driver.npu.device_process();
    input.set_len(0).expect("truncated");
    assert_eq!(status(&reusable.executeSynchronously(-1)), ErrorStatus::GENERAL_FAILURE);
    let input = memfd(&layer_input(5));
    let again = common::request(&input, IN, &output, OUT);
    prepared.executeSynchronously(&again, false, -1, -1).expect("executed");
    assert_eq!(bytes_of(&output, OUT), layer_output(&layer_input(5), false));
    assert_eq!(driver.npu.device_process(), process, "the device has lived through it");
}

#[test]
fn a_model_is_kept_in_cache_files() {
    let directory = std::env::temp_dir().join(format!("sample-npu-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let driver = Driver::new(Some(&directory));
    let files = [memfd(&[]), memfd(&[]), memfd(&[])];
    let counts = driver.device.getNumberOfCacheFilesNeeded().expect("counts");
    assert_eq!((counts.numModelCache, counts.numDataCache), (1, 2));
    let (status, _) = driver.try_prepare(&layer_model(true), &files);
    assert_eq!(status, ErrorStatus::NONE);
    let (status, loaded) = driver.load(&files);
    assert_eq!(status, ErrorStatus::NONE);
    let (input, output) = (memfd(&layer_input(8)), memfd(&[0; OUT]));
    let request = request(&input, IN, &output, OUT);
    loaded.expect("a model").executeSynchronously(&request, false, -1, -1).expect("executed");
    assert_eq!(bytes_of(&output, OUT), layer_output(&layer_input(8), true));
    let _ = std::fs::remove_dir_all(&directory);
}

/// Two clients' worth of work at once, of which the short overtakes the long.
#[test]
fn short_executions_overtake_long_ones_and_long_ones_meet_their_deadline() {
    let driver = Driver::new(None);
    let (long, short) = (driver.prepare(&long_model(12)), driver.prepare(&layer_model(false)));
    let (from, to) = (memfd(&vec![1; LONG_BYTES]), memfd(&vec![0; LONG_BYTES]));
    let work = request(&from, LONG_BYTES, &to, LONG_BYTES);
    let duration = 300_000_000;
    let launched = long.executeFenced(&work, &[], false, -1, -1, duration).expect("launched");
    let (input, output) = (memfd(&layer_input(2)), memfd(&[0; OUT]));
    let request = request(&input, IN, &output, OUT);
    short.executeSynchronously(&request, false, -1, -1).expect("executed");
    assert_eq!(bytes_of(&output, OUT), layer_output(&layer_input(2), false));
    // 1.6 billion multiplications one by one are not done in so short a time, nor is it allowed to go on after it.
    let told = wait(&launched);
    assert!(
        [ErrorStatus::MISSED_DEADLINE_TRANSIENT, ErrorStatus::MISSED_DEADLINE_PERSISTENT].contains(&told),
        "{told:?}"
    );
    short.executeSynchronously(&request, false, -1, -1).expect("executed");
}

#[test]
fn a_device_that_dies_takes_its_executions_with_it_and_nothing_else() {
    let driver = Driver::new(None);
    let mut lives = std::collections::HashSet::new();
    for round in 0..20u8 {
        let prepared = driver.prepare(&layer_model(true));
        let (long, process) = (driver.prepare(&long_model(12)), driver.npu.device_process());
        assert!(lives.insert(process), "another life");
        let (from, to) = (memfd(&vec![1; LONG_BYTES]), memfd(&vec![0; LONG_BYTES]));
        let work = request(&from, LONG_BYTES, &to, LONG_BYTES);
        // Fenced and synchronous in turns: both must end.
        let launched = long.executeFenced(&work, &[], false, -1, -1, -1).expect("launched");
        let (input, output) = (memfd(&layer_input(round)), memfd(&[0; OUT]));
        let request = request(&input, IN, &output, OUT);
        prepared.executeSynchronously(&request, false, -1, -1).expect("executed");
        assert_eq!(bytes_of(&output, OUT), layer_output(&layer_input(round), true));
        let synchronous = long.clone();
        let waiting =
            std::thread::spawn(move || status(&synchronous.executeSynchronously(&work, false, -1, -1)));
        std::thread::sleep(std::time::Duration::from_millis(u64::from(round)));
        kill(process);
        assert_eq!(wait(&launched), ErrorStatus::DEVICE_UNAVAILABLE, "round {round}");
        assert_eq!(waiting.join().expect("no panic"), ErrorStatus::DEVICE_UNAVAILABLE, "round {round}");
        let old = prepared.executeSynchronously(&request, false, -1, -1);
        assert_eq!(status(&old), ErrorStatus::DEVICE_UNAVAILABLE, "round {round}");
    }
}
