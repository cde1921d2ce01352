//! A daemon to be attacked, and what it holds.

pub use crate::common::process::wait_until;
use crate::common::process::DaemonProcess;
use crate::common::{bytes_of, floats, floor_model, request, Connection};
use std::path::PathBuf;

/// A daemon's process, which does not outlive its test.
pub struct Daemon(DaemonProcess);

impl Daemon {
    pub fn start() -> Self {
        Daemon(DaemonProcess::start(&["--threads", "1", "--data", "none"]))
    }

    pub fn socket(&self) -> PathBuf {
        self.0.socket()
    }

    pub fn descriptors(&self) -> usize {
        self.0.entries("fd")
    }

    pub fn threads(&self) -> usize {
        self.0.entries("task")
    }

    pub fn resident_kib(&self) -> usize {
        self.0.resident_kib()
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
