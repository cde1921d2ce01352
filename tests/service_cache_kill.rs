//! A daemon that is killed at random moments while it saves and loads. Whenever that is, afterwards every load gives
//! the right model or a clean failure, and the registry opens. `NNHAL_KILLS=200` kills it more often.

mod common;

use binder::Strong;
use common::caching::*;
use common::*;
use nnhal::aidl::*;
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

fn cases(directory: &Path) -> Vec<Case> {
    let file = |name: String| {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true).open(directory.join(name)).unwrap()
    };
    let layer_output: Vec<f32> =
        (0..32).map(|row| 0.5 + (0..32).map(|i| ((row * 32 + i) % 7) as f32 - 3.0).sum::<f32>()).collect();
    let models = [(add(), vec![added()]), (mul(), vec![multiplied()]), (layer(), layer_output)];
    let case = |(i, (model, expected))| Case {
        model,
        cache: Cache {
            model: file(format!("model{i}")),
            data: file(format!("data{i}")),
            token: [i as u8; 32],
        },
        expected,
    };
    models.into_iter().enumerate().map(case).collect()
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
    let kills = std::env::var("NNHAL_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20u64);
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
