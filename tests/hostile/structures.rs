//! Models, requests and objects that are many rather than large: what they take besides values is their client's, too, and
//! keeps nobody waiting.

use crate::campaign::FIRST_USER;
use crate::common::{
    argument, ashmem, bytes_of, floats, floor_model, long_model, memfd, operand, request, status, Connection,
};
use crate::daemon::{wait_until, Daemon};
use nnhal::aidl::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// MiB of private memory for all clients. One alone may have half of them.
const MEMORY: usize = 128;
const SHARE_KIB: usize = MEMORY << 9;
/// What is not counted: decoded messages, what a compilation has in passing, the stacks of threads.
const BESIDES_KIB: usize = 64 << 10;
/// Operations of a large model, and arguments of a large request.
const MANY: i32 = 50_000;
/// So many times as much as a client may have, where nothing is counted.
const TRIES: usize = 40;

fn exhausted(status: ErrorStatus) -> bool {
    status == ErrorStatus::RESOURCE_EXHAUSTED_TRANSIENT
}

/// A model of so many inputs and outputs of one float: each output is the floor of its input.
fn wide_model(count: i32) -> Model {
    let float = |lifetime| operand(OperandType::TENSOR_FLOAT32, &[1], lifetime);
    let of = |lifetime| (0..count).map(move |_| float(lifetime));
    let operation = |i| Operation { r#type: OperationType::FLOOR, inputs: vec![i], outputs: vec![count + i] };
    let main = Subgraph {
        operands: of(OperandLifeTime::SUBGRAPH_INPUT).chain(of(OperandLifeTime::SUBGRAPH_OUTPUT)).collect(),
        operations: (0..count).map(operation).collect(),
        inputIndexes: (0..count).collect(),
        outputIndexes: (count..2 * count).collect(),
    };
    Model { main, ..Default::default() }
}

/// A request for a [`wide_model`], and the memory of its outputs: inputs are 1.5.
fn wide_request(count: i32) -> (Request, std::fs::File) {
    let size = 4 * count as usize;
    let (input, output) = (memfd(&floats(&vec![1.5; count as usize])), memfd(&vec![0; size]));
    let arguments = |pool| (0..i64::from(count)).map(move |i| argument(pool, 4 * i, 4)).collect();
    let pool = |file| RequestMemoryPool::Pool(ashmem(file, size as i64));
    let pools = vec![pool(&input), pool(&output)];
    (Request { inputs: arguments(0), outputs: arguments(1), pools }, output)
}

/// Checks that a client which holds all it may is refused more, that the daemon is not much larger than that, and that it
/// serves others.
fn assert_bounded(daemon: &Daemon, before: usize, refused: Option<ErrorStatus>, held: usize) {
    let grown = daemon.resident_kib().saturating_sub(before);
    println!("{held} were taken, {grown} KiB for them");
    assert!(refused.is_some_and(exhausted), "{held} were taken, then {refused:?}, and {grown} KiB for them");
    assert!(held > 0, "none is taken");
    assert!(grown < SHARE_KIB + BESIDES_KIB, "{grown} KiB are held");
}

#[test]
fn models_of_very_many_operations_are_on_their_clients_account() {
    let daemon = Daemon::with_memory(MEMORY);
    daemon.serves_an_honest_client();
    let before = daemon.resident_kib();
    let (connection, model) = (Connection::new(&daemon.socket()), long_model(1, MANY));
    let (mut held, mut refused) = (Vec::new(), None);
    while refused.is_none() && held.len() < TRIES {
        let (launch, (told, model)) = connection.launch(&model);
        refused = Some(if launch.is_err() { status(&launch) } else { told }).filter(|_| model.is_none());
        held.extend(model);
    }
    assert_bounded(&daemon, before, refused, held.len());
    drop(held);
    connection.close();
    daemon.serves_an_honest_client();
}

#[test]
fn requests_of_very_many_arguments_are_on_their_clients_account() {
    let daemon = Daemon::with_memory(MEMORY);
    daemon.serves_an_honest_client();
    let before = daemon.resident_kib();
    let count = MANY / 4;
    let connection = Connection::new(&daemon.socket());
    let model = connection.prepare(&wide_model(count));
    let (request, output) = wide_request(count);
    let (mut held, mut refused) = (Vec::new(), None);
    while refused.is_none() && held.len() < 4 * TRIES {
        let made = model.createReusableExecution(
            &request,
            &ExecutionConfig { loopTimeoutDurationNs: -1, ..Default::default() },
        );
        refused = Some(status(&made)).filter(|_| made.is_err());
        held.extend(made);
    }
    assert_bounded(&daemon, before, refused, held.len());
    // A run takes memory as well.
    held.truncate(1);
    wait_until("there is room to run", || held[0].executeSynchronously(-1).is_ok());
    assert_eq!(bytes_of(&output), floats(&vec![1.0; count as usize]));
    drop(held);
    connection.close();
    daemon.serves_an_honest_client();
}

#[test]
fn objects_of_executions_are_counted() {
    /// Beyond what one client may have.
    const MOST: usize = 20_000;
    let daemon = Daemon::start();
    let connection = Connection::new(&daemon.socket());
    let model = connection.prepare(&floor_model(&[1]));
    let (request, _output) = request(&floats(&[1.5]), 4);
    let (mut held, mut refused) = (Vec::new(), None);
    while refused.is_none() && held.len() < MOST {
        let made = model.executeFenced(&request, &[], false, -1, -1, -1);
        refused = Some(status(&made)).filter(|_| made.is_err());
        // Its fence is the client's own.
        held.extend(made.ok().and_then(|made| made.callback));
    }
    assert!(refused.is_some_and(exhausted), "{} were taken, then {refused:?}", held.len());
    assert!(held.len() > 1000, "{}", held.len());
    // What is given back can be had again, after a moment.
    held.truncate(held.len() / 2);
    wait_until("there is room again", || model.executeFenced(&request, &[], false, -1, -1, -1).is_ok());
    connection.close();
}

/// DEPTHWISE_CONV_2D of one pixel, by a filter of so many rows that is zero but beside it, in memory of which its client fills
/// nothing.
fn tall_filter(rows: i32) -> Model {
    use OperandLifeTime as L;
    use OperandType as T;
    let bytes = 4 * i64::from(rows);
    let memory = memfd(&[]);
    memory.set_len(bytes as u64 + 4096).expect("a length");
    let constant = |ty, dims: &[i32], offset, length| Operand {
        location: DataLocation { poolIndex: 0, offset, length, padding: 0 },
        ..operand(ty, dims, L::CONSTANT_POOL)
    };
    let code = |offset| Operand {
        location: DataLocation { poolIndex: 0, offset, length: 4, padding: 0 },
        ..operand(T::INT32, &[], L::CONSTANT_COPY)
    };
    let pixel = |lifetime| operand(T::TENSOR_FLOAT32, &[1, 1, 1, 1], lifetime);
    let operands = vec![
        pixel(L::SUBGRAPH_INPUT),
        constant(T::TENSOR_FLOAT32, &[1, rows, 1, 1], 0, bytes),
        constant(T::TENSOR_FLOAT32, &[1], bytes, 4),
        code(0), // padding SAME
        code(0), // strides
        code(0),
        code(0), // outputs of a channel
        code(4), // no activation
        pixel(L::SUBGRAPH_OUTPUT),
    ];
    let operation =
        Operation { r#type: OperationType::DEPTHWISE_CONV_2D, inputs: (0..8).collect(), outputs: vec![8] };
    let main =
        Subgraph { operands, operations: vec![operation], inputIndexes: vec![0], outputIndexes: vec![8] };
    let values = [1i32, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
    Model { main, operandValues: values, pools: vec![ashmem(&memory, bytes + 4096)], ..Default::default() }
}

#[test]
fn a_filter_of_very_many_rows_takes_little_but_its_weights() {
    const MIB: usize = 32;
    let daemon = Daemon::with_memory(4 * MEMORY);
    let connection = Connection::new(&daemon.socket());
    connection.prepare(&floor_model(&[1]));
    let before = daemon.resident_kib();
    daemon.forget_peak();
    let model = connection.prepare(&tall_filter((MIB << 18) as i32));
    let (request, output) = request(&floats(&[1.5]), 4);
    model.executeSynchronously(&request, false, -1, -1).expect("executed");
    assert_eq!(bytes_of(&output), floats(&[0.0]));
    let grown = (daemon.peak_kib() - before) >> 10;
    println!("{grown} MiB for a filter of {MIB}");
    // Those in its client's memory, which have pages now, and two copies.
    assert!(grown < 3 * MIB + 32, "{grown} MiB for a filter of {MIB}");
}

/// RESHAPE of each input to an output, which can be no view.
fn view_model(count: i32) -> Model {
    let mut model = wide_model(count);
    let shape = Operand {
        location: DataLocation { length: 4, ..Default::default() },
        ..operand(OperandType::TENSOR_INT32, &[1], OperandLifeTime::CONSTANT_COPY)
    };
    model.main.operands.push(shape);
    for operation in &mut model.main.operations {
        operation.r#type = OperationType::RESHAPE;
        operation.inputs.push(2 * count);
    }
    Model { operandValues: 1i32.to_le_bytes().to_vec(), ..model }
}

/// Values of 64 bytes, every second of which is left soon; those made then are larger.
fn model_of_holes(count: i32) -> Model {
    use OperandLifeTime as L;
    let tensor = |elements, lifetime| operand(OperandType::TENSOR_FLOAT32, &[elements], lifetime);
    let constant = |ty, dims: &[i32], offset, length| Operand {
        location: DataLocation { offset, length, ..Default::default() },
        ..operand(ty, dims, L::CONSTANT_COPY)
    };
    let mut operands = vec![
        tensor(16, L::SUBGRAPH_INPUT),
        constant(OperandType::TENSOR_INT32, &[1], 0, 4), // twice along the only dimension
        constant(OperandType::INT32, &[], 4, 4),         // no activation
    ];
    let (mut operations, mut tiled) = (Vec::new(), Vec::new());
    let push = |operands: &mut Vec<Operand>, operand| {
        operands.push(operand);
        operands.len() as i32 - 1
    };
    let first: Vec<i32> =
        (0..count).map(|_| push(&mut operands, tensor(16, L::TEMPORARY_VARIABLE))).collect();
    for &made in &first {
        operations.push(Operation { r#type: OperationType::FLOOR, inputs: vec![0], outputs: vec![made] });
    }
    // Reads every second of them, and so ends their lives; then the others are read, and what that gives is twice as large.
    let mut sum = first[0];
    for &read in first.iter().step_by(2).skip(1) {
        let made = push(&mut operands, tensor(16, L::TEMPORARY_VARIABLE));
        let inputs = vec![sum, read, 2];
        operations.push(Operation { r#type: OperationType::ADD, inputs, outputs: vec![made] });
        sum = made;
    }
    for &read in first.iter().skip(1).step_by(2) {
        let made = push(&mut operands, tensor(32, L::SUBGRAPH_OUTPUT));
        operations.push(Operation {
            r#type: OperationType::TILE,
            inputs: vec![read, 1],
            outputs: vec![made],
        });
        tiled.push(made);
    }
    let last = push(&mut operands, tensor(16, L::SUBGRAPH_OUTPUT));
    operations.push(Operation { r#type: OperationType::FLOOR, inputs: vec![sum], outputs: vec![last] });
    tiled.push(last);
    let main = Subgraph { operands, operations, inputIndexes: vec![0], outputIndexes: tiled };
    Model {
        main,
        operandValues: [2i32, 0].iter().flat_map(|n| n.to_le_bytes()).collect(),
        ..Default::default()
    }
}

/// SPLIT of a tensor into so many.
fn split_model(count: i32) -> Model {
    let tensor = |elements, lifetime| operand(OperandType::TENSOR_FLOAT32, &[elements], lifetime);
    let scalar = |offset| Operand {
        location: DataLocation { offset, length: 4, ..Default::default() },
        ..operand(OperandType::INT32, &[], OperandLifeTime::CONSTANT_COPY)
    };
    let mut operands = vec![tensor(count, OperandLifeTime::SUBGRAPH_INPUT), scalar(0), scalar(4)];
    operands.extend((0..count).map(|_| tensor(1, OperandLifeTime::SUBGRAPH_OUTPUT)));
    let outputs: Vec<i32> = (3..3 + count).collect();
    let operation =
        Operation { r#type: OperationType::SPLIT, inputs: vec![0, 1, 2], outputs: outputs.clone() };
    let main =
        Subgraph { operands, operations: vec![operation], inputIndexes: vec![0], outputIndexes: outputs };
    Model {
        main,
        operandValues: [0, count].iter().flat_map(|n| n.to_le_bytes()).collect(),
        ..Default::default()
    }
}

/// Has the calling thread, which must be root's, call as this user.
fn become_user(user: u32) {
    // SAFETY: only this thread's credentials change: the system call knows nothing of the others, as the library's function does.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, -1, user, -1) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// How long models of very many operations take to be prepared and executed, and an innocent client beside that.
#[test]
#[ignore = "measures: as root, on a machine with nothing else to do"]
fn how_long_very_many_operations_take() {
    const COUNT: i32 = 100_000;
    let models = [
        ("a chain", long_model(1, COUNT)),
        ("inputs and outputs", wide_model(COUNT)),
        ("views", view_model(COUNT)),
        ("holes", model_of_holes(COUNT)),
        ("outputs of one operation", split_model(8000)),
    ];
    for (name, model) in &models {
        let (daemon, busy) = (Daemon::start_for_all(), AtomicBool::new(true));
        std::thread::scope(|scope| {
            let (watched, busy) = (&daemon, &busy);
            let looks_on = scope.spawn(move || {
                let mut longest = Vec::new();
                become_user(FIRST_USER);
                let connection = Connection::new(&watched.socket());
                let model = connection.prepare(&floor_model(&[1]));
                let (request, _output) = request(&floats(&[1.5]), 4);
                while busy.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    model.executeSynchronously(&request, false, -1, -1).expect("executed");
                    longest.push(began.elapsed());
                }
                connection.close();
                longest.sort_unstable();
                longest.split_off(longest.len().saturating_sub(5))
            });
            let connection = Connection::new(&daemon.socket());
            let began = Instant::now();
            let prepared = connection.prepare(model);
            let prepare = began.elapsed();
            let (ins, outs) = (model.main.inputIndexes.len(), model.main.outputIndexes.len());
            let bytes = |index: i32| 4 * model.main.operands[index as usize].dimensions[0] as i64;
            let places = |indices: &[i32], pool: i32| {
                let mut at = 0;
                let place = |&index: &i32| {
                    at += bytes(index);
                    argument(pool, at - bytes(index), bytes(index))
                };
                let places: Vec<_> = indices.iter().map(place).collect();
                (places, at)
            };
            let ((inputs, read), (outputs, written)) =
                (places(&model.main.inputIndexes, 0), places(&model.main.outputIndexes, 1));
            let pool = |size: i64| RequestMemoryPool::Pool(ashmem(&memfd(&vec![0; size as usize]), size));
            let request = Request { inputs, outputs, pools: vec![pool(read), pool(written)] };
            let began = Instant::now();
            prepared.executeSynchronously(&request, false, -1, -1).expect("executed");
            let execute = began.elapsed();
            busy.store(false, Ordering::Relaxed);
            let longest = looks_on.join().expect("innocent");
            println!(
                "{name}: {ins} inputs, {outs} outputs, prepared in {prepare:?}, executed in {execute:?}, another waited {longest:.1?} at most"
            );
            connection.close();
        });
    }
}
