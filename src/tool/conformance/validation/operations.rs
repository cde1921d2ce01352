//! Mutations of operations: their order, types, inputs and outputs; and of what goes with a compilation.

use super::mutations::{add_scalar, add_temporary_like, consumers, Mutations};
use crate::aidl::{ExecutionPreference, OperandLifeTime, Operation, OperationType, Priority, Subgraph};
use crate::client::PrepareOptions;
use crate::ops;
use crate::tool::conformance::outcome::Step;

pub fn run(m: &mut Mutations) -> Step {
    let main = m.main();
    let consumers = consumers(&main);
    for (i, operation) in main.operations.iter().enumerate() {
        order(m, &main, &consumers, i)?;
        for code in [-1, ops::OperationType::ALL.len() as i32] {
            m.with(format!("operation {i} of type {code}"), |main| {
                main.operations[i].r#type = OperationType(code)
            })?;
        }
        m.with(format!("without operation {i}"), |main| drop(main.operations.remove(i)))?;
        inputs(m, &main, i, operation)?;
        outputs(m, &main, &consumers, i, operation)?;
    }
    compilations(m)
}

/// A reader before its writer, by either being moved.
fn order(m: &mut Mutations, main: &Subgraph, consumers: &[usize], i: usize) -> Step {
    let operation = &main.operations[i];
    let written = |&&input: &&i32| {
        let lifetime = main.operands[input as usize].lifetime;
        matches!(lifetime, OperandLifeTime::TEMPORARY_VARIABLE | OperandLifeTime::SUBGRAPH_OUTPUT)
    };
    if operation.inputs.iter().any(|input| written(&input)) {
        m.with(format!("operation {i} moved before what it reads"), |main| {
            main.operations[..=i].rotate_right(1)
        })?;
    }
    if operation.outputs.iter().any(|&output| consumers[output as usize] > 0) {
        m.with(format!("operation {i} moved behind its readers"), |main| {
            main.operations[i..].rotate_left(1)
        })?;
    }
    Ok(())
}

fn inputs(m: &mut Mutations, main: &Subgraph, i: usize, operation: &Operation) -> Step {
    let beyond = main.operands.len() as i32;
    for n in 0..operation.inputs.len() {
        m.with(format!("operation {i} with input {n} out of range"), |main| {
            main.operations[i].inputs[n] = beyond
        })?;
        if !may_lack(operation, n) {
            m.with(format!("operation {i} without input {n}"), |main| {
                main.operations[i].inputs.remove(n);
            })?;
        }
    }
    if !may_have_another(operation) {
        m.with(format!("operation {i} with one input more"), |main| {
            let index = add_scalar(main, OperandLifeTime::SUBGRAPH_INPUT);
            main.operations[i].inputs.push(index);
            main.inputIndexes.push(index);
        })?;
    }
    Ok(())
}

fn outputs(m: &mut Mutations, main: &Subgraph, consumers: &[usize], i: usize, operation: &Operation) -> Step {
    let beyond = main.operands.len() as i32;
    for (n, &output) in operation.outputs.iter().enumerate() {
        m.with(format!("operation {i} with output {n} out of range"), |main| {
            main.operations[i].outputs[n] = beyond
        })?;
        m.with(format!("operation {i} without output {n}"), |main| {
            main.operations[i].outputs.remove(n);
        })?;
        if consumers[output as usize] > 0 {
            m.with(format!("output {n} of operation {i} led away from its readers"), |main| {
                main.operations[i].outputs[n] = add_temporary_like(main, output)
            })?;
        }
        m.with(format!("output {n} of operation {i} written twice"), |main| {
            let mut copy = main.operations[i].clone();
            for (_, index) in copy.outputs.iter_mut().enumerate().filter(|(other, _)| *other != n) {
                *index = add_temporary_like(main, *index);
            }
            main.operations.push(copy);
        })?;
    }
    m.with(format!("operation {i} with one output more"), |main| {
        let index = add_scalar(main, OperandLifeTime::SUBGRAPH_OUTPUT);
        main.operations[i].outputs.push(index);
        main.outputIndexes.push(index);
    })
}

/// Preferences and priorities that there are not.
fn compilations(m: &mut Mutations) -> Step {
    let bounds = [ExecutionPreference::LOW_POWER.0 - 1, ExecutionPreference::SUSTAINED_SPEED.0 + 1];
    for code in bounds {
        let options = PrepareOptions { preference: ExecutionPreference(code), ..Default::default() };
        m.show(format!("preference {code}"), options, |_| ())?;
    }
    for code in [Priority::LOW.0 - 1, Priority::HIGH.0 + 1] {
        let options = PrepareOptions { priority: Priority(code), ..Default::default() };
        m.show(format!("priority {code}"), options, |_| ())?;
    }
    Ok(())
}

/// Whether the operation may be valid without this input: it is optional, or one of many.
fn may_lack(operation: &Operation, input: usize) -> bool {
    let count = operation.inputs.len();
    match operation.r#type {
        OperationType::CONCATENATION => count > 2 && input != count - 1,
        OperationType::PACK => count > 2 && input != 0,
        OperationType::DEPTHWISE_CONV_2D => matches!((count, input), (12, 11) | (9, 8)),
        OperationType::CONV_2D
        | OperationType::AVERAGE_POOL_2D
        | OperationType::MAX_POOL_2D
        | OperationType::L2_POOL_2D => matches!((count, input), (11, 10) | (8, 7)),
        OperationType::RESIZE_BILINEAR => count >= 4 && input >= 3,
        OperationType::RESIZE_NEAREST_NEIGHBOR => count >= 5 && input >= 3,
        OperationType::SPACE_TO_DEPTH
        | OperationType::DEPTH_TO_SPACE
        | OperationType::BATCH_TO_SPACE_ND
        | OperationType::SOFTMAX => (count, input) == (3, 2),
        OperationType::SPACE_TO_BATCH_ND => (count, input) == (4, 3),
        OperationType::L2_NORMALIZATION => (count, input) == (2, 1),
        OperationType::LOCAL_RESPONSE_NORMALIZATION => (count, input) == (6, 5),
        _ => false,
    }
}

/// Whether the operation may be valid with an INT32 scalar more.
fn may_have_another(operation: &Operation) -> bool {
    let count = operation.inputs.len();
    match operation.r#type {
        OperationType::L2_NORMALIZATION => count == 1,
        OperationType::LOCAL_RESPONSE_NORMALIZATION => count == 5,
        OperationType::SOFTMAX => count == 2,
        OperationType::RESIZE_BILINEAR | OperationType::RESIZE_NEAREST_NEIGHBOR => count < 6,
        _ => false,
    }
}
