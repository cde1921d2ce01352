//! Both ends of a burst: the driver's with an executor of its own, and clients good and bad.

use super::{Channels, Controller};
use crate::fmq::codec::{Argument, OutputShape, RequestPacket, ResultPacket, QUANTUM};
use crate::fmq::{Burst, Executor, Limit, Queue, Reader, SharedQueue, Writer};
use crate::memory::{Access, ClientSlice, Mapping, Memory};
use crate::scheduler::{Poller, PollingBudget, Stop};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

/// Answers with the length of each memory as the output's dimensions, and keeps a record.
#[derive(Clone, Default)]
struct Echo {
    asked: Arc<Mutex<Vec<Vec<i32>>>>,
    executed: Arc<AtomicUsize>,
    running: Arc<AtomicBool>,
}

/// Slots with a meaning of their own.
const PANIC: i32 = -1;
const HANG: i32 = -2;
const MANY_SHAPES: i32 = -3;

impl Executor for Echo {
    fn memories(&self, slots: &[i32]) -> Result<Vec<Memory>, String> {
        lock(&self.asked).push(slots.to_vec());
        let map = |slot: &i32| Mapping::anonymous(slot.unsigned_abs() as usize);
        slots
            .iter()
            .map(|slot| map(slot).map(|m| Memory::Mapped(Arc::new(m))).map_err(|e| e.to_string()))
            .collect()
    }

