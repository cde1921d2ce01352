//! 8-bit types. For sixteen channels at a time the columns of a few rows are interleaved to quads, which all outputs of
//! the row share; padding is the zero point there, so that no output is a special case.

use super::super::conv::{signed_zero, QuantInput, PACKED_INPUTS};
use super::super::gemm::{Lanes, Requant, Requantisation};
use super::super::kernel::{input, output, ByRows, Lines};
#[cfg(target_arch = "aarch64")]
use super::super::neon::Neon;
use super::super::{Kernel, Source, Work};
use super::instructions::Instructions;
use super::layout::{number, CHANNELS, QUAD, ROWS, SIGNED};
use super::packing::Packing;
#[cfg(not(target_arch = "aarch64"))]
use super::quads::Base;
#[cfg(not(target_arch = "aarch64"))]
use super::quads::Quads as BothWays;
#[cfg(target_arch = "x86_64")]
use super::quads::{Avx2, Vnni};
use super::quads::{Line, PixelScales, Quads, PIXELS};
#[cfg(target_arch = "aarch64")]
use super::quads_neon::{Base, Dotprod};
use super::rows::Rows;
#[cfg(target_arch = "aarch64")]
use super::slide::{self, BothWays, Slide};
use super::strips::{for_each_strip, Strip};
use crate::memory::{Target, View, Weights};
use crate::ops::conv::{ChannelRequant, DepthwiseGeometry};
use crate::ops::{Args, OpError};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Columns of quads that are made at once: those of a row of taps stay in the first cache.
const MAX_COLUMNS: usize = 384;

/// The kernel of a call; `is_whole`: of a column that stands for an image, see [`super::whole`].
pub(super) fn kernel(
    geometry: DepthwiseGeometry,
    is_whole: bool,
    args: &Args,
    source: &mut Source,
) -> Option<Depthwise> {
    let (input, filter) = (args.get(0).ok()?, args.get(1).ok()?);
    let channels = geometry.input.channels * geometry.multiplier;
    let requant =
        ChannelRequant::new(input.info, filter.info, args.output(0).ok()?, channels, geometry.activation)
            .ok()?;
    let extent = (geometry.width.kernel - 1) * geometry.width.dilation + 1;
    let groups = geometry.height.kernel.div_ceil(ROWS);
    if !is_whole && extent.checked_mul(groups)? > MAX_COLUMNS {
        return None;
    }
    let instructions = Instructions::detect();
    let requantisation = Requantisation {
        multipliers: &requant.multipliers,
        ty: args.output(0).ok()?.ty,
        zero: requant.zero_point,
        range: requant.range,
        once: false,
    };
    let (mut input, weight_zero) = (QuantInput::new(&input), signed_zero(&filter));
    if SIGNED {
        (input.zero, input.flip) = (input.zero ^ 0x80, input.flip ^ 0x80);
    }
    // A quad has all the rows under two rows of outputs.
    let height = &geometry.height;
    let shares = height.kernel < ROWS && height.stride == 1 && height.dilation == 1 && !is_whole;
    let rows = if shares && geometry.multiplier == 1 && weight_zero == 0 { 2 } else { 1 };
    let packing = Packing { geometry: &geometry, input_zero: input.zero, weight_zero, rows };
    let (weights, requant) = match instructions {
        Instructions::Base => packing.weights_for::<Base>(args, source, &requantisation)?,
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => packing.weights_for::<Avx2>(args, source, &requantisation)?,
        #[cfg(target_arch = "x86_64")]
        Instructions::Vnni => packing.weights_for::<Vnni>(args, source, &requantisation)?,
        #[cfg(target_arch = "aarch64")]
        Instructions::Dotprod => packing.weights_for::<Dotprod>(args, source, &requantisation)?,
    };
    #[cfg(target_arch = "aarch64")]
    let slides = weight_zero == 0 && !is_whole && slide::fits(&geometry, instructions, &weights, &requant);
    Some(Depthwise {
        #[cfg(target_arch = "aarch64")]
        slides,
        instructions,
        input,
        weight_zero,
        weights,
        bias: packing.bias(args, source)?,
        requant,
        rows,
        geometry,
    })
}

