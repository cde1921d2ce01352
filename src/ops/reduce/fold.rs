//! REDUCE_ALL, REDUCE_ANY, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD and REDUCE_SUM: folds along axes.

use super::axes::{fold, folded, output_dims};
use crate::ops::scratch::collected;
use crate::ops::signature::{boolean, is, var, Row, Slot};
use crate::ops::{
    no_check, same_quantisation, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::OperandType::*;

const INPUTS: &[Slot] = &[var("input", 0).rank(1, 4), is("axes", TENSOR_INT32), boolean("keep_dims")];
const OUTPUTS: &[Slot] = &[var("output", 0).rank(1, 4)];
const BOOLEANS: &[Signature] = &[Signature::new(&[Row(3, &[TENSOR_BOOL8])], INPUTS, OUTPUTS)];
const FLOATS: &[Signature] =
    &[Signature::new(&[Row(3, &[TENSOR_FLOAT32]), Row(3, &[TENSOR_FLOAT16])], INPUTS, OUTPUTS)];
const ORDERED: &[Signature] = &[Signature::new(
    &[
        Row(3, &[TENSOR_FLOAT32]),
        Row(3, &[TENSOR_FLOAT16]),
        Row(3, &[TENSOR_QUANT8_ASYMM]),
        Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    INPUTS,
    OUTPUTS,
)];

pub static REDUCE_ALL: Operation = Operation {
    ty: OperationType::REDUCE_ALL,
    doc: "whether all elements along axes are true",
    signatures: BOOLEANS,
    check: no_check,
    run: Run::Shaped { shapes, eval: |args, outs| fold_integers(args, outs, 1, |a, x| a & x) },
};

pub static REDUCE_ANY: Operation = Operation {
    ty: OperationType::REDUCE_ANY,
    doc: "whether any element along axes is true",
    signatures: BOOLEANS,
    check: no_check,
    run: Run::Shaped { shapes, eval: |args, outs| fold_integers(args, outs, 0, |a, x| a | x) },
};

pub static REDUCE_MAX: Operation = Operation {
    ty: OperationType::REDUCE_MAX,
    doc: "the greatest element along axes",
    signatures: ORDERED,
    check: no_check,
    run: Run::Shaped {
        shapes,
        eval: |args, outs| match args.get(0)?.ty().is_float() {
            true => fold_floats(args, outs, f64::NEG_INFINITY, f64::max),
            false => fold_integers(args, outs, i32::MIN, i32::max),
        },
    },
};

pub static REDUCE_MIN: Operation = Operation {
    ty: OperationType::REDUCE_MIN,
    doc: "the least element along axes",
    signatures: ORDERED,
    check: no_check,
    run: Run::Shaped {
        shapes,
        eval: |args, outs| match args.get(0)?.ty().is_float() {
            true => fold_floats(args, outs, f64::INFINITY, f64::min),
            false => fold_integers(args, outs, i32::MAX, i32::min),
        },
    },
};

pub static REDUCE_PROD: Operation = Operation {
    ty: OperationType::REDUCE_PROD,
    doc: "the product of the elements along axes",
    signatures: FLOATS,
    check: no_check,
    run: Run::Shaped { shapes, eval: |args, outs| fold_floats(args, outs, 1.0, multiply) },
};

pub static REDUCE_SUM: Operation = Operation {
    ty: OperationType::REDUCE_SUM,
    doc: "the sum of the elements along axes",
    signatures: FLOATS,
    check: no_check,
    run: Run::Shaped { shapes, eval: |args, outs| fold_floats(args, outs, 0.0, |a, x| a + x) },
};

/// A product in which zero wins over infinity and NaN, as it does in the interface's reference.
fn multiply(a: f64, x: f64) -> f64 {
    if a == 0.0 || x == 0.0 {
        0.0
    } else {
        a * x
    }
}

fn shapes(args: &Args) -> Shapes {
    let input = args.get(0)?;
    same_quantisation(input.info, args.output(0)?)?;
    Ok(vec![output_dims(input.dims(), &folded(args)?, args.bool(2)?)])
}

fn fold_floats(args: &Args, outs: &mut [Out], start: f64, f: fn(f64, f64) -> f64) -> Result<(), OpError> {
    let input = args.get(0)?;
    let result =
        fold(args, &input.floats()?, input.dims(), &folded(args)?, start, |a, x| f(a, f64::from(x)))?;
    let result = collected(args.interrupt, result.iter().map(|&x| x as f32))?;
    outs[0].store_floats(args.interrupt, &result)
}

fn fold_integers(args: &Args, outs: &mut [Out], start: i32, f: fn(i32, i32) -> i32) -> Result<(), OpError> {
    let input = args.get(0)?;
    let result = fold(args, &input.integers()?, input.dims(), &folded(args)?, start, f)?;
    outs[0].store_integers(args.interrupt, &result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call_simple, f32s, i32s, tensor, Tensor};
    use crate::tensor::TensorInfo;

    fn reduce<T: bytemuck::AnyBitPattern>(
        op: &Operation,
        x: Tensor,
        axes: &[i32],
        keep: bool,
    ) -> (Vec<u32>, Vec<T>) {
        call_simple(op, &[x, i32s(&[axes.len() as u32], axes), boolean(keep)]).unwrap()
    }

    #[test]
    fn booleans_are_zero_or_one() {
        let x = || tensor(TensorInfo::new(TENSOR_BOOL8, &[2, 2]), &[2u8, 0, 255, 0]);
        assert_eq!(reduce(&REDUCE_ALL, x(), &[0], false), (vec![2], vec![1u8, 0]));
        assert_eq!(reduce(&REDUCE_ANY, x(), &[1], true), (vec![2, 1], vec![1u8, 1]));
        assert_eq!(reduce(&REDUCE_ALL, x(), &[0, 1, -1], false), (vec![1], vec![0u8]));
    }

    #[test]
    fn extremes_of_floats_and_quantised() {
        let x = || f32s(&[1, 3], &[-1.0, f32::NEG_INFINITY, 4.0]);
        assert_eq!(reduce(&REDUCE_MAX, x(), &[1], false), (vec![1], vec![4f32]));
        assert_eq!(reduce(&REDUCE_MIN, x(), &[1], false), (vec![1], vec![f32::NEG_INFINITY]));
        let q = || tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[3], 2.0, 5), &[-128i8, 3, -7]);
        assert_eq!(reduce(&REDUCE_MAX, q(), &[0], true), (vec![1], vec![3i8]));
        assert_eq!(reduce(&REDUCE_MIN, q(), &[-1], true), (vec![1], vec![-128i8]));
    }

    #[test]
    fn zero_wins_in_products() {
        let x = f32s(&[3], &[f32::INFINITY, 0.0, 2.0]);
        assert_eq!(reduce(&REDUCE_PROD, x, &[0], false), (vec![1], vec![0f32]));
        let x = f32s(&[2, 2], &[2.0, 3.0, 4.0, 5.0]);
        assert_eq!(reduce(&REDUCE_PROD, x, &[0], false), (vec![2], vec![8f32, 15.0]));
    }

    #[test]
    fn sums_do_not_lose_small_terms() {
        let mut x = vec![1f32; 1001];
        x[0] = 16_777_216.0; // above this, f32 cannot count by ones
        assert_eq!(reduce(&REDUCE_SUM, f32s(&[1001], &x), &[0], false), (vec![1], vec![16_778_216f32]));
    }
}