    fn execute(&self, request: &RequestPacket, memories: &[Memory], cancelled: &Arc<Stop>) -> ResultPacket {
        self.executed.fetch_add(1, Ordering::SeqCst);
        assert!(!request.slots.contains(&PANIC));
        self.running.store(true, Ordering::SeqCst);
        while request.slots.contains(&HANG) && !cancelled.is_set() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let dims: Vec<u32> = memories.iter().map(|memory| memory.len() as u32).collect();
        let count = if request.slots.contains(&MANY_SHAPES) { 2000 } else { 1 };
        ResultPacket {
            status: 0,
            shapes: vec![OutputShape { sufficient: true, dims }; count],
            timing: (1, 2),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

struct Rig {
    echo: Echo,
    channels: Channels,
    burst: Burst,
    controller: Controller,
}

fn rig(budget: Option<Arc<PollingBudget>>) -> Rig {
    let (echo, channels) = (Echo::default(), Channels::create().unwrap());
    let attach = |queue: &SharedQueue| Queue::attach(&queue.descriptor(), QUANTUM, 1024).unwrap();
    let requests = Reader::new(attach(&channels.requests)).unwrap();
    let results = Writer::new(attach(&channels.results)).unwrap();
    let burst = Burst::start(requests, results, Box::new(echo.clone()), Poller::new(budget)).unwrap();
    let controller = Controller::new(&channels, Duration::ZERO).unwrap();
    Rig { echo, channels, burst, controller }
}

impl Rig {
    fn run(&mut self, slots: &[i32]) -> ResultPacket {
        let limit = Limit::new(Some(LONG));
        self.controller.execute(&request(slots), &limit).unwrap()
    }

    /// Whether the thread has ended: it drops its executor then.
    fn ended(&self) -> bool {
        Arc::strong_count(&self.echo.executed) == 1
    }

    #[track_caller]
    fn assert_ends(&self, within: Duration) {
        let began = Instant::now();
        while !self.ended() {
            assert!(began.elapsed() < within, "the thread is still there after {within:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn request(slots: &[i32]) -> RequestPacket {
    let input = Argument { length: 4, ..Default::default() };
    RequestPacket { inputs: vec![input], outputs: vec![], slots: slots.to_vec(), measure: true }
}

#[test]
fn requests_are_answered_and_memories_asked_for_once() {
    for budget in [None, Some(PollingBudget::new(1))] {
        let mut rig = rig(budget);
        for _ in 0..1000 {
            let result = rig.run(&[30, 10, 30]);
            let shapes = vec![OutputShape { sufficient: true, dims: vec![30, 10, 30] }];
            assert_eq!(result, ResultPacket { status: 0, shapes, timing: (1, 2) });
        }
        rig.run(&[5, 10]);
        assert!(rig.burst.free_memory(10) && !rig.burst.free_memory(99));
        rig.run(&[10, 5]);
        assert_eq!(*lock(&rig.echo.asked), [vec![10, 30], vec![5], vec![10]]);
    }
}

#[test]
fn ill_formed_packets_are_answered_with_failure_and_nothing_else() {
    let mut rig = rig(None);
    let attach = Queue::attach(&rig.channels.requests.descriptor(), QUANTUM, 1024).unwrap();
    let limit = Limit::new(Some(LONG));
    let good = request(&[3]).encode();
    let mut wrong_size = good.clone();
    wrong_size[4] += 1;
    let mut writer = Writer::new(attach).unwrap();
    for packet in [vec![0; QUANTUM], vec![0xff; 10 * QUANTUM], good[QUANTUM..].to_vec(), wrong_size] {
        writer.write_blocking(&packet, &limit).unwrap();
        assert_eq!(rig.controller.receive(&limit).unwrap(), ResultPacket::failure());
    }
    assert_eq!(rig.echo.executed.load(Ordering::SeqCst), 0);
    writer.write_blocking(&good, &limit).unwrap();
    assert_eq!(rig.controller.receive(&limit).unwrap().status, 0);
}

#[test]
fn a_panic_and_a_result_too_long_are_failures_of_one_request() {
    let mut rig = rig(None);
    assert_eq!(rig.run(&[PANIC]), ResultPacket::failure());
    assert_eq!(rig.run(&[MANY_SHAPES]), ResultPacket::failure());
    assert_eq!(rig.run(&[7]).status, 0);
}

#[test]
fn it_ends_when_dropped_asleep_at_work_or_polling() {
    for (budget, slots) in [(None, vec![]), (Some(PollingBudget::new(1)), vec![]), (None, vec![HANG])] {
        let mut rig = rig(budget);
        if !slots.is_empty() {
            rig.controller.send(&request(&slots), &Limit::new(Some(LONG))).unwrap();
            while !rig.echo.running.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        } else {
            rig.run(&[1]);
        }
        let Rig { burst, .. } = &rig;
        burst.stop();
        rig.assert_ends(Duration::from_millis(1500));
        let executed = rig.echo.executed.load(Ordering::SeqCst);
        let _ = rig.controller.execute(&request(&[1]), &Limit::new(Some(Duration::from_millis(50))));
        assert_eq!(rig.echo.executed.load(Ordering::SeqCst), executed, "somebody is still there");
    }
}

#[test]
fn a_client_that_never_reads_is_dropped() {
    let mut rig = rig(None);
    let limit = Limit::new(Some(Duration::from_secs(1)));
    let began = Instant::now();
    // A result has three datums: they fill their channel long before the requests do.
    while rig.controller.send(&request(&[2]), &limit).is_ok() {
        assert!(began.elapsed() < LONG, "requests are taken for ever");
    }
    rig.assert_ends(LONG / 2); // the driver waits a quarter of LONG
    assert!(!rig.burst.free_memory(2), "its memories are still mapped");
}

#[test]
fn a_client_that_lies_is_dropped() {
    let mut rig = rig(None);
    rig.run(&[2]);
    let file = rig.channels.requests.descriptor().files[0];
    let memory = Mapping::new(file, 0, 64, Access::ReadWrite).unwrap();
    let counter = ClientSlice::new(Arc::new(memory), 8, 8).unwrap();
    counter.write(&u64::MAX.to_ne_bytes()).unwrap();
    // It looks when it is woken, or by itself before long.
    rig.assert_ends(LONG / 2);
}

/// Bytes at random places, counters and event flag included, for some thousand rounds: it ends or goes on, no more.
#[test]
fn random_scribbling_does_no_harm() {
    let mut random = 0x1234_5678_9abc_def1u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..20 {
        let mut rig = rig(Some(PollingBudget::new(1)));
        for queue in [&rig.channels.requests, &rig.channels.results] {
            let memory = Mapping::new(queue.descriptor().files[0], 0, 4096, Access::ReadWrite);
            let memory = Arc::new(memory.unwrap());
            for _ in 0..50 {
                let (place, value) = (next() as usize % 64, next() as u8);
                let byte = ClientSlice::new(memory.clone(), place, 1).unwrap();
                byte.write(&[value % 3]).unwrap();
                let limit = Limit::new(Some(Duration::from_millis(1)));
                let _ = rig.controller.execute(&request(&[2]), &limit);
            }
        }
        rig.burst.stop();
        rig.assert_ends(LONG);
    }
}

/// Prints how long a round trip takes, asleep and polling.
#[test]
#[ignore = "a benchmark"]
fn round_trips() {
    for (what, budget) in [("asleep", None), ("polling", Some(PollingBudget::new(1)))] {
        let mut rig = rig(budget);
        let mut times: Vec<Duration> = (0..20_000)
            .map(|_| {
                let began = Instant::now();
                rig.run(&[1]);
                began.elapsed()
            })
            .collect();
        times.sort_unstable();
        println!("{what}: median {:?}, p99 {:?}", times[10_000], times[19_800]);
    }
}
