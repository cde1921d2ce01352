//! REVERSE: a tensor backwards along one dimension.

use super::steer::ints;
use super::walk::{make, steps, Move, Moves, Walk};
use crate::ops::signature::{is, var, Row};
use crate::ops::{
    same_as_first, same_quantisation, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::OperandType::*;
use crate::tensor::TensorInfo;

pub static REVERSE: Operation = Operation {
    ty: OperationType::REVERSE,
    doc: "reverses a tensor along one dimension",
    signatures: &[Signature::new(
        &[
            Row(7, &[TENSOR_FLOAT16]),
            Row(7, &[TENSOR_FLOAT32]),
            Row(7, &[TENSOR_QUANT8_ASYMM]),
            Row(7, &[TENSOR_QUANT8_ASYMM_SIGNED]),
            Row(7, &[TENSOR_INT32]),
        ],
        &[var("input", 0), is("axis", TENSOR_INT32).rank(1, 1)],
        &[var("output", 0)],
    )],
    check,
    run: Run::Shaped { shapes, eval },
};

/// Most dimensions that the interface lets an input have. It is checked at execution only, as elsewhere.
const MAX_RANK: usize = 8;

fn check(args: &Args) -> Result<(), OpError> {
    let (input, output) = (args.get(0)?, args.output(0)?);
    let axes = args.get(1)?.dim(0);
    if axes > 1 {
        return Err(OpError::failed(format!("{axes} axes, expected 1")));
    }
    if input.ty().is_quant8_asymm() {
        same_quantisation(input.info, output)?;
    }
    let (rank, out_rank) = (input.dims().len(), output.dims.len());
    if rank != out_rank && rank != 0 && out_rank != 0 {
        return Err(OpError::failed(format!("the output's rank is {out_rank}, the input's {rank}")));
    }
    Ok(())
}

/// The axis, which is not counted from the end here.
fn axis(args: &Args) -> Result<usize, OpError> {
    let rank = args.get(0)?.dims().len();
    let axis = ints(args, 1, &[1])?[0];
    usize::try_from(axis)
        .ok()
        .filter(|&axis| axis < rank && rank <= MAX_RANK)
        .ok_or_else(|| OpError::failed(format!("axis {axis} is out of range for rank {rank} (at most 8)")))
}

fn shapes(args: &Args) -> Shapes {
    axis(args)?;
    same_as_first(args)
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    make(args, outs, moves)
}

pub(super) fn moves(args: &Args, _: &[&TensorInfo]) -> Moves {
    let (input, axis) = (args.get(0)?, axis(args)?);
    let steps = steps(input.dims());
    let last = (i64::from(input.dims()[axis]) - 1) * steps[axis];
    let axes = input.dims().iter().zip(&steps).enumerate();
    let axes = axes.map(|(i, (&dim, &step))| (dim.into(), if i == axis { -step } else { step }, step));
    Move::only(Walk::new(axes).start(last, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, call_simple, i32s, tensor};
    use crate::tensor::TensorInfo;
    use smallvec::smallvec;

    #[test]
    fn reverses_one_dimension() {
        let out = |axis| call_simple::<i32>(&REVERSE, &[i32s(&[2, 2], &[1, 2, 3, 4]), i32s(&[1], &[axis])]);
        assert_eq!(out(0), Ok((vec![2, 2], vec![3, 4, 1, 2])));
        assert_eq!(out(1), Ok((vec![2, 2], vec![2, 1, 4, 3])));
        assert!(out(2).is_err() && out(-1).is_err() && out(i32::MIN).is_err());
    }

    #[test]
    fn output_must_agree_with_the_input() {
        let info = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[1], 0.5, 3);
        let inputs = [Some(tensor(info.clone(), &[1u8])), Some(i32s(&[1], &[0]))];
        assert!(call(&REVERSE, &inputs, std::slice::from_ref(&info)).is_ok());
        assert!(call(&REVERSE, &inputs, &[TensorInfo { zero_point: 4, ..info.clone() }]).is_err());
        assert!(call(&REVERSE, &inputs, &[TensorInfo { dims: smallvec![1, 1], ..info }]).is_err());
    }
}
