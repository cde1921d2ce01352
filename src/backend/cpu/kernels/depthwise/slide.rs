//! Filters of three by three cells: the columns of the input under an output stay in registers, and its neighbour needs one
//! or two more. How they are multiplied is the instruction set's affair; there are such for 64-bit Arm only.

use super::super::gemm::{Lanes, Requant, Scales};
use super::super::neon::Neon;
use super::instructions::Instructions;
use super::layout::{CHANNELS, QUAD, ROWS};
use super::quads::{Line, PixelScales, Quads};
use crate::memory::Weights;
use crate::ops::conv::DepthwiseGeometry;
use crate::ops::image::Window;
use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::Range;

/// Cells of a row of the filter.
const TAPS: usize = 3;
/// Channels that are made at once.
const HALF: usize = CHANNELS / 2;

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

    /// Whether both rows of outputs have the same weights: those of the upper one.
    const SHARES: bool;

    /// From the first eight bytes of each row, each xored with `flip` unless they are `PLAIN`.
    unsafe fn column<const PLAIN: bool>(rows: [uint8x16_t; ROWS], flip: uint8x16_t) -> Self::Column;
    /// From what eight channels have of three quads, for the upper or the lower row of outputs.
    unsafe fn weights(quads: *const i8) -> Self::Weights;
    /// Adds the products for the upper or the lower row of outputs.
    unsafe fn add(sums: Sums, columns: [Self::Column; TAPS], weights: &Self::Weights, below: usize) -> Sums;
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

/// What scales the four vectors of sixteen channels.
pub fn scales_of(requant: &Requant, block: usize) -> PixelScales {
    let vector = block * (CHANNELS / <Neon as Lanes>::LANES);
    let (first, second) = (requant.scales(vector), requant.scales(vector + 1));
    // None, where all channels have the same.
    let step = (second.narrow as usize).wrapping_sub(first.narrow as usize);
    let below = |scales: Scales| Scales { narrow: scales.narrow.wrapping_byte_add(2 * step), ..scales };
    [[first, second], [below(first), below(second)]]
}

/// Whether a filter is such a one, whose weights have no zero point, and sums are scaled as most are. Without dot products
/// sums of two products are to be within 16 bits.
pub fn fits(
    geometry: &DepthwiseGeometry,
    instructions: Instructions,
    weights: &Weights,
    requant: &Requant,
) -> bool {
    let (height, width) = (&geometry.height, &geometry.width);
    let is_such =
        |window: &Window| (window.kernel, window.dilation, window.stride) == (TAPS, 1, width.stride);
    if !is_such(height) || !is_such(width) || width.stride > 2 || !requant.is_usual() {
        return false;
    }
    let start = weights.elements::<i8>(0, weights.len());
    match instructions {
        // SAFETY: there are as many weights.
        Instructions::Base => (0..weights.len()).all(|i| unsafe { start.add(i).read() } != i8::MIN),
        Instructions::Dotprod => true,
    }
}

/// Sixteen channels of a row of outputs, or of two, and what they are made of.
pub struct Slide<'a> {
    /// The rows of the input from their first column on.
    pub lines: [Line; ROWS],
    /// Columns that are not beside the input.
    pub inside: Range<usize>,
    /// As many bytes of what lies beside it.
    pub padding: &'a [u8; CHANNELS],
    pub flip: u8,
    pub count: usize,
    /// Quads of the upper row of outputs, and then of the lower one.
    pub weights: *const i8,
    pub bias: *const i32,
    pub scales: PixelScales,
    pub target: <Neon as Lanes>::Target,
    /// Where the first output goes, how far the next one is, and the one below.
    pub to: *mut u8,
    pub step: usize,
    pub below: usize,
}

