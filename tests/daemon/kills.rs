//! A daemon that is killed at random moments while it saves and loads, fills cache files in the background, and keeps
//! models in its own store. Whenever that is, afterwards every load gives the right model or a clean failure, and the
//! registry opens.

use crate::common::caching::*;
use crate::common::campaign::amount;
use crate::common::*;
use binder::Strong;
use nnhal::aidl::*;
use nnhal::cache::{Offline, Store};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

struct Daemon(Child);

impl Daemon {
    fn start(directory: &Path) -> Daemon {
        let socket = directory.join("socket");
        let child = Command::new(env!("CARGO_BIN_EXE_nnhald"))
            .arg("--service")
            .arg(format!("unix:{}", socket.display()))
            .arg("--data")
            .arg(directory.join("data"))
            .args(["--threads", "1"])
            .stderr(Stdio::null())
            .spawn()
            .expect("a daemon");
        let daemon = Daemon(child);
        let started = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(started.elapsed() < PATIENCE, "the daemon does not serve");
            std::thread::sleep(Duration::from_millis(2));
        }
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A model, its files, and what it makes of ones.
struct Case {
    model: Model,
    cache: Cache,
    expected: Vec<f32>,
}

/// Empty files in `directory`.
fn cache_files(directory: &Path, token: u8) -> Cache {
    let file = |kind: &str| {
        let (mut options, path) = (File::options(), directory.join(format!("{kind}{token}")));
        options.read(true).write(true).create(true).truncate(true).open(path).unwrap()
    };
    Cache { model: file("model"), data: file("data"), token: [token; 32] }
}

fn cases(directory: &Path) -> Vec<Case> {
    let models = [(add(), vec![added()]), (mul(), vec![multiplied()]), (layer(), layer_output(32))];
    let case = |(i, (model, expected))| Case { model, cache: cache_files(directory, i as u8), expected };
    models.into_iter().enumerate().map(case).collect()
}

fn kills(usually: u64) -> u64 {
    amount("NNHAL_KILLS", usually, 3_400)
}

/// Runs `body` on a daemon over `directory` and a connection to it, and kills the daemon then.
fn until_killed<T>(directory: &Path, body: impl FnOnce(&Strong<dyn IDevice>) -> T) -> T {
    let daemon = Daemon::start(directory);
    let connection = Connection::new(&directory.join("socket"));
    let result = body(&connection.device);
    drop(daemon);
    result
}

/// Saves and loads until the daemon is gone. How often it did both.
fn work_until_killed(device: &Strong<dyn IDevice>, cases: &[Case], killed: &AtomicBool) -> usize {
    let mut done = 0;
    for case in cases.iter().cycle() {
        for saving in [true, false] {
            let (models, data) = (descriptors(&[&case.cache.model]), descriptors(&[&case.cache.data]));
            let (callback, verdict) = callback();
            let token = &case.cache.token;
            let launched = match saving {
                true => device.prepareModel(
                    &case.model,
                    ExecutionPreference::FAST_SINGLE_ANSWER,
                    Priority::MEDIUM,
                    -1,
                    &models,
                    &data,
                    token,
                    &callback,
                ),
                false => device.prepareModelFromCache(-1, &models, &data, token, &callback),
            };
            while launched.is_ok() && verdict.recv_timeout(Duration::from_millis(20)).is_err() {
                if killed.load(Ordering::Relaxed) {
                    return done;
                }
            }
            if killed.load(Ordering::Relaxed) {
                return done;
            }
            assert_eq!(status(&launched), ErrorStatus::NONE, "saving: {saving}");
        }
        done += 1;
    }
    done
}

#[test]
fn killed_at_any_moment_it_never_loads_anything_else() {
    let kills = kills(20);
    let directory = tempfile::tempdir().unwrap();
    let cases = cases(directory.path());
    let (mut hits, mut misses, mut saves) = (0, 0, 0);
    for round in 0..kills {
        {
            let mut daemon = Daemon::start(directory.path());
            let connection = Connection::new(&directory.path().join("socket"));
            let killed = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let (killed, daemon) = (&killed, &mut daemon);
                scope.spawn(move || {
                    // Spread over some saves, in steps that fall on no rhythm of theirs.
                    std::thread::sleep(Duration::from_micros(1000 + round * 7919 % 60_000));
                    killed.store(true, Ordering::Relaxed);
                    daemon.0.kill().expect("it is killed");
                });
                saves += work_until_killed(&connection.device, &cases, killed);
            });
        }
        let _daemon = Daemon::start(directory.path());
        let connection = Connection::new(&directory.path().join("socket"));
        for case in &cases {
            match load(&connection.device, &case.cache) {
                (ErrorStatus::NONE, Some(model)) => {
                    hits += 1;
                    assert_eq!(execute(&model, &vec![1.0; case.expected.len()]), Ok(case.expected.clone()));
                }
                (status, _) => {
                    misses += 1;
                    assert_eq!(status, ErrorStatus::GENERAL_FAILURE);
                }
            }
        }
        // The registry opens, and takes new entries.
        let case = &cases[round as usize % cases.len()];
        save(&connection.device, &case.model, &case.cache);
        assert_eq!(load(&connection.device, &case.cache).0, ErrorStatus::NONE);
    }
    println!("{kills} kills over {saves} saves: {hits} hits, {misses} misses");
    assert!(hits > 0 && saves > 0, "the daemon never came so far as to save: {hits} hits, {saves} saves");
}

