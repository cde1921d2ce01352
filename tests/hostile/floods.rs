//! Attackers that ask for very much that is small, for what lies far apart, or for much that ends at the same moment.

use crate::attackers::on_threads;
use crate::common::fences::{self, ClientFence};
use crate::common::fmq::{configure, extension, packet, Callback, Memories};
use crate::common::{
    argument, ashmem, floats, floor_model, long_model, memfd, operand, request, Connection, PATIENCE,
};
use binder::{ParcelFileDescriptor, Strong};
use nnhal::aidl::*;
use nnhal::client::{Address, ConnectOptions, Driver};
use nnhal::fmq::codec::{Argument, RequestPacket, QUANTUM};
use nnhal::fmq::{Queue, Reader, SharedQueue, Writer};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Many small calls on each of many connections, before any is answered.
pub fn calls_without_end(socket: &Path) {
    const CONNECTIONS: usize = 200;
    let mut open: Vec<_> = (0..CONNECTIONS).map(|_| crate::socket::session(socket)).collect();
    open.iter().for_each(|stream| stream.set_nonblocking(true).expect("a mode"));
    let one = crate::socket::question();
    let many: Vec<u8> = one.iter().copied().cycle().take(one.len() * 512).collect();
    let mut starts = vec![0; open.len()];
    let mut answers = vec![0; 64 << 10];
    loop {
        for (stream, start) in open.iter_mut().zip(&mut starts) {
            while let Ok(1..) = stream.read(&mut answers) {}
            if let Ok(count) = stream.write(&many[*start..]) {
                *start = (*start + count) % many.len();
            }
        }
    }
}

/// On many connections, how the driver is, while there are many models.
pub fn asks_for_its_state(socket: &Path) {
    let connection = Connection::new(socket);
    let _models: Vec<_> = (0..1000).map(|i| connection.prepare(&floor_model(&[1, 1 + i]))).collect();
    on_threads(60, || {
        let options = ConnectOptions { connections: 1, timeout: Some(PATIENCE) };
        let driver = Driver::connect(&Address::Unix(socket.into()), &options).expect("a driver");
        let diagnostics = driver.diagnostics().expect("an answer").expect("the extension");
        while diagnostics.status().is_ok() {}
    });
}

struct RawBurst {
    requests: Writer,
    results: Reader,
    sent: usize,
    _context: Strong<dyn IFmqBurstContext>,
    _callback: Strong<dyn IFmqBurstCallback>,
}

/// Packets by many bursts of which most fail, but none is the last straw.
pub fn sends_bad_packets(socket: &Path) {
    const LENGTH: usize = 4096;
    let connection = Connection::new(socket);
    let model = connection.prepare(&floor_model(&[1, 3]));
    let burst = || {
        let files = [memfd(&floats(&[1.5, -0.5, 3.0])), memfd(&[0xee; 12])];
        let memories = Arc::new(Memories { files, asked: Mutex::default() });
        let callback = BnFmqBurstCallback::new_binder(Callback(memories));
        let queues = [(); 2].map(|()| SharedQueue::create(LENGTH, QUANTUM).expect("a queue"));
        let attach =
            |queue: &SharedQueue| Queue::attach(&queue.descriptor(), QUANTUM, LENGTH).expect("attached");
        let requests = Writer::new(attach(&queues[0])).expect("a writer");
        let results = Reader::new(attach(&queues[1])).expect("a reader");
        let context =
            configure(&extension(&model), &callback, &queues[0].descriptor(), &queues[1].descriptor());
        RawBurst { requests, results, sent: 0, _context: context.expect("a burst"), _callback: callback }
    };
    let mut bursts: Vec<_> = (0..30).map(|_| burst()).collect();
    let good = packet().encode();
    let of_many = Argument { pool: 0, length: 12, dims: vec![1, 3], ..Default::default() };
    let bad =
        RequestPacket { inputs: vec![of_many; 330], outputs: vec![], slots: vec![0, 1], measure: false }
            .encode();
    loop {
        for burst in &mut bursts {
            let RawBurst { requests, results, sent, .. } = burst;
            let ready = results.available().expect("results");
            if ready > 0 {
                let mut answer = vec![0; ready * QUANTUM];
                let _ = results.read(&mut answer);
            }
            if requests.available().expect("room") == LENGTH {
                *sent += 1;
                let _ = requests.write(if sent.is_multiple_of(8) { &good } else { &bad });
            }
        }
    }
}

