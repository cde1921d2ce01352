//! Sums of 8-bit products as bytes by floats, in AVX2 and AVX-512: fixed point numbers whose upper 16 bits are what the
//! output is before it is bounded, and whose lower 16 bits say whether it is certain; see [`requant`](super::requant).
//!
//! What is not certain is for others to compute.

use super::requant::UNSURE;
use std::arch::x86_64::*;

/// In the order in which packing [`words_256`] of two rows to bytes leaves them: the lanes of a vector within a half, and then
/// the vectors' halves.
const BYTES: [u8; 16] = [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15];
const ORDER_256: [i32; 8] = [0, 4, 1, 5, 2, 6, 3, 7];
const ORDER_512: [i32; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];

/// What the bytes of an output are bounded by and xored with, and what is added to scaled sums of either sign.
#[derive(Clone, Copy)]
pub struct Bounds<I, F> {
    pub low: I,
    pub high: I,
    pub flip: I,
    pub base: F,
}

/// What sums become bytes with: the zero point in 16 bits, what the bytes are bounded by, and whether all that is below the
/// zero point is one byte.
#[derive(Clone, Copy)]
pub struct Target<I, F> {
    pub(super) zero: I,
    pub(super) bounds: Bounds<I, F>,
    pub(super) is_one_sided: bool,
}

impl<I: Copy, F: Copy> Target<I, F> {
    /// What bytes are bounded by and xored with.
    pub fn bounds(&self) -> Bounds<I, F> {
        self.bounds
    }
}

// Here and below no closure computes with vectors: it would not be compiled for their instruction set.

/// Fixed point numbers of sums, by the constants of `quick`; `least` has the least of each lane's 16 bits so far.
///
/// # Safety
/// The machine must have AVX2 and FMA, and `quick` twice 8 constants.
#[inline(always)]
unsafe fn fixed_256<const ONE_SIDED: bool>(
    x: __m256i,
    quick: *const f32,
    base: __m256,
    least: &mut __m256i,
) -> __m256i {
    // SAFETY: by contract.
    unsafe {
        let (factor, nudge) = (_mm256_loadu_ps(quick), _mm256_loadu_ps(quick.add(8)));
        let scaled = if ONE_SIDED {
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(x), factor, nudge)
        } else {
            let sign = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(i32::MIN)));
            _mm256_add_ps(_mm256_fmadd_ps(_mm256_cvtepi32_ps(x), factor, _mm256_or_ps(nudge, sign)), base)
        };
        let fixed = _mm256_cvtps_epi32(scaled);
        *least = _mm256_min_epu16(*least, fixed);
        fixed
    }
}

/// The same in AVX-512, of twice 16 constants.
///
/// # Safety
/// The machine must have AVX-512 F and BW.
#[inline(always)]
unsafe fn fixed_512<const ONE_SIDED: bool>(
    x: __m512i,
    quick: *const f32,
    base: __m512,
    least: &mut __m512i,
) -> __m512i {
    // SAFETY: by contract.
    unsafe {
        let (factor, nudge) = (_mm512_loadu_ps(quick), _mm512_loadu_ps(quick.add(16)));
        let scaled = if ONE_SIDED {
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(x), factor, nudge)
        } else {
            // The constant with the sign of x, which is 0 where the sum's is.
            const SIGN_OF: i32 = 0b1111_1000;
            let away = _mm512_ternarylogic_epi32::<SIGN_OF>(
                _mm512_castps_si512(nudge),
                x,
                _mm512_set1_epi32(i32::MIN),
            );
            _mm512_add_ps(_mm512_fmadd_ps(_mm512_cvtepi32_ps(x), factor, _mm512_castsi512_ps(away)), base)
        };
        let fixed = _mm512_cvtps_epi32(scaled);
        *least = _mm512_min_epu16(*least, fixed);
        fixed
    }
}

/// The upper 16 bits of `a` and `b`, in turns.
///
/// # Safety
/// The machine must have AVX2.
#[inline(always)]
unsafe fn words_256(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: by contract.
    unsafe { _mm256_blend_epi16::<0b1010_1010>(_mm256_srli_epi32::<16>(a), b) }
}

/// The same in AVX-512.
///
/// # Safety
/// The machine must have AVX-512 BW.
#[inline(always)]
unsafe fn words_512(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: by contract.
    unsafe { _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(a), b) }
}

