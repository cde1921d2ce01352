//! What the driver tells a client of a model that it has prepared: what runs it, and what its executions do when.

use crate::common::*;
use nnhal::aidl::{Model, OperandLifeTime, Operation, OperationType};
use nnhal::backend::{Activity, Description, KernelName, Noted, ValuePlace};
use nnhal::client::{
    Address, ConnectOptions, Driver, Mode, PrepareOptions, PreparedModel, Recorder, Session,
};
use nnhal::ops::OperationType as Op;
use nnhal::tensor::{OperandType as Type, TensorInfo};
use std::sync::Arc;

const ENOUGH: usize = 1 << 20;

fn connect(harness: &Harness) -> Arc<Driver> {
    let address: Address = harness.endpoint().to_string().parse().expect("an address");
    let options = ConnectOptions { connections: 2, timeout: Some(PATIENCE) };
    Arc::new(Driver::connect(&address, &options).expect("a driver"))
}

fn prepare(driver: &Driver, model: &Model) -> PreparedModel {
    driver.prepare(model, &PrepareOptions::default()).expect("a prepared model")
}

fn describe(driver: &Driver, model: &PreparedModel) -> Option<Description> {
    let diagnostics = driver.diagnostics().expect("an answer").expect("the extension");
    diagnostics.describe(model).expect("an answer")
}

fn record(driver: &Driver, model: &PreparedModel) -> Recorder {
    driver.diagnostics().expect("an answer").expect("the extension").record(model).expect("a recorder")
}

/// FULLY_CONNECTED, FLOOR, RESHAPE and ADD, each on the result of the one before: four rows of five. The second goes on with what
/// the first makes.
fn chain() -> Model {
    let mut builder = nnhal::client::builder::Builder::default();
    let floats = |dims: &[u32]| TensorInfo::new(Type::TENSOR_FLOAT32, dims);
    let (weights, bias) = (vec![1f32; 5 * 18], vec![0.5f32; 5]);
    let input = builder.input(floats(&[4, 18]));
    let weights = builder.constant(floats(&[5, 18]), bytemuck::cast_slice::<_, u8>(&weights));
    let bias = builder.constant(floats(&[5]), bytemuck::cast_slice::<_, u8>(&bias));
    let (none, shape) = (builder.int(0), builder.ints(&[2], &[2, 10]));
    let [layer, floor] = [(); 2].map(|()| builder.temporary(floats(&[4, 5])));
    let (reshaped, output) = (builder.temporary(floats(&[2, 10])), builder.output(floats(&[2, 10])));
    builder.operation(Op::FULLY_CONNECTED, &[input, weights, bias, none], &[layer]);
    builder.operation(Op::FLOOR, &[layer], &[floor]);
    builder.operation(Op::RESHAPE, &[floor, shape], &[reshaped]);
    builder.operation(Op::ADD, &[reshaped, reshaped, none], &[output]);
    builder.finish(vec![input], vec![output]).expect("a model")
}

/// Its operations, as they are done together.
const STEPS: [&[usize]; 3] = [&[0, 1], &[2], &[3]];

const BYTES: ([usize; 1], [usize; 1]) = ([4 * 18 * 4], [4 * 5 * 4]);

fn session(driver: &Arc<Driver>, model: PreparedModel, mode: Mode) -> Session {
    Session::new(driver.clone(), model, (&BYTES.0, &BYTES.1), mode).expect("a session")
}

#[test]
fn a_model_tells_what_runs_it_and_where_its_values_lie() {
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let model = chain();
    let told = describe(&driver, &prepare(&driver, &model)).expect("a description");
    let [main] = &told.subgraphs[..] else { panic!("{told:?}") };
    let [layer, reshape, add] = &main.steps[..] else { panic!("{main:?}") };
    assert_eq!(main.steps.iter().map(|step| &step.operations[..]).collect::<Vec<_>>(), STEPS);
    let is_fast = |kernel: &KernelName, kind: &str| match kernel {
        KernelName::Fast(name) => name.starts_with(kind),
        _ => false,
    };
    assert!(is_fast(&layer.kernel, "gemm") && is_fast(&add.kernel, "elementwise"), "{layer:?} {add:?}");
    assert_eq!((&reshape.kernel, reshape.bytes), (&KernelName::Nothing, Some(0)));
    assert!(
        matches!(&layer.kernel, KernelName::Fast(name) if name.contains(", then elementwise")),
        "{layer:?}"
    );
    assert_eq!((layer.multiply_adds, add.multiply_adds), (Some(4 * 5 * 18), None));
    let (weights, bias, activation) = (5 * 18 * 4, 5 * 4, 4);
    let bytes = (BYTES.0[0] + weights + bias + activation + BYTES.1[0]) as u64;
    assert_eq!(layer.bytes, Some(bytes), "what it makes is written once");
    let operations = &model.main.operations;
    let place = |v: i32| &main.places[v as usize];
    assert_eq!(main.places.len(), model.main.operands.len());
    let (floored, reshaped) = (operations[1].outputs[0], operations[2].outputs[0]);
    assert_eq!(place(floored), place(reshaped), "the same bytes");
    let ValuePlace::Arena(part) = place(floored) else { panic!("{:?}", place(floored)) };
    assert!(part.end - part.start == 80 && part.end <= main.arena, "{part:?} of {}", main.arena);
    let mut ends = model.main.inputIndexes.iter().chain(&model.main.outputIndexes);
    assert!(ends.all(|&v| matches!(place(v), ValuePlace::Client(_))), "{:?}", main.places);
    assert_eq!(place(operations[0].inputs[1]), &ValuePlace::Constant(360), "small ones are kept as they are");
}

