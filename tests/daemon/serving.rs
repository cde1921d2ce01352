//! The daemon as a process: its socket, its errors, its end.

use crate::common::process::wait_until;
use crate::common::*;
use binder::{BinderResult, Interface, Strong};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use nnhal::aidl::*;
use nnhal::client::{Address, ClientError, ConnectOptions, Driver};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{channel, Sender};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A daemon's process, which does not outlive its test.
pub struct Daemon(Option<Child>);

impl Daemon {
    pub fn id(&self) -> i32 {
        self.0.as_ref().expect("present until dropped").id() as i32
    }

    /// Waits until it ended by itself.
    fn wait(mut self) -> Output {
        self.0.take().expect("present until dropped").wait_with_output().expect("ended")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill(); // it may be dead already
            let _ = child.wait();
        }
    }
}

fn daemon(arguments: &[&str]) -> Daemon {
    daemon_with_state(arguments, Path::new("/nonexistent"))
}

/// With the directory for state that is used unless the arguments name one.
fn daemon_with_state(arguments: &[&str], state: &Path) -> Daemon {
    let child = Command::new(env!("CARGO_BIN_EXE_nnhald"))
        .args(arguments)
        // The state of a daemon that the user runs is left alone.
        .env_remove("STATE_DIRECTORY")
        .env("XDG_STATE_HOME", state)
        .env_remove("NNHAL_LOG")
        .env_remove("RUST_LOG")
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    Daemon(Some(child))
}

fn serve(socket: &Path) -> Daemon {
    serve_with_state(socket, &["--data", "none"], Path::new("/nonexistent"))
}

pub fn serve_with_state(socket: &Path, arguments: &[&str], state: &Path) -> Daemon {
    let service = format!("unix:{}", socket.display());
    let child = daemon_with_state(&[&["--service", &service, "--threads", "1"], arguments].concat(), state);
    let start = Instant::now();
    while UnixStream::connect(socket).is_err() {
        assert!(start.elapsed() < PATIENCE, "the daemon does not serve");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child
}

/// Ends the daemon by `signal`; gives its exit code and its messages.
pub fn end(child: Daemon, signal: Signal) -> (Option<i32>, String) {
    kill(Pid::from_raw(child.id()), signal).expect("it lives");
    let output = child.wait();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn it_serves_until_it_is_told_to_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("nn.sock");
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let child = serve(&socket);
        let connection = Connection::new(&socket);
        let model = connection.prepare(&floor_model(&[1, 3]));
        let (request, output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
        model.executeSynchronously(&request, false, -1, -1).expect("executed");
        assert_eq!(bytes_of(&output), floats(&[1.0, -1.0, 3.0]));
        let (code, log) = end(child, signal);
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("serving unix:") && log.contains(" ms after the start"), "{log}");
        assert!(!socket.exists());
        assert!(connection.device.getType().is_err(), "the driver is gone");
    }
}

#[test]
fn a_dead_daemons_socket_is_taken_over_and_a_living_ones_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("nn.sock");
    let (code, _) = end(serve(&socket), Signal::SIGKILL);
    assert_eq!(code, None);
    assert!(socket.exists());
    // A connection refused would end the wait in `serve` at once, were the old socket still there.
    let child = serve(&socket);
    let second = daemon(&["--service", &format!("unix:{}", socket.display())]).wait();
    assert_eq!(second.status.code(), Some(1));
    assert_one_line(&second.stderr, "is served by another daemon already");
    assert_eq!(end(child, Signal::SIGTERM).0, Some(0));
}

