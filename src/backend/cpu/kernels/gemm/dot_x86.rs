//! Products of bytes in AVX2, AVX-VNNI, AVX-512 and its VNNI.

use super::dot::{Dot, Sums};
use crate::backend::cpu::kernels::simd::{Avx2, Avx512};
use std::arch::x86_64::*;

/// Even and odd bytes, widened to 16 bits.
///
/// # Safety
/// The machine must have AVX2, and there be 32 bytes.
#[inline(always)]
unsafe fn widened_256(p: *const i8) -> [__m256i; 2] {
    // SAFETY: by contract.
    unsafe {
        let bytes = _mm256_loadu_si256(p.cast());
        [_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes)), _mm256_srai_epi16::<8>(bytes)]
    }
}

/// The same in AVX-512, of 64 bytes.
///
/// # Safety
/// The machine must have AVX-512 BW.
#[inline(always)]
unsafe fn widened_512(p: *const i8) -> [__m512i; 2] {
    // SAFETY: by contract.
    unsafe {
        let bytes = _mm512_loadu_si512(p.cast());
        [_mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(bytes)), _mm512_srai_epi16::<8>(bytes)]
    }
}

// SAFETY: callers have detected AVX2, as the trait demands; all loads are unaligned ones.
unsafe impl Dot for Avx2 {
    type V = Avx2;
    /// Bytes widened to 16 bits, even and odd: the instruction that multiplies bytes would saturate.
    type A = [__m256i; 2];
    type B = [__m256i; 2];
    const FLIP: [bool; 2] = [false; 2];

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe {
            let four = _mm256_set1_epi32(p.cast::<i32>().read_unaligned());
            if SIGNED {
                [_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(four)), _mm256_srai_epi16::<8>(four)]
            } else {
                [_mm256_and_si256(four, _mm256_set1_epi16(0xff)), _mm256_srli_epi16::<8>(four)]
            }
        }
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> [Self::B; 2] {
        // SAFETY: by the trait's contract.
        unsafe { [widened_256(p), widened_256(p.add(32))] }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self> {
        // SAFETY: by the trait's contract.
        unsafe {
            let sums = _mm256_add_epi32(sums, _mm256_madd_epi16(a[0], b[0]));
            _mm256_add_epi32(sums, _mm256_madd_epi16(a[1], b[1]))
        }
    }
}

/// AVX2 with products of bytes.
#[derive(Clone, Copy)]
pub struct AvxVnni;

// SAFETY: callers have detected AVX-VNNI, as the trait demands; all loads are unaligned ones.
unsafe impl Dot for AvxVnni {
    type V = Avx2;
    type A = __m256i;
    type B = __m256i;
    const FLIP: [bool; 2] = [false, true];

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_set1_epi32(p.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> [Self::B; 2] {
        // SAFETY: by the trait's contract.
        unsafe { [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())] }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self> {
        let (unsigned, signed) = if SIGNED { (b, a) } else { (a, b) };
        // SAFETY: by the trait's contract.
        unsafe { _mm256_dpbusd_avx_epi32(sums, unsigned, signed) }
    }
}

// SAFETY: callers have detected AVX-512 BW, as the trait demands; all loads are unaligned ones.
unsafe impl Dot for Avx512 {
    type V = Avx512;
    /// As in AVX2.
    type A = [__m512i; 2];
    type B = [__m512i; 2];
    const FLIP: [bool; 2] = [false; 2];

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe {
            let four = _mm512_set1_epi32(p.cast::<i32>().read_unaligned());
            if SIGNED {
                [_mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(four)), _mm512_srai_epi16::<8>(four)]
            } else {
                [_mm512_and_si512(four, _mm512_set1_epi16(0xff)), _mm512_srli_epi16::<8>(four)]
            }
        }
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> [Self::B; 2] {
        // SAFETY: by the trait's contract.
        unsafe { [widened_512(p), widened_512(p.add(64))] }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self> {
        // SAFETY: by the trait's contract.
        unsafe {
            let sums = _mm512_add_epi32(sums, _mm512_madd_epi16(a[0], b[0]));
            _mm512_add_epi32(sums, _mm512_madd_epi16(a[1], b[1]))
        }
    }
}

/// AVX-512 with products of bytes.
#[derive(Clone, Copy)]
pub struct Vnni;

// SAFETY: callers have detected AVX-512 VNNI, as the trait demands; all loads are unaligned ones.
unsafe impl Dot for Vnni {
    type V = Avx512;
    type A = __m512i;
    type B = __m512i;
    const FLIP: [bool; 2] = [false, true];

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_set1_epi32(p.cast::<i32>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> [Self::B; 2] {
        // SAFETY: by the trait's contract.
        unsafe { [_mm512_loadu_si512(p.cast()), _mm512_loadu_si512(p.add(64).cast())] }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self> {
        let (unsigned, signed) = if SIGNED { (b, a) } else { (a, b) };
        // SAFETY: by the trait's contract.
        unsafe { _mm512_dpbusd_epi32(sums, unsigned, signed) }
    }
}
