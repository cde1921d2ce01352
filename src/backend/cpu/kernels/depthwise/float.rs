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
use crate::ops::pace::Pace;
use crate::ops::{copy, Args, OpError};
use std::ops::Range;

/// `channels_first`: whether the filter has all taps of a channel before the next one's.
pub(super) fn select(
    isa: Isa,
    geometry: DepthwiseGeometry,
    channels_first: bool,
    args: &Args,
    source: &mut Source,
) -> Option<Box<dyn Kernel>> {
    let (filter, bias) = (args.get(1).ok()?, args.get(2).ok()?);
    let channels = geometry.input.channels * geometry.multiplier;
    let copy = |to: &mut [f32], from: &[f32]| {
        copy(args.interrupt, bytemuck::cast_slice_mut(to), bytemuck::cast_slice(from)).ok()
    };
    let transpose = |to: &mut [f32], from: &[f32]| {
        let (taps, mut pace) = (geometry.height.kernel * geometry.width.kernel, Pace::new(args));
        if to.len() != from.len() {
            return None;
        }
        for (channel, weights) in from.chunks_exact(taps).enumerate() {
            pace.spend(taps).ok()?;
            weights.iter().enumerate().for_each(|(tap, &weight)| to[tap * channels + channel] = weight);
        }
        Some(())
    };
    Some(Box::new(Depthwise {
        isa,
        geometry,
        weights: source.take(geometry.filter_len(), |to| match channels_first {
            true => transpose(to, filter.elements().ok()?),
            false => copy(to, filter.elements().ok()?),
        })?,
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

    fn goes_on(&self) -> Option<usize> {
        Some(1)
    }
}

impl ByRows for Depthwise {
    fn reads(&self, rows: Range<usize>) -> Range<usize> {
        self.geometry.height.cells_under(rows)
    }

    fn cost(&self) -> usize {
        let taps = self.geometry.height.kernel * self.geometry.width.kernel;
        let channels = self.geometry.input.channels * self.geometry.multiplier;
        channels.saturating_mul(taps.saturating_mul(30).saturating_add(100))
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
    let step = together(&kernel.geometry, strip.channels.len(), S::LANES);
    for first in strip.channels.clone().step_by(step) {
        let made = first..strip.channels.end.min(first + step);
        // SAFETY: by contract.
        unsafe { make_channels::<S>(kernel, input, &strip, made) };
    }
}

/// How many of some channels are made of all rows before others are: as many as have the rows under an output in the nearest
/// cache, unless those are so few that what is read of a pixel is little.
fn together(geometry: &DepthwiseGeometry, channels: usize, lanes: usize) -> usize {
    const NEAREST: usize = 24 << 10;
    const FEWEST: usize = 48;
    let each = geometry.height.kernel * geometry.width.input * size_of::<f32>();
    let most = NEAREST / each.max(1);
    if most < FEWEST || geometry.multiplier > 1 {
        return channels.max(1);
    }
    channels.div_ceil(channels.div_ceil(most).max(1)).next_multiple_of(lanes).max(lanes)
}

/// Computes some channels of a strip.
///
/// # Safety
/// The machine must have the instruction set of `S`.
#[inline(always)]
unsafe fn make_channels<S: Simd>(
    kernel: &Depthwise,
    input: Lines<f32>,
    strip: &Strip<f32>,
    made: Range<usize>,
) {
    let geometry = &kernel.geometry;
    let (width, channels) = (geometry.width.output, geometry.input.channels * geometry.multiplier);
    let weights = kernel.weights.elements::<f32>(0, geometry.filter_len());
    let bias = kernel.bias.elements::<f32>(0, channels);
    let mut rows = Rows::new(geometry, input);
    let mut lines = Vec::with_capacity(geometry.height.kernel);
    let Range { start: mut pixel, end } = strip.pixels.clone();
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
        let line = Line { geometry, channels, made: made.clone(), lines: &lines, bias };
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
                if alike(8) && !(S::HOLDS_NEIGHBOURS && self.geometry.width.stride > 1) {
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
        let shares = S::HOLDS_NEIGHBOURS && N > 1 && window.dilation == 1;
        let shared = if shares { taps.len() } else { 0 };
        let Range { start: first, end } = self.made;
        let vectors = end - (end - first) % S::LANES;
        let at = Columns { taps, cell, step, next, shared, lo, hi };
        for c in (first..vectors).step_by(S::LANES) {
            // SAFETY: by contract; a vector of channels is left.
            unsafe { self.vector::<S, N, true>(&at, c, S::LANES, to) };
        }
        if vectors < end {
            // SAFETY: as above, for what is left of one.
            unsafe { self.vector::<S, N, false>(&at, vectors, end - vectors, to) };
        }
        N
    }

    /// Computes `n` channels from channel `c` on: a vector, if it is `WHOLE`, or fewer.
    ///
    /// # Safety
    /// As for [`Self::pixels`]; there must be so many channels.
    #[inline(always)]
    unsafe fn vector<S: Simd, const N: usize, const WHOLE: bool>(
        &self,
        at: &Columns,
        c: usize,
        n: usize,
        to: *mut f32,
    ) {
        let (channels, stride) = (self.channels, self.geometry.width.stride);
        // SAFETY: by contract.
        unsafe {
            let mut sums = [load::<S, WHOLE>(self.bias.add(c), n); N];
            for &(line, weights) in self.lines {
                let from = line.wrapping_add(at.cell + c);
                let first = weights.add(at.taps.start * channels + c);
                let (sums, row) = (&mut sums, (from, first));
                match (at.shared, stride) {
                    (3, 1) => add_row::<S, N, 3, 1, WHOLE>(sums, row, channels, n),
                    (3, 2) if N <= 4 => add_row::<S, N, 3, 2, WHOLE>(sums, row, channels, n),
                    (5, 1) => add_row::<S, N, 5, 1, WHOLE>(sums, row, channels, n),
                    (5, 2) if N <= 4 => add_row::<S, N, 5, 2, WHOLE>(sums, row, channels, n),
                    _ => add_any::<S, N, WHOLE>(sums, at, row, channels, n),
                }
            }
            let (lo, hi) = (S::splat(at.lo), S::splat(at.hi));
            for (i, &sum) in sums.iter().enumerate() {
                let (to, made) = (to.add(i * channels + c), S::clamp(sum, lo, hi));
                match WHOLE {
                    true => S::store(to, made),
                    false => S::store_some(to, made, n),
                }
            }
        }
    }
}

/// Adds a row of whatever taps to the sums of neighbours.
///
/// # Safety
/// The machine must have the instruction set of `S`; there must be the cells of all neighbours, and weights of all taps.
#[inline(always)]
unsafe fn add_any<S: Simd, const N: usize, const WHOLE: bool>(
    sums: &mut [S::F; N],
    at: &Columns,
    (mut from, mut weights): (*const f32, *const f32),
    channels: usize,
    n: usize,
) {
    for _ in at.taps.clone() {
        // SAFETY: by contract.
        unsafe {
            let weight = load::<S, WHOLE>(weights, n);
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = S::mul_add(load::<S, WHOLE>(from.wrapping_add(i * at.step), n), weight, *sum);
            }
        }
        (from, weights) = (from.wrapping_add(at.next), weights.wrapping_add(channels));
    }
}

/// What neighbouring pixels are made of.
struct Columns {
    /// Those of the filter that fall on the input.
    taps: Range<usize>,
    /// Elements from the start of a line to the cell under the first tap, from there to that of the next pixel, and to the next
    /// tap's.
    cell: usize,
    step: usize,
    next: usize,
    /// How many taps there are if neighbours share what is loaded for them, else none.
    shared: usize,
    /// What the activation keeps sums between.
    lo: f32,
    hi: f32,
}

/// A vector, if it is `WHOLE`, or the first `n` elements of one.
///
/// # Safety
/// The machine must have the instruction set of `S`; there must be as many elements.
#[inline(always)]
unsafe fn load<S: Simd, const WHOLE: bool>(p: *const f32, n: usize) -> S::F {
    // SAFETY: by contract.
    unsafe {
        match WHOLE {
            true => S::load(p),
            false => S::load_some(p, n),
        }
    }
}

/// Adds a row of taps to the sums of neighbours that are `STRIDE` cells apart: each cell is loaded once for all sums that it is
/// part of.
///
/// # Safety
/// The machine must have the instruction set of `S`; there must be the cells of all neighbours, and weights of all taps.
#[inline(always)]
unsafe fn add_row<S: Simd, const N: usize, const TAPS: usize, const STRIDE: usize, const WHOLE: bool>(
    sums: &mut [S::F; N],
    (from, weights): (*const f32, *const f32),
    channels: usize,
    n: usize,
) {
    /// What eight neighbours have under five taps.
    const MOST: usize = 12;
    // SAFETY: by contract.
    unsafe {
        let mut cells = [load::<S, WHOLE>(from, n); MOST];
        for (i, cell) in cells.iter_mut().enumerate().take((N - 1) * STRIDE + TAPS) {
            *cell = match WHOLE {
                true => S::load_at(from, i * channels),
                false => S::load_some(from.wrapping_add(i * channels), n),
            };
        }
        for tap in 0..TAPS {
            let weight = load::<S, WHOLE>(weights.add(tap * channels), n);
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = S::mul_add(cells[i * STRIDE + tap], weight, *sum);
            }
        }
    }
}
