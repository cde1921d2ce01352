//! Filters of three by three cells: the columns of the input under an output stay in registers, and its neighbour needs one
//! or two more. How they are multiplied is the instruction set's affair; there are such for 64-bit Arm only.

use super::super::gemm::{Lanes, Requant};
use super::super::neon::{apply_below_half, apply_to_positive, Multipliers, Neon};
use super::instructions::Instructions;
use super::layout::{CHANNELS, QUAD, ROWS};
use super::quads::{Line, Quads};
use crate::memory::Weights;
use crate::ops::conv::DepthwiseGeometry;
use crate::ops::image::Window;
use crate::ops::pace::Pace;
use crate::ops::OpError;
use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::Range;

/// Cells of a row of the filter.
const TAPS: usize = 3;
/// Channels that are made at once.
const HALF: usize = CHANNELS / 2;

/// What it costs to see how large a channel's sums are, in the steps that [`Pace`] counts.
const CHANNEL: usize = 16;

/// The size of the sum of a filter's products, at the most.
const LARGEST: f64 = (TAPS * TAPS * 128 * 128) as f64;

/// Sums of as many channels.
pub type Sums = [int32x4_t; 2];

/// How columns of eight channels and four rows are multiplied.
///
/// # Safety
/// All functions need the instruction set of the type; pointers must be valid for what is read.
#[allow(clippy::missing_safety_doc)] // the trait's section holds for each function
pub unsafe trait Columns {
    type Column: Copy;
    /// Weights of three columns for a row of outputs.
    type Weights: Copy;
    /// What sums of eight channels start with.
    type Bias: Copy;

    /// Whether both rows of outputs have the same weights: those of the upper one.
    const SHARES: bool;
    /// Whether there are registers for another column before sums are bytes: a core that computes in order then waits less.
    const MEANWHILE: bool;

    /// From the first eight bytes of each row, each xored with `flip` unless they are `PLAIN`.
    unsafe fn column<const PLAIN: bool>(rows: [uint8x16_t; ROWS], flip: uint8x16_t) -> Self::Column;
    /// From what eight channels have of three quads, for the upper or the lower row of outputs.
    unsafe fn weights(quads: *const i8) -> Self::Weights;
    /// That of eight channels, which stays there.
    unsafe fn bias(from: *const i32) -> Self::Bias;
    /// The sums of some columns for the upper or the lower row of outputs.
    unsafe fn sums(
        bias: Self::Bias,
        columns: [Self::Column; TAPS],
        weights: &Self::Weights,
        below: usize,
    ) -> Sums;
    /// Those of some columns for the upper row, and of others for the upper or the lower one.
    unsafe fn two_sums(
        bias: Self::Bias,
        columns: [[Self::Column; TAPS]; 2],
        weights: [&Self::Weights; 2],
        below: usize,
    ) -> [Sums; 2];
}

/// An instruction set that makes outputs in both ways.
pub trait BothWays: Quads + Columns {}

impl<I: Quads + Columns> BothWays for I {}

/// Eight bytes from where a pointer is, which goes `step` on.
///
/// # Safety
/// They must be there.
#[inline(always)]
unsafe fn load_eight(from: &mut *const u8, step: usize) -> uint8x16_t {
    let loaded;
    // SAFETY: by contract. The compiler would move the pointer by an instruction of its own.
    unsafe {
        asm!(
            "ld1 {{{loaded:v}.8b}}, [{from}], {step}",
            loaded = out(vreg) loaded,
            from = inout(reg) *from,
            step = in(reg) step,
            options(readonly, nostack, preserves_flags),
        );
    }
    loaded
}

/// Stores eight bytes each to where two pointers are, which go `step` on.
///
/// # Safety
/// There must be room for as many.
#[inline(always)]
unsafe fn store_eights(packed: [u8; CHANNELS], to: &mut [*mut u8; 2], step: usize) {
    // SAFETY: by contract. The compiler would take instructions of their own for the second half and for the pointers.
    unsafe {
        let bytes: uint8x16_t = std::mem::transmute(packed);
        asm!(
            "st1 {{{bytes:v}.8b}}, [{first}], {step}",
            "st1 {{{bytes:v}.d}}[1], [{second}], {step}",
            bytes = in(vreg) bytes,
            first = inout(reg) to[0],
            second = inout(reg) to[1],
            step = in(reg) step,
            options(nostack, preserves_flags),
        );
    }
}

/// How a filter's outputs are made.
#[derive(Clone, Copy)]
pub struct Fit {
    /// Whether scaled sums are within 16 bits, whatever the inputs.
    is_short: bool,
}

