//! The extension of the device: why operations are not taken, and what the driver tells of itself.

use crate::common::status::{connect, soon, status};
use crate::common::*;
use binder::{Binder, Interface, Remotable, StatusCode};
use nnhal::aidl::*;
use nnhal::backend::cpu::CpuBackend;
use nnhal::client::{Mode, PrepareOptions, Session};
use nnhal::service;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

/// So many FLOORs beside each other; in place of those whose number `refuse` takes, an operation that no driver knows.
fn floors(count: i32, refuse: impl Fn(i32) -> bool) -> Model {
    const PREFIX: u16 = 5;
    let name = ExtensionNameAndPrefix { name: "com.example.nn".into(), prefix: PREFIX };
    let mut model = Model { extensionNameToPrefix: vec![name], ..Default::default() };
    let unknown = OperationType(i32::from(PREFIX) << EXTENSION_TYPE_LOW_BITS_TYPE | 7);
    for i in 0..count {
        for lifetime in [OperandLifeTime::SUBGRAPH_INPUT, OperandLifeTime::SUBGRAPH_OUTPUT] {
            model.main.operands.push(operand(OperandType::TENSOR_FLOAT32, &[2], lifetime));
        }
        let ty = if refuse(i) { unknown } else { OperationType::FLOOR };
        let (inputs, outputs) = (vec![2 * i], vec![2 * i + 1]);
        model.main.operations.push(Operation { r#type: ty, inputs, outputs });
        model.main.inputIndexes.push(2 * i);
        model.main.outputIndexes.push(2 * i + 1);
    }
    model
}

#[test]
fn reasons_are_told_where_support_is_denied_and_nowhere_else() {
    let harness = Harness::new();
    let driver = connect(&harness);
    let diagnostics = driver.diagnostics().expect("an answer").expect("the extension");
    assert_eq!(diagnostics.version(), DIAGNOSTICS_VERSION);
    let model = floors(40, |i| i % 3 == 1);
    let taken = driver.device().getSupportedOperations(&model).expect("an answer");
    let reasons = diagnostics.refusals(&model).expect("reasons");
    assert_eq!(reasons.iter().map(Option::is_none).collect::<Vec<_>>(), taken);
    assert!(taken.contains(&true) && taken.contains(&false));
    for why in reasons.iter().flatten() {
        assert_eq!(why, "operation 7 of extension com.example.nn");
    }
}

#[test]
fn what_is_no_model_is_refused_as_it_is_elsewhere() {
    let harness = Harness::new();
    let driver = connect(&harness);
    let diagnostics = driver.diagnostics().expect("an answer").expect("the extension");
    let mut model = floor_model(&[2]);
    model.main.operations[0].inputs = vec![7];
    let expected = driver.device().getSupportedOperations(&model);
    let expected = driver.answer("a call", expected).expect_err("it is invalid");
    let why = diagnostics.refusals(&model).expect_err("it is invalid");
    assert_eq!(why.status(), Some(ErrorStatus::INVALID_ARGUMENT));
    let message =
        |why: &nnhal::client::ClientError| why.to_string().split_once(": ").expect("a reason").1.to_string();
    assert_eq!(message(&why), message(&expected));
}

#[test]
fn reasons_for_a_huge_model_fit_an_answer() {
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let diagnostics = driver.diagnostics().expect("an answer").expect("the extension");
    let count = 20_000;
    let reasons = diagnostics.refusals(&floors(count, |_| true)).expect("reasons");
    assert_eq!(reasons.len(), count as usize);
    assert!(reasons.iter().all(Option::is_some), "none of them is taken");
    let bytes: usize = reasons.iter().flatten().map(String::len).sum();
    assert!(bytes < 512 << 10, "{bytes} bytes of reasons");
    // The connection is as good as before.
    assert_eq!(diagnostics.refusals(&floor_model(&[2])).expect("reasons"), [None]);
}

#[test]
fn status_is_asked_for_again_and_again() {
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let diagnostics = driver.diagnostics().expect("an answer").expect("the extension");
    let first = diagnostics.status().expect("a status").len();
    for i in 0..100_000 {
        let status = diagnostics.status().expect("a status");
        // Some numbers get longer.
        assert!(status.len() < first + 1000, "after {i}: {status}");
    }
}

#[test]
fn what_a_burst_remembers_of_its_last_request_is_counted() {
    const COUNT: i32 = 5000;
    const PRIVATE: &str = "bytes of private memory are held";
    /// An input and an output each, of more bytes than these.
    const LISTS: u64 = 2 * COUNT as u64 * 32;
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let model = harness.prepare(&floors(COUNT, |_| false));
    let size = 8 * i64::from(COUNT);
    let (input, output) = (memfd(&vec![0; size as usize]), memfd(&vec![0; size as usize]));
    let arguments = |pool| (0..i64::from(COUNT)).map(move |i| argument(pool, 8 * i, 8)).collect();
    let pool = |file| RequestMemoryPool::Pool(ashmem(file, size));
    let request =
        Request { inputs: arguments(0), outputs: arguments(1), pools: vec![pool(&input), pool(&output)] };
    let held = || status(&driver)["clients"][0]["holds"][PRIVATE].as_u64();
    let burst = model.configureExecutionBurst().expect("a burst");
    // What is made once only is made before; without tokens nothing is remembered.
    burst.executeSynchronously(&request, &[-1, -1], false, -1, -1).expect("executed");
    let before = held().expect("a number");
    let config = ExecutionConfig { loopTimeoutDurationNs: -1, ..Default::default() };
    let reusable = model.createReusableExecution(&request, &config).expect("made");
    let once = held().expect("a number") - before;
    drop(reusable);
    let is_back = |s: &serde_json::Value| s["clients"][0]["holds"][PRIVATE].as_u64() <= Some(before);
    soon(&driver, "it is let go of", is_back);
    burst.executeSynchronously(&request, &[0, 1], false, -1, -1).expect("executed");
    let remembered = held().expect("a number") - before;
    assert!(remembered >= once + LISTS, "{remembered} bytes, {once} for an execution alone");
    burst.releaseMemoryResource(0).expect("released");
    soon(&driver, "nothing is remembered", is_back);
}

#[test]
fn executions_are_counted_whichever_way_they_go() {
    const RUNS: u64 = 3;
    let harness = Harness::with_data(None);
    let driver = Arc::new(connect(&harness));
    let model = driver.prepare(&floor_model(&[1, 3]), &PrepareOptions::default()).expect("a prepared model");
    let mut session = Session::new(driver.clone(), model, (&[12], &[12]), Mode::Sync).expect("a session");
    for mode in Mode::ALL {
        session.set_mode(mode).expect("every mode");
        (0..RUNS).for_each(|_| session.run().expect("executed"));
    }
    let expected = RUNS * Mode::ALL.len() as u64;
    // A burst over queues is open still; that of the mode before may be released a little later.
    let found = soon(&driver, "two bursts are open", |s| s["clients"][0]["bursts"] == 1);
    let client = &found["clients"][0];
    assert_eq!(client["uid"], nix::unistd::getuid().as_raw());
    assert_eq!(client["processes"], serde_json::json!([std::process::id()]));
    assert_eq!((&client["prepared_models"], &client["bursts"]), (&1.into(), &1.into()), "{client}");
    assert_eq!(client["holds"]["prepared models are alive"], 1);
    assert!(client["holds"]["connections are open"].as_u64() >= Some(1), "{client}");
    for counts in [&found["executions"], &client["executions"], &client["models"][0]] {
        assert_eq!((&counts["succeeded"], &counts["failed"]), (&expected.into(), &0.into()), "{counts}");
        assert_eq!(counts["under_way"], 0);
        assert!(counts["p50_below_us"].as_u64() <= counts["p99_below_us"].as_u64());
        let times = counts["times_below_us"].as_object().expect("buckets");
        assert_eq!(times.values().filter_map(serde_json::Value::as_u64).sum::<u64>(), expected);
    }
    drop(session);
    // Its counts outlive it.
    let found = soon(&driver, "the model is never released", |s| {
        let client = &s["clients"][0];
        client["prepared_models"] == 0 && client["holds"]["prepared models are alive"].is_null()
    });
    assert_eq!(found["clients"][0]["executions"]["succeeded"], expected);
}

#[test]
fn an_execution_is_seen_while_it_lasts() {
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let model =
        driver.prepare(&long_model(4 << 20, 100), &PrepareOptions::default()).expect("a prepared model");
    let bytes = 4 * (4 << 20);
    let (request, _output) = request(&vec![0; bytes], bytes);
    let seen = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Again where it is over before anybody has looked.
        scope.spawn(|| {
            while !seen.load(Ordering::Relaxed) {
                model.executeSynchronously(&request, false, -1, -1).expect("executed");
            }
        });
        soon(&driver, "nobody sees it", |s| {
            s["executions"]["under_way"] == 1 && quota(s, "executions wait or run") == 1
        });
        seen.store(true, Ordering::Relaxed);
    });
    soon(&driver, "it does not end", |s| s["executions"]["under_way"] == 0);
}

