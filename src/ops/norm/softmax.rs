//! SOFTMAX: exponentials along an axis, divided by their sum.

use super::fixed_quantisation;
use super::lanes::Lanes;
use crate::ops::pace::Pace;
use crate::ops::scratch::{collected, filled, Scratch};
use crate::ops::signature::{int, var, Row, Slot};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::fixed_softmax::Exponentials;
use crate::tensor::OperandType::*;

const ROWS: &[Row] = &[
    Row(1, &[TENSOR_FLOAT32, FLOAT32]),
    Row(1, &[TENSOR_QUANT8_ASYMM, FLOAT32]),
    Row(3, &[TENSOR_FLOAT16, FLOAT16]),
    Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED, FLOAT32]),
];
/// The same with other ranks or an axis.
const LATER_ROWS: &[Row] = &[
    Row(3, &[TENSOR_FLOAT32, FLOAT32]),
    Row(3, &[TENSOR_QUANT8_ASYMM, FLOAT32]),
    Row(3, &[TENSOR_FLOAT16, FLOAT16]),
    Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED, FLOAT32]),
];
const BETA: Slot = var("beta", 1);

pub static SOFTMAX: Operation = Operation {
    ty: OperationType::SOFTMAX,
    doc: "exponentials of beta times the input along an axis, divided by their sum",
    signatures: &[
        Signature::new(ROWS, &[var("input", 0).rank(4, 4), BETA], &[var("output", 0).rank(1, 4)]),
        Signature::new(ROWS, &[var("input", 0).rank(2, 2), BETA], &[var("output", 0).rank(1, 4)]),
        Signature::new(
            LATER_ROWS,
            &[var("input", 0).rank(1, 4), BETA, int("axis")],
            &[var("output", 0).rank(1, 4)],
        )
        .input_counts(&[2, 3]),
    ],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

/// Beta and the lanes of a call.
fn params(args: &Args) -> Result<(f32, Lanes), OpError> {
    let beta = args.f32(1)?;
    if beta <= 0.0 || beta.is_nan() {
        return Err(OpError::failed(format!("beta is {beta}, it must be greater than 0")));
    }
    Ok((beta, Lanes::new(args.get(0)?.dims(), args.i32_or(2, -1)?)?))
}

fn shapes(args: &Args) -> Shapes {
    params(args)?;
    let output = args.output(0)?;
    let zero_point = if output.ty == TENSOR_QUANT8_ASYMM_SIGNED { -128 } else { 0 };
    fixed_quantisation(output, 1.0 / 256.0, zero_point)?;
    Ok(vec![args.get(0)?.dims().into()])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (beta, lanes) = params(args)?;
    let input = args.get(0)?;
    if input.ty().is_float() {
        let softened = softmax_floats(args, &input.floats()?, beta, &lanes)?;
        return outs[0].store_floats(args.interrupt, &softened);
    }
    let softened =
        softmax_integers(args, &input.integers()?, f64::from(beta) * f64::from(input.scale()), &lanes)?;
    let zero_point = outs[0].info.zero_point;
    let softened = collected(args.interrupt, softened.iter().map(|&q| q + zero_point))?;
    outs[0].store_integers(args.interrupt, &softened)
}

fn softmax_floats(args: &Args, x: &[f32], beta: f32, lanes: &Lanes) -> Result<Scratch<f32>, OpError> {
    let mut y = filled(args.interrupt, 0.0, x.len())?;
    let mut pace = Pace::new(args);
    for start in lanes.starts() {
        let (mut max, mut sum) = (f32::NEG_INFINITY, 0.0);
        pace.each(lanes.indices(start), 1, |i| max = max.max(x[i]))?;
        pace.each(lanes.indices(start), 8, |i| {
            y[i] = ((x[i] - max) * beta).exp();
            sum += y[i];
        })?;
        pace.each(lanes.indices(start), 1, |i| y[i] /= sum)?;
    }
    Ok(y)
}

/// Softmax of 8-bit integers in units of `1 / scale`; results are in units of 1/256, not yet clamped or shifted.
fn softmax_integers(args: &Args, q: &[i32], scale: f64, lanes: &Lanes) -> Result<Scratch<i32>, OpError> {
    let exponentials = Exponentials::new(scale);
    let mut y = filled(args.interrupt, 0, q.len())?;
    let mut pace = Pace::new(args);
    for start in lanes.starts() {
        let mut max = i32::MIN;
        pace.each(lanes.indices(start), 1, |i| max = max.max(q[i]))?;
        let mut sum = 0;
        pace.each(lanes.indices(start), 2, |i| sum += exponentials.term(max - q[i]))?;
        let reciprocal = Exponentials::reciprocal(sum);
        pace.each(lanes.indices(start), 4, |i| y[i] = exponentials.share(max - q[i], &reciprocal))?;
    }
    Ok(y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, call_simple, f32s, float, int, tensor};
    use crate::tensor::TensorInfo;

    #[test]
    fn sums_to_one_along_the_axis() {
        let x = f32s(&[2, 2], &[0.0, 3f32.ln(), 0.0, f32::NEG_INFINITY]);
        let (dims, y) = call_simple::<f32>(&SOFTMAX, &[x.clone(), float(1.0)]).unwrap();
        assert_eq!(dims, [2, 2]);
        for (y, expected) in y.iter().zip([0.25, 0.75, 1.0, 0.0]) {
            assert!((y - expected).abs() < 1e-6, "{y} is not {expected}");
        }
        let (_, y) = call_simple::<f32>(&SOFTMAX, &[x, float(1.0), int(0)]).unwrap();
        assert_eq!((y[0], y[2], y[3]), (0.5, 0.5, 0.0));
    }

    #[test]
    fn quantised_saturates_at_its_largest_value() {
        let x = tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[1, 2], 0.5, 0), &[255u8, 0]);
        let run = |out: TensorInfo| call(&SOFTMAX, &[Some(x.clone()), Some(float(1.0))], &[out]);
        let out = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], 1.0 / 256.0, 0);
        assert_eq!(run(out.clone()).unwrap()[0].data[..], [255, 0]);
        assert!(run(TensorInfo { scale: 0.5, ..out }).is_err());
    }

    #[test]
    fn quantised_signed_starts_at_minus_128() {
        let x = tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[1, 4], 1.0, 3), &[7i8, 7, 7, 7]);
        let out = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[], 1.0 / 256.0, -128);
        let y = call(&SOFTMAX, &[Some(x), Some(float(2.0))], &[out]).unwrap();
        assert_eq!(y[0].data[..], [(64 - 128i32) as u8; 4]);
    }

    #[test]
    fn refuses_a_beta_that_is_not_positive() {
        for beta in [0.0, -1.0, f32::NAN] {
            assert!(call_simple::<f32>(&SOFTMAX, &[f32s(&[1, 1], &[1.0]), float(beta)]).is_err());
        }
    }
}
