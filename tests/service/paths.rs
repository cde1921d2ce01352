//! The ways to execute beside the plain one: bursts, reusable executions, fences. All give the same.

use crate::common::domains::{model_of, tensor};
use crate::common::fences::*;
use crate::common::fmq;
use crate::common::process::wait_until;
use crate::common::*;
use nnhal::aidl::*;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

fn config(measure: bool) -> ExecutionConfig {
    ExecutionConfig { measureTiming: measure, loopTimeoutDurationNs: -1, ..Default::default() }
}

#[test]
fn all_ways_give_the_same() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[1, 3]));
    let (request, output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    let check = |way: &str, result: Option<&ExecutionResult>| {
        assert_eq!(bytes_of(&output), floats(&[1.0, -1.0, 3.0]), "{way}");
        output.write_all_at(&[0xee; 12], 0).expect("write");
        if let Some(result) = result {
            assert!(result.outputSufficientSize, "{way}");
            assert_eq!(result.outputShapes, [OutputShape { dimensions: vec![1, 3], isSufficient: true }]);
            assert_eq!(result.timing, NO_TIMING);
        }
    };
    check("sync", Some(&model.executeSynchronously(&request, false, -1, -1).expect("executed")));
    let burst = model.configureExecutionBurst().expect("a burst");
    for tokens in [[-1, -1], [0, 1], [0, 1], [1, 0]] {
        let result = burst.executeSynchronously(&request, &tokens, false, -1, -1).expect("executed");
        check("burst", Some(&result));
        let result = burst.executeSynchronouslyWithConfig(&request, &tokens, &config(false), -1);
        check("burst with config", Some(&result.expect("executed")));
    }
    let reusable = model.createReusableExecution(&request, &config(false)).expect("created");
    for _ in 0..3 {
        check("reusable", Some(&reusable.executeSynchronously(-1).expect("executed")));
        let result = reusable.executeFenced(NO_FENCES, -1, -1).expect("launched");
        assert_eq!(wait(&result, PATIENCE), Some(true));
        check("reusable, fenced", None);
    }
    let result = model.executeFenced(&request, NO_FENCES, false, -1, -1, -1).expect("launched");
    assert_eq!(wait(&result, PATIENCE), Some(true));
    assert_eq!(info(&result), (ErrorStatus::NONE, NO_TIMING, NO_TIMING));
    check("fenced", None);
    let result = model.executeFencedWithConfig(&request, NO_FENCES, &config(true), -1, -1).expect("launched");
    assert_eq!(wait(&result, PATIENCE), Some(true));
    let (status, launched, fenced) = info(&result);
    assert_eq!(status, ErrorStatus::NONE);
    assert!(0 < launched.timeOnDeviceNs && launched.timeOnDeviceNs <= fenced.timeInDriverNs);
    assert!(fenced.timeInDriverNs <= launched.timeInDriverNs, "{launched:?} {fenced:?}");
    check("fenced with config", None);
}

#[test]
fn burst_tokens_are_checked() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[1]));
    let (request, _output) = request(&floats(&[1.5]), 4);
    let burst = model.configureExecutionBurst().expect("a burst");
    for tokens in [&[][..], &[-1], &[-1, -1, -1], &[-2, -1], &[0, i64::MIN]] {
        let answer = burst.executeSynchronously(&request, tokens, false, -1, -1);
        assert_refused(answer, ErrorStatus::INVALID_ARGUMENT, "memory token");
    }
    assert_refused(burst.releaseMemoryResource(-2), ErrorStatus::INVALID_ARGUMENT, "memory token -2");
    assert_refused(burst.releaseMemoryResource(-1), ErrorStatus::INVALID_ARGUMENT, "memory token -1");
    burst.executeSynchronously(&request, &[0, i64::MAX], false, -1, -1).expect("executed");
    for token in [0, 0, 5, i64::MAX] {
        burst.releaseMemoryResource(token).expect("released, or never known");
    }
    burst.executeSynchronously(&request, &[0, i64::MAX], false, -1, -1).expect("executed");
    for (deadline, timeout) in [(-2, -1), (-1, -2), (-1, i64::MAX)] {
        let answer = burst.executeSynchronously(&request, &[0, 1], false, deadline, timeout);
        assert_eq!(status(&answer), ErrorStatus::INVALID_ARGUMENT);
    }
}

