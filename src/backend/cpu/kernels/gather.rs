//! GATHER and EMBEDDING_LOOKUP: slices by their indices, which are copied and checked before one is used.

use super::kernel::input;
use super::{Kernel, Work};
use crate::memory::{Target, View};
use crate::ops::{axis_index, by_parts, reserved, Args, OpError, OperationType};
use std::sync::OnceLock;

/// Slices of a task, at most: each may be on a page of its own, touched for the first time.
const MOST_SLICES: usize = 128;
/// Bytes of a slice that are copied in one go.
const SEGMENT: usize = 256 << 10;

/// A kernel for this call, if it is one of a look-up by indices.
pub(super) fn select(ty: OperationType, args: &Args) -> Option<Box<dyn Kernel>> {
    let (values, indices, axis) = match ty {
        OperationType::GATHER => (0, 2, axis_index(args.i32(1).ok()?, args.get(0).ok()?.dims().len()).ok()?),
        OperationType::EMBEDDING_LOOKUP => (1, 0, 0),
        _ => return None,
    };
    let dims = args.get(values).ok()?.dims();
    let slice = crate::tensor::byte_size(args.get(values).ok()?.ty(), &dims[axis + 1..])?;
    let count = args.get(indices).ok()?.count().ok()?;
    let rows = dims[axis] as usize;
    // What is empty or wrong is the plain evaluation's to tell.
    let output = args.output(0).ok()?.byte_size()?;
    (rows > 0 && slice > 0 && count > 0 && output > 0)
        .then(|| Box::new(Gather { values, indices, rows, slice, count }) as Box<dyn Kernel>)
}

struct Gather {
    /// Which inputs.
    values: usize,
    indices: usize,
    /// Slices of a group.
    rows: usize,
    /// Bytes of a slice.
    slice: usize,
    /// How many indices there are.
    count: usize,
}

impl Kernel for Gather {
    fn name(&self) -> String {
        "gather".into()
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let values = inputs.get(self.values).copied().flatten().ok_or(OpError::Unresolved)?;
        let mut indices = reserved(self.count)?;
        let given = input::<i32>(inputs, self.indices)?;
        by_parts(work.interrupt, self.count, |part| {
            given.part(part.start, part.len()).append_to(&mut indices);
            Ok::<_, OpError>(())
        })?;
        let out = outputs.first().ok_or(OpError::Unresolved)?;
        let (slice, rows, wrong) = (self.slice, self.rows, OnceLock::new());
        let (segments, segment) = (slice.div_ceil(SEGMENT), slice.min(SEGMENT));
        let units = out.len() / slice * segments;
        let count = work.units_per_task(units, segment * 100 + 10_000, 2 * segment);
        work.in_parts(units, count.min(MOST_SLICES), |range| {
            for unit in range {
                let (i, first) = match segments {
                    1 => (unit, 0),
                    _ => (unit / segments, unit % segments * SEGMENT),
                };
                let index = indices[i % indices.len()];
                let Some(row) = usize::try_from(index).ok().filter(|&row| row < rows) else {
                    // Any of those that are wrong will do for the message.
                    wrong.get_or_init(|| index);
                    return;
                };
                let len = segment.min(slice - first);
                let from = values.pointer((i / indices.len() * rows + row) * slice + first, len);
                // SAFETY: each segment of the output is written once.
                let mut to = unsafe { out.disjoint_part(i * slice + first, len) };
                // SAFETY: as many bytes of both were asked for; an output is no input.
                unsafe { libc::memcpy(to.pointer(0, len).cast(), from.cast(), len) };
            }
        })?;
        match wrong.get() {
            Some(index) => Err(OpError::failed(format!("index {index} is out of range for {rows}"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::pool::ThreadPool;
    use crate::ops::Interrupt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Stops what comes by for the tenth time.
    #[derive(Default)]
    struct Tenth(AtomicUsize);

    impl Interrupt for Tenth {
        fn check(&self) -> Result<(), OpError> {
            Ok(())
        }

        fn yield_point(&self) -> Result<(), OpError> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0..9 => Ok(()),
                _ => Err(OpError::Cancelled),
            }
        }
    }

    #[test]
    fn indices_are_copied_with_pauses() {
        const COUNT: usize = 2 << 20;
        let kernel = Gather { values: 0, indices: 1, rows: 1, slice: 1, count: COUNT };
        let (indices, mut out) = (vec![0i32; COUNT], vec![0u8; COUNT]);
        let inputs = [Some(View::of(&[1u8][..])), Some(View::of(bytemuck::cast_slice(&indices)))];
        let (pool, interrupt) = (ThreadPool::new(1).unwrap(), Tenth::default());
        let work = Work::new(pool.team(1), &interrupt);
        assert_eq!(kernel.run(&inputs, &mut [Target::of(&mut out)], work), Err(OpError::Cancelled));
        assert!(out.iter().all(|&byte| byte == 0), "all indices are copied before one is used");
    }
}
