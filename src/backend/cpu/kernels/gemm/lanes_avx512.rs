//! Vectors of 32-bit sums in AVX-512.

use super::lanes::{Lanes, SUMMED};
use super::quick_x86::{bytes_512, Bounds, Target};
use super::requant::{Bytes, Form, Scales};
use crate::backend::cpu::kernels::simd::Avx512;
use std::arch::asm;
use std::arch::x86_64::*;

/// In the order in which packing the 32-bit lanes of two rows of two vectors to bytes leaves groups of four of them: where
/// those of the first row are, and then those of the second.
const ORDER_512: [i32; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];

// Here and below no closure computes with vectors: it would not be compiled for their instruction set.

/// `x` shifted right, with its sign. The intrinsic is an instruction more, for shifts of over 63 bits, of which there are
/// none here.
#[inline]
#[target_feature(enable = "avx512f")]
fn shift_right(x: __m512i, by: __m512i) -> __m512i {
    let shifted;
    // SAFETY: the instruction computes with registers only.
    unsafe {
        asm!(
            "vpsravq {shifted}, {x}, {by}",
            shifted = lateout(zmm_reg) shifted,
            x = in(zmm_reg) x,
            by = in(zmm_reg) by,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    shifted
}

/// Scales the even lanes of `x`: gives 64 bits each, of which the lower half matters.
///
/// # Safety
/// The machine must have AVX-512 F, and `constants` four times 16, of which the first half each is used.
#[inline(always)]
unsafe fn half_512(x: __m512i, constants: *const i64) -> __m512i {
    // SAFETY: by contract.
    unsafe {
        let mantissa = _mm512_loadu_si512(constants.cast());
        let round = _mm512_loadu_si512(constants.add(16).cast());
        let sign = _mm512_and_si512(x, _mm512_loadu_si512(constants.add(32).cast()));
        let shift = _mm512_loadu_si512(constants.add(48).cast());
        let nudged = _mm512_sub_epi64(_mm512_add_epi64(_mm512_mul_epi32(x, mantissa), round), sign);
        shift_right(nudged, shift)
    }
}

type Target512 = Target<__m512i, __m512>;

/// The sum of each vector's lanes, in order.
///
/// # Safety
/// The machine must have AVX-512 F.
#[inline(always)]
unsafe fn sums_512([a, b, c, d, e, f, g, h]: [__m512i; 8]) -> __m512i {
    // SAFETY: by contract.
    unsafe {
        let (ab, cd) = (add_pairs_512(a, b), add_pairs_512(c, d));
        let (ef, gh) = (add_pairs_512(e, f), add_pairs_512(g, h));
        add_quarters_512(add_quarters_512(ab, cd), add_quarters_512(ef, gh))
    }
}

/// Sums of neighbouring lanes, those of `a` and of `b` in turns.
///
/// # Safety
/// The machine must have AVX-512 F.
#[inline(always)]
unsafe fn add_pairs_512(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: by contract.
    unsafe { _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)) }
}

/// Sums of neighbouring quarters, first those of `a` and then those of `b`.
///
/// # Safety
/// The machine must have AVX-512 F.
#[inline(always)]
unsafe fn add_quarters_512(a: __m512i, b: __m512i) -> __m512i {
    const EVEN: i32 = 0b10_00_10_00;
    const ODD: i32 = 0b11_01_11_01;
    // SAFETY: by contract.
    unsafe { _mm512_add_epi64(_mm512_shuffle_i64x2::<EVEN>(a, b), _mm512_shuffle_i64x2::<ODD>(a, b)) }
}

/// What [`Lanes::requantise_each`] gives. It is far from the loops, which seldom need it.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn exactly_512(x: [__m512i; 4], scales: &[Scales; 2]) -> [__m512i; 4] {
    // SAFETY: by the contract of [`Lanes`].
    unsafe { Avx512::requantise_each(x, scales) }
}

/// Scaled sums of two rows of two vectors as bytes, in order.
///
/// # Safety
/// The machine must have AVX-512 BW.
#[inline(always)]
unsafe fn packed_512([a, b, c, d]: [__m512i; 4], target: Target512) -> __m512i {
    // SAFETY: by contract.
    unsafe {
        let first = _mm512_adds_epi16(_mm512_packs_epi32(a, b), target.zero);
        let second = _mm512_adds_epi16(_mm512_packs_epi32(c, d), target.zero);
        let packed = _mm512_packus_epi16(first, second);
        let bounded = _mm512_min_epu8(_mm512_max_epu8(packed, target.bounds.low), target.bounds.high);
        let typed = _mm512_xor_si512(bounded, target.bounds.flip);
        let order = _mm512_loadu_si512(ORDER_512.as_ptr().cast());
        _mm512_permutexvar_epi32(order, typed)
    }
}

// SAFETY: callers have detected AVX-512 F, BW, DQ and VL, as the trait demands; all loads and stores are unaligned ones.
unsafe impl Lanes for Avx512 {
    type I = __m512i;
    type Target = Target512;
    type Constants = [Scales; 2];
    type Packed = [u8; 64];
    const LANES: usize = 16;
    const FORM: Form = Form::Wide;