/// A request is run again unchecked if it is the same: whatever differs must be seen.
#[test]
fn a_burst_checks_a_request_that_differs_in_anything() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[1]));
    let burst = model.configureExecutionBurst().expect("a burst");
    let (inputs, outputs) = (memfd(&floats(&[1.5, 2.5, 3.5])), memfd(&[0xee; 12]));
    let request = |from: i64, to: i64, [input, output]: [Memory; 2]| Request {
        inputs: vec![argument(0, from, 4)],
        outputs: vec![argument(1, to, 4)],
        pools: vec![RequestMemoryPool::Pool(input), RequestMemoryPool::Pool(output)],
    };
    let whole = || [ashmem(&inputs, 12), ashmem(&outputs, 12)];
    let usual = request(0, 0, whole());
    let run_usual = |input: f32| {
        inputs.write_all_at(&floats(&[input]), 0).expect("written");
        let result = burst.executeSynchronously(&usual, &[3, 4], false, -1, -1).expect("executed");
        assert_eq!(result.timing, NO_TIMING);
        assert_eq!(bytes_of(&outputs)[..4], floats(&[input.floor()]));
    };
    run_usual(1.5);
    let read_only = [ashmem(&inputs, 12), mappable(&outputs, libc::PROT_READ, 0, 12)];
    let refused = [
        (request(12, 0, whole()), "input 0"),
        (request(0, -4, whole()), "output 0"),
        (request(0, 0, [ashmem(&inputs, 3), ashmem(&outputs, 12)]), "input 0"),
        (request(0, 8, [ashmem(&inputs, 12), ashmem(&outputs, 11)]), "output 0"),
        (request(0, 0, [ashmem(&inputs, 12), ashmem(&outputs, 1 << 20)]), "pool 1"),
        (request(0, 0, read_only), "output 0"),
        (request(0, 0, [ashmem(&inputs, 12), ashmem(&outputs, -1)]), "pool 1"),
        (Request { inputs: vec![], ..request(0, 0, whole()) }, "0 inputs"),
    ];
    for (i, (request, why)) in refused.iter().enumerate() {
        run_usual(i as f32 + 0.5);
        let answer = burst.executeSynchronously(request, &[3, 4], false, -1, -1);
        assert_refused(answer, ErrorStatus::INVALID_ARGUMENT, why);
    }
    run_usual(7.5);
    burst.executeSynchronously(&request(8, 4, whole()), &[3, 4], false, -1, -1).expect("executed");
    assert_eq!(bytes_of(&outputs), [floats(&[7.0, 3.0]), vec![0xee; 4]].concat());
    run_usual(8.5);
    let measured = burst.executeSynchronously(&usual, &[3, 4], true, -1, -1).expect("executed");
    assert!(measured.timing.timeOnDeviceNs > 0);
    run_usual(9.5);
    burst.releaseMemoryResource(3).expect("released");
    run_usual(-0.5);
}

#[test]
fn a_burst_keeps_no_more_mappings_than_it_may() {
    // A call carries 64 descriptors at most, which is as many mappings as a burst keeps.
    const MOST: usize = 64;
    const PORTS: usize = 30;
    let harness = Harness::new();
    let relu = tensor(OperandType::TENSOR_FLOAT32, &[1], OperandLifeTime::TEMPORARY_VARIABLE);
    let burst = harness.prepare(&model_of(&vec![relu; PORTS])).configureExecutionBurst().expect("a burst");
    let name = std::ffi::CString::new(format!("nnhal-many-{}", std::process::id())).expect("a name");
    let memory = |i: usize| {
        let fd = nix::sys::memfd::memfd_create(&*name, nix::sys::memfd::MFdFlags::empty()).expect("memory");
        let file = std::fs::File::from(fd);
        file.write_all_at(&floats(&[i as f32]), 0).expect("written");
        file
    };
    let mappings = || {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", harness.process())).expect("mappings");
        maps.lines().filter(|line| line.contains(name.to_str().expect("a name"))).count()
    };
    let own = |first: i64| (first..first + 2 * PORTS as i64).collect();
    for tokens in [own(0), own(100), vec![7; 2 * PORTS], own(200)] {
        let pools: Vec<_> = (0..2 * PORTS).map(memory).collect();
        let request = Request {
            inputs: (0..PORTS).map(|i| argument(i as i32, 0, 4)).collect(),
            outputs: (PORTS..2 * PORTS).map(|i| argument(i as i32, 0, 4)).collect(),
            pools: pools.iter().map(|file| RequestMemoryPool::Pool(ashmem(file, 4))).collect(),
        };
        for _ in 0..3 {
            burst.executeSynchronously(&request, &tokens, false, -1, -1).expect("executed");
            assert!((1..=MOST).contains(&mappings()), "{}", mappings());
            assert_eq!(bytes_of(&pools[2 * PORTS - 1]), floats(&[(PORTS - 1) as f32]));
        }
    }
    (0..300).for_each(|token| burst.releaseMemoryResource(token).expect("released"));
    assert_eq!(mappings(), 0);
}

#[test]
fn a_burst_notices_other_memory_under_a_token() {
    let harness = Harness::new();
    let model = harness.prepare(&floor_model(&[1]));
    let burst = model.configureExecutionBurst().expect("a burst");
    for value in [1.5f32, 2.5, 3.5] {
        let (request, output) = request(&floats(&[value]), 4);
        for _ in 0..2 {
            burst.executeSynchronously(&request, &[3, 4], false, -1, -1).expect("executed");
            assert_eq!(bytes_of(&output), floats(&[value.floor()]));
            output.write_all_at(&[0xee; 4], 0).expect("write");
        }
    }
    let (request, output) = request(&floats(&[1.5]), 4);
    burst.executeSynchronously(&request, &[3, 4], false, -1, -1).expect("executed");
    output.set_len(2).expect("shrunk");
    let answer = burst.executeSynchronously(&request, &[3, 4], false, -1, -1);
    assert_eq!(status(&answer), ErrorStatus::INVALID_ARGUMENT);
}

