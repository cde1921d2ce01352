//! Functions of one element: ABS, EXP, LOG, NEG, RSQRT, SIN, SQRT.

use super::walk::{map, map_floats};
use crate::ops::signature::{var, Row, Slot};
use crate::ops::{no_check, same_as_first, Args, OpError, Operation, OperationType, Out, Run, Signature};
use crate::tensor::requant::Multiplier;
use crate::tensor::OperandType::*;

type Eval = fn(&Args, &mut [Out]) -> Result<(), OpError>;

const INPUT: &[Slot] = &[var("input", 0)];
const OUTPUT: &[Slot] = &[var("output", 0)];

const FLOAT_ROWS: &[Row] = &[Row(3, &[TENSOR_FLOAT16]), Row(3, &[TENSOR_FLOAT32])];
const FLOATS: &[Signature] = &[Signature::new(FLOAT_ROWS, INPUT, OUTPUT)];

const fn unary(
    ty: OperationType,
    doc: &'static str,
    signatures: &'static [Signature],
    eval: Eval,
) -> Operation {
    Operation { ty, doc, signatures, check: no_check, run: Run::Shaped { shapes: same_as_first, eval } }
}

pub static EXP: Operation =
    unary(OperationType::EXP, "e to the power of each element", FLOATS, |args, outs| {
        map_floats(args, outs, f32::exp)
    });

pub static LOG: Operation =
    unary(OperationType::LOG, "the natural logarithm of each element", FLOATS, |args, outs| {
        map_floats(args, outs, f32::ln)
    });

pub static SIN: Operation = unary(OperationType::SIN, "the sine of each element", FLOATS, |args, outs| {
    map_floats(args, outs, f32::sin)
});

pub static SQRT: Operation =
    unary(OperationType::SQRT, "the square root of each element", FLOATS, |args, outs| {
        map_floats(args, outs, f32::sqrt)
    });

const RSQRT_ROWS: &[Row] = &[
    Row(3, &[TENSOR_FLOAT16]),
    Row(3, &[TENSOR_FLOAT32]),
    Row(7, &[TENSOR_QUANT8_ASYMM]),
    Row(7, &[TENSOR_QUANT8_ASYMM_SIGNED]),
];

pub static RSQRT: Operation = unary(
    OperationType::RSQRT,
    "one by the square root of each element",
    &[Signature::new(RSQRT_ROWS, INPUT, OUTPUT)],
    |args, outs| match args.get(0)?.ty().is_quant8_asymm() {
        true => quantised_rsqrt(args, outs),
        false => map_floats(args, outs, |x| 1.0 / x.sqrt()),
    },
);

/// By the integers of TensorFlow Lite, whose models rely on its rounding: the root has 20 fractional bits.
fn quantised_rsqrt(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    const BITS: i32 = 20;
    let (input, output) = (args.get(0)?, args.output(0)?);
    let signed = input.ty() == TENSOR_QUANT8_ASYMM_SIGNED;
    let (lo, hi) = output.ty.integer_range().unwrap_or((0, 0));
    let real = 1.0 / (f64::from(input.scale()).sqrt() * f64::from(output.scale));
    let multiplier = Multiplier::new(real);
    let multiplier = Multiplier { shift: multiplier.shift - BITS, ..multiplier };
    let result = |byte: u8| {
        let q = if signed { i32::from(byte as i8) } else { i32::from(byte) };
        match q - input.zero_point() {
            0 => hi,
            value if value < 0 => output.zero_point,
            value => {
                let root = (f64::from(1 << BITS) / f64::from(value).sqrt()).round() as i32;
                multiplier.apply(root).saturating_add(output.zero_point).max(lo).min(hi)
            }
        }
    };
    let table: Vec<u8> = (0..=u8::MAX).map(|byte| result(byte) as u8).collect();
    map(args, outs, |byte: u8| table[usize::from(byte)])
}

const ABS_ROWS: &[Row] = &[Row(3, &[TENSOR_FLOAT16]), Row(3, &[TENSOR_FLOAT32]), Row(4, &[TENSOR_INT32])];

