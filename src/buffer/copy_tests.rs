//! Copies to and from device buffers, of which there may be very much.

use super::tests::{buffer_by, copy_to, memory, on_this_machine, pattern};
use super::*;
use crate::memory::{ClientSlice, DeviceMemory, Mapping, MemoryError, Pool};
use crate::ops::{Interrupt, NeverInterrupted, OpError};
use crate::quota::Quota;
use crate::scheduler::STRETCH;
use crate::tensor::TensorInfo;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Has work stop at its yield point of this number, and counts those before.
struct StopsAt(usize, AtomicUsize);

impl Interrupt for StopsAt {
    fn check(&self) -> Result<(), OpError> {
        Ok(())
    }

    fn yield_point(&self) -> Result<(), OpError> {
        let StopsAt(last, passed) = self;
        if passed.load(Ordering::Relaxed) == *last {
            return Err(OpError::Cancelled);
        }
        passed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Memory of a device that this process may copy from and to.
#[derive(Debug)]
struct Plain(ClientSlice);

impl DeviceMemory for Plain {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self) -> Option<ClientSlice> {
        Some(self.0.clone())
    }

    fn read(&self, _: &ClientSlice) -> Result<(), MemoryError> {
        unreachable!("the driver copies")
    }

    fn write(&self, _: &ClientSlice) -> Result<(), MemoryError> {
        unreachable!("the driver copies")
    }
}

fn of_a_device() -> Allocator {
    Arc::new(|operand| {
        let mapping = Mapping::anonymous(operand.byte_size().unwrap()).unwrap();
        Ok(Some(Arc::new(Plain(ClientSlice::whole(mapping.into())))))
    })
}

#[test]
fn a_long_copy_gives_way_and_can_be_stopped() {
    [on_this_machine(), of_a_device()].into_iter().for_each(copies_give_way);
}

fn copies_give_way(allocator: Allocator) {
    const LEN: usize = 3 * STRETCH + 4;
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let buffer = buffer_by(&tracker, &[LEN as u32 / 4], allocator);
    let (source, stops_at) = (memory(&pattern(LEN)), |last| StopsAt(last, Default::default()));
    let source = Pool::new(&source).unwrap();
    for last in [0, 2, usize::MAX] {
        let stops = stops_at(last);
        let copied = buffer.copy_from(&source, &[], &stops);
        assert_eq!(stops.1.load(Ordering::Relaxed), last.min(3));
        assert_eq!(copied.is_ok(), last == usize::MAX, "{copied:?}");
        // What was copied in part is no value.
        assert_eq!(copy_to(&buffer, LEN).is_ok(), last == usize::MAX);
    }
    let target = memory(&vec![0xee; LEN]);
    let target = Pool::new(&target).unwrap();
    let stops = stops_at(1);
    assert!(matches!(buffer.copy_to(&target, &stops), Err(BufferError::Interrupted(OpError::Cancelled))));
    assert_eq!(stops.1.load(Ordering::Relaxed), 1);
    assert_eq!(copy_to(&buffer, LEN).unwrap(), pattern(LEN), "it is there still");
}

/// Memory of a device that keeps values of one shape only, in a layout of its own.
#[derive(Debug)]
struct Tiled(usize);

impl DeviceMemory for Tiled {
    fn len(&self) -> usize {
        self.0
    }

    fn read(&self, _: &ClientSlice) -> Result<(), MemoryError> {
        Ok(())
    }

    fn write(&self, _: &ClientSlice) -> Result<(), MemoryError> {
        Ok(())
    }
}

#[test]
fn a_value_of_another_size_costs_what_its_memory_takes() {
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let tiled: Allocator = Arc::new(|operand| Ok(Some(Arc::new(Tiled(operand.byte_size().unwrap())))));
    let buffer = buffer_by(&tracker, &[0], tiled);
    let empty = tracker.usage().1;
    for elements in [1000, 10, 500, 1] {
        let bytes = memory(&pattern(4 * elements));
        let dims = [elements as i32];
        buffer.copy_from(&Pool::new(&bytes).unwrap(), &dims, &NeverInterrupted).unwrap();
        assert_eq!(tracker.usage().1, empty + 4 * elements);
    }
}

#[test]
fn memory_of_a_device_costs_its_bytes_and_no_huge_pages() {
    const MIB: usize = 1 << 20;
    let tiled = |operand: &TensorInfo| {
        let size = operand.byte_size().unwrap();
        Ok((size < 2 * MIB).then(|| Arc::new(Tiled(size)) as Arc<dyn DeviceMemory>))
    };
    let tiled: Allocator = Arc::new(tiled);
    // A client that could not have a huge page.
    let tracker = BufferTracker::new(Quota::new(16 * MIB as u64, 3 * MIB as u64 / 2), Quota::new(8, 8));
    let known = buffer_by(&tracker, &[MIB as u32 / 4], tiled.clone());
    assert!(tracker.usage().1 - MIB < 2 * 4096);
    drop(known);
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let buffer = buffer_by(&tracker, &[0], tiled);
    let empty = tracker.usage().1;
    let copy = |bytes: usize| {
        let source = memory(&pattern(bytes));
        buffer.copy_from(&Pool::new(&source).unwrap(), &[bytes as i32 / 4], &NeverInterrupted).unwrap();
        tracker.usage().1 - empty
    };
    assert_eq!(copy(3 * MIB / 2), 3 * MIB / 2);
    assert_eq!(copy(MIB), MIB);
    assert_eq!(copy(3 * MIB), 4 * MIB, "the device gave none");
}

#[test]
fn nobody_waits_for_a_device_that_allocates() {
    let tracker = BufferTracker::for_clients_with(1 << 30);
    let buffer: Arc<OnceLock<Weak<DeviceBuffer>>> = Arc::default();
    let (of_device, (tell, told)) = (buffer.clone(), channel());
    let tell = Mutex::new(tell);
    let allocator: Allocator = Arc::new(move |_| {
        // Another call comes meanwhile.
        let (buffer, (done, answered)) = (of_device.get().and_then(Weak::upgrade).unwrap(), channel());
        std::thread::spawn(move || done.send((buffer.read().is_err(), buffer.write().is_err())));
        tell.lock().unwrap().send(answered.recv_timeout(PATIENCE)).unwrap();
        Ok(None)
    });
    let made = buffer_by(&tracker, &[0], allocator);
    buffer.set(Arc::downgrade(&made)).unwrap();
    made.copy_from(&Pool::new(&memory(&[1; 24])).unwrap(), &[6], &NeverInterrupted).unwrap();
    assert_eq!(told.try_recv(), Ok(Ok((true, true))), "both are refused at once");
    assert_eq!(copy_to(&made, 24).unwrap(), [1; 24]);
}
