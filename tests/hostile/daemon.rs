//! A daemon to be attacked, and what it holds.

pub use crate::common::process::wait_until;
use crate::common::process::DaemonProcess;
use crate::common::{bytes_of, floats, floor_model, request, Connection};
use crate::disk::{clients_of, Disk};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const FOR_ALL: [&str; 6] = ["--threads", "1", "--data", "none", "--socket-mode", "666"];
/// The disk's name beside the socket.
const DISK: &str = "disk";

/// A daemon's process, which does not outlive its test.
pub struct Daemon {
    // In this order: the process goes with the directory that the disk is in.
    disk: Option<Disk>,
    process: DaemonProcess,
}

impl Daemon {
    pub fn start() -> Self {
        Self::of(DaemonProcess::start(&["--threads", "1", "--data", "none"]))
    }

    /// One whose clients may have so many MiB of private memory together.
    pub fn with_memory(mib: usize) -> Self {
        Self::of(DaemonProcess::start(&["--threads", "1", "--data", "none", "--memory", &mib.to_string()]))
    }

    /// One that every user reaches.
    pub fn start_for_all() -> Self {
        Self::open_to_all(DaemonProcess::start(&FOR_ALL))
    }

    /// The same, in a process in which a shell first does `first`, to limit it.
    pub fn start_for_all_under(first: &str) -> Self {
        Self::open_to_all(DaemonProcess::start_under(first, &FOR_ALL))
    }

    /// One that every user reaches, with its data on a small disk that all may write to.
    pub fn start_for_all_on_a_disk() -> Self {
        let mut disk = None;
        let process = DaemonProcess::start_in(|directory| {
            let data = disk.insert(Disk::new(&directory.join(DISK))).data();
            let flags = ["--threads", "1", "--socket-mode", "666", "--data"];
            flags.iter().map(PathBuf::from).chain([data]).collect()
        });
        let mut daemon = Self::open_to_all(process);
        daemon.disk = disk;
        daemon
    }

    fn of(process: DaemonProcess) -> Self {
        Daemon { process, disk: None }
    }

    fn open_to_all(process: DaemonProcess) -> Self {
        let directory = process.socket().parent().expect("a directory").to_path_buf();
        std::fs::set_permissions(directory, Permissions::from_mode(0o755)).expect("opened to all");
        Self::of(process)
    }

    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// Whether its process has not ended.
    pub fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }

    /// How many threads it has, by name.
    pub fn threads_by_name(&self) -> BTreeMap<String, usize> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).expect("the daemon lives");
        let mut names = BTreeMap::new();
        for task in tasks.map_while(Result::ok) {
            // One that has ended by now has no name.
            if let Ok(name) = std::fs::read_to_string(task.path().join("comm")) {
                *names.entry(name.trim_end().into()).or_default() += 1;
            }
        }
        names
    }

    pub fn socket(&self) -> PathBuf {
        self.process.socket()
    }

    pub fn descriptors(&self) -> usize {
        self.process.entries("fd")
    }

    pub fn threads(&self) -> usize {
        self.process.entries("task")
    }

    /// Threads that run, or would if there were a core for them.
    pub fn runnable(&self) -> usize {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).expect("the daemon lives");
        let runs = |task: &std::fs::DirEntry| {
            // After the name, which may have anything in it. A thread may have ended by now.
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R'))
        };
        tasks.map_while(Result::ok).filter(runs).count()
    }

    /// Those of files: the others are the allocator's and the stacks of threads, which come and go.
    pub fn mappings(&self) -> usize {
        let maps =
            std::fs::read_to_string(format!("/proc/{}/maps", self.process.id())).expect("the daemon lives");
        maps.lines().filter(|line| line.split_whitespace().nth(4) != Some("0")).count()
    }

    pub fn resident_kib(&self) -> usize {
        self.process.resident_kib()
    }

    /// Has the kernel forget how much memory it had at the most, which [`Daemon::peak_kib`] tells.
    pub fn forget_peak(&self) {
        self.process.forget_peak();
    }

    pub fn peak_kib(&self) -> usize {
        self.process.status_kib("VmHWM")
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

/// Where clients may have files beside the daemon of this socket.
pub fn files_beside(socket: &Path) -> PathBuf {
    clients_of(&socket.with_file_name(DISK))
}
