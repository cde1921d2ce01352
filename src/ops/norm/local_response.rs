//! LOCAL_RESPONSE_NORMALIZATION: each element damped by the squares of its neighbours along an axis.

use super::lanes::Lanes;
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::signature::{int, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;

pub static LOCAL_RESPONSE_NORMALIZATION: Operation = Operation {
    ty: OperationType::LOCAL_RESPONSE_NORMALIZATION,
    doc: "input / (bias + alpha * sum of squares within radius along an axis) ^ beta",
    signatures: &[
        Signature::new(
            &[Row(1, &[TENSOR_FLOAT32, FLOAT32]), Row(3, &[TENSOR_FLOAT16, FLOAT16])],
            &[var("input", 0).rank(4, 4), int("radius"), var("bias", 1), var("alpha", 1), var("beta", 1)],
            &[var("output", 0).rank(1, 4)],
        ),
        Signature::new(
            &[Row(3, &[TENSOR_FLOAT32, FLOAT32]), Row(3, &[TENSOR_FLOAT16, FLOAT16])],
            &[
                var("input", 0).rank(1, 4),
                int("radius"),
                var("bias", 1),
                var("alpha", 1),
                var("beta", 1),
                int("axis"),
            ],
            &[var("output", 0).rank(1, 4)],
        )
        .input_counts(&[5, 6]),
    ],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

/// Radius and lanes of a call.
fn params(args: &Args) -> Result<(usize, Lanes), OpError> {
    let radius = args.i32(1)?;
    let radius = usize::try_from(radius)
        .map_err(|_| OpError::failed(format!("radius is {radius}, it must not be negative")))?;
    Ok((radius, Lanes::new(args.get(0)?.dims(), args.i32_or(5, -1)?)?))
}

fn shapes(args: &Args) -> Shapes {
    params(args)?;
    Ok(vec![args.get(0)?.dims().into()])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (radius, lanes) = params(args)?;
    let (bias, alpha, beta) = (args.f32(2)?, args.f32(3)?, args.f32(4)?);
    let x = args.get(0)?.floats()?;
    let mut y = filled(args.interrupt, 0.0, x.len())?;
    let mut pace = Pace::new(args);
    for start in lanes.starts() {
        for i in 0..lanes.len {
            let window = i.saturating_sub(radius)..i.saturating_add(radius).saturating_add(1).min(lanes.len);
            let sum = squares(window.map(|j| x[start + j * lanes.stride]), &mut pace)?;
            let at = start + i * lanes.stride;
            y[at] = x[at] * (bias + alpha * sum).powf(-beta);
        }
    }
    outs[0].store_floats(args.interrupt, &y)
}

/// The sum of the squares of a window, which can be as long as the axis.
fn squares(mut window: impl ExactSizeIterator<Item = f32>, pace: &mut Pace) -> Result<f32, OpError> {
    let mut sum = 0.0;
    pace.in_stretches(window.len(), 1, |part| {
        window.by_ref().take(part.len()).for_each(|x| sum += x * x);
    })?;
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, f32s, float, int, Counting};

    fn lrn(radius: i32, axis: i32) -> Result<Vec<f32>, OpError> {
        let x = f32s(&[1, 3], &[1.0, 2.0, 3.0]);
        let inputs = [x, int(radius), float(1.0), float(0.5), float(1.0), int(axis)];
        Ok(call_simple::<f32>(&LOCAL_RESPONSE_NORMALIZATION, &inputs)?.1)
    }

    #[test]
    fn windows_are_cut_at_the_ends() {
        let near = |y: Vec<f32>, expected: [f32; 3]| {
            let close = y.iter().zip(expected).all(|(y, e)| (y - e).abs() < 1e-6);
            assert!(close, "{y:?} are not {expected:?}");
        };
        near(lrn(1, 1).unwrap(), [1.0 / 3.5, 2.0 / 8.0, 3.0 / 7.5]);
        near(lrn(0, 0).unwrap(), [1.0 / 1.5, 2.0 / 3.0, 3.0 / 5.5]);
        near(lrn(i32::MAX, -1).unwrap(), [1.0 / 8.0, 2.0 / 8.0, 3.0 / 8.0]);
    }

    #[test]
    fn others_have_their_turns_within_a_window() {
        let (interrupt, len) = (Counting::default(), 1 << 20);
        assert_eq!(squares((0..len).map(|_| 0.5), &mut Pace::of(&interrupt)), Ok(len as f32 / 4.0));
        assert!(interrupt.take() >= 8);
    }

    #[test]
    fn refuses_a_negative_radius() {
        assert!(lrn(-1, 0).is_err());
    }
}
