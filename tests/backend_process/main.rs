//! A backend in a process of its own, and what its death costs: the executions in flight, and nothing else.
//!
//! `NNHAL_CAMPAIGN=long` kills it 1,000 times.

#[path = "../common/mod.rs"]
mod common;
mod faulty;
mod processes;

use binder::Strong;
use common::caching::{execute, layer_of, load, save, Cache};
use common::*;
use nix::sys::signal::Signal;
use nnhal::aidl::*;
use processes::{wait_until, Daemon};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SIZE: i32 = 64;

/// Inputs of the layer, and what it makes of them.
fn layer_case() -> (Vec<f32>, Vec<f32>) {
    let input: Vec<f32> = (0..SIZE).map(|i| (i % 5) as f32).collect();
    let weight = |i: i32| (i % 7) as f32 - 3.0;
    let row = |r: i32| (0..SIZE).map(|c| weight(r * SIZE + c) * input[c as usize]).sum::<f32>() + 0.5;
    let output = (0..SIZE).map(row).collect();
    (input, output)
}

/// Executions that went well, and that the death of the process cost.
#[derive(Default)]
struct Tally {
    done: AtomicUsize,
    lost: AtomicUsize,
}

impl Tally {
    /// Counts an answer, which must be right, or say that the device is lost.
    fn count(&self, answer: Result<Vec<f32>, ErrorStatus>, expected: &[f32]) {
        match answer {
            Ok(values) => {
                assert_eq!(values, expected, "a wrong answer");
                self.done.fetch_add(1, Ordering::Relaxed);
            }
            Err(ErrorStatus::DEVICE_UNAVAILABLE) => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn of(&self) -> (usize, usize) {
        (self.done.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }
}

/// Runs over the same memory, by a burst.
fn run_bursts(model: &Strong<dyn IPreparedModel>, end: &AtomicBool, tally: &Tally) {
    let (input, expected) = layer_case();
    let burst = model.configureExecutionBurst().expect("a burst");
    let (request, output) = request(&floats(&input), 4 * input.len());
    while !end.load(Ordering::Relaxed) {
        let result = burst.executeSynchronously(&request, &[7, 8], false, -1, -1);
        let values = |bytes: Vec<u8>| {
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four"))).collect()
        };
        let answer = match status(&result) {
            ErrorStatus::NONE => Ok(values(bytes_of(&output))),
            error => Err(error),
        };
        tally.count(answer, &expected);
    }
}

/// Prepares and runs once, again and again.
fn compile_and_run(connection: &Connection, end: &AtomicBool, tally: &Tally) {
    let (input, expected) = layer_case();
    while !end.load(Ordering::Relaxed) {
        let (launched, (told, model)) = connection.launch(&layer_of(SIZE));
        assert!(launched.is_ok() || status(&launched) == told);
        match model {
            Some(model) => tally.count(execute(&model, &input), &expected),
            None => tally.count(Err(told), &expected),
        }
    }
}

/// Prepares from a cache and runs once, again and again.
fn load_and_run(connection: &Connection, cache: &Cache, end: &AtomicBool, tally: &Tally) {
    let (input, expected) = layer_case();
    while !end.load(Ordering::Relaxed) {
        match load(&connection.device, cache) {
            (_, Some(model)) => tally.count(execute(&model, &input), &expected),
            // What cannot be loaded, for whatever reason, its client is to compile.
            (ErrorStatus::GENERAL_FAILURE, None) => tally.count(Err(ErrorStatus::DEVICE_UNAVAILABLE), &[]),
            (other, None) => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_service_outlives_its_backend_however_often_it_is_killed() {
    let long = std::env::var("NNHAL_CAMPAIGN").is_ok_and(|campaign| campaign == "long");
    let kills = if long { 1000 } else { 20 };
    let daemon = Daemon::start();
    let connections = [(); 4].map(|()| Connection::new(&daemon.socket()));
    let cache = Cache::new(1);
    let model = save(&connections[0].device, &layer_of(SIZE), &cache);
    let (input, expected) = layer_case();
    assert_eq!(execute(&model, &input).expect("executed"), expected);
    let end = AtomicBool::new(false);
    let (runs, compilations, loads) = (Tally::default(), Tally::default(), Tally::default());
    let mut before = None;
    std::thread::scope(|scope| {
        let [runner, compiler, loader, witness] = &connections;
        let _ = runner; // whose model it is
        scope.spawn(|| run_bursts(&model, &end, &runs));
        scope.spawn(|| compile_and_run(compiler, &end, &compilations));
        scope.spawn(|| load_and_run(loader, &cache, &end, &loads));
        let ended = scopeguard(&end);
        for kill in 0..kills {
            let process = daemon.backend();
            // Soon after its start, while models are made again, or amid of whatever it does.
            std::thread::sleep(Duration::from_millis(kill * 37 % 150));
            daemon.kill(process, Signal::SIGKILL);
            // Whoever needs no backend is served at once.
            let asked = Instant::now();
            assert_eq!(witness.device.getType().expect("an answer"), DeviceType::CPU);
            assert!(asked.elapsed() < Duration::from_secs(5), "the service is busy with itself");
            wait_until("another process", || daemon.find_backend().is_some_and(|new| new != process));
            if kill == 9 {
                before = Some(daemon.holdings());
            }
        }
        drop(ended);
    });
    println!(
        "{kills} kills; (done, lost): bursts {:?}, compilations {:?}, loads {:?}",
        runs.of(),
        compilations.of(),
        loads.of()
    );
    for tally in [&runs, &compilations, &loads] {
        assert!(tally.of().0 > 0, "nothing was done");
    }
    assert!(runs.of().1 <= kills as usize, "one execution was in flight at a time");
    // What was prepared before all that works on.
    assert_eq!(execute(&model, &input).expect("executed"), expected);
    let before = before.expect("ten kills");
    let grown = |now: &[usize; 2]| now.iter().zip(before).all(|(now, before)| *now <= before + 8);
    wait_until("what it holds is as little as before", || grown(&daemon.holdings()));
}

/// Ends the threads of a scope also if the test fails.
fn scopeguard(end: &AtomicBool) -> impl Drop + use<'_> {
    struct Guard<'e>(&'e AtomicBool);
    impl Drop for Guard<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    Guard(end)
}

#[test]
fn a_model_is_made_again_for_the_first_who_needs_it() {
    let daemon = Daemon::start();
    let connection = Connection::new(&daemon.socket());
    let (input, expected) = layer_case();
    let (compiled, cache) = (connection.prepare(&layer_of(SIZE)), Cache::new(2));
    drop(save(&connection.device, &layer_of(SIZE), &cache));
    let loaded = load(&connection.device, &cache).1.expect("a model");
    for _ in 0..3 {
        let process = daemon.backend();
        daemon.kill(process, Signal::SIGKILL);
        wait_until("another process", || daemon.find_backend().is_some_and(|new| new != process));
        // Nothing was in flight: nothing is lost.
        for model in [&compiled, &loaded] {
            assert_eq!(execute(model, &input), Ok(expected.clone()));
        }
    }
}

#[test]
fn the_process_ends_with_the_service_and_has_nothing_of_it() {
    let mut daemon = Daemon::start();
    let connection = Connection::new(&daemon.socket());
    let model = connection.prepare(&layer_of(SIZE));
    // One that begins while the service has clients and files.
    let first = daemon.backend();
    daemon.kill(first, Signal::SIGKILL);
    wait_until("another process", || daemon.find_backend().is_some_and(|new| new != first));
    execute(&model, &layer_case().0).expect("executed");
    let process = daemon.backend();
    let links = processes::descriptors(process);
    let sockets = links.iter().filter(|link| link.starts_with("socket:")).count();
    assert_eq!(sockets, 1, "{links:?}");
    let strange: Vec<_> =
        links.iter().filter(|link| link.contains("registry") || link.contains(".sock")).collect();
    assert!(strange.is_empty(), "{links:?}");
    daemon.kill_service();
    wait_until("the end of the process", || !processes::lives(process));
}
