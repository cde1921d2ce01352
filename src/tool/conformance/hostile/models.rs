//! Models, requests and memory of the hostile cases.

use crate::aidl::*;
use crate::client::shared::Shared;
use binder::ParcelFileDescriptor;
use nix::sys::memfd::{memfd_create, MFdFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub use crate::aidl::OperandLifeTime as Life;

pub fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub fn ints(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub fn operand(ty: OperandType, dims: &[i32], lifetime: Life) -> Operand {
    Operand { r#type: ty, dimensions: dims.to_vec(), lifetime, ..Default::default() }
}

pub fn float(dims: &[i32], lifetime: Life) -> Operand {
    operand(OperandType::TENSOR_FLOAT32, dims, lifetime)
}

/// A model of one operation over all operands in order, the last of which is its output. Constants lie in `values`.
pub fn single(ty: OperationType, operands: Vec<Operand>, values: Vec<u8>) -> Model {
    let last = operands.len() as i32 - 1;
    let inputs = (0..last).filter(|&i| operands[i as usize].lifetime == Life::SUBGRAPH_INPUT).collect();
    let operations = vec![Operation { r#type: ty, inputs: (0..last).collect(), outputs: vec![last] }];
    let main = Subgraph { operands, operations, inputIndexes: inputs, outputIndexes: vec![last] };
    Model { main, operandValues: values, ..Default::default() }
}

/// FLOOR of so many floats.
pub fn floor(count: i32) -> Model {
    let operands = vec![float(&[count], Life::SUBGRAPH_INPUT), float(&[count], Life::SUBGRAPH_OUTPUT)];
    single(OperationType::FLOOR, operands, Vec::new())
}

/// FLOOR after FLOOR: work for a while.
pub fn floors(count: i32, steps: i32) -> Model {
    let mut model = floor(count);
    let main = &mut model.main;
    let output = main.operands[1].clone();
    main.operands.truncate(1);
    for i in 0..steps {
        let lifetime = if i + 1 == steps { Life::SUBGRAPH_OUTPUT } else { Life::TEMPORARY_VARIABLE };
        main.operands.push(Operand { lifetime, ..output.clone() });
    }
    let step = |i| Operation { r#type: OperationType::FLOOR, inputs: vec![i], outputs: vec![i + 1] };
    main.operations = (0..steps).map(step).collect();
    main.outputIndexes = vec![steps];
    model
}

/// What ADD or MUL makes of one float and a constant, which is in the model.
pub fn with_constant(ty: OperationType, constant: f32) -> Model {
    let values = [floats(&[constant]), ints(&[0])].concat();
    let at = |offset, operand| Operand {
        location: DataLocation { poolIndex: 0, offset, length: 4, padding: 0 },
        ..operand
    };
    let operands = vec![
        float(&[1], Life::SUBGRAPH_INPUT),
        at(0, float(&[1], Life::CONSTANT_COPY)),
        at(4, operand(OperandType::INT32, &[], Life::CONSTANT_COPY)),
        float(&[1], Life::SUBGRAPH_OUTPUT),
    ];
    single(ty, operands, values)
}

/// WHILE its first input, one bool, holds, its second, one float, is floored. The bool never changes.
pub fn endless() -> Model {
    let boolean = |lifetime| operand(OperandType::TENSOR_BOOL8, &[1], lifetime);
    let (input, output) = (Life::SUBGRAPH_INPUT, Life::SUBGRAPH_OUTPUT);
    let step = |ty, inputs: &[i32], to| Operation { r#type: ty, inputs: inputs.to_vec(), outputs: vec![to] };
    let both = step(OperationType::LOGICAL_AND, &[0, 0], 2);
    let condition = Subgraph {
        operands: vec![boolean(input), float(&[1], input), boolean(output)],
        operations: vec![both.clone()],
        inputIndexes: vec![0, 1],
        outputIndexes: vec![2],
    };
    let body = Subgraph {
        operands: vec![boolean(input), float(&[1], input), boolean(output), float(&[1], output)],
        operations: vec![both, step(OperationType::FLOOR, &[1], 3)],
        inputIndexes: vec![0, 1],
        outputIndexes: vec![2, 3],
    };
    let graph = |offset| Operand {
        location: DataLocation { offset, ..Default::default() },
        ..operand(OperandType::SUBGRAPH, &[], Life::SUBGRAPH)
    };
    let main = Subgraph {
        operands: vec![
            boolean(input),
            float(&[1], input),
            graph(0),
            graph(1),
            boolean(Life::TEMPORARY_VARIABLE),
            float(&[1], output),
        ],
        operations: vec![Operation {
            r#type: OperationType::WHILE,
            inputs: vec![2, 3, 0, 1],
            outputs: vec![4, 5],
        }],
        inputIndexes: vec![0, 1],
        outputIndexes: vec![5],
    };
    Model { main, referenced: vec![condition, body], ..Default::default() }
}

pub fn argument(pool: i32, offset: i64, length: i64) -> RequestArgument {
    let location = DataLocation { poolIndex: pool, offset, length, padding: 0 };
    RequestArgument { location, ..Default::default() }
}

/// A request with these inputs, one after the other in one pool, and one output in another.
pub fn request_of(inputs: &[Vec<u8>], output: usize) -> io::Result<(Request, Shared)> {
    let mut bytes = Vec::new();
    let mut arguments = Vec::new();
    for input in inputs {
        arguments.push(argument(0, bytes.len() as i64, input.len() as i64));
        bytes.extend_from_slice(input);
        bytes.resize(bytes.len().next_multiple_of(64), 0);
    }
    let (given, room) = (Shared::new(bytes.len().max(64) as u64)?, Shared::new(output.max(64) as u64)?);
    given.write(0, &bytes)?;
    let pools = vec![RequestMemoryPool::Pool(given.memory()?), RequestMemoryPool::Pool(room.memory()?)];
    Ok((Request { inputs: arguments, outputs: vec![argument(1, 0, output as i64)], pools }, room))
}

/// A request for a model of one input and one output, and the memory of the output.
pub fn request(input: &[u8], output: usize) -> io::Result<(Request, Shared)> {
    request_of(&[input.to_vec()], output)
}

/// What an output's memory starts with.
pub fn output(memory: &Shared, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    memory.read(0, &mut bytes)?;
    Ok(bytes)
}

/// A file in memory that can be cut off at any time.
pub fn unsealed(bytes: &[u8]) -> io::Result<File> {
    let file = File::from(memfd_create(c"nnhal-hostile", MFdFlags::MFD_CLOEXEC)?);
    file.write_all_at(bytes, 0)?;
    Ok(file)
}

pub fn descriptor(file: &File) -> io::Result<ParcelFileDescriptor> {
    Ok(ParcelFileDescriptor::new(file.try_clone()?))
}

/// Memory of a file, said to be of this size.
pub fn ashmem(file: &File, size: i64) -> io::Result<Memory> {
    Ok(Memory::Ashmem(Ashmem { fd: Some(descriptor(file)?), size }))
}
