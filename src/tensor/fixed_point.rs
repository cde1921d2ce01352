//! 16-bit fixed-point arithmetic of the quantised LSTMs, bit-exact with gemmlowp's and TFLite's.
//!
//! A number with `m` integer bits is an `i16` that stands for `raw * 2^(m - 15)`; with none it lies in [-1, 1). The
//! steps of each function, their rounding included, are what makes results equal on all implementations: an
//! arithmetically better series would be wrong here.

use super::requant::{rounding_divide_by_pot, saturating_rounding_doubling_high_mul, Multiplier};

/// The largest number without integer bits, which stands for 1.
const ONE: i16 = i16::MAX;

/// `x` saturated to 16 bits.
pub fn saturate(x: i32) -> i16 {
    x.clamp(i16::MIN.into(), i16::MAX.into()) as i16
}

/// Product, rounded to nearest; the integer bits of the factors add up.
pub fn mul(a: i16, b: i16) -> i16 {
    let product = i32::from(a) * i32::from(b);
    let nudge = if product >= 0 { 1 << 14 } else { 1 - (1 << 14) };
    // Only the square of the smallest number does not fit.
    saturate((product + nudge) / (1 << 15))
}

/// `x * 2^exponent`, saturated or rounded: what changing the number of integer bits by `-exponent` takes.
pub fn rescale(x: i16, exponent: i32) -> i16 {
    match exponent {
        0.. => saturate(i32::from(x) << exponent.min(15)),
        _ => rounding_divide_by_pot(x.into(), exponent.unsigned_abs()) as i16,
    }
}

/// A constant given in 32-bit fixed point, in 16-bit fixed point of as many integer bits.
fn constant(raw: i32) -> i16 {
    rounding_divide_by_pot(raw, 16) as i16
}

/// exp(x) for x in [-1/4, 0), without integer bits: a Taylor series around -1/8.
fn exp_of_small(x: i16) -> i16 {
    let (exp_of_minus_eighth, third) = (constant(1_895_147_668), constant(715_827_883));
    let x = x.wrapping_add(1 << 12);
    let x2 = mul(x, x);
    let x3 = mul(x2, x);
    let x4_over_4 = rescale(mul(x2, x2), -2);
    let tail = rescale(mul(x4_over_4.wrapping_add(x3), third).wrapping_add(x2), -1);
    exp_of_minus_eighth.saturating_add(mul(exp_of_minus_eighth, x.wrapping_add(tail)))
}

/// exp(x) for x <= 0 with 1 to 7 integer bits; the result has none.
fn exp_of_negative(x: i16, integer_bits: i32) -> i16 {
    /// exp(-2^i) for i from -2 to 4, in 32 bits.
    const FACTORS: [i32; 7] =
        [1_672_461_947, 1_302_514_674, 790_015_084, 290_630_308, 39_332_535, 720_401, 242];
    if x == 0 {
        return ONE;
    }
    if integer_bits > 5 && i32::from(x) < -(1 << (20 - integer_bits)) {
        return 0; // x < -32
    }
    let quarter_bit = 13 - integer_bits;
    let quarter = 1i16 << quarter_bit;
    let small = (x & (quarter - 1)) - quarter;
    let rest = i32::from(small) - i32::from(x);
    let mut result = exp_of_small(rescale(small, integer_bits));
    for (i, &factor) in (0..).zip(&FACTORS) {
        if integer_bits > i - 2 && rest & (1 << (quarter_bit + i)) != 0 {
            result = mul(result, constant(factor));
        }
    }
    result
}

/// 2 / (1 + x) for x in (0, 1), with 2 integer bits: Newton's division.
fn two_over_one_plus(x: i16) -> i16 {
    const ONE_OF_2_BITS: i16 = 1 << 13;
    // Both lie in [0, 1]: the sum is positive, and rounds up.
    let half_denominator = ((i32::from(x) + i32::from(ONE) + 1) / 2) as i16;
    let mut quotient = constant(1_515_870_810).wrapping_add(mul(half_denominator, constant(-1_010_580_540)));
    for _ in 0..3 {
        let error = ONE_OF_2_BITS.wrapping_sub(mul(half_denominator, quotient));
        quotient = quotient.wrapping_add(rescale(mul(quotient, error), 2));
    }
    quotient
}

