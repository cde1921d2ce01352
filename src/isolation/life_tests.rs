//! What is told to a process, and what becomes of those who asked it when it ends, or says much.

use super::*;
use crate::isolation::codec::from_bytes;
use crate::memory::receive;
use nix::sys::ptrace;
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use std::sync::mpsc::channel;

const PATIENCE: Duration = Duration::from_secs(20);

/// The life of a process that does nothing, and what it would read from.
pub(in super::super) fn idle() -> (Life, OwnedFd) {
    let (socket, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    let process = Command::new("sleep").arg("1000").spawn().unwrap();
    let life = Life {
        began: Instant::now(),
        useful: AtomicBool::new(false),
        process: Mutex::new(process),
        socket,
        calls: Mutex::default(),
        late: Mutex::default(),
    };
    (life, theirs)
}

#[test]
fn what_is_let_go_of_while_the_process_does_not_read_is_told_once_it_does() {
    const MANY: u64 = 5000;
    let (life, theirs) = idle();
    (0..MANY).for_each(|number| life.release(number));
    assert!(!life.lock_late().is_empty(), "the socket takes them all: this tries nothing");
    let told = life.tell(&Order::Ping { call: 1 }, NOTHING, FULL);
    assert!(matches!(told, Err(BackendError::DeviceBusy(_))));
    let mut released = Vec::new();
    while released.len() < MANY as usize {
        match receive(theirs.as_fd(), true) {
            Ok(Some((bytes, _))) => match from_bytes(&bytes) {
                Some(Order::Release { number }) => released.push(number),
                _ => panic!("it is told something else"),
            },
            Ok(None) => panic!("the socket has ended"),
            Err(_) => life.look_after().unwrap(),
        }
    }
    assert!(released.into_iter().eq(0..MANY), "each, in order");
    life.end("the test is over");
}

#[test]
fn nobody_asks_a_process_whose_end_takes_long() {
    let (life, _theirs) = idle();
    let (tell, heard) = channel();
    let end: End = Box::new(move |answer| tell.send(answer.map(drop)).unwrap());
    life.ask(|call| Order::Ping { call }, NOTHING, FULL, end).unwrap();
    std::thread::scope(|scope| {
        // Whoever has this keeps its end from being noticed.
        let process = life.lock_process();
        let ends = scope.spawn(|| life.end("as the test wants it"));
        let start = Instant::now();
        while life.is_there() {
            assert!(start.elapsed() < PATIENCE, "it counts as there");
            std::thread::yield_now();
        }
        let asked = life.ask(|call| Order::Ping { call }, NOTHING, FULL, Box::new(drop));
        assert!(matches!(asked, Err(BackendError::DeviceLost(_))), "{asked:?}");
        assert!(heard.try_recv().is_err(), "it may do something still");
        drop(process);
        assert!(matches!(heard.recv_timeout(PATIENCE), Ok(Err(BackendError::DeviceLost(_)))));
        ends.join().unwrap();
    });
    assert!(matches!(life.lock_process().try_wait(), Ok(Some(_))), "it has ended");
}

/// The kernel may be at something for a process that was killed. This one it holds where whoever traces it asked for that.
#[test]
fn an_end_that_does_not_come_is_waited_for_no_longer_than_it_may_take() {
    let (life, _theirs) = idle();
    let process = Pid::from_raw(life.process() as i32);
    let (tell, heard) = channel();
    let end: End = Box::new(move |answer| tell.send(answer.map(drop)).unwrap());
    life.ask(|call| Order::Ping { call }, NOTHING, FULL, end).unwrap();
    std::thread::scope(|scope| {
        let ((traces, traced), (lets_go, let_go)) = (channel(), channel::<()>());
        let tracer = scope.spawn(move || {
            ptrace::seize(process, ptrace::Options::PTRACE_O_TRACEEXIT).unwrap();
            traces.send(()).unwrap();
            let stopped = waitpid(process, Some(WaitPidFlag::__WALL));
            let _ = let_go.recv(); // the test may have failed
            ptrace::cont(process, None).unwrap();
            stopped
        });
        traced.recv_timeout(PATIENCE).unwrap();
        life.end("as the test wants it");
        assert!(matches!(heard.try_recv(), Ok(Err(BackendError::DeviceLost(_)))));
        assert!(!life.is_there() && matches!(life.lock_process().try_wait(), Ok(None)), "it has ended");
        drop(lets_go);
        assert!(matches!(tracer.join().unwrap(), Ok(WaitStatus::PtraceEvent(..))));
    });
    let began = Instant::now();
    while matches!(life.lock_process().try_wait(), Ok(None)) {
        assert!(began.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(SOON);
    }
}

#[test]
fn a_long_answer_is_read_by_who_wants_it_and_ends_the_process_where_it_makes_no_sense() {
    const LONG: usize = 100_000;
    let (life, theirs) = idle();
    let (tell, heard) = channel();
    let ask = || {
        let tell = tell.clone();
        let end: End = Box::new(move |said| tell.send(said).unwrap());
        life.ask(|call| Order::Ping { call }, NOTHING, FULL, end).unwrap()
    };
    let said = || heard.recv_timeout(PATIENCE).unwrap().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| life.attend());
        let reply = Reply { call: ask(), answer: Answer::Support(vec![Ok(()); LONG]) };
        send(theirs.as_fd(), &to_bytes(&reply), &[]).unwrap();
        let long = said();
        assert!(matches!(long, Said::Long(..)) && !life.was_useful(), "it is read by who reads for all");
        assert!(matches!(life.read(long), Ok((Answer::Support(verdicts), _)) if verdicts.len() == LONG));
        assert!(life.was_useful());
        let mut bytes = ask().to_le_bytes().to_vec();
        bytes.resize(LONG, u8::MAX);
        send(theirs.as_fd(), &bytes, &[]).unwrap();
        let nonsense = said();
        assert!(matches!(life.read(nonsense), Err(BackendError::DeviceLost(_))));
    });
    life.end("the test is over");
}