#[track_caller]
fn assert_one_line(stderr: &[u8], message: &str) {
    let text = String::from_utf8_lossy(stderr);
    assert!(text.starts_with("nnhald: ") && text.contains(message), "{text:?} does not say {message:?}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn whatever_stops_it_is_said_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("write");
    let file = file.display();
    for (arguments, code, message) in [
        (&["--service", &format!("unix:{file}")][..], 1, "exists and is not a socket"),
        (&["--service", &format!("unix:{file}.d/x")], 1, "its directory does not exist"),
        (&["--service", "tcp:1"], 2, "expected unix:PATH"),
        (&["--threads", "0"], 2, "number of threads"),
        (&["--frobnicate"], 2, "usage: nnhald"),
    ] {
        let output = daemon(arguments).wait();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert_one_line(&output.stderr, message);
    }
    let argument = std::ffi::OsStr::from_bytes(b"--data=/\xff");
    let output = Command::new(env!("CARGO_BIN_EXE_nnhald")).arg(argument).output().expect("started");
    assert_eq!(output.status.code(), Some(2));
    assert_one_line(&output.stderr, "is not text in UTF-8");
    if !Path::new("/dev/binder").exists() {
        let output = daemon(&["--service", "binder:nnhal"]).wait();
        assert_eq!(output.status.code(), Some(1));
        assert_one_line(&output.stderr, "no kernel binder");
    }
}

#[test]
fn it_keeps_what_must_survive_it_unless_it_is_told_not_to() {
    let dir = tempfile::tempdir().expect("a directory");
    let (socket, state) = (dir.path().join("nn.sock"), dir.path().join("state"));
    let registry = state.join("nnhal/registry.redb");
    for (arguments, is_kept) in [(&["--data", "none"][..], false), (&[], true)] {
        let daemon = serve_with_state(&socket, arguments, &state);
        {
            use crate::common::caching::*;
            let connection = Connection::new(&socket);
            save(&connection.device, &add(), &Cache::new(1));
        }
        assert_eq!(end(daemon, Signal::SIGTERM).0, Some(0));
        assert_eq!(registry.exists(), is_kept, "{arguments:?}");
    }
}

/// The permissions of all that lies in `directory`, by path.
fn modes(directory: &Path) -> Vec<(std::path::PathBuf, u32)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mode = |path: &Path| path.symlink_metadata().map_or(0, |facts| facts.permissions().mode() & 0o777);
    entries
        .flat_map(|entry| {
            let path = entry.path();
            let below = modes(&path);
            std::iter::once((path.clone(), mode(&path))).chain(below)
        })
        .collect()
}

#[test]
fn what_it_makes_is_its_own_whatever_mask_it_inherits() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("nn.sock");
    let service = format!("unix:{}", socket.display());
    let child = Command::new("sh")
        .args(["-c", "umask 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_nnhald")])
        .args(["--threads", "1", "--service", &service, "--data"])
        .arg(dir.path().join("data"))
        .stderr(Stdio::null())
        .spawn();
    let _daemon = Daemon(Some(child.expect("started")));
    wait_until("it serves", || UnixStream::connect(&socket).is_ok());
    {
        use crate::common::caching::*;
        let connection = Connection::new(&socket);
        save(&connection.device, &add(), &Cache::new(1));
    }
    assert!(modes(dir.path()).iter().any(|(path, _)| path.ends_with("registry.redb")));
    for (path, mode) in modes(dir.path()) {
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
}

#[test]
fn without_its_data_directory_it_serves_without_caches() {
    use crate::common::caching::*;
    let dir = tempfile::tempdir().expect("a directory");
    let (socket, file) = (dir.path().join("nn.sock"), dir.path().join("file"));
    std::fs::write(&file, "").expect("write");
    let service = format!("unix:{}", socket.display());
    let child = daemon(&["--service", &service, "--data", &format!("{}/data", file.display())]);
    let start = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        assert!(start.elapsed() < PATIENCE, "the daemon does not serve");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    {
        let connection = Connection::new(&socket);
        let cache = Cache::new(1);
        let model = save(&connection.device, &add(), &cache);
        assert_eq!(execute(&model, &[1.0]), Ok(vec![added()]));
        assert_general_failure(&connection.device, &cache, "nothing was saved");
    }
    let (code, log) = end(child, Signal::SIGTERM);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("not cached") && log.contains("cannot make the directory"), "{log}");
}

fn open_descriptors(child: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", child.id())).expect("it lives").count()
}