/// How a filter's outputs are made if it is such a one, whose weights have no zero point, and sums are scaled as most are.
/// Without dot products sums of two products are to be within 16 bits. An error where the work is to stop.
pub fn fit(
    geometry: &DepthwiseGeometry,
    instructions: Instructions,
    [weights, bias]: [&Weights; 2],
    requant: &Requant,
    pace: &mut Pace,
) -> Result<Option<Fit>, OpError> {
    let (height, width) = (&geometry.height, &geometry.width);
    let is_such =
        |window: &Window| (window.kernel, window.dilation, window.stride) == (TAPS, 1, width.stride);
    if !is_such(height) || !is_such(width) || width.stride > 2 || !requant.is_usual() {
        return Ok(None);
    }
    let start = weights.elements::<i8>(0, weights.len());
    // How many there are is a client's choice, as is the number of channels.
    for mut stretch in Pace::stretches(weights.len()).filter(|_| matches!(instructions, Instructions::Base)) {
        pace.spend(stretch.len())?;
        // SAFETY: there are as many weights.
        if stretch.any(|i| unsafe { start.add(i).read() } == i8::MIN) {
            return Ok(None);
        }
    }
    // There is none as long as it is not packed.
    let channels = bias.len() / size_of::<i32>();
    let bias = bias.elements::<i32>(0, channels);
    let mut is_short = true;
    for channel in 0..channels {
        pace.spend(CHANNEL)?;
        // SAFETY: one of as many as were asked for.
        let bias = unsafe { bias.add(channel).read() };
        is_short &= requant.is_short_sum(channel, f64::from(bias).abs() + LARGEST);
    }
    Ok(Some(Fit { is_short }))
}

/// Some channels of a row of outputs, or of two, and what they are made of.
pub struct Slide<'a> {
    pub fit: Fit,
    /// The rows of the input from their first column on; `None` beside it.
    pub lines: [Option<Line>; ROWS],
    /// Columns that are not beside the input.
    pub inside: Range<usize>,
    /// As many bytes of what lies beside it.
    pub padding: &'a [u8; CHANNELS],
    pub flip: u8,
    pub count: usize,
    /// Quads of all channels, and how many elements there are from one block to the next: of the upper row of outputs, and
    /// then of the lower one.
    pub weights: *const i8,
    pub block: usize,
    pub bias: *const i32,
    pub requant: &'a Requant,
    /// Where the first output of all channels goes, how far the next one is, and the one below.
    pub to: *mut u8,
    pub step: usize,
    pub below: usize,
}