/// Runs `execute` twice at once; one must be refused as the other is under way.
fn assert_one_at_a_time(execute: impl Fn() -> binder::BinderResult<ExecutionResult> + Sync) {
    let twice = || -> Vec<ErrorStatus> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| status(&execute()))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    };
    // Where one thread begins only when the other is done, nothing was at once.
    wait_until("two executions meet", || {
        let statuses = twice();
        assert!(statuses.contains(&ErrorStatus::NONE), "{statuses:?}");
        let have_met = statuses != [ErrorStatus::NONE; 2];
        assert!(!have_met || statuses.contains(&ErrorStatus::GENERAL_FAILURE), "{statuses:?}");
        have_met
    });
    execute().expect("free again");
}

#[test]
fn bursts_and_reusable_executions_do_one_thing_at_a_time() {
    let harness = Harness::new();
    // It must last until both threads have asked.
    let (model, _) = model_that_lasts(&harness, Duration::from_millis(100));
    let (request, _output) = request(&vec![0; 4 << 18], 4 << 18);
    let burst = model.configureExecutionBurst().expect("a burst");
    assert_one_at_a_time(|| burst.executeSynchronously(&request, &[0, 1], false, -1, -1));
    let reusable = model.createReusableExecution(&request, &config(false)).expect("created");
    assert_one_at_a_time(|| reusable.executeSynchronously(-1));
    let fence = ClientFence::new();
    let fenced = reusable.executeFenced(&fence.list(), -1, -1).expect("launched");
    let answer = reusable.executeSynchronously(-1);
    assert_refused(answer, ErrorStatus::GENERAL_FAILURE, "executing already");
    fence.signal();
    assert_eq!(wait(&fenced, PATIENCE), Some(true));
    reusable.executeSynchronously(-1).expect("free again");
}

#[test]
fn a_reusable_execution_sees_new_data_and_checks_its_terms() {
    let harness = Harness::new();
    let mut dynamic = floor_model(&[0]);
    dynamic.main.operands[1].dimensions = vec![];
    let model = harness.prepare(&dynamic);
    let (mut request, output) = request(&floats(&[1.5, 2.5]), 8);
    let input = match &request.pools[0] {
        RequestMemoryPool::Pool(Memory::Ashmem(ashmem)) => {
            std::fs::File::from(ashmem.fd.as_ref().expect("set").as_fd().try_clone_to_owned().expect("dup"))
        }
        _ => panic!("made as ashmem"),
    };
    request.inputs[0].dimensions = vec![2];
    let reusable = model.createReusableExecution(&request, &config(false)).expect("created");
    for value in [3.5, -4.5] {
        input.write_all_at(&floats(&[value, value]), 0).expect("write");
        reusable.executeSynchronously(-1).expect("executed");
        assert_eq!(bytes_of(&output), floats(&[f32::floor(value), f32::floor(value)]));
    }
    let answer = reusable.executeFenced(NO_FENCES, -1, -1);
    assert_refused(answer, ErrorStatus::INVALID_ARGUMENT, "output 0: its dimensions must be known");
    assert_eq!(status(&reusable.executeSynchronously(-2)), ErrorStatus::INVALID_ARGUMENT);
    assert_eq!(status(&reusable.executeSynchronously(0)), ErrorStatus::MISSED_DEADLINE_PERSISTENT);
    assert_eq!(status(&reusable.executeFenced(NO_FENCES, -1, -2)), ErrorStatus::INVALID_ARGUMENT);
    let bad = ExecutionConfig { loopTimeoutDurationNs: -2, ..Default::default() };
    let answer = model.createReusableExecution(&request, &bad);
    assert_eq!(status(&answer), ErrorStatus::INVALID_ARGUMENT);
    drop(model);
    reusable.executeSynchronously(-1).expect("it keeps what it needs");
}

#[test]
fn memory_that_a_burst_over_queues_frees_is_not_mapped_any_more() {
    let harness = Harness::new();
    let mut burst = fmq::Burst::open(&fmq::extension(&harness.prepare(&floor_model(&[1, 3]))));
    let inodes = burst.memories.files.each_ref().map(|file| file.metadata().expect("a file").ino());
    let mapped = |inode: u64| {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", harness.process())).expect("maps");
        // Address, access, offset, device, inode.
        maps.lines().any(|line| line.split_whitespace().nth(4) == Some(&inode.to_string()))
    };
    assert_eq!(burst.run(&fmq::packet()).status, 0);
    assert_eq!(inodes.map(mapped), [true; 2], "they are kept");
    // No other request comes.
    burst.context.freeMemory(0).expect("freed");
    assert_eq!(inodes.map(mapped), [false, true], "only one was freed");
    burst.context.freeMemory(1).expect("freed");
    assert!(!mapped(inodes[1]));
    assert_eq!(burst.run(&fmq::packet()).status, 0);
}