/// How much all clients hold of what is called so.
fn quota(status: &serde_json::Value, what: &str) -> u64 {
    let quotas = status["quotas"].as_array().expect("quotas");
    let quota = quotas.iter().find(|quota| quota["what"] == what);
    quota.and_then(|quota| quota["held"].as_u64()).expect("a quota")
}

#[test]
fn what_its_client_has_already_is_prepared_again_without_memory_for_its_weights() {
    use crate::common::caching::{execute, layer_of};
    const SIZE: i32 = 600;
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let held = || quota(&status(&driver), "bytes of private memory are held");
    let (model, input) = (layer_of(SIZE), vec![0.5; SIZE as usize]);
    let before = held();
    let first = harness.prepare(&model);
    let once = held() - before;
    assert!(once >= 4 * (SIZE * SIZE) as u64, "{once} bytes");
    let others: Vec<_> = (0..7).map(|_| harness.prepare(&model)).collect();
    let again = held() - before - once;
    assert!(again < once / 4, "{again} bytes beside {once}");
    let expected = execute(&first, &input).expect("executed");
    drop(first);
    // All of them are whole.
    others.iter().for_each(|model| assert_eq!(execute(model, &input).expect("executed"), expected));
    drop(others);
    soon(&driver, "weights outlive their models", |found| {
        quota(found, "bytes of private memory are held") <= before + once / 4
    });
}