#[test]
fn a_model_that_waits_for_its_first_execution_has_nothing_to_tell_before() {
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let options = PrepareOptions { just_in_time: true, ..Default::default() };
    let model = driver.prepare(&chain(), &options).expect("a prepared model");
    assert_eq!(describe(&driver, &model), None);
    session(&driver, model.clone(), Mode::Sync).run().expect("executed");
    assert_eq!(describe(&driver, &model).expect("a description").subgraphs[0].steps.len(), STEPS.len());
}

/// That `noted` has so many whole executions of the chain and no more.
#[track_caller]
fn assert_runs(noted: &Noted, runs: usize, why: &str) {
    let of = |is: fn(&Activity) -> bool| noted.spans.iter().filter(|span| is(&span.activity)).count();
    assert_eq!(noted.missed, 0, "{why}");
    assert_eq!(of(|activity| matches!(activity, Activity::Run)), runs, "{why}: {noted:?}");
    let operations = noted.spans.iter().filter_map(|span| match span.activity {
        Activity::Operation(id) => Some((id.subgraph, id.index)),
        _ => None,
    });
    assert_eq!(operations.collect::<Vec<_>>(), STEPS.map(|step| (0, step[0] as u32)).repeat(runs), "{why}");
}

#[test]
fn executions_are_recorded_whichever_way_they_come_and_only_while_somebody_asks() {
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let model = prepare(&driver, &chain());
    let mut session = session(&driver, model.clone(), Mode::Sync);
    session.run().expect("executed before anybody asks");
    let recorder = record(&driver, &model);
    for mode in Mode::ALL {
        session.set_mode(mode).expect("every mode");
        session.run().expect("executed");
        let noted = recorder.take(&driver, ENOUGH).expect("an answer");
        assert_runs(&noted, 1, mode.name());
        let whole = noted.spans.iter().find(|span| span.activity == Activity::Run).expect("the run");
        let inside = |(start, end): (u64, u64)| whole.start <= start && start <= end && end <= whole.end;
        assert!(noted.spans.iter().all(|span| inside((span.start, span.end))), "{noted:?}");
    }
    // One at a time: the last.
    let second = record(&driver, &model);
    session.run().expect("executed");
    assert_runs(&recorder.take(&driver, ENOUGH).expect("an answer"), 0, "another has it");
    assert_runs(&second.take(&driver, ENOUGH).expect("an answer"), 1, "the second");
    // Another model is none of its business.
    let other = prepare(&driver, &chain());
    self::session(&driver, other, Mode::Sync).run().expect("executed");
    assert_runs(&second.take(&driver, ENOUGH).expect("an answer"), 0, "another model");
}

#[test]
fn no_more_is_kept_than_was_said_and_it_comes_in_parts() {
    const KEPT: usize = 65_536;
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let mut model = Model::default();
    // So many operations that a few executions fill it.
    let count = 5000;
    for i in 0..count {
        for lifetime in [OperandLifeTime::SUBGRAPH_INPUT, OperandLifeTime::SUBGRAPH_OUTPUT] {
            model.main.operands.push(operand(nnhal::aidl::OperandType::TENSOR_FLOAT32, &[1], lifetime));
        }
        let (inputs, outputs) = (vec![2 * i], vec![2 * i + 1]);
        model.main.operations.push(Operation { r#type: OperationType::FLOOR, inputs, outputs });
        model.main.inputIndexes.push(2 * i);
        model.main.outputIndexes.push(2 * i + 1);
    }
    let prepared = prepare(&driver, &model);
    assert_eq!(describe(&driver, &prepared).expect("a description").subgraphs[0].steps.len(), count as usize);
    let recorder = record(&driver, &prepared);
    let sizes = vec![4; count as usize];
    let mut session =
        Session::new(driver.clone(), prepared, (&sizes, &sizes), Mode::Sync).expect("a session");
    let runs = 14;
    (0..runs).for_each(|_| session.run().expect("executed"));
    let part = recorder.take(&driver, 1).expect("an answer");
    assert!(part.spans.len() < KEPT / 4, "{}", part.spans.len());
    let rest = recorder.take(&driver, ENOUGH).expect("an answer");
    assert_eq!(part.spans.len() + rest.spans.len(), KEPT);
    assert_eq!(part.missed + rest.missed, (runs * (count as u64 + 1)) - KEPT as u64);
    assert!(part.spans.iter().chain(&rest.spans).is_sorted_by_key(|span| span.end));
}

#[test]
fn recorders_are_on_their_clients_account_and_go_with_it() {
    const HELD: &str = "bytes of private memory are held";
    let harness = Harness::with_data(None);
    let driver = connect(&harness);
    let model = prepare(&driver, &chain());
    let diagnostics = driver.diagnostics().expect("an answer").expect("the extension");
    let held = || {
        let status: serde_json::Value =
            serde_json::from_str(&diagnostics.status().expect("a status")).expect("JSON");
        status["clients"][0]["holds"][HELD].as_u64().unwrap_or(0)
    };
    let before = held();
    let recorders: Vec<_> = (0..20).map(|_| diagnostics.record(&model).expect("a recorder")).collect();
    assert!(held() >= before + 20 * (1 << 20), "{} after {before}", held());
    drop(recorders);
    let start = std::time::Instant::now();
    // Releases of a client take their time, and other tests of this process hold some as well.
    while held() >= before + 20 * (1 << 20) {
        assert!(start.elapsed() < PATIENCE, "{} after {before}", held());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
