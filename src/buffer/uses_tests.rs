//! Tests that very many arguments in device buffers cost no more than as many others, and pools that no argument names nothing.

use super::*;
use crate::buffer::{BufferHandle, Direction, Plan, Role};
use crate::ops::{NeverInterrupted, OpError};
use crate::tensor::{OperandType, TensorInfo};
use smallvec::smallvec;
use std::sync::atomic::{AtomicUsize, Ordering};

const ME: Owner = Owner { uid: 1000, pid: 7 };
const MODEL: u64 = 1;
const MANY: usize = 100_000;

/// A buffer for these roles.
fn buffer(tracker: &BufferTracker, direction: Direction, indices: std::ops::Range<usize>) -> BufferHandle {
    let info = TensorInfo::new(OperandType::TENSOR_FLOAT32, &[1]);
    let roles = indices.map(|index| Role { model: MODEL, direction, index }).collect();
    tracker.allocate(ME, Plan { info, roles }, Arc::new(|_| Ok(None))).unwrap()
}

fn argument(pool: usize) -> Option<Argument> {
    Some(Argument { pool, offset: 0, length: 0, dims: smallvec![1] })
}

/// Has work stop at a yield point after so many.
struct Stops(AtomicUsize);

impl Interrupt for Stops {
    fn check(&self) -> Result<(), OpError> {
        Ok(())
    }

    fn yield_point(&self) -> Result<(), OpError> {
        let left = |left: usize| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).map_err(|_| OpError::Cancelled)?;
        Ok(())
    }
}

#[test]
fn very_many_arguments_in_device_buffers_are_found_in_short_stretches() {
    const BUFFERS: usize = 1000;
    let tracker = BufferTracker::for_clients_with(1 << 40);
    let inputs = buffer(&tracker, Direction::Input, 0..MANY);
    let outputs: Vec<_> = (0..BUFFERS).map(|i| buffer(&tracker, Direction::Output, i..i + 1)).collect();
    inputs.write().unwrap().commit(smallvec![1]).unwrap();
    let tokens = std::iter::once(&inputs).chain(&outputs).map(|buffer| buffer.token());
    let pools: Vec<_> = tokens.map(|token| RequestPool::Buffer { token }).collect();
    let request = Request { inputs: vec![argument(0); MANY], outputs: (1..=BUFFERS).map(argument).collect() };
    let uses = |interrupt: &dyn Interrupt| Uses::new(&tracker, ME, MODEL, &request, &pools, interrupt);
    let found = uses(&NeverInterrupted).unwrap();
    let mut claims = found.claim(&NeverInterrupted).unwrap();
    // A run asks for each of them.
    assert!((0..MANY).all(|i| claims.input(i).is_some()));
    assert!((0..MANY).all(|i| claims.output(i).is_some() == (i < BUFFERS)));
    drop(claims); // which has the outputs
    for yields in [0, 100, (MANY * USE) >> 16] {
        let stopped = uses(&Stops(yields.into()));
        assert!(matches!(stopped, Err(BufferError::Interrupted(OpError::Cancelled))), "{yields}");
        let stopped = found.claim(&Stops(yields.into()));
        assert!(matches!(stopped, Err(BufferError::Interrupted(OpError::Cancelled))), "{yields}");
    }
}

#[test]
fn tokens_that_no_argument_names_are_not_looked_for() {
    let tracker = BufferTracker::for_clients_with(1 << 32);
    let buffer = buffer(&tracker, Direction::Input, 0..1);
    let mut pools = vec![RequestPool::Buffer { token: buffer.token() }];
    // None of these is there.
    pools.extend((0..MANY).map(|_| RequestPool::Buffer { token: i32::MAX }));
    let named = |pool| {
        let request = Request { inputs: vec![argument(pool)], outputs: Vec::new() };
        Uses::new(&tracker, ME, MODEL, &request, &pools, &NeverInterrupted)
    };
    assert!(named(0).is_ok());
    assert!(matches!(named(1), Err(BufferError::Invalid(_))));
}
