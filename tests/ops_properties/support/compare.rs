//! Comparison of an operation's result with the naive one.

use super::{is_quantised, Nd, Value};
use nnhal::tensor::OperandType::*;

/// Asserts that `got` stands for the real numbers `want`: to within rounding of a float type, to within one step
/// (as the conformance suite allows) of a quantised one.
#[track_caller]
pub fn expect(got: &Value, want: &Nd) {
    expect_within(got, want, 1.0);
}

/// As [`expect`], with another number of steps, or multiple of the usual tolerance of floats.
#[track_caller]
pub fn expect_within(got: &Value, want: &Nd, steps: f64) {
    assert_eq!(got.dims(), want.dims, "dimensions");
    let reals = got.reals();
    for (i, (&got_at, &want_at)) in reals.at.iter().zip(&want.at).enumerate() {
        let (want_at, tolerance) = match (got.info.ty.integer_range(), got.info.ty) {
            (Some((low, high)), ty) if is_quantised(ty) => {
                let (scale, zero) = (f64::from(got.info.scale), f64::from(got.info.zero_point));
                let bound = |q: i32| (f64::from(q) - zero) * scale;
                (want_at.clamp(bound(low), bound(high)), scale * (steps + 1e-4))
            }
            (_, TENSOR_FLOAT16 | FLOAT16) => (want_at, steps * (want_at.abs() * 1e-3 + 1e-3)),
            (_, TENSOR_FLOAT32 | FLOAT32) => (want_at, steps * (want_at.abs() * 1e-5 + 1e-5)),
            _ => (want_at, 0.0),
        };
        let same = got_at == want_at || (got_at.is_nan() && want_at.is_nan());
        assert!(
            same || (got_at - want_at).abs() <= tolerance,
            "element {i} of {:?} ({}, scale {}, zero point {}): {got_at} is not {want_at}\n got {:?}\nwant {:?}",
            got.info.dims,
            got.info.ty,
            got.info.scale,
            got.info.zero_point,
            &reals.at[..reals.at.len().min(64)],
            &want.at[..want.at.len().min(64)],
        );
    }
}

/// Asserts that `got` holds exactly the numbers `want`, as they lie in memory.
#[track_caller]
pub fn expect_exactly(got: &Value, want: &Nd) {
    let numbers = got.numbers();
    assert_eq!((got.dims(), &numbers.at), (want.dims.clone(), &want.at));
}
