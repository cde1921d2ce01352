//! The daemon as a process: its socket, its errors, its end.

mod common;

use common::*;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

fn daemon(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_nnhald"))
        .args(arguments)
        .env_remove("NNHAL_LOG")
        .env_remove("RUST_LOG")
        .stderr(Stdio::piped())
        .spawn()
        .expect("started")
}

fn serve(socket: &Path) -> Child {
    let child = daemon(&["--service", &format!("unix:{}", socket.display()), "--threads", "1"]);
    let start = Instant::now();
    while UnixStream::connect(socket).is_err() {
        assert!(start.elapsed() < PATIENCE, "the daemon does not serve");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child
}

/// Ends the daemon by `signal`; gives its exit code and its messages.
fn end(child: Child, signal: Signal) -> (Option<i32>, String) {
    kill(Pid::from_raw(child.id() as i32), signal).expect("it lives");
    let output = child.wait_with_output().expect("ended");
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
        assert!(log.contains("serving unix:"), "{log}");
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
    let second =
        daemon(&["--service", &format!("unix:{}", socket.display())]).wait_with_output().expect("ended");
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
        (&["--service", &format!("unix:{file}")][..], 1, "exists and is no socket"),
        (&["--service", &format!("unix:{file}.d/x")], 1, "its directory does not exist"),
        (&["--service", "tcp:1"], 2, "expected unix:PATH"),
        (&["--threads", "0"], 2, "number of threads"),
        (&["--frobnicate"], 2, "usage: nnhald"),
    ] {
        let output = daemon(arguments).wait_with_output().expect("ended");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert_one_line(&output.stderr, message);
    }
    if !Path::new("/dev/binder").exists() {
        let output = daemon(&["--service", "binder:nnhal"]).wait_with_output().expect("ended");
        assert_eq!(output.status.code(), Some(1));
        assert_one_line(&output.stderr, "no kernel binder");
    }
}

#[test]
fn without_its_data_directory_it_serves_without_caches() {
    use common::caching::*;
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
