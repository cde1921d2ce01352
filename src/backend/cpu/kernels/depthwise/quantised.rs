//! 8-bit types. For sixteen channels at a time the columns of a few rows are interleaved to quads, which all outputs of
//! the row share; padding is the zero point there, so that no output is a special case.

use super::super::conv::{signed_weights, signed_zero, QuantInput, PACKED_INPUTS};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::super::vector::{Level, Vectors};
use super::super::{input, output, rows_per_task, Kernel, Source, Work};
#[cfg(not(target_arch = "aarch64"))]
use super::quads::{interleave, Base};
use super::quads::{number, Quads, Scaling, CHANNELS, QUAD, ROWS, SIGNED};
#[cfg(target_arch = "x86_64")]
use super::quads::{Avx2, Vnni};
#[cfg(target_arch = "aarch64")]
use super::quads_neon::{interleave, Base, Dotprod};
use super::rows::Rows;
use crate::memory::{Target, View, Weights};
use crate::ops::conv::{ChannelRequant, DepthwiseGeometry};
use crate::ops::{Args, OpError};

/// Columns of quads that are made at once: those of a row of taps stay in the first cache.
const MAX_COLUMNS: usize = 384;

pub(super) fn select(
    geometry: DepthwiseGeometry,
    args: &Args,
    source: &mut Source,
) -> Option<Box<dyn Kernel>> {
    let (input, filter) = (args.get(0).ok()?, args.get(1).ok()?);
    let channels = geometry.input.channels * geometry.multiplier;
    let requant =
        ChannelRequant::new(input.info, filter.info, args.output(0).ok()?, channels, geometry.activation)
            .ok()?;
    let extent = (geometry.width.kernel - 1) * geometry.width.dilation + 1;
    let groups = geometry.height.kernel.div_ceil(ROWS);
    if extent.checked_mul(groups)? > MAX_COLUMNS {
        return None;
    }
    let instructions = Instructions::detect();
    let by_channel = |f: &dyn Fn(i32, i32) -> i32| -> Vec<[i32; CHANNELS]> {
        let one = |c: usize| requant.multipliers.get(c).map_or(0, |m| f(m.mantissa, m.shift));
        (0..channels.div_ceil(CHANNELS)).map(|b| std::array::from_fn(|i| one(b * CHANNELS + i))).collect()
    };
    let left = by_channel(&|_, shift| shift.max(0));
    let (mut input, weight_zero) = (QuantInput::new(&input), signed_zero(&filter));
    if SIGNED {
        (input.zero, input.flip) = (input.zero ^ 0x80, input.flip ^ 0x80);
    }
    let packing = Packing { geometry: &geometry, input_zero: input.zero, weight_zero };
    Some(Box::new(Depthwise {
        instructions,
        input,
        weight_zero,
        weights: match instructions {
            Instructions::Base => packing.weights::<Base>(args, source)?,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => packing.weights::<Avx2>(args, source)?,
            #[cfg(target_arch = "x86_64")]
            Instructions::Vnni => packing.weights::<Vnni>(args, source)?,
            #[cfg(target_arch = "aarch64")]
            Instructions::Dotprod => packing.weights::<Dotprod>(args, source)?,
        },
        bias: packing.bias(args, source)?,
        mantissa: by_channel(&|mantissa, _| mantissa),
        left: left.iter().flatten().any(|&left| left > 0).then_some(left),
        right: by_channel(&|_, shift| (-shift).clamp(0, 31)),
        output_zero: requant.zero_point,
        range: (
            requant.range.0.saturating_sub(requant.zero_point),
            requant.range.1.saturating_sub(requant.zero_point),
        ),
        geometry,
    }))
}

/// What quads are multiplied with.
#[derive(Clone, Copy, Debug)]
enum Instructions {
    Base,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Vnni,
    #[cfg(target_arch = "aarch64")]
    Dotprod,
}

impl Instructions {
    fn name(self) -> &'static str {
        match self {
            Instructions::Base => "base",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Instructions::Vnni => "vnni",
            #[cfg(target_arch = "aarch64")]
            Instructions::Dotprod => "dotprod",
        }
    }

    fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        match Level::detect().0 {
            Vectors::Avx512 if is_x86_feature_detected!("avx512vnni") => return Instructions::Vnni,
            Vectors::Avx512 | Vectors::Avx2 => return Instructions::Avx2,
            Vectors::Base => {}
        }
        #[cfg(target_arch = "aarch64")]
        if Level::detect().0 == Vectors::Dotprod {
            return Instructions::Dotprod;
        }
        Instructions::Base
    }
}

