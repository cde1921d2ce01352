//! Loops that the compiler turns into vectors: written once in plain Rust, compiled for each level of vectors that a
//! machine may have. Nothing here knows what is computed, and no level may change a result.

/// The vectors that loops are compiled for. Only detection makes one, so that whoever has it may run its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub(super) Vectors);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Vectors {
    /// What every machine of the architecture has.
    Base,
    /// With FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// With sums of four products of bytes.
    #[cfg(target_arch = "aarch64")]
    Dotprod,
}

/// Evaluates `$make` with the constant `FUSED` telling whether the machine's vectors [fuse](Level::fuses).
macro_rules! fused {
    ($level:expr, $make:expr) => {
        match $level.fuses() {
            true => {
                const FUSED: bool = true;
                $make
            }
            false => {
                const FUSED: bool = false;
                $make
            }
        }
    };
}
pub(super) use fused;

/// A loop to be compiled for each level. `run` and all that it calls must be inlined, or they are compiled for the base.
pub trait Loop {
    fn run(self);
}

impl Level {
    /// The best that this machine has.
    pub fn detect() -> Level {
        #[cfg(test)]
        if let Some(level) = tests::FORCED.get() {
            return level;
        }
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                return Level(Vectors::Avx512);
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Level(Vectors::Avx2);
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("dotprod") {
            return Level(Vectors::Dotprod);
        }
        Level(Vectors::Base)
    }

    /// Whether a product can be added to without being rounded, by an instruction.
    pub fn fuses(self) -> bool {
        cfg!(target_arch = "aarch64") || self.0 != Vectors::Base
    }

    /// Whether bytes of two registers can be permuted by those of a third.
    #[cfg(target_arch = "x86_64")]
    pub fn permutes_bytes(self) -> bool {
        self.0 == Vectors::Avx512 && is_x86_feature_detected!("avx512vbmi")
    }

    /// Whether bytes of sixteen can be permuted by those of another sixteen, in two halves of a register.
    #[cfg(target_arch = "x86_64")]
    pub fn shuffles_bytes(self) -> bool {
        self.0 >= Vectors::Avx2
    }

    /// Whether doubled high products can be added as they are rounded, by an instruction.
    #[cfg(target_arch = "aarch64")]
    pub fn adds_high_products(self) -> bool {
        self.0 == Vectors::Dotprod && std::arch::is_aarch64_feature_detected!("rdm")
    }

    pub fn name(self) -> &'static str {
        match self.0 {
            Vectors::Base if cfg!(target_arch = "aarch64") => "neon",
            Vectors::Base => "base",
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 => "avx512",
            // Loops gain nothing from it.
            #[cfg(target_arch = "aarch64")]
            Vectors::Dotprod => "neon",
        }
    }

    /// Runs `work` as compiled for this level.
    #[inline]
    pub fn run(self, work: impl Loop) {
        match self.0 {
            Vectors::Base => work.run(),
            // SAFETY: levels come from detection on this machine.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { avx2(work) },
            // SAFETY: levels come from detection on this machine.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 => unsafe { avx512(work) },
            // Loops gain nothing: the base has vectors.
            #[cfg(target_arch = "aarch64")]
            Vectors::Dotprod => work.run(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(work: impl Loop) {
    work.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512(work: impl Loop) {
    work.run();
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Level, Vectors};
    use std::cell::Cell;

    thread_local! {
        /// What [`Level::detect`] is to find on this thread.
        pub static FORCED: Cell<Option<Level>> = const { Cell::new(None) };
    }

    /// All that this machine has.
    fn available() -> Vec<Level> {
        let all = [
            Vectors::Base,
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2,
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512,
            #[cfg(target_arch = "aarch64")]
            Vectors::Dotprod,
        ];
        let best = Level::detect();
        all.into_iter().map(Level).filter(|&level| level <= best).collect()
    }

    /// Calls `f` once for each level, which [`Level::detect`] finds meanwhile.
    pub fn at_each_level<E>(mut f: impl FnMut(Level) -> Result<(), E>) -> Result<(), E> {
        for level in available() {
            FORCED.set(Some(level));
            let result = f(level);
            FORCED.set(None);
            result?;
        }
        Ok(())
    }
}
