//! Models that ask for more memory than anybody has: refused, with a reason, before any of it is taken.

use crate::common::*;
use nnhal::aidl::*;

const GIB: i32 = 1 << 30;

/// `count` tensors of 1 GiB each, all filled before the first of them is used.
fn greedy_model(count: i32) -> Model {
    use OperandLifeTime as L;
    let copied = |ty, dims: &[i32], offset, length| Operand {
        location: DataLocation { poolIndex: 0, offset, length, padding: 0 },
        ..operand(ty, dims, L::CONSTANT_COPY)
    };
    let float = |dims: &[i32], lifetime| operand(OperandType::TENSOR_FLOAT32, dims, lifetime);
    let operation = |ty, inputs, output| Operation { r#type: ty, inputs, outputs: vec![output] };
    let mut main = Subgraph {
        operands: vec![
            copied(OperandType::TENSOR_INT32, &[1], 0, 4), // the length to fill
            copied(OperandType::TENSOR_INT32, &[1], 4, 4), // axis 0
            copied(OperandType::BOOL, &[], 8, 1),          // keep no dimensions
            operand(OperandType::FLOAT32, &[], L::SUBGRAPH_INPUT),
        ],
        operations: Vec::new(),
        inputIndexes: vec![3],
        outputIndexes: Vec::new(),
    };
    let (first, last) = (main.operands.len() as i32, main.operands.len() as i32 + count);
    for i in 0..count {
        main.operands.push(float(&[GIB / 4], L::TEMPORARY_VARIABLE));
        main.operations.push(operation(OperationType::FILL, vec![0, 3], first + i));
    }
    for i in 0..count {
        main.operands.push(float(&[1], L::SUBGRAPH_OUTPUT));
        main.operations.push(operation(OperationType::REDUCE_MAX, vec![first + i, 1, 2], last + i));
        main.outputIndexes.push(last + i);
    }
    let mut values = (GIB / 4).to_le_bytes().to_vec();
    values.extend([0; 5]);
    Model { main, operandValues: values, ..Default::default() }
}

#[test]
fn temporaries_of_a_hundred_gibibytes_are_refused_when_the_model_is_prepared() {
    let harness = Harness::new();
    let model = greedy_model(100);
    let supported = harness.device().getSupportedOperations(&model).expect("a valid model");
    assert!(supported.iter().all(|&supported| supported));
    let (launch, (told, prepared)) = harness.connection.launch(&model);
    launch.expect("launched");
    assert_eq!((told, prepared.is_none()), (ErrorStatus::RESOURCE_EXHAUSTED_PERSISTENT, true));
    // One of them at a time is no more than a run may take.
    assert_eq!(harness.connection.launch(&greedy_model(2)).1 .0, ErrorStatus::NONE);
}
