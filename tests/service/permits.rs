//! What a client's calls hold on its account: it is counted while it is held, and comes back however a call ends.

use crate::common::domains::{parcels, roles};
use crate::common::fences::{wait, ClientFence, NO_FENCES};
use crate::common::fmq::{extension, packet, Burst};
use crate::common::loops::loop_model;
use crate::common::status::{assert_back, connect, held, holding, soon};
use crate::common::*;
use binder::{BinderResult, Interface, Strong};
use nnhal::aidl::*;
use nnhal::client::Driver;
use nnhal::scheduler::limits;
use std::sync::mpsc::{channel, Receiver};
use std::sync::Mutex;

/// Waits until the client holds at least so many of each of these.
#[track_caller]
fn assert_held(driver: &Driver, expected: &[(&str, u64)]) {
    soon(driver, &format!("it holds less than {expected:?}"), |status| {
        let held = held(status);
        expected.iter().all(|(what, count)| held.get(what).is_some_and(|held| held >= count))
    });
}

/// A request for three floats that a [floor_model] takes, and one that it does not.
fn requests() -> [(&'static str, Request); 2] {
    let (good, _) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    let (mut bad, _) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    bad.outputs.clear();
    [("good", good), ("without an output", bad)]
}

#[test]
fn what_executions_hold_comes_back_however_they_end() {
    const ROUNDS: usize = 40;
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let model = harness.prepare(&floor_model(&[1, 3]));
    let before = holding(&driver);
    for (what, request) in requests() {
        for deadline in [-1, 1] {
            for _ in 0..ROUNDS {
                let executed = model.executeSynchronously(&request, false, deadline, -1);
                assert_eq!(executed.is_ok(), what == "good" && deadline == -1, "{executed:?}");
                if let Ok(result) = model.executeFenced(&request, NO_FENCES, false, deadline, -1, -1) {
                    wait(&result, PATIENCE);
                }
                let burst = model.configureExecutionBurst().expect("a burst");
                let _ = burst.executeSynchronously(&request, &[0, 1], false, deadline, -1);
                if let Ok(reusable) = model.createReusableExecution(&request, &ExecutionConfig::default()) {
                    let _ = reusable.executeSynchronously(deadline);
                    if let Ok(result) = reusable.executeFenced(NO_FENCES, deadline, -1) {
                        wait(&result, PATIENCE);
                    }
                }
            }
        }
        assert_back(&driver, &before, &format!("{ROUNDS} executions by a request that is {what}"));
    }
    for _ in 0..ROUNDS {
        let mut burst = Burst::open(&extension(&model));
        assert_held(&driver, &[("bursts over queues are open", 1), ("objects of executions are alive", 1)]);
        assert_eq!(burst.run(&packet()).status, 0);
        let mut unknown = packet();
        unknown.slots[1] = 7;
        assert_ne!(burst.run(&unknown).status, 0);
    }
    assert_back(&driver, &before, "bursts over queues");
}

#[test]
fn bytes_of_memory_with_holes_are_mapped_within_bounds_and_come_back() {
    const WHAT: &str = "bytes of memories are mapped";
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let model = harness.prepare(&floor_model(&[1, 3]));
    let before = holding(&driver);
    let share = limits::MAPPED_BYTES.quota().per_client();
    let bytes = (share / 4).min(u64::from(u32::MAX)) as i64;
    let memory = memfd(&[]);
    memory.set_len(bytes as u64).expect("holes");
    let request = Request {
        inputs: vec![argument(0, 0, 12)],
        outputs: vec![argument(0, 4096, 12)],
        pools: vec![RequestMemoryPool::Pool(ashmem(&memory, bytes))],
    };
    let create = || model.createReusableExecution(&request, &ExecutionConfig::default());
    for _ in 0..2 {
        let mut executions = Vec::new();
        let refused = loop {
            match create() {
                Ok(execution) => executions.push(execution),
                Err(refused) => break Err::<(), _>(refused),
            }
            assert!(executions.len() as u64 <= share / bytes as u64, "nobody counts them");
        };
        assert_eq!(status(&refused), ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT, "{refused:?}");
        let why = refused.unwrap_err().message().unwrap_or_default().to_owned();
        assert!(why.contains("mapped"), "{why}");
        assert_held(&driver, &[(WHAT, executions.len() as u64 * bytes as u64)]);
        for execution in &executions {
            execution.executeSynchronously(-1).expect("executed");
        }
        drop(executions);
        assert_back(&driver, &before, "executions over memory with holes");
    }
}

#[test]
fn what_waits_is_counted_until_it_is_over() {
    const COUNT: u64 = 5;
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let model = harness.prepare(&floor_model(&[1, 3]));
    let before = holding(&driver);
    let [(_, request), _] = requests();
    for end in ["signalled", "failed", "left"] {
        let fence = ClientFence::new();
        let launch = |_| model.executeFenced(&request, &fence.list(), false, -1, -1, -1).expect("launched");
        let waiting: Vec<_> = (0..COUNT).map(launch).collect();
        let expected = [
            ("descriptors of fences and of devices' memory are held", 3 * COUNT),
            ("objects of executions are alive", COUNT),
        ];
        assert_held(&driver, &expected);
        match end {
            "signalled" => fence.signal(),
            "failed" => fence.fail(),
            _ => drop(fence),
        }
        for result in waiting {
            wait(&result, PATIENCE);
        }
        assert_back(&driver, &before, &format!("executions whose fence is {end}"));
    }
    let bursts: Vec<_> = (0..COUNT).map(|_| Burst::open(&extension(&model))).collect();
    let reusable = |_| model.createReusableExecution(&request, &ExecutionConfig::default()).expect("created");
    let reusable: Vec<_> = (0..COUNT).map(reusable).collect();
    let expected = [
        ("bursts over queues are open", COUNT),
        ("objects of executions are alive", COUNT),
        ("memories are mapped", 2 * COUNT),
    ];
    assert_held(&driver, &expected);
    drop((bursts, reusable));
    assert_back(&driver, &before, "bursts and reusable executions");
}

/// A callback that is told once, and does not return before it is let.
struct Slow(Mutex<Receiver<()>>);
impl Interface for Slow {}
impl IPreparedModelCallback for Slow {
    fn notify(&self, _: ErrorStatus, _: Option<&Strong<dyn IPreparedModel>>) -> BinderResult<()> {
        let _ = self.0.lock().expect("no panic while held").recv_timeout(PATIENCE);
        Ok(())
    }
}

#[test]
fn what_compilations_hold_comes_back_however_they_end() {
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let before = holding(&driver);
    let mut invalid = floor_model(&[1, 3]);
    invalid.main.operations[0].inputs = vec![9];
    let models = [("valid", floor_model(&[1, 3])), ("invalid", invalid)];
    for (what, model) in &models {
        for deadline in [-1, 1] {
            let (go, wait) = channel();
            let callback = BnPreparedModelCallback::new_binder(Slow(Mutex::new(wait)));
            let (preference, priority) = (ExecutionPreference::FAST_SINGLE_ANSWER, Priority::MEDIUM);
            let _ = harness.device().prepareModel(
                model, preference, priority, deadline, NO_FENCES, NO_FENCES, &[0; 32], &callback,
            );
            // It is told that there is none, too.
            assert_held(&driver, &[("callbacks have not been answered", 1)]);
            drop(go);
            drop(callback);
            assert_back(&driver, &before, &format!("compilations of a model that is {what}"));
        }
    }
    let model = harness.prepare(&floor_model(&[1024]));
    let allocate = |_| {
        let buffer =
            harness.device().allocate(&BufferDesc::default(), &parcels(&[&model]), &roles(&[0]), &[]);
        buffer.expect("allocated")
    };
    let buffers: Vec<_> = (0..5).map(allocate).collect();
    let expected = [("prepared models are alive", 1), ("device buffers are alive", 5)];
    assert_held(&driver, &expected);
    drop((model, buffers));
    assert_back(&driver, &before, "a model and buffers for it");
}

#[test]
fn copies_to_and_from_device_buffers_are_counted_among_executions() {
    let (limit, what) = (limits::EXECUTIONS.quota().per_client(), limits::EXECUTIONS.what);
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let model = harness.prepare(&floor_model(&[1, 3]));
    let parcels = parcels(&[&model]);
    let buffer = harness.device().allocate(&BufferDesc::default(), &parcels, &roles(&[0]), &[]);
    let buffer = buffer.expect("allocated").buffer.expect("a buffer");
    let memory = || ashmem(&memfd(&floats(&[1.5, -0.5, 3.0])), 12);
    // Each serves two calls at once.
    let connections: Vec<_> = (0..limit / 2).map(|_| harness.connect()).collect();
    let models: Vec<_> = connections.iter().map(|connection| connection.prepare(&loop_model())).collect();
    let (mut endless, _output) = request(&[&[1, 0, 0, 0][..], &floats(&[1.5])].concat(), 4);
    endless.inputs = vec![argument(0, 0, 1), argument(0, 4, 4)];
    let holds = |status: &serde_json::Value, count| held(status).get(what).copied().unwrap_or(0) == count;
    std::thread::scope(|scope| {
        let longest = 15_000_000_000;
        for model in models.iter().chain(&models) {
            let endless = &endless;
            scope.spawn(move || drop(model.executeSynchronously(endless, false, -1, longest)));
        }
        soon(&driver, "not all executions are counted", |status| holds(status, limit));
        let exhausted = ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT;
        assert_eq!(status(&buffer.copyFrom(&memory(), &[])), exhausted);
        assert_eq!(status(&buffer.copyTo(&memory())), exhausted);
        connections.iter().for_each(|connection| connection.close());
    });
    soon(&driver, "executions are held still", |status| holds(status, 0));
    assert_eq!(status(&buffer.copyFrom(&memory(), &[])), ErrorStatus::NONE);
    assert_eq!(status(&buffer.copyTo(&memory())), ErrorStatus::NONE);
}
