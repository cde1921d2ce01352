//! Floats: neighbouring outputs side by side, so that a weight is read once for all of them.

use super::super::conv::PACKED_INPUTS;
use super::super::dispatch::dispatch;
use super::super::isa::Isa;
use super::super::kernel::{elements, input, output, ByRows, Lines};
use super::super::simd::Simd;
use super::super::{Kernel, Source, Work};
use super::rows::Rows;
use super::strips::{for_each_strip, Strip};
use crate::memory::{Target, View, Weights};
use crate::ops::conv::DepthwiseGeometry;
use crate::ops::{Args, OpError};
use std::ops::Range;

pub(super) fn select(
    isa: Isa,
    geometry: DepthwiseGeometry,
    args: &Args,
    source: &mut Source,
) -> Option<Box<dyn Kernel>> {
    let (filter, bias) = (args.get(1).ok()?, args.get(2).ok()?);
    let channels = geometry.input.channels * geometry.multiplier;
    let copy = |to: &mut [f32], from: &[f32]| (to.len() == from.len()).then(|| to.copy_from_slice(from));
    Some(Box::new(Depthwise {
        isa,
        geometry,
        weights: source.take(geometry.filter_len(), |to| copy(to, filter.elements().ok()?))?,
        bias: source.take(channels, |to| copy(to, bias.elements().ok()?))?,
    }))
}

struct Depthwise {
    isa: Isa,
    geometry: DepthwiseGeometry,
    /// `[tap][channel]`.
    weights: Weights,
    /// Per channel.
    bias: Weights,
}

impl Kernel for Depthwise {
    fn name(&self) -> String {
        format!("depthwise {} float", self.isa.vectors())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (input, out) = (input::<f32>(inputs, 0)?, output::<f32>(outputs, 0)?);
        for_each_strip(work, &self.geometry, out, (self.cost(), 1), |strip| {
            make(self.isa, self, Lines::all(input), strip);
        })
    }

    fn weights(&self) -> Vec<&Weights> {
        vec![&self.weights, &self.bias]
    }

    fn packed_inputs(&self) -> &'static [usize] {
        PACKED_INPUTS
    }

    fn by_rows(&self) -> Option<&dyn ByRows> {
        Some(self)
    }
}

impl ByRows for Depthwise {
    fn reads(&self, rows: Range<usize>) -> Range<usize> {
        self.geometry.height.cells_under(rows)
    }

    fn cost(&self) -> usize {
        let taps = self.geometry.height.kernel * self.geometry.width.kernel;
        let channels = self.geometry.input.channels * self.geometry.multiplier;
        channels.saturating_mul(taps.saturating_mul(60).saturating_add(200))
    }

    fn run_rows(&self, input: Lines<u8>, rows: Range<usize>, mut out: Target<u8>) -> Result<(), OpError> {
        let (geometry, mut out) = (&self.geometry, elements(&mut out)?);
        let channels = geometry.input.channels * geometry.multiplier;
        make(
            self.isa,
            self,
            input.of()?,
            Strip::whole(&mut out, rows.start * geometry.width.output, channels),
        );
        Ok(())
    }
}

dispatch! {
    /// Computes a strip.
    fn make => make_with(kernel: &Depthwise, input: Lines<f32>, strip: Strip<f32>)
}

/// # Safety
/// The machine must have the instruction set of `S`.
#[inline(always)]
unsafe fn make_with<S: Simd>(kernel: &Depthwise, input: Lines<f32>, strip: Strip<f32>) {
    let geometry = &kernel.geometry;
    let (width, channels) = (geometry.width.output, geometry.input.channels * geometry.multiplier);
    let weights = kernel.weights.elements::<f32>(0, geometry.filter_len());
    let bias = kernel.bias.elements::<f32>(0, channels);
    let mut rows = Rows::new(geometry, input);
    let mut lines = Vec::with_capacity(geometry.height.kernel);
    let Range { start: mut pixel, end } = strip.pixels;
    while pixel < end {
        let (row, x) = (pixel / width, pixel % width);
        let count = (width - x).min(end - pixel);
        rows.select(row);
        lines.clear();
        for tap in 0..geometry.height.kernel {
            if let Some(line) = rows.row(tap) {
                // SAFETY: `tap` is one of the filter's rows.
                lines.push((line, unsafe { weights.add(tap * geometry.width.kernel * channels) }));
            }
        }
        let to = strip.at(pixel, count);
        let line = Line { geometry, channels, made: strip.channels.clone(), lines: &lines, bias };
        // SAFETY: the lines are whole rows of the input, their weights whole rows of the filter, bias has all channels,
        // and there are `count` pixels at `to`.
        unsafe { line.pixels::<S>(x, count, to) };
        pixel += count;
    }
}

/// What a row of the output is made of.
struct Line<'a> {
    geometry: &'a DepthwiseGeometry,
    /// Of the output.
    channels: usize,
    /// Those that are made.
    made: Range<usize>,
    /// Rows of the input under rows of taps, and their weights.
    lines: &'a [(*const f32, *const f32)],
    bias: *const f32,
}

