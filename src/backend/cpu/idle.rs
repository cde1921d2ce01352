//! Frames that earlier runs of a program have left, for the next ones: they go when they are not needed for a second.

use super::frame::Frame;
use crate::memory::{note_idle, Keeper};
use crate::scheduler::lend_turn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Frames kept for the next run: more than this many runs at once allocate their own.
const MOST: usize = 4;

/// Of one program, the last used last.
#[derive(Default)]
pub struct IdleFrames(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    frames: Vec<Idle>,
    /// Whether somebody was told that there are some: once, and not at every run.
    is_noted: bool,
}

struct Idle {
    frame: Frame,
    /// Whether it was here when unused ones were freed last.
    is_old: bool,
}

impl IdleFrames {
    pub fn take(&self) -> Option<Frame> {
        self.lock().frames.pop().map(|idle| idle.frame)
    }

    /// Keeps a frame for the next run. It is given back if there are too many already: to free it may take long.
    #[must_use]
    pub fn keep(self: &Arc<Self>, frame: Frame) -> Option<Frame> {
        let mut kept = self.lock();
        if kept.frames.len() >= MOST {
            return Some(frame);
        }
        kept.frames.push(Idle { frame, is_old: false });
        if !std::mem::replace(&mut kept.is_noted, true) {
            drop(kept);
            let keeper: Weak<IdleFrames> = Arc::downgrade(self);
            let is_noted = note_idle(keeper);
            if !is_noted {
                self.lock().is_noted = false;
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Takes out those of which `goes` says so, to be freed without the lock.
    fn without(&mut self, goes: impl FnMut(&mut Idle) -> bool) -> Vec<Idle> {
        self.frames.extract_if(.., goes).collect()
    }
}

impl Keeper for IdleFrames {
    fn free_unused(&self) -> bool {
        let mut kept = self.lock();
        let freed = kept.without(|idle| std::mem::replace(&mut idle.is_old, true));
        kept.is_noted = !kept.frames.is_empty();
        let is_noted = kept.is_noted;
        drop(kept);
        drop(freed);
        is_noted
    }

    fn free_of(&self, client: u32) {
        let freed = self.lock().without(|idle| idle.frame.client == client);
        if !freed.iter().all(|idle| idle.frame.is_freed_at_once()) {
            lend_turn(); // the thread that was refused memory may be computing, or checking
        }
        drop(freed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::MAX_RUN_BYTES;
    use super::super::program::Program;
    use super::super::samples::{compile, f32_info, run, run_by, Build};
    use super::*;
    use crate::backend::{Control, Priority};
    use crate::memory::{Budget, Counted};
    use crate::ops::{NeverInterrupted, OpError, OperationType};
    use crate::scheduler::{Turns, Yield};
    use crate::tensor::{OperandType, TensorInfo};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    const MIB: u64 = 1 << 20;
    /// Of one value between two operations.
    const BETWEEN: u64 = 64 * MIB;

    /// A program of small arguments with a large value between.
    fn program() -> Program {
        let mut b = Build::new();
        let input = b.input(f32_info(&[256, 1]));
        let many = b.constant(TensorInfo::new(OperandType::TENSOR_INT32, &[2]), &[1, 65536]);
        let wide = b.call(OperationType::TILE, 0, &[input, many], f32_info(&[256, 65536]));
        let axis = b.constant(TensorInfo::new(OperandType::TENSOR_INT32, &[1]), &[1]);
        let keep = b.constant(TensorInfo::new(OperandType::BOOL, &[]), &[0u8]);
        let out = b.call(OperationType::REDUCE_MAX, 0, &[wide, axis, keep], f32_info(&[256]));
        compile(&b.finish(out), 2, None)
    }

    #[test]
    fn what_a_run_has_left_goes_while_the_model_lives_and_comes_again() {
        let budget = Budget::new(1024 * MIB);
        let _account = budget.on_account_of(1);
        let program = program();
        let before = budget.private().held_by(1);
        let first = run(&program);
        let until = Instant::now() + Duration::from_secs(30);
        while budget.private().held_by(1) > before {
            assert!(Instant::now() < until, "{} bytes are kept", budget.private().held_by(1) - before);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(run(&program), first);
    }

    #[test]
    fn runs_that_wait_for_a_turn_have_no_frame() {
        // Of one client there is room for two frames, as one that was unused for a while may be on its way back, and not for
        // one of each thread.
        let budget = Budget::new(5 * BETWEEN);
        let _account = budget.on_account_of(1);
        let (program, turns) = (program(), Turns::new(1));
        let first = run(&program);
        std::thread::scope(|scope| {
            let runs = || {
                let _account = budget.on_account_of(1);
                for _ in 0..5 {
                    let turn = turns.take(1, Priority::default(), &Control::default()).unwrap();
                    let control = Control { turn: Some(Arc::new(turn)), ..Control::default() };
                    assert_eq!(run_by(&program, &control), first);
                }
            };
            (0..4).for_each(|_| drop(scope.spawn(runs)));
        });
    }

    #[derive(Debug, Default)]
    struct Lends(AtomicUsize);

    impl Yield for Lends {
        fn pass(&self, _: &Control) -> Result<(), OpError> {
            Ok(())
        }

        fn threads(&self) -> usize {
            1
        }

        fn lend(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_computes_has_no_turn_while_a_large_frame_is_freed() {
        let budget = Budget::new(4 * BETWEEN);
        let _account = budget.on_account_of(1);
        let (program, lends) = (program(), Arc::<Lends>::default());
        let control = Control { turn: Some(lends.clone()), ..Control::default() };
        for lent in [1, 1, 2] {
            run(&program);
            let computes = (lent != lends.0.load(Ordering::Relaxed)).then(|| control.computes());
            assert!(Counted::take((2 * BETWEEN - 8 * MIB) as usize).is_some(), "the frame is in the way");
            drop(computes);
            assert_eq!(lends.0.load(Ordering::Relaxed), lent);
        }
    }

    #[test]
    fn a_frame_too_many_is_given_back_to_who_can_free_it_without_a_turn() {
        let budget = Budget::new(1024 * MIB);
        let _account = budget.on_account_of(1);
        let (program, idle) = (program(), Arc::<IdleFrames>::default());
        let frame = || Frame::new(&program.routines()[0], MAX_RUN_BYTES, &NeverInterrupted).unwrap();
        assert!((0..MOST).all(|_| idle.keep(frame()).is_none()));
        let given_back = idle.keep(frame()).expect("there are too many");
        assert!(given_back.size() >= BETWEEN);
    }

    #[test]
    fn a_client_that_needs_memory_has_what_its_runs_have_left() {
        let budget = Budget::new(4 * BETWEEN);
        let _account = budget.on_account_of(1);
        let program = program();
        let before = budget.private().held_by(1);
        let first = run(&program);
        assert!(budget.private().held_by(1) >= before + BETWEEN, "a frame is kept");
        let needed = Counted::take((2 * BETWEEN - 8 * MIB) as usize);
        assert!(needed.is_some(), "the frame is in the way");
        drop(needed);
        assert_eq!(run(&program), first);
    }
}
