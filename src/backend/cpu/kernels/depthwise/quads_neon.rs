//! Quads in NEON, as every 64-bit Arm machine has it and with its dot products. Their bytes are signed, as no instruction
//! before I8MM multiplies bytes that are not alike.

use super::super::gemm::Lanes;
use super::super::neon::Neon;
use super::layout::{CHANNELS, QUAD, ROWS};
use super::quads::{PixelScales, Quads, Target, PIXELS};
use super::slide::{self, Columns};
use std::arch::aarch64::*;
use std::arch::asm;

/// Four sums each of four times four channels.
type Sums = [int32x4_t; 4];

/// What every machine has: products of pairs of rows, whose sums are added at the end.
pub struct Base;

/// With dot products.
pub struct Dotprod;

// SAFETY: every machine has these instructions; all loads and stores may be unaligned.
unsafe impl Quads for Base {
    /// For each channel the sum of even pairs of rows, then that of odd ones.
    type Sums = [int32x4_t; 8];
    type Weight = i8;
    type Cell = u8;
    type V = Neon;

    fn place(channel: usize, row: usize) -> usize {
        channel * ROWS + row
    }
    #[inline(always)]
    unsafe fn load(sums: *const i32) -> Self::Sums {
        // SAFETY: by the trait's contract.
        unsafe {
            let sums = sums.cast::<Sums>().read_unaligned();
            let none = vdupq_n_s32(0);
            let mut halves = [none; 8];
            for (i, sums) in sums.into_iter().enumerate() {
                halves[2 * i] = vzip1q_s32(sums, none);
                halves[2 * i + 1] = vzip2q_s32(sums, none);
            }
            halves
        }
    }
    #[inline(always)]
    unsafe fn store(sums: Self::Sums) -> [i32; CHANNELS] {
        // SAFETY: every machine has these instructions.
        unsafe { numbers(whole(sums)) }
    }
    #[inline(always)]
    unsafe fn add(mut sums: Self::Sums, quad: *const u8, weights: *const i8) -> Self::Sums {
        for i in 0..4 {
            // SAFETY: by the trait's contract.
            unsafe {
                let bytes = quad.add(i * 16).cast::<int8x16_t>().read_unaligned();
                let weights = weights.add(i * 16).cast::<int8x16_t>().read_unaligned();
                let low = vmull_s8(vget_low_s8(bytes), vget_low_s8(weights));
                sums[2 * i] = vpadalq_s16(sums[2 * i], low);
                sums[2 * i + 1] = vpadalq_s16(sums[2 * i + 1], vmull_high_s8(bytes, weights));
            }
        }
        sums
    }
    #[inline(always)]
    unsafe fn requantise(
        [a, b, c, d]: [Self::Sums; PIXELS],
        scales: &PixelScales,
        target: Target<Self>,
    ) -> [[u8; CHANNELS]; PIXELS] {
        // SAFETY: by the trait's contract.
        unsafe { requantise([whole(a), whole(b), whole(c), whole(d)], scales, target) }
    }
}

// SAFETY: callers have detected the dot products; all loads and stores may be unaligned.
unsafe impl Quads for Dotprod {
    type Sums = Sums;
    type Weight = i8;
    type Cell = u8;
    type V = Neon;

