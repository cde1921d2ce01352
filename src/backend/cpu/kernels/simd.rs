//! Vectors of one instruction set behind a trait, so that each kernel is written once.
//!
//! The functions are inlined into an entry point that enables the instruction set; nothing else may call them.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Lanes of the widest vector.
const MOST_LANES: usize = 16;

/// A vector of f32.
///
/// # Safety
/// All functions need the instruction set of the type; pointers must be valid for `LANES` elements (or `n`).
#[allow(clippy::missing_safety_doc)] // the trait's section holds for each function
pub unsafe trait Simd: Copy {
    type F: Copy;
    const LANES: usize;
    /// Whether a multiplication cannot take an operand from memory, so that each load is an instruction more.
    const LOADS_APART: bool = false;
    /// Whether a vector is an array: what is written out for many of them takes the compiler minutes, and keeps them in memory.
    const IS_ARRAY: bool = false;

    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn load(p: *const f32) -> Self::F;
    unsafe fn store(p: *mut f32, v: Self::F);
    /// Two vectors that lie one after the other.
    #[inline(always)]
    unsafe fn load_two(p: *const f32) -> [Self::F; 2] {
        // SAFETY: the same contract.
        unsafe { [Self::load(p), Self::load(p.add(Self::LANES))] }
    }
    /// A vector from so many elements on.
    #[inline(always)]
    unsafe fn load_at(p: *const f32, at: usize) -> Self::F {
        // SAFETY: the same contract.
        unsafe { Self::load(p.wrapping_add(at)) }
    }
    /// The first `n` elements, at most `LANES`, with zeroes behind them.
    #[inline(always)]
    unsafe fn load_some(p: *const f32, n: usize) -> Self::F {
        let mut whole = [0f32; MOST_LANES];
        // SAFETY: by the trait's contract; there is room for any vector.
        unsafe {
            std::ptr::copy_nonoverlapping(p.cast::<u8>(), whole.as_mut_ptr().cast(), n * size_of::<f32>());
            Self::load(whole.as_ptr())
        }
    }
    /// Stores the first `n` elements, at most `LANES`.
    #[inline(always)]
    unsafe fn store_some(p: *mut f32, v: Self::F, n: usize) {
        let mut whole = [0f32; MOST_LANES];
        // SAFETY: as above.
        unsafe {
            Self::store(whole.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(whole.as_ptr().cast(), p.cast::<u8>(), n * size_of::<f32>());
        }
    }
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c` with one rounding where the instruction set has it.
    unsafe fn mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `v` within [lo, hi]; NaN stays NaN.
    unsafe fn clamp(v: Self::F, lo: Self::F, hi: Self::F) -> Self::F;
    /// The same without an upper bound.
    #[inline(always)]
    unsafe fn clamp_below(v: Self::F, lo: Self::F) -> Self::F {
        // SAFETY: the same contract.
        unsafe { Self::clamp(v, lo, Self::splat(f32::INFINITY)) }
    }
    /// Adds to the first sums of each row the products of inputs with a panel of two vectors, of as many of the `depth` as a
    /// loop of the instruction set's own takes. Gives how many those are.
    #[inline(always)]
    unsafe fn products<const M: usize, const P: usize>(
        _sums: &mut [[[Self::F; 2]; P]; M],
        _inputs: [*const f32; M],
        _weights: *const f32,
        _depth: usize,
    ) -> usize {
        0
    }
}

/// No vectors: arrays that the compiler may still vectorise for the base instruction set.
#[derive(Clone, Copy)]
pub struct Base;

// SAFETY: plain Rust on every machine; pointers are used for LANES elements only.
unsafe impl Simd for Base {
    type F = [f32; 8];
    const LANES: usize = 8;
    const IS_ARRAY: bool = true;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::F {
        // SAFETY: the caller's pointer is valid for LANES elements.
        unsafe { p.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::F) {
        // SAFETY: the caller's pointer is valid for LANES elements.
        unsafe { p.cast::<[f32; 8]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        std::array::from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    unsafe fn mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn clamp(v: Self::F, lo: Self::F, hi: Self::F) -> Self::F {
        std::array::from_fn(|i| {
            let x = if v[i] < lo[i] { lo[i] } else { v[i] };
            if x > hi[i] {
                hi[i]
            } else {
                x
            }
        })
    }
}

/// AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Avx2;

// SAFETY: callers have detected the instruction set, as the trait demands; all loads and stores are unaligned ones.
#[cfg(target_arch = "x86_64")]
unsafe impl Simd for Avx2 {
    type F = __m256;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::F) {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_some(p: *const f32, n: usize) -> Self::F {
        // SAFETY: by the trait's contract; what the mask leaves out is not touched.
        unsafe { _mm256_maskload_ps(p, first_of_eight(n)) }
    }
    #[inline(always)]
    unsafe fn store_some(mut p: *mut f32, v: Self::F, n: usize) {
        // A store by a mask takes some machines many times as long as all of these.
        // SAFETY: by the trait's contract.
        unsafe {
            if n >= Self::LANES {
                return _mm256_storeu_ps(p, v);
            }
            let mut rest = _mm256_castps256_ps128(v);
            if n & 4 != 0 {
                _mm_storeu_ps(p, rest);
                (p, rest) = (p.add(4), _mm256_extractf128_ps::<1>(v));
            }
            if n & 2 != 0 {
                p.cast::<f64>().write_unaligned(_mm_cvtsd_f64(_mm_castps_pd(rest)));
                (p, rest) = (p.add(2), _mm_movehl_ps(rest, rest));
            }
            if n & 1 != 0 {
                p.write_unaligned(_mm_cvtss_f32(rest));
            }
        }
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn clamp(v: Self::F, lo: Self::F, hi: Self::F) -> Self::F {
        // These instructions give their second operand where one is NaN, so NaN in `v` stays.
        // SAFETY: by the trait's contract.
        unsafe { _mm256_min_ps(hi, _mm256_max_ps(lo, v)) }
    }
}

/// A mask of the first `n` lanes.
///
/// # Safety
/// The machine must have AVX2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn first_of_eight(n: usize) -> __m256i {
    // SAFETY: by contract.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lanes)
    }
}

/// A mask of the first `n` lanes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn first_of_sixteen(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as __mmask16
}

/// AVX-512 F, BW, DQ and VL.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Avx512;

// SAFETY: callers have detected the instruction set, as the trait demands; all loads and stores are unaligned ones.
#[cfg(target_arch = "x86_64")]
unsafe impl Simd for Avx512 {
    type F = __m512;
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::F) {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_some(p: *const f32, n: usize) -> Self::F {
        // SAFETY: by the trait's contract; what the mask leaves out is not touched.
        unsafe { _mm512_maskz_loadu_ps(first_of_sixteen(n), p) }
    }
    #[inline(always)]
    unsafe fn store_some(p: *mut f32, v: Self::F, n: usize) {
        // SAFETY: as above.
        unsafe { _mm512_mask_storeu_ps(p, first_of_sixteen(n), v) }
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn clamp(v: Self::F, lo: Self::F, hi: Self::F) -> Self::F {
        // These instructions give their second operand where one is NaN, so NaN in `v` stays.
        // SAFETY: by the trait's contract.
        unsafe { _mm512_min_ps(hi, _mm512_max_ps(lo, v)) }
    }
}
