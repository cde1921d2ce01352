//! Half floats in loops: conversions without branches, which compile to vectors on every machine.

/// The number that the bits of a half float stand for. A NaN becomes a quiet one, as the machine's own conversion has it.
#[inline(always)]
pub fn widen(bits: u16) -> f32 {
    const TWO_TO_112: f32 = f32::from_bits((127 + 112) << 23);
    let (sign, rest) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff) << 13);
    // Moving the exponent by a product is right for subnormals too.
    let finite = (f32::from_bits(rest) * TWO_TO_112).to_bits();
    let quiet = if rest > 0x0f80_0000 { 0x0040_0000 } else { 0 };
    let magnitude = if rest >= 0x0f80_0000 { rest | 0x7f80_0000 | quiet } else { finite };
    f32::from_bits(sign | magnitude)
}

/// The half float nearest to `x`, ties to even.
#[inline(always)]
pub fn narrow(x: f32) -> u16 {
    /// From here on numbers round to infinity.
    const TOO_LARGE: u32 = (127 + 16) << 23;
    /// Below this results are subnormal.
    const SMALLEST_NORMAL: u32 = (127 - 14) << 23;
    /// Adding this leaves a subnormal's bits in the lowest places, rounded by the addition.
    const ROUNDER: f32 = f32::from_bits((127 - 15 + 23 - 10 + 1) << 23);
    let bits = x.to_bits();
    let (sign, magnitude) = ((bits >> 16) & 0x8000, bits & 0x7fff_ffff);
    let nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    let subnormal = (f32::from_bits(magnitude) + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits());
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + odd) >> 13;
    let finite = if magnitude < SMALLEST_NORMAL { subnormal } else { normal };
    let large = if magnitude > 0x7f80_0000 { nan } else { 0x7c00 };
    (sign | if magnitude >= TOO_LARGE { large } else { finite }) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn converts_as_the_crate_does() {
        for bits in 0..=u16::MAX {
            let expected = f16::from_bits(bits).to_f32();
            assert_eq!(widen(bits).to_bits(), expected.to_bits(), "{bits:#x}");
            assert_eq!(narrow(expected), f16::from_f32(expected).to_bits(), "{bits:#x}");
        }
        // All around the places where rounding changes, and everything else sparsely.
        for bits in 0..=u16::MAX {
            for below in [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff] {
                let x = f32::from_bits((widen(bits).to_bits() & !0x1fff) | below);
                assert_eq!(narrow(x), f16::from_f32(x).to_bits(), "{x}");
            }
        }
        for bits in (0..=u32::MAX).step_by(65_521) {
            let x = f32::from_bits(bits);
            assert_eq!(narrow(x), f16::from_f32(x).to_bits(), "{x}");
        }
    }
}