#[test]
fn weights_stay_mapped_at_their_clients_cost_until_they_are_stored() {
    let directory = tempfile::tempdir().expect("a directory");
    let harness = Harness::with_data(Some(directory.path()));
    let driver = connect(&harness);
    // Large enough for the driver's own store.
    let (model, _memory) = crate::common::caching::layer_in_memory(300);
    let mapped = |status: &serde_json::Value| quota(status, "memories are mapped");
    let prepare = || driver.prepare(&model, &PrepareOptions::default()).expect("a prepared model");
    let prepared = prepare();
    assert_eq!(mapped(&status(&driver)), 1);
    drop(prepared);
    soon(&driver, "they outlive their model", |found| mapped(found) == 0);
    let prepared = prepare();
    let (request, _output) = request(&vec![0; 300 * 4], 300 * 4);
    prepared.executeSynchronously(&request, false, -1, -1).expect("executed");
    soon(&driver, "it is not stored", |found| found["caches"]["store"]["saves"] == 1);
    soon(&driver, "they stay mapped", |found| mapped(found) == 0);
}

#[test]
fn what_its_client_has_changed_since_it_was_compiled_is_not_stored() {
    use crate::common::caching::*;
    use nnhal::cache::Store;
    use std::os::unix::fs::FileExt;
    // Large enough for the driver's own store.
    const SIZE: i32 = 300;
    const BYTE: u64 = 2;
    let input: Vec<f32> = (0..SIZE).map(|i| i as f32 / 8.0 - 9.0).collect();
    let run = |model: &binder::Strong<dyn IPreparedModel>| execute(model, &input).expect("executed");
    let other = |model: &mut Model| model.operandValues[BYTE as usize] ^= 0x20;
    let elsewhere = Harness::with_data(None);
    let [originals, others] = [false, true].map(|changed| {
        let mut model = layer_of(SIZE);
        if changed {
            other(&mut model);
        }
        run(&elsewhere.prepare(&model))
    });
    assert_ne!(originals, others);
    let directory = tempfile::tempdir().expect("a directory");
    let harness = Harness::with_data(Some(directory.path()));
    let driver = connect(&harness);
    let (model, memory) = layer_in_memory(SIZE);
    let change = || {
        let mut byte = [0];
        memory.read_exact_at(&mut byte, BYTE).expect("read");
        memory.write_all_at(&[byte[0] ^ 0x20], BYTE).expect("written");
    };
    let store = |status: &serde_json::Value| status["caches"]["store"].clone();
    let compiled = harness.prepare(&model);
    change();
    // What the client gets of it is its own affair, but one or the other.
    let first = run(&compiled);
    assert!([&originals, &others].contains(&&first));
    soon(&driver, "nobody tries to store it", |found| {
        store(found)["failed_saves"] == serde_json::json!({"changed": 1})
    });
    assert_eq!(Store::count(directory.path()), 0);
    // It is not stored later, either, as if nothing had been.
    change();
    run(&compiled);
    drop(compiled);
    let gone = |found: &serde_json::Value| quota(found, "prepared models are alive") == 0;
    // What comes next under either name is right, and was not there.
    for (count, expected) in [(1, &originals), (2, &others)] {
        soon(&driver, "a model lives on", gone);
        assert_eq!(&run(&harness.prepare(&model)), expected);
        let found = soon(&driver, "it is not stored", |found| store(found)["saves"] == count);
        assert_eq!((&store(&found)["hits"], Store::count(directory.path())), (&(count - 1).into(), count));
        // Whoever saved it may have it still, for a moment: its client gets that one.
        soon(&driver, "it is not loaded", |_| {
            soon(&driver, "a model lives on", gone);
            assert_eq!(&run(&harness.prepare(&model)), expected);
            store(&status(&driver))["hits"] == count
        });
        change();
    }
    let found = status(&driver);
    assert_eq!(store(&found)["failed_saves"], serde_json::json!({"changed": 1}));
}