/// tanh(x) for x with 0 to 6 integer bits; the result has none.
pub fn tanh(x: i16, integer_bits: i32) -> i16 {
    if x == 0 {
        return 0;
    }
    // (1 - e) / (1 + e) = 2 / (1 + e) - 1 for e = exp(-2|x|); one more integer bit doubles x.
    let negative = if x < 0 { x } else { -x };
    let exp = exp_of_negative(negative, integer_bits.clamp(0, 6) + 1);
    let result = rescale(two_over_one_plus(exp).wrapping_sub(1 << 13), 2);
    if x < 0 {
        result.wrapping_neg()
    } else {
        result
    }
}

/// 1 / (1 + exp(-x)) for x with 3 integer bits; the result has none.
pub fn logistic(x: i16) -> i16 {
    if x == 0 {
        return 1 << 14;
    }
    let negative = if x > 0 { -x } else { x };
    // Read with one integer bit instead of two, 2 / (1 + e) is halved.
    let of_positive = rescale(two_over_one_plus(exp_of_negative(negative, 3)), 1);
    if x > 0 {
        of_positive
    } else {
        ONE - of_positive
    }
}

/// 1 / sqrt(x) as a multiplier; for 1 and less it is (about) 1.
pub fn inverse_sqrt(x: i32) -> Multiplier {
    if x <= 1 {
        return Multiplier { mantissa: i32::MAX, shift: 0 };
    }
    // x is brought into [2^27, 2^29) by steps of 2 bits, each of which halves or doubles the result.
    let (mut x, mut shift) = (x, -11);
    while x >= 1 << 29 {
        x /= 4;
        shift -= 1;
    }
    let pairs = (x.leading_zeros() as i32 - 1) / 2 - 1;
    x <<= 2 * pairs;
    shift += pairs;
    // Newton's iteration in 32-bit fixed point with 3 integer bits: y = y * (3/2 - x/2 * y * y).
    let product = saturating_rounding_doubling_high_mul;
    let left = |x: i32, bits: i32| (i64::from(x) << bits).clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    let half_x = rounding_divide_by_pot(x >> 1, 1);
    let three_halves = (1 << 28) + (1 << 27);
    let mut y = 1 << 28;
    for _ in 0..5 {
        let cube = left(product(product(y, y), y), 6);
        y = left(product(three_halves, y).wrapping_sub(product(half_x, cube)), 3);
    }
    let mantissa = product(y, 1_518_500_250); // sqrt(2) / 2
    Multiplier { mantissa: left(mantissa, shift.max(0)), shift: shift.min(0) }
}

/// Shifts and scales values to mean 0 and variance 1, multiplies with weights, adds a bias, and gives the result 3 integer
/// bits; the bias has a 1024th of the weights' scale.
pub struct LayerNorm {
    mean: i64,
    inverse: Multiplier,
    rescaled: Multiplier,
}

/// Sums over values that a [`LayerNorm`] is made for.
#[derive(Default)]
pub struct Moments {
    count: i64,
    sum: i64,
    squares: i64,
}

impl Moments {
    pub fn add(&mut self, x: i16) {
        let x = i64::from(x);
        self.count += 1;
        self.sum += x;
        self.squares += x * x;
    }
}

impl LayerNorm {
    /// For values with these sums; `scale` is the weights'.
    pub fn new(moments: &Moments, scale: f32) -> Self {
        const OVERFLOW_GUARD: i64 = 1 << 20;
        let n = moments.count.max(1);
        let mean = moments.sum * 1024 / n;
        let variance = (moments.squares * (OVERFLOW_GUARD / n) - mean * mean) / OVERFLOW_GUARD;
        let least_variance = (10_000.0 * scale) as i32;
        let inverse = inverse_sqrt(if variance < 1 { least_variance } else { variance as i32 });
        LayerNorm { mean, inverse, rescaled: Multiplier::new(f64::from(scale) * 4096.0) }
    }

