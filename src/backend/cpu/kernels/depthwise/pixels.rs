//! Outputs of 8-bit types out of quads, a few pixels of a block of channels at a time.

use super::super::gemm::Lanes;
use super::layout::{CHANNELS, QUAD, ROWS};
use super::packed::Depthwise;
use super::quads::{Cell, Quads, PIXELS};

/// A block of channels of a row of the output, and what it is made of.
pub struct Row<'a, Q: Quads> {
    pub kernel: &'a Depthwise,
    /// `[group of rows][column]`.
    pub quads: &'a [[Q::Cell; QUAD]],
    pub columns: usize,
    pub block: usize,
    pub to: *mut u8,
    /// Channels of the block.
    pub width: usize,
}

impl<Q: Quads> Row<'_, Q> {
    /// Computes `count` pixels, common shapes by code of their own.
    ///
    /// # Safety
    /// As for [`Self::pixels`].
    #[inline(always)]
    pub unsafe fn pixels_of_shape(&self, count: usize, weights: *const Q::Weight) {
        let (height, window) = (&self.kernel.geometry.height, &self.kernel.geometry.width);
        let groups = height.kernel.div_ceil(ROWS);
        let shape = (groups, window.kernel, window.dilation, window.stride);
        let is_whole = count >= PIXELS && self.width == CHANNELS && self.kernel.weight_zero == 0;
        // SAFETY: the same contract, with which these shapes and no others agree.
        unsafe {
            match (shape, is_whole) {
                ((1, 3, 1, 1), true) => self.pixels(count, (1, 3, 1, 1), true, weights),
                ((1, 3, 1, 2), true) => self.pixels(count, (1, 3, 1, 2), true, weights),
                // With many taps of several pixels written out, sums would not stay in registers.
                ((2.., ..), true) if Q::BESIDE > 1 => self.pixels(count, shape, true, weights),
                ((2, 5, 1, 1), true) => self.pixels(count, (2, 5, 1, 1), true, weights),
                ((2, 5, 1, 2), true) => self.pixels(count, (2, 5, 1, 2), true, weights),
                _ => self.pixels(count, shape, is_whole, weights),
            }
        }
    }

    /// Computes `count` pixels. The numbers of groups and of columns of taps, and how far those and pixels are apart, are
    /// arguments so that common ones are known when this is compiled; so is whether there are sixteen channels, as many pixels
    /// as are made at once, and no zero point of weights.
    ///
    /// # Safety
    /// The machine must have the instruction set of `Q`; the quads must be those of as many pixels, which there must be
    /// at `to`; there must be the `weights` of all taps.
    #[inline(always)]
    unsafe fn pixels(
        &self,
        count: usize,
        (groups, taps, dilation, stride): (usize, usize, usize, usize),
        is_whole: bool,
        weights: *const Q::Weight,
    ) {
        let kernel = self.kernel;
        let channels = kernel.geometry.input.channels * kernel.geometry.multiplier;
        let bias = kernel.bias.elements::<i32>(self.block * CHANNELS, CHANNELS);
        let scales = kernel.scales::<Q>(self.block);
        let quads: *const Q::Cell = self.quads.as_ptr().cast();
        // SAFETY: by contract; there are as many weights, and sixteen sums of bias.
        unsafe {
            let (target, bias) = (Q::V::target(kernel.requant.target), Q::load(bias));
            let last = count.saturating_sub(PIXELS);
            for first in (0..count).step_by(PIXELS) {
                // Where fewer are left, some of those before are made again; where there are no more, the last one is.
                let first = first.min(last);
                let step = |i: usize| if is_whole { i } else { i.min(count - 1) };
                let mut sums = [bias; PIXELS];
                for (beside, sums) in sums.chunks_exact_mut(Q::BESIDE).enumerate() {
                    let pixel = |i: usize| first + step((beside * Q::BESIDE + i).min(PIXELS - 1));
                    let starts: [_; PIXELS] =
                        std::array::from_fn(|i| quads.wrapping_add(pixel(i) * stride * QUAD));
                    for group in 0..groups {
                        for tap in 0..taps {
                            let weights = weights.add((group * taps + tap) * QUAD);
                            let column = group * self.columns + tap * dilation;
                            for (sums, start) in sums.iter_mut().zip(starts) {
                                *sums = Q::add(*sums, start.add(column * QUAD), weights);
                            }
                        }
                    }
                }
                if !is_whole && kernel.weight_zero != 0 {
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let less = self.less_zeros(Q::store(*sums), (first + step(i)) * stride, dilation);
                        *sums = Q::load(less.as_ptr());
                    }
                }
                let bytes = Q::requantise(sums, &scales, target);
                for (i, bytes) in bytes.iter().enumerate() {
                    let to = self.to.wrapping_add((first + step(i)) * channels);
                    if is_whole || self.width == CHANNELS {
                        to.cast::<[u8; CHANNELS]>().write_unaligned(*bytes);
                    } else {
                        libc::memcpy(to.cast(), bytes.as_ptr().cast(), self.width);
                    }
                }
            }
        }
    }

    /// `sums` less what they would have been of weights that are all the weights' zero point.
    #[inline(always)]
    fn less_zeros(&self, mut sums: [i32; CHANNELS], first: usize, dilation: usize) -> [i32; CHANNELS] {
        let geometry = &self.kernel.geometry;
        let mut cells = [0i32; CHANNELS];
        for row in 0..geometry.height.kernel {
            for tap in 0..geometry.width.kernel {
                let quad = &self.quads[row / ROWS * self.columns + first + tap * dilation];
                for (c, sum) in cells.iter_mut().enumerate() {
                    *sum += quad[Q::place(c, row % ROWS)].number();
                }
            }
        }
        for (sum, cells) in sums.iter_mut().zip(cells) {
            *sum = sum.wrapping_sub(cells.wrapping_mul(self.kernel.weight_zero));
        }
        sums
    }
}
