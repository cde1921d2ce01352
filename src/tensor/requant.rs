//! Rescaling between quantised types, in one place: multipliers, rounding and activation bounds.
//!
//! The arithmetic is gemmlowp's, as NNAPI's reference uses it: a real multiplier becomes a 31-bit fixed-point number and
//! a power of two, applied by a rounding doubling high multiplication and a rounding shift.

use super::OperandType;

/// A positive real multiplier as `mantissa * 2^(shift - 31)`, mantissa in [2^30, 2^31). By default it is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Multiplier {
    pub mantissa: i32,
    /// Positive: shift left before multiplying; negative: round-shift right after.
    pub shift: i32,
}

impl Multiplier {
    /// The multiplier nearest to `real`. Zero, negative, infinite and NaN inputs give the zero multiplier, and so does
    /// anything under 2^-31; more than 2^30 saturates.
    pub fn new(real: f64) -> Self {
        if !real.is_finite() || real <= 0.0 {
            return Multiplier { mantissa: 0, shift: 0 };
        }
        let (fraction, mut shift) = frexp(real);
        // The nearest: numbers of this size have 22 bits behind the point, so that a half is added exactly.
        let mut mantissa = (fraction * (1i64 << 31) as f64 + 0.5) as i64;
        if mantissa == 1 << 31 {
            mantissa /= 2;
            shift += 1;
        }
        if shift < -31 {
            return Multiplier { mantissa: 0, shift: 0 };
        }
        if shift > 30 {
            return Multiplier { mantissa: i32::MAX, shift: 30 };
        }
        Multiplier { mantissa: mantissa as i32, shift }
    }

    /// `x` times this multiplier, rounded, saturated to 32 bits.
    pub fn apply(self, x: i32) -> i32 {
        let left = self.shift.max(0) as u32;
        let right = (-self.shift).max(0) as u32;
        let shifted = (i64::from(x) << left).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
        rounding_divide_by_pot(saturating_rounding_doubling_high_mul(shifted, self.mantissa), right)
    }

    /// `x` times this multiplier, rounded once: half up, saturated to 32 bits.
    pub fn apply_once(self, x: i32) -> i32 {
        let left = self.shift.max(0) as u32;
        let right = (-self.shift).clamp(0, 31) as u32;
        let shifted = (i64::from(x) << left).clamp(i64::from(i32::MIN), i64::from(i32::MAX));
        // Below 2^62 in size, so that half of the divisor can be added.
        ((shifted * i64::from(self.mantissa) + (1 << (30 + right))) >> (31 + right)) as i32
    }
}

/// Splits a positive finite number into a fraction in [0.5, 1) and a power of two.
fn frexp(x: f64) -> (f64, i32) {
    // Subnormals are scaled up first so that the exponent field is meaningful.
    let (x, bias) = if x < f64::MIN_POSITIVE { (x * 2f64.powi(54), -54) } else { (x, 0) };
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1022;
    (f64::from_bits((x.to_bits() & !(0x7ff << 52)) | (1022 << 52)), exponent + bias)
}

/// High 32 bits of 2ab, rounded to nearest with halves away from zero; saturates only for MIN * MIN.
#[inline]
pub fn saturating_rounding_doubling_high_mul(a: i32, b: i32) -> i32 {
    if a == i32::MIN && b == i32::MIN {
        return i32::MAX;
    }
    let product = i64::from(a) * i64::from(b);
    let nudge = if product >= 0 { 1i64 << 30 } else { 1 - (1i64 << 30) };
    ((product + nudge) / (1i64 << 31)) as i32
}

/// `x / 2^exponent`, rounded to nearest with halves away from zero; `exponent` in 0..=31.
#[inline]
pub fn rounding_divide_by_pot(x: i32, exponent: u32) -> i32 {
    let exponent = exponent.min(31);
    let mask = ((1i64 << exponent) - 1) as i32;
    let remainder = x & mask;
    let threshold = (mask >> 1) + i32::from(x < 0);
    (x >> exponent) + i32::from(remainder > threshold)
}

/// `real` in quantised units: round half away from zero, add the zero point, clamp to the type. NaN gives the zero point.
pub fn quantise(real: f32, ty: OperandType, scale: f32, zero_point: i32) -> i32 {
    let (lo, hi) = ty.integer_range().unwrap_or((0, 0));
    // A float-to-integer cast saturates and maps NaN to 0, so no input is undefined.
    ((real / scale).round() as i64).saturating_add(i64::from(zero_point)).clamp(i64::from(lo), i64::from(hi))
        as i32
}

/// A fused activation, FusedActivationFunc of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    None,
    Relu,
    Relu1,
    Relu6,
}