    pub fn apply(&self, value: i16, weight: i16, bias: i32) -> i16 {
        let normalised = self.inverse.apply((1024 * i64::from(value) - self.mean) as i32);
        let sum = i64::from(normalised) * i64::from(weight) + i64::from(bias);
        let rounded = (if sum > 0 { sum + 512 } else { sum - 512 }) / 1024;
        let rounded = rounded.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        saturate(self.rescaled.apply(rounded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn real(raw: i16, integer_bits: i32) -> f64 {
        f64::from(raw) * 2f64.powi(integer_bits - 15)
    }

    /// FNV-1a over a function's values at all inputs.
    fn fingerprint(function: impl Fn(i16) -> i16) -> u32 {
        (i16::MIN..=i16::MAX).fold(2_166_136_261, |hash: u32, x| {
            (hash ^ u32::from(function(x) as u16)).wrapping_mul(16_777_619)
        })
    }

    fn normalise(values: &mut [i16], weights: &[i16], bias: &[i32], scale: f32) {
        let mut moments = Moments::default();
        values.iter().for_each(|&x| moments.add(x));
        let norm = LayerNorm::new(&moments, scale);
        values
            .iter_mut()
            .zip(weights)
            .zip(bias)
            .for_each(|((x, &weight), &bias)| *x = norm.apply(*x, weight, bias));
    }

    #[test]
    fn functions_are_close_to_real_ones() {
        for integer_bits in 0..=6 {
            for x in i16::MIN..=i16::MAX {
                let error = real(tanh(x, integer_bits), 0) - real(x, integer_bits).tanh();
                assert!(error.abs() < 5e-4, "tanh of {x} with {integer_bits} integer bits is off by {error}");
            }
        }
        for x in i16::MIN..=i16::MAX {
            let error = real(logistic(x), 0) - 1.0 / (1.0 + (-real(x, 3)).exp());
            assert!(error.abs() < 5e-4, "logistic of {x} is off by {error}");
        }
    }

    /// Fingerprints of gemmlowp's own functions, from a program that called them.
    #[test]
    fn functions_are_those_of_gemmlowp() {
        let tanhs = [0, 1, 2, 3, 4, 5, 6].map(|integer_bits| fingerprint(|x| tanh(x, integer_bits)));
        let expected =
            [0x6883_03e1, 0x1a67_da69, 0xa869_0335, 0x33fd_df7c, 0xd793_2c8a, 0x2840_ea66, 0x212a_06ac];
        assert_eq!(tanhs, expected);
        assert_eq!(fingerprint(logistic), 0xb44d_02c1);
    }

    #[test]
    fn products_and_rescaling_saturate() {
        assert_eq!(mul(i16::MIN, i16::MIN), i16::MAX);
        assert_eq!(mul(1 << 14, -3), -1, "-1.5 rounds towards positive infinity");
        assert_eq!((rescale(-20000, 1), rescale(20000, 40), rescale(-3, -1)), (i16::MIN, i16::MAX, -2));
    }

    /// Mantissas and shifts from the reference's own function.
    #[test]
    fn inverse_square_roots_are_those_of_the_reference() {
        let expected = [
            (2, 1_518_498_372, 0),
            (3, 1_239_850_284, 0),
            (4, 1_073_741_828, 0),
            (100, 214_748_363, 0),
            (12_345, 309_246_148, -4),
            (1 << 20, 268_435_457, -7),
            ((1 << 29) - 1, 189_812_531, -11),
            (1 << 29, 379_624_593, -12),
            (i32::MAX, 189_812_531, -12),
        ];
        for (x, mantissa, shift) in expected {
            assert_eq!(inverse_sqrt(x), Multiplier { mantissa, shift }, "of {x}");
            let value = f64::from(mantissa) * 2f64.powi(shift - 31);
            assert!((value * f64::from(x).sqrt() - 1.0).abs() < 2e-6, "of {x}");
        }
        for x in [i32::MIN, 0, 1] {
            assert_eq!(inverse_sqrt(x), Multiplier { mantissa: i32::MAX, shift: 0 });
        }
    }

    #[test]
    fn layer_norm_normalises_and_survives_hostile_scales() {
        // A weight of 1024 with the scale 1/1024 is 1; the result has 12 fractional bits.
        let mut values = [100, 300, 100, 300];
        normalise(&mut values, &[1024; 4], &[0, 0, 1 << 20, 0], 1.0 / 1024.0);
        assert_eq!(values, [-4096, 4096, 0, 4096]);
        for scale in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e30, 1e-40] {
            let mut values = [i16::MIN, i16::MAX, i16::MIN];
            normalise(&mut values, &[i16::MIN; 3], &[i32::MIN, i32::MAX, 0], scale);
        }
        normalise(&mut [], &[], &[], 1.0);
    }
}