/// Size of a layer that is large enough for the driver's own store.
const SIZE: usize = 300;

/// Which part of the work in the background after a first execution a daemon may do until it is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Until {
    /// It is killed before that execution.
    Nothing,
    /// It is killed so long after it.
    Then(Duration),
    All,
}

/// Moments spread over `window` and a little longer, after one before it and one after it.
fn moments(window: Duration, kills: u64) -> impl Iterator<Item = Until> {
    // Steps of the golden ratio fall everywhere, however many there are.
    let then = move |i| Until::Then(window.mul_f64(1.2 * (i as f64 * 0.618_034).fract()));
    [Until::Nothing, Until::All].into_iter().chain((1..=kills).map(then))
}

/// Executes a layer and waits as `until` says; how long it was since the execution.
fn use_layer(
    model: &Strong<dyn IPreparedModel>,
    expected: &[f32],
    until: Until,
    is_over: impl Fn() -> bool,
) -> Duration {
    if until == Until::Nothing {
        return Duration::ZERO;
    }
    assert_eq!(execute(model, &[1.0; SIZE]).as_deref(), Ok(expected));
    let executed = Instant::now();
    match until {
        Until::Then(delay) => std::thread::sleep(delay),
        _ => {
            while !is_over() {
                assert!(executed.elapsed() < PATIENCE, "nothing is done in the background");
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
    executed.elapsed()
}

/// How long undisturbed work in the background usually takes.
fn usual(mut once: impl FnMut() -> Duration) -> Duration {
    let mut times = [(); 5].map(|()| once());
    times.sort();
    times[times.len() / 2]
}

/// Whether there is something in the model cache, and not the `place` any more that was kept for it.
fn is_filled(cache: &Cache, place: &[u8]) -> bool {
    let now = bytes_of(&cache.model);
    !now.is_empty() && now != place
}

#[test]
fn killed_while_it_fills_cache_files_it_never_loads_anything_else() {
    let directory = tempfile::tempdir().unwrap();
    let (cache, other) = (cache_files(directory.path(), 1), cache_files(directory.path(), 2));
    let (layer, expected) = (layer_of(SIZE as i32), layer_output(SIZE));
    let fill = |device: &Strong<dyn IDevice>, until| {
        let model = save_later(device, &layer, &cache);
        let place = bytes_of(&cache.model);
        // The registry has it only when the files are whole: loads tell.
        let is_over = || is_filled(&cache, &place) && load(device, &cache).0 == ErrorStatus::NONE;
        let took = use_layer(&model, &expected, until, is_over);
        (place, took)
    };
    let window = until_killed(directory.path(), |device| usual(|| fill(device, Until::All).1));
    let (mut before, mut amid, mut after) = (0, 0, 0);
    for until in moments(window, kills(12)) {
        let (place, _) = until_killed(directory.path(), |device| fill(device, until));
        let is_place = bytes_of(&cache.model) == place;
        until_killed(directory.path(), |device| {
            match load(device, &cache) {
                (ErrorStatus::NONE, Some(model)) => {
                    after += 1;
                    assert!(is_filled(&cache, &place), "{until:?}");
                    assert_eq!(execute(&model, &[1.0; SIZE]).as_ref(), Ok(&expected), "{until:?}");
                }
                (status, _) => {
                    *if is_place { &mut before } else { &mut amid } += 1;
                    assert_eq!(status, ErrorStatus::GENERAL_FAILURE);
                    assert!(until != Until::All, "it was filled");
                }
            }
            // The registry opens, and takes new entries.
            save(device, &add(), &other);
            assert_eq!(execute(&load(device, &other).1.expect("a hit"), &[1.0]), Ok(vec![added()]));
        });
    }
    println!("killed within {window:?}: {before} before the filling, {amid} amid it, {after} after it");
    assert!(before > 0 && after > 0, "one of each was sure: {before}, {after}");
}

/// A layer, and what it makes of ones; another one for each `number`.
fn numbered_layer(number: u16) -> (Model, Vec<f32>) {
    let (mut model, mut output) = (layer_of(SIZE as i32), layer_output(SIZE));
    let bias = SIZE * SIZE * 4;
    model.operandValues[bias..bias + 4].copy_from_slice(&f32::from(number).to_le_bytes());
    output[0] += f32::from(number) - 0.5;
    (model, output)
}

/// Prepares a layer by the driver's own store.
fn prepare(device: &Strong<dyn IDevice>, model: &Model) -> Strong<dyn IPreparedModel> {
    save_in(device, model, &[], &[], &[])
}

#[test]
fn killed_while_it_keeps_models_it_has_them_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut numbers = 0..;
    let mut next = || numbered_layer(numbers.next().expect("numbers"));
    let keep = |device: &Strong<dyn IDevice>, (layer, expected): &(Model, Vec<f32>), until| {
        let count = Store::count(&data);
        use_layer(&prepare(device, layer), expected, until, || Store::count(&data) > count)
    };
    let window = until_killed(directory.path(), |device| usual(|| keep(device, &next(), Until::All)));
    let files = || -> HashSet<OsString> {
        std::fs::read_dir(data.join("store")).unwrap().map(|file| file.unwrap().file_name()).collect()
    };
    let (mut before, mut amid, mut after) = (0, 0, 0);
    for until in moments(window, kills(12)) {
        let (layer, count, earlier) = (next(), Store::count(&data), files());
        until_killed(directory.path(), |device| {
            keep(device, &layer, until);
        });
        match Store::count(&data) > count {
            true => after += 1,
            false if files().is_subset(&earlier) => before += 1,
            false => amid += 1,
        }
        until_killed(directory.path(), |device| {
            let again = execute(&prepare(device, &layer.0), &[1.0; SIZE]);
            assert_eq!(again, Ok(layer.1), "{until:?}");
        });
    }
    println!(
        "killed within {window:?}: {before} before it kept the model, {amid} amid that, {after} after it"
    );
    assert!(before > 0 && after > 0, "one of each was sure: {before}, {after}");
    // Nothing is left of what was not.
    until_killed(directory.path(), |device| drop(prepare(device, &next().0)));
    let entries = Offline::open(&data).unwrap().store.expect("a store").entries().unwrap().len();
    // Beside the registry, its mark, and what was put aside when a daemon was killed while it opened it.
    let registry = ["registry.redb", "registry.mark", "registry.damaged"];
    let models = files().iter().filter(|file| !registry.iter().any(|&name| file.as_os_str() == name)).count();
    assert!(models <= 2 * entries, "{:?} of {entries} models", files());
}