    #[inline(always)]
    unsafe fn load(p: *const i32) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn splat(x: i32) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_set1_epi32(x) }
    }
    #[inline(always)]
    unsafe fn sub(a: Self::I, b: Self::I) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_sub_epi32(a, b) }
    }
    #[inline(always)]
    unsafe fn requantise(mut x: Self::I, scales: Scales) -> Self::I {
        // SAFETY: by the trait's contract, 4 times 16 constants, and 3 times 16 unless the pointer is null.
        unsafe {
            if !scales.narrow.is_null() {
                let left = scales.narrow;
                x = _mm512_min_epi32(_mm512_max_epi32(x, Self::load(left)), Self::load(left.add(16)));
                x = _mm512_sllv_epi32(x, Self::load(left.add(32)));
            }
            let even = half_512(x, scales.wide);
            let odd = half_512(_mm512_srli_epi64::<32>(x), scales.wide.add(8));
            // The lower halves of `odd` beside those of `even`.
            _mm512_mask_shuffle_epi32::<0b10_10_00_00>(even, 0xaaaa, odd)
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
                (false, _) => Self::pack(exactly_512(sums, scales), target),
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
            match bytes_512::<ONE_SIDED>(sums, quick, target.bounds) {
                Some(bytes) => std::mem::transmute::<__m512i, Self::Packed>(bytes),
                None => {
                    // Taken apart: what is returned as a whole where the function leaves it would be kept in memory always.
                    let [a, b, c, d] = exactly_512(sums, scales);
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
                zero: _mm512_set1_epi16(bytes.zero),
                bounds: Bounds {
                    low: _mm512_set1_epi8(bytes.low as i8),
                    high: _mm512_set1_epi8(bytes.high as i8),
                    flip: _mm512_set1_epi8(bytes.flip as i8),
                    base: _mm512_set1_ps(bytes.base()),
                },
                is_one_sided: bytes.is_one_sided(),
            }
        }
    }
    #[inline(always)]
    unsafe fn pack(scaled: [Self::I; 4], target: Self::Target) -> Self::Packed {
        // SAFETY: by the trait's contract; any bits are bytes, and there are as many.
        unsafe { std::mem::transmute(packed_512(scaled, target)) }
    }
    #[inline(always)]
    unsafe fn store(packed: Self::Packed, to: [*mut u8; 2], columns: usize) {
        // SAFETY: by the trait's contract, `columns` bytes can be written to each; the mask leaves out the others.
        unsafe {
            let rows = _mm512_loadu_si512(packed.as_ptr().cast());
            let mask = if columns >= 32 { !0 } else { (1u32 << columns) - 1 };
            _mm256_mask_storeu_epi8(to[0].cast(), mask, _mm512_castsi512_si256(rows));
            _mm256_mask_storeu_epi8(to[1].cast(), mask, _mm512_extracti64x4_epi64::<1>(rows));
        }
    }
    #[inline(always)]
    unsafe fn store_halves(packed: Self::Packed, to: [*mut u8; 4], columns: usize) {
        let mask = if columns >= 16 { !0 } else { (1u16 << columns) - 1 };
        for (row, to) in packed.as_chunks::<16>().0.iter().zip(to) {
            // SAFETY: by the trait's contract, as above.
            unsafe { _mm_mask_storeu_epi8(to.cast(), mask, _mm_loadu_si128(row.as_ptr().cast())) };
        }
    }
    #[inline(always)]
    unsafe fn sum<const SIGNED: bool>(bytes: *const u8, count: usize) -> i32 {
        // SAFETY: by the trait's contract, `count` bytes can be read; the mask leaves out the others, which count as 0.
        unsafe {
            let flip = _mm512_set1_epi8(if SIGNED { i8::MIN } else { 0 });
            let (mut sums, mut i) = (_mm512_setzero_si512(), 0);
            while i < count {
                let mask = if count - i >= 64 { !0 } else { (1u64 << (count - i)) - 1 };
                let part = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, bytes.add(i).cast()), flip);
                sums = _mm512_add_epi64(sums, _mm512_sad_epu8(part, _mm512_setzero_si512()));
                i += 64;
            }
            let lifted = if SIGNED { (i as i32).wrapping_mul(128) } else { 0 };
            (_mm512_reduce_add_epi64(sums) as i32).wrapping_sub(lifted)
        }
    }
    #[inline(always)]
    unsafe fn sums<const SIGNED: bool>(rows: [*const u8; SUMMED], count: usize) -> [i32; SUMMED] {
        // SAFETY: as above.
        unsafe {
            let flip = _mm512_set1_epi8(if SIGNED { i8::MIN } else { 0 });
            let (mut sums, mut i) = ([_mm512_setzero_si512(); SUMMED], 0);
            while i < count {
                let mask = if count - i >= 64 { !0 } else { (1u64 << (count - i)) - 1 };
                for (sum, row) in sums.iter_mut().zip(rows) {
                    let part = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, row.add(i).cast()), flip);
                    *sum = _mm512_add_epi64(*sum, _mm512_sad_epu8(part, _mm512_setzero_si512()));
                }
                i += 64;
            }
            let lifted = if SIGNED { (i as i32).wrapping_mul(128) } else { 0 };
            let all = _mm512_cvtepi64_epi32(sums_512(sums));
            std::mem::transmute(_mm256_sub_epi32(all, _mm256_set1_epi32(lifted)))
        }
    }
}
