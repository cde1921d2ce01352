//! Weights picked out of a filter for a part of a convolution, as a convolution of its own has them.

use crate::memory::{AlignedBuf, View};
use crate::ops::scratch::Scratch;
use crate::ops::{reserved, Interrupt};
use bytemuck::Pod;

/// Which weights of a filter a part has: of each of its columns those of some taps.
pub struct Picked {
    pub columns: Scratch<Column>,
    /// How many elements it is from a column's first tap to each of its taps.
    pub taps: Scratch<usize>,
    /// Weights of a tap.
    pub depth: usize,
}

#[derive(Clone, Copy)]
pub struct Column {
    /// The output channel, which the bias and the scale are of.
    pub channel: usize,
    /// The first element of its first tap.
    pub start: usize,
}

/// Bytes that are moved between two looks whether to stop.
const STRETCH: usize = 1 << 18;

/// Columns and taps of a part: which kernel a call has is settled without a look whether to stop.
const MOST: usize = 1 << 20;

impl Picked {
    /// Room for columns and taps; `None` for too many, and where there is no memory.
    pub fn with_room(columns: usize, taps: usize, depth: usize) -> Option<Self> {
        if columns.max(taps) > MOST {
            return None;
        }
        Some(Picked { columns: reserved(columns).ok()?, taps: reserved(taps).ok()?, depth })
    }

    /// The weights as `[column][tap][input channel]`. `None` where they are not all there, or there is no memory, or it was
    /// told to stop.
    pub fn weights<T: Pod>(&self, filter: View<T>, interrupt: &dyn Interrupt) -> Option<AlignedBuf> {
        let column = self.taps.len().checked_mul(self.depth)?;
        let count = column.checked_mul(self.columns.len())?;
        let mut weights = AlignedBuf::zeroed(count.checked_mul(size_of::<T>())?)?;
        let mut moved = 0;
        let each = bytemuck::cast_slice_mut::<u8, T>(&mut weights).chunks_exact_mut(column);
        for (column, to) in self.columns.iter().zip(each) {
            for (tap, to) in self.taps.iter().zip(to.chunks_exact_mut(self.depth)) {
                let start = column.start.checked_add(*tap)?;
                if filter.len().checked_sub(start)? < self.depth {
                    return None;
                }
                filter.part(start, self.depth).copy_to(to);
                moved += size_of_val(to);
                if moved > STRETCH {
                    moved = 0;
                    interrupt.yield_point().ok()?;
                }
            }
        }
        Some(weights)
    }

    /// Of values that output channels have, those of the columns; `None` where one is missing, or there is no memory.
    pub fn of_channels<T: Copy>(&self, values: &[T]) -> Option<Scratch<T>> {
        let mut picked = reserved(self.columns.len()).ok()?;
        for column in self.columns.iter() {
            picked.push(*values.get(column.channel)?);
        }
        Some(picked)
    }
}
