//! Compilations that take as long as their client likes: others' do not wait for them.

use crate::attackers::{on_threads, ENDLESS_COMPILATIONS};
use crate::campaign::FIRST_USER;
use crate::common::status::status;
use crate::common::{ashmem, floor_model, memfd, operand, Connection};
use crate::daemon::{wait_until, Daemon};
use crate::decoding::Neighbour;
use nnhal::aidl::*;
use nnhal::client::{Address, ConnectOptions, Driver};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

/// Compilations of one attacker at once: more than may be at work beside others'.
const AT_ONCE: usize = 8;

/// As many products of [`endless_model`] as may be computed ahead.
const PRODUCTS: i32 = 4000;

/// FLOOR of a float, and so many products of one large constant with itself, which are small: to compute them ahead takes some
/// minutes, and the message is short.
fn endless_model(products: i32) -> Model {
    use OperandLifeTime as L;
    use OperandType as T;
    const ROWS: i32 = 64;
    const COLUMNS: i32 = 1 << 15;
    let bytes = 4 * i64::from(ROWS) * i64::from(COLUMNS);
    let memory = memfd(&[]);
    memory.set_len(bytes as u64).expect("a length");
    let constant = |ty, dims: &[i32], lifetime, offset, length| Operand {
        location: DataLocation { poolIndex: 0, offset, length, padding: 0 },
        ..operand(ty, dims, lifetime)
    };
    let mut model = floor_model(&[1]);
    let Subgraph { operands, operations, outputIndexes, .. } = &mut model.main;
    let first = operands.len() as i32;
    operands.extend([
        constant(T::TENSOR_FLOAT32, &[ROWS, COLUMNS], L::CONSTANT_POOL, 0, bytes),
        constant(T::TENSOR_FLOAT32, &[ROWS], L::CONSTANT_COPY, 0, 4 * i64::from(ROWS)),
        constant(T::INT32, &[], L::CONSTANT_COPY, 4 * i64::from(ROWS), 4), // no activation
    ]);
    for product in first + 3..first + 3 + products {
        operands.push(operand(T::TENSOR_FLOAT32, &[ROWS, ROWS], L::SUBGRAPH_OUTPUT));
        let inputs = vec![first, first, first + 1, first + 2];
        operations.push(Operation { r#type: OperationType::FULLY_CONNECTED, inputs, outputs: vec![product] });
        outputIndexes.push(product);
    }
    model.operandValues = vec![0; 4 * ROWS as usize + 4];
    model.pools = vec![ashmem(&memory, bytes)];
    model
}

/// The way of an attacker.
pub fn compiles_endlessly(socket: &Path) {
    let connection = Connection::new(socket);
    let launched = AtomicI32::new(0);
    on_threads(AT_ONCE, || {
        // Each is another model, or they would be compiled once. What is refused is tried again.
        let fewer = launched.fetch_add(1, Ordering::Relaxed) % (PRODUCTS / 2);
        let _ = connection.launch(&endless_model(PRODUCTS - fewer));
    });
}

/// How many compilations wait, and how many are at work, as the driver tells root.
fn compilations(driver: &Driver) -> (u64, u64) {
    let line = &status(driver)["queues"]["compilations"];
    ["waiting", "running"].map(|name| line[name].as_u64().expect("a number")).into()
}

#[test]
fn endless_compilations_of_others_hold_up_nobody() {
    if !nix::unistd::geteuid().is_root() {
        return eprintln!("skipped: only root can be several users");
    }
    let daemon = Daemon::start_for_all();
    let address = Address::Unix(daemon.socket());
    let driver = Driver::connect(&address, &ConnectOptions::default()).expect("a driver");
    let _attackers = [0, 1].map(|user| Neighbour::of(Some(FIRST_USER + user), ENDLESS_COMPILATIONS, &daemon));
    // Each has one at work at the least, and some in line, as there are fewer threads.
    let all_attack = || {
        let (waiting, running) = compilations(&driver);
        waiting > 0 && running >= 2 && waiting + running == 2 * AT_ONCE as u64
    };
    wait_until("the attackers' compilations are under way", all_attack);
    let connection = Connection::new(&daemon.socket());
    for _ in 0..8 {
        connection.prepare(&floor_model(&[1, 3]));
    }
    assert!(all_attack(), "they have ended: {:?} wait and run", compilations(&driver));
    daemon.serves_an_honest_client();
    connection.close();
}
