//! Which micro-kernel an instruction set has.

use super::dynamic::{self, Dynamic};
#[cfg(target_arch = "aarch64")]
use super::eights_neon;
use super::float::{self, Float};
#[cfg(target_arch = "arm")]
use super::fours_neon32;
#[cfg(target_arch = "aarch64")]
use super::i8mm;
use super::micro::{Micro, Shape};
use super::quant::{self, Quant};
#[cfg(target_arch = "x86_64")]
use super::{amx, amx_float, words_x86};
use crate::backend::cpu::kernels::isa::{Isa, Level};

/// That of float products of about so many rows of inputs. A sum's bytes must not depend on how a product is shared out, so
/// that all of it goes one way.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))] // only tiles want to know
pub fn float(isa: Isa, rows: usize, shape: Shape) -> &'static Micro<Float> {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Amx if amx_float::is_worthwhile(rows, shape) => &amx_float::MICRO,
        Level::Base => &float::BASE,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni if is_row(rows, shape, &float::AVX2_ROW) => &float::AVX2_ROW,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Vnni | Level::Amx if is_row(rows, shape, &float::AVX512_ROW) => {
            &float::AVX512_ROW
        }
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => &float::AVX2,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Vnni | Level::Amx => &float::AVX512,
        #[cfg(target_arch = "aarch64")]
        Level::Neon | Level::Dotprod | Level::I8mm => &float::NEON,
        #[cfg(target_arch = "arm")]
        Level::Neon32 => &fours_neon32::FLOATS,
    }
}

/// Whether one row is best multiplied by `micro`: its weights come from the second cache, as those of a recurrent layer's state do in each
/// step, and fill its panels.
#[cfg(target_arch = "x86_64")]
fn is_row(rows: usize, shape: Shape, micro: &Micro<Float>) -> bool {
    /// Bytes that a first cache does not hold, and that a second one mostly does: it was measured with one of 1 MiB, where more than that
    /// made no difference.
    const IN_SECOND_CACHE: std::ops::RangeInclusive<usize> = 96 << 10..=768 << 10;
    let bytes =
        shape.inputs().and_then(|inputs| inputs.checked_mul(shape.columns)?.checked_mul(size_of::<f32>()));
    rows == 1
        && shape.columns.is_multiple_of(micro.columns)
        && bytes.is_some_and(|bytes| IN_SECOND_CACHE.contains(&bytes))
}

/// The same if all it needs is pointers to rows, and weights one by one: not for the machine's own tiles.
pub fn simple_float(isa: Isa, rows: usize, shape: Shape) -> Option<&'static Micro<Float>> {
    let micro = float(isa, rows, shape);
    let is_simple = micro.room == 0 && micro.group == 1 && (micro.padded)(shape.depth) == shape.depth;
    is_simple.then_some(micro)
}

/// That of 8-bit products, for inputs that are signed or not.
pub fn quant(isa: Isa, signed: bool) -> &'static Micro<Quant> {
    let [unsigned_one, signed_one] = match isa.level() {
        Level::Base => &quant::BASE,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => &words_x86::MICROS,
        #[cfg(target_arch = "x86_64")]
        Level::AvxVnni => &quant::AVX_VNNI,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => &quant::AVX512,
        #[cfg(target_arch = "x86_64")]
        Level::Vnni => &quant::VNNI,
        #[cfg(target_arch = "x86_64")]
        Level::Amx => &amx::MICRO,
        #[cfg(target_arch = "aarch64")]
        Level::Neon => &eights_neon::MICRO,
        #[cfg(target_arch = "aarch64")]
        Level::Dotprod => &quant::DOTPROD,
        #[cfg(target_arch = "aarch64")]
        Level::I8mm => &i8mm::MICRO,
        #[cfg(target_arch = "arm")]
        Level::Neon32 => &fours_neon32::BYTES,
    };
    if signed {
        signed_one
    } else {
        unsigned_one
    }
}

/// That of products of floats with bytes, if it has one.
pub fn dynamic(isa: Isa) -> Option<&'static Micro<Dynamic>> {
    Some(match isa.level() {
        Level::Base => &dynamic::BASE,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => &dynamic::AVX2,
        #[cfg(target_arch = "x86_64")]
        Level::AvxVnni => &dynamic::AVX_VNNI,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => &dynamic::AVX512,
        #[cfg(target_arch = "x86_64")]
        Level::Vnni | Level::Amx => &dynamic::VNNI,
        #[cfg(target_arch = "aarch64")]
        Level::Dotprod | Level::I8mm => &dynamic::DOTPROD,
        #[cfg(target_arch = "aarch64")]
        Level::Neon => return None,
        #[cfg(target_arch = "arm")]
        Level::Neon32 => return None,
    })
}

/// Whether patches whose segments are so short are better copied to one piece each: what fills up each segment is multiplied
/// for each column. It is not measured on other machines than Arm's.
pub fn joins(isa: Isa, shape: Shape) -> bool {
    /// Products in whose time a byte is copied.
    const COPIED: usize = 8;
    let Some(inputs) = shape.inputs() else { return false };
    let spared = (shape.segments * padded(isa, shape.depth)).saturating_sub(padded(isa, inputs));
    cfg!(target_arch = "aarch64") && spared.saturating_mul(shape.columns) >= inputs.saturating_mul(COPIED)
}

/// How many bytes are read of an 8-bit row of so many.
pub fn padded(isa: Isa, depth: usize) -> usize {
    (quant(isa, true).padded)(depth)
}

/// Whether inputs are better signed or unsigned, if it matters: weights that go with the others are kept with their signs
/// changed, and then the inputs of each row are to be added up.
pub fn prefers_signed(isa: Isa) -> Option<bool> {
    match (quant(isa, false).flip, quant(isa, true).flip) {
        (0, 0) => None,
        (unsigned, _) => Some(unsigned != 0),
    }
}