impl Slide<'_> {
    /// Computes so many rows of outputs, one or two, whose columns are one or two apart.
    ///
    /// # Safety
    /// The machine must have the instruction set of `C`; all pointers must be those of as many rows and outputs.
    #[inline(always)]
    pub unsafe fn run<C: Columns>(&self, rows: usize, stride: usize) {
        let is_plain = self.flip == 0 && Neon::is_positive(&self.target);
        // SAFETY: by contract.
        unsafe {
            match (rows, stride, is_plain) {
                (2, _, true) => self.rows::<C, 2, 1, true>(),
                (2, _, false) => self.rows::<C, 2, 1, false>(),
                (_, 1, true) => self.rows::<C, 1, 1, true>(),
                (_, 1, false) => self.rows::<C, 1, 1, false>(),
                (_, _, true) => self.rows::<C, 1, 2, true>(),
                (_, _, false) => self.rows::<C, 1, 2, false>(),
            }
        }
    }

    /// Computes `MADE` rows of outputs, whose columns are `STRIDE` apart. Where it is `PLAIN`, inputs and outputs are signed
    /// bytes, and outputs any of them, the least of which is 0.
    ///
    /// # Safety
    /// As for [`Self::run`].
    #[inline(always)]
    unsafe fn rows<C: Columns, const MADE: usize, const STRIDE: usize, const PLAIN: bool>(&self) {
        for half in 0..CHANNELS / HALF {
            // SAFETY: by contract.
            unsafe { self.half::<C, MADE, STRIDE, PLAIN>(half * HALF, &self.scales[half]) };
        }
    }

    /// The same for eight channels from `first` on.
    ///
    /// # Safety
    /// As for [`Self::run`].
    #[inline(always)]
    unsafe fn half<C: Columns, const MADE: usize, const STRIDE: usize, const PLAIN: bool>(
        &self,
        first: usize,
        scales: &[Scales; 2],
    ) {
        // SAFETY: by contract; columns inside are gone through one by one.
        unsafe {
            let bias = self.bias.add(first);
            let bias = [Neon::load(bias), Neon::load(bias.add(4))];
            let weights: [C::Weights; MADE] = std::array::from_fn(|below| {
                let row = if C::SHARES { 0 } else { below };
                C::weights(self.weights.add(row * TAPS * QUAD + first * ROWS))
            });
            let flip = vdupq_n_u8(self.flip);
            let beside = C::column::<PLAIN>([vld1q_u8(self.padding.as_ptr()); ROWS], flip);
            let (mut rows, steps) =
                (self.lines.map(|line| line.0.wrapping_add(first)), self.lines.map(|line| line.1));
            let mut next = || {
                let [a, b, c, d] = &mut rows;
                let [a, b, c] = [load_eight(a, steps[0]), load_eight(b, steps[1]), load_eight(c, steps[2])];
                // One row of outputs has weights of zero there: any bytes will do.
                let d = if MADE > 1 { load_eight(d, steps[3]) } else { c };
                C::column::<PLAIN>([a, b, c, d], flip)
            };
            let mut to = [self.to.wrapping_add(first); 2];
            to[1] = to[0].wrapping_add((MADE - 1) * self.below);
            let (constants, target, step) = (Neon::constants(scales), self.target, self.step);
            // No closure, as that would be compiled without the instruction set of `C`.
            macro_rules! two_pixels {
                ($columns:expr, $others:expr, $row:expr) => {{
                    let [a, b] = C::add(bias, $columns, &weights[0], 0);
                    let [c, d] = C::add(bias, $others, &weights[$row], $row);
                    match PLAIN {
                        true => Neon::pack_plain(Neon::requantise_positive([a, b, c, d], &constants), target),
                        false => Neon::pack(Neon::requantise_usual([a, b, c, d], &constants), target),
                    }
                }};
            }
            // One of each row that is made.
            macro_rules! pixel {
                ($columns:expr) => {{
                    let columns: [C::Column; TAPS] = $columns;
                    store_eights(two_pixels!(columns, columns, MADE - 1), &mut to, step);
                }};
            }
            let mut any = |j: usize| if self.inside.contains(&j) { next() } else { beside };
            let mut columns = [any(0), if STRIDE == 1 { any(1) } else { beside }, beside];
            let mut done = 0;
            if STRIDE == 1 && self.inside.start <= 2 {
                // What was the second column becomes the first without being moved.
                while done + 3 <= self.count && done + 4 < self.inside.end {
                    let [a, b, _] = columns;
                    let c = next();
                    pixel!([a, b, c]);
                    let d = next();
                    pixel!([b, c, d]);
                    let e = next();
                    pixel!([c, d, e]);
                    (columns, done) = ([d, e, beside], done + 3);
                }
            }
            if STRIDE == 2 && self.inside.start <= 1 {
                while done + 2 <= self.count && 2 * done + 4 < self.inside.end {
                    let (a, b, c) = (columns[0], next(), next());
                    let (d, e) = (next(), next());
                    let packed = two_pixels!([a, b, c], [c, d, e], 0);
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
                columns[2] = any(i * STRIDE + 2);
                pixel!(columns);
                columns = match STRIDE {
                    1 => [columns[1], columns[2], beside],
                    _ => [columns[2], beside, beside],
                };
            }
        }
    }
}
