//! Panels of a right matrix that only a run brings, packed as products want their weights.

use super::float::Float;
use super::micro::Family;
use super::packed::Folding;
use super::quant::Quant;
use crate::backend::cpu::kernels::vector::Loop;
use crate::memory::View;
use bytemuck::Pod;
use std::ops::Range;

/// Elements along each side of a block that is turned.
const TURNED: usize = 16;

/// Products whose weights can be packed in a run.
pub trait Right: Family<Input: Pod, Weight: Pod + Send + Sync> {
    /// What a column's bias follows from.
    type Fold: Copy + Send + Sync;

    /// Packs a panel, whatever was there before, and settles its biases. What no column or no sum has are zeros.
    fn pack(fold: Self::Fold, panel: Panel<Self>);
}

/// A panel to be packed of some columns of a matrix.
pub struct Panel<'a, F: Family> {
    pub right: View<'a, F::Weight>,
    /// Elements from a column's weight to its next, and from a weight to the next column's.
    pub steps: (usize, usize),
    /// Weights of a column that lie together.
    pub group: usize,
    pub depth: usize,
    pub columns: Range<usize>,
    pub to: &'a mut [F::Weight],
    pub bias: &'a mut [F::Bias],
}

impl Right for Float {
    type Fold = ();

    #[inline(always)]
    fn pack((): (), panel: Panel<Self>) {
        let Panel { right, steps: (down, across), depth, columns, to, bias, .. } = panel;
        let (width, count) = (to.len() / depth, columns.len());
        bias.fill(0.0);
        let first = columns.start * across;
        if count < width {
            to.fill(0.0);
        }
        if across == 1 {
            for (i, to) in to.chunks_exact_mut(width).enumerate() {
                let from = right.pointer(first + i * down, count);
                // SAFETY: `count` elements were asked for.
                let at = |c: usize| unsafe { from.add(c).read_unaligned() };
                to[..count].iter_mut().enumerate().for_each(|(c, to)| *to = at(c));
            }
            return;
        }
        for (block, to) in to.chunks_mut(TURNED * width).enumerate() {
            let rows = to.len() / width;
            for c in 0..count {
                let from = right.pointer(first + c * across + block * TURNED, rows);
                for (i, to) in to.chunks_exact_mut(width).enumerate() {
                    // SAFETY: as many elements were asked for.
                    to[c] = unsafe { from.add(i).read_unaligned() };
                }
            }
        }
    }
}

impl Right for Quant {
    type Fold = Folding;

    #[inline(always)]
    fn pack(fold: Folding, panel: Panel<Self>) {
        match panel.group {
            1 => in_groups::<1>(fold, panel),
            2 => in_groups::<2>(fold, panel),
            4 => in_groups::<4>(fold, panel),
            8 => in_groups::<8>(fold, panel),
            other => unreachable!("groups of {other} weights"),
        }
    }
}

/// Packs a panel of bytes in groups of `G`.
#[inline(always)]
fn in_groups<const G: usize>(fold: Folding, panel: Panel<Quant>) {
    let Panel { right, steps: (down, across), depth, columns, to, bias, .. } = panel;
    let (width, count) = (bias.len(), columns.len());
    let first = columns.start * across;
    bias.fill(0);
    match count < width {
        true => to.fill(0),
        false => to[depth / G * G * width..].fill(0),
    }
    for (i, group) in to.chunks_exact_mut(width * G).enumerate().take(depth.div_ceil(G)) {
        let weights = (depth - i * G).min(G);
        for w in 0..weights {
            let from = right.pointer(first + (i * G + w) * down, (count - 1) * across + 1);
            for c in 0..count {
                // SAFETY: all elements from the first column's to the last one's were asked for.
                let weight = unsafe { from.add(c * across).read() };
                group[c * G + w] = weight ^ fold.flip;
                bias[c] = bias[c].wrapping_add(fold.number(weight));
            }
        }
    }
    bias.iter_mut().for_each(|bias| *bias = fold.bias(*bias, 0));
}

/// The packing of a panel, as a loop to be compiled for each level.
pub struct Packing<'a, F: Right> {
    pub fold: F::Fold,
    pub panel: Panel<'a, F>,
}

impl<F: Right> Loop for Packing<'_, F> {
    #[inline(always)]
    fn run(self) {
        F::pack(self.fold, self.panel);
    }
}
