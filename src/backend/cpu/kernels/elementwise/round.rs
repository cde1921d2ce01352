//! The roundings of quantised arithmetic in a form that compiles to vectors.

use crate::tensor::requant::Multiplier;

/// A [`Multiplier`] for numbers of which it is known that nothing saturates.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    mantissa: i32,
    left: u32,
    right: u32,
    half: i32,
    /// All ones where halves below zero must be told from those above.
    tie: i32,
}

impl Scale {
    /// For numbers of at most `largest` in size; `None` if some of them would saturate.
    pub fn new(multiplier: Multiplier, largest: i32) -> Option<Self> {
        let (left, right) = (multiplier.shift.max(0) as u32, (-multiplier.shift).clamp(0, 31) as u32);
        let shifted = i64::from(largest) << left.min(31);
        let sum = shifted + (1i64 << right);
        (left < 31 && sum <= i64::from(i32::MAX)).then(|| Scale {
            mantissa: multiplier.mantissa,
            left,
            right,
            half: ((1i64 << right) >> 1) as i32,
            tie: if right > 0 { -1 } else { 0 },
        })
    }

    /// How far rounding twice, once for the product and once for the shift, moves results away from zero.
    pub fn nudge(self) -> f32 {
        match self.right {
            0 => 0.0,
            right => 0.5 / (1u64 << right) as f32,
        }
    }

    /// `x` times the multiplier as [`Multiplier::apply`] has it.
    #[inline(always)]
    pub fn apply(self, x: i32) -> i32 {
        let product = i64::from(x << self.left).wrapping_mul(i64::from(self.mantissa));
        // A mantissa is never negative, so that adding half before the shift rounds as the division of the nudged
        // product does. The result has 32 bits, the same with and without sign.
        let high = (product.wrapping_add(1 << 30) as u64 >> 31) as i32;
        high.wrapping_add(self.half).wrapping_add((high >> 31) & self.tie) >> self.right
    }
}

/// `x`, which is at most 2^22 in size, rounded half away from zero.
#[inline(always)]
pub fn round(x: f32) -> i32 {
    const BELOW_HALF: f32 = 0.499_999_97;
    // SAFETY: the caller's number fits 32 bits, half more does too.
    unsafe { (x + BELOW_HALF.copysign(x)).to_int_unchecked() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn scales_as_the_shared_arithmetic(x in any::<i32>(), down in 1u32..32, real in 0.5f64..1.0, exponent in -36i32..36) {
            let (x, multiplier) = (x >> down, Multiplier::new(real * f64::from(exponent).exp2()));
            if let Some(scale) = Scale::new(multiplier, x.saturating_abs()) {
                prop_assert_eq!(scale.apply(x), multiplier.apply(x));
            } else {
                prop_assert!(exponent > 0 || down == 1 || exponent < -29);
            }
        }

        #[test]
        fn rounds_as_the_library_does(x in -4_000_000f32..4_000_000.0, halves in -2_000_000i32..2_000_000) {
            for x in [x, halves as f32 / 2.0, (halves as f32 / 2.0).next_up(), (halves as f32 / 2.0).next_down()] {
                prop_assert_eq!(round(x), x.round() as i32, "{}", x);
            }
        }
    }
}
