//! Tests of the queue: what two honest ends see, and what a hostile peer can make of it.

use super::*;
use crate::fmq::{Descriptor, SharedQueue};
use crate::memory::{Access, ClientSlice, Mapping, MemoryError};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(20);

fn attach(shared: &SharedQueue, quantum: usize) -> Queue {
    Queue::attach(&shared.descriptor(), quantum, 1 << 16).unwrap()
}

fn ends(elements: usize, quantum: usize) -> (SharedQueue, Reader, Writer) {
    let shared = SharedQueue::create(elements, quantum).unwrap();
    let (reader, writer) = (attach(&shared, quantum), attach(&shared, quantum));
    (shared, Reader::new(reader).unwrap(), Writer::new(writer).unwrap())
}

fn within(timeout: Duration) -> Limit<'static> {
    Limit::new(Some(timeout))
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize),
    Read(usize),
    /// In so many pieces.
    WritePieces(usize, usize),
    ReadPieces(usize, usize),
    AbandonRead(usize),
    AbandonWrite(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..9usize).prop_map(Step::Write),
        (0..9usize).prop_map(Step::Read),
        (1..9usize, 1..4usize).prop_map(|(n, by)| Step::WritePieces(n, by)),
        (1..9usize, 1..4usize).prop_map(|(n, by)| Step::ReadPieces(n, by)),
        (1..9usize).prop_map(Step::AbandonRead),
        (1..9usize).prop_map(Step::AbandonWrite),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    /// Against a list: contents, order, wrap-around, partial and abandoned transactions, and what is available.
    #[test]
    fn it_is_a_queue(steps in steps(), capacity in 1..8usize, quantum in 1..5usize) {
        let (_shared, mut reader, mut writer) = ends(capacity, quantum);
        let (mut model, mut next) = (VecDeque::new(), 0u8);
        let mut fresh = |n: usize| -> Vec<u8> {
            (0..n * quantum).map(|_| { next = next.wrapping_add(1); next }).collect()
        };
        for step in steps {
            match step {
                Step::Write(n) | Step::WritePieces(n, _) | Step::AbandonWrite(n) if n > capacity => {
                    prop_assert!(matches!(writer.write(&vec![0; n * quantum]), Err(FmqError::Length(_))));
                }
                Step::Read(n) | Step::ReadPieces(n, _) | Step::AbandonRead(n) if n > capacity => {
                    prop_assert!(matches!(reader.read(&mut vec![0; n * quantum]), Err(FmqError::Length(_))));
                }
                Step::Write(n) => {
                    let bytes = fresh(n);
                    let fits = model.len() + bytes.len() <= capacity * quantum;
                    prop_assert_eq!(writer.write(&bytes).unwrap(), fits);
                    if fits { model.extend(bytes); }
                }
                Step::WritePieces(n, by) => {
                    let bytes = fresh(n);
                    if let Some(mut transaction) = writer.begin(bytes.len()).unwrap() {
                        for (i, piece) in bytes.chunks(by).enumerate() { transaction.copy(i * by, piece).unwrap(); }
                        prop_assert!(transaction.copy(bytes.len(), &[0]).is_err());
                        transaction.commit().unwrap();
                        model.extend(bytes);
                    } else {
                        prop_assert!(model.len() + bytes.len() > capacity * quantum);
                    }
                }
                Step::AbandonWrite(n) => {
                    if let Some(mut transaction) = writer.begin(n * quantum).unwrap() {
                        transaction.copy(0, &vec![0xee; n * quantum]).unwrap();
                    }
                }
                Step::Read(n) => {
                    let mut bytes = vec![0; n * quantum];
                    let there = model.len() >= bytes.len();
                    prop_assert_eq!(reader.read(&mut bytes).unwrap(), there);
                    if there { prop_assert_eq!(bytes, model.drain(..n * quantum).collect::<Vec<_>>()); }
                }
                Step::ReadPieces(n, by) => {
                    if let Some(transaction) = reader.begin(n * quantum).unwrap() {
                        let mut bytes = vec![0; n * quantum];
                        for (i, piece) in bytes.chunks_mut(by).enumerate() { transaction.copy(i * by, piece).unwrap(); }
                        prop_assert!(transaction.copy(n * quantum, &mut [0]).is_err());
                        transaction.commit().unwrap();
                        prop_assert_eq!(bytes, model.drain(..n * quantum).collect::<Vec<_>>());
                    } else {
                        prop_assert!(model.len() < n * quantum);
                    }
                }
                Step::AbandonRead(n) => {
                    if let Some(transaction) = reader.begin(n * quantum).unwrap() {
                        transaction.copy(0, &mut vec![0; n * quantum]).unwrap();
                    }
                }
            }
            prop_assert_eq!(reader.available().unwrap() * quantum, model.len());
            prop_assert_eq!(writer.available().unwrap() * quantum, capacity * quantum - model.len());
        }
    }
}

