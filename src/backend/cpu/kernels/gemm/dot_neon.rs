//! Products of bytes in NEON, as every machine has it and with its dot products.
//!
//! Both take one of several inputs out of a vector. The compiler has no stable intrinsics for the dot products.

use super::dot::{Dot, Sums};
use crate::backend::cpu::kernels::neon::Neon;
use std::arch::aarch64::*;
use std::arch::asm;

// SAFETY: every machine has these instructions; all loads may be unaligned.
unsafe impl Dot for Neon {
    type V = Neon;
    /// Eight inputs, widened.
    type A = int16x8_t;
    type B = int16x4_t;
    const GROUP: usize = 1;
    const STEP: usize = 8;
    const FLIP: [bool; 2] = [false; 2];

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe {
            let byte = p.read();
            vdupq_n_s16(if SIGNED { (byte as i8).into() } else { byte.into() })
        }
    }
    #[inline(always)]
    unsafe fn several<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe {
            let bytes = p.cast::<uint8x8_t>().read_unaligned();
            if SIGNED {
                vmovl_s8(vreinterpret_s8_u8(bytes))
            } else {
                vreinterpretq_s16_u16(vmovl_u8(bytes))
            }
        }
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> [Self::B; 2] {
        // SAFETY: by the trait's contract.
        unsafe {
            let wide = vmovl_s8(p.cast::<int8x8_t>().read_unaligned());
            [vget_low_s16(wide), vget_high_s16(wide)]
        }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool, const AT: i32>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self> {
        // SAFETY: by the trait's contract.
        unsafe { vmlal_laneq_s16::<AT>(sums, b, a) }
    }
}

/// NEON with dot products, of bytes that are alike: weights for unsigned inputs are unsigned.
#[derive(Clone, Copy)]
pub struct Dotprod;

// SAFETY: callers have detected the dot products, as the trait demands; all loads may be unaligned.
unsafe impl Dot for Dotprod {
    type V = Neon;
    type A = int32x4_t;
    type B = int32x4_t;
    const STEP: usize = 4;
    const FLIP: [bool; 2] = [true, false];

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe { vdupq_n_s32(p.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn several<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe { p.cast::<Self::A>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> [Self::B; 2] {
        // SAFETY: by the trait's contract.
        unsafe { p.cast::<[Self::B; 2]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool, const AT: i32>(
        mut sums: Sums<Self>,
        a: Self::A,
        b: Self::B,
    ) -> Sums<Self> {
        macro_rules! dot {
            ($instruction:literal) => {
                asm!(
                    concat!($instruction, " {sums:v}.4s, {b:v}.16b, {a:v}.4b[{at}]"),
                    sums = inout(vreg) sums,
                    a = in(vreg) a,
                    b = in(vreg) b,
                    at = const AT % 4,
                    options(pure, nomem, nostack, preserves_flags),
                )
            };
        }
        // SAFETY: by the trait's contract; these compute with registers only.
        unsafe {
            if SIGNED {
                dot!("sdot");
            } else {
                dot!("udot");
            }
        }
        sums
    }
}
