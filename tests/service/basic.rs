//! What the device says of itself, and how compilations begin and end.

use crate::common::*;
use binder::{BinderResult, Interface, Strong};
use nnhal::aidl::*;

#[test]
fn the_device_describes_itself() {
    let harness = Harness::new();
    let device = harness.device();
    device.as_binder().ping_binder().expect("alive");
    assert_eq!(device.getInterfaceVersion().expect("an answer"), INTERFACE_VERSION);
    assert_eq!(device.getInterfaceHash().expect("an answer"), INTERFACE_HASH);
    assert_eq!(device.getType().expect("an answer"), DeviceType::CPU);
    let extensions = device.getSupportedExtensions().expect("an answer");
    let names: Vec<_> = extensions.iter().map(|e| (e.name.as_str(), e.operandTypes.len())).collect();
    assert_eq!(names, [("vendor.nnhal.hints", 0)]);
    let version = device.getVersionString().expect("an answer");
    assert!(version.starts_with("nnhal-") && !version.contains("unknown"), "{version}");
    let model = harness.prepare(&floor_model(&[2]));
    assert_eq!(model.getInterfaceHash().expect("an answer"), INTERFACE_HASH);
}

#[test]
fn capabilities_are_sorted_and_above_zero() {
    let harness = Harness::new();
    let capabilities = harness.device().getCapabilities().expect("an answer");
    let types: Vec<i32> = capabilities.operandPerformance.iter().map(|p| p.r#type.0).collect();
    assert!(types.is_sorted() && !types.contains(&OperandType::SUBGRAPH.0), "{types:?}");
    assert_eq!(types.len(), OperandType::enum_values().len() - 1);
    let of_type = |ty| {
        let all = &capabilities.operandPerformance;
        all.iter().find(|performance| performance.r#type == ty).expect("every type").info.clone()
    };
    let mut all: Vec<_> = capabilities.operandPerformance.iter().map(|p| p.info.clone()).collect();
    all.push(capabilities.relaxedFloat32toFloat16PerformanceScalar.clone());
    all.push(capabilities.relaxedFloat32toFloat16PerformanceTensor.clone());
    all.push(capabilities.ifPerformance.clone());
    all.push(capabilities.whilePerformance.clone());
    for info in &all {
        assert!(info.execTime > 0.0 && info.execTime.is_finite(), "{info:?}");
        assert!(info.powerUsage > 0.0 && info.powerUsage.is_finite(), "{info:?}");
    }
    // The runtime chooses a driver that says less than 1: we say so of types that have kernels, and of no others.
    let time = |ty: OperandType| of_type(ty).execTime;
    for ty in [OperandType::TENSOR_FLOAT32, OperandType::TENSOR_QUANT8_ASYMM_SIGNED] {
        assert!(time(ty) < 1.0, "the runtime would never choose us for {ty:?}");
    }
    assert_eq!(time(OperandType::TENSOR_QUANT16_SYMM), 1.0);
}

/// Three ADDs, each of which needs what another gives.
fn cycle() -> Model {
    let float = |lifetime| operand(OperandType::TENSOR_FLOAT32, &[1], lifetime);
    let add = |inputs: [i32; 2], output| Operation {
        r#type: OperationType::ADD,
        inputs: vec![inputs[0], inputs[1], 2],
        outputs: vec![output],
    };
    use OperandLifeTime as L;
    Model {
        main: Subgraph {
            operands: vec![
                float(L::SUBGRAPH_INPUT),
                float(L::SUBGRAPH_INPUT),
                operand(OperandType::INT32, &[], L::SUBGRAPH_INPUT),
                float(L::TEMPORARY_VARIABLE),
                float(L::TEMPORARY_VARIABLE),
                float(L::SUBGRAPH_OUTPUT),
            ],
            operations: vec![add([0, 4], 3), add([1, 3], 4), add([4, 0], 5)],
            inputIndexes: vec![0, 1, 2],
            outputIndexes: vec![5],
        },
        ..Default::default()
    }
}

#[test]
fn an_invalid_model_is_refused_in_every_way() {
    let harness = Harness::new();
    let answer = harness.device().getSupportedOperations(&cycle());
    assert_refused(answer, ErrorStatus::INVALID_ARGUMENT, "before it is written");
    let (launch, (told, model)) = harness.connection.launch(&cycle());
    assert_refused(launch, ErrorStatus::INVALID_ARGUMENT, "main subgraph");
    assert_eq!(told, ErrorStatus::INVALID_ARGUMENT);
    assert!(model.is_none());
    let (launch, told, model) = with_config(&harness, &cycle(), &PrepareModelConfig::default());
    assert_eq!((status(&launch), told), (ErrorStatus::INVALID_ARGUMENT, ErrorStatus::INVALID_ARGUMENT));
    assert!(model.is_none());
}

type Told = (BinderResult<()>, ErrorStatus, Option<Strong<dyn IPreparedModel>>);

fn with_config(harness: &Harness, model: &Model, config: &PrepareModelConfig) -> Told {
    let (callback, verdicts) = callback();
    let launch = harness.device().prepareModelWithConfig(model, config, &callback);
    let (told, model) = verdicts.recv_timeout(PATIENCE).expect("told");
    assert!(verdicts.try_recv().is_err(), "told once");
    (launch, told, model)
}

fn config() -> PrepareModelConfig {
    PrepareModelConfig { priority: Priority::MEDIUM, deadlineNs: -1, ..Default::default() }
}

#[test]
fn what_is_valid_but_not_supported_is_told_by_the_callback() {
    let harness = Harness::new();
    let mut model = floor_model(&[2]);
    model.extensionNameToPrefix = vec![ExtensionNameAndPrefix { name: "com.example.nn".into(), prefix: 5 }];
    model.main.operations[0].r#type = OperationType(5 << 16 | 1);
    assert_eq!(harness.device().getSupportedOperations(&model).expect("valid"), [false]);
    let (launch, (told, prepared)) = harness.connection.launch(&model);
    launch.expect("launched");
    assert_eq!(told, ErrorStatus::GENERAL_FAILURE);
    assert!(prepared.is_none());
    assert_eq!(harness.device().getSupportedOperations(&floor_model(&[2])).expect("valid"), [true]);
}

#[test]
fn terms_of_a_compilation_are_checked() {
    let harness = Harness::new();
    let model = floor_model(&[2]);
    let hint = |token| TokenValuePair { token, value: vec![1] };
    type Change = fn(&mut PrepareModelConfig);
    let bad: [Change; 7] = [
        |c| c.preference = ExecutionPreference(-1),
        |c| c.preference = ExecutionPreference(3),
        |c| c.priority = Priority(-1),
        |c| c.priority = Priority(3),
        |c| c.deadlineNs = -2,
        |c| c.deadlineNs = i64::MIN,
        |c| c.extensionNameToPrefix = vec![ExtensionNameAndPrefix { name: "x".into(), prefix: 1 }],
    ];
    for (i, change) in bad.iter().enumerate() {
        let mut config = config();
        change(&mut config);
        let (launch, told, prepared) = with_config(&harness, &model, &config);
        assert_eq!(
            (status(&launch), told),
            (ErrorStatus::INVALID_ARGUMENT, ErrorStatus::INVALID_ARGUMENT),
            "{i}"
        );
        assert!(prepared.is_none());
    }
    let twice = PrepareModelConfig { compilationHints: vec![hint(7), hint(7)], ..config() };
    let (launch, told, _) = with_config(&harness, &model, &twice);
    assert_refused(launch, ErrorStatus::INVALID_ARGUMENT, "hint 7");
    assert_eq!(told, ErrorStatus::INVALID_ARGUMENT);
    let unknown = PrepareModelConfig { compilationHints: vec![hint(7), hint(0x10007)], ..config() };
    assert_eq!(with_config(&harness, &model, &unknown).1, ErrorStatus::NONE);
    for priority in Priority::enum_values() {
        for preference in ExecutionPreference::enum_values() {
            let config = PrepareModelConfig { priority, preference, ..config() };
            assert_eq!(with_config(&harness, &model, &config).1, ErrorStatus::NONE);
        }
    }
}

#[test]
fn deadlines_of_a_compilation_hold() {
    let harness = Harness::new();
    let now = nnhal::backend::boottime_ns() as i64;
    let deadlines =
        [(0, true, false), (now, true, false), (now + 5_000_000, true, true), (i64::MAX, false, true)];
    // The second takes so long to check that the deadline is looked at meanwhile.
    let models = [floor_model(&[2]), long_model(2, 20_000)];
    for (model, (deadline, may_miss, may_succeed)) in
        models.iter().flat_map(|model| deadlines.map(|deadline| (model, deadline)))
    {
        let config = PrepareModelConfig { deadlineNs: deadline, ..config() };
        let (launch, told, prepared) = with_config(&harness, model, &config);
        launch.expect("launched all the same");
        let missed =
            [ErrorStatus::MISSED_DEADLINE_TRANSIENT, ErrorStatus::MISSED_DEADLINE_PERSISTENT].contains(&told);
        assert!(missed && may_miss || told == ErrorStatus::NONE && may_succeed, "{deadline}: {told:?}");
        assert_eq!(prepared.is_some(), told == ErrorStatus::NONE);
    }
}
