//! More operands than an operation takes, of the types that it already takes: what CTS tries beyond VTS.

use super::mutations::{add_output_like, Mutations};
use crate::aidl::OperationType;
use crate::tool::conformance::outcome::Step;

/// So many copies of the first input are appended, at most.
const INPUT_COPIES: usize = 5;
/// An LSTM has optional inputs of its first input's type further on.
const LSTM_INPUT_COPIES: usize = 3;
/// So many outputs like the first are appended, at most.
const OUTPUT_COPIES: usize = 6;

pub fn run(m: &mut Mutations) -> Step {
    let main = m.main();
    for (i, operation) in main.operations.iter().enumerate() {
        if let Some(&first) = operation.inputs.first() {
            for count in 1..=input_copies(operation.r#type) {
                m.with(format!("operation {i} with {count} copies of input 0 more"), |main| {
                    main.operations[i].inputs.extend(std::iter::repeat_n(first, count))
                })?;
            }
        }
        if let Some(&first) = operation.outputs.first() {
            for count in 1..=output_copies(operation.r#type) {
                m.with(format!("operation {i} with {count} outputs more like output 0"), |main| {
                    for _ in 0..count {
                        let output = add_output_like(main, first);
                        main.operations[i].outputs.push(output);
                    }
                })?;
            }
        }
    }
    Ok(())
}

fn input_copies(operation: OperationType) -> usize {
    match operation {
        // No signature fixes their inputs.
        OperationType::IF | OperationType::WHILE => 0,
        OperationType::LSTM | OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM => LSTM_INPUT_COPIES,
        _ => INPUT_COPIES,
    }
}

fn output_copies(operation: OperationType) -> usize {
    match operation {
        // These have optional outputs of the first one's type, or any number of them.
        OperationType::SPLIT
        | OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM
        | OperationType::UNIDIRECTIONAL_SEQUENCE_RNN
        | OperationType::BIDIRECTIONAL_SEQUENCE_LSTM
        | OperationType::BIDIRECTIONAL_SEQUENCE_RNN => 0,
        _ => OUTPUT_COPIES,
    }
}
