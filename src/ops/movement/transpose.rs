//! TRANSPOSE: a tensor with its dimensions permuted.

use super::steer::ints;
use super::walk::{make, steps, Move, Moves, Walk};
use crate::ops::signature::{is, var, Row};
use crate::ops::{
    keeps_quantisation, no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::OperandType::*;
use crate::tensor::TensorInfo;

pub static TRANSPOSE: Operation = Operation {
    ty: OperationType::TRANSPOSE,
    doc: "permutes dimensions; reverses them if no permutation is given",
    signatures: &[Signature::new(
        &[
            Row(2, &[TENSOR_FLOAT32]),
            Row(2, &[TENSOR_QUANT8_ASYMM]),
            Row(3, &[TENSOR_FLOAT16]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("input", 0).rank(1, 4), is("permutation", TENSOR_INT32).optional()],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

/// The input dimension that each output dimension is.
fn permutation(args: &Args) -> Result<Vec<usize>, OpError> {
    let rank = args.get(0)?.dims().len();
    if args.opt(1).is_none() {
        return Ok((0..rank).rev().collect());
    }
    let mut seen = vec![false; rank];
    let axis = |&axis: &i32| {
        let at = usize::try_from(axis).ok().filter(|&at| at < rank && !seen[at]);
        let at = at.ok_or_else(|| OpError::failed(format!("{axis} is out of range or twice in it")))?;
        seen[at] = true;
        Ok(at)
    };
    ints(args, 1, &[rank])?.iter().map(axis).collect()
}

fn shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    let dims = args.get(0)?.dims();
    Ok(vec![permutation(args)?.into_iter().map(|axis| dims[axis]).collect()])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    make(args, outs, moves)
}

pub(super) fn moves(args: &Args, outs: &[&TensorInfo]) -> Moves {
    let from = steps(args.get(0)?.dims());
    let axes = permutation(args)?.into_iter().zip(&outs[0].dims).zip(steps(&outs[0].dims));
    Move::only(Walk::new(axes.map(|((axis, &count), to)| (count.into(), from[axis], to))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, call_simple, f32s, i32s};

    #[test]
    fn permutes() {
        let input = || f32s(&[1, 2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let out = call_simple::<f32>(&TRANSPOSE, &[input(), i32s(&[3], &[2, 0, 1])]);
        assert_eq!(out, Ok((vec![3, 1, 2], vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0])));
        let out = call(&TRANSPOSE, &[Some(input()), None], &[input().info]).unwrap();
        assert_eq!(out[0].dims[..], [3, 2, 1]);
    }

    #[test]
    fn refuses_what_is_no_permutation() {
        for perm in [&[0, 0][..], &[0, 2], &[-1, 0], &[0], &[0, 1, 2]] {
            let inputs = [f32s(&[1, 2], &[1.0, 2.0]), i32s(&[perm.len() as u32], perm)];
            assert!(call_simple::<f32>(&TRANSPOSE, &inputs).is_err(), "{perm:?}");
        }
    }
}