#[test]
fn parts_of_elements_are_refused() {
    let (_shared, mut reader, mut writer) = ends(4, 3);
    assert!(matches!(writer.write(&[0; 4]), Err(FmqError::Length(4))));
    assert!(matches!(reader.read(&mut [0; 1]), Err(FmqError::Length(1))));
    assert!(matches!(writer.write_blocking(&[0; 15], &within(SHORT)), Err(FmqError::Length(15))));
}

#[test]
fn waits_end_in_time_or_when_stopped() {
    let (shared, mut reader, mut writer) = ends(2, 1);
    assert!(writer.write(&[1, 2]).unwrap());
    let began = Instant::now();
    assert!(matches!(writer.write_blocking(&[3], &within(SHORT)), Err(FmqError::TimedOut)));
    assert!(began.elapsed() >= SHORT && began.elapsed() < LONG);
    reader.read_blocking(&mut [0; 2], &within(SHORT)).unwrap();
    assert!(matches!(reader.read_blocking(&mut [0], &within(SHORT)), Err(FmqError::TimedOut)));

    let stopped = AtomicBool::new(false);
    let waker = reader.queue.waker();
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| {
            let stop = || stopped.load(Ordering::SeqCst);
            reader.read_blocking(&mut [0], &Limit::new(None).or_until(&stop))
        });
        std::thread::sleep(SHORT);
        let asked = Instant::now();
        stopped.store(true, Ordering::SeqCst);
        waker.interrupt();
        assert!(matches!(wait.join().unwrap(), Err(FmqError::Stopped)));
        assert!(asked.elapsed() < LONGEST_SLEEP / 2, "it noticed by chance only: {:?}", asked.elapsed());
    });
    drop((reader, writer, shared));
    waker.interrupt();
}

#[test]
fn elements_cross_between_sleeping_threads() {
    let (_shared, mut reader, mut writer) = ends(7, 8);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..20_000u64 {
                writer.write_blocking(&i.to_le_bytes(), &within(LONG)).unwrap();
            }
        });
        for i in 0..20_000u64 {
            let mut bytes = [0; 8];
            reader.read_blocking(&mut bytes, &within(LONG)).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), i);
        }
    });
}

#[test]
fn a_queue_without_event_flag_is_looked_at_now_and_then() {
    let shared = SharedQueue::create(7, 8).unwrap();
    let mut descriptor = shared.descriptor();
    descriptor.grantors.truncate(3);
    let attach = || Queue::attach(&descriptor, 8, 7).unwrap();
    let (mut reader, mut writer) = (Reader::new(attach()).unwrap(), Writer::new(attach()).unwrap());
    let began = Instant::now();
    assert!(matches!(reader.read_blocking(&mut [0; 8], &within(SHORT)), Err(FmqError::TimedOut)));
    assert!(began.elapsed() >= SHORT);
    // Each sleeps on a word of its own, and is woken by nobody.
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for i in 0..100u64 {
                writer.write_blocking(&i.to_le_bytes(), &within(LONG)).unwrap();
            }
        });
        for i in 0..100u64 {
            let mut bytes = [0; 8];
            reader.read_blocking(&mut bytes, &within(LONG)).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), i);
        }
    });
    let (waker, stopped) = (reader.waker(), AtomicBool::new(false));
    let stop = || stopped.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| reader.read_blocking(&mut [0; 8], &Limit::new(None).or_until(&stop)));
        std::thread::sleep(SHORT);
        stopped.store(true, Ordering::SeqCst);
        waker.interrupt();
        assert!(matches!(wait.join().unwrap(), Err(FmqError::Stopped)));
    });
}

/// Set for the process that [`elements_cross_between_processes`] starts: the descriptors of its two queues.
const PEER: &str = "NNHAL_TEST_FMQ_PEER";

