//! LOG_SOFTMAX: logarithm of softmax, computed without the detour.

use super::lanes::Lanes;
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::signature::{int, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;

pub static LOG_SOFTMAX: Operation = Operation {
    ty: OperationType::LOG_SOFTMAX,
    doc: "logarithm of the softmax of beta times the input along an axis",
    signatures: &[Signature::new(
        &[Row(3, &[TENSOR_FLOAT32, FLOAT32]), Row(3, &[TENSOR_FLOAT16, FLOAT16])],
        &[var("input", 0), var("beta", 1), int("axis")],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    let dims = args.get(0)?.dims();
    Lanes::new(dims, args.i32(2)?)?;
    Ok(vec![dims.into()])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let input = args.get(0)?;
    let (x, beta, lanes) = (input.floats()?, args.f32(1)?, Lanes::new(input.dims(), args.i32(2)?)?);
    let mut y = filled(args.interrupt, 0.0, x.len())?;
    let mut pace = Pace::new(args);
    for start in lanes.starts() {
        let (mut max, mut sum) = (f32::NEG_INFINITY, 0f64);
        pace.each(lanes.indices(start), 1, |i| max = max.max(x[i]))?;
        pace.each(lanes.indices(start), 8, |i| sum += f64::from((x[i] - max) * beta).exp())?;
        let log_sum = sum.ln() as f32;
        pace.each(lanes.indices(start), 1, |i| y[i] = (x[i] - max) * beta - log_sum)?;
    }
    outs[0].store_floats(args.interrupt, &y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, f32s, float, int};

    #[test]
    fn is_the_logarithm_of_softmax() {
        let x = f32s(&[1, 2, 1], &[0.0, 1.5f32.ln()]);
        let (_, y) = call_simple::<f32>(&LOG_SOFTMAX, &[x, float(2.0), int(-2)]).unwrap();
        // exp(2 ln 1.5) = 2.25, so the shares are 1/3.25 and 2.25/3.25.
        assert!(
            (y[0] - (1f32 / 3.25).ln()).abs() < 1e-6 && (y[1] - (2.25f32 / 3.25).ln()).abs() < 1e-6,
            "{y:?}"
        );
    }

    #[test]
    fn refuses_an_axis_out_of_range() {
        for axis in [1, -2, i32::MIN, i32::MAX] {
            assert!(call_simple::<f32>(&LOG_SOFTMAX, &[f32s(&[1], &[1.0]), float(1.0), int(axis)]).is_err());
        }
    }
}
