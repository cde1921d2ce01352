//! Attacks on the socket itself, by a client that speaks its wire and means no good.

use crate::daemon::{wait_until, Daemon};
use nix::sys::socket::{sendmsg, ControlMessage, MsgFlags};
use nnhal::scheduler::limits;
use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The bytes that begin a session: version 2, with descriptors.
const GREETING: [u8; 16] = [2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const INIT: [u8; 8] = *b"cci\0\0\0\0\0";
/// What a message is said to have that does not come: a client may have some of these.
const BEGUN: u32 = 128 << 10;
const DESCRIPTORS: usize = 64;

fn header(command: u32, size: u32) -> Vec<u8> {
    [command.to_le_bytes(), size.to_le_bytes(), [0; 4], [0; 4]].concat()
}

/// A call of the root object that wants no answer, and is to wait for `number` others.
fn one_way(number: u64) -> Vec<u8> {
    call(1, number)
}

/// A call that asks the session how many threads it serves.
pub fn question() -> Vec<u8> {
    call(0, 0)
}

fn call(flags: u32, number: u64) -> Vec<u8> {
    let code = 1u32;
    let address = [0u8; 8];
    let rest = [0u8; 16];
    let parts =
        [&address[..], &code.to_le_bytes(), &flags.to_le_bytes(), &number.to_le_bytes(), &rest].concat();
    [header(0, parts.len() as u32), parts].concat()
}

/// What a client sends that never finishes its first message.
pub fn begun_frame() -> Vec<u8> {
    [&GREETING[..], &INIT, &header(0, BEGUN)].concat()
}

/// A session of one connection.
pub fn session(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    stream.write_all(&GREETING).expect("a greeting");
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).expect("an answer");
    stream.write_all(&INIT).expect("an init");
    // The daemon's own.
    stream
}

/// Whether the daemon ends the connection.
fn is_ended(stream: &mut UnixStream) -> bool {
    let mut byte = [0; 64];
    loop {
        match stream.read(&mut byte) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(why) => return matches!(why.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        }
    }
}

/// Has the daemon make a call that waits for others which never come, with as many descriptors as it may have.
fn park(stream: &UnixStream) {
    let file = File::open("/dev/null").expect("a file");
    let descriptors = [file.as_raw_fd(); DESCRIPTORS];
    let (call, rights) = (one_way(1000), [ControlMessage::ScmRights(&descriptors)]);
    let sent = sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&call)], &rights, MsgFlags::empty(), None);
    assert_eq!(sent.expect("sent"), call.len());
}

/// Parks calls on many connections.
pub fn parks_calls(socket: &Path) {
    let mut open = Vec::new();
    loop {
        let stream = session(socket);
        park(&stream);
        open.push(stream);
        if open.len() > 200 {
            open.clear();
        }
    }
}

/// Asks until no more can be sent, as no answer is read. How often it asked.
fn ask_without_reading(stream: &mut UnixStream) -> usize {
    stream.set_nonblocking(true).expect("a mode");
    let (question, mut asked) = (question(), 0);
    // The daemon may be about to read what is there.
    for wait in [0, 20, 100] {
        std::thread::sleep(Duration::from_millis(wait));
        while stream.write_all(&question).is_ok() {
            asked += 1;
        }
    }
    asked
}

/// Asks on many connections, and reads no answer.
pub fn reads_no_answers(socket: &Path) {
    let mut open = Vec::new();
    loop {
        let mut stream = session(socket);
        ask_without_reading(&mut stream);
        open.push(stream);
        if open.len() > 100 {
            open.clear();
        }
    }
}

#[test]
fn who_reads_no_answers_waits_alone() {
    let daemon = Daemon::start();
    daemon.serves_an_honest_client();
    let mut slow = session(&daemon.socket());
    let asked = ask_without_reading(&mut slow);
    assert!(asked > 100, "{asked} questions are all that it takes");
    daemon.serves_an_honest_client();
    // It is served on where it begins to read after all.
    slow.set_nonblocking(false).expect("a mode");
    slow.set_read_timeout(Some(Duration::from_secs(1))).expect("a time limit");
    let (mut read, mut bytes) = (0, [0; 4096]);
    while let Ok(count @ 1..) = slow.read(&mut bytes) {
        read += count;
    }
    assert!(read >= asked * header(0, 0).len(), "{read} bytes answer {asked} questions");
}

#[test]
fn one_way_calls_are_not_parked() {
    let daemon = Daemon::start();
    daemon.serves_an_honest_client();
    let before = daemon.descriptors();
    for _ in 0..20 {
        let mut stream = session(&daemon.socket());
        park(&stream);
        assert!(is_ended(&mut stream), "it keeps a call that it cannot make");
    }
    wait_until("descriptors are closed", || daemon.descriptors() < before + DESCRIPTORS);
    daemon.serves_an_honest_client();
}

#[test]
fn messages_that_do_not_come_are_counted() {
    let daemon = Daemon::start();
    // One is more than half of what a client may have. Which of the two the daemon reads first is its own affair.
    let large = u32::try_from(limits::CALL_BYTES.quota().per_client() / 3 * 2).expect("a size");
    let mut held = session(&daemon.socket());
    let mut refused = session(&daemon.socket());
    for stream in [&mut held, &mut refused] {
        stream.write_all(&header(0, large)).expect("a header");
        stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a time limit");
    }
    wait_until("one of two is refused", || {
        std::mem::swap(&mut held, &mut refused);
        is_ended(&mut refused)
    });
    assert!(!is_ended(&mut held), "the other is waited for");
    daemon.serves_an_honest_client();
    drop(held);
    wait_until("what the first held is given back", || {
        let mut third = session(&daemon.socket());
        third.write_all(&header(0, large)).expect("a header");
        third.set_read_timeout(Some(Duration::from_millis(200))).expect("a time limit");
        !is_ended(&mut third)
    });
}

#[test]
fn idle_connections_take_no_more_than_a_share() {
    const MANY: usize = 400;
    let daemon = Daemon::start();
    let before = daemon.threads();
    let idle: Vec<_> = (0..MANY).map(|_| UnixStream::connect(daemon.socket()).expect("connected")).collect();
    let is_open = |stream: &&UnixStream| {
        stream.set_nonblocking(true).expect("a mode");
        let end = (&**stream).read(&mut [0]);
        end.is_err_and(|why| why.kind() == ErrorKind::WouldBlock)
    };
    let open = || idle.iter().filter(is_open).count();
    wait_until("all but a share are refused", || open() <= 256);
    // Until it has greeted, each has a second thread that ends it.
    wait_until("those that are refused have no thread", || daemon.threads() <= before + 2 * open() + 8);
    assert!(open() > 0, "a share is more than none");
    drop(idle);
    wait_until("all have ended", || daemon.threads() <= before + 8);
    daemon.serves_an_honest_client();
}