/// Weights and bias on their way into their packed form.
struct Packing<'a> {
    geometry: &'a DepthwiseGeometry,
    input_zero: u8,
    weight_zero: i32,
}

impl Packing<'_> {
    fn channels(&self) -> usize {
        self.geometry.input.channels * self.geometry.multiplier
    }

    /// Quads of weights, `[block of channels][group of rows][column]`.
    fn weights<Q: Quads>(&self, args: &Args, source: &mut Source) -> Option<Weights>
    where
        Q::Weight: From<i8>,
    {
        let (height, width, channels) =
            (self.geometry.height.kernel, self.geometry.width.kernel, self.channels());
        let (groups, blocks) = (height.div_ceil(ROWS), channels.div_ceil(CHANNELS));
        source.take::<Q::Weight>(blocks * groups * width * QUAD, |to| {
            let weights = signed_weights(&args.arg(1).ok()?)?;
            let weights = (weights.len() == height * width * channels).then_some(weights)?;
            for (i, &weight) in weights.iter().enumerate() {
                let (row, column, c) = (i / channels / width, i / channels % width, i % channels);
                let quad = (c / CHANNELS * groups + row / ROWS) * width + column;
                to[quad * QUAD + Q::place(c % CHANNELS, row % ROWS)] = weight.into();
            }
            Some(())
        })
    }

    /// The bias, with what the zero points add to the sum of the plain products.
    fn bias(&self, args: &Args, source: &mut Source) -> Option<Weights> {
        let channels = self.channels();
        source.take::<i32>(channels.next_multiple_of(CHANNELS), |to| {
            let (weights, arg) = (signed_weights(&args.arg(1).ok()?)?, args.get(2).ok()?);
            let bias: &[i32] = arg.elements().ok().filter(|bias: &&[i32]| bias.len() == channels)?;
            for (to, bias) in to.iter_mut().zip(bias) {
                *to = *bias;
            }
            let zero = number(self.input_zero);
            for (i, &weight) in weights.iter().enumerate() {
                let term = zero.wrapping_mul(i32::from(weight).wrapping_sub(self.weight_zero));
                to[i % channels] = to[i % channels].wrapping_sub(term);
            }
            Some(())
        })
    }
}

struct Depthwise {
    instructions: Instructions,
    geometry: DepthwiseGeometry,
    input: QuantInput,
    weight_zero: i32,
    weights: Weights,
    /// i32 per channel.
    bias: Weights,
    /// By block of channels.
    mantissa: Vec<[i32; CHANNELS]>,
    /// Only where some are shifted.
    left: Option<Vec<[i32; CHANNELS]>>,
    right: Vec<[i32; CHANNELS]>,
    output_zero: i32,
    range: (i32, i32),
}

impl Kernel for Depthwise {
    fn name(&self) -> String {
        format!("depthwise {} 8-bit", self.instructions.name())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (geometry, channels) = (&self.geometry, self.geometry.input.channels * self.geometry.multiplier);
        let (input, out) = (input::<u8>(inputs, 0)?, output::<u8>(outputs, 0)?);
        let taps = geometry.height.kernel * geometry.width.kernel;
        let (width, pixels) = (geometry.width.output, out.len() / channels);
        let pixels = rows_per_task(pixels, (channels * taps / 4).max(1), work.team.threads());
        // Whole rows, unless a row is too long for the interrupt.
        let pixels = if pixels < width { pixels } else { pixels / width * width };
        work.for_each_chunk(out, pixels * channels, |first, out| {
            pixels_of(self, input, first / channels, out);
        })
    }

    fn weights(&self) -> Vec<&Weights> {
        vec![&self.weights, &self.bias]
    }

    fn packed_inputs(&self) -> &'static [usize] {
        PACKED_INPUTS
    }
}

