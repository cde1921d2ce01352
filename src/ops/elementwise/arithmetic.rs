//! ADD, SUB, MUL and DIV with broadcasting and a fused activation.

use super::walk::{broadcast_shapes, zip, zip_floats, zip_quantised};
use crate::ops::signature::{int, var, Row, Slot};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Signature};
use crate::tensor::requant::{Activation, Multiplier};
use crate::tensor::OperandType::*;

const INPUTS: &[Slot] = &[var("a", 0).rank(1, 4), var("b", 0).rank(1, 4), int("activation")];
const OUTPUT: &[Slot] = &[var("output", 0)];

const ADD_ROWS: &[Row] = &[
    Row(1, &[TENSOR_FLOAT32]),
    Row(3, &[TENSOR_FLOAT16]),
    Row(1, &[TENSOR_QUANT8_ASYMM]),
    Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
    Row(4, &[TENSOR_INT32]),
];

pub static ADD: Operation = Operation {
    ty: OperationType::ADD,
    doc: "sums, with broadcasting",
    signatures: &[Signature::new(ADD_ROWS, INPUTS, OUTPUT)],
    check: no_check,
    run: Run::Shaped {
        shapes: broadcast_shapes,
        eval: |args, outs| arithmetic(args, outs, |a, b| a + b, i32::wrapping_add, |args| sum(args, 1)),
    },
};

const SUB_ROWS: &[Row] = &[
    Row(2, &[TENSOR_FLOAT32]),
    Row(3, &[TENSOR_FLOAT16]),
    Row(3, &[TENSOR_QUANT8_ASYMM]),
    Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
    Row(4, &[TENSOR_INT32]),
];

pub static SUB: Operation = Operation {
    ty: OperationType::SUB,
    doc: "differences, with broadcasting",
    signatures: &[Signature::new(SUB_ROWS, INPUTS, OUTPUT)],
    check: no_check,
    run: Run::Shaped {
        shapes: broadcast_shapes,
        eval: |args, outs| arithmetic(args, outs, |a, b| a - b, i32::wrapping_sub, |args| sum(args, -1)),
    },
};

pub static MUL: Operation = Operation {
    ty: OperationType::MUL,
    doc: "products, with broadcasting",
    signatures: &[Signature::new(ADD_ROWS, INPUTS, OUTPUT)],
    check: check_mul,
    run: Run::Shaped {
        shapes: broadcast_shapes,
        eval: |args, outs| arithmetic(args, outs, |a, b| a * b, i32::wrapping_mul, product),
    },
};

const DIV_ROWS: &[Row] = &[Row(2, &[TENSOR_FLOAT32]), Row(3, &[TENSOR_FLOAT16]), Row(4, &[TENSOR_INT32])];

pub static DIV: Operation = Operation {
    ty: OperationType::DIV,
    doc: "quotients, with broadcasting; integers round down",
    signatures: &[Signature::new(DIV_ROWS, INPUTS, OUTPUT)],
    check: no_check,
    run: Run::Shaped {
        shapes: broadcast_shapes,
        eval: |args, outs| {
            arithmetic(
                args,
                outs,
                |a, b| a / b,
                floor_div,
                |_| Err::<fn(i32, i32) -> i32, _>(not_quantised()),
            )
        },
    },
};

fn not_quantised() -> OpError {
    OpError::failed("there is no quantised division")
}

/// The interface asks this of quantised products, so that rescaling never enlarges them.
fn check_mul(args: &Args) -> Result<(), OpError> {
    let (a, b, out) = (args.get(0)?, args.get(1)?, args.output(0)?);
    if !a.ty().is_quant8_asymm() || out.scale > a.scale() * b.scale() {
        return Ok(());
    }
    Err(OpError::failed(format!(
        "the output's scale {} must be greater than the product of the inputs' scales {} and {}",
        out.scale,
        a.scale(),
        b.scale()
    )))
}

