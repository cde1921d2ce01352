//! Requantisation in a form that the compiler turns into vectors: what depthwise convolutions use.

/// What turns sums into bytes: the arithmetic of [`Multiplier`], in a form that compiles to vectors.
pub(super) struct Scaling<'a> {
    /// Per column.
    pub mantissa: &'a [i32],
    pub shift: &'a [i32],
    pub output_zero: i32,
    pub range: (i32, i32),
}

impl Scaling<'_> {
    /// Scales by [`scale`] or [`scale_once`]; all are as many as the columns.
    #[inline(always)]
    pub fn requantise(&self, sums: &[i32], bytes: &mut [u8], scale: impl Fn(i32, i32, i32) -> i32) {
        // Bounds are kept before the zero point is added, so that adding cannot overflow.
        let (lo, hi) = self.range;
        let (lo, hi) = (lo.saturating_sub(self.output_zero), hi.saturating_sub(self.output_zero));
        let multipliers = self.mantissa.iter().zip(self.shift);
        for ((to, &sum), (&mantissa, &shift)) in bytes.iter_mut().zip(sums).zip(multipliers) {
            *to = scale(sum, mantissa, shift).max(lo).min(hi).wrapping_add(self.output_zero) as u8;
        }
    }
}

/// `x` times a multiplier, without a branch.
#[inline(always)]
pub(super) fn scale(x: i32, mantissa: i32, shift: i32) -> i32 {
    let right = (-shift).max(0) as u32;
    let product = i64::from(shift_left(x, shift)) * i64::from(mantissa);
    // Mantissas are never negative, so the one product that would saturate does not occur; adding half before a shift
    // rounds as gemmlowp's division of the nudged product does. It has 32 bits, the same with and without sign.
    let high = ((product + (1 << 30)) as u64 >> 31) as i32;
    // Half away from zero.
    let mask = 1i32.wrapping_shl(right).wrapping_sub(1);
    let up = (high & mask) > (mask >> 1) + i32::from(high < 0);
    high.wrapping_shr(right) + i32::from(up)
}

/// `x` shifted left, if `shift` is positive, and saturated.
#[inline(always)]
fn shift_left(x: i32, shift: i32) -> i32 {
    let left = shift.max(0) as u32;
    let shifted = x.wrapping_shl(left);
    match shifted.wrapping_shr(left) == x {
        true => shifted,
        false => (x >> 31) ^ i32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::requant::Multiplier;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn scales_as_the_shared_arithmetic(x in any::<i32>(), down in 0u32..32, real in 0.5f64..1.0, exponent in -36i32..36) {
            let (x, m) = (x >> down, Multiplier::new(real * f64::from(exponent).exp2()));
            prop_assert_eq!(scale(x, m.mantissa, m.shift), m.apply(x));
        }
    }
}