#[test]
fn caches_are_counted_by_what_became_of_them() {
    use crate::common::caching::*;
    let directory = tempfile::tempdir().expect("a directory");
    let harness = Harness::with_data(Some(directory.path()));
    let driver = connect(&harness);
    let cache = Cache::new(7);
    drop(save(driver.device(), &add(), &cache));
    assert_general_failure(driver.device(), &Cache::new(8), "nothing was saved for it");
    let files = |s: &serde_json::Value| s["caches"]["client_files"].clone();
    let found = files(&status(&driver));
    assert_eq!((&found["hits"], &found["saves"]), (&0.into(), &1.into()), "{found}");
    assert_eq!(found["misses"], serde_json::json!({"unknown": 1}));
    drop(load(driver.device(), &cache).1.expect("a hit"));
    assert_eq!(files(&status(&driver))["hits"], 1);
    // Large enough for the driver's own store: it is there once it was used.
    let prepare = || driver.prepare(&layer_of(300), &PrepareOptions::default()).expect("a prepared model");
    let bytes = 300 * 4;
    let (request, _output) = request(&vec![0; bytes], bytes);
    prepare().executeSynchronously(&request, false, -1, -1).expect("executed");
    let found = soon(&driver, "it is not stored", |s| s["caches"]["store"]["saves"] == 1);
    let store = &found["caches"]["store"];
    assert_eq!((&store["models"], &store["misses"]), (&1.into(), &serde_json::json!({"unknown": 1})));
    assert!(store["bytes"].as_u64() >= Some(300 * 300 * 4), "{store}");
    // Whoever saved it may have it still, for a moment: its client gets that one.
    soon(&driver, "it is not loaded", |_| {
        drop(prepare());
        status(&driver)["caches"]["store"]["hits"] == 1
    });
}

