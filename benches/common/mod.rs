//! What the benchmarks share: a daemon in a process of its own, and figures in a table.

#![allow(dead_code)] // no benchmark uses all of it

use nnhal::client::Address;
use nnhal::tflite::{self, Imported};
use nnhal::tool::driver::ServiceName;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A process that does not outlive this one's interest in it.
pub struct Process(Child);

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Process(command.spawn().expect("started"))
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may be dead already
        let _ = self.0.wait();
    }
}

/// The daemon, as it is shipped.
pub struct Daemon {
    process: Process,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl Daemon {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("nnhal.sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_nnhald"));
        command
            .arg(format!("--service=unix:{}", socket.display()))
            .arg("--data=none")
            .env("NNHAL_LOG", "error");
        let process = Process::start(&mut command);
        wait_for(&socket);
        Daemon { process, socket, _directory: directory }
    }

    pub fn address(&self) -> Address {
        Address::Unix(self.socket.clone())
    }

    pub fn service(&self) -> ServiceName {
        ServiceName::At(self.address())
    }

    /// Of its process.
    pub fn id(&self) -> u32 {
        self.process.0.id()
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

/// Waits until somebody serves `socket`.
pub fn wait_for(socket: &Path) {
    let start = Instant::now();
    while UnixStream::connect(socket).is_err() {
        assert!(start.elapsed() < PATIENCE, "nobody serves {}", socket.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where a model lies: its name is a path, or a file among the shared models.
pub fn model_path(name: &str) -> PathBuf {
    let models = std::env::var_os("NNHAL_MODELS").map_or("../shared/models".into(), PathBuf::from);
    if Path::new(name).exists() {
        name.into()
    } else {
        models.join(name)
    }
}

pub fn model(name: &str) -> Imported {
    let path = model_path(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    tflite::import(&bytes).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// A number from the environment.
pub fn setting(name: &str, default: usize) -> usize {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is no number")),
        Err(_) => default,
    }
}

/// What many times come to.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub median: Duration,
    pub p99: Duration,
    pub most: Duration,
}

impl Figures {
    /// Of times in any order; `None` where there are none.
    pub fn of(times: &mut [Duration]) -> Option<Self> {
        times.sort_unstable();
        let at = |percent: usize| times.get((times.len() * percent).div_ceil(100).max(1) - 1).copied();
        Some(Figures { median: at(50)?, p99: at(99)?, most: *times.last()? })
    }
}

pub fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

pub fn ms(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}
