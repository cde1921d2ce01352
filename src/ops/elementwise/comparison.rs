//! EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER and GREATER_EQUAL with broadcasting.

use super::walk::{broadcast_shapes, zip_slices};
use crate::ops::signature::{is, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Signature};
use crate::tensor::OperandType::*;
use std::cmp::Ordering::{self, Equal, Greater, Less};

const SIGNATURES: &[Signature] = &[Signature::new(
    &[
        Row(3, &[TENSOR_BOOL8]),
        Row(3, &[TENSOR_FLOAT16]),
        Row(3, &[TENSOR_FLOAT32]),
        Row(3, &[TENSOR_INT32]),
        Row(3, &[TENSOR_QUANT8_ASYMM]),
        Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    &[var("a", 0), var("b", 0)],
    &[is("output", TENSOR_BOOL8)],
)];

const fn comparison(
    ty: OperationType,
    doc: &'static str,
    eval: fn(&Args, &mut [Out]) -> Result<(), OpError>,
) -> Operation {
    let run = Run::Shaped { shapes: broadcast_shapes, eval };
    Operation { ty, doc, signatures: SIGNATURES, check: no_check, run }
}

pub static EQUAL: Operation = comparison(OperationType::EQUAL, "a = b, with broadcasting", |args, outs| {
    eval(args, outs, |order| order == Some(Equal))
});

// NaN has no order, and differs from everything.
pub static NOT_EQUAL: Operation =
    comparison(OperationType::NOT_EQUAL, "a != b, with broadcasting", |args, outs| {
        eval(args, outs, |order| order != Some(Equal))
    });

pub static LESS: Operation = comparison(OperationType::LESS, "a < b, with broadcasting", |args, outs| {
    eval(args, outs, |order| order == Some(Less))
});

pub static LESS_EQUAL: Operation =
    comparison(OperationType::LESS_EQUAL, "a <= b, with broadcasting", |args, outs| {
        eval(args, outs, |order| matches!(order, Some(Less | Equal)))
    });

pub static GREATER: Operation =
    comparison(OperationType::GREATER, "a > b, with broadcasting", |args, outs| {
        eval(args, outs, |order| order == Some(Greater))
    });

pub static GREATER_EQUAL: Operation =
    comparison(OperationType::GREATER_EQUAL, "a >= b, with broadcasting", |args, outs| {
        eval(args, outs, |order| matches!(order, Some(Greater | Equal)))
    });

/// Quantised tensors are compared by the real numbers they stand for, so their scales may differ.
fn eval(args: &Args, outs: &mut [Out], holds: impl Fn(Option<Ordering>) -> bool) -> Result<(), OpError> {
    let (a, b, to) = (args.get(0)?, args.get(1)?, outs[0].elements::<u8>()?);
    match a.ty() {
        TENSOR_INT32 | TENSOR_BOOL8 => {
            zip_slices(args, &a.integers()?, &b.integers()?, to, |a, b| holds(a.partial_cmp(&b)).into())
        }
        _ => zip_slices(args, &a.reals()?, &b.reals()?, to, |a, b| holds(a.partial_cmp(&b)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, f32s, i32s, tensor, Tensor};
    use crate::tensor::TensorInfo;

    fn all(a: &Tensor, b: &Tensor) -> Vec<Vec<u8>> {
        [&EQUAL, &NOT_EQUAL, &LESS, &LESS_EQUAL, &GREATER, &GREATER_EQUAL]
            .map(|op| {
                let out = TensorInfo::new(TENSOR_BOOL8, &[]);
                call(op, &[Some(a.clone()), Some(b.clone())], &[out]).unwrap().remove(0).data.to_vec()
            })
            .to_vec()
    }

    #[test]
    fn orders_numbers() {
        let expected = [[0, 1, 0], [1, 0, 1], [1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1]];
        assert_eq!(all(&i32s(&[3], &[i32::MAX - 1, 5, 7]), &i32s(&[3], &[i32::MAX, 5, 6])), expected);
        assert_eq!(all(&f32s(&[3], &[4.0, 5.0, 6.0]), &f32s(&[1], &[5.0])), expected);
        let a = tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[3], 0.5, 100), &[103u8, 104, 105]);
        let b = tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[1], 1.0, 0), &[2u8]);
        assert_eq!(all(&a, &b), expected);
    }

    #[test]
    fn nothing_orders_nan_but_it_differs() {
        assert_eq!(all(&f32s(&[1], &[f32::NAN]), &f32s(&[1], &[f32::NAN])).concat(), [0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn any_nonzero_byte_is_true() {
        let bools = |values: &[u8]| tensor(TensorInfo::new(TENSOR_BOOL8, &[2]), values);
        assert_eq!(all(&bools(&[2, 0]), &bools(&[1, 255]))[0], [1, 0]);
    }
}
