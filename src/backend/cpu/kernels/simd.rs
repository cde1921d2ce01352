//! Vectors of one instruction set behind two traits, so that each kernel is written once.
//!
//! The functions are inlined into an entry point that enables the instruction set; nothing else may call them.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// What kernels can be built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    Base,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 with its vector neural network instructions.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The best that this machine has.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
            {
                return Isa::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Isa::Avx2;
            }
        }
        Isa::Base
    }

    /// All that this machine has, for tests.
    #[cfg(test)]
    pub fn available() -> Vec<Isa> {
        let all = [
            Isa::Base,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512,
        ];
        all.into_iter().filter(|&isa| isa <= Isa::detect()).collect()
    }

    pub fn name(self) -> &'static str {
        match self {
            Isa::Base => "base",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512",
        }
    }
}

/// A vector of f32 and one of i32 with as many lanes.
///
/// # Safety
/// All functions need the instruction set of the type; pointers must be valid for `LANES` elements (or `n`).
#[allow(clippy::missing_safety_doc)] // the trait's section holds for each function
pub unsafe trait Simd: Copy {
    type F: Copy;
    type I: Copy;
    const LANES: usize;

    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn load(p: *const f32) -> Self::F;
    unsafe fn store(p: *mut f32, v: Self::F);
    /// `a * b + c` with one rounding where the instruction set has it.
    unsafe fn mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `v` within [lo, hi]; NaN stays NaN.
    unsafe fn clamp(v: Self::F, lo: Self::F, hi: Self::F) -> Self::F;

    unsafe fn load_i32(p: *const i32) -> Self::I;
    unsafe fn store_i32(p: *mut i32, v: Self::I);
    /// Per lane, the sum of four products of an unsigned byte of `a` (four bytes for all lanes) and a signed byte of
    /// `b`, added to `acc`.
    unsafe fn dot4(acc: Self::I, a: u32, b: *const i8) -> Self::I;
}

/// No vectors: arrays that the compiler may still vectorise for the base instruction set.
#[derive(Clone, Copy)]
pub struct Base;

// SAFETY: plain Rust on every machine; pointers are used for LANES elements only.
unsafe impl Simd for Base {
    type F = [f32; 8];
    type I = [i32; 8];
    const LANES: usize = 8;

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
    #[inline(always)]
    unsafe fn load_i32(p: *const i32) -> Self::I {
        // SAFETY: the caller's pointer is valid for LANES elements.
        unsafe { p.cast::<[i32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_i32(p: *mut i32, v: Self::I) {
        // SAFETY: the caller's pointer is valid for LANES elements.
        unsafe { p.cast::<[i32; 8]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn dot4(acc: Self::I, a: u32, b: *const i8) -> Self::I {
        let a = a.to_le_bytes();
        // SAFETY: the caller's pointer is valid for four bytes a lane.
        let b = unsafe { b.cast::<[[i8; 4]; 8]>().read_unaligned() };
        std::array::from_fn(|i| {
            (0..4).fold(acc[i], |sum, j| sum.wrapping_add(i32::from(a[j]) * i32::from(b[i][j])))
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
    type I = __m256i;
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
    #[inline(always)]
    unsafe fn load_i32(p: *const i32) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store_i32(p: *mut i32, v: Self::I) {
        // SAFETY: by the trait's contract.
        unsafe { _mm256_storeu_si256(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn dot4(acc: Self::I, a: u32, b: *const i8) -> Self::I {
        // Bytes are widened to 16 bits in two halves: the instruction that multiplies bytes would saturate.
        // SAFETY: by the trait's contract.
        unsafe {
            let a = _mm256_set1_epi32(a as i32);
            let b = _mm256_loadu_si256(b.cast());
            let (a_even, a_odd) = (_mm256_and_si256(a, _mm256_set1_epi16(0xff)), _mm256_srli_epi16::<8>(a));
            let (b_even, b_odd) =
                (_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(b)), _mm256_srai_epi16::<8>(b));
            let sum = _mm256_add_epi32(_mm256_madd_epi16(a_even, b_even), _mm256_madd_epi16(a_odd, b_odd));
            _mm256_add_epi32(acc, sum)
        }
    }
}

/// AVX-512 F, BW, DQ, VL and VNNI.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Avx512;

// SAFETY: callers have detected the instruction set, as the trait demands; all loads and stores are unaligned ones.
#[cfg(target_arch = "x86_64")]
unsafe impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
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
    #[inline(always)]
    unsafe fn load_i32(p: *const i32) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store_i32(p: *mut i32, v: Self::I) {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_storeu_si512(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn dot4(acc: Self::I, a: u32, b: *const i8) -> Self::I {
        // SAFETY: by the trait's contract.
        unsafe { _mm512_dpbusd_epi32(acc, _mm512_set1_epi32(a as i32), _mm512_loadu_si512(b.cast())) }
    }
}

/// Defines `$name(isa, arguments)`, which calls `$generic::<S>(arguments)` compiled for that instruction set.
macro_rules! dispatch {
    ($(#[$doc:meta])* fn $name:ident => $generic:ident($($arg:ident: $ty:ty),* $(,)?)) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)] // a kernel's operands
        fn $name(isa: $crate::backend::cpu::kernels::simd::Isa, $($arg: $ty),*) {
            use $crate::backend::cpu::kernels::simd;
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx2($($arg: $ty),*) {
                // SAFETY: this function's caller has detected the instruction set.
                unsafe { $generic::<simd::Avx2>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $ty),*) {
                // SAFETY: this function's caller has detected the instruction set.
                unsafe { $generic::<simd::Avx512>($($arg),*) }
            }
            match isa {
                // SAFETY: needs no instruction set.
                simd::Isa::Base => unsafe { $generic::<simd::Base>($($arg),*) },
                // SAFETY: `Isa` values come from detection on this machine.
                #[cfg(target_arch = "x86_64")]
                simd::Isa::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: `Isa` values come from detection on this machine.
                #[cfg(target_arch = "x86_64")]
                simd::Isa::Avx512 => unsafe { avx512($($arg),*) },
            }
        }
    };
}
pub(super) use dispatch;
