//! Mutations of ranks: inputs of one dimension more or less than the interface lets an operation have.

use super::mutations::{consumers, Mutations};
use crate::aidl::{Operation, OperationType, Subgraph};
use crate::tool::conformance::outcome::Step;

pub fn run(m: &mut Mutations) -> Step {
    let main = m.main();
    for (i, operation) in main.operations.iter().enumerate() {
        for (n, &input) in operation.inputs.iter().enumerate() {
            let Some((least, most)) = ranks(operation, n) else { continue };
            let input = input as usize;
            // Its rank is unknown, so any rank may be right.
            if main.operands[input].dimensions.is_empty() {
                continue;
            }
            m.with(format!("operation {i} with input {n} of rank {}", most + 1), |main| {
                raise(&mut main.operands[input].dimensions, most + 1)
            })?;
            if least > 1 {
                m.with(format!("operation {i} with input {n} of rank {}", least - 1), |main| {
                    lower(&mut main.operands[input].dimensions, least - 1)
                })?;
            }
        }
        if operation.r#type == OperationType::PACK || operation.r#type == OperationType::REVERSE {
            in_step(m, &main, i, operation)?;
        }
    }
    Ok(())
}

/// Each tensor of an operation whose operands' ranks depend on each other.
fn in_step(m: &mut Mutations, main: &Subgraph, i: usize, operation: &Operation) -> Step {
    let consumers = consumers(main);
    for &operand in operation.inputs.iter().chain(&operation.outputs) {
        let operand = operand as usize;
        let rank = main.operands[operand].dimensions.len();
        // One that is read several times changes in all places at once, which may be valid again.
        if rank == 0 || consumers[operand] > 1 {
            continue;
        }
        m.with(format!("operation {i} with operand {operand} of a rank too high"), |main| {
            raise(&mut main.operands[operand].dimensions, rank + 1)
        })?;
        if rank > 1 {
            m.with(format!("operation {i} with operand {operand} of a rank too low"), |main| {
                lower(&mut main.operands[operand].dimensions, rank - 1)
            })?;
        }
    }
    Ok(())
}

/// Appends dimensions of 1, so that a constant's length is right still.
fn raise(dimensions: &mut Vec<i32>, rank: usize) {
    dimensions.resize(rank.max(dimensions.len()), 1);
}

/// Makes one of the last dimensions, for the same reason.
fn lower(dimensions: &mut Vec<i32>, rank: usize) {
    if let Some(merged) = dimensions.len().checked_sub(rank).filter(|&merged| merged > 0 && rank > 0) {
        let rest = dimensions.split_off(dimensions.len() - merged);
        dimensions[rank - 1] *= rest.iter().product::<i32>();
    }
}

/// Least and highest rank of an input, where the interface fixes them and drivers are held to it before they run
/// anything: other inputs of a rank that cannot be may be refused as late as at execution.
fn ranks(operation: &Operation, input: usize) -> Option<(usize, usize)> {
    let last = operation.inputs.len() - 1;
    match (operation.r#type, input) {
        (OperationType::CONV_2D, 0 | 1) => Some((4, 4)),
        (OperationType::FULLY_CONNECTED, 0) => Some((2, 4)),
        (OperationType::FULLY_CONNECTED, 1) => Some((2, 2)),
        (OperationType::FULLY_CONNECTED, 2) => Some((1, 1)),
        (OperationType::MIRROR_PAD, 1) => Some((2, 2)),
        (OperationType::REVERSE, 1) => Some((1, 1)),
        (OperationType::CONCATENATION, n) if n < last => Some((1, 4)),
        (OperationType::ADD | OperationType::DIV | OperationType::MUL | OperationType::SUB, 0 | 1) => {
            Some((1, 4))
        }
        (
            OperationType::CHANNEL_SHUFFLE
            | OperationType::DEQUANTIZE
            | OperationType::FLOOR
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
            | OperationType::TRANSPOSE,
            0,
        ) => Some((1, 4)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_elements_stays() {
        let changed = |change: fn(&mut Vec<i32>, usize), rank| {
            let mut dimensions = vec![2, 3, 4];
            change(&mut dimensions, rank);
            dimensions
        };
        assert_eq!(changed(raise, 5), [2, 3, 4, 1, 1]);
        assert_eq!(changed(raise, 2), [2, 3, 4], "raised to less");
        assert_eq!(changed(lower, 2), [2, 12]);
        assert_eq!(changed(lower, 1), [24]);
        assert_eq!(changed(lower, 3), [2, 3, 4]);
    }
}