/// Not a test by itself: echoes, in another process, until it reads a zero.
#[test]
#[ignore = "the other process of elements_cross_between_processes"]
fn peer_process() {
    let Ok(files) = std::env::var(PEER) else { return };
    let queues: Vec<Queue> = files
        .split(',')
        .map(|fd| {
            // SAFETY: the parent left this descriptor open for us, and nobody else here knows of it.
            let file = unsafe { OwnedFd::from_raw_fd(fd.parse().unwrap()) };
            let layout = SharedQueue::create(16, 8).unwrap();
            Queue::attach(&Descriptor { files: vec![file.as_fd()], ..layout.descriptor() }, 8, 16).unwrap()
        })
        .collect();
    let [requests, results] = queues.try_into().unwrap();
    let (mut reader, mut writer) = (Reader::new(requests).unwrap(), Writer::new(results).unwrap());
    loop {
        let mut bytes = [0; 8];
        reader.read_blocking(&mut bytes, &within(LONG)).unwrap();
        writer.write_blocking(&bytes, &within(LONG)).unwrap();
        if bytes == [0; 8] {
            return;
        }
    }
}

#[test]
fn elements_cross_between_processes() {
    let (requests, results) = (SharedQueue::create(16, 8).unwrap(), SharedQueue::create(16, 8).unwrap());
    // Copies without close-on-exec.
    let files = [&requests, &results].map(|q| nix::unistd::dup(q.descriptor().files[0]).unwrap());
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "fmq::queue::tests::peer_process"])
        .env(PEER, format!("{},{}", files[0].as_raw_fd(), files[1].as_raw_fd()))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    drop(files);
    let mut writer = Writer::new(attach(&requests, 8)).unwrap();
    let mut reader = Reader::new(attach(&results, 8)).unwrap();
    for i in (0..5000u64).rev() {
        writer.write_blocking(&i.to_le_bytes(), &within(LONG)).unwrap();
        let mut bytes = [0; 8];
        reader.read_blocking(&mut bytes, &within(LONG)).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), i);
    }
    assert!(child.wait().unwrap().success());
}

/// The memory of a queue as a hostile peer has it.
fn peer_memory(shared: &SharedQueue) -> Arc<Mapping> {
    let file = shared.descriptor().files[0];
    Arc::new(Mapping::new(file, 0, 4096, Access::ReadWrite).unwrap())
}

fn poke(memory: &Arc<Mapping>, offset: usize, bytes: &[u8]) {
    ClientSlice::new(memory.clone(), offset, bytes.len()).unwrap().write(bytes).unwrap();
}

#[test]
fn counters_that_lie_end_the_queue() {
    const RING: u64 = 4 * 8;
    let lies = [1, 7, RING + 8, u64::MAX, u64::MAX - 7, 1 << 63, 8u64.wrapping_neg() - RING];
    for lie in lies {
        let (shared, mut reader, mut writer) = ends(4, 8);
        let memory = peer_memory(&shared);
        poke(&memory, 8, &lie.to_le_bytes());
        let mut bytes = [0; 8];
        assert!(matches!(reader.available(), Err(FmqError::Corrupted(_))), "{lie}");
        assert!(matches!(reader.read(&mut bytes), Err(FmqError::Corrupted(_))), "{lie}");
        let read = reader.read_blocking(&mut bytes, &within(SHORT));
        assert!(matches!(read, Err(FmqError::Corrupted(_))), "{lie}");
        assert!(
            Reader::new(attach(&shared, 8)).is_err() && Writer::new(attach(&shared, 8)).is_err(),
            "{lie}"
        );
        poke(&memory, 0, &lie.to_le_bytes());
        assert!(matches!(writer.write(&bytes), Err(FmqError::Corrupted(_))), "{lie}");
        let written = writer.write_blocking(&bytes, &within(SHORT));
        assert!(matches!(written, Err(FmqError::Corrupted(_))), "{lie}");
    }
}

#[test]
fn the_own_counter_is_not_the_peers_to_move() {
    let (shared, mut reader, mut writer) = ends(4, 1);
    let memory = peer_memory(&shared);
    assert!(writer.write(&[1, 2, 3]).unwrap());
    let mut byte = [0];
    assert!(reader.read(&mut byte).unwrap());
    // The peer of the reader sets it back, that of the writer moves it on.
    poke(&memory, 0, &0u64.to_le_bytes());
    assert!(reader.read(&mut byte).unwrap());
    assert_eq!(byte, [2]);
    poke(&memory, 8, &100u64.to_le_bytes());
    assert!(writer.write(&[4]).unwrap());
    assert!(reader.read(&mut byte).unwrap() && byte == [3]);
    assert!(reader.read(&mut byte).unwrap() && byte == [4]);
}

