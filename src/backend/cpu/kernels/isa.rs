//! Instruction sets: which there are, and which of them this machine has.

#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__cpuid, __cpuid_count};
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
    /// With tiles of bytes and of halves of floats (bfloat16), which this process was permitted to use.
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
    /// What nearly every 32-bit Arm machine has. Products have it; vectors of floats are the base's.
    #[cfg(target_arch = "arm")]
    Neon32,
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
            #[cfg(target_arch = "arm")]
            Level::Neon32 => "base",
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
            #[cfg(target_arch = "arm")]
            Level::Neon32 => "neon32",
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "arm")))]
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

#[cfg(target_arch = "arm")]
impl Level {
    const ALL: &[Level] = &[Level::Base, Level::Neon32];

    fn is_available(self) -> bool {
        /// As the kernel numbers what 32-bit machines have.
        const HWCAP_NEON: libc::c_ulong = 1 << 12;
        // SAFETY: it looks a number up that the process was started with.
        let has = unsafe { libc::getauxval(libc::AT_HWCAP) };
        self == Level::Base || has & HWCAP_NEON != 0
    }
}

/// Whether the machine has tiles of bytes and of bfloat16, and the kernel lets this process use them. It is asked once, for all threads; a
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
    const TILES: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    // SAFETY: this call asks for a permission and touches no memory. A kernel without it gives an error.
    features & TILES == TILES
        && unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) } == 0
}

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
