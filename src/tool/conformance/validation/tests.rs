//! The mutations of a model, counted by kind, and what each leaves alone.

use super::*;
use crate::aidl::{DataLocation, Operand, OperandLifeTime, OperandType, Operation, OperationType, Subgraph};
use std::collections::BTreeMap;

fn operand(ty: OperandType, dims: &[i32], lifetime: OperandLifeTime) -> Operand {
    Operand { r#type: ty, dimensions: dims.into(), lifetime, ..Default::default() }
}

/// ADD of two vectors into a temporary, and FLOOR of that.
fn add_and_floor() -> Model {
    let vector = |lifetime| operand(OperandType::TENSOR_FLOAT32, &[2], lifetime);
    let activation = Operand {
        location: DataLocation { length: 4, ..Default::default() },
        ..operand(OperandType::INT32, &[], OperandLifeTime::CONSTANT_COPY)
    };
    Model {
        main: Subgraph {
            operands: vec![
                vector(OperandLifeTime::SUBGRAPH_INPUT),
                vector(OperandLifeTime::SUBGRAPH_INPUT),
                activation,
                vector(OperandLifeTime::TEMPORARY_VARIABLE),
                vector(OperandLifeTime::SUBGRAPH_OUTPUT),
            ],
            operations: vec![
                Operation { r#type: OperationType::ADD, inputs: vec![0, 1, 2], outputs: vec![3] },
                Operation { r#type: OperationType::FLOOR, inputs: vec![3], outputs: vec![4] },
            ],
            inputIndexes: vec![0, 1],
            outputIndexes: vec![4],
        },
        operandValues: vec![0; 4],
        ..Default::default()
    }
}

/// What a mutation is about: its name without numbers.
fn kind(what: &str) -> String {
    what.split(' ').filter(|word| word.parse::<f64>().is_err()).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_kind_of_mutation_is_tried_as_often_as_it_applies() {
    let mut model = add_and_floor();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    every_mutation(&mut model, &mut |what, _, _| {
        *kinds.entry(kind(what)).or_default() += 1;
        Ok(())
    })
    .expect("nothing is refused");
    let count = |kind: &str| kinds.get(kind).copied().unwrap_or(0);
    assert_eq!(count("operation moved before what it reads"), 1);
    assert_eq!(count("operation moved behind its readers"), 1);
    assert_eq!(count("operation of type"), 4);
    assert_eq!(count("without operation"), 2);
    assert_eq!(count("operation with input out of range"), 4);
    assert_eq!(count("operation without input"), 4);
    assert_eq!(count("operation with one input more"), 2);
    assert_eq!(count("operation with output out of range"), 2);
    assert_eq!(count("operation without output"), 2);
    assert_eq!(count("output of operation led away from its readers"), 1);
    assert_eq!(count("output of operation written twice"), 2);
    assert_eq!(count("operation with one output more"), 2);
    assert_eq!(count("preference") + count("priority"), 4);
    assert_eq!(count("operand of type"), 10);
    assert_eq!(count("operand (INT32) with a dimension"), 1);
    assert_eq!(count("operand (TENSOR_FLOAT32) with scale"), 4);
    assert_eq!(count("operand (INT32) with zero point"), 1);
    assert_eq!(count("without operand"), 4);
    assert_eq!(count("operand as TENSOR_QUANT8_ASYMM"), 5);
    assert_eq!(count("operand as TENSOR_FLOAT32"), 1);
    assert_eq!(count("operation with copies of input more"), 10);
    assert_eq!(count("operation with outputs more like output"), 12);
    assert_eq!(count("operation with input of rank"), 3, "too high only: any rank above 0 is low enough");
    // Each written operand in two ways, each other one in two; and each in one way against the lists.
    let lifetimes: usize =
        kinds.iter().filter(|(kind, _)| kind.starts_with("operand of lifetime")).map(|(_, n)| n).sum();
    assert_eq!(lifetimes, 5 * 2 + 5);
}

#[test]
fn every_mutation_breaks_the_model_and_is_undone() {
    let mut model = add_and_floor();
    let whole = (model.main.clone(), model.operandValues.clone());
    let mut tried = 0;
    every_mutation(&mut model, &mut |what, model, options| {
        tried += 1;
        let defaults = PrepareOptions::default();
        let same_model = model.main == whole.0 && model.operandValues == whole.1;
        let same_options = options.preference == defaults.preference && options.priority == defaults.priority;
        assert!(same_model != same_options, "{what}: one of model and options is broken, not both");
        if !same_model {
            assert!(crate::model::Model::new(model).is_err(), "{what}: the model is valid");
        }
        Ok(())
    })
    .expect("nothing is refused");
    assert!(tried > 100, "{tried} mutations");
    assert_eq!((&model.main, &model.operandValues), (&whole.0, &whole.1));
}

#[test]
fn faults_are_counted_and_the_first_told() {
    let mut faults = Faults::default();
    faults.note("sound", Ok(())).expect("no fault");
    for i in 0..5 {
        faults.note(&format!("broken {i}"), fail("accepted")).expect("it is kept for later");
    }
    let Err(super::super::outcome::Stop::Fail(why)) = faults.verdict() else { panic!("there were faults") };
    assert_eq!(why, "5 of 6 mutations: broken 0: accepted; broken 1: accepted; broken 2: accepted");
}
