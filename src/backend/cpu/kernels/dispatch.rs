//! Which of a kernel's builds runs: the one for the instruction set that it was chosen for.

/// Defines `$name(isa, arguments)`, which calls `$generic::<S>(arguments)` compiled for that instruction set.
macro_rules! dispatch {
    ($(#[$doc:meta])* fn $name:ident => $generic:ident($($arg:ident: $ty:ty),* $(,)?)) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)] // a kernel's operands
        fn $name(isa: $crate::backend::cpu::kernels::isa::Isa, $($arg: $ty),*) {
            use $crate::backend::cpu::kernels::{isa::Level, simd};
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
                Level::Base => unsafe { $generic::<simd::Base>($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "arm")]
                Level::Neon32 => unsafe { $generic::<simd::Base>($($arg),*) },
                // SAFETY: `Isa` values come from detection on this machine.
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 | Level::AvxVnni => unsafe { avx2($($arg),*) },
                // SAFETY: `Isa` values come from detection on this machine.
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 | Level::Vnni | Level::Amx => unsafe { avx512($($arg),*) },
                // SAFETY: every machine of the architecture has it.
                #[cfg(target_arch = "aarch64")]
                Level::Neon | Level::Dotprod | Level::I8mm => unsafe {
                    $generic::<$crate::backend::cpu::kernels::neon::Neon>($($arg),*)
                },
            }
        }
    };
}
pub(super) use dispatch;
