//! A daemon to be attacked, and what it holds.

use crate::common::{bytes_of, floats, floor_model, request, Connection, PATIENCE};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A daemon's process, which does not outlive its test.
pub struct Daemon {
    process: Child,
    directory: tempfile::TempDir,
}

impl Daemon {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let service = format!("unix:{}", directory.path().join("nn.sock").display());
        let process = Command::new(env!("CARGO_BIN_EXE_nnhald"))
            .args(["--service", &service, "--threads", "1", "--data", "none"])
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let daemon = Daemon { process, directory };
        wait_until("it serves", || UnixStream::connect(daemon.socket()).is_ok());
        daemon
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("nn.sock")
    }

    pub fn descriptors(&self) -> usize {
        self.entries("fd")
    }

    pub fn threads(&self) -> usize {
        self.entries("task")
    }

    fn entries(&self, of: &str) -> usize {
        let path = format!("/proc/{}/{of}", self.process.id());
        std::fs::read_dir(&path).expect("the daemon lives").count()
    }

    /// Has an honest client prepare a model and run it, and checks what that gives.
    pub fn serves_an_honest_client(&self) {
        let connection = Connection::new(&self.socket());
        let model = connection.prepare(&floor_model(&[1, 3]));
        let (request, output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
        model.executeSynchronously(&request, false, -1, -1).expect("executed");
        assert_eq!(bytes_of(&output), floats(&[1.0, -1.0, 3.0]));
        connection.close();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill(); // it may be dead already
        let _ = self.process.wait();
    }
}

/// Waits for a state that must come.
#[track_caller]
pub fn wait_until(state: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never: {state}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