impl Line<'_> {
    /// Computes `count` pixels from column `x` on.
    ///
    /// # Safety
    /// The machine must have the instruction set of `S`; pointers must be those of a row.
    #[inline(always)]
    unsafe fn pixels<S: Simd>(&self, x: usize, count: usize, to: *mut f32) {
        let window = &self.geometry.width;
        let mut done = 0;
        while done < count {
            let taps = window.taps(x + done);
            // Neighbours whose taps all fall on the input go together.
            let alike = |n: usize| {
                n <= count - done
                    && taps.len() == window.kernel
                    && window.taps(x + done + n - 1).len() == window.kernel
            };
            let to = to.wrapping_add(done * self.channels);
            // SAFETY: by contract, as many pixels are left.
            done += unsafe {
                if alike(8) && !(S::LOADS_APART && self.geometry.width.stride > 1) {
                    self.together::<S, 8>(x + done, taps, to)
                } else if alike(4) {
                    self.together::<S, 4>(x + done, taps, to)
                } else if alike(2) {
                    self.together::<S, 2>(x + done, taps, to)
                } else {
                    self.together::<S, 1>(x + done, taps, to)
                }
            };
        }
    }

    /// Computes `N` pixels from column `x` on, which have the same taps; gives `N`.
    ///
    /// # Safety
    /// As for [`Self::pixels`].
    #[inline(always)]
    unsafe fn together<S: Simd, const N: usize>(&self, x: usize, taps: Range<usize>, to: *mut f32) -> usize {
        let (window, channels) = (&self.geometry.width, self.channels);
        let (lo, hi) = self.geometry.activation.float_range();
        let step = window.stride * channels;
        // The cell of the first tap, and how far the next tap's is.
        let cell = if taps.is_empty() { 0 } else { window.cell(x, taps.start) * channels };
        let next = window.dilation * channels;
        let shares = S::LOADS_APART && taps.len() == 3 && window.dilation == 1;
        let Range { start: first, end } = self.made;
        let vectors = end - (end - first) % S::LANES;
        for c in (first..vectors).step_by(S::LANES) {
            // SAFETY: by contract; a vector of channels is left.
            unsafe {
                let mut sums = [S::load(self.bias.add(c)); N];
                for &(line, weights) in self.lines {
                    let mut from = line.wrapping_add(cell + c);
                    match window.stride {
                        1 if shares => {
                            add_three::<S, N, 1>(
                                &mut sums,
                                from,
                                weights.add(taps.start * channels + c),
                                channels,
                            );
                            continue;
                        }
                        2 if shares && N <= 4 => {
                            add_three::<S, N, 2>(
                                &mut sums,
                                from,
                                weights.add(taps.start * channels + c),
                                channels,
                            );
                            continue;
                        }
                        _ => {}
                    }
                    for tap in taps.clone() {
                        let weight = S::load(weights.add(tap * channels + c));
                        for (n, sum) in sums.iter_mut().enumerate() {
                            *sum = S::mul_add(S::load(from.wrapping_add(n * step)), weight, *sum);
                        }
                        from = from.wrapping_add(next);
                    }
                }
                let (lo, hi) = (S::splat(lo), S::splat(hi));
                for (n, &sum) in sums.iter().enumerate() {
                    S::store(to.add(n * channels + c), S::clamp(sum, lo, hi));
                }
            }
        }
        for c in vectors..end {
            for n in 0..N {
                // SAFETY: as above, for one element.
                unsafe {
                    let mut sum = self.bias.add(c).read();
                    for &(line, weights) in self.lines {
                        for (i, tap) in taps.clone().enumerate() {
                            let x = line.wrapping_add(cell + c + i * next + n * step).read_unaligned();
                            sum += x * weights.add(tap * channels + c).read();
                        }
                    }
                    to.add(n * channels + c).write_unaligned(self.geometry.activation.apply(sum));
                }
            }
        }
        N
    }
}

/// Adds a row of three taps to the sums of neighbours that are `STRIDE` cells apart: each cell is loaded once for all sums
/// that it is part of.
///
/// # Safety
/// The machine must have the instruction set of `S`; there must be the cells of all neighbours, and three weights.
#[inline(always)]
unsafe fn add_three<S: Simd, const N: usize, const STRIDE: usize>(
    sums: &mut [S::F; N],
    from: *const f32,
    weights: *const f32,
    channels: usize,
) {
    /// What eight neighbours have, or four that are two cells apart.
    const MOST: usize = 10;
    // SAFETY: by contract.
    unsafe {
        let mut cells = [S::load(from); MOST];
        for (i, cell) in cells.iter_mut().enumerate().take((N - 1) * STRIDE + 3) {
            *cell = S::load(from.wrapping_add(i * channels));
        }
        for tap in 0..3 {
            let weight = S::load(weights.add(tap * channels));
            for (n, sum) in sums.iter_mut().enumerate() {
                *sum = S::mul_add(cells[n * STRIDE + tap], weight, *sum);
            }
        }
    }
}