/// Evaluates with the function of the inputs' type; `quantised` makes the one for quantised tensors, before activation.
fn arithmetic<Q: Fn(i32, i32) -> i32>(
    args: &Args,
    outs: &mut [Out],
    float: impl Fn(f32, f32) -> f32,
    integer: impl Fn(i32, i32) -> i32,
    quantised: impl FnOnce(&Args) -> Result<Q, OpError>,
) -> Result<(), OpError> {
    let activation = args.activation(2)?;
    match args.get(0)?.ty() {
        TENSOR_INT32 if activation == Activation::None => zip(args, outs, integer),
        TENSOR_INT32 => Err(OpError::failed("input 2: integers take no fused activation, it must be 0")),
        ty if ty.is_float() => zip_floats(args, outs, |a, b| activation.apply(float(a, b))),
        _ => {
            let out = args.output(0)?;
            let (lo, hi) = activation.quantised_range(out.ty, out.scale, out.zero_point);
            let f = quantised(args)?;
            // Not clamp(), which panics where a senseless scale turns the bounds round.
            zip_quantised(args, outs, |a, b| f(a, b).max(lo).min(hi))
        }
    }
}

/// `a + sign * b` in quantised units. Both are raised by 20 bits and brought to twice the larger scale, where the sum
/// cannot overflow, and then to the output's scale.
fn sum(args: &Args, sign: i32) -> Result<impl Fn(i32, i32) -> i32, OpError> {
    const LEFT_SHIFT: u32 = 20;
    let (a, b, out) = (args.get(0)?, args.get(1)?, args.output(0)?);
    let twice_larger = 2.0 * f64::from(a.scale().max(b.scale()));
    let to_common_a = Multiplier::new(f64::from(a.scale()) / twice_larger);
    let to_common_b = Multiplier::new(f64::from(b.scale()) / twice_larger);
    let to_out = Multiplier::new(twice_larger / (f64::from(1 << LEFT_SHIFT) * f64::from(out.scale)));
    let (zero_a, zero_b, zero_out) = (a.zero_point(), b.zero_point(), out.zero_point);
    Ok(move |qa: i32, qb: i32| {
        let x = to_common_a.apply(qa.wrapping_sub(zero_a).wrapping_shl(LEFT_SHIFT));
        let y = to_common_b.apply(qb.wrapping_sub(zero_b).wrapping_shl(LEFT_SHIFT));
        to_out.apply(x.wrapping_add(sign.wrapping_mul(y))).saturating_add(zero_out)
    })
}

/// `a * b` in quantised units.
fn product(args: &Args) -> Result<impl Fn(i32, i32) -> i32, OpError> {
    let (a, b, out) = (args.get(0)?, args.get(1)?, args.output(0)?);
    let to_out = Multiplier::new(f64::from(a.scale() * b.scale()) / f64::from(out.scale));
    let (zero_a, zero_b, zero_out) = (a.zero_point(), b.zero_point(), out.zero_point);
    Ok(move |qa: i32, qb: i32| {
        let product = qa.wrapping_sub(zero_a).wrapping_mul(qb.wrapping_sub(zero_b));
        to_out.apply(product).saturating_add(zero_out)
    })
}