#[test]
fn counters_near_their_end_do_not_wrap() {
    let (shared, ..) = ends(4, 1);
    let memory = peer_memory(&shared);
    for offset in [0, 8] {
        poke(&memory, offset, &(u64::MAX - 2).to_le_bytes());
    }
    let mut writer = Writer::new(attach(&shared, 1)).unwrap();
    let written = writer.write(&[1, 2, 3, 4]);
    assert!(matches!(written, Err(FmqError::Corrupted(_))), "{written:?}");
}

fn thread_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// Runs `peer`, which plays with the event flag at `word`, while a reader waits for a second.
fn wait_beside(peer: impl Fn(&Arc<Mapping>, &Mapped) + Sync) -> (Duration, Duration) {
    let (shared, mut reader, _writer) = ends(4, 8);
    let (memory, theirs) = (peer_memory(&shared), attach(&shared, 8).memory);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                peer(&memory, &theirs);
            }
        });
        let (began, worked) = (Instant::now(), thread_time());
        let waited = reader.read_blocking(&mut [0; 8], &within(Duration::from_secs(1)));
        let spent = (began.elapsed(), thread_time() - worked);
        over.store(true, Ordering::Relaxed);
        assert!(matches!(waited, Err(FmqError::TimedOut)), "{waited:?}");
        spent
    })
}

/// By libfmq's own loop such a wait never ends, as nothing but a sleep that lasts looks at the clock.
#[test]
fn an_event_flag_in_motion_neither_holds_nor_spins_us() {
    let event_flag = 16 + 4 * 8;
    let mut value = 0u32;
    let (took, worked) = {
        let value = std::sync::Mutex::new(&mut value);
        wait_beside(|memory, _| {
            let mut value = value.lock().unwrap();
            **value = value.wrapping_add(4);
            poke(memory, event_flag, &value.to_le_bytes());
        })
    };
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(worked < took / 3, "{worked:?} of {took:?} spent spinning");
    // Woken again and again, as if there were something.
    let (took, worked) = wait_beside(|_, theirs| event_flag::wake(theirs, NOT_EMPTY).unwrap());
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(worked < took / 3, "{worked:?} of {took:?} spent spinning");
}

/// A peer can move our sleep to a futex of its own, where no wake-up of ours reaches it.
#[test]
fn a_sleep_that_was_moved_away_ends_all_the_same() {
    let (shared, mut reader, _writer) = ends(4, 8);
    let theirs = attach(&shared, 8).memory;
    let elsewhere = 0u32;
    let stopped = AtomicBool::new(false);
    let waker = reader.queue.waker();
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| {
            let stop = || stopped.load(Ordering::SeqCst);
            reader.read_blocking(&mut [0; 8], &Limit::new(None).or_until(&stop))
        });
        std::thread::sleep(SHORT);
        // SAFETY: both words outlive the call, which takes no other memory.
        let moved = unsafe {
            libc::syscall(
                libc::SYS_futex,
                theirs.event_flag_address(),
                libc::FUTEX_REQUEUE,
                0,
                1usize,
                std::ptr::from_ref(&elsewhere),
            )
        };
        assert_eq!(moved, 1, "the sleeper was not moved");
        stopped.store(true, Ordering::SeqCst);
        waker.interrupt();
        let asked = Instant::now();
        assert!(matches!(wait.join().unwrap(), Err(FmqError::Stopped)));
        assert!(asked.elapsed() < LONGEST_SLEEP + LONG / 10);
    });
}

#[test]
fn memory_that_vanishes_ends_the_queue() {
    let layout = SharedQueue::create(4, 8).unwrap();
    let file =
        File::from(nix::sys::memfd::memfd_create(c"unsealed", nix::sys::memfd::MFdFlags::empty()).unwrap());
    file.set_len(4096).unwrap();
    let descriptor = Descriptor { files: vec![file.as_fd()], ..layout.descriptor() };
    let attach = || Queue::attach(&descriptor, 8, 4).unwrap();
    let (mut reader, mut writer) = (Reader::new(attach()).unwrap(), Writer::new(attach()).unwrap());
    assert!(writer.write(&[1; 8]).unwrap());
    file.set_len(0).unwrap();
    let vanished = |e: FmqError| matches!(e, FmqError::Memory(MemoryError::Vanished));
    assert!(vanished(reader.read(&mut [0; 8]).unwrap_err()));
    assert!(vanished(writer.write_blocking(&[2; 8], &within(SHORT)).unwrap_err()));
    assert!(Queue::attach(&descriptor, 8, 4).is_err());
}