/// Very many fences that are signalled by one call.
pub fn signals_at_once(socket: &Path) {
    let connection = Connection::new(socket);
    let model = connection.prepare(&floor_model(&[1, 3]));
    let (request, _output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    loop {
        let fence = ClientFence::new();
        let list: Vec<ParcelFileDescriptor> = (0..60).flat_map(|_| fence.list()).collect();
        let mut results = Vec::new();
        while let Ok(result) = model.executeFenced(&request, &list, false, -1, -1, -1) {
            results.push(result);
        }
        fence.signal();
        for result in &results {
            let _ = fences::wait(result, PATIENCE);
        }
    }
}

/// A column of a matrix of bytes, in each page of which it has one.
fn column_model(rows: i32) -> Model {
    use OperandLifeTime as L;
    use OperandType as T;
    const COLUMNS: i32 = 1 << 16;
    let quantised =
        |dims: &[i32], lifetime| Operand { scale: 1.0, ..operand(T::TENSOR_QUANT8_ASYMM, dims, lifetime) };
    let mut values = Vec::new();
    let mut constant = |ty, dims: &[i32], numbers: &[i32]| {
        let offset = values.len() as i64;
        values.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        let location = DataLocation { poolIndex: 0, offset, length: 4 * numbers.len() as i64, padding: 0 };
        Operand { location, ..operand(ty, dims, L::CONSTANT_COPY) }
    };
    let operands = vec![
        quantised(&[rows, COLUMNS], L::SUBGRAPH_INPUT),
        constant(T::TENSOR_INT32, &[2], &[0, 0]),
        constant(T::TENSOR_INT32, &[2], &[rows, COLUMNS]),
        constant(T::TENSOR_INT32, &[2], &[1, COLUMNS]),
        constant(T::INT32, &[], &[0]),
        constant(T::INT32, &[], &[0]),
        constant(T::INT32, &[], &[0]),
        quantised(&[rows, 1], L::SUBGRAPH_OUTPUT),
    ];
    let operations =
        vec![Operation { r#type: OperationType::STRIDED_SLICE, inputs: (0..7).collect(), outputs: vec![7] }];
    let main = Subgraph { operands, operations, inputIndexes: vec![0], outputIndexes: vec![7] };
    Model { main, operandValues: values, ..Default::default() }
}

/// One byte of each 64 KiB of 512 MiB, over and over: each is on a page that is mapped anew.
pub fn maps_much(socket: &Path) {
    const ROWS: i32 = 8192;
    let bytes = i64::from(ROWS) << 16;
    let connection = Connection::new(socket);
    let model = connection.prepare(&column_model(ROWS));
    let (input, output) = (memfd(&[]), memfd(&vec![0; ROWS as usize]));
    let part = vec![1; 1 << 20];
    (0..bytes).step_by(part.len()).for_each(|at| input.write_all_at(&part, at as u64).expect("written"));
    let pools = [(&input, bytes), (&output, i64::from(ROWS))];
    let request = Request {
        inputs: vec![argument(0, 0, bytes)],
        outputs: vec![argument(1, 0, i64::from(ROWS))],
        pools: pools.map(|(file, len)| RequestMemoryPool::Pool(ashmem(file, len))).into(),
    };
    on_threads(4, || {
        let _ = model.executeSynchronously(&request, false, -1, -1);
    });
}

/// Memory that is there.
fn large_file(bytes: i64) -> std::fs::File {
    let file = memfd(&[0; 4096]);
    nix::fcntl::fallocate(&file, nix::fcntl::FallocateFlags::empty(), 0, bytes).expect("allocated");
    file
}

/// Executions whose fence fails, and with which the last of a large file goes.
pub fn gives_up_files(socket: &Path) {
    const BYTES: i64 = 256 << 20;
    let connection = Connection::new(socket);
    let model = connection.prepare(&floor_model(&[1, 3]));
    let output = memfd(&[0; 12]);
    loop {
        let fence = ClientFence::new();
        let file = large_file(BYTES);
        let pools = [&file, &output].map(|file| RequestMemoryPool::Pool(ashmem(file, 12))).into();
        let request = Request { inputs: vec![argument(0, 0, 12)], outputs: vec![argument(1, 0, 12)], pools };
        let result = model.executeFenced(&request, &fence.list(), false, -1, -1, -1);
        drop((file, request));
        fence.fail();
        if let Ok(result) = result {
            fences::wait(&result, PATIENCE);
        }
    }
}

/// Has runs that are over before it is another client's turn, one after the other.
pub fn runs_shortly(socket: &Path) {
    const LONGEST_NS: i64 = 450_000;
    let connection = Connection::new(socket);
    let (request, _output) = request(&vec![0; 4 << 16], 4 << 16);
    let run = |model: &Strong<dyn IPreparedModel>| model.executeSynchronously(&request, true, -1, -1);
    let is_long = |model: &Strong<dyn IPreparedModel>| {
        let times = (0..20).map(|_| run(model).expect("executed").timing.timeOnDeviceNs);
        times.min().expect("some") > LONGEST_NS
    };
    let (mut steps, mut model) = (1, connection.prepare(&long_model(1 << 16, 1)));
    while !is_long(&model) {
        steps += 1 + steps / 8;
        model = connection.prepare(&long_model(1 << 16, steps));
    }
    loop {
        let _ = run(&model);
    }
}
