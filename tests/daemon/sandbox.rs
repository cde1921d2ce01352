//! What the daemon's process gives up once it serves: it serves all the same, and what is forbidden is an error and a line
//! in the log.

use super::serving::{end, serve_with_state, Daemon};
use crate::common::caching::{add, added, execute, load, save, Cache};
use crate::common::domains::{self, parcels, roles};
use crate::common::*;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sched::{unshare, CloneFlags};
use nix::sys::mman::{mmap_anonymous, MapFlags, ProtFlags};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use nnhal::aidl::*;
use nnhal::client::{Address, ConnectOptions, Driver, Mode, PrepareOptions, Runner};
use nnhal::daemon::{logger, sandbox};
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How many filters the daemon puts upon itself.
const FILTERS: u32 = 3;

/// What a process or a thread says of itself, read at once, as it may end between two readings.
struct Status(String);

impl Status {
    fn of(id: &str) -> Option<Self> {
        std::fs::read_to_string(format!("/proc/{id}/status")).ok().map(Self)
    }

    fn field(&self, name: &str) -> Option<u32> {
        let value = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().parse().ok()
    }

    fn has_no_new_privileges(&self) -> bool {
        self.field("NoNewPrivs") == Some(1)
    }

    /// How many filters its calls pass; older kernels do not tell. Those of whoever runs this test do not count.
    fn filters(&self) -> Option<u32> {
        self.field("Seccomp_filters").zip(own().field("Seccomp_filters")).map(|(count, own)| count - own)
    }

    fn is_filtered(&self) -> bool {
        match self.filters() {
            Some(count) => count > 0,
            None => self.field("Seccomp") == Some(2) && own().field("Seccomp") == Some(0),
        }
    }
}

fn own() -> Status {
    Status::of("self").expect("it runs")
}

fn is_filtered(id: &str) -> bool {
    Status::of(id).is_some_and(|status| status.is_filtered())
}

#[track_caller]
fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A kernel without filters: the daemon serves there, too.
fn kernel_has_no_filters() -> bool {
    own().field("Seccomp").is_none()
}

fn serve(socket: &Path, arguments: &[&str]) -> Daemon {
    serve_with_state(socket, arguments, Path::new("/nonexistent"))
}

/// Has a daemon do something of everything.
fn use_all_of_it(socket: &Path) {
    let address = Address::Unix(socket.into());
    let driver = Driver::connect(&address, &ConnectOptions::default()).expect("served");
    let prepared = driver.prepare(&floor_model(&[1, 3]), &PrepareOptions::default()).expect("prepared");
    for mode in Mode::ALL {
        let (request, output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
        let mut runner = Runner::open(mode, &driver, &prepared, &request).expect("the way is open");
        for _ in 0..3 {
            let status = runner.run(&driver, &prepared, &request).expect("executed");
            assert_eq!(status, ErrorStatus::NONE, "{mode:?}");
        }
        assert_eq!(bytes_of(&output), floats(&[1.0, -1.0, 3.0]), "{mode:?}");
    }
    let cache = Cache::new(1);
    assert_eq!(execute(&save(driver.device(), &add(), &cache), &[1.0]), Ok(vec![added()]));
    let loaded = load(driver.device(), &cache).1.expect("a hit");
    assert_eq!(execute(&loaded, &[1.0]), Ok(vec![added()]));
    // A device buffer, filled by one execution and read by another.
    let dims = [1, 4];
    let relu = domains::model(OperandType::TENSOR_FLOAT32, &dims, 1);
    let relu = driver.prepare(&relu, &PrepareOptions::default()).expect("prepared");
    let described = BufferDesc { dimensions: dims.to_vec() };
    let buffer = driver.device().allocate(&described, &parcels(&[&relu]), &roles(&[0]), &roles(&[0]));
    let buffer = buffer.expect("allocated");
    let (input, output) = (memfd(&floats(&[1.0, -2.0, 3.0, -4.0])), memfd(&[0; 16]));
    let shared = |file| domains::Place::Shared(file, 16);
    for (from, to) in [
        (shared(&input), domains::Place::Buffer(buffer.token)),
        (domains::Place::Buffer(buffer.token), shared(&output)),
    ] {
        let request = domains::request(&[(from, &[])], &[(to, &[])]);
        relu.executeSynchronously(&request, false, -1, -1).expect("executed");
    }
    assert_eq!(bytes_of(&output), floats(&[1.0, 0.0, 3.0, 0.0]));
}

#[test]
fn a_confined_daemon_does_all_that_it_is_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let (socket, data) = (dir.path().join("nn.sock"), dir.path().join("data"));
    let daemon = serve(&socket, &["--data", data.to_str().expect("plain")]);
    let id = daemon.id().to_string();
    wait_until("it is confined", || is_filtered(&id) || kernel_has_no_filters());
    use_all_of_it(&socket);
    if !kernel_has_no_filters() {
        for task in std::fs::read_dir(format!("/proc/{id}/task")).expect("it lives").flatten() {
            let thread = task.file_name().into_string().expect("a number");
            // A thread that has ended meanwhile has no status.
            let Some(status) = Status::of(&thread) else { continue };
            if let Some(filters) = status.filters() {
                assert_eq!((filters, status.has_no_new_privileges()), (FILTERS, true), "thread {thread}");
            }
        }
    }
    let limits = std::fs::read_to_string(format!("/proc/{id}/limits")).expect("it lives");
    let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).expect("a limit");
    assert_eq!(core.split_whitespace().take(2).collect::<Vec<_>>(), ["0", "0"]);
    let (code, log) = end(daemon, Signal::SIGTERM);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("confined") && !log.contains("refused"), "{log}");
}