/// Computes the pixels of `out`, from pixel `first` on.
fn pixels_of(kernel: &Depthwise, input: View<u8>, first: usize, out: Target<u8>) {
    match kernel.instructions {
        // SAFETY: needs no instruction set.
        Instructions::Base => unsafe { pixels_with::<Base>(kernel, input, first, out) },
        // SAFETY: the instruction set was detected on this machine.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => unsafe { avx2(kernel, input, first, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Instructions::Vnni => unsafe { vnni(kernel, input, first, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Instructions::Dotprod => unsafe { dotprod(kernel, input, first, out) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(kernel: &Depthwise, input: View<u8>, first: usize, out: Target<u8>) {
    // SAFETY: this function's caller has detected the instruction set.
    unsafe { pixels_with::<Avx2>(kernel, input, first, out) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn vnni(kernel: &Depthwise, input: View<u8>, first: usize, out: Target<u8>) {
    // SAFETY: this function's caller has detected the instruction set.
    unsafe { pixels_with::<Vnni>(kernel, input, first, out) }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "dotprod")]
fn dotprod(kernel: &Depthwise, input: View<u8>, first: usize, out: Target<u8>) {
    // SAFETY: this function's caller has detected the instruction set.
    unsafe { pixels_with::<Dotprod>(kernel, input, first, out) }
}

/// # Safety
/// The machine must have the instruction set of `Q`.
#[inline(always)]
unsafe fn pixels_with<Q: Quads>(kernel: &Depthwise, input: View<u8>, first: usize, mut out: Target<u8>) {
    let geometry = &kernel.geometry;
    let (window, channels) = (&geometry.width, geometry.input.channels * geometry.multiplier);
    let (extent, groups) = ((window.kernel - 1) * window.dilation + 1, geometry.height.kernel.div_ceil(ROWS));
    let most = (MAX_COLUMNS / groups - extent) / window.stride + 1;
    let mut rows = Rows::new(geometry, input);
    let mut quads = vec![[0u8; QUAD]; ((most - 1) * window.stride + extent) * groups];
    let (mut pixel, end) = (first, first + out.len() / channels);
    while pixel < end {
        let (row, x) = (pixel / window.output, pixel % window.output);
        let count = (window.output - x).min(end - pixel).min(most);
        rows.select(row);
        let columns = (count - 1) * window.stride + extent;
        let quads = &mut quads[..columns * groups];
        let to = out.pointer((pixel - first) * channels, count * channels);
        for block in 0..channels.div_ceil(CHANNELS) {
            let width = CHANNELS.min(channels - block * CHANNELS);
            for (group, quads) in quads.chunks_exact_mut(columns).enumerate() {
                // SAFETY: the row under a tap is whole; the block has `width` channels.
                unsafe { fill(kernel, &rows, group, (block * CHANNELS, width), x * window.stride, quads) };
            }
            let row = Row { kernel, quads, columns, block, to: to.wrapping_add(block * CHANNELS), width };
            // SAFETY: all columns of the `count` pixels are filled, and as many pixels were asked for at `to`.
            unsafe {
                match (groups, window.kernel, window.dilation, kernel.weight_zero) {
                    (1, 3, 1, 0) => row.pixels::<Q>(count, (1, 3, 1)),
                    (2, 5, 1, 0) => row.pixels::<Q>(count, (2, 5, 1)),
                    _ => row.pixels::<Q>(count, (groups, window.kernel, window.dilation)),
                }
            }
        }
        pixel += count;
    }
}

/// Fills `quads` with the columns from `first` on, padding counted, of channels from `c` on of a group of rows.
///
/// # Safety
/// There must be `width` channels, at most sixteen of them, from `c` on.
#[inline(always)]
unsafe fn fill(
    kernel: &Depthwise,
    rows: &Rows<u8>,
    group: usize,
    (c, width): (usize, usize),
    first: usize,
    quads: &mut [[u8; QUAD]],
) {
    let (geometry, input) = (&kernel.geometry, kernel.input);
    let (window, channels) = (&geometry.width, geometry.input.channels * geometry.multiplier);
    let padding = [input.zero ^ input.flip; CHANNELS];
    // Columns that are beside the input stand still on padding, and so do rows.
    let inside =
        |column: usize| (first + column).checked_sub(window.pad_before).filter(|&x| x < window.input);
    let before = window.pad_before.saturating_sub(first).min(quads.len());
    let after = (window.input + window.pad_before).saturating_sub(first).clamp(before, quads.len());
    let beside = interleave([padding; ROWS], input.flip);
    quads[..before].fill(beside);
    quads[after..].fill(beside);
    let Some(start) = inside(before).filter(|_| before < after) else { return };
    let lines: [(*const u8, usize); ROWS] = std::array::from_fn(|i| {
        let tap = group * ROWS + i;
        let line = if tap < geometry.height.kernel { rows.row(tap) } else { None };
        line.map_or((padding.as_ptr(), 0), |line| (line.wrapping_add(start * channels + c), channels))
    });
    // A load of sixteen bytes must not leave the row for good: that may be the end of what there is.
    let whole = if width == CHANNELS { after } else { before };
    for (i, quad) in quads[before..whole].iter_mut().enumerate() {
        // SAFETY: sixteen channels of a column inside of the row, or padding.
        let load = |(line, step): (*const u8, usize)| unsafe {
            line.wrapping_add(i * step).cast::<[u8; CHANNELS]>().read_unaligned()
        };
        *quad = interleave(lines.map(load), input.flip);
    }
    for (i, quad) in quads[whole..after].iter_mut().enumerate() {
        let load = |(line, step): (*const u8, usize)| {
            let mut bytes = padding;
            // SAFETY: the column has `width` channels, and so has the padding.
            unsafe {
                libc::memcpy(bytes.as_mut_ptr().cast(), line.wrapping_add(i * step).cast(), width);
            }
            bytes
        };
        *quad = interleave(lines.map(load), input.flip);
    }
}

/// A block of channels of a row of the output, and what it is made of.
struct Row<'a> {
    kernel: &'a Depthwise,
    /// `[group of rows][column]`.
    quads: &'a [[u8; QUAD]],
    columns: usize,
    block: usize,
    to: *mut u8,
    /// Channels of the block.
    width: usize,
}

impl Row<'_> {
    /// Computes `count` pixels. The numbers of groups and of columns of taps, and how far those are apart, are arguments so
    /// that common ones are known when this is compiled.
    ///
    /// # Safety
    /// The machine must have the instruction set of `Q`; the quads must be those of as many pixels, which there must be
    /// at `to`.
    #[inline(always)]
    unsafe fn pixels<Q: Quads>(&self, count: usize, (groups, taps, dilation): (usize, usize, usize)) {
        let kernel = self.kernel;
        let channels = kernel.geometry.input.channels * kernel.geometry.multiplier;
        let stride = kernel.geometry.width.stride;
        let size = groups * taps * QUAD;
        let weights = kernel.weights.elements::<Q::Weight>(self.block * size, size);
        let bias = kernel.bias.elements::<i32>(self.block * CHANNELS, CHANNELS);
        let scaling = Scaling {
            mantissa: &kernel.mantissa[self.block],
            left: kernel.left.as_ref().map(|left| &left[self.block]),
            right: &kernel.right[self.block],
            output_zero: kernel.output_zero,
            range: kernel.range,
        };
        let quads: *const u8 = self.quads.as_ptr().cast();
        for i in 0..count {
            // SAFETY: by contract; there are as many weights, and sixteen sums of bias.
            unsafe {
                let mut sums = Q::load(bias);
                for group in 0..groups {
                    for tap in 0..taps {
                        let column = group * self.columns + i * stride + tap * dilation;
                        let weights = weights.add((group * taps + tap) * QUAD);
                        sums = Q::add(sums, quads.add(column * QUAD), weights);
                    }
                }
                if kernel.weight_zero != 0 {
                    let sums_with_zero = self.less_zeros(Q::store(sums), i * stride, dilation);
                    sums = Q::load(sums_with_zero.as_ptr());
                }
                let bytes = Q::requantise(sums, &scaling);
                let to = self.to.wrapping_add(i * channels);
                if self.width == CHANNELS {
                    to.cast::<[u8; CHANNELS]>().write_unaligned(bytes);
                } else {
                    libc::memcpy(to.cast(), bytes.as_ptr().cast(), self.width);
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
                    *sum += number(quad[c * ROWS + row % ROWS]);
                }
            }
        }
        for (sum, cells) in sums.iter_mut().zip(cells) {
            *sum = sum.wrapping_sub(cells.wrapping_mul(self.kernel.weight_zero));
        }
        sums
    }
}
