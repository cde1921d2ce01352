//! 32-bit fixed-point arithmetic of the quantised softmax, bit-exact with gemmlowp's as NNAPI's reference uses it.
//!
//! A number with `m` integer bits is an `i32` that stands for `raw * 2^(m - 31)`. The steps of each function, their
//! rounding included, are what makes results equal on all implementations. No input may overflow.

use super::requant::{rounding_divide_by_pot, saturating_rounding_doubling_high_mul as mul, Multiplier};

/// Integer bits of a scaled difference.
const DIFFERENCE_BITS: u32 = 5;
/// Integer bits of a sum of exponentials.
const SUM_BITS: u32 = 12;

/// Exponentials of how far 8-bit elements lie below the largest of their lane.
pub struct Exponentials {
    /// By distance from the largest, without integer bits; 0 from where on they vanish.
    by_distance: [i32; 256],
}

impl Exponentials {
    /// For elements whose unit is `scale`, beta included.
    pub fn new(scale: f64) -> Self {
        let fraction = f64::from(1u32 << (31 - DIFFERENCE_BITS));
        let multiplier = Multiplier::new((scale * fraction).min(f64::from(i32::MAX)));
        let left = multiplier.shift.clamp(0, 31);
        // The largest distance whose exponent still has its integer bits.
        let radius = (((1i64 << DIFFERENCE_BITS) - 1) << (31 - DIFFERENCE_BITS)) >> left;
        let exponential = |distance: i64| {
            if distance > radius {
                return 0;
            }
            let shifted = (-distance << left).max(i64::from(i32::MIN)) as i32;
            exp_of_negative(mul(shifted, multiplier.mantissa))
        };
        Exponentials { by_distance: std::array::from_fn(|distance| exponential(distance as i64)) }
    }

    /// The exponential of `distance`, without integer bits.
    #[inline(always)]
    pub fn of(&self, distance: i32) -> i32 {
        self.by_distance.get(distance as usize).copied().unwrap_or(0)
    }

    /// What `distance` adds to the sum of all exponentials.
    pub fn term(&self, distance: i32) -> i64 {
        Self::term_of(self.of(distance)).into()
    }

    /// What an exponential adds to the sum of all.
    #[inline(always)]
    pub fn term_of(exponential: i32) -> i32 {
        rounding_divide_by_pot(exponential, SUM_BITS)
    }

    /// One by the sum of [terms](Self::term).
    #[inline(always)]
    pub fn reciprocal(sum: i64) -> Reciprocal {
        Reciprocal::new(sum.clamp(1, i64::from(i32::MAX)) as i32)
    }

    /// What [`share`](Self::share) multiplies exponentials by; `None` where all shares are 0.
    #[inline(always)]
    pub fn multiplier(reciprocal: &Reciprocal) -> Option<Multiplier> {
        let exponent = reciprocal.bits_over_unit + 31 - 8;
        (0..=31).contains(&exponent).then_some(Multiplier { mantissa: reciprocal.scale, shift: -exponent })
    }

    /// The exponential of `distance` times `reciprocal`, in units of 1/256.
    pub fn share(&self, distance: i32, reciprocal: &Reciprocal) -> i32 {
        let share = mul(reciprocal.scale, self.of(distance));
        match u32::try_from(reciprocal.bits_over_unit + 31 - 8) {
            Ok(exponent @ 0..=31) => rounding_divide_by_pot(share, exponent),
            _ => 0, // of more than 512 elements alike, each has less than half a unit
        }
    }
}

/// One by a positive number.
pub struct Reciprocal {
    /// Without integer bits, to be divided by a power of two.
    scale: i32,
    bits_over_unit: i32,
}

impl Reciprocal {
    /// `sum` is positive and has [`SUM_BITS`] integer bits.
    #[inline(always)]
    fn new(sum: i32) -> Self {
        let headroom = sum.leading_zeros();
        let fraction = ((sum as u32) << headroom).wrapping_sub(1 << 31) as i32;
        Reciprocal { scale: one_by_one_plus(fraction), bits_over_unit: SUM_BITS as i32 - headroom as i32 }
    }
}

/// `x * 2^by`, saturated.
#[inline(always)]
fn shift_left(x: i32, by: u32) -> i32 {
    (i64::from(x) << by).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
}