pub(super) struct Depthwise {
    pub instructions: Instructions,
    /// Whether outputs are made as `slide` does.
    #[cfg(target_arch = "aarch64")]
    slides: bool,
    pub geometry: DepthwiseGeometry,
    pub input: QuantInput,
    pub weight_zero: i32,
    pub weights: Weights,
    /// i32 per channel.
    pub bias: Weights,
    pub requant: Requant,
    /// Rows of outputs, one below the other, that are made of the same quads where there are as many: one or two.
    pub rows: usize,
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
        let (input, out) = (input::<u8>(inputs, 0)?, output::<u8>(outputs, 0)?);
        for_each_strip(work, &self.geometry, out, (self.cost(), self.rows), |strip| {
            make(self, Lines::all(input), strip);
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

    fn goes_on(&self) -> bool {
        true
    }
}

impl ByRows for Depthwise {
    fn reads(&self, rows: Range<usize>) -> Range<usize> {
        self.geometry.height.cells_under(rows)
    }

    fn cost(&self) -> usize {
        let taps = self.geometry.height.kernel * self.geometry.width.kernel;
        let channels = self.geometry.input.channels * self.geometry.multiplier;
        channels.saturating_mul(taps.saturating_mul(40).saturating_add(500))
    }

    fn run_rows(&self, input: Lines<u8>, rows: Range<usize>, mut out: Target<u8>) -> Result<(), OpError> {
        let geometry = &self.geometry;
        let channels = geometry.input.channels * geometry.multiplier;
        make(self, input, Strip::whole(&mut out, rows.start * geometry.width.output, channels));
        Ok(())
    }
}

impl Depthwise {
    /// What a block's sums become bytes with.
    #[inline(always)]
    fn scales<Q: Quads>(&self, block: usize) -> PixelScales {
        let vectors = CHANNELS / Q::V::LANES;
        let scale = |i: usize| self.requant.scales(block * vectors + i % vectors);
        [[scale(0), scale(1)], [scale(2), scale(3)]]
    }

    /// The bytes of one pixel of a block.
    ///
    /// # Safety
    /// The machine must have the instruction set of `Q`.
    #[inline(always)]
    pub unsafe fn requantise<Q: Quads>(&self, block: usize, sums: Q::Sums) -> [u8; CHANNELS] {
        // SAFETY: by contract.
        unsafe {
            Q::requantise([sums; PIXELS], &self.scales::<Q>(block), Q::V::target(self.requant.target))[0]
        }
    }
}

/// Computes a strip.
fn make(kernel: &Depthwise, input: Lines<u8>, strip: Strip<u8>) {
    match kernel.instructions {
        // SAFETY: needs no instruction set.
        Instructions::Base => unsafe { make_with::<Base>(kernel, input, strip) },
        // SAFETY: the instruction set was detected on this machine.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => unsafe { avx2(kernel, input, strip) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Instructions::Vnni => unsafe { vnni(kernel, input, strip) },
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        Instructions::Dotprod => unsafe { dotprod(kernel, input, strip) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(kernel: &Depthwise, input: Lines<u8>, strip: Strip<u8>) {
    // SAFETY: this function's caller has detected the instruction set.
    unsafe { make_with::<Avx2>(kernel, input, strip) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
fn vnni(kernel: &Depthwise, input: Lines<u8>, strip: Strip<u8>) {
    // SAFETY: this function's caller has detected the instruction set.
    unsafe { make_with::<Vnni>(kernel, input, strip) }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "dotprod")]
fn dotprod(kernel: &Depthwise, input: Lines<u8>, strip: Strip<u8>) {
    // SAFETY: this function's caller has detected the instruction set.
    unsafe { make_with::<Dotprod>(kernel, input, strip) }
}

/// # Safety
/// The machine must have the instruction set of `Q`.
#[inline(always)]
unsafe fn make_with<Q: BothWays>(kernel: &Depthwise, input: Lines<u8>, strip: Strip<u8>) {
    let geometry = &kernel.geometry;
    let (window, channels) = (&geometry.width, geometry.input.channels * geometry.multiplier);
    let (extent, groups) = ((window.kernel - 1) * window.dilation + 1, geometry.height.kernel.div_ceil(ROWS));
    let most = (MAX_COLUMNS / groups - extent) / window.stride + 1;
    let mut rows = Rows::new(geometry, input);
    // On the stack, as threads that allocate at the same time wait for each other; and not cleared for each task.
    let mut quads = [MaybeUninit::<[u8; QUAD]>::uninit(); MAX_COLUMNS];
    let (size, mut lines) = (groups * window.kernel * QUAD, vec![]);
    let Range { start: mut pixel, end } = strip.pixels;
    while pixel < end {
        let (row, x) = (pixel / window.output, pixel % window.output);
        let count = (window.output - x).min(end - pixel).min(most);
        let same_image = (row + 1) % geometry.height.output != 0;
        let two = kernel.rows == 2 && same_image && count == window.output && end - pixel >= 2 * count;
        if two {
            rows.select_two(row);
        } else {
            rows.select(row);
        }
        let under = Under::new(kernel, x * window.stride, (count - 1) * window.stride + extent);
        lines.clear();
        lines.extend((0..groups).map(|group| under.lines(&rows, group)));
        let quads = &mut quads[..under.columns * groups];
        let made = if two { 2 } else { 1 };
        let to = strip.at(pixel, made * count);
        let Range { start: first, end: last } = strip.channels;
        for block in first / CHANNELS..last.div_ceil(CHANNELS) {
            let c = block * CHANNELS;
            let width = CHANNELS.min(last - c);
            #[cfg(target_arch = "aarch64")]
            if kernel.slides && width == CHANNELS {
                // SAFETY: the rows under taps are whole, and so is the block; as many pixels were asked for at `to`.
                unsafe { under.slide::<Q>(&lines[0], block, (made, count), to.wrapping_add(c)) };
                continue;
            }
            for (quads, lines) in quads.chunks_exact_mut(under.columns).zip(&lines) {
                // SAFETY: the rows under taps are whole; the block has `width` channels.
                unsafe { under.fill::<Q>(lines, (c, width), quads) };
            }
            // SAFETY: all of them were filled, group by group.
            let quads = unsafe { std::slice::from_raw_parts(quads.as_ptr().cast(), quads.len()) };
            let weights = kernel.weights.elements::<Q::Weight>(block * kernel.rows * size, made * size);
            for below in 0..made {
                let to = to.wrapping_add(below * count * channels + c);
                let row = Row { kernel, quads, columns: under.columns, block, to, width };
                // SAFETY: all columns of the `count` pixels are filled, and as many pixels were asked for at `to`, in each
                // row, which has weights of its own.
                unsafe { row.pixels_of_shape::<Q>(count, weights.add(below * size)) };
            }
        }
        pixel += made * count;
    }
}

/// The columns of the input under some pixels of a row of outputs, padding counted.
pub(super) struct Under<'a> {
    pub kernel: &'a Depthwise,
    columns: usize,
    /// Those that are not beside the input, and the first of them as the input counts.
    pub inside: Range<usize>,
    start: usize,
}

impl<'a> Under<'a> {
    fn new(kernel: &'a Depthwise, first: usize, columns: usize) -> Self {
        let window = &kernel.geometry.width;
        let before = window.pad_before.saturating_sub(first).min(columns);
        let after = (window.input + window.pad_before).saturating_sub(first).clamp(before, columns);
        let start = (first + before).saturating_sub(window.pad_before);
        Under { kernel, columns, inside: before..after, start }
    }

    /// Computes `count` pixels of a whole block of channels, of one or two rows, as `slide` does.
    ///
    /// # Safety
    /// The machine must have the instruction set of `Q`; there must be as many columns in the `lines`, and as many pixels at
    /// `to`, of sixteen channels each.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    unsafe fn slide<Q: BothWays>(
        &self,
        lines: &[Option<Line>; ROWS],
        block: usize,
        (made, count): (usize, usize),
        to: *mut u8,
    ) {
        let (kernel, first) = (self.kernel, block * CHANNELS);
        let (geometry, input) = (&kernel.geometry, kernel.input);
        let channels = geometry.input.channels * geometry.multiplier;
        let padding = [input.zero ^ input.flip; CHANNELS];
        let mut in_block = [(padding.as_ptr(), 0); ROWS];
        for (to, line) in in_block.iter_mut().zip(lines) {
            if let Some(line) = line {
                *to = (line.0.wrapping_add(first), line.1);
            }
        }
        let size = geometry.width.kernel * QUAD;
        // SAFETY: by contract; there are as many weights, and sixteen sums of bias.
        unsafe {
            let slide = Slide {
                lines: in_block,
                inside: self.inside.clone(),
                padding: &padding,
                flip: input.flip,
                count,
                weights: kernel.weights.elements(block * kernel.rows * size, made * size),
                bias: kernel.bias.elements(first, CHANNELS),
                scales: slide::scales_of(&kernel.requant, block),
                target: <Neon as Lanes>::target(kernel.requant.target),
                to,
                step: channels,
                below: count * channels,
            };
            slide.run::<Q>(made, geometry.width.stride);
        }
    }

    /// What lies under the taps of a group of rows; `None` beside the input.
    fn lines(&self, rows: &Rows<u8>, group: usize) -> [Option<Line>; ROWS] {
        let geometry = &self.kernel.geometry;
        let channels = geometry.input.channels * geometry.multiplier;
        let line = |line: *const u8| (line.wrapping_add(self.start * channels), channels);
        std::array::from_fn(|i| rows.row(group * ROWS + i).map(line))
    }

    /// Fills `quads` with all columns of channels from `c` on of a group of rows.
    ///
    /// # Safety
    /// The machine must have the instruction set of `Q`, and there be `width` channels, at most sixteen, from `c` on.
    #[inline(always)]
    unsafe fn fill<Q: Quads>(
        &self,
        lines: &[Option<Line>; ROWS],
        (c, width): (usize, usize),
        quads: &mut [MaybeUninit<[u8; QUAD]>],
    ) {
        let (input, Range { start: before, end: after }) = (self.kernel.input, self.inside.clone());
        let padding = [input.zero ^ input.flip; CHANNELS];
        // SAFETY: by contract; padding is as long as a load.
        let beside = unsafe { Q::interleave([padding.as_ptr(); ROWS], input.flip) };
        quads[..before].fill(MaybeUninit::new(beside));
        quads[after..].fill(MaybeUninit::new(beside));
        let lines =
            lines.map(|line| line.map_or((padding.as_ptr(), 0), |(line, step)| (line.wrapping_add(c), step)));
        // A load of sixteen bytes must not leave the row for good: that may be the end of what there is.
        let whole = if width == CHANNELS { after } else { before };
        for (i, quad) in quads[before..whole].iter_mut().enumerate() {
            let columns = lines.map(|(line, step)| line.wrapping_add(i * step));
            // SAFETY: by contract; sixteen channels of a column inside of the row, or padding.
            quad.write(unsafe { Q::interleave(columns, input.flip) });
        }
        for (i, quad) in quads[whole..after].iter_mut().enumerate() {
            let mut columns = [padding; ROWS];
            for (column, (line, step)) in columns.iter_mut().zip(lines) {
                // SAFETY: the column has `width` channels, and so has the padding.
                unsafe {
                    libc::memcpy(column.as_mut_ptr().cast(), line.wrapping_add(i * step).cast(), width);
                }
            }
            // SAFETY: by contract; columns are as long as a load.
            quad.write(unsafe { Q::interleave([0, 1, 2, 3].map(|row| columns[row].as_ptr()), input.flip) });
        }
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
    /// Computes `count` pixels, common shapes by code of their own.
    ///
    /// # Safety
    /// As for [`Self::pixels`].
    #[inline(always)]
    unsafe fn pixels_of_shape<Q: Quads>(&self, count: usize, weights: *const Q::Weight) {
        let (height, window) = (&self.kernel.geometry.height, &self.kernel.geometry.width);
        let groups = height.kernel.div_ceil(ROWS);
        let shape = (groups, window.kernel, window.dilation, window.stride);
        let is_whole = count >= PIXELS && self.width == CHANNELS && self.kernel.weight_zero == 0;
        // SAFETY: the same contract, with which these shapes and no others agree.
        unsafe {
            match (shape, is_whole) {
                ((1, 3, 1, 1), true) => self.pixels::<Q>(count, (1, 3, 1, 1), true, weights),
                ((1, 3, 1, 2), true) => self.pixels::<Q>(count, (1, 3, 1, 2), true, weights),
                ((2, 5, 1, 1), true) => self.pixels::<Q>(count, (2, 5, 1, 1), true, weights),
                ((2, 5, 1, 2), true) => self.pixels::<Q>(count, (2, 5, 1, 2), true, weights),
                _ => self.pixels::<Q>(count, shape, is_whole, weights),
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
    unsafe fn pixels<Q: Quads>(
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
        let quads: *const u8 = self.quads.as_ptr().cast();
        // SAFETY: by contract; there are as many weights, and sixteen sums of bias.
        unsafe {
            let (target, bias) = (Q::V::target(kernel.requant.target), Q::load(bias));
            let last = count.saturating_sub(PIXELS);
            for first in (0..count).step_by(PIXELS) {
                // Where fewer are left, some of those before are made again; where there are no more, the last one is.
                let first = first.min(last);
                let step = |i: usize| if is_whole { i } else { i.min(count - 1) };
                let mut sums = [bias; PIXELS];
                for (i, sums) in sums.iter_mut().enumerate() {
                    let pixel = first + step(i);
                    for group in 0..groups {
                        for tap in 0..taps {
                            let column = group * self.columns + pixel * stride + tap * dilation;
                            let weights = weights.add((group * taps + tap) * QUAD);
                            *sums = Q::add(*sums, quads.add(column * QUAD), weights);
                        }
                    }
                    if !is_whole && kernel.weight_zero != 0 {
                        let sums_with_zero = self.less_zeros(Q::store(*sums), pixel * stride, dilation);
                        *sums = Q::load(sums_with_zero.as_ptr());
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
