//! GELU, which NNAPI lacks.

use super::call::{options, Call, Domain, Mapped};
use super::elementwise::{combine, float_constant, like};
use super::schema::Options;
use crate::ops::OperationType;

/// GELU is `x * P(x)`, where P goes from 0 to 1 as a logistic function of `x * f(x * x)` does, for some `f`. That takes no
/// difference of nearly equal numbers, as `1 + tanh(..)` and `1 + erf(..)` are for negative `x`.
pub fn gelu(call: &mut Call) -> Mapped {
    let approximate = options!(call, Gelu(o) => o.approximate, or false);
    let factors = if approximate { &TANH_FORM[..] } else { &NORMAL[..] };
    let x = call.float_input(0)?;
    let square = combine(call, OperationType::MUL, x, x);
    let mut f = None;
    for &factor in factors.iter().rev() {
        let factor = float_constant(call, factor);
        f = Some(match f {
            None => factor,
            Some(f) => {
                let product = combine(call, OperationType::MUL, square, f);
                combine(call, OperationType::ADD, product, factor)
            }
        });
    }
    let f = f.ok_or("it has no factors")?;
    let argument = combine(call, OperationType::MUL, x, f);
    let part = like(call, x);
    call.emit(OperationType::LOGISTIC, &[argument], &[part]);
    let none = call.activation(0)?;
    call.emit_to_output(Domain::Float, OperationType::MUL, &[x, part, none])
}

/// `1 + tanh(u)` is twice the logistic function of `2 * u`, and GELU's approximate form has
/// `u = sqrt(2 / pi) * (x + 0.044715 * x^3)`: this is exact.
const TANH_FORM: [f32; 2] = [1.595_769, 0.071_354_814];

/// Such that the logistic function differs from the normal distribution by 2.9e-8 at most, and GELU by 1.3e-7. Fitted over
/// 0 to 6 with the errors of the distribution made even; the last factor is positive, so that it goes on to 0 and 1 beyond.
const NORMAL: [f32; 7] = [
    1.595_769_9,
    0.072_666_17,
    -6.518_995e-5,
    -1.106_123_9e-4,
    7.929_489e-6,
    -2.645_266_8e-7,
    3.512_341_3e-9,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// As the operations compute it.
    fn gelu(x: f32, factors: &[f32]) -> f32 {
        let (last, rest) = factors.split_last().unwrap();
        let f = rest.iter().rev().fold(*last, |f, factor| x * x * f + factor);
        x * (1.0 / (1.0 + (-x * f).exp()))
    }

    /// The normal distribution, by the series of its integral.
    fn normal(x: f64) -> f64 {
        let (mut term, mut sum, mut odd) = (x, x, 1.0);
        while term.abs() > 1e-18 * sum.abs() {
            odd += 2.0;
            term *= x * x / odd;
            sum += term;
        }
        0.5 + sum * (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
    }

    #[test]
    fn both_forms_are_as_accurate_as_floats_are() {
        for i in -7000..7000 {
            let x = i as f32 / 1000.0;
            let wide = f64::from(x);
            let tanh = ((2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044715 * wide.powi(3))).tanh();
            for (factors, part) in [(&NORMAL[..], normal(wide)), (&TANH_FORM[..], (1.0 + tanh) / 2.0)] {
                let (found, expected) = (f64::from(gelu(x, factors)), wide * part);
                assert!((found - expected).abs() < 3e-7 + 2e-7 * expected.abs(), "{x}: {found}, {expected}");
            }
        }
        assert_eq!(gelu(0.0, &NORMAL), 0.0);
        for far in [20.0f32, 1e4, 1e30] {
            assert_eq!((gelu(far, &NORMAL), gelu(-far, &NORMAL)), (far, 0.0));
        }
    }
}
