//! Products of bytes in NEON with its dot products.

use super::dot::{Dot, Sums};
use super::order_neon::{multiply, ByPart, SignedBytes, UnsignedBytes};
use crate::backend::cpu::kernels::neon::Neon;
use std::arch::aarch64::*;

/// NEON with dot products, of bytes that are alike: weights for unsigned inputs are unsigned.
#[derive(Clone, Copy)]
pub struct Dotprod;

// SAFETY: callers have detected the dot products, as the trait demands; all loads may be unaligned.
unsafe impl Dot for Dotprod {
    type V = Neon;
    type A = uint8x16_t;
    type B = uint8x16_t;
    const FLIP: [bool; 2] = [true, false];

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe { vreinterpretq_u8_u32(vdupq_n_u32(p.cast::<u32>().read_unaligned())) }
    }
    #[inline(always)]
    unsafe fn products<const SIGNED: bool, const M: usize, const P: usize>(
        sums: &mut [[[Sums<Self>; 2]; P]; M],
        inputs: [*const u8; M],
        weights: *const i8,
        padded: usize,
    ) -> usize {
        // SAFETY: by the trait's contract.
        unsafe {
            if SIGNED {
                multiply::<SignedBytes, M, P>(sums, inputs, weights.cast(), padded);
            } else {
                multiply::<UnsignedBytes, M, P>(sums, inputs, weights.cast(), padded);
            }
        }
        padded
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> [Self::B; 2] {
        // SAFETY: by the trait's contract.
        unsafe { p.cast::<[Self::B; 2]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self> {
        // SAFETY: by the trait's contract.
        unsafe {
            if SIGNED {
                SignedBytes::add::<0>(sums, b, a)
            } else {
                UnsignedBytes::add::<0>(sums, b, a)
            }
        }
    }
}
