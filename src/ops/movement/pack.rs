//! PACK: tensors stacked along a new axis.

use super::walk::{around_axis, make, Move, Moves, Walk};
use crate::ops::signature::{int, var, Row};
use crate::ops::{same_quantisation, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::Dims;
use crate::tensor::OperandType::*;
use crate::tensor::TensorInfo;

pub static PACK: Operation = Operation {
    ty: OperationType::PACK,
    doc: "stacks tensors along a new axis",
    signatures: &[Signature::new(
        &[
            Row(6, &[TENSOR_FLOAT16]),
            Row(6, &[TENSOR_FLOAT32]),
            Row(6, &[TENSOR_QUANT8_ASYMM]),
            Row(6, &[TENSOR_QUANT8_ASYMM_SIGNED]),
            Row(6, &[TENSOR_INT32]),
        ],
        &[int("axis"), var("input", 0)],
        &[var("output", 0)],
    )
    .repeat_input(1)],
    check,
    run: Run::Shaped { shapes, eval },
};

fn check(args: &Args) -> Result<(), OpError> {
    let output = args.output(0)?;
    // Every known rank must agree; the output has one dimension more.
    let mut rank = output.dims.len().checked_sub(1);
    for i in 1..args.len() {
        let input = args.get(i)?;
        if input.ty().is_quant8_asymm() {
            same_quantisation(input.info, output)?;
        }
        let Some(own) = input.rank() else { continue };
        if *rank.get_or_insert(own) != own {
            return Err(OpError::failed(format!("input {i} has rank {own}, unlike other operands")));
        }
    }
    Ok(())
}

fn shapes(args: &Args) -> Shapes {
    let mut dims = Dims::from(args.get(1)?.dims());
    for i in 2..args.len() {
        let own = args.get(i)?.dims();
        if *own != dims[..] {
            return Err(OpError::failed(format!("input {i} has dimensions {own:?}, input 1 {dims:?}")));
        }
    }
    let axis = args.i32(0)?;
    let at = usize::try_from(axis).ok().filter(|&at| at <= dims.len());
    let at = at.ok_or_else(|| OpError::failed(format!("axis {axis} is out of range")))?;
    let count = u32::try_from(args.len() - 1).map_err(|_| OpError::failed("too many inputs"))?;
    dims.insert(at, count);
    Ok(vec![dims])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    make(args, outs, moves)
}

pub(super) fn moves(args: &Args, outs: &[&TensorInfo]) -> Moves {
    let axis = usize::try_from(args.i32(0)?).map_err(|_| OpError::failed("axis is negative"))?;
    let (outer, inner) = around_axis(&outs[0].dims, axis);
    let (outer, inner, count) = (outer as i64, inner as i64, args.len() as i64 - 1);
    let walk =
        |i: usize| Walk::new([(outer, inner, inner * count), (inner, 1, 1)]).start(0, (i as i64 - 1) * inner);
    Ok((1..args.len()).map(|input| Move { input, output: 0, walk: walk(input) }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, i32s, int, Tensor};

    fn packed(axis: i32, inputs: &[Tensor]) -> Result<(Vec<u32>, Vec<i32>), OpError> {
        let info = crate::tensor::TensorInfo::new(TENSOR_INT32, &[]);
        let inputs: Vec<_> = [int(axis)].iter().chain(inputs).cloned().map(Some).collect();
        let out = call(&PACK, &inputs, &[info])?.remove(0);
        Ok((out.dims.to_vec(), bytemuck::cast_slice(&out.data).to_vec()))
    }

    #[test]
    fn stacks_along_any_axis() {
        let inputs = [i32s(&[2], &[1, 2]), i32s(&[2], &[3, 4]), i32s(&[2], &[5, 6])];
        assert_eq!(packed(0, &inputs), Ok((vec![3, 2], vec![1, 2, 3, 4, 5, 6])));
        assert_eq!(packed(1, &inputs), Ok((vec![2, 3], vec![1, 3, 5, 2, 4, 6])));
        assert!(packed(2, &inputs).is_err() && packed(-1, &inputs).is_err());
    }

    #[test]
    fn inputs_must_agree() {
        assert!(packed(0, &[i32s(&[2], &[1, 2]), i32s(&[1], &[3])]).is_err());
        assert!(packed(0, &[i32s(&[2], &[1, 2]), i32s(&[1, 2], &[3, 4])]).is_err());
        assert!(packed(0, &[]).is_err());
    }
}