    fn place(channel: usize, row: usize) -> usize {
        channel * ROWS + row
    }
    #[inline(always)]
    unsafe fn load(sums: *const i32) -> Self::Sums {
        // SAFETY: by the trait's contract.
        unsafe { sums.cast::<Sums>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(sums: Self::Sums) -> [i32; CHANNELS] {
        // SAFETY: every machine has these instructions.
        unsafe { numbers(sums) }
    }
    #[inline(always)]
    unsafe fn add(mut sums: Self::Sums, quad: *const u8, weights: *const i8) -> Self::Sums {
        for (i, sums) in sums.iter_mut().enumerate() {
            // SAFETY: by the trait's contract.
            unsafe {
                let bytes = quad.add(i * 16).cast::<int8x16_t>().read_unaligned();
                *sums = dot(*sums, bytes, weights.add(i * 16).cast::<int8x16_t>().read_unaligned());
            }
        }
        sums
    }
    #[inline(always)]
    unsafe fn requantise(
        pixels: [Self::Sums; PIXELS],
        scales: &PixelScales,
        target: Target<Self>,
    ) -> [[u8; CHANNELS]; PIXELS] {
        // SAFETY: by the trait's contract.
        unsafe { requantise(pixels, scales, target) }
    }
}

// SAFETY: every machine has these instructions. Two products are within 16 bits, as no weight is -128 here.
unsafe impl Columns for Base {
    /// Eight channels of each row.
    type Column = [int8x8_t; ROWS];
    /// The same of each tap of a column.
    type Weights = [[int8x8_t; 3]; 3];
    type Bias = slide::Sums;
    const SHARES: bool = true;
    const MEANWHILE: bool = false;

    #[inline(always)]
    unsafe fn column<const PLAIN: bool>([a, b, c, d]: [uint8x16_t; ROWS], flip: uint8x16_t) -> Self::Column {
        let flipped = |row| {
            // SAFETY: every machine has these instructions.
            unsafe { vget_low_s8(vreinterpretq_s8_u8(if PLAIN { row } else { veorq_u8(row, flip) })) }
        };
        [flipped(a), flipped(b), flipped(c), flipped(d)]
    }
    #[inline(always)]
    unsafe fn weights(quads: *const i8) -> Self::Weights {
        // SAFETY: by the trait's contract.
        unsafe {
            let [a, b, c] = [vld4_s8(quads), vld4_s8(quads.add(QUAD)), vld4_s8(quads.add(2 * QUAD))];
            [[a.0, a.1, a.2], [b.0, b.1, b.2], [c.0, c.1, c.2]]
        }
    }
    #[inline(always)]
    unsafe fn bias(from: *const i32) -> Self::Bias {
        // SAFETY: by the trait's contract.
        unsafe { [Neon::load(from), Neon::load(from.add(4))] }
    }
    #[inline(always)]
    unsafe fn two_sums(
        bias: Self::Bias,
        [first, second]: [[Self::Column; 3]; 2],
        weights: [&Self::Weights; 2],
        below: usize,
    ) -> [slide::Sums; 2] {
        // SAFETY: the same contract.
        unsafe { [Self::sums(bias, first, weights[0], 0), Self::sums(bias, second, weights[1], below)] }
    }
    #[inline(always)]
    unsafe fn sums(
        mut sums: slide::Sums,
        columns: [Self::Column; 3],
        weights: &Self::Weights,
        below: usize,
    ) -> slide::Sums {
        // SAFETY: every machine has these instructions.
        unsafe {
            let cell = |i: usize| (columns[i / 3][i % 3 + below], weights[i / 3][i % 3]);
            for i in (0..9).step_by(2) {
                let mut products = vmull_s8(cell(i).0, cell(i).1);
                if i + 1 < 9 {
                    products = vmlal_s8(products, cell(i + 1).0, cell(i + 1).1);
                }
                sums = [vaddw_s16(sums[0], vget_low_s16(products)), vaddw_high_s16(sums[1], products)];
            }
        }
        sums
    }
}

// SAFETY: callers have detected the dot products.
unsafe impl Columns for Dotprod {
    /// The rows of four channels, twice.
    type Column = [int8x16_t; 2];
    /// The same of each column.
    type Weights = [[int8x16_t; 2]; 3];
    /// Where it is: a load takes no vector instruction, as a copy would, and no register between sums.
    type Bias = *const i32;
    const SHARES: bool = false;
    const MEANWHILE: bool = true;

    #[inline(always)]
    unsafe fn column<const PLAIN: bool>([a, b, c, d]: [uint8x16_t; ROWS], flip: uint8x16_t) -> Self::Column {
        // SAFETY: every machine has these instructions.
        unsafe {
            let flipped = |rows| if PLAIN { rows } else { veorq_u8(rows, flip) };
            let (even, odd) = (flipped(vzip1q_u8(a, c)), flipped(vzip1q_u8(b, d)));
            [vzip1q_u8(even, odd), vzip2q_u8(even, odd)].map(|column| vreinterpretq_s8_u8(column))
        }
    }
    #[inline(always)]
    unsafe fn weights(quads: *const i8) -> Self::Weights {
        // SAFETY: by the trait's contract.
        unsafe {
            [
                quads.cast::<[int8x16_t; 2]>().read_unaligned(),
                quads.add(QUAD).cast::<[int8x16_t; 2]>().read_unaligned(),
                quads.add(2 * QUAD).cast::<[int8x16_t; 2]>().read_unaligned(),
            ]
        }
    }
    #[inline(always)]
    unsafe fn bias(from: *const i32) -> Self::Bias {
        from
    }
    #[inline(always)]
    unsafe fn two_sums(
        bias: Self::Bias,
        [first, second]: [[Self::Column; 3]; 2],
        weights: [&Self::Weights; 2],
        _: usize,
    ) -> [slide::Sums; 2] {
        // SAFETY: by the trait's contract. No sum waits for the product before: the order is kept.
        unsafe {
            let ([mut a, mut b], [mut c, mut d]) = (Neon::load_two(bias), Neon::load_two(bias));
            for i in 0..3 {
                a = dot_in_order(a, first[i][0], weights[0][i][0]);
                b = dot_in_order(b, first[i][1], weights[0][i][1]);
                c = dot_in_order(c, second[i][0], weights[1][i][0]);
                d = dot_in_order(d, second[i][1], weights[1][i][1]);
            }
            [[a, b], [c, d]]
        }
    }
    #[inline(always)]
    unsafe fn sums(
        bias: Self::Bias,
        columns: [Self::Column; 3],
        weights: &Self::Weights,
        _: usize,
    ) -> slide::Sums {
        // SAFETY: by the trait's contract.
        unsafe {
            let [mut a, mut b] = Neon::load_two(bias);
            for (column, weights) in columns.iter().zip(weights) {
                (a, b) = (dot(a, column[0], weights[0]), dot(b, column[1], weights[1]));
            }
            [a, b]
        }
    }
}

/// Defines `$name`, which adds four products to each sum.
macro_rules! dot {
    ($(#[$doc:meta])* $name:ident, $($pure:ident)?) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The machine must have dot products.
        #[inline(always)]
        unsafe fn $name(mut sums: int32x4_t, bytes: int8x16_t, weights: int8x16_t) -> int32x4_t {
            // SAFETY: by contract; the instruction computes with registers only, and is not stable otherwise.
            unsafe {
                asm!(
                    "sdot {sums:v}.4s, {bytes:v}.16b, {weights:v}.16b",
                    sums = inout(vreg) sums,
                    bytes = in(vreg) bytes,
                    weights = in(vreg) weights,
                    options($($pure,)? nomem, nostack, preserves_flags),
                );
            }
            sums
        }
    };
}

dot!(
    /// Where the compiler puts it.
    dot, pure
);
dot!(
    /// In the order of the calls, as the compiler does not know how long the instruction takes.
    dot_in_order,
);

/// # Safety
/// Every machine has the instructions.
#[inline(always)]
unsafe fn whole(halves: [int32x4_t; 8]) -> Sums {
    // SAFETY: as above.
    unsafe {
        let [a, b, c, d, e, f, g, h] = halves;
        [vpaddq_s32(a, b), vpaddq_s32(c, d), vpaddq_s32(e, f), vpaddq_s32(g, h)]
    }
}

/// # Safety
/// None: any bits are numbers, and there are as many.
#[inline(always)]
unsafe fn numbers(sums: Sums) -> [i32; CHANNELS] {
    // SAFETY: as above.
    unsafe { std::mem::transmute(sums) }
}

/// # Safety
/// As for [`Quads::requantise`]: sixteen sums are four vectors.
#[inline(always)]
unsafe fn requantise(
    pixels: [Sums; PIXELS],
    scales: &PixelScales,
    target: Target<Dotprod>,
) -> [[u8; CHANNELS]; PIXELS] {
    let mut bytes = [[0; CHANNELS]; PIXELS];
    for (bytes, sums) in bytes.iter_mut().zip(pixels) {
        let mut scaled = sums;
        for (scaled, scales) in scaled.iter_mut().zip(scales.as_flattened()) {
            // SAFETY: by contract.
            *scaled = unsafe { Neon::requantise(*scaled, *scales) };
        }
        // SAFETY: every machine has these instructions.
        *bytes = unsafe { Neon::pack(scaled, target) };
    }
    bytes
}