#[test]
fn a_confined_daemon_starts_its_backend_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("nn.sock");
    let daemon = serve(&socket, &["--data", "none", "--backend-process"]);
    let (id, mut earlier) = (daemon.id().to_string(), None);
    wait_until("it is confined", || is_filtered(&id) || kernel_has_no_filters());
    for filters in [FILTERS, 2 * FILTERS] {
        let child = || {
            let all = std::fs::read_dir("/proc").expect("processes").flatten();
            let mut numbers = all.filter_map(|entry| entry.file_name().into_string().ok());
            let parent = |of: &String| Status::of(of)?.field("PPid");
            let is_child = |of: &String| parent(of).is_some_and(|parent| parent.to_string() == id);
            numbers.find(|of| is_child(of) && Some(of) != earlier.as_ref())
        };
        // The first was started before the service was confined, the second inherits what holds for it.
        let mut found = None;
        wait_until("the backend is confined", || {
            found = child();
            let is_confined = |of: &String| {
                Status::of(of).is_some_and(|status| match status.filters() {
                    None => status.is_filtered(),
                    Some(count) => count == filters && status.has_no_new_privileges(),
                })
            };
            found.as_ref().is_some_and(|of| is_confined(of) || kernel_has_no_filters())
        });
        use_all_of_it(&socket);
        kill(Pid::from_raw(found.as_ref().expect("found").parse().expect("a number")), Signal::SIGKILL)
            .expect("it lives");
        earlier = found;
    }
    let (code, log) = end(daemon, Signal::SIGTERM);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("confined") && !log.contains("refused"), "{log}");
}

#[test]
fn without_its_sandbox_a_daemon_is_not_confined() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("nn.sock");
    let daemon = serve(&socket, &["--data", "none", "--no-sandbox"]);
    use_all_of_it(&socket);
    let status = Status::of(&daemon.id().to_string()).expect("it lives");
    let seen = (status.is_filtered(), status.has_no_new_privileges());
    assert_eq!(seen, (false, own().has_no_new_privileges()));
    let (code, log) = end(daemon, Signal::SIGTERM);
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("confined"), "{log}");
}

const FORBIDDEN: &str = "sandbox::what_is_forbidden_fails";

/// In a process of its own, as it stays confined.
#[test]
#[ignore = "confines its process: the next test runs it"]
fn what_is_forbidden_fails() {
    logger::start();
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let (go, told) = channel::<()>();
    let early = thread("early").spawn(move || {
        told.recv().expect("told");
        unshare(CloneFlags::CLONE_FS)
    });
    let map = |prot| {
        let length = std::num::NonZero::new(4096).expect("not 0");
        // SAFETY: a mapping where there is none.
        unsafe { mmap_anonymous(None, length, prot, MapFlags::MAP_PRIVATE) }.map(drop)
    };
    assert!(TcpListener::bind("127.0.0.1:0").is_ok() && map(ProtFlags::PROT_EXEC).is_ok());
    let file = tempfile::tempfile().expect("a file");
    sandbox::give_up_privileges();
    sandbox::confine(sandbox::Processes::None);
    // The store notes in that when a model was last used.
    file.set_modified(std::time::SystemTime::now()).expect("permitted");
    // Where signals are blocked there is an error, and no line. Before the others: lines come in their order.
    let program = Command::new("/proc/self/exe").spawn().err().map(|why| why.kind());
    assert_eq!(program, Some(ErrorKind::PermissionDenied));
    go.send(()).expect("somebody waits");
    // Threads from before are confined, too.
    assert_eq!(early.expect("started").join().expect("no panic"), Err(nix::errno::Errno::EPERM));
    let late = thread("late").spawn(move || {
        let refused = TcpListener::bind("127.0.0.1:0").err().map(|why| why.kind());
        (refused, map(ProtFlags::PROT_EXEC), map(ProtFlags::PROT_READ))
    });
    let (network, code, memory) = late.expect("threads can be started").join().expect("no panic");
    assert_eq!(network, Some(ErrorKind::PermissionDenied));
    assert_eq!((code, memory), (Err(nix::errno::Errno::EPERM), Ok(())));
    // It is another thread that logs: who reads the log says by the end of the input that it has all.
    let input = std::io::stdin();
    let mut read = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    poll(&mut read, PollTimeout::try_from(PATIENCE).expect("a minute")).expect("the input can be waited for");
}

#[test]
fn what_is_forbidden_is_an_error_and_a_line_in_the_log() {
    // A test that has nothing to try must be left out by name; it must not pass.
    assert!(!kernel_has_no_filters(), "this kernel has no filters of system calls: --skip this test");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", "--nocapture", FORBIDDEN])
        .env_remove("NNHAL_LOG")
        .env_remove("RUST_LOG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let mut log = String::new();
    while log.matches("is refused").count() < 3 {
        let Some(line) = lines.next() else { break };
        log += &(line + "\n");
    }
    drop(child.stdin.take());
    lines.for_each(|line| log += &(line + "\n"));
    let output = child.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{} {said}{log}", output.status);
    let line = |call: i64, thread: &str| {
        let is_it = |line: &&str| {
            line.contains("ERROR")
                && line.contains(&format!("system call {call} of thread "))
                && line.contains(&format!("({thread}) is refused"))
        };
        log.lines().filter(is_it).count()
    };
    let (unshare, socket, mmap) = (libc::SYS_unshare, libc::SYS_socket, libc::SYS_mmap);
    assert_eq!([line(unshare, "early"), line(socket, "late"), line(mmap, "late")], [1, 1, 1], "{log}");
    assert_eq!(log.matches("is refused").count(), 3, "{log}");
}
