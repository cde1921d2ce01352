//! Executions that wait for fences, and the fences that they give.

use crate::common::fences::*;
use crate::common::loops::loop_model;
use crate::common::*;
use binder::Strong;
use nnhal::aidl::*;
use nnhal::backend::boottime_ns;
use std::time::Duration;

fn fenced_setup(harness: &Harness) -> (Strong<dyn IPreparedModel>, Request, std::fs::File) {
    let model = harness.prepare(&floor_model(&[1]));
    let (request, output) = request(&floats(&[1.5]), 4);
    (model, request, output)
}

#[test]
fn fences_are_waited_for_and_chain() {
    let harness = Harness::new();
    let (model, request, output) = fenced_setup(&harness);
    let (first, second) = (ClientFence::new(), ClientFence::new());
    let [a] = first.list();
    let [b] = second.list();
    let result = model.executeFenced(&request, &[a, b], false, -1, -1, -1).expect("launched");
    let next = [result.syncFence.as_ref().expect("a fence").try_clone().expect("dup")];
    let chained = model.executeFenced(&request, &next, true, -1, -1, -1).expect("launched");
    first.signal();
    assert_eq!(wait(&result, Duration::from_millis(30)), None);
    assert_eq!(info(&result), (ErrorStatus::GENERAL_FAILURE, NO_TIMING, NO_TIMING));
    assert_eq!(bytes_of(&output), [0xee; 4]);
    second.signal();
    assert_eq!(wait(&result, PATIENCE), Some(true));
    assert_eq!(info(&result), (ErrorStatus::NONE, NO_TIMING, NO_TIMING));
    assert_eq!(bytes_of(&output), floats(&[1.0]));
    assert_eq!(wait(&chained, PATIENCE), Some(true));
    let (_, launched, fenced) = info(&chained);
    assert!(launched.timeInDriverNs > fenced.timeInDriverNs + 25_000_000, "{launched:?} {fenced:?}");
}

#[test]
fn failed_fences_fail_the_execution() {
    let harness = Harness::new();
    let (model, request, output) = fenced_setup(&harness);
    let fence = ClientFence::new();
    let list = fence.list();
    let result = model.executeFenced(&request, &list, true, -1, -1, -1).expect("launched");
    fence.fail();
    assert_eq!(wait(&result, PATIENCE), Some(false));
    assert_eq!(info(&result), (ErrorStatus::GENERAL_FAILURE, NO_TIMING, NO_TIMING));
    assert_eq!(bytes_of(&output), [0xee; 4]);
    let answer = model.executeFenced(&request, &list, true, -1, -1, -1);
    assert_refused(answer, ErrorStatus::INVALID_ARGUMENT, "fence 0 is in its error state");
    // What waits for a failed execution fails, too.
    let chained = [result.syncFence.as_ref().expect("a fence").try_clone().expect("dup")];
    let answer = model.executeFenced(&request, &chained, true, -1, -1, -1);
    assert_eq!(status(&answer), ErrorStatus::INVALID_ARGUMENT);
}

#[test]
fn an_urgent_execution_waits_for_no_other_of_its_client() {
    let harness = Harness::new();
    // Seconds each, and none ends before this test has looked at all of them.
    const ELEMENTS: usize = 1 << 22;
    let long = harness.connection.prepare_as(&long_model(ELEMENTS as i32, 2000), Priority::LOW);
    let (big, _output) = crate::common::request(&vec![0; 4 * ELEMENTS], 4 * ELEMENTS);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let launch = |_| long.executeFenced(&big, NO_FENCES, true, -1, -1, -1).expect("launched");
    let others: Vec<_> = (0..2 * cores + 2).map(launch).collect();
    let urgent = harness.connection.prepare_as(&floor_model(&[1]), Priority::HIGH);
    let (request, output) = request(&floats(&[1.5]), 4);
    let result = urgent.executeFenced(&request, NO_FENCES, true, -1, -1, -1).expect("launched");
    assert_eq!(wait(&result, PATIENCE), Some(true));
    assert_eq!(bytes_of(&output), floats(&[1.0]));
    for other in others {
        assert_eq!(wait(&other, Duration::ZERO), None, "it takes longer than to begin the urgent one");
        assert_eq!(info(&other), (ErrorStatus::GENERAL_FAILURE, NO_TIMING, NO_TIMING));
    } // whose results nobody can get any more, and which end
}

