//! The queue's own code over a memory whose every interleaving is tried, with the weak ordering that hardware allows.
//!
//! Finds lost wake-ups (as deadlocks), elements read before they are written or overwritten before they are read (as
//! races on a cell of the ring), and anything out of order.

use super::event_flag::FlagWord;
use super::mapped::{Counter, Memory};
use super::queue::{Limit, Queue, Reader, Writer};
use super::FmqError;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

struct Model {
    read: AtomicU64,
    write: AtomicU64,
    ring: Vec<UnsafeCell<u8>>,
    word: AtomicU32,
    futex: Mutex<()>,
    sleepers: Condvar,
    /// A faulty variant of the memory, that the model must find out.
    fault: Fault,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Counters are stored without making what was done before visible.
    NoRelease,
    /// The futex sleeps without looking at the word.
    SleepsAnyway,
}

impl Model {
    #[allow(clippy::arc_with_non_send_sync)] // the checker below runs its threads one at a time
    fn new(elements: usize, fault: Fault) -> Arc<Model> {
        Arc::new(Model {
            read: AtomicU64::new(0),
            write: AtomicU64::new(0),
            ring: (0..elements).map(|_| UnsafeCell::new(0)).collect(),
            word: AtomicU32::new(0),
            futex: Mutex::new(()),
            sleepers: Condvar::new(),
            fault,
        })
    }

    fn counter(&self, counter: Counter) -> &AtomicU64 {
        match counter {
            Counter::Read => &self.read,
            Counter::Write => &self.write,
        }
    }
}

impl FlagWord for Model {
    fn set(&self, bits: u32) -> Result<u32, FmqError> {
        Ok(self.word.fetch_or(bits, Ordering::SeqCst))
    }

    fn clear(&self, bits: u32) -> Result<u32, FmqError> {
        Ok(self.word.fetch_and(!bits, Ordering::SeqCst))
    }

    fn sleep(&self, expected: u32, _: u32, _: Duration) -> Result<(), FmqError> {
        // As in the kernel: looking at the word and falling asleep are one.
        let guard = self.futex.lock().unwrap();
        if self.fault == Fault::SleepsAnyway || self.word.load(Ordering::SeqCst) == expected {
            drop(self.sleepers.wait(guard).unwrap());
        }
        Ok(())
    }

    fn rouse(&self, _: u32) -> Result<(), FmqError> {
        let _guard = self.futex.lock().unwrap();
        self.sleepers.notify_all();
        Ok(())
    }
}

impl Memory for Model {
    fn load(&self, counter: Counter) -> Result<u64, FmqError> {
        Ok(self.counter(counter).load(Ordering::Acquire))
    }

    fn store(&self, counter: Counter, value: u64) -> Result<(), FmqError> {
        let order = if self.fault == Fault::NoRelease { Ordering::Relaxed } else { Ordering::Release };
        self.counter(counter).store(value, order);
        Ok(())
    }

    fn ring(&self) -> usize {
        self.ring.len()
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), FmqError> {
        for (cell, byte) in self.ring[offset..].iter().zip(to) {
            // SAFETY: the cell outlives the closure; loom reports any access at the same time.
            cell.with(|cell| *byte = unsafe { *cell });
        }
        Ok(())
    }

    fn write(&self, offset: usize, from: &[u8]) -> Result<(), FmqError> {
        for (cell, byte) in self.ring[offset..].iter().zip(from) {
            // SAFETY: as above.
            cell.with_mut(|cell| unsafe { *cell = *byte });
        }
        Ok(())
    }
}

/// Sends `count` elements through a ring of `elements`, in every interleaving of up to `switches` forced switches.
fn explore(elements: usize, count: u8, batch: usize, switches: usize, fault: Fault) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(move || {
        let memory = Model::new(elements, fault);
        let mut writer = Writer::new(Queue::over(memory.clone(), 1)).unwrap();
        let mut reader = Reader::new(Queue::over(memory, 1)).unwrap();
        let sender = loom::thread::spawn(move || {
            for i in 0..count {
                writer.write_blocking(&[i + 1], &Limit::new(None)).unwrap();
            }
        });
        let mut received = vec![0; count.into()];
        for part in received.chunks_mut(batch) {
            reader.read_blocking(part, &Limit::new(None)).unwrap();
        }
        sender.join().unwrap();
        assert_eq!(received, (1..=count).collect::<Vec<_>>());
        assert_eq!(reader.available().unwrap(), 0);
    });
}

#[test]
#[ignore = "run in a process of its own by the_model_holds"]
fn model() {
    explore(1, 2, 1, 3, Fault::None);
    explore(1, 3, 1, 2, Fault::None);
    explore(2, 3, 1, 3, Fault::None);
    explore(2, 4, 2, 2, Fault::None);
}

#[test]
#[ignore = "run in a process of its own by the_model_holds"]
fn model_without_release() {
    explore(1, 2, 1, 3, Fault::NoRelease);
}

#[test]
#[ignore = "run in a process of its own by the_model_holds"]
fn model_that_sleeps_anyway() {
    explore(1, 2, 1, 3, Fault::SleepsAnyway);
}

/// loom's panic hook aborts on panics outside of it, of which other tests have some: so it gets processes of its own.
#[test]
fn the_model_holds_and_finds_faults() {
    let run = |name: &str| {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", &format!("fmq::model_tests::{name}")])
            .output()
            .unwrap()
    };
    let whole = run("model");
    let text = String::from_utf8_lossy(&whole.stdout);
    assert!(whole.status.success() && text.contains("1 passed"), "{text}");
    for (fault, finding) in
        [("model_without_release", "Causality violation"), ("model_that_sleeps_anyway", "deadlock")]
    {
        let found = run(fault);
        let text = [found.stdout, found.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(!found.status.success() && text.contains(finding), "{fault}: {text}");
    }
}