impl Slide<'_> {
    /// Computes so many rows of outputs, one or two, whose columns are one or two apart, of channels in whole blocks.
    ///
    /// # Safety
    /// The machine must have the instruction set of `C`; all pointers must be those of as many rows and outputs.
    #[inline(always)]
    pub unsafe fn run<C: Columns>(&self, rows: usize, stride: usize, channels: Range<usize>) {
        // SAFETY: by contract.
        unsafe {
            let target = Neon::target(self.requant.target);
            let is_plain = self.fit.is_short && self.flip == 0 && Neon::is_positive(&target);
            match (rows, stride, is_plain) {
                (2, _, true) => self.rows::<C, 2, 1, true>(channels),
                (2, _, false) => self.rows::<C, 2, 1, false>(channels),
                (_, 1, true) => self.rows::<C, 1, 1, true>(channels),
                (_, 1, false) => self.rows::<C, 1, 1, false>(channels),
                (_, _, true) => self.rows::<C, 1, 2, true>(channels),
                (_, _, false) => self.rows::<C, 1, 2, false>(channels),
            }
        }
    }

    /// Computes `MADE` rows of outputs, whose columns are `STRIDE` apart. Where it is `PLAIN`, inputs and outputs are signed
    /// bytes, and outputs any of them, the least of which is 0.
    ///
    /// # Safety
    /// As for [`Self::run`].
    #[inline(always)]
    unsafe fn rows<C: Columns, const MADE: usize, const STRIDE: usize, const PLAIN: bool>(
        &self,
        channels: Range<usize>,
    ) {
        for first in channels.step_by(HALF) {
            // SAFETY: by contract.
            unsafe { self.half::<C, MADE, STRIDE, PLAIN>(first) };
        }
    }

    /// What scales four channels from one on.
    ///
    /// # Safety
    /// There must be such channels, scaled as most are.
    #[inline(always)]
    unsafe fn multipliers(&self, channel: usize) -> Multipliers {
        // SAFETY: by contract.
        unsafe {
            let [mantissa, right] = Neon::load_two(self.requant.scales(channel / Neon::LANES).narrow);
            Multipliers { mantissa, right, left: vdupq_n_s32(0) }
        }
    }

    /// The same as [`Self::rows`] for eight channels from `first` on.
    ///
    /// # Safety
    /// As for [`Self::run`].
    #[inline(always)]
    unsafe fn half<C: Columns, const MADE: usize, const STRIDE: usize, const PLAIN: bool>(
        &self,
        first: usize,
    ) {
        // SAFETY: by contract; columns inside are gone through one by one.
        unsafe {
            let bias = C::bias(self.bias.add(first));
            let quads = self.weights.add(first / CHANNELS * self.block + first % CHANNELS * ROWS);
            let weights: [C::Weights; MADE] = std::array::from_fn(|below| {
                let row = if C::SHARES { 0 } else { below };
                C::weights(quads.add(row * TAPS * QUAD))
            });
            let flip = vdupq_n_u8(self.flip);
            let beside = C::column::<PLAIN>([vld1q_u8(self.padding.as_ptr()); ROWS], flip);
            let lines = self.lines.map(|line| match line {
                Some((line, step)) => (line.wrapping_add(first), step),
                None => (self.padding.as_ptr(), 0),
            });
            let (mut rows, steps) = (lines.map(|line| line.0), lines.map(|line| line.1));
            let mut next = || {
                let [a, b, c, d] = &mut rows;
                let [a, b, c] = [load_eight(a, steps[0]), load_eight(b, steps[1]), load_eight(c, steps[2])];
                // One row of outputs has weights of zero there: any bytes will do.
                let d = if MADE > 1 { load_eight(d, steps[3]) } else { c };
                C::column::<PLAIN>([a, b, c, d], flip)
            };
            let mut to = [self.to.wrapping_add(first); 2];
            to[1] = to[0].wrapping_add((MADE - 1) * self.below);
            let (target, step) = (Neon::target(self.requant.target), self.step);
            let by = [self.multipliers(first), self.multipliers(first + Neon::LANES)];
            // No closures, as those would be compiled without the instruction set of `C`.
            macro_rules! pack {
                ($sums:expr) => {{
                    let [[a, b], [c, d]] = $sums;
                    let scale = if PLAIN { apply_to_positive } else { apply_below_half };
                    let scaled = [scale(a, by[0]), scale(b, by[1]), scale(c, by[0]), scale(d, by[1])];
                    match PLAIN {
                        true => Neon::pack_positive(scaled, target),
                        false => Neon::pack(scaled, target),
                    }
                }};
            }
            // One output of each row that is made, and another column.
            macro_rules! pixel {
                ($columns:expr, $next:expr) => {{
                    let columns: [C::Column; TAPS] = $columns;
                    let sums = if MADE == 1 {
                        [C::sums(bias, columns, &weights[0], 0); 2]
                    } else {
                        C::two_sums(bias, [columns; 2], [&weights[0], &weights[MADE - 1]], MADE - 1)
                    };
                    if C::MEANWHILE {
                        let next = $next;
                        store_eights(pack!(sums), &mut to, step);
                        next
                    } else {
                        store_eights(pack!(sums), &mut to, step);
                        $next
                    }
                }};
            }
            let mut any = |j: usize| if self.inside.contains(&j) { next() } else { beside };
            let mut columns = [any(0), beside, beside];
            let mut done = 0;
            if STRIDE == 1 {
                columns[1] = any(1);
            }
            if STRIDE == 1 && C::MEANWHILE {
                columns[2] = any(2);
            }
            if STRIDE == 1 && self.inside.start <= 2 {
                // What was the second column becomes the first without being moved.
                for _ in 0..(self.count / 3).min(self.inside.end.saturating_sub(4).div_ceil(3)) {
                    let [a, b, c] = if C::MEANWHILE { columns } else { [columns[0], columns[1], next()] };
                    let is_next = C::MEANWHILE && done + 5 < self.inside.end;
                    let d = pixel!([a, b, c], next());
                    let e = pixel!([b, c, d], next());
                    let f = pixel!([c, d, e], if is_next { next() } else { beside });
                    (columns, done) = ([d, e, f], done + 3);
                }
            }
            if STRIDE == 2 && self.inside.start <= 1 {
                for _ in 0..(self.count / 2).min(self.inside.end.saturating_sub(4).div_ceil(4)) {
                    let (a, b, c) = (columns[0], next(), next());
                    let (d, e) = (next(), next());
                    let packed = pack!(C::two_sums(bias, [[a, b, c], [c, d, e]], [&weights[0]; 2], 0));
                    if PLAIN {
                        to[0] = Neon::store_rows(packed, to[0], step);
                    } else {
                        // Here it has no register to spare.
                        Neon::store(packed, [to[0], to[0].wrapping_add(step)], HALF);
                        to[0] = to[0].wrapping_add(2 * step);
                    }
                    (columns[0], done) = (e, done + 2);
                }
                to[1] = to[0];
            }
            let mut any = |j: usize| if self.inside.contains(&j) { next() } else { beside };
            for i in done..self.count {
                if STRIDE == 2 {
                    columns[1] = any(2 * i + 1);
                }
                if STRIDE == 2 || !C::MEANWHILE {
                    columns[2] = any(i * STRIDE + 2);
                }
                let next = pixel!(columns, if STRIDE == 1 && C::MEANWHILE { any(i + 3) } else { beside });
                columns = match STRIDE {
                    1 => [columns[1], columns[2], next],
                    _ => [columns[2], beside, beside],
                };
            }
        }
    }
}
