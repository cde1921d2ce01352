//! PRELU: positive elements as they are, negative ones times alpha, with broadcasting.

use super::walk::{broadcast_shapes, zip_floats, zip_quantised};
use crate::ops::signature::{var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Signature};
use crate::tensor::requant::Multiplier;
use crate::tensor::OperandType::*;

pub static PRELU: Operation = Operation {
    ty: OperationType::PRELU,
    doc: "each element, times alpha where it is negative; alpha broadcasts",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT16]),
            Row(3, &[TENSOR_FLOAT32]),
            Row(3, &[TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("input", 0), var("alpha", 0)],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes: broadcast_shapes, eval },
};

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (input, alpha, out) = (args.get(0)?, args.get(1)?, args.output(0)?);
    if input.ty().is_float() {
        return zip_floats(args, outs, |x, alpha| if x >= 0.0 { x } else { x * alpha });
    }
    // A negative element comes with alpha's scale as well, so each side has its own multiplier.
    let positive = Multiplier::new(f64::from(input.scale() / out.scale));
    let negative = Multiplier::new(f64::from(input.scale() * alpha.scale()) / f64::from(out.scale));
    zip_quantised(args, outs, |x, a| {
        let x = x.wrapping_sub(input.zero_point());
        let scaled = match x {
            0.. => positive.apply(x),
            _ => negative.apply(x.wrapping_mul(a.wrapping_sub(alpha.zero_point()))),
        };
        scaled.saturating_add(out.zero_point)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, call_simple, f32s, tensor};
    use crate::tensor::TensorInfo;

    #[test]
    fn scales_negative_elements() {
        let out =
            call_simple::<f32>(&PRELU, &[f32s(&[2, 2], &[1.0, -1.0, -2.0, 2.0]), f32s(&[2], &[0.5, 3.0])]);
        assert_eq!(out, Ok((vec![2, 2], vec![1.0, -3.0, -1.0, 2.0])));
    }

    #[test]
    fn quantised_sides_have_their_own_scales() {
        let input = tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[3], 0.5, 100), &[104u8, 96, 0]);
        let alpha = tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[1], 0.25, 8), &[10u8]);
        let out = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], 0.25, 20);
        // 2, -2 * 0.5 and -50 * 0.5, counted in 0.25 from 20; the last is below the type.
        let result = call(&PRELU, &[Some(input), Some(alpha)], &[out]).unwrap();
        assert_eq!(result[0].data[..], [28, 16, 0]);
    }
}