/// The bytes of four vectors of sums, in order, if all of them are certain. The first and the third are scaled by the first
/// constants, the others by the second ones. `ONE_SIDED`: what is below the zero point is all one.
///
/// # Safety
/// The machine must have AVX2 and FMA, and each of `quick` twice 8 constants.
#[inline(always)]
pub unsafe fn bytes_256<const ONE_SIDED: bool>(
    sums: [__m256i; 4],
    quick: [*const f32; 2],
    bounds: Bounds<__m256i, __m256>,
) -> Option<__m256i> {
    // SAFETY: by contract.
    unsafe {
        let order = _mm256_loadu_si256(ORDER_256.as_ptr().cast());
        Some(_mm256_permutevar8x32_epi32(lanes_256::<ONE_SIDED>(sums, quick, bounds)?, order))
    }
}

/// The same with the bytes in the order of halves: those of each vector's first half, and then those of the second ones.
///
/// # Safety
/// As for [`bytes_256`].
#[inline(always)]
pub unsafe fn lanes_256<const ONE_SIDED: bool>(
    [a, b, c, d]: [__m256i; 4],
    [low, high]: [*const f32; 2],
    bounds: Bounds<__m256i, __m256>,
) -> Option<__m256i> {
    // SAFETY: by contract.
    unsafe {
        let (base, mut least) = (bounds.base, _mm256_set1_epi32(-1));
        let a = fixed_256::<ONE_SIDED>(a, low, base, &mut least);
        let b = fixed_256::<ONE_SIDED>(b, high, base, &mut least);
        let c = fixed_256::<ONE_SIDED>(c, low, base, &mut least);
        let d = fixed_256::<ONE_SIDED>(d, high, base, &mut least);
        // Upper bits are never below 0.
        let below = _mm256_subs_epu16(_mm256_set1_epi32(UNSURE), least);
        if _mm256_testz_si256(below, below) == 0 {
            return None;
        }
        let packed = _mm256_packus_epi16(words_256(a, b), words_256(c, d));
        let bounded = _mm256_min_epu8(_mm256_max_epu8(packed, bounds.low), bounds.high);
        let typed = _mm256_xor_si256(bounded, bounds.flip);
        let lanes = _mm256_broadcastsi128_si256(_mm_loadu_si128(BYTES.as_ptr().cast()));
        Some(_mm256_shuffle_epi8(typed, lanes))
    }
}

/// The same in AVX-512, of twice 16 constants each.
///
/// # Safety
/// The machine must have AVX-512 F and BW.
#[inline(always)]
pub unsafe fn bytes_512<const ONE_SIDED: bool>(
    sums: [__m512i; 4],
    [low, high]: [*const f32; 2],
    bounds: Bounds<__m512i, __m512>,
) -> Option<__m512i> {
    // SAFETY: by contract.
    unsafe {
        let order = _mm512_loadu_si512(ORDER_512.as_ptr().cast());
        let lanes = lanes_512::<ONE_SIDED>(sums, [low, high, low, high], bounds)?;
        Some(_mm512_permutexvar_epi32(order, lanes))
    }
}

/// The same with constants for each vector, and the bytes in the order of quarters: those of each vector's first quarter, and
/// then those of the second ones.
///
/// # Safety
/// As for [`bytes_512`].
#[inline(always)]
pub unsafe fn lanes_512<const ONE_SIDED: bool>(
    [a, b, c, d]: [__m512i; 4],
    quick: [*const f32; 4],
    bounds: Bounds<__m512i, __m512>,
) -> Option<__m512i> {
    // SAFETY: by contract.
    unsafe {
        let (base, mut least) = (bounds.base, _mm512_set1_epi32(-1));
        let a = fixed_512::<ONE_SIDED>(a, quick[0], base, &mut least);
        let b = fixed_512::<ONE_SIDED>(b, quick[1], base, &mut least);
        let c = fixed_512::<ONE_SIDED>(c, quick[2], base, &mut least);
        let d = fixed_512::<ONE_SIDED>(d, quick[3], base, &mut least);
        // Upper bits are never below 0.
        if _mm512_cmplt_epu16_mask(least, _mm512_set1_epi32(UNSURE)) != 0 {
            return None;
        }
        let packed = _mm512_packus_epi16(words_512(a, b), words_512(c, d));
        let bounded = _mm512_min_epu8(_mm512_max_epu8(packed, bounds.low), bounds.high);
        let typed = _mm512_xor_si512(bounded, bounds.flip);
        let lanes = _mm512_broadcast_i32x4(_mm_loadu_si128(BYTES.as_ptr().cast()));
        Some(_mm512_shuffle_epi8(typed, lanes))
    }
}
