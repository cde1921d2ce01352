//! How the sums of small matrices (I8MM) become outputs without being put in order: a vector has two rows of two columns, and
//! so have its constants. Only the bytes are put in order, sixteen of them by what would take as much for four sums.

use super::lanes::Lanes;
use super::lanes_neon::low_halves;
use super::micro::Block;
use super::order_neon::{load_two, VECTOR};
use super::quant::Quant;
use crate::backend::cpu::kernels::neon::{apply_below_half, apply_to_positive, Multipliers, Neon};
use std::arch::aarch64::*;
use std::arch::asm;

/// What the four vectors of two rows of a panel start with and are scaled with, in memory, as registers are missed elsewhere.
#[repr(C)]
pub struct Constants {
    bias: [int32x4_t; 4],
    /// The mantissa and the right shift of each vector.
    by: [[int32x4_t; 2]; 4],
    zero: int16x8_t,
    stride: usize,
}

/// Two numbers twice.
///
/// # Safety
/// They must be there.
#[inline(always)]
unsafe fn two_twice(from: *const i32) -> int32x4_t {
    // SAFETY: by contract.
    unsafe { vreinterpretq_s32_u64(vdupq_n_u64(from.cast::<u64>().read_unaligned())) }
}

impl Constants {
    /// Those of a panel whose outputs are signed bytes, any of them.
    ///
    /// # Safety
    /// The block must be as `Micro::run` demands, with constants of the narrow form, and have the panel.
    #[inline(always)]
    pub unsafe fn of(block: &Block<Quant>, panel: usize) -> Self {
        let (requant, first) = block.finish;
        // SAFETY: bias and constants have whole panels by contract.
        unsafe {
            let bias = std::array::from_fn(|i| two_twice(block.bias.add(panel * 8 + 2 * i)));
            let by = std::array::from_fn(|i| {
                let scales = requant.scales((first + panel * 8) / Neon::LANES + i / 2).narrow;
                [two_twice(scales.add(i % 2 * 2)), two_twice(scales.add(Neon::LANES + i % 2 * 2))]
            });
            let zero = vdupq_n_s16(requant.target.zero - 0x80);
            Constants { bias, by, zero, stride: block.stride }
        }
    }

    /// What sums start with.
    #[inline(always)]
    pub fn start(&self) -> [int32x4_t; 4] {
        let bias = self.bias.as_ptr().cast();
        // SAFETY: there are four.
        let [[a, b], [c, d]] = unsafe { [load_two::<0>(bias), load_two::<{ 2 * VECTOR }>(bias)] };
        [a, b, c, d].map(|bias| {
            // SAFETY: any bits are numbers.
            unsafe { vreinterpretq_s32_u8(bias) }
        })
    }

    /// Turns the sums of pairs of rows into outputs, from `to` on. Gives where the next row's go. Where they are `POSITIVE` the
    /// least one stands for 0. If the last pair is one row twice, `is_half`, its second row goes to where the first went.
    ///
    /// # Safety
    /// There must be as many rows of outputs.
    #[inline(always)]
    pub unsafe fn outputs<const PAIRS: usize, const POSITIVE: bool>(
        &self,
        sums: &[[int32x4_t; 4]; PAIRS],
        mut to: *mut u8,
        is_half: bool,
    ) -> *mut u8 {
        let last = if is_half { 0 } else { self.stride };
        let by = self.by.as_ptr().cast();
        // SAFETY: there are four times two vectors; the rows are there by contract.
        unsafe {
            let by = [
                load_two::<0>(by),
                load_two::<{ 2 * VECTOR }>(by),
                load_two::<{ 4 * VECTOR }>(by),
                load_two::<{ 6 * VECTOR }>(by),
            ];
            // Written out, as sums that are indexed by a variable would be kept in memory all along.
            macro_rules! pairs {
                ($($p:literal)*) => {
                    $(if PAIRS > $p {
                        let (pair, other) = ($p.min(PAIRS - 1), ($p + 1).min(PAIRS - 1));
                        let first = self.bytes::<POSITIVE>(sums[pair], by);
                        let second = if other > pair { self.bytes::<POSITIVE>(sums[other], by) } else { first };
                        let rows = in_order::<POSITIVE>(first, second);
                        let steps = [self.stride, if PAIRS > $p + 2 { self.stride } else { last }];
                        to = match other > pair {
                            true => store_four(rows, to, steps),
                            false => store_two(rows, to, steps),
                        };
                    })*
                };
            }
            pairs!(0 2);
        }
        to
    }

