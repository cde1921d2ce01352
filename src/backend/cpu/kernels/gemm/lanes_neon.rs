//! Vectors of 32-bit sums in NEON.

use super::lanes::{sum_of, Lanes};
use super::order_neon;
use super::requant::{Bytes, Form, Rounding, Scales};
use crate::backend::cpu::kernels::neon::{
    apply, apply_below_half, apply_once, apply_to_positive, Multipliers, Neon,
};
use std::arch::aarch64::*;
use std::arch::asm;

/// [`Bytes`] in vectors.
#[derive(Clone, Copy)]
pub struct Target {
    zero: int16x8_t,
    low: uint8x16_t,
    high: uint8x16_t,
    flip: uint8x16_t,
    /// The zero point of signed bytes.
    signed_zero: int16x8_t,
    /// Whether outputs are signed bytes, any of them.
    is_plain: bool,
    /// Whether the least of them stands for 0.
    is_positive: bool,
}

/// What scales two vectors of columns.
#[derive(Clone, Copy)]
pub struct Constants {
    scales: [Scales; 2],
    by: [Multipliers; 2],
}

/// Stores the first `columns` bytes of two rows. It is a function of its own so that whole rows need not be in memory.
///
/// # Safety
/// There must be as many bytes to write, less than eight.
#[cold]
#[inline(never)]
unsafe fn store_part(rows: [u64; 2], to: [*mut u8; 2], columns: usize) {
    for (row, to) in rows.iter().zip(to) {
        // SAFETY: by contract.
        unsafe { libc::memcpy(to.cast(), (&raw const *row).cast(), columns) };
    }
}

/// What scales a vector of sums.
///
/// # Safety
/// There must be three times four constants in the narrow form.
#[inline(always)]
unsafe fn multipliers(scales: Scales) -> Multipliers {
    // SAFETY: by contract.
    unsafe {
        let at = |which: usize| Neon::load(scales.narrow.add(which * 4));
        Multipliers { mantissa: at(0), right: at(1), left: at(2) }
    }
}

/// Numbers that are within 16 bits, as such.
#[inline(always)]
pub fn low_halves(a: int32x4_t, b: int32x4_t) -> int16x8_t {
    // SAFETY: every machine has the instruction.
    unsafe { vuzp1q_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)) }
}

// SAFETY: every machine has these instructions; all loads and stores may be unaligned.
unsafe impl Lanes for Neon {
    type I = int32x4_t;
    type Target = Target;
    type Constants = Constants;
    type Packed = [u8; 16];
    const LANES: usize = 4;
    const FORM: Form = Form::Narrow;

