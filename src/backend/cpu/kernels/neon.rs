//! NEON, which every 64-bit Arm machine has: its vectors of floats, and how 32-bit sums are scaled in it.
//!
//! The products of bytes that newer machines have are in `gemm` and `depthwise`.

use super::gemm::{load, load_two, multiply_floats};
use super::simd::Simd;
use std::arch::aarch64::*;

/// NEON as every machine of the architecture has it.
#[derive(Clone, Copy)]
pub struct Neon;

// SAFETY: every machine has these instructions; all loads and stores may be unaligned.
unsafe impl Simd for Neon {
    type F = float32x4_t;
    const LANES: usize = 4;
    const LOADS_APART: bool = true;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { vdupq_n_f32(x) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { p.cast::<Self::F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::F) {
        // SAFETY: by the trait's contract.
        unsafe { p.cast::<Self::F>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_two(p: *const f32) -> [Self::F; 2] {
        // SAFETY: by the trait's contract.
        unsafe {
            let [a, b] = load_two::<0>(p.cast());
            [vreinterpretq_f32_u8(a), vreinterpretq_f32_u8(b)]
        }
    }
    #[inline(always)]
    unsafe fn load_at(p: *const f32, at: usize) -> Self::F {
        // SAFETY: by the trait's contract. The compiler would take an instruction of its own for each address.
        unsafe { vreinterpretq_f32_u8(load(p.cast(), at * size_of::<f32>())) }
    }
    #[inline(always)]
    unsafe fn load_some(p: *const f32, n: usize) -> Self::F {
        // SAFETY: by the trait's contract; no lane but the first `n` is read.
        unsafe {
            let two = |p: *const f32| p.cast::<float32x2_t>().read_unaligned();
            let one = |p: *const f32| vset_lane_f32::<0>(p.read_unaligned(), vdup_n_f32(0.0));
            match n {
                0 => vdupq_n_f32(0.0),
                1 => vcombine_f32(one(p), vdup_n_f32(0.0)),
                2 => vcombine_f32(two(p), vdup_n_f32(0.0)),
                3 => vcombine_f32(two(p), one(p.add(2))),
                _ => Self::load(p),
            }
        }
    }
    #[inline(always)]
    unsafe fn store_some(p: *mut f32, v: Self::F, n: usize) {
        // SAFETY: as above.
        unsafe {
            match n {
                0 => {}
                1 => p.write_unaligned(vgetq_lane_f32::<0>(v)),
                2 | 3 => {
                    p.cast::<float32x2_t>().write_unaligned(vget_low_f32(v));
                    if n == 3 {
                        p.add(2).write_unaligned(vgetq_lane_f32::<2>(v));
                    }
                }
                _ => Self::store(p, v),
            }
        }
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { vaddq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { vsubq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { vfmaq_f32(c, a, b) }
    }
    #[inline(always)]
    unsafe fn clamp(v: Self::F, lo: Self::F, hi: Self::F) -> Self::F {
        // A zero below a bound of zero gets the bound's sign.
        // SAFETY: by the trait's contract.
        unsafe { vminq_f32(vmaxq_f32(v, lo), hi) }
    }
    #[inline(always)]
    unsafe fn clamp_below(v: Self::F, lo: Self::F) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { vmaxq_f32(v, lo) }
    }
    #[inline(always)]
    unsafe fn products<const M: usize, const P: usize>(
        sums: &mut [[[Self::F; 2]; P]; M],
        inputs: [*const f32; M],
        weights: *const f32,
        depth: usize,
    ) -> usize {
        // SAFETY: by the trait's contract.
        unsafe { multiply_floats(sums, inputs, weights, depth) };
        depth
    }
}

/// What scales four sums: the parts of a [`Multiplier`](crate::tensor::requant::Multiplier) each.
#[derive(Clone, Copy)]
pub struct Multipliers {
    pub mantissa: int32x4_t,
    /// Bits to shift left before the product.
    pub left: int32x4_t,
    /// Bits to shift right after it, as negative numbers.
    pub right: int32x4_t,
}

/// Four sums scaled as `Multiplier::apply` does.
#[inline(always)]
pub fn apply(sums: int32x4_t, by: Multipliers) -> int32x4_t {
    // SAFETY: every machine has these instructions.
    unsafe {
        // Halves are rounded up. The product cannot be the least number, as no mantissa is.
        let high = vqrdmulhq_s32(vqshlq_s32(sums, by.left), by.mantissa);
        // Halves away from zero: one less where it is negative and shifted.
        let nudged = vsraq_n_s32::<31>(high, vandq_s32(high, by.right));
        vrshlq_s32(nudged, by.right)
    }
}

/// [`apply`] by multipliers below a half.
#[inline(always)]
pub fn apply_below_half(sums: int32x4_t, by: Multipliers) -> int32x4_t {
    // SAFETY: every machine has these instructions.
    unsafe {
        let high = vqrdmulhq_s32(sums, by.mantissa);
        vrshlq_s32(vsraq_n_s32::<31>(high, high), by.right)
    }
}

/// The same of what is not negative; any other becomes 0 or less.
#[inline(always)]
pub fn apply_to_positive(sums: int32x4_t, by: Multipliers) -> int32x4_t {
    // SAFETY: every machine has these instructions.
    unsafe { vrshlq_s32(vqrdmulhq_s32(sums, by.mantissa), by.right) }
}

/// The same as `Multiplier::apply_once` does.
#[inline(always)]
pub fn apply_once(sums: int32x4_t, by: Multipliers) -> int32x4_t {
    // SAFETY: every machine has these instructions.
    unsafe {
        let (x, right) = (vqshlq_s32(sums, by.left), vsubq_s32(by.right, vdupq_n_s32(31)));
        let low = vmull_s32(vget_low_s32(x), vget_low_s32(by.mantissa));
        let high = vmull_high_s32(x, by.mantissa);
        let low = vrshlq_s64(low, vmovl_s32(vget_low_s32(right)));
        let high = vrshlq_s64(high, vmovl_high_s32(right));
        vuzp1q_s32(vreinterpretq_s32_s64(low), vreinterpretq_s32_s64(high))
    }
}
