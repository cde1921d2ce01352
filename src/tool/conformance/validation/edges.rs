//! What CTS breaks beyond VTS: more operands of the types that the operation already takes, and ranks beyond the highest.

use super::mutations::Mutations;
use crate::aidl::OperationType;
use crate::tool::conformance::outcome::Step;

/// So many copies of the first input are appended, at most.
const COPIES: usize = 5;
/// An LSTM has optional inputs of its first input's type further on.
const LSTM_COPIES: usize = 3;

pub fn run(m: &mut Mutations) -> Step {
    let main = m.main();
    for (i, operation) in main.operations.iter().enumerate() {
        // Not those whose inputs no signature fixes.
        let copies = match operation.r#type {
            OperationType::IF | OperationType::WHILE => 0,
            OperationType::LSTM | OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM => LSTM_COPIES,
            _ => COPIES,
        };
        let Some(&first) = operation.inputs.first() else { continue };
        for count in 1..=copies {
            m.with(format!("operation {i} with {count} copies of input 0 more"), |main| {
                main.operations[i].inputs.extend(std::iter::repeat_n(first, count))
            })?;
        }
        if let Some(&output) = operation.outputs.first() {
            m.with(format!("operation {i} with output 0 twice"), |main| {
                main.operations[i].outputs.push(output)
            })?;
        }
        // One dimension more than allowed, of 1 each, so that a constant's length is right still.
        if let Some(rank) = highest_rank(operation.r#type) {
            m.with(format!("operation {i} with an input of rank {}", rank + 1), |main| {
                main.operands[first as usize].dimensions.resize(rank + 1, 1)
            })?;
        }
    }
    Ok(())
}

/// Highest rank of the first input, where there is a limit to exceed. What is a tensor of any rank to CTS is not listed.
fn highest_rank(operation: OperationType) -> Option<usize> {
    match operation {
        OperationType::CONV_2D
        | OperationType::CHANNEL_SHUFFLE
        | OperationType::CONCATENATION
        | OperationType::DEQUANTIZE
        | OperationType::FLOOR
        | OperationType::FULLY_CONNECTED
        | OperationType::L2_NORMALIZATION
        | OperationType::LOCAL_RESPONSE_NORMALIZATION
        | OperationType::LOGISTIC
        | OperationType::MEAN
        | OperationType::PAD
        | OperationType::PAD_V2
        | OperationType::REDUCE_ALL
        | OperationType::REDUCE_ANY
        | OperationType::REDUCE_MAX
        | OperationType::REDUCE_MIN
        | OperationType::REDUCE_PROD
        | OperationType::REDUCE_SUM
        | OperationType::RELU
        | OperationType::RELU1
        | OperationType::RELU6
        | OperationType::RESHAPE
        | OperationType::SOFTMAX
        | OperationType::SQUEEZE
        | OperationType::STRIDED_SLICE
        | OperationType::TANH
        | OperationType::TOPK_V2
        | OperationType::TRANSPOSE => Some(4),
        _ => None,
    }
}
