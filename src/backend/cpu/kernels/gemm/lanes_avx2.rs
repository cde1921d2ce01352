//! Vectors of 32-bit sums in AVX2.

use super::lanes::{sum_of, Lanes};
use super::quick_x86::{bytes_256, Bounds, Target};
use super::requant::{Bytes, Form, Scales};
use crate::backend::cpu::kernels::simd::Avx2;
use std::arch::x86_64::*;

/// In the order in which packing the 32-bit lanes of two rows of two vectors to bytes leaves groups of four of them: where
/// those of the first row are, and then those of the second.
const ORDER_256: [i32; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Scales the even lanes of `x`: gives 64 bits each, of which the lower half matters.
///
/// # Safety
/// The machine must have AVX2, and `constants` four times 8, of which the first half each is used.
#[inline(always)]
unsafe fn half_256(x: __m256i, constants: *const i64) -> __m256i {
    // SAFETY: by contract.
    unsafe {
        let mantissa = _mm256_loadu_si256(constants.cast());
        let round = _mm256_loadu_si256(constants.add(8).cast());
        let sign = _mm256_and_si256(x, _mm256_loadu_si256(constants.add(16).cast()));
        let shift = _mm256_loadu_si256(constants.add(24).cast());
        let nudged = _mm256_sub_epi64(_mm256_add_epi64(_mm256_mul_epi32(x, mantissa), round), sign);
        // There is no arithmetic shift of 64 bits: with its top bit flipped none is negative.
        let lift = _mm256_set1_epi64x(i64::MIN);
        let shifted = _mm256_srlv_epi64(_mm256_xor_si256(nudged, lift), shift);
        _mm256_sub_epi64(shifted, _mm256_srlv_epi64(lift, shift))
    }
}

type Target256 = Target<__m256i, __m256>;

/// What [`Lanes::requantise_each`] gives. It is far from the loops, which seldom need it.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx2,fma")]
unsafe fn exactly_256(x: [__m256i; 4], scales: &[Scales; 2]) -> [__m256i; 4] {
    // SAFETY: by the contract of [`Lanes`].
    unsafe { Avx2::requantise_each(x, scales) }
}

/// Scaled sums of two rows of two vectors as bytes, in order.
///
/// # Safety
/// The machine must have AVX2.
#[inline(always)]
unsafe fn packed_256([a, b, c, d]: [__m256i; 4], target: Target256) -> __m256i {
    // SAFETY: by contract.
    unsafe {
        let first = _mm256_adds_epi16(_mm256_packs_epi32(a, b), target.zero);
        let second = _mm256_adds_epi16(_mm256_packs_epi32(c, d), target.zero);
        let packed = _mm256_packus_epi16(first, second);
        let bounded = _mm256_min_epu8(_mm256_max_epu8(packed, target.bounds.low), target.bounds.high);
        let typed = _mm256_xor_si256(bounded, target.bounds.flip);
        let order = _mm256_loadu_si256(ORDER_256.as_ptr().cast());
        _mm256_permutevar8x32_epi32(typed, order)
    }
}

/// Stores the first `columns` bytes.
///
/// # Safety
/// The machine must have SSE2, and there be as many bytes to write.
#[inline(always)]
unsafe fn store_128(row: __m128i, to: *mut u8, columns: usize) {
    // SAFETY: by contract.
    unsafe {
        if columns >= 16 {
            _mm_storeu_si128(to.cast(), row);
        } else {
            let mut edge = [0u8; 16];
            _mm_storeu_si128(edge.as_mut_ptr().cast(), row);
            libc::memcpy(to.cast(), edge.as_ptr().cast(), columns);
        }
    }
}

// SAFETY: callers have detected AVX2 and FMA, as the trait demands; all loads and stores are unaligned ones.
unsafe impl Lanes for Avx2 {
    type I = __m256i;
    type Target = Target256;
    type Constants = [Scales; 2];
    type Packed = [u8; 32];
    const LANES: usize = 8;
    const FORM: Form = Form::Wide;

    #[inline(always)]
    unsafe fn load(p: *const i32) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    unsafe fn splat(x: i32) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_set1_epi32(x) }
    }
    #[inline(always)]
    unsafe fn sub(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_sub_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn requantise(mut x: Self::I, scales: Scales) -> Self::I {
        // SAFETY: by the trait's contract, 4 times 8 constants, and 3 times 8 unless the pointer is null.
        unsafe {
            if !scales.narrow.is_null() {
                let left = scales.narrow;
                x = _mm256_min_epi32(_mm256_max_epi32(x, Self::load(left)), Self::load(left.add(8)));
                x = _mm256_sllv_epi32(x, Self::load(left.add(16)));
            }
            let even = half_256(x, scales.wide);
            let odd = half_256(_mm256_srli_epi64::<32>(x), scales.wide.add(4));
            _mm256_blend_epi32::<0b1010_1010>(even, _mm256_slli_epi64::<32>(odd))
        }
    }
    #[inline(always)]
    unsafe fn constants(scales: &[Scales; 2]) -> [Scales; 2] {
        *scales
    }
    #[inline(always)]
    unsafe fn requantise_rows(sums: [Self::I; 4], scales: &[Scales; 2]) -> [Self::I; 4] {
        // SAFETY: by the trait's contract.
        unsafe { Self::requantise_each(sums, scales) }
    }
    #[inline(always)]
    fn is_usual(scales: &[Scales; 2]) -> bool {
        !scales[0].quick.is_null()
    }
    #[inline(always)]
    fn is_one_sided(target: &Self::Target) -> bool {
        target.is_one_sided
    }
    #[inline(always)]
    unsafe fn bytes(sums: [Self::I; 4], scales: &[Scales; 2], target: Self::Target) -> Self::Packed {
        // SAFETY: by the trait's contract.
        unsafe {
            match (Self::is_usual(scales), target.is_one_sided) {
                (false, _) => Self::pack(exactly_256(sums, scales), target),
                (true, false) => Self::usual_bytes::<false, false>(sums, scales, target),
                (true, true) => Self::usual_bytes::<false, true>(sums, scales, target),
            }
        }
    }
    #[inline(always)]
    unsafe fn usual_bytes<const PLAIN: bool, const ONE_SIDED: bool>(
        sums: [Self::I; 4],
        scales: &[Scales; 2],
        target: Self::Target,
    ) -> Self::Packed {
        // SAFETY: by the trait's contract, twice as many constants as lanes; any bits are bytes, and there are as many.
        unsafe {
            let quick = [scales[0].quick, scales[1].quick];
            match bytes_256::<ONE_SIDED>(sums, quick, target.bounds) {
                Some(bytes) => std::mem::transmute::<__m256i, Self::Packed>(bytes),
                None => {
                    // Taken apart: what is returned as a whole where the function leaves it would be kept in memory always.
                    let [a, b, c, d] = exactly_256(sums, scales);
                    Self::pack([a, b, c, d], target)
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn target(bytes: Bytes) -> Self::Target {
        // SAFETY: by the trait's contract.
        unsafe {
            Target {
                zero: _mm256_set1_epi16(bytes.zero),
                bounds: Bounds {
                    low: _mm256_set1_epi8(bytes.low as i8),
                    high: _mm256_set1_epi8(bytes.high as i8),
                    flip: _mm256_set1_epi8(bytes.flip as i8),
                    base: _mm256_set1_ps(bytes.base()),
                },
                is_one_sided: bytes.is_one_sided(),
            }
        }
    }
    #[inline(always)]
    unsafe fn pack(scaled: [Self::I; 4], target: Self::Target) -> Self::Packed {
        // SAFETY: by the trait's contract; any bits are bytes, and there are as many.
        unsafe { std::mem::transmute(packed_256(scaled, target)) }
    }
    #[inline(always)]
    unsafe fn store(packed: Self::Packed, to: [*mut u8; 2], columns: usize) {
        // SAFETY: by the trait's contract, `columns` bytes can be written to each.
        unsafe {
            let rows = _mm256_loadu_si256(packed.as_ptr().cast());
            store_128(_mm256_castsi256_si128(rows), to[0], columns);
            store_128(_mm256_extracti128_si256::<1>(rows), to[1], columns);
        }
    }
    #[inline(always)]
    unsafe fn store_halves(packed: Self::Packed, to: [*mut u8; 4], columns: usize) {
        for (row, to) in packed.as_chunks::<8>().0.iter().zip(to) {
            // SAFETY: by the trait's contract, as above.
            unsafe {
                match columns {
                    8.. => to.cast::<[u8; 8]>().write_unaligned(*row),
                    _ => to.copy_from_nonoverlapping(row.as_ptr(), columns),
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn sum<const SIGNED: bool>(bytes: *const u8, count: usize) -> i32 {
        // SAFETY: by the trait's contract, `count` bytes can be read.
        unsafe {
            let flip = _mm256_set1_epi8(if SIGNED { i8::MIN } else { 0 });
            let (mut sums, mut i) = (_mm256_setzero_si256(), 0);
            while i + 32 <= count {
                let part = _mm256_xor_si256(_mm256_loadu_si256(bytes.add(i).cast()), flip);
                sums = _mm256_add_epi64(sums, _mm256_sad_epu8(part, _mm256_setzero_si256()));
                i += 32;
            }
            let halves = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
            let sum = (_mm_cvtsi128_si64(halves) + _mm_extract_epi64::<1>(halves)) as i32;
            let lifted = if SIGNED { (i as i32).wrapping_mul(128) } else { 0 };
            sum.wrapping_sub(lifted).wrapping_add(sum_of::<SIGNED>(bytes.add(i), count - i))
        }
    }
}
