//! A recurrent model whose states go from one step to the next, through pools of the client or as device buffers.

use super::*;
use binder::Strong;
use std::os::unix::fs::FileExt;

/// An LSTM cell with as many inputs as units.
pub fn cell(units: i32) -> Model {
    use OperandLifeTime as L;
    let tensor = |dims: &[i32], lifetime| operand(OperandType::TENSOR_FLOAT32, dims, lifetime);
    let mut values = Vec::new();
    let mut constant = |ty, dims: &[i32], bytes: Vec<u8>| {
        let location = DataLocation {
            poolIndex: 0,
            offset: values.len() as i64,
            length: bytes.len() as i64,
            padding: 0,
        };
        values.extend(bytes);
        Operand { location, ..operand(ty, dims, L::CONSTANT_COPY) }
    };
    let omitted = |dims: &[i32]| tensor(dims, L::NO_VALUE);
    let some = |count: i32, seed: i32| {
        floats(&(0..count).map(|i| ((i * 7 + seed) % 19) as f32 / 40.0 - 0.2).collect::<Vec<_>>())
    };
    let state = &[1, units];
    let mut operands = vec![tensor(state, L::SUBGRAPH_INPUT)];
    for i in 0..8 {
        operands.push(constant(OperandType::TENSOR_FLOAT32, &[units, units], some(units * units, i)));
    }
    operands.extend([0; 3].map(|_| omitted(&[units])));
    for i in 0..4 {
        operands.push(constant(OperandType::TENSOR_FLOAT32, &[units], some(units, i)));
    }
    operands.extend([omitted(&[units, units]), omitted(&[units])]);
    operands.extend([0; 2].map(|_| tensor(state, L::SUBGRAPH_INPUT)));
    operands.push(constant(OperandType::INT32, &[], 4i32.to_le_bytes().to_vec())); // tanh
    operands.extend([0; 2].map(|_| constant(OperandType::FLOAT32, &[], floats(&[0.0]))));
    let outputs = [&[1, 4 * units], state, state, state].map(|dims| tensor(dims, L::SUBGRAPH_OUTPUT));
    operands.extend(outputs);
    let operation =
        Operation { r#type: OperationType::LSTM, inputs: (0..23).collect(), outputs: (23..27).collect() };
    let main = Subgraph {
        operands,
        operations: vec![operation],
        inputIndexes: vec![0, 18, 19],
        outputIndexes: (23..27).collect(),
    };
    Model { main, operandValues: values, ..Default::default() }
}

/// A cell and its states, of which there are two of each kind: one is read while the other is written.
pub struct Recurrence {
    model: Strong<dyn IPreparedModel>,
    states: States,
    requests: [Request; 2],
    state_bytes: usize,
}

enum States {
    Pools([File; 4]),
    Buffers([Strong<dyn IBuffer>; 4]),
}

impl Recurrence {
    /// One whose states lie in memory of the client.
    pub fn in_pools(connection: &Connection, units: i32) -> Self {
        let state_bytes = units as usize * 4;
        let files = [(); 4].map(|()| memfd(&vec![0; state_bytes]));
        let pools = || files.each_ref().map(|file| RequestMemoryPool::Pool(ashmem(file, state_bytes as i64)));
        let requests = requests(units, state_bytes as i64, &pools);
        let model = connection.prepare(&cell(units));
        Recurrence { model, states: States::Pools(files), requests, state_bytes }
    }

    /// One whose states stay in the driver.
    pub fn in_buffers(connection: &Connection, units: i32) -> Self {
        let state_bytes = units as usize * 4;
        let model = connection.prepare(&cell(units));
        // Input 1 and output 1 are one state, 2 and 2 the other.
        let allocated = [1, 2, 1, 2].map(|index| {
            let parcel = IPreparedModelParcel { preparedModel: Some(model.clone()) };
            let roles = &[BufferRole { modelIndex: 0, ioIndex: index, probability: 1.0 }];
            let allocated = connection.device.allocate(&BufferDesc::default(), &[parcel], roles, roles);
            allocated.expect("allocated")
        });
        let pools = || allocated.each_ref().map(|buffer| RequestMemoryPool::Token(buffer.token));
        let requests = requests(units, state_bytes as i64, &pools);
        let buffers = allocated.each_ref().map(|buffer| buffer.buffer.clone().expect("a buffer"));
        Recurrence { model, states: States::Buffers(buffers), requests, state_bytes }
    }

    /// Sets the states to zero.
    pub fn reset(&self) {
        let zeroes = memfd(&vec![0; self.state_bytes]);
        for i in 0..4 {
            match &self.states {
                States::Pools(files) => {
                    files[i].write_all_at(&vec![0; self.state_bytes], 0).expect("written")
                }
                States::Buffers(buffers) => {
                    buffers[i].copyFrom(&ashmem(&zeroes, self.state_bytes as i64), &[]).expect("copied");
                }
            }
        }
    }

    /// Runs `count` steps.
    pub fn run(&self, count: usize) {
        for step in 0..count {
            let request = &self.requests[step % 2];
            self.model.executeSynchronously(request, false, -1, -1).expect("executed");
        }
    }

    /// The bytes of all states.
    pub fn states(&self) -> Vec<Vec<u8>> {
        match &self.states {
            States::Pools(files) => files.each_ref().map(bytes_of).to_vec(),
            States::Buffers(buffers) => buffers
                .each_ref()
                .map(|buffer| {
                    let file = memfd(&vec![0; self.state_bytes]);
                    buffer.copyTo(&ashmem(&file, self.state_bytes as i64)).expect("copied");
                    bytes_of(&file)
                })
                .to_vec(),
        }
    }
}

/// A request for even steps and one for odd ones. States are pools 1 to 4; pool 0 holds the input and what nobody reads.
fn requests(units: i32, state_bytes: i64, pools: &dyn Fn() -> [RequestMemoryPool; 4]) -> [Request; 2] {
    let input: Vec<f32> = (0..units).map(|i| (i % 5) as f32 / 5.0).collect();
    let mut common = floats(&input);
    common.resize(6 * state_bytes as usize, 0);
    let common = memfd(&common);
    [[1, 2, 3, 4], [3, 4, 1, 2]].map(|[hidden, cell, next_hidden, next_cell]| {
        let all = pools();
        let whole = |pool: i32| match all[pool as usize - 1] {
            RequestMemoryPool::Token(_) => argument(pool, 0, 0),
            _ => argument(pool, 0, state_bytes),
        };
        let inputs = vec![argument(0, 0, state_bytes), whole(hidden), whole(cell)];
        let outputs = vec![
            argument(0, 2 * state_bytes, 4 * state_bytes),
            whole(next_hidden),
            whole(next_cell),
            argument(0, state_bytes, state_bytes),
        ];
        let mut pools = vec![RequestMemoryPool::Pool(ashmem(&common, 6 * state_bytes))];
        pools.extend(all);
        Request { inputs, outputs, pools }
    })
}