#[test]
fn errors_are_counted_and_tell_no_data() {
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let mut wrong = floor_model(&[1, 3]);
    wrong.main.operations[0].inputs = vec![424_242];
    wrong.extensionNameToPrefix = vec![ExtensionNameAndPrefix { name: "a secret".into(), prefix: 3 }];
    let diagnostics = driver.diagnostics().expect("an answer").expect("the extension");
    for _ in 0..100 {
        diagnostics.refusals(&wrong).expect_err("not a legal name");
        wrong.extensionNameToPrefix.clear();
        diagnostics.refusals(&wrong).expect_err("of an operand that does not exist");
    }
    let found = status(&driver);
    assert_eq!(found["errors"]["counts"], serde_json::json!({"INVALID_ARGUMENT": 200}));
    let last = found["errors"]["last"].as_array().expect("a list");
    assert_eq!(last.len(), 2, "{last:?}");
    assert_eq!((&last[0]["call"], &last[0]["count"]), (&"IDiagnostics.refusals".into(), &199.into()));
    let text = found.to_string();
    assert!(!text.contains("secret") && !text.contains("424242") && !text.contains("FLOOR"), "{text}");
}

/// The device's object, by which the binder crate serves it.
fn object(driver: &service::Driver) -> Binder<BnDevice> {
    Binder::try_from(driver.device.as_binder()).expect("of this process")
}

fn dump(driver: &service::Driver, arguments: &[&str]) -> String {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let mut bytes = Vec::new();
    object(driver).on_dump(&mut bytes, &arguments).expect("dumped");
    String::from_utf8(bytes).expect("text")
}

#[test]
fn a_dump_is_text_or_json_and_says_what_it_knows() {
    let backend = CpuBackend::new(1).expect("threads");
    let driver = service::Driver::builder(Arc::new(backend)).build().expect("a driver");
    let text = dump(&driver, &["-a"]);
    assert!(text.starts_with("driver: nnhal-") && text.contains("\nqueues:\n"), "{text}");
    let json = dump(&driver, &["--json"]);
    let parsed: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&parsed["view"], &parsed["process"]), (&"all".into(), &std::process::id().into()));
    for (arguments, known) in
        [(["--help"], "arguments: --json"), (["--frobnicate"], "\"--frobnicate\" is not known")]
    {
        let text = dump(&driver, &arguments);
        assert!(text.starts_with(known), "{text}");
    }
}

/// Waits until it is told to go on, as a pipe that nobody reads.
struct Stuck<'a>(&'a Barrier);

impl std::io::Write for Stuck<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.wait();
        self.0.wait();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_dump_that_nobody_reads_holds_up_one_thread_and_no_more() {
    let backend = CpuBackend::new(1).expect("threads");
    let driver = service::Driver::builder(Arc::new(backend)).build().expect("a driver");
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| object(&driver).on_dump(&mut Stuck(&barrier), &[]));
        barrier.wait();
        assert_eq!(object(&driver).on_dump(&mut Vec::new(), &[]), Err(StatusCode::WouldBlock));
        assert!(driver.device.getType().is_ok());
        barrier.wait();
        assert_eq!(stuck.join().expect("no panic"), Ok(()));
    });
    assert_eq!(object(&driver).on_dump(&mut Vec::new(), &[]), Ok(()));
}
