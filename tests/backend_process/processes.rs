//! A daemon with its backend in a process of its own, and a look at both.

pub use crate::common::process::wait_until;
use crate::common::process::DaemonProcess;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::path::PathBuf;

/// Two processes, which do not outlive their test.
pub struct Daemon(DaemonProcess);

impl Daemon {
    pub fn start() -> Self {
        Daemon(DaemonProcess::start_in(|directory| {
            let flags = ["--threads", "2", "--backend-process", "--data"];
            flags.iter().map(PathBuf::from).chain([directory.join("data")]).collect()
        }))
    }

    pub fn socket(&self) -> PathBuf {
        self.0.socket()
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
        let parent = self.0.id();
        let numbers = std::fs::read_dir("/proc").expect("processes").flatten();
        let mut numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.find(|&number| stat(number).is_some_and(|(state, of)| of == parent && state != "Z"))
    }

    pub fn kill(&self, process: u32, signal: Signal) {
        let _ = nix::sys::signal::kill(Pid::from_raw(process as i32), signal); // it may have ended
    }

    pub fn kill_service(&mut self) {
        self.0.kill();
    }

    /// Descriptors and mappings of the service.
    pub fn holdings(&self) -> [usize; 2] {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0.id())).expect("the service lives");
        [self.0.entries("fd"), maps.lines().count()]
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
