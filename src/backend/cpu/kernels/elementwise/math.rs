//! Exponentials and their kin without branches or calls, so that loops over them compile to vectors.
//!
//! All use sums and products that every machine rounds alike. `FUSED` has a product added to without being rounded first,
//! where [vectors can](super::super::vector::Level::fuses): results depend on that, and on nothing else of the machine.

/// Where the exponent of a power of two begins in a float's bits.
const EXPONENT: u32 = 23;

/// Adding this and taking it away again rounds to a whole number, which the sum's lowest bits are.
const ROUNDER: f32 = 12_582_912.0;

/// `a * b + c`.
#[inline(always)]
fn add_product<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    match FUSED {
        true => a.mul_add(b, c),
        false => a * b + c,
    }
}

/// A polynomial, its highest coefficient first.
#[inline(always)]
fn polynomial<const FUSED: bool, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[0];
    for &next in &coefficients[1..] {
        sum = add_product::<FUSED>(sum, x, next);
    }
    sum
}

/// `x`, or `-x` if `sign` says so, as `n * ln 2 + sign * r`, with `n` whole and `r` at most half of `ln 2` in size, for `x` of at
/// most some hundreds: `n` with [`ROUNDER`] added, `n`, and `r`.
#[inline(always)]
fn reduce<const FUSED: bool>(x: f32, sign: f32) -> (f32, f32, f32) {
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let shifted = add_product::<FUSED>(x, sign * std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = add_product::<FUSED>(n, -sign * LN_2_HIGH, x);
    (shifted, n, add_product::<FUSED>(n, -sign * LN_2_LOW, r))
}

/// What is added to `1 + r` for `e^r`, by `r * r`: the highest coefficient first.
const EXP_SERIES: [f32; 5] = [1.398_071_1e-3, 8.364_706e-3, 4.166_454e-2, 0.166_665_64, 0.500_000_2];

/// `e^r - 1` for `r` of at most half of `ln 2` in size. The polynomial's largest error is 1e-8 of `e^r`.
#[inline(always)]
fn exp_m1_near_zero<const FUSED: bool>(r: f32) -> f32 {
    let series = polynomial::<FUSED, 5>(r, EXP_SERIES);
    add_product::<FUSED>(series, r * r, r)
}

/// `x * 2^n` for whole `n` from -252 to 254, rounded once more where the result is subnormal.
#[inline(always)]
fn times_power(x: f32, n: f32) -> f32 {
    // SAFETY: the caller's number fits 32 bits.
    let n: i32 = unsafe { n.to_int_unchecked() };
    let power = |n: i32| f32::from_bits(((n + 127) << EXPONENT) as u32);
    x * power(n >> 1) * power(n - (n >> 1))
}

/// `x` where the exponential is neither zero nor infinite, or just so; 0 for a NaN.
#[inline(always)]
fn within(x: f32) -> f32 {
    // Comparisons with a NaN are false.
    let x = if x > -104.0 { x } else { -104.0 };
    if x < 89.0 {
        x
    } else {
        89.0
    }
}

/// `e^x`.
#[inline(always)]
pub fn exp<const FUSED: bool>(x: f32) -> f32 {
    let (_, n, r) = reduce::<FUSED>(within(x), 1.0);
    let result = times_power(exp_m1_near_zero::<FUSED>(r) + 1.0, n);
    if x.is_nan() {
        x
    } else {
        result
    }
}

/// `e^x - 1`.
#[inline(always)]
pub fn exp_m1<const FUSED: bool>(x: f32) -> f32 {
    let (_, n, r) = reduce::<FUSED>(within(x), 1.0);
    let near = exp_m1_near_zero::<FUSED>(r);
    let far = times_power(near + 1.0, n) - 1.0;
    let result = if n == 0.0 { near } else { far };
    if x.is_nan() {
        x
    } else {
        result
    }
}

/// `e^x`, or `e^-x` if `sign` says so, as far as it is added to 1 or more, as two factors, of which the second is a power of two:
/// at least `e^-87`, and infinite from about `e^88` on. Of a NaN the first is one.
#[inline(always)]
fn exp_beside_one<const FUSED: bool>(x: f32, sign: f32) -> (f32, f32) {
    let (least, most) = if sign < 0.0 { (-89.0, 87.0) } else { (-87.0, 89.0) };
    // Comparisons with a NaN are false.
    let x = if x < least { least } else { x };
    let x = if x > most { most } else { x };
    let (shifted, _, r) = reduce::<FUSED>(x, sign);
    near_one::<FUSED>(shifted, r, sign)
}

/// The same of what [`reduce`] makes of `x`.
#[inline(always)]
fn near_one<const FUSED: bool>(shifted: f32, r: f32, sign: f32) -> (f32, f32) {
    let power = (shifted.to_bits() << EXPONENT).wrapping_add(1f32.to_bits());
    let [sixth, fifth, fourth, third, second] = EXP_SERIES;
    // With both terms that are left in it, as what is beside one is of no interest: an operation less.
    let all = [sixth, sign * fifth, fourth, sign * third, second, sign, 1.0];
    (polynomial::<FUSED, 7>(r, all), f32::from_bits(power))
}

/// `e^x` for `x` of at most 0, and 0 where that is less than `e^-87`. Of a NaN it is one, and of what is greater than 0 any number.
#[inline(always)]
pub fn exp_to_one<const FUSED: bool>(x: f32) -> f32 {
    // Comparisons with a NaN are false.
    let (shifted, _, r) = reduce::<FUSED>(if x < -87.0 { -87.0 } else { x }, 1.0);
    let (factor, power) = near_one::<FUSED>(shifted, r, 1.0);
    if x < -87.0 {
        0.0
    } else {
        factor * power // a NaN too
    }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn logistic<const FUSED: bool>(x: f32) -> f32 {
    let (factor, power) = exp_beside_one::<FUSED>(x, -1.0);
    1.0 / add_product::<FUSED>(factor, power, 1.0)
}

/// `x / (1 + e^-x)`.
#[inline(always)]
pub fn swish<const FUSED: bool>(x: f32) -> f32 {
    x * logistic::<FUSED>(x)
}

/// The hyperbolic tangent of `x`.
#[inline(always)]
pub fn tanh<const FUSED: bool>(x: f32) -> f32 {
    let square = x * x;
    let series = polynomial::<FUSED, 5>(
        square,
        [-5.704_988_7e-3, 2.063_908_8e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1],
    );
    let near = add_product::<FUSED>(series * square, x, x);
    let magnitude = x.abs();
    let (factor, power) = exp_beside_one::<FUSED>(magnitude + magnitude, 1.0);
    let far = (1.0 - 2.0 / add_product::<FUSED>(factor, power, 1.0)).copysign(x);
    if magnitude > 0.625 {
        far
    } else {
        near // a NaN too
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks `f` against `exact` on all kinds of numbers, up to `relative` or else `absolute`.
    fn check(f: fn(f32) -> f32, exact: fn(f64) -> f64, relative: f64, absolute: f64) {
        let numbers = (0..=u32::MAX).step_by(39_119).map(f32::from_bits);
        let ramp = (-400_000..400_000).map(|i| i as f32 / 3000.0);
        for x in numbers.chain(ramp).chain([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]) {
            let (actual, expected) = (f(x), exact(f64::from(x)) as f32);
            let near = (f64::from(actual) - f64::from(expected)).abs()
                <= relative * f64::from(expected.abs()) + absolute;
            assert!(
                near || actual == expected || (actual.is_nan() && expected.is_nan()),
                "{x}: {actual}, {expected}"
            );
        }
    }

    fn are_accurate<const FUSED: bool>() {
        let smallest = f64::from(f32::from_bits(1));
        check(exp::<FUSED>, f64::exp, 2.5e-7, smallest);
        check(exp_m1::<FUSED>, f64::exp_m1, 3e-7, smallest);
        check(tanh::<FUSED>, f64::tanh, 3e-7, smallest);
        // Its smallest results are lost where the exponential overflows.
        check(logistic::<FUSED>, |x| 1.0 / (1.0 + (-x).exp()), 3e-7, f64::from(f32::MIN_POSITIVE));
        let smallest = 2.0 * f64::from(f32::MIN_POSITIVE);
        check(|x| exp_to_one::<FUSED>(-x.abs()), |x| (-x.abs()).exp(), 2.5e-7, smallest);
    }

    #[test]
    fn functions_are_accurate() {
        are_accurate::<false>();
        are_accurate::<true>();
    }

    fn are_exact<const FUSED: bool>() {
        let exp = exp::<FUSED>;
        assert_eq!([exp(0.0), exp(f32::NEG_INFINITY), exp(200.0)], [1.0, 0.0, f32::INFINITY]);
        assert_eq!([0.0, -1000.0, 1000.0].map(logistic::<FUSED>), [0.5, 0.0, 1.0]);
        assert_eq!([0.0, -1000.0, f32::NEG_INFINITY].map(exp_to_one::<FUSED>), [1.0, 0.0, 0.0]);
        assert_eq!([0.0, 1000.0, -1000.0].map(tanh::<FUSED>), [0.0, 1.0, -1.0]);
        assert!([swish::<FUSED>, exp_to_one::<FUSED>, tanh::<FUSED>, exp]
            .iter()
            .all(|f| f(f32::NAN).is_nan()));
    }

    #[test]
    fn well_known_values_are_exact() {
        are_exact::<false>();
        are_exact::<true>();
    }
}