/// `e^x` for `x` of [`DIFFERENCE_BITS`] integer bits, at most 0; the result has none.
fn exp_of_negative(x: i32) -> i32 {
    const FRACTION: u32 = 31 - DIFFERENCE_BITS;
    const QUARTER: i32 = 1 << (FRACTION - 2);
    /// `e^-(2^(i - 2))`.
    const POWERS: [i32; 7] =
        [1_672_461_947, 1_302_514_674, 790_015_084, 290_630_308, 39_332_535, 720_401, 242];
    if x >= 0 {
        return i32::MAX;
    }
    let within = (x & (QUARTER - 1)) - QUARTER;
    let remainder = within.wrapping_sub(x);
    let start = exp_near_zero(shift_left(within, DIFFERENCE_BITS));
    POWERS.iter().enumerate().fold(start, |result, (i, &power)| {
        if remainder & (1 << (FRACTION - 2 + i as u32)) != 0 {
            mul(result, power)
        } else {
            result
        }
    })
}

/// `e^x` for `x` in [-1/4, 0), without integer bits: a Taylor series about -1/8.
fn exp_near_zero(x: i32) -> i32 {
    const EXP_MINUS_EIGHTH: i32 = 1_895_147_668;
    const THIRD: i32 = 715_827_883;
    let x = x.saturating_add(1 << 28);
    let x2 = mul(x, x);
    let x3 = mul(x2, x);
    let x4 = mul(x2, x2);
    let tail = mul(rounding_divide_by_pot(x4, 2).saturating_add(x3), THIRD).saturating_add(x2);
    let series = x.saturating_add(rounding_divide_by_pot(tail, 1));
    EXP_MINUS_EIGHTH.saturating_add(mul(EXP_MINUS_EIGHTH, series))
}

/// `1 / (1 + x)` for `x` in [0, 1), without integer bits: three steps of Newton and Raphson.
#[inline(always)]
fn one_by_one_plus(x: i32) -> i32 {
    const _48_BY_17: i32 = 1_515_870_810;
    const MINUS_32_BY_17: i32 = -1_010_580_540;
    let sum = i64::from(x) + i64::from(i32::MAX);
    let half = ((sum + if sum >= 0 { 1 } else { -1 }) / 2) as i32;
    // With two integer bits, which the step's product doubles.
    let mut y = _48_BY_17.saturating_add(mul(half, MINUS_32_BY_17));
    for _ in 0..3 {
        let missing = (1 << 29) - mul(half, y);
        y = y.saturating_add(shift_left(mul(y, missing), 2));
    }
    shift_left(y, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_exponentials() {
        for scale in [0.001, 0.02, 0.1, 0.5, 1.0, 3.0] {
            let exponentials = Exponentials::new(scale);
            for distance in 0..256 {
                let exact = (-f64::from(distance) * scale).exp();
                let ours = f64::from(exponentials.of(distance)) / 2f64.powi(31);
                assert!((ours - exact).abs() < 1e-6, "{distance} * {scale}: {ours}, not {exact}");
            }
        }
    }

    #[test]
    fn shares_are_shares() {
        let exponentials = Exponentials::new(0.05);
        for count in [1, 2, 3, 100, 500, 3000] {
            let distances = || (0..count).map(|i| (i * 7) % 256);
            let sum: f64 = distances().map(|d| (-f64::from(d) * 0.05).exp()).sum();
            let reciprocal = Exponentials::reciprocal(distances().map(|d| exponentials.term(d)).sum());
            for d in distances() {
                let exact = 256.0 * (-f64::from(d) * 0.05).exp() / sum;
                let ours = f64::from(exponentials.share(d, &reciprocal));
                assert!((ours - exact).abs() <= 0.51, "{d} of {count}: {ours}, not {exact}");
            }
        }
    }

    #[test]
    fn extremes_are_tame() {
        for scale in [0.0, 1e-30, 1e30, f64::NAN, f64::INFINITY] {
            let exponentials = Exponentials::new(scale);
            let reciprocal = Exponentials::reciprocal(100_000 * exponentials.term(0));
            assert!((0..=256).contains(&exponentials.share(255, &reciprocal)), "{scale}");
            assert!((0..=256).contains(&exponentials.share(i32::MAX, &reciprocal)));
        }
    }
}