#[test]
fn times_bound_fenced_executions() {
    let harness = Harness::new();
    let (model, request, output) = fenced_setup(&harness);
    let never = ClientFence::new();
    let deadline = boottime_ns() as i64 + 500_000_000;
    let result = model.executeFenced(&request, &never.list(), true, deadline, -1, -1).expect("launched");
    assert_eq!(wait(&result, PATIENCE), Some(false));
    assert!(boottime_ns() as i64 >= deadline);
    assert_eq!(info(&result), (ErrorStatus::MISSED_DEADLINE_TRANSIENT, NO_TIMING, NO_TIMING));
    assert_eq!(bytes_of(&output), [0xee; 4]);
    let answer = model.executeFenced(&request, NO_FENCES, true, 0, -1, -1);
    assert_eq!(status(&answer), ErrorStatus::MISSED_DEADLINE_PERSISTENT);
    for (deadline, timeout, duration) in [(-2, -1, -1), (-1, -2, -1), (-1, -1, -2), (-1, i64::MAX, -1)] {
        let answer = model.executeFenced(&request, NO_FENCES, true, deadline, timeout, duration);
        assert_eq!(status(&answer), ErrorStatus::INVALID_ARGUMENT);
    }
    // A duration counts from the fences' signal, not from the launch.
    let (long, _) = model_that_lasts(&harness, Duration::from_millis(50));
    let later = ClientFence::new();
    let (request, _output) = crate::common::request(&vec![0; 4 << 18], 4 << 18);
    let ample = 60_000_000_000;
    let fine = long.executeFenced(&request, &later.list(), true, -1, -1, ample).expect("launched");
    let short = long.executeFenced(&request, NO_FENCES, true, -1, -1, 5_000_000).expect("launched");
    assert_eq!(wait(&short, PATIENCE), Some(false));
    assert_eq!(info(&short).0, ErrorStatus::MISSED_DEADLINE_TRANSIENT);
    later.signal();
    assert_eq!(wait(&fine, PATIENCE), Some(true));
}

/// A request of [`loop_model`]: whether it goes on for ever, and its one value.
fn loop_request(endless: bool) -> (Request, std::fs::File) {
    let (mut request, output) = request(&[&[u8::from(endless), 0, 0, 0][..], &floats(&[1.5])].concat(), 4);
    request.inputs = vec![argument(0, 0, 1), argument(0, 4, 4)];
    (request, output)
}

#[test]
fn a_loop_runs_within_the_call_that_need_not_wait() {
    let harness = Harness::new();
    let model = harness.prepare(&loop_model());
    let ample = 10_000_000_000;
    let (request, output) = loop_request(false);
    let result = model.executeFenced(&request, NO_FENCES, true, -1, ample, ample).expect("executed");
    assert!(result.syncFence.is_none(), "it is over");
    let (status, launched, fenced) = info(&result);
    assert_eq!((status, bytes_of(&output)), (ErrorStatus::NONE, floats(&[1.5])));
    assert!(0 < launched.timeOnDeviceNs && launched.timeOnDeviceNs <= fenced.timeInDriverNs);
    assert!(fenced.timeInDriverNs <= launched.timeInDriverNs, "{launched:?} {fenced:?}");
    // Its own limit, the client's duration and the client's deadline.
    let ms = 50_000_000;
    for (deadline, timeout, duration) in [(-1, ms, -1), (-1, -1, ms), (boottime_ns() as i64 + ms, -1, -1)] {
        let (request, output) = loop_request(true);
        let answer = model.executeFenced(&request, NO_FENCES, true, deadline, timeout, duration);
        let missed = [ErrorStatus::MISSED_DEADLINE_TRANSIENT, ErrorStatus::MISSED_DEADLINE_PERSISTENT];
        assert!(missed.contains(&crate::common::status(&answer)), "{:?}", answer.err());
        assert_eq!(bytes_of(&output), [0xee; 4]);
    }
    let (request, _output) = loop_request(true);
    let config = ExecutionConfig { loopTimeoutDurationNs: ms, ..Default::default() };
    let reusable = model.createReusableExecution(&request, &config).expect("created");
    for _ in 0..2 {
        let answer = reusable.executeFenced(NO_FENCES, -1, -1);
        assert_refused(answer, ErrorStatus::MISSED_DEADLINE_TRANSIENT, "a loop ran for longer than 50ms");
    }
}

#[test]
fn a_loop_that_runs_out_of_time_fails_its_fence_and_what_waits_for_it() {
    let harness = Harness::new();
    let model = harness.prepare(&loop_model());
    let (first, (request, output)) = (ClientFence::new(), loop_request(true));
    let ms = 50_000_000;
    let result = model.executeFenced(&request, &first.list(), true, -1, ms, -1).expect("launched");
    let next = [result.syncFence.as_ref().expect("a fence").try_clone().expect("dup")];
    let (floor, request, floored) = fenced_setup(&harness);
    let chained = floor.executeFenced(&request, &next, true, -1, -1, -1).expect("launched");
    first.signal();
    assert_eq!(wait(&result, PATIENCE), Some(false));
    assert_eq!(info(&result), (ErrorStatus::MISSED_DEADLINE_TRANSIENT, NO_TIMING, NO_TIMING));
    assert_eq!(wait(&chained, PATIENCE), Some(false));
    assert_eq!(info(&chained), (ErrorStatus::GENERAL_FAILURE, NO_TIMING, NO_TIMING));
    assert_eq!((bytes_of(&output), bytes_of(&floored)), (vec![0xee; 4], vec![0xee; 4]));
    let answer = floor.executeFenced(&request, &next, true, -1, -1, -1);
    assert_refused(answer, ErrorStatus::INVALID_ARGUMENT, "fence 0 is in its error state");
}
