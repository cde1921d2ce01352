//! Floats, a strip of the output at a time.

use super::super::conv::PACKED_INPUTS;
use super::super::dispatch::dispatch;
use super::super::gemm::Few;
use super::super::isa::Isa;
use super::super::kernel::{elements, input, output, ByRows, Lines, Pause};
use super::super::simd::Simd;
use super::super::{Kernel, Source, Work};
use super::neighbours::Line;
use super::rows::{copies, Rows};
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
            make(self.isa, self, &mut Memory::new(&self.geometry, Lines::all(input))?, strip);
            Ok(())
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
        channels
            .saturating_mul(taps.saturating_mul(30).saturating_add(100))
            .saturating_add(copies(&self.geometry))
    }

    /// Those who ask for rows ask for no more at a time than take well under a millisecond.
    fn run_rows(
        &self,
        input: Lines<u8>,
        rows: Range<usize>,
        mut out: Target<u8>,
        _: Pause,
    ) -> Result<(), OpError> {
        let (geometry, mut out) = (&self.geometry, elements(&mut out)?);
        let channels = geometry.input.channels * geometry.multiplier;
        make(
            self.isa,
            self,
            &mut Memory::new(geometry, input.of()?)?,
            Strip::whole(&mut out, rows.start * geometry.width.output, channels),
        );
        Ok(())
    }
}

/// Memory of a task.
struct Memory<'a> {
    rows: Rows<'a, f32>,
    /// Rows of the input under rows of taps, and their weights.
    lines: Few<(*const f32, *const f32)>,
}

impl<'a> Memory<'a> {
    fn new(geometry: &'a DepthwiseGeometry, input: Lines<'a, f32>) -> Result<Self, OpError> {
        Ok(Memory { rows: Rows::new(geometry, input)?, lines: Few::reserved(geometry.height.kernel)? })
    }
}

dispatch! {
    /// Computes a strip.
    fn make => make_with(kernel: &Depthwise, memory: &mut Memory, strip: Strip<f32>)
}

/// # Safety
/// The machine must have the instruction set of `S`.
#[inline(always)]
unsafe fn make_with<S: Simd>(kernel: &Depthwise, memory: &mut Memory, strip: Strip<f32>) {
    let step = together(&kernel.geometry, strip.channels.len(), S::LANES);
    for first in strip.channels.clone().step_by(step) {
        let made = first..strip.channels.end.min(first + step);
        // SAFETY: by contract.
        unsafe { make_channels::<S>(kernel, memory, &strip, made) };
    }
}

/// How many of some channels are made of all rows before others are: as many as have the rows under an output in the nearest
/// cache, unless those are so few that what is read of a pixel is little.
fn together(geometry: &DepthwiseGeometry, channels: usize, lanes: usize) -> usize {
    const NEAREST: usize = 24 << 10;
    const FEWEST: usize = 48;
    let each = geometry.height.kernel.saturating_mul(geometry.width.input).saturating_mul(size_of::<f32>());
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
    memory: &mut Memory,
    strip: &Strip<f32>,
    made: Range<usize>,
) {
    let geometry = &kernel.geometry;
    let (width, channels) = (geometry.width.output, geometry.input.channels * geometry.multiplier);
    let weights = kernel.weights.elements::<f32>(0, geometry.filter_len());
    let bias = kernel.bias.elements::<f32>(0, channels);
    let Memory { rows, lines } = memory;
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
        let line = Line { geometry, channels, made: made.clone(), lines, bias };
        // SAFETY: the lines are whole rows of the input, their weights whole rows of the filter, bias has all channels,
        // and there are `count` pixels at `to`.
        unsafe { line.pixels::<S>(x, count, to) };
        pixel += count;
    }
}
