//! What stops a run besides its client: client memory that vanished under it.
//!
//! What a kernel writes to such memory from then on is memory of the driver's, and counts on no account: as much of it as an output has.
//! So the run ends at the next point where it may, and gives that back.

use super::arguments::{failed, Held, Memories};
use crate::backend::{BackendError, Control};
use crate::memory::{losses_of_memory, MemoryError};
use crate::ops::{Interrupt, OpError};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The interrupt of a run over client memories.
pub struct Watch<'a> {
    control: &'a Control,
    memories: &'a Memories,
    /// How many losses there were in all when those memories were last looked at: there are few, and many memories.
    seen: AtomicUsize,
}

impl<'a> Watch<'a> {
    /// For a run of `control` over what it has taken hold of.
    pub fn new(control: &'a Control, held: &Held<'a>) -> Self {
        Watch { control, memories: held.memories(), seen: AtomicUsize::new(held.losses()) }
    }

    fn look(&self) -> Result<(), OpError> {
        let losses = losses_of_memory();
        if losses == self.seen.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.memories.vanished().is_some() {
            return Err(OpError::Cancelled);
        }
        self.seen.store(losses, Ordering::Relaxed);
        Ok(())
    }

    /// Why the run ended that ended for `why`.
    pub fn reason(&self, why: BackendError) -> BackendError {
        match (&why, self.memories.vanished()) {
            (BackendError::Cancelled, Some(name)) => failed(name)(MemoryError::Vanished),
            _ => why,
        }
    }
}

impl Interrupt for Watch<'_> {
    fn check(&self) -> Result<(), OpError> {
        self.look()?;
        self.control.check()
    }

    fn yield_point(&self) -> Result<(), OpError> {
        // Before others compute: it would keep what it has meanwhile.
        self.look().inspect_err(|_| self.before_waiting())?;
        self.control.yield_point()
    }

    fn before_waiting(&self) {
        self.control.before_waiting();
    }
}

#[cfg(test)]
mod tests {
    use super::super::arguments::Bound;
    use super::super::samples::{compile, f32_info, floats, Build};
    use super::*;
    use crate::memory::{Access, ClientSlice, Mapping};
    use crate::ops::OperationType;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::sync::Arc;

    const ELEMENTS: usize = 4096;

    fn file() -> File {
        let fd = nix::sys::memfd::memfd_create(c"watched", nix::sys::memfd::MFdFlags::empty()).unwrap();
        let file = File::from(fd);
        file.set_len(4 * ELEMENTS as u64).unwrap();
        file
    }

    fn bound(file: &File) -> Bound {
        let mapping = Mapping::new(file.as_fd(), 0, 4 * ELEMENTS, Access::ReadWrite).unwrap();
        Bound { data: ClientSlice::whole(Arc::new(mapping)), dims: [ELEMENTS as u32][..].into() }
    }

    #[test]
    fn only_a_loss_among_its_own_memories_ends_a_run() {
        let (files, control) = ([file(), file()], Control::default());
        let [own, other] = files.each_ref().map(bound);
        let outputs = [Some(own.clone())];
        let memories = Memories::of(&[], &outputs);
        let held = Held::new(&[], &outputs, &memories).unwrap();
        let watch = Watch::new(&control, &held);
        let lose = |file: &File, bound: &Bound| {
            file.set_len(0).unwrap();
            assert!(bound.data.write(&[1; 100]).is_err());
        };
        lose(&files[1], &other);
        assert_eq!((watch.check(), watch.yield_point()), (Ok(()), Ok(())));
        assert!(matches!(watch.reason(BackendError::Cancelled), BackendError::Cancelled));
        lose(&files[0], &own);
        assert_eq!(watch.check(), Err(OpError::Cancelled));
        assert_eq!(watch.yield_point(), Err(OpError::Cancelled));
        assert!(matches!(watch.reason(BackendError::DeadlinePassed), BackendError::DeadlinePassed));
        let reason = watch.reason(BackendError::Cancelled);
        assert!(
            matches!(&reason, BackendError::Memory { what, source: MemoryError::Vanished } if what == "output 0"),
            "{reason}"
        );
    }

    #[test]
    fn nothing_is_computed_once_an_output_has_vanished() {
        let (mut b, info) = (Build::new(), f32_info(&[ELEMENTS as u32]));
        let (input, none) = (b.input(info.clone()), b.ints(&[0])[0]);
        let made = [OperationType::ADD, OperationType::MUL]
            .map(|ty| b.call(ty, 0, &[input, input, none], info.clone()));
        let mut model = b.finish(made[0]);
        model.outputs.push(made[1]);
        let program = compile(&model, 1, None);
        let files = [file(), file(), file()];
        let [input, first, second] = files.each_ref().map(|file| Some(bound(file)));
        let values = floats(ELEMENTS, 1.0);
        let input = input.inspect(|input| input.data.write(bytemuck::cast_slice(&values)).unwrap());
        let (inputs, outputs) = ([input], [first, second.clone()]);
        let memories = Memories::of(&inputs, &outputs);
        let held = || Held::new(&inputs, &outputs, &memories).unwrap();
        let run = || program.run(held(), &Control::default());
        let written = || second.as_ref().unwrap().data.to_private().unwrap().iter().any(|&byte| byte != 0);
        run().unwrap();
        assert!(written());
        files[2].set_len(0).unwrap();
        files[2].set_len(4 * ELEMENTS as u64).unwrap();
        files[1].set_len(0).unwrap();
        let ran = run();
        assert!(
            matches!(ran, Err(BackendError::Memory { source: MemoryError::Vanished, .. })),
            "{:?}",
            ran.err()
        );
        assert!(!written(), "the second is not made any more");
    }
}