/// Division rounding down. The interface leaves division by zero open; it gives 0 here, as in the reference.
fn floor_div(a: i32, b: i32) -> i32 {
    if b == 0 {
        return 0;
    }
    let (quotient, remainder) = (a.wrapping_div(b), a.wrapping_rem(b));
    quotient - i32::from(remainder != 0 && (remainder < 0) != (b < 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, call_simple, f32s, i32s, int, tensor, Tensor};
    use crate::tensor::TensorInfo;

    fn q8(scale: f32, zero_point: i32, values: &[u8]) -> Tensor {
        let info = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[values.len() as u32], scale, zero_point);
        tensor(info, values)
    }

    fn quantised(
        operation: &Operation,
        a: Tensor,
        b: Tensor,
        act: i32,
        scale: f32,
    ) -> Result<Vec<u8>, OpError> {
        let out = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], scale, 10);
        Ok(call(operation, &[Some(a), Some(b), Some(int(act))], &[out])?.remove(0).data.to_vec())
    }

    #[test]
    fn floats_broadcast_and_activate() {
        let a = f32s(&[2, 2], &[1.0, -2.0, 5.0, 4.0]);
        let run = |op: &Operation, b: &Tensor, act| call_simple::<f32>(op, &[a.clone(), b.clone(), int(act)]);
        let column = f32s(&[2, 1], &[1.0, 2.0]);
        assert_eq!(run(&ADD, &column, 3), Ok((vec![2, 2], vec![2.0, 0.0, 6.0, 6.0])));
        assert_eq!(run(&SUB, &f32s(&[1], &[1.0]), 0).unwrap().1, [0.0, -3.0, 4.0, 3.0]);
        assert_eq!(run(&MUL, &f32s(&[2], &[2.0, 3.0]), 1).unwrap().1, [2.0, 0.0, 10.0, 12.0]);
        assert_eq!(run(&DIV, &f32s(&[1, 1, 1], &[0.0]), 2).unwrap().0, [1, 2, 2]);
        assert!(run(&DIV, &f32s(&[3], &[1.0; 3]), 0).is_err());
        assert!(run(&ADD, &column, 4).is_err());
    }

    #[test]
    fn integers_wrap_and_divide_downwards() {
        let a = i32s(&[5], &[i32::MIN, -7, 7, 7, i32::MAX]);
        let run = |op: &Operation, b: &[i32]| {
            call_simple::<i32>(op, &[a.clone(), i32s(&[5], b), int(0)]).unwrap().1
        };
        assert_eq!(run(&DIV, &[-1, 2, -2, 2, 0]), [i32::MIN, -4, -4, 3, 0]);
        assert_eq!(run(&ADD, &[-1, 1, 1, 1, 1]), [i32::MAX, -6, 8, 8, i32::MIN]);
        assert_eq!(run(&SUB, &[1, 1, 1, 1, -1]), [i32::MAX, -8, 6, 6, i32::MIN]);
        assert_eq!(run(&MUL, &[-1, 2, 2, 2, 2]), [i32::MIN, -14, 14, 14, -2]);
        assert!(call_simple::<i32>(&ADD, &[a.clone(), a.clone(), int(1)]).is_err());
    }

    #[test]
    fn quantised_rescale() {
        // (20-4)*0.5 + (9-1)*0.25 = 10, and so on; the output counts in 0.5 from 10.
        let (a, b) = (q8(0.5, 4, &[20, 0, 255]), q8(0.25, 1, &[9, 1, 255]));
        assert_eq!(quantised(&ADD, a.clone(), b.clone(), 0, 0.5), Ok(vec![30, 6, 255]));
        assert_eq!(quantised(&SUB, a.clone(), b.clone(), 1, 0.5), Ok(vec![22, 10, 134]));
        assert_eq!(quantised(&MUL, a.clone(), b.clone(), 0, 0.5), Ok(vec![42, 10, 255]));
        assert!(quantised(&MUL, a.clone(), b.clone(), 0, 0.125).is_err(), "scale must exceed the product");
        assert!(quantised(&DIV, a, b, 0, 0.5).is_err());
    }

    #[test]
    fn empty_operands_give_empty_results() {
        let out = call_simple::<f32>(&MUL, &[f32s(&[0, 3], &[]), f32s(&[3], &[1.0; 3]), int(0)]);
        assert_eq!(out, Ok((vec![0, 3], vec![])));
        let out = call_simple::<f32>(&ADD, &[f32s(&[2, 0], &[]), f32s(&[2, 1], &[1.0; 2]), int(0)]);
        assert_eq!(out, Ok((vec![2, 0], vec![])));
    }
}
