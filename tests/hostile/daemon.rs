//! A daemon to be attacked, and what it holds.

pub use crate::common::process::wait_until;
use crate::common::process::DaemonProcess;
use crate::common::{bytes_of, floats, floor_model, request, Connection};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const FOR_ALL: [&str; 6] = ["--threads", "1", "--data", "none", "--socket-mode", "666"];

/// A daemon's process, which does not outlive its test.
pub struct Daemon(DaemonProcess);

impl Daemon {
    pub fn start() -> Self {
        Daemon(DaemonProcess::start(&["--threads", "1", "--data", "none"]))
    }

    /// One whose clients may have so many MiB of private memory together.
    pub fn with_memory(mib: usize) -> Self {
        Daemon(DaemonProcess::start(&["--threads", "1", "--data", "none", "--memory", &mib.to_string()]))
    }

    /// One that every user reaches.
    pub fn start_for_all() -> Self {
        Self::open_to_all(DaemonProcess::start(&FOR_ALL))
    }

    /// The same, in a process in which a shell first does `first`, to limit it.
    pub fn start_for_all_under(first: &str) -> Self {
        Self::open_to_all(DaemonProcess::start_under(first, &FOR_ALL))
    }

    fn open_to_all(daemon: DaemonProcess) -> Self {
        let directory = daemon.socket().parent().expect("a directory").to_path_buf();
        std::fs::set_permissions(directory, Permissions::from_mode(0o755)).expect("opened to all");
        Daemon(daemon)
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

    /// Threads that run, or would if there were a core for them.
    pub fn runnable(&self) -> usize {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("the daemon lives");
        let runs = |task: &std::fs::DirEntry| {
            // After the name, which may have anything in it. A thread may have ended by now.
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R'))
        };
        tasks.map_while(Result::ok).filter(runs).count()
    }

    /// Those of files: the others are the allocator's and the stacks of threads, which come and go.
    pub fn mappings(&self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0.id())).expect("the daemon lives");
        maps.lines().filter(|line| line.split_whitespace().nth(4) != Some("0")).count()
    }

    pub fn resident_kib(&self) -> usize {
        self.0.resident_kib()
    }

    /// Has the kernel forget how much memory it had at the most, which [`Daemon::peak_kib`] tells.
    pub fn forget_peak(&self) {
        self.0.forget_peak();
    }

    pub fn peak_kib(&self) -> usize {
        self.0.status_kib("VmHWM")
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