#[test]
fn executions_that_wait_for_ever_hold_up_nobody_and_end_with_their_client() {
    const COUNT: usize = 1500;
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("nn.sock");
    let child = serve(&socket);
    let watching = Connection::new(&socket);
    let model = watching.prepare(&floor_model(&[1, 3]));
    let before = open_descriptors(&child);
    let connection = Connection::new(&socket);
    let waiting = connection.prepare(&floor_model(&[1]));
    let (never, fence) = UnixStream::pair().expect("a pair");
    let fences = [binder::ParcelFileDescriptor::new(std::os::fd::OwnedFd::from(fence))];
    let (first, _output) = request(&floats(&[1.5]), 4);
    let mut callbacks = Vec::new();
    for i in 0..COUNT {
        let result = waiting.executeFenced(&first, &fences, false, -1, -1, -1);
        // Every other client gives up the fence, the rest the callback.
        let result = result.expect("launched");
        callbacks.push(if i % 2 == 0 { (result.callback, None) } else { (None, result.syncFence) });
    }
    assert!(open_descriptors(&child) >= before + 2 * COUNT, "{} descriptors", open_descriptors(&child));
    let (second, output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    model.executeSynchronously(&second, false, -1, -1).expect("others are served");
    assert_eq!(bytes_of(&output), floats(&[1.0, -1.0, 3.0]));
    connection.close();
    drop((callbacks, waiting));
    let start = Instant::now();
    while open_descriptors(&child) > before + 20 {
        assert!(start.elapsed() < PATIENCE, "{} descriptors, before {before}", open_descriptors(&child));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(never);
    model.executeSynchronously(&second, false, -1, -1).expect("served still");
    assert_eq!(end(child, Signal::SIGTERM).0, Some(0));
}

#[test]
fn clients_that_come_to_their_end_are_no_warning() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("nn.sock");
    let child = serve(&socket);
    let before = open_descriptors(&child);
    const CLIENTS: usize = 20;
    for _ in 0..CLIENTS {
        let connection = Connection::new(&socket);
        let model = connection.prepare(&floor_model(&[1, 3]));
        let (request, _output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
        model.executeSynchronously(&request, false, -1, -1).expect("executed");
        // One who looks whether it is there, and says nothing.
        drop(UnixStream::connect(&socket).expect("served"));
    }
    // Its start goes on while it serves, and may open some for good, far fewer than one for each client.
    let start = Instant::now();
    while open_descriptors(&child) >= before + CLIENTS / 2 {
        assert!(start.elapsed() < PATIENCE, "{} descriptors, before {before}", open_descriptors(&child));
        std::thread::sleep(Duration::from_millis(10));
    }
    let (_, log) = end(child, Signal::SIGTERM);
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

/// Takes its time, as a process does that is stopped.
struct Slow(Duration, Mutex<Sender<ErrorStatus>>);

impl Interface for Slow {}

impl IPreparedModelCallback for Slow {
    fn notify(&self, status: ErrorStatus, _: Option<&Strong<dyn IPreparedModel>>) -> BinderResult<()> {
        std::thread::sleep(self.0);
        self.1.lock().expect("no panic").send(status).expect("somebody waits");
        Ok(())
    }
}

/// `NNHAL_CAMPAIGN=long` stops it for longer than anybody answers a call.
#[test]
fn a_client_that_was_stopped_for_a_while_is_served_again() {
    let is_long = std::env::var("NNHAL_CAMPAIGN").is_ok_and(|campaign| campaign == "long");
    let stopped = Duration::from_secs(if is_long { 35 } else { 2 });
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("nn.sock");
    let child = serve(&socket);
    let connection = Connection::new(&socket);
    let (sender, told) = channel();
    let callback = BnPreparedModelCallback::new_binder(Slow(stopped, Mutex::new(sender)));
    let (model, preference) = (floor_model(&[1, 3]), ExecutionPreference::FAST_SINGLE_ANSWER);
    let launched = connection.device.prepareModel(
        &model,
        preference,
        Priority::MEDIUM,
        -1,
        &[],
        &[],
        &[0; 32],
        &callback,
    );
    launched.expect("launched");
    assert_eq!(told.recv_timeout(stopped + PATIENCE), Ok(ErrorStatus::NONE));
    // A little later, as the driver may have given it up just then.
    std::thread::sleep(Duration::from_millis(500));
    let model = connection.prepare(&model);
    let (request, output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    model.executeSynchronously(&request, false, -1, -1).expect("served again");
    assert_eq!(bytes_of(&output), floats(&[1.0, -1.0, 3.0]));
    let (_, log) = end(child, Signal::SIGTERM);
    assert!(!log.contains("did not take"), "{log}");
}

#[test]
fn who_loses_its_connection_learns_whether_the_driver_lives() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("nn.sock");
    let child = serve(&socket);
    let connect =
        || Driver::connect(&Address::Unix(socket.clone()), &ConnectOptions::default()).expect("served");
    let (dropped, widowed) = (connect(), connect());
    // The daemon ends a connection that sends a one-way call, as the interface has none.
    let binder = dropped.device().as_binder();
    let proxy = binder.as_remote().expect("in another process");
    let call = proxy.prepare_transact(true).expect("a parcel");
    // Whether it is sent, and no more, is known here.
    let _ = proxy.submit_transact(binder::FIRST_CALL_TRANSACTION, &call, binder::FLAG_ONEWAY);
    let start = Instant::now();
    let why = loop {
        match dropped.answer("getType", dropped.device().getType()) {
            Err(why) => break why,
            Ok(_) => assert!(start.elapsed() < PATIENCE, "it is served still"),
        }
    };
    assert!(matches!(why, ClientError::Disconnected { .. }), "{why}");
    assert!(why.to_string().contains("a driver is there still"), "{why}");
    widowed.answer("getType", widowed.device().getType()).expect("others are served");
    end(child, Signal::SIGKILL);
    let why = widowed.answer("getType", widowed.device().getType()).expect_err("there is nobody");
    assert!(matches!(why, ClientError::Died { .. }), "{why}");
}

#[test]
fn clients_have_as_much_memory_as_the_daemon_is_told() {
    const MIB: u64 = 1 << 20;
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("nn.sock");
    // A client's half of this holds no weights of 10 MiB.
    let (told, large) = (16, crate::common::caching::layer_of(1620));
    let child = serve_with_state(&socket, &["--data", "none", "--memory", &told.to_string()], Path::new("/"));
    let driver = Driver::connect(&Address::Unix(socket), &ConnectOptions::default()).expect("served");
    let status =
        driver.diagnostics().expect("an answer").expect("a driver of ours").status().expect("status");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let quotas = status["quotas"].as_array().expect("quotas");
    let in_all = |what: &str| {
        let bytes =
            quotas.iter().filter(|quota| quota["what"].as_str().is_some_and(|text| text.contains(what)));
        bytes.map(|quota| quota["in_all"].as_u64().expect("a number")).collect::<Vec<_>>()
    };
    assert_eq!(in_all("bytes of private memory"), [told * MIB]);
    assert_eq!(in_all("bytes of device buffers"), [told * MIB / 2]);
    let refused = driver.prepare(&large, &Default::default()).map(drop).expect_err("it cannot be held");
    assert!(refused.to_string().contains("RESOURCE_EXHAUSTED"), "{refused}");
    driver
        .prepare(&crate::common::caching::layer_of(64), &Default::default())
        .expect("there is room for others");
    end(child, Signal::SIGTERM);
}

#[test]
fn fences_of_a_daemon_that_dies_fail() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("nn.sock");
    let child = serve(&socket);
    let connection = Connection::new(&socket);
    let model = connection.prepare(&floor_model(&[1, 3]));
    let (request, _output) = request(&floats(&[1.5, -0.5, 3.0]), 12);
    let fence = crate::common::fences::ClientFence::new();
    let pending = model.executeFenced(&request, &fence.list(), false, -1, -1, -1).expect("launched");
    assert_eq!(crate::common::fences::wait(&pending, Duration::from_millis(100)), None);
    end(child, Signal::SIGKILL);
    assert_eq!(crate::common::fences::wait(&pending, PATIENCE), Some(false));
}
