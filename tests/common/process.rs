//! A daemon in a process of its own, and what a process holds.

use super::PATIENCE;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DAEMON: &str = env!("CARGO_BIN_EXE_nnhald");

/// A daemon's process, which does not outlive its test.
pub struct DaemonProcess {
    process: Child,
    directory: tempfile::TempDir,
}

impl DaemonProcess {
    /// Starts one with these flags, which serves on a socket in a directory of its own.
    pub fn start(flags: &[&str]) -> Self {
        DaemonProcess::start_in(|_| flags.iter().map(|&flag| flag.into()).collect())
    }

    /// As [`start`](Self::start), with flags that depend on its directory.
    pub fn start_in(flags: impl FnOnce(&Path) -> Vec<PathBuf>) -> Self {
        DaemonProcess::start_by(Command::new(DAEMON), flags)
    }

    /// As [`start`](Self::start), in a process in which a shell first does `first`, to limit it.
    pub fn start_under(first: &str, flags: &[&str]) -> Self {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-e", "-c", &format!("{first}\nexec \"$0\" \"$@\""), DAEMON]);
        DaemonProcess::start_by(shell, |_| flags.iter().map(|&flag| flag.into()).collect())
    }

    fn start_by(mut command: Command, flags: impl FnOnce(&Path) -> Vec<PathBuf>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let service = format!("unix:{}", directory.path().join("nn.sock").display());
        let process = command
            .args(["--service", &service])
            .args(flags(directory.path()))
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let daemon = DaemonProcess { process, directory };
        wait_until("it serves", || UnixStream::connect(daemon.socket()).is_ok());
        daemon
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("nn.sock")
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn is_alive(&mut self) -> bool {
        self.process.try_wait().expect("a child").is_none()
    }

    /// How many entries the kernel lists of it under this name: "fd" for descriptors, "task" for threads.
    pub fn entries(&self, of: &str) -> usize {
        std::fs::read_dir(format!("/proc/{}/{of}", self.id())).expect("the daemon lives").count()
    }

    /// Its memory that is in the machine's, in KiB.
    pub fn resident_kib(&self) -> usize {
        self.status_kib("VmRSS")
    }

    /// A size that the kernel tells of its memory, in KiB.
    pub fn status_kib(&self, name: &str) -> usize {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("the daemon lives");
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.expect("a size").trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Has the kernel forget the most memory that it had.
    pub fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.id()), "5").expect("forgotten");
    }

    pub fn kill(&mut self) {
        self.process.kill().expect("it lives");
        self.process.wait().expect("ended");
    }
}

impl Drop for DaemonProcess {
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
        std::thread::sleep(Duration::from_millis(2));
    }
}
