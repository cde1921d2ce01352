//! Products of bytes in AVX2, AVX-VNNI, AVX-512 and its VNNI.

use super::dot::{Dot, Sums};
use super::lanes::Lanes;
use super::products_x86::{add_pairs, add_products, Weight};
use crate::backend::cpu::kernels::simd::{Avx2, Avx512};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Even and odd bytes of 64, widened to 16 bits.
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

/// Inputs of a row that [`Avx2`] widens at once for a panel.
const WIDENED: usize = 512;
/// From a row's to the next row's: where rows lie a part of 4096 bytes apart, loads wait for stores to others.
const APART: usize = WIDENED + 32;

/// Sixteen bytes, widened to 16 bits.
///
/// # Safety
/// The machine must have AVX2.
#[inline(always)]
unsafe fn widened<const SIGNED: bool>(bytes: __m128i) -> __m256i {
    // SAFETY: by contract.
    unsafe {
        if SIGNED {
            _mm256_cvtepi8_epi16(bytes)
        } else {
            _mm256_cvtepu8_epi16(bytes)
        }
    }
}

/// Widens sixteen bytes.
///
/// # Safety
/// As for [`widen`].
#[inline(always)]
unsafe fn sixteen<const SIGNED: bool>(from: *const u8, to: *mut i16) {
    // SAFETY: by contract.
    unsafe { _mm256_storeu_si256(to.cast(), widened::<SIGNED>(_mm_loadu_si128(from.cast()))) }
}

/// The same of eight.
///
/// # Safety
/// As for [`widen`].
#[inline(always)]
unsafe fn eight<const SIGNED: bool>(from: *const u8, to: *mut i16) {
    // SAFETY: by contract.
    unsafe {
        let words = widened::<SIGNED>(_mm_loadl_epi64(from.cast()));
        _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(words));
    }
}

/// Widens `count` bytes, an even number of them.
///
/// # Safety
/// The machine must have AVX2, and there be as many bytes to read and words to write.
#[inline(always)]
pub unsafe fn widen<const SIGNED: bool>(from: *const u8, to: *mut i16, count: usize) {
    // SAFETY: by contract. The last of several stores writes once more what the one before has written.
    unsafe {
        match count {
            16.. => {
                let mut i = 0;
                while i + 16 < count {
                    sixteen::<SIGNED>(from.add(i), to.add(i));
                    i += 16;
                }
                sixteen::<SIGNED>(from.add(count - 16), to.add(count - 16));
            }
            8.. => {
                eight::<SIGNED>(from, to);
                eight::<SIGNED>(from.add(count - 8), to.add(count - 8));
            }
            _ => {
                for i in (0..count).step_by(2) {
                    let pair = _mm_cvtsi32_si128(from.add(i).cast::<u16>().read_unaligned().into());
                    let words = _mm256_castsi256_si128(widened::<SIGNED>(pair));
                    to.add(i).cast::<i32>().write_unaligned(_mm_cvtsi128_si32(words));
                }
            }
        }
    }
}

// SAFETY: callers have detected AVX2, as the trait demands; all loads are unaligned ones.
unsafe impl Dot for Avx2 {
    type V = Avx2;
    /// Bytes widened to 16 bits, a pair in each lane: the instruction that multiplies bytes would saturate.
    type A = __m256i;
    type B = __m256i;
    const GROUP: usize = 2;
    const FLIP: [bool; 2] = [false; 2];

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe { widened::<SIGNED>(_mm_set1_epi16(p.cast::<i16>().read_unaligned())) }
    }
    /// Inputs are widened once for both vectors of a panel, and then repeated in all lanes by loads alone.
    #[inline(always)]
    unsafe fn products<const SIGNED: bool, const M: usize, const P: usize, const V: usize>(
        sums: &mut [[[Sums<Self>; 2]; P]; M],
        inputs: [*const u8; M],
        mut weights: *const i8,
        padded: usize,
    ) -> usize {
        let mut room = MaybeUninit::<[[i16; APART]; M]>::uninit();
        let rows = room.as_mut_ptr().cast::<i16>();
        for first in (0..padded).step_by(WIDENED) {
            let count = (padded - first).min(WIDENED);
            // SAFETY: each row has the padded inputs and weights, a whole number of pairs, and as much room; what is read
            // there has been written.
            unsafe {
                for (m, inputs) in inputs.iter().enumerate() {
                    widen::<SIGNED>(inputs.add(first), rows.add(m * APART), count);
                }
                add_pairs::<M, P, V>(sums, rows, APART, weights, count / Self::GROUP);
                weights = weights.add(count * 2 * Self::V::LANES);
            }
        }
        padded
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> [Self::B; 2] {
        // SAFETY: by the trait's contract.
        unsafe { i8::two(p) }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self> {
        // SAFETY: by the trait's contract.
        unsafe { add_products(sums, a, b) }
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
    /// Bytes widened to 16 bits, even and odd, as in AVX2.
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
