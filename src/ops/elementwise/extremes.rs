//! MAXIMUM and MINIMUM with broadcasting.

use super::walk::{broadcast_shapes, zip, zip_floats, zip_quantised};
use crate::ops::signature::{var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Signature};
use crate::tensor::rescale::Rescale;
use crate::tensor::OperandType::*;

const SIGNATURES: &[Signature] = &[Signature::new(
    &[
        Row(3, &[TENSOR_FLOAT16]),
        Row(3, &[TENSOR_FLOAT32]),
        Row(3, &[TENSOR_INT32]),
        Row(3, &[TENSOR_QUANT8_ASYMM]),
        Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    &[var("a", 0), var("b", 0)],
    &[var("output", 0)],
)];

pub static MAXIMUM: Operation = Operation {
    ty: OperationType::MAXIMUM,
    doc: "the greater of two elements, with broadcasting",
    signatures: SIGNATURES,
    check: no_check,
    run: Run::Shaped {
        shapes: broadcast_shapes,
        eval: |args, outs| eval(args, outs, |a, b| if a < b { b } else { a }, i32::max),
    },
};

pub static MINIMUM: Operation = Operation {
    ty: OperationType::MINIMUM,
    doc: "the lesser of two elements, with broadcasting",
    signatures: SIGNATURES,
    check: no_check,
    run: Run::Shaped {
        shapes: broadcast_shapes,
        eval: |args, outs| eval(args, outs, |a, b| if b < a { b } else { a }, i32::min),
    },
};

fn eval(
    args: &Args,
    outs: &mut [Out],
    float: impl Fn(f32, f32) -> f32,
    integer: impl Fn(i32, i32) -> i32,
) -> Result<(), OpError> {
    let (a, b) = (args.get(0)?, args.get(1)?);
    match a.ty() {
        TENSOR_INT32 => zip(args, outs, integer),
        ty if ty.is_float() => zip_floats(args, outs, float),
        _ => {
            let out = args.output(0)?;
            let (a, b) = (Rescale::new(a.info, out), Rescale::new(b.info, out));
            zip_quantised(args, outs, |qa, qb| integer(a.apply(qa), b.apply(qb)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, call_simple, f32s, i32s, tensor};
    use crate::tensor::TensorInfo;

    #[test]
    fn picks_and_broadcasts() {
        let (a, b) = (f32s(&[2, 2], &[1.0, -2.0, 0.5, 7.0]), f32s(&[2], &[0.0, 2.0]));
        let max = call_simple::<f32>(&MAXIMUM, &[a.clone(), b.clone()]);
        assert_eq!(max, Ok((vec![2, 2], vec![1.0, 2.0, 0.5, 7.0])));
        assert_eq!(call_simple::<f32>(&MINIMUM, &[a, b]).unwrap().1, [0.0, -2.0, 0.0, 2.0]);
        let ints = [i32s(&[2], &[i32::MIN, 3]), i32s(&[1], &[2])];
        assert_eq!(call_simple::<i32>(&MINIMUM, &ints).unwrap().1, [i32::MIN, 2]);
    }

    #[test]
    fn quantised_inputs_are_compared_in_the_outputs_units() {
        let a = tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[3], 0.5, 0), &[10i8, -128, 127]);
        let b = tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[1], 1.0, -28), &[-24i8]);
        let out = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[], 0.25, 100);
        let result = call(&MAXIMUM, &[Some(a.clone()), Some(b.clone())], std::slice::from_ref(&out)).unwrap();
        assert_eq!(bytemuck::cast_slice::<u8, i8>(&result[0].data), [120, 116, 127]);
        let result = call(&MINIMUM, &[Some(a), Some(b)], &[out]).unwrap();
        assert_eq!(bytemuck::cast_slice::<u8, i8>(&result[0].data), [116, -128, 116]);
    }
}