/// `x` within bounds; NaN stays NaN. In loops it is two instructions.
#[inline(always)]
pub fn within((lo, hi): (f32, f32), x: f32) -> f32 {
    // Comparisons with a NaN are false.
    let x = if x < lo { lo } else { x };
    if x > hi {
        hi
    } else {
        x
    }
}

impl Activation {
    pub fn from_code(code: i32) -> Option<Self> {
        match code {
            0 => Some(Activation::None),
            1 => Some(Activation::Relu),
            2 => Some(Activation::Relu1),
            3 => Some(Activation::Relu6),
            _ => None,
        }
    }

    /// Bounds of the activation in real numbers; infinite where there is none.
    pub fn float_range(self) -> (f32, f32) {
        match self {
            Activation::None => (f32::NEG_INFINITY, f32::INFINITY),
            Activation::Relu => (0.0, f32::INFINITY),
            Activation::Relu1 => (-1.0, 1.0),
            Activation::Relu6 => (0.0, 6.0),
        }
    }

    /// `x` clamped to the activation's range; NaN stays NaN.
    pub fn apply(self, x: f32) -> f32 {
        within(self.float_range(), x)
    }

    /// Bounds of the activation in quantised units of the output, within its type's range.
    pub fn quantised_range(self, ty: OperandType, scale: f32, zero_point: i32) -> (i32, i32) {
        let (lo, hi) = ty.integer_range().unwrap_or((0, 0));
        let (real_lo, real_hi) = self.float_range();
        let bound = |real: f32, otherwise: i32| {
            if real.is_finite() {
                quantise(real, ty, scale, zero_point)
            } else {
                otherwise
            }
        };
        (bound(real_lo, lo), bound(real_hi, hi))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplier_matches_real_arithmetic() {
        for real in [1e-9, 0.0003, 0.24, 0.5, 0.75, 0.9999999999, 1.0, 1.5, 77.7] {
            let m = Multiplier::new(real);
            for x in [-2_000_000, -1001, -3, 0, 1, 2, 77, 123_456, 9_999_999] {
                let exact = f64::from(x) * real;
                assert!((f64::from(m.apply(x)) - exact).abs() <= 1.0 + exact.abs() * 1e-8, "{x} * {real}");
            }
        }
    }

    #[test]
    fn rounding_once_is_rounding_the_exact_product() {
        for real in [1e-9, 0.0003, 0.24, 0.5, 0.75, 1.5, 77.7] {
            let m = Multiplier::new(real);
            let exact = f64::from(m.mantissa) * 2f64.powi(m.shift - 31);
            for x in [-2_000_000, -1001, -3, 0, 1, 2, 77, 123_456, 9_999_999] {
                assert_eq!(f64::from(m.apply_once(x)), (f64::from(x) * exact + 0.5).floor(), "{x} * {real}");
            }
        }
        // 2.498: in two steps it would become 2.5 and then 3.
        let m = Multiplier { mantissa: 1_072_883_138, shift: -7 };
        assert_eq!((m.apply(640), m.apply_once(640)), (3, 2));
    }

    #[test]
    fn hostile_multipliers_are_tame() {
        for real in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300, 5e-324] {
            assert_eq!(Multiplier::new(real).apply(i32::MAX), 0);
        }
        assert!(Multiplier::new(1e300).apply(2) > i32::MAX - 2);
        assert!(Multiplier::new(1e300).apply(-2) < i32::MIN + 2);
    }

    #[test]
    fn shifts_round_half_away_from_zero() {
        assert_eq!(rounding_divide_by_pot(3, 1), 2);
        assert_eq!(rounding_divide_by_pot(-3, 1), -2);
        assert_eq!(rounding_divide_by_pot(5, 0), 5);
        assert_eq!(rounding_divide_by_pot(i32::MIN, 31), -1);
        assert_eq!(saturating_rounding_doubling_high_mul(i32::MIN, i32::MIN), i32::MAX);
    }

    #[test]
    fn quantise_clamps_and_survives_nan() {
        let q = |x| quantise(x, OperandType::TENSOR_QUANT8_ASYMM, 0.5, 10);
        assert_eq!((q(0.0), q(0.25), q(-0.25), q(1e30), q(-1e30), q(f32::NAN)), (10, 11, 9, 255, 0, 10));
    }

    #[test]
    fn activations_keep_nan() {
        assert!(Activation::Relu6.apply(f32::NAN).is_nan());
        assert_eq!(Activation::Relu6.apply(7.0), 6.0);
        assert_eq!(Activation::None.apply(f32::INFINITY), f32::INFINITY);
        assert_eq!(Activation::Relu.quantised_range(OperandType::TENSOR_QUANT8_ASYMM, 0.5, 10), (10, 255));
    }
}