    #[inline(always)]
    unsafe fn load(p: *const i32) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { p.cast::<Self::I>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_two(p: *const i32) -> [Self::I; 2] {
        // SAFETY: by the trait's contract.
        unsafe {
            let [a, b] = order_neon::load_two::<0>(p.cast());
            [vreinterpretq_s32_u8(a), vreinterpretq_s32_u8(b)]
        }
    }
    #[inline(always)]
    unsafe fn splat(x: i32) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { vdupq_n_s32(x) }
    }
    #[inline(always)]
    unsafe fn sub(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { vsubq_s32(a, b) }
    }
    #[inline(always)]
    unsafe fn requantise(sums: Self::I, scales: Scales) -> Self::I {
        // SAFETY: by the trait's contract.
        let by = unsafe { multipliers(scales) };
        match scales.rounding {
            Rounding::Once => apply_once(sums, by),
            Rounding::Twice => apply(sums, by),
            Rounding::TwiceBelowHalf => apply_below_half(sums, by),
        }
    }
    #[inline(always)]
    unsafe fn constants(scales: &[Scales; 2]) -> Constants {
        // SAFETY: by the trait's contract.
        unsafe { Constants { scales: *scales, by: [multipliers(scales[0]), multipliers(scales[1])] } }
    }
    #[inline(always)]
    unsafe fn loaded(constants: &Constants) -> Constants {
        let mut by = constants.by;
        for (by, scales) in by.iter_mut().zip(&constants.scales) {
            // SAFETY: by the trait's contract.
            [by.mantissa, by.right] = unsafe { Self::load_two(scales.narrow) };
        }
        Constants { by, ..*constants }
    }
    #[inline(always)]
    unsafe fn requantise_rows(sums: [Self::I; 4], constants: &Constants) -> [Self::I; 4] {
        // SAFETY: the same contract.
        unsafe {
            if Self::is_usual(constants) {
                Self::requantise_usual(sums, constants)
            } else {
                Self::requantise_each(sums, &constants.scales)
            }
        }
    }
    #[inline(always)]
    fn is_usual(constants: &Constants) -> bool {
        constants.scales[0].rounding == Rounding::TwiceBelowHalf
    }
    #[inline(always)]
    unsafe fn requantise_usual([a, b, c, d]: [Self::I; 4], constants: &Constants) -> [Self::I; 4] {
        let [first, second] = constants.by;
        [
            apply_below_half(a, first),
            apply_below_half(b, second),
            apply_below_half(c, first),
            apply_below_half(d, second),
        ]
    }
    #[inline(always)]
    unsafe fn requantise_positive([a, b, c, d]: [Self::I; 4], constants: &Constants) -> [Self::I; 4] {
        let [first, second] = constants.by;
        [
            apply_to_positive(a, first),
            apply_to_positive(b, second),
            apply_to_positive(c, first),
            apply_to_positive(d, second),
        ]
    }
    #[inline(always)]
    unsafe fn target(bytes: Bytes) -> Target {
        // SAFETY: by the trait's contract.
        unsafe {
            Target {
                zero: vdupq_n_s16(bytes.zero),
                low: vdupq_n_u8(bytes.low),
                high: vdupq_n_u8(bytes.high),
                flip: vdupq_n_u8(bytes.flip),
                signed_zero: vdupq_n_s16(bytes.zero - 0x80),
                is_plain: (bytes.low, bytes.high, bytes.flip) == (0, u8::MAX, 0x80),
                is_positive: bytes.zero == 0,
            }
        }
    }
    #[inline(always)]
    fn is_plain(target: &Target) -> bool {
        target.is_plain
    }
    #[inline(always)]
    fn is_positive(target: &Target) -> bool {
        target.is_plain && target.is_positive
    }
    #[inline(always)]
    unsafe fn pack_plain([a, b, c, d]: [Self::I; 4], target: Target) -> Self::Packed {
        // SAFETY: by the trait's contract; any bits are bytes, and there are as many.
        unsafe {
            let first = vqaddq_s16(low_halves(a, b), target.signed_zero);
            let second = vqaddq_s16(low_halves(c, d), target.signed_zero);
            std::mem::transmute(vqmovn_high_s16(vqmovn_s16(first), second))
        }
    }
    #[inline(always)]
    unsafe fn pack_positive([a, b, c, d]: [Self::I; 4], target: Target) -> Self::Packed {
        // SAFETY: by the trait's contract; any bits are bytes, and there are as many.
        unsafe {
            let packed = vqmovun_high_s16(vqmovun_s16(low_halves(a, b)), low_halves(c, d));
            std::mem::transmute(veorq_u8(packed, target.flip))
        }
    }
    #[inline(always)]
    unsafe fn pack(scaled: [Self::I; 4], target: Target) -> Self::Packed {
        // SAFETY: by the trait's contract; any bits are bytes, and there are as many.
        unsafe {
            let [a, b, c, d] = scaled;
            let first = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(a), b), target.zero);
            let second = vqaddq_s16(vqmovn_high_s32(vqmovn_s32(c), d), target.zero);
            let packed = vqmovun_high_s16(vqmovun_s16(first), second);
            let clamped = vminq_u8(vmaxq_u8(packed, target.low), target.high);
            std::mem::transmute(veorq_u8(clamped, target.flip))
        }
    }
    #[inline(always)]
    unsafe fn store(packed: Self::Packed, to: [*mut u8; 2], columns: usize) {
        // SAFETY: by the trait's contract, `columns` bytes can be written to each.
        unsafe {
            let rows: uint64x2_t = std::mem::transmute(packed);
            if columns >= 8 {
                to[0].cast::<uint64x1_t>().write_unaligned(vget_low_u64(rows));
                vst1q_lane_u64::<1>(to[1].cast(), rows);
            } else {
                let rows = [vgetq_lane_u64::<0>(rows), vgetq_lane_u64::<1>(rows)];
                store_part(rows, to, columns);
            }
        }
    }
    #[inline(always)]
    unsafe fn store_rows(packed: Self::Packed, mut to: *mut u8, stride: usize) -> *mut u8 {
        // SAFETY: by the trait's contract. The compiler would move the second row to the front of a vector, and the pointer
        // by instructions of their own.
        unsafe {
            let rows: uint8x16_t = std::mem::transmute(packed);
            asm!(
                "st1 {{{rows:v}.8b}}, [{to}], {stride}",
                "st1 {{{rows:v}.d}}[1], [{to}], {stride}",
                rows = in(vreg) rows,
                to = inout(reg) to,
                stride = in(reg) stride,
                options(nostack, preserves_flags),
            );
        }
        to
    }
    #[inline(always)]
    unsafe fn sum<const SIGNED: bool>(bytes: *const u8, count: usize) -> i32 {
        // SAFETY: by the trait's contract, `count` bytes can be read.
        unsafe {
            let (mut sums, mut i) = (vdupq_n_s32(0), 0);
            while i + 16 <= count {
                let part = bytes.add(i).cast::<uint8x16_t>().read_unaligned();
                sums = if SIGNED {
                    vpadalq_s16(sums, vpaddlq_s8(vreinterpretq_s8_u8(part)))
                } else {
                    vreinterpretq_s32_u32(vpadalq_u16(vreinterpretq_u32_s32(sums), vpaddlq_u8(part)))
                };
                i += 16;
            }
            vaddvq_s32(sums).wrapping_add(sum_of::<SIGNED>(bytes.add(i), count - i))
        }
    }
}
