//! A model that loops for as long as its request says.

use super::operand;
use nnhal::aidl::*;

/// WHILE the first input, one bool, holds: the second, one float, is floored. The bool never changes, so that the loop
/// goes on for ever or does not begin.
pub fn loop_model() -> Model {
    let state = |condition, value| {
        vec![
            operand(OperandType::TENSOR_BOOL8, &[1], condition),
            operand(OperandType::TENSOR_FLOAT32, &[1], value),
        ]
    };
    let (input, output) = (OperandLifeTime::SUBGRAPH_INPUT, OperandLifeTime::SUBGRAPH_OUTPUT);
    let operation = |ty, inputs: &[i32], outputs: &[i32]| Operation {
        r#type: ty,
        inputs: inputs.to_vec(),
        outputs: outputs.to_vec(),
    };
    let and = |to| operation(OperationType::LOGICAL_AND, &[0, 0], &[to]);
    let condition = Subgraph {
        operands: [state(input, input), state(output, output)[..1].to_vec()].concat(),
        operations: vec![and(2)],
        inputIndexes: vec![0, 1],
        outputIndexes: vec![2],
    };
    let body = Subgraph {
        operands: [state(input, input), state(output, output)].concat(),
        operations: vec![and(2), operation(OperationType::FLOOR, &[1], &[3])],
        inputIndexes: vec![0, 1],
        outputIndexes: vec![2, 3],
    };
    let subgraph = |index| Operand {
        location: DataLocation { offset: index, ..Default::default() },
        ..operand(OperandType::SUBGRAPH, &[], OperandLifeTime::SUBGRAPH)
    };
    let main = Subgraph {
        operands: [
            state(input, input),
            vec![subgraph(0), subgraph(1)],
            state(OperandLifeTime::TEMPORARY_VARIABLE, output),
        ]
        .concat(),
        operations: vec![operation(OperationType::WHILE, &[2, 3, 0, 1], &[4, 5])],
        inputIndexes: vec![0, 1],
        outputIndexes: vec![5],
    };
    Model { main, referenced: vec![condition, body], ..Default::default() }
}