pub static ABS: Operation = unary(
    OperationType::ABS,
    "the absolute value of each element; that of the least integer wraps to itself",
    &[Signature::new(ABS_ROWS, INPUT, OUTPUT)],
    |args, outs| floats_or_ints(args, outs, f32::abs, i32::wrapping_abs),
);

const NEG_ROWS: &[Row] = &[Row(3, &[TENSOR_FLOAT16]), Row(3, &[TENSOR_FLOAT32]), Row(3, &[TENSOR_INT32])];

pub static NEG: Operation = unary(
    OperationType::NEG,
    "the negative of each element; that of the least integer wraps to itself",
    &[Signature::new(NEG_ROWS, INPUT, OUTPUT)],
    |args, outs| floats_or_ints(args, outs, |x| -x, i32::wrapping_neg),
);

fn floats_or_ints(
    args: &Args,
    outs: &mut [Out],
    float: impl Fn(f32) -> f32,
    int: impl Fn(i32) -> i32,
) -> Result<(), OpError> {
    match args.get(0)?.ty() {
        TENSOR_INT32 => map(args, outs, int),
        _ => map_floats(args, outs, float),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, call_simple, f32s, i32s, tensor};
    use crate::tensor::TensorInfo;
    use half::f16;

    fn floats(operation: &Operation, values: &[f32]) -> Vec<f32> {
        call_simple::<f32>(operation, &[f32s(&[values.len() as u32], values)]).unwrap().1
    }

    #[test]
    fn float_functions() {
        assert_eq!(floats(&EXP, &[0.0, 1.0, f32::NEG_INFINITY]), [1.0, std::f32::consts::E, 0.0]);
        assert_eq!(floats(&LOG, &[1.0, 0.0]), [0.0, f32::NEG_INFINITY]);
        assert!(floats(&LOG, &[-1.0])[0].is_nan());
        assert_eq!(floats(&SIN, &[0.0, std::f32::consts::FRAC_PI_2]), [0.0, 1.0]);
        assert_eq!(floats(&SQRT, &[9.0]), [3.0]);
        assert_eq!(floats(&RSQRT, &[4.0, 0.0]), [0.5, f32::INFINITY]);
        assert_eq!(floats(&ABS, &[-1.5, 2.0]), [1.5, 2.0]);
        assert_eq!(floats(&NEG, &[-1.5, 2.0]), [1.5, -2.0]);
    }

    #[test]
    fn float16_rounds_at_the_end() {
        let input = tensor(TensorInfo::new(TENSOR_FLOAT16, &[1]), &[f16::from_f32(1.0)]);
        let (_, out) = call_simple::<f16>(&EXP, &[input]).unwrap();
        assert_eq!(out, [f16::from_f32(std::f32::consts::E)]);
    }

    #[test]
    fn least_integer_wraps() {
        let input = i32s(&[1, 3], &[i32::MIN, -7, 7]);
        let abs = call_simple::<i32>(&ABS, std::slice::from_ref(&input)).unwrap();
        assert_eq!(abs, (vec![1, 3], vec![i32::MIN, 7, 7]));
        assert_eq!(call_simple::<i32>(&NEG, &[input]).unwrap().1, [i32::MIN, 7, -7]);
    }

    #[test]
    fn quantised_rsqrt_is_within_a_step_of_real_values() {
        let input =
            tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[3], 0.25, -4), &[12i8, -4, -8]);
        let out = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[], 0.125, -10);
        let result = call(&RSQRT, &[Some(input)], &[out]).unwrap().remove(0);
        // 1/sqrt(4) = 0.5; 1/sqrt(0) saturates; 1/sqrt(-1) is no number and becomes the zero point.
        assert_eq!(bytemuck::cast_slice::<u8, i8>(&result.data), [-6, 127, -10]);
    }

    #[test]
    fn other_types_are_refused() {
        assert!(call_simple::<i32>(&EXP, &[i32s(&[1], &[1])]).is_err());
        assert!(call_simple::<f32>(&EXP, &[f32s(&[1], &[1.0]), f32s(&[1], &[1.0])]).is_err());
    }
}
