//! Vectors of one instruction set behind two traits, so that each kernel is written once.
//!
//! The functions are inlined into an entry point that enables the instruction set; nothing else may call them.

#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::sync::OnceLock;

/// What kernels can be built for. Only detection makes one, so that whoever has it may run its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Level);

/// Instruction sets, each with all that those before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Base,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// With products of bytes, in vectors of 256 bits.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// AVX-512 F, BW, DQ and VL; without AVX-VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// With products of bytes.
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// With tiles of bytes, which this process was permitted to use.
    #[cfg(target_arch = "x86_64")]
    Amx,
    /// What every 64-bit Arm machine has.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// With sums of four products of bytes.
    #[cfg(target_arch = "aarch64")]
    Dotprod,
    /// With products of small matrices of bytes.
    #[cfg(target_arch = "aarch64")]
    I8mm,
}

impl Isa {
    /// The best that this machine has.
    pub fn detect() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Isa::all().last().unwrap_or(Isa(Level::Base)))
    }

    /// All that this machine has, for tests.
    #[cfg(test)]
    pub fn available() -> Vec<Isa> {
        Isa::all().collect()
    }

    fn all() -> impl Iterator<Item = Isa> {
        Level::ALL.iter().copied().filter(|level| level.is_available()).map(Isa)
    }

    pub(super) fn level(self) -> Level {
        self.0
    }

    /// The vectors of floats that it has: what `dispatch` goes by.
    pub fn vectors(self) -> &'static str {
        match self.0 {
            Level::Base => "base",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Vnni | Level::Amx => "avx512",
            #[cfg(target_arch = "aarch64")]
            Level::Neon | Level::Dotprod | Level::I8mm => "neon",
        }
    }

    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Base => "base",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::AvxVnni => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Level::Vnni => "avx512-vnni",
            #[cfg(target_arch = "x86_64")]
            Level::Amx => "amx",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "neon",
            #[cfg(target_arch = "aarch64")]
            Level::Dotprod => "neon-dotprod",
            #[cfg(target_arch = "aarch64")]
            Level::I8mm => "neon-i8mm",
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl Level {
    const ALL: &[Level] = &[Level::Base];

    fn is_available(self) -> bool {
        true
    }
}

#[cfg(target_arch = "x86_64")]
impl Level {
    const ALL: &[Level] = &[Level::Base, Level::Avx2, Level::AvxVnni, Level::Avx512, Level::Vnni, Level::Amx];

    fn is_available(self) -> bool {
        match self {
            Level::Base => true,
            Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            Level::AvxVnni => Level::Avx2.is_available() && is_x86_feature_detected!("avxvnni"),
            Level::Avx512 => {
                Level::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            Level::Vnni => Level::Avx512.is_available() && is_x86_feature_detected!("avx512vnni"),
            Level::Amx => Level::Vnni.is_available() && tiles_are_permitted(),
        }
    }
}

#[cfg(target_arch = "aarch64")]
impl Level {
    const ALL: &[Level] = &[Level::Base, Level::Neon, Level::Dotprod, Level::I8mm];

    fn is_available(self) -> bool {
        match self {
            Level::Base | Level::Neon => true,
            Level::Dotprod => is_aarch64_feature_detected!("dotprod"),
            Level::I8mm => Level::Dotprod.is_available() && is_aarch64_feature_detected!("i8mm"),
        }
    }
}

/// Whether the machine has tiles of bytes and the kernel lets this process use them. It is asked once, for all threads; a
/// sandbox may refuse.
#[cfg(target_arch = "x86_64")]
fn tiles_are_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    #[allow(unused_unsafe)] // newer compilers know that it is safe
    // SAFETY: CPUID exists on all x86-64; leaf 7 is asked for only where there is one.
    let features = unsafe {
        match __cpuid(0).eax {
            7.. => __cpuid_count(7, 0).edx,
            _ => 0,
        }
    };
    const TILE_AND_INT8: u32 = 1 << 24 | 1 << 25;
    // SAFETY: this call asks for a permission and touches no memory. A kernel without it gives an error.
    features & TILE_AND_INT8 == TILE_AND_INT8
        && unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) } == 0
}

/// A vector of f32.
///
/// # Safety
/// All functions need the instruction set of the type; pointers must be valid for `LANES` elements (or `n`).
#[allow(clippy::missing_safety_doc)] // the trait's section holds for each function
pub unsafe trait Simd: Copy {
    type F: Copy;
    const LANES: usize;
    /// How many inputs of a product are read at once: more than one where it can take one of them out of a vector.
    const STEP: usize = 1;

    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn load(p: *const f32) -> Self::F;
    unsafe fn store(p: *mut f32, v: Self::F);
    /// `a * b + c` with one rounding where the instruction set has it.
    unsafe fn mul_add(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `v` within [lo, hi]; NaN stays NaN.
    unsafe fn clamp(v: Self::F, lo: Self::F, hi: Self::F) -> Self::F;
    /// From `STEP` inputs.
    #[inline(always)]
    unsafe fn inputs(p: *const f32) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { Self::splat(p.read_unaligned()) }
    }
    /// As [`mul_add`](Self::mul_add), of input `AT` of `x`.
    #[inline(always)]
    unsafe fn mul_add_input<const AT: i32>(x: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // SAFETY: by the trait's contract.
        unsafe { Self::mul_add(x, b, c) }
    }
}

/// No vectors: arrays that the compiler may still vectorise for the base instruction set.
#[derive(Clone, Copy)]
pub struct Base;

// SAFETY: plain Rust on every machine; pointers are used for LANES elements only.
unsafe impl Simd for Base {
    type F = [f32; 8];
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
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $ty),*) {
                // SAFETY: this function's caller has detected the instruction set.
                unsafe { $generic::<simd::Avx512>($($arg),*) }
            }
            match isa.level() {
                // SAFETY: needs no instruction set.
                simd::Level::Base => unsafe { $generic::<simd::Base>($($arg),*) },
                // SAFETY: `Isa` values come from detection on this machine.
                #[cfg(target_arch = "x86_64")]
                simd::Level::Avx2 | simd::Level::AvxVnni => unsafe { avx2($($arg),*) },
                // SAFETY: `Isa` values come from detection on this machine.
                #[cfg(target_arch = "x86_64")]
                simd::Level::Avx512 | simd::Level::Vnni | simd::Level::Amx => unsafe { avx512($($arg),*) },
                // SAFETY: every machine of the architecture has it.
                #[cfg(target_arch = "aarch64")]
                simd::Level::Neon | simd::Level::Dotprod | simd::Level::I8mm => unsafe {
                    $generic::<$crate::backend::cpu::kernels::neon::Neon>($($arg),*)
                },
            }
        }
    };
}
pub(super) use dispatch;

#[cfg(test)]
mod tests {
    use super::Isa;

    #[test]
    fn the_best_is_chosen() {
        let names: Vec<_> = Isa::available().into_iter().map(Isa::name).collect();
        assert_eq!((names.first(), names.last()), (Some(&"base"), Some(&Isa::detect().name())));
        // tests/arm knows what the emulated machine has.
        if let Ok(expected) = std::env::var("NNHAL_EXPECTED_ISA") {
            assert_eq!(Isa::detect().name(), expected);
        }
    }
}
