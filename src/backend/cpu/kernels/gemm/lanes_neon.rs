//! Vectors of 32-bit sums in NEON.

use super::lanes::{sum_of, Lanes};
use super::requant::{Bytes, Form, Scales};
use crate::backend::cpu::kernels::neon::{apply, apply_once, Multipliers, Neon};
use std::arch::aarch64::*;

/// [`Bytes`] in vectors.
#[derive(Clone, Copy)]
pub struct Target {
    zero: int16x8_t,
    low: uint8x16_t,
    high: uint8x16_t,
    flip: uint8x16_t,
}

/// Stores the first `columns` bytes.
///
/// # Safety
/// There must be as many bytes to write.
#[inline(always)]
unsafe fn store_64(row: uint8x8_t, to: *mut u8, columns: usize) {
    // SAFETY: by contract.
    unsafe {
        if columns >= 8 {
            to.cast::<uint8x8_t>().write_unaligned(row);
        } else {
            libc::memcpy(to.cast(), (&raw const row).cast(), columns);
        }
    }
}

// SAFETY: every machine has these instructions; all loads and stores may be unaligned.
unsafe impl Lanes for Neon {
    type I = int32x4_t;
    type Target = Target;
    type Packed = [u8; 16];
    const LANES: usize = 4;
    const FORM: Form = Form::Narrow;

    #[inline(always)]
    unsafe fn load(p: *const i32) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { p.cast::<Self::I>().read_unaligned() }
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
        // SAFETY: by the trait's contract, there are 3 times 4 constants.
        let by = unsafe {
            let at = |which: usize| scales.narrow.add(which * 4);
            Multipliers { mantissa: Self::load(at(0)), right: Self::load(at(1)), left: Self::load(at(2)) }
        };
        if scales.once {
            apply_once(sums, by)
        } else {
            apply(sums, by)
        }
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
            }
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
            let rows: uint8x16_t = std::mem::transmute(packed);
            store_64(vget_low_u8(rows), to[0], columns);
            store_64(vget_high_u8(rows), to[1], columns);
        }
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
