//! Dumps as `dumpsys` asks for them: over the kernel's binder, with a file to write to. Over RPC nobody can.

use crate::common::*;
use binder::{SIBinder, StatusCode, DUMP_TRANSACTION};
use nix::fcntl::{fcntl, FcntlArg, OFlag};
use nix::unistd::{geteuid, pipe2};
use nnhal::aidl::*;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

fn dump(object: &SIBinder, file: impl Into<OwnedFd>, arguments: &[&str]) -> Result<(), StatusCode> {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    object.as_proxy().expect("of another process").dump(file, &arguments)
}

/// What a dump that succeeds or fails as `expected` writes.
#[track_caller]
fn dumped(object: &SIBinder, arguments: &[&str], expected: Result<(), StatusCode>) -> String {
    let (mut reader, writer) = pipe();
    let text = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        text
    });
    assert_eq!(dump(object, writer, arguments), expected);
    // The driver has closed its end, or this would last.
    text.join().expect("no panic")
}

fn pipe() -> (File, OwnedFd) {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).expect("a pipe");
    (reader.into(), writer)
}

/// A pipe as small as there is, which a dump does not fit in.
fn narrow_pipe() -> (File, OwnedFd) {
    let (reader, writer) = pipe();
    let room = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(1)).expect("a small pipe");
    let filled = nix::unistd::write(&writer, &vec![0; room as usize]).expect("room");
    assert_eq!(filled, room as usize);
    (reader, writer)
}

/// Whether the driver takes this process for one of who may see all: root, system, shell. Its own user is one of these here.
fn sees_all() -> bool {
    [0, 1000, 2000].contains(&geteuid().as_raw())
}

#[test]
#[ignore = "needs a driver behind the kernel's binder, as tests/vm has it"]
fn a_dump_is_for_who_may_see_all() {
    let harness = Harness::new();
    let device = harness.device().as_binder();
    let extension = device.get_extension().expect("an answer").expect("the extension");
    for object in [&device, &extension] {
        if !sees_all() {
            for arguments in [&[][..], &["-a"], &["--json"], &["--help"]] {
                assert_eq!(dumped(object, arguments, Err(StatusCode::PermissionDenied)), "");
            }
            continue;
        }
        for arguments in [&[][..], &["-a"]] {
            let text = dumped(object, arguments, Ok(()));
            assert!(text.starts_with("driver: nnhal-") && text.contains("\nview: all\n"), "{text}");
            assert!(text.contains("\nqueues:\n") && text.ends_with('\n'), "{text}");
        }
        let json: serde_json::Value =
            serde_json::from_str(&dumped(object, &["-a", "--json"], Ok(()))).expect("JSON");
        assert_eq!((&json["view"], &json["process"]), (&"all".into(), &harness.process().into()));
        assert!(dumped(object, &["--help"], Ok(())).starts_with("arguments: --json"));
        assert!(dumped(object, &["--frobnicate"], Ok(())).starts_with("\"--frobnicate\" is not known"));
    }
}

#[test]
#[ignore = "needs a driver behind the kernel's binder, as tests/vm has it"]
fn a_dump_that_nobody_reads_holds_up_nobody_else() {
    let harness = Harness::new();
    let device = harness.device().as_binder();
    let (reader, writer) = narrow_pipe();
    if !sees_all() {
        // Before anything is written, or this would last.
        return assert_eq!(dump(&device, writer, &[]), Err(StatusCode::PermissionDenied));
    }
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| loop {
            // One of those below may be under way.
            let answer = dump(&device, writer.try_clone().expect("dup"), &[]);
            if answer != Err(StatusCode::WouldBlock) {
                return answer;
            }
        });
        // A client has one dump under way at a time.
        let start = std::time::Instant::now();
        while dump(&device, pipe().1, &["--help"]) != Err(StatusCode::WouldBlock) {
            assert!(start.elapsed() < PATIENCE && !stuck.is_finished(), "it is not stuck");
        }
        assert!(harness.device().getType().is_ok());
        drop(reader);
        // The driver is not at fault if nobody reads on.
        assert_eq!(stuck.join().expect("no panic"), Ok(()));
    });
    assert!(dumped(&device, &[], Ok(())).starts_with("driver: nnhal-"));
}

#[test]
#[ignore = "needs a driver behind the kernel's binder, as tests/vm has it"]
fn what_is_no_dump_is_refused() {
    let harness = Harness::new();
    let device = harness.device().as_binder();
    let proxy = device.as_proxy().expect("of another process");
    let ask = |parcel| proxy.submit_transact(DUMP_TRANSACTION, &parcel, 0);
    // No file at all; a number in its place; the null that stands for no binder.
    let parcel = || proxy.prepare_transact(false).expect("a parcel");
    assert!(ask(parcel()).is_err());
    let (mut number, mut null) = (parcel(), parcel());
    number.write::<i32>(&1).expect("written");
    null.write(&None::<SIBinder>).expect("written");
    assert!(ask(number).is_err() && ask(null).is_err());
    // A file that cannot be written to.
    let expected = if sees_all() { StatusCode::FailedTransaction } else { StatusCode::PermissionDenied };
    assert_eq!(dump(&device, pipe().0, &[]), Err(expected));
    assert!(harness.device().getType().is_ok());
}
