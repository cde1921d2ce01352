//! SPLIT: a tensor cut into equal parts along an axis.

use super::steer::divided;
use super::walk::{around_axis, make, Move, Moves, Walk};
use crate::ops::signature::{int, var, Row};
use crate::ops::{
    axis_index, no_check, same_quantisation, Args, OpError, Operation, OperationType, Out, Run, Shapes,
    Signature,
};
use crate::tensor::Dims;
use crate::tensor::OperandType::*;
use crate::tensor::TensorInfo;

pub static SPLIT: Operation = Operation {
    ty: OperationType::SPLIT,
    doc: "cuts a tensor into equal parts along an axis",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT16]),
            Row(3, &[TENSOR_FLOAT32]),
            Row(3, &[TENSOR_INT32]),
            Row(3, &[TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("input", 0), int("axis"), int("number of parts")],
        &[var("output", 0)],
    )
    .repeat_output(0)],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    // As of one output elsewhere, a rule of execution.
    let input = args.arg(0)?;
    if input.ty().is_quant8_asymm() {
        args.outputs.iter().try_for_each(|output| same_quantisation(input.info, output))?;
    }
    let mut dims = Dims::from(args.get(0)?.dims());
    let axis = axis_index(args.i32(1)?, dims.len())?;
    let parts = args.i32(2)?;
    let outputs = u32::try_from(parts).ok().filter(|&n| n as usize == args.outputs.len());
    let outputs = outputs
        .ok_or_else(|| OpError::failed(format!("{parts} parts, but {} outputs", args.outputs.len())))?;
    dims[axis] = divided(dims[axis], outputs, "the dimension to split")?;
    Ok(vec![dims; args.outputs.len()])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    make(args, outs, moves)
}

pub(super) fn moves(args: &Args, outs: &[&TensorInfo]) -> Moves {
    let input = args.get(0)?;
    let axis = axis_index(args.i32(1)?, input.dims().len())?;
    let to_output = |(output, info): (usize, &&TensorInfo)| {
        let (outer, inner) = around_axis(&info.dims, axis);
        let (outer, part) = (outer as i64, inner as i64 * i64::from(info.dims[axis]));
        let whole = inner as i64 * i64::from(input.dims()[axis]);
        let walk = Walk::new([(outer, whole, part), (part, 1, 1)]).start(output as i64 * part, 0);
        Move { input: 0, output, walk }
    };
    Ok(outs.iter().enumerate().map(to_output).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, i32s, int};

    type Part = (Vec<u32>, Vec<i32>);

    fn split(axis: i32, parts: i32, outputs: usize) -> Result<Vec<Part>, OpError> {
        let input = i32s(&[2, 2], &[1, 2, 3, 4]);
        let outs = vec![input.info.clone(); outputs];
        let outs = call(&SPLIT, &[Some(input), Some(int(axis)), Some(int(parts))], &outs)?;
        Ok(outs
            .into_iter()
            .map(|out| (out.dims.to_vec(), bytemuck::cast_slice(&out.data).to_vec()))
            .collect())
    }

    #[test]
    fn cuts_along_the_axis() {
        assert_eq!(split(0, 2, 2), Ok(vec![(vec![1, 2], vec![1, 2]), (vec![1, 2], vec![3, 4])]));
        assert_eq!(split(-1, 2, 2), Ok(vec![(vec![2, 1], vec![1, 3]), (vec![2, 1], vec![2, 4])]));
    }

    #[test]
    fn refuses_other_numbers_of_parts() {
        for (parts, outputs) in [(2, 1), (3, 3), (0, 1), (-1, 1), (i32::MAX, 2)] {
            assert!(split(0, parts, outputs).is_err(), "{parts} {outputs}");
        }
        assert!(split(2, 2, 2).is_err());
    }
}