    /// The bytes of two rows, two of each in turns; unsigned ones where they are `POSITIVE`.
    #[inline(always)]
    fn bytes<const POSITIVE: bool>(&self, sums: [int32x4_t; 4], by: [[uint8x16_t; 2]; 4]) -> uint8x16_t {
        // SAFETY: every machine has these instructions.
        unsafe {
            let scaled = |i: usize| {
                let [mantissa, right] = by[i].map(|by| vreinterpretq_s32_u8(by));
                let by = Multipliers { mantissa, right, left: vdupq_n_s32(0) };
                match POSITIVE {
                    true => apply_to_positive(sums[i], by),
                    false => apply_below_half(sums[i], by),
                }
            };
            let (first, second) = (low_halves(scaled(0), scaled(1)), low_halves(scaled(2), scaled(3)));
            if POSITIVE {
                return vqmovun_high_s16(vqmovun_s16(first), second);
            }
            let [first, second] = [first, second].map(|scaled| vqaddq_s16(scaled, self.zero));
            vreinterpretq_u8_s8(vqmovn_high_s16(vqmovn_s16(first), second))
        }
    }
}

/// The even and the odd rows of two pairs, as signed bytes.
#[inline(always)]
fn in_order<const POSITIVE: bool>(first: uint8x16_t, second: uint8x16_t) -> [uint8x16_t; 2] {
    // SAFETY: every machine has these instructions.
    unsafe {
        let [first, second] = [first, second].map(|pair| vreinterpretq_u16_u8(pair));
        let rows =
            [vuzp1q_u16(first, second), vuzp2q_u16(first, second)].map(|rows| vreinterpretq_u8_u16(rows));
        match POSITIVE {
            true => rows.map(|rows| veorq_u8(rows, vdupq_n_u8(0x80))),
            false => rows,
        }
    }
}

/// Stores four rows of eight bytes: how far each is from the one before, and the same of the last one. Gives where the next
/// one's go.
///
/// # Safety
/// There must be room for them.
#[inline(always)]
unsafe fn store_four(rows: [uint8x16_t; 2], mut to: *mut u8, [stride, last]: [usize; 2]) -> *mut u8 {
    // SAFETY: by contract. The compiler would move the pointer by instructions of their own.
    unsafe {
        asm!(
            "st1 {{{even:v}.8b}}, [{to}], {stride}",
            "st1 {{{odd:v}.8b}}, [{to}], {stride}",
            "st1 {{{even:v}.d}}[1], [{to}], {last}",
            "st1 {{{odd:v}.d}}[1], [{to}], {stride}",
            even = in(vreg) rows[0],
            odd = in(vreg) rows[1],
            to = inout(reg) to,
            stride = in(reg) stride,
            last = in(reg) last,
            options(nostack, preserves_flags),
        );
    }
    to
}

/// The same of the first two.
///
/// # Safety
/// There must be room for them.
#[inline(always)]
unsafe fn store_two(rows: [uint8x16_t; 2], mut to: *mut u8, [stride, last]: [usize; 2]) -> *mut u8 {
    // SAFETY: as above.
    unsafe {
        asm!(
            "st1 {{{even:v}.8b}}, [{to}], {last}",
            "st1 {{{odd:v}.8b}}, [{to}], {stride}",
            even = in(vreg) rows[0],
            odd = in(vreg) rows[1],
            to = inout(reg) to,
            stride = in(reg) stride,
            last = in(reg) last,
            options(nostack, preserves_flags),
        );
    }
    to
}
