//! Models that are large to decode and to check, which happens on the threads of calls.

use crate::attackers::{self, HONEST, LARGE_MODELS, WAYS};
use crate::campaign::FIRST_USER;
use crate::common::campaign::amount;
use crate::common::{floats, floor_model, long_model, request, Connection};
use crate::daemon::{wait_until, Daemon};
use nnhal::aidl::*;
use std::process::Child;
use std::time::{Duration, Instant};

/// Ends when dropped.
pub struct Neighbour(Child);

impl Neighbour {
    fn start(way: usize, daemon: &Daemon) -> Self {
        let is_root = nix::unistd::geteuid().is_root();
        Neighbour::of(is_root.then_some(FIRST_USER + way as u32), way, daemon)
    }

    pub fn of(user: Option<u32>, way: usize, daemon: &Daemon) -> Self {
        Neighbour(attackers::start(way, user, &daemon.socket()))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn threads_that_decode_the_models_of_one_client_take_turns() {
    const LOOKS: usize = 400;
    let daemon = Daemon::start_for_all();
    daemon.serves_an_honest_client();
    let _attacker = Neighbour::start(LARGE_MODELS, &daemon);
    wait_until("all threads of the attacker call", || daemon.threads() > 24);
    // Those that could run, whether or not there is a core for them.
    let runnable: usize = (0..LOOKS)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            daemon.runnable()
        })
        .sum();
    let on_average = runnable as f64 / LOOKS as f64;
    println!("{on_average:.1} threads are at work on average");
    // To receive a message, and to drop what was read, takes no turn.
    assert!(on_average < 6.0, "{on_average:.1} threads are at work on average");
    daemon.serves_an_honest_client();
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    format!("{:?} {:?} {:?}", at(50), at(99), at(100))
}

/// How long an innocent client's small executions, longer ones and small compilations take alone, beside an honest neighbour, and
/// beside one that has models decoded.
#[test]
#[ignore = "measures, for a table in BENCHMARKS.md: as root, on a machine with nothing else to do"]
fn how_long_things_take_beside_large_models() {
    let time = Duration::from_secs(amount("NNHAL_SECONDS", 8, 60)) / 4;
    for way in [None, Some(WAYS.len()), Some(LARGE_MODELS)] {
        let daemon = Daemon::start_for_all();
        let connection = Connection::new(&daemon.socket());
        let (small, large) =
            (connection.prepare(&floor_model(&[1])), connection.prepare(&long_model(1 << 18, 40)));
        let (small_request, _output) = request(&floats(&[1.5]), 4);
        let (large_request, _output) = request(&vec![0; 4 << 18], 4 << 18);
        let neighbour = way.map(|way| Neighbour::start(way, &daemon));
        let run = |work: &mut dyn FnMut()| {
            let (mut times, start) = (Vec::new(), Instant::now());
            while start.elapsed() < time {
                let began = Instant::now();
                work();
                times.push(began.elapsed());
                std::thread::sleep(Duration::from_millis(1));
            }
            percentiles(times)
        };
        // It takes a moment to connect and to prepare.
        run(&mut || ());
        let small =
            run(&mut || drop(small.executeSynchronously(&small_request, false, -1, -1).expect("executed")));
        let large =
            run(&mut || drop(large.executeSynchronously(&large_request, false, -1, -1).expect("executed")));
        let compiled = run(&mut || drop(connection.prepare(&floor_model(&[1]))));
        let of_medium_size = long_model(1, 1000);
        let medium = run(&mut || drop(connection.prepare(&of_medium_size)));
        let beside = way.map_or("nobody", |way| WAYS.get(way).unwrap_or(&HONEST).0);
        println!(
            "beside {beside} (median, p99, longest): small {small}; long {large}; compilation {compiled}, of 1,000 operations {medium}"
        );
        drop(neighbour);
        connection.close();
    }
}

/// The number of IDevice's getSupportedOperations.
const GET_SUPPORTED_OPERATIONS: u32 = binder::FIRST_CALL_TRANSACTION + 4;

/// Asks about a model of so many operands of which the message says nothing: two words each, and a hundred bytes and more once they
/// are read. `announced` is how many there are said to be. Whether it is answered at all.
fn asks_about_empty_operands(connection: &Connection, count: i32, announced: i32) -> bool {
    const PRESENT: i32 = 1;
    const SIZE_ALONE: i32 = 4;
    let binder = connection.device.as_binder();
    let proxy = binder.as_remote().expect("in another process");
    let mut call = proxy.prepare_transact(true).expect("a parcel");
    let operands = 4 + 8 * count;
    let subgraph = SIZE_ALONE + operands;
    let words = [PRESENT, SIZE_ALONE + 4 + subgraph, PRESENT, subgraph, announced];
    let operands = std::iter::repeat_n([PRESENT, SIZE_ALONE], count as usize).flatten();
    words.into_iter().chain(operands).for_each(|word| call.write(&word).expect("written"));
    proxy.submit_transact(GET_SUPPORTED_OPERATIONS, &call, 0).is_ok()
}

#[test]
fn a_message_that_is_larger_once_it_is_read_ends_no_daemon() {
    const THREADS: usize = 24;
    let mut daemon = Daemon::start_for_all_under(&format!("ulimit -v {}", 512 << 10));
    daemon.serves_an_honest_client();
    let socket = daemon.socket();
    // Short ones, ones that are counted, and ones that nobody may send to a daemon with so little; as long as they say, and shorter.
    for (kib, times) in [(7, 1), (60, 1), (60, 100), (200, 1), (200, 100), (4 << 10, 1), (60 << 10, 100)] {
        let count = kib << 7;
        let asks =
            || asks_about_empty_operands(&Connection::new(&socket), count, count.saturating_mul(times));
        let answered = std::thread::scope(|threads| {
            let threads: Vec<_> = (0..THREADS).map(|_| threads.spawn(asks)).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|&answered| answered).count()
        });
        assert!(daemon.is_alive(), "the daemon has died of messages of {kib} KiB");
        println!("{kib} KiB, {times}: {answered} are answered, {} KiB at the most", daemon.peak_kib());
        assert!(answered > 0 || times > 1 || kib > 200, "messages of {kib} KiB are not answered");
    }
    daemon.serves_an_honest_client();
}

#[test]
fn what_is_read_out_of_a_message_is_as_large_as_its_limit_says() {
    // That there is one, and that it has no more to say.
    const LEAST: usize = 8;
    let sizes = [
        size_of::<Operand>(),
        size_of::<Operation>(),
        size_of::<Subgraph>(),
        size_of::<RequestArgument>(),
        size_of::<Memory>(),
        size_of::<TokenValuePair>(),
    ];
    assert!(sizes.iter().all(|size| size.div_ceil(LEAST) <= 17), "{sizes:?}");
    // One message has one of these.
    assert!(size_of::<Model>() + size_of::<Request>() < 1 << 10);
}
