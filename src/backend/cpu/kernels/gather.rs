//! GATHER and EMBEDDING_LOOKUP: slices by their indices, which are copied and checked before one is used.

use super::kernel::input;
use super::{Kernel, Work};
use crate::memory::{Target, View};
use crate::ops::{axis_index, reserved, Args, OpError, OperationType};
use std::sync::OnceLock;

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
        input::<i32>(inputs, self.indices)?.part(0, self.count).append_to(&mut indices);
        let out = outputs.first().ok_or(OpError::Unresolved)?;
        let (slice, rows, wrong) = (self.slice, self.rows, OnceLock::new());
        let (segments, segment) = (slice.div_ceil(SEGMENT), slice.min(SEGMENT));
        let units = out.len() / slice * segments;
        let count = work.units_per_task(units, segment * 100 + 10_000, 2 * segment);
        work.in_parts(units, count, |range| {
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
