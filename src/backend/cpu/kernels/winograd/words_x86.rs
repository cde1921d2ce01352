//! Vectors of words, and of the sums of 32 bits that their products are added up to, as tiles of bytes need them.
//!
//! The functions are inlined into an entry point that enables the instruction set; nothing else may call them.

use super::super::gemm::Lanes;
use super::super::simd::{Avx2, Avx512};
use std::arch::x86_64::*;

/// Vectors as wide as those of [`Lanes`].
///
/// # Safety
/// Implementations read and write no more than what each function says. All functions need the instruction set of the type, and
/// pointers must be valid for as many elements as a vector has.
#[allow(clippy::missing_safety_doc)] // the trait's section holds for each function
pub unsafe trait Words: Lanes {
    /// A vector of words.
    type W: Copy;
    const WORDS: usize = 2 * Self::LANES;

    /// Signed bytes, after they are xored with `flip`, as words.
    unsafe fn widened(from: *const u8, flip: i8) -> Self::W;
    unsafe fn put_words(words: Self::W, to: *mut i16);
    unsafe fn add_words(a: Self::W, b: Self::W) -> Self::W;
    unsafe fn sub_words(a: Self::W, b: Self::W) -> Self::W;
    unsafe fn shift_words<const BY: u32>(a: Self::W) -> Self::W;

    unsafe fn add(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn shift<const BY: u32>(a: Self::I) -> Self::I;
    /// The product with a factor, its lower 32 bits, shifted down with its sign.
    unsafe fn scaled<const DOWN: u32>(a: Self::I, factor: i32) -> Self::I;
    unsafe fn put(sums: Self::I, to: *mut i32);
}

// SAFETY: callers have detected AVX2, as the trait demands; all loads and stores are unaligned ones.
unsafe impl Words for Avx2 {
    type W = __m256i;

    #[inline(always)]
    unsafe fn widened(from: *const u8, flip: i8) -> Self::W {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_cvtepi8_epi16(_mm_xor_si128(_mm_loadu_si128(from.cast()), _mm_set1_epi8(flip))) }
    }
    #[inline(always)]
    unsafe fn put_words(words: Self::W, to: *mut i16) {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_storeu_si256(to.cast(), words) }
    }
    #[inline(always)]
    unsafe fn add_words(a: Self::W, b: Self::W) -> Self::W {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_add_epi16(a, b) }
    }
    #[inline(always)]
    unsafe fn sub_words(a: Self::W, b: Self::W) -> Self::W {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_sub_epi16(a, b) }
    }
    #[inline(always)]
    unsafe fn shift_words<const BY: u32>(a: Self::W) -> Self::W {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_sll_epi16(a, _mm_cvtsi32_si128(BY as i32)) }
    }
    #[inline(always)]
    unsafe fn add(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn shift<const BY: u32>(a: Self::I) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_sll_epi32(a, _mm_cvtsi32_si128(BY as i32)) }
    }
    #[inline(always)]
    unsafe fn scaled<const DOWN: u32>(a: Self::I, factor: i32) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe {
            _mm256_sra_epi32(_mm256_mullo_epi32(a, Self::splat(factor)), _mm_cvtsi32_si128(DOWN as i32))
        }
    }
    #[inline(always)]
    unsafe fn put(sums: Self::I, to: *mut i32) {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_storeu_si256(to.cast(), sums) }
    }
}

// SAFETY: callers have detected AVX-512 F and BW, as the trait demands; all loads and stores are unaligned ones.
unsafe impl Words for Avx512 {
    type W = __m512i;

    #[inline(always)]
    unsafe fn widened(from: *const u8, flip: i8) -> Self::W {
        // SAFETY: by the trait's contract.
        unsafe {
            _mm512_cvtepi8_epi16(_mm256_xor_si256(_mm256_loadu_si256(from.cast()), _mm256_set1_epi8(flip)))
        }
    }
    #[inline(always)]
    unsafe fn put_words(words: Self::W, to: *mut i16) {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_storeu_si512(to.cast(), words) }
    }
    #[inline(always)]
    unsafe fn add_words(a: Self::W, b: Self::W) -> Self::W {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_add_epi16(a, b) }
    }
    #[inline(always)]
    unsafe fn sub_words(a: Self::W, b: Self::W) -> Self::W {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_sub_epi16(a, b) }
    }
    #[inline(always)]
    unsafe fn shift_words<const BY: u32>(a: Self::W) -> Self::W {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_sll_epi16(a, _mm_cvtsi32_si128(BY as i32)) }
    }
    #[inline(always)]
    unsafe fn add(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn shift<const BY: u32>(a: Self::I) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_sll_epi32(a, _mm_cvtsi32_si128(BY as i32)) }
    }
    #[inline(always)]
    unsafe fn scaled<const DOWN: u32>(a: Self::I, factor: i32) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe {
            _mm512_sra_epi32(_mm512_mullo_epi32(a, Self::splat(factor)), _mm_cvtsi32_si128(DOWN as i32))
        }
    }
    #[inline(always)]
    unsafe fn put(sums: Self::I, to: *mut i32) {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_storeu_si512(to.cast(), sums) }
    }
}
