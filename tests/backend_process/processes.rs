//! A daemon with its backend in a process of its own, and a look at both.

use crate::common::PATIENCE;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
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
            .args(["--service", &service, "--threads", "2", "--backend-process"])
            .args(["--data".as_ref(), directory.path().join("data").as_os_str()])
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

    /// The backend's process, once there is one.
    pub fn backend(&self) -> u32 {
        let mut found = None;
        wait_until("a backend", || {
            found = self.find_backend();
            found.is_some()
        });
        found.expect("found")
    }

    pub fn find_backend(&self) -> Option<u32> {
        let parent = self.process.id();
        let numbers = std::fs::read_dir("/proc").expect("processes").flatten();
        let mut numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.find(|&number| stat(number).is_some_and(|(state, of)| of == parent && state != "Z"))
    }

    pub fn kill(&self, process: u32, signal: Signal) {
        let _ = nix::sys::signal::kill(Pid::from_raw(process as i32), signal); // it may have ended
    }

    pub fn kill_service(&mut self) {
        self.process.kill().expect("it lives");
        self.process.wait().expect("ended");
    }

    /// Descriptors and mappings of the service.
    pub fn holdings(&self) -> [usize; 2] {
        let of = |what: &str| format!("/proc/{}/{what}", self.process.id());
        let maps = std::fs::read_to_string(of("maps")).expect("the service lives");
        [std::fs::read_dir(of("fd")).expect("the service lives").count(), maps.lines().count()]
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill(); // it may be dead already
        let _ = self.process.wait();
    }
}

/// A process's state and its parent.
fn stat(process: u32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?; // the name may hold anything
    let mut fields = fields.split(' ');
    Some((fields.next()?.into(), fields.next()?.parse().ok()?))
}

pub fn lives(process: u32) -> bool {
    stat(process).is_some_and(|(state, _)| state != "Z")
}

/// What a process has open.
pub fn descriptors(process: u32) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).expect("it lives").flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.map(|link| link.to_string_lossy().into_owned()).collect()
}

#[track_caller]
pub fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let began = Instant::now();
    while !reached() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
