//! What is left of the daemon's memory once its clients have ended.

use crate::attackers;
use crate::common::caching::{another_layer, execute};
use crate::common::conv::Convolutions;
use crate::common::{bytes_of, floats, floor_model, long_model, request, Connection, PATIENCE};
use crate::daemon::{wait_until, Daemon};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Set for a client's process: the daemon's socket.
const CLIENT: &str = "NNHAL_TEST_MEMORY_CLIENT";
/// What a client prints once its models have run.
const READY: &str = "ready";
const CLIENTS: usize = 3;
/// A layer of so many inputs and outputs has 64 MiB of weights.
const SIZE: i32 = 4096;
const LAYERS: usize = 2;
/// What may stay behind.
const LEFT_KIB: usize = 32 << 10;

/// Not a test by itself: a client that has models until it is killed.
#[test]
#[ignore = "the client of memory_goes_back_when_clients_end"]
fn has_large_models() {
    let Some(socket) = std::env::var_os(CLIENT) else { return };
    let connection = Connection::new(Path::new(&socket));
    // Different ones in each process, as one user's share those that are the same.
    let first = std::process::id() as f32 % 10_000.0 * LAYERS as f32;
    let layers: Vec<_> = (0..LAYERS)
        .map(|layer| {
            let (layer, memory, expected) = another_layer(SIZE, first + layer as f32);
            (connection.prepare(&layer), memory, expected)
        })
        .collect();
    for (model, _, expected) in &layers {
        assert_eq!(execute(model, &vec![1.0; SIZE as usize]).as_ref(), Ok(expected));
    }
    // And one whose values between operations are large.
    const BYTES: usize = 4 << 22;
    let steps = connection.prepare(&long_model(1 << 22, 8));
    let (request, _output) = request(&vec![0; BYTES], BYTES);
    steps.executeSynchronously(&request, false, -1, -1).expect("executed");
    println!("{READY}");
    std::thread::sleep(PATIENCE);
}

fn start(daemon: &Daemon) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "--nocapture", "memory::has_large_models"])
        .env(CLIENT, daemon.socket())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a client")
}

#[test]
fn memory_goes_back_when_clients_end() {
    let daemon = Daemon::start();
    daemon.serves_an_honest_client();
    let before = daemon.resident_kib();
    let mut clients: Vec<Child> = (0..CLIENTS).map(|_| start(&daemon)).collect();
    for client in &mut clients {
        let output = BufReader::new(client.stdout.take().expect("piped"));
        let mut lines = output.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with(READY)), "a client ended too early");
    }
    let most = daemon.resident_kib();
    assert!(most > before + CLIENTS * LAYERS * (64 << 10), "{most} KiB, before {before}: nothing is held");
    for client in &mut clients {
        client.kill().expect("killed");
        client.wait().expect("dead");
    }
    let ended = Instant::now();
    wait_until("memory goes back", || daemon.resident_kib() <= before + LEFT_KIB);
    let (after, time) = (daemon.resident_kib(), ended.elapsed());
    println!("{before} KiB before, {most} with clients, {after} {time:?} after their end");
    daemon.serves_an_honest_client();
}

/// A few small blocks that were taken meanwhile, and stay, must keep nothing of what lay around them.
#[test]
fn memory_goes_back_around_what_others_keep() {
    const OTHERS: usize = 40;
    const KEPT_KIB: usize = 10 << 10;
    let daemon = Daemon::start();
    daemon.serves_an_honest_client();
    let before = daemon.resident_kib();
    let mut attacker = attackers::start(attackers::LARGE_MODELS, None, &daemon.socket());
    wait_until("large models are decoded", || daemon.resident_kib() > before + LEFT_KIB);
    let others: Vec<_> = (0..OTHERS)
        .map(|_| {
            let other = Connection::new(&daemon.socket());
            let model = other.prepare(&floor_model(&[1, 3]));
            (other, model)
        })
        .collect();
    let most = daemon.resident_kib();
    attacker.kill().expect("killed");
    attacker.wait().expect("dead");
    wait_until("memory goes back", || daemon.resident_kib() <= before + KEPT_KIB);
    println!("{before} KiB before, {most} with large models, {} after", daemon.resident_kib());
    others.iter().for_each(|(other, _)| other.close());
}

/// Over a socket each connection has a thread.
#[test]
fn threads_that_have_computed_keep_nothing_of_their_own() {
    const THREADS: usize = 60;
    const EACH_KIB: usize = 150;
    let daemon = Daemon::start();
    let convolutions = Convolutions { side: 32, channels: 128, ..Default::default() };
    let image = convolutions.image(1);
    let (request, output) = request(&floats(&image), convolutions.bytes());
    let computes = || {
        let connection = Connection::new(&daemon.socket());
        let model = connection.prepare(&convolutions.model());
        model.executeSynchronously(&request, false, -1, -1).expect("executed");
        assert_eq!(bytes_of(&output), Convolutions::result(&image));
        connection
    };
    let first = computes();
    let before = daemon.resident_kib();
    let others: Vec<_> = (0..THREADS).map(|_| computes()).collect();
    let grown = daemon.resident_kib().saturating_sub(before);
    println!("{} KiB for each of {THREADS} threads", grown / THREADS);
    assert!(grown < EACH_KIB * THREADS, "{grown} KiB for {THREADS} threads");
    others.iter().chain([&first]).for_each(Connection::close);
}
