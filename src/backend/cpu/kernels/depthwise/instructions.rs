//! Which instructions quads are multiplied with on this machine.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::super::vector::{Level, Vectors};

/// What quads are multiplied with.
#[derive(Clone, Copy, Debug)]
pub enum Instructions {
    Base,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Vnni,
    #[cfg(target_arch = "aarch64")]
    Dotprod,
}

impl Instructions {
    pub fn name(self) -> &'static str {
        match self {
            Instructions::Base => "base",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Instructions::Vnni => "vnni",
            #[cfg(target_arch = "aarch64")]
            Instructions::Dotprod => "dotprod",
        }
    }

    /// The best that this machine has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        match Level::detect().0 {
            Vectors::Avx512 if is_x86_feature_detected!("avx512vnni") => return Instructions::Vnni,
            Vectors::Avx512 | Vectors::Avx2 if is_x86_feature_detected!("fma") => return Instructions::Avx2,
            _ => {}
        }
        #[cfg(target_arch = "aarch64")]
        if Level::detect().0 == Vectors::Dotprod {
            return Instructions::Dotprod;
        }
        Instructions::Base
    }
}
