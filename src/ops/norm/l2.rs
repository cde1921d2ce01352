//! L2_NORMALIZATION: each lane divided by its Euclidean length.

use super::fixed_quantisation;
use super::lanes::Lanes;
use crate::ops::pace::Pace;
use crate::ops::scratch::{collected, filled, Values};
use crate::ops::signature::{int, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;

/// Shorter lanes are divided by this instead of their length.
pub const SHORTEST: f32 = 1e-6;

pub static L2_NORMALIZATION: Operation = Operation {
    ty: OperationType::L2_NORMALIZATION,
    doc: "each lane along an axis divided by its Euclidean length",
    signatures: &[
        Signature::new(
            &[
                Row(1, &[TENSOR_FLOAT32]),
                Row(3, &[TENSOR_FLOAT16]),
                Row(3, &[TENSOR_QUANT8_ASYMM]),
                Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
            ],
            &[var("input", 0).rank(4, 4)],
            &[var("output", 0).rank(1, 4)],
        ),
        Signature::new(
            &[
                Row(3, &[TENSOR_FLOAT32]),
                Row(3, &[TENSOR_FLOAT16]),
                Row(3, &[TENSOR_QUANT8_ASYMM]),
                Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
            ],
            &[var("input", 0).rank(1, 4), int("axis")],
            &[var("output", 0).rank(1, 4)],
        )
        .input_counts(&[1, 2]),
    ],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    let dims = args.get(0)?.dims();
    Lanes::new(dims, args.i32_or(1, -1)?)?;
    let output = args.output(0)?;
    let zero_point = if output.ty == TENSOR_QUANT8_ASYMM { 128 } else { 0 };
    fixed_quantisation(output, 1.0 / 128.0, zero_point)?;
    Ok(vec![dims.into()])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let input = args.get(0)?;
    let lanes = Lanes::new(input.dims(), args.i32_or(1, -1)?)?;
    let quantised = !input.ty().is_float();
    // The input's scale does not matter to the ratio, so that integers above the zero point are as good as reals.
    let x: Values<f32> = if quantised {
        collected(args.interrupt, input.centred()?.iter().map(|&q| q as f32))?.into()
    } else {
        input.floats()?
    };
    let mut y = filled(args.interrupt, 0.0, x.len())?;
    let mut pace = Pace::new(args);
    for start in lanes.starts() {
        let mut squares = 0f64;
        pace.each(lanes.indices(start), 2, |i| squares += f64::from(x[i]) * f64::from(x[i]))?;
        let length = squares.sqrt() as f32;
        // Not max(): a NaN must stay one.
        let divisor = if length < SHORTEST { SHORTEST } else { length };
        pace.each(lanes.indices(start), 2, |i| y[i] = x[i] / divisor)?;
    }
    outs[0].store_reals(args.interrupt, &y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, call_simple, f32s, int, tensor};
    use crate::tensor::TensorInfo;

    #[test]
    fn divides_by_the_length_along_the_axis() {
        let x = f32s(&[2, 2], &[3.0, 0.0, 4.0, 0.0]);
        let (_, y) = call_simple::<f32>(&L2_NORMALIZATION, &[x, int(0)]).unwrap();
        assert_eq!(y, [0.6, 0.0, 0.8, 0.0]);
    }

    #[test]
    fn quantised_zero_lane_is_logical_zero() {
        let x = tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[2, 2], 0.1, 10), &[10u8, 10, 13, 14]);
        let out = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], 1.0 / 128.0, 128);
        let y = call(&L2_NORMALIZATION, &[Some(x)], &[out]).unwrap();
        assert_eq!(y[0].data[..], [128, 128, 128 + 77, 128 + 102]);
    }

    #[test]
    fn quantised_one_saturates() {
        let x = tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[1, 1], 0.1, -3), &[7i8]);
        let out = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[], 1.0 / 128.0, 0);
        assert_eq!(call(&L2_NORMALIZATION, &[Some(x)], &[out]).unwrap()[0].data[..], [127]);
    }
}
