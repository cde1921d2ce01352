//! TILE: a tensor repeated along its dimensions.

use super::steer::{ints, times};
use super::walk::{make, steps, Move, Moves, Walk};
use crate::ops::signature::{is, var, Row};
use crate::ops::{
    keeps_quantisation, no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::OperandType::*;
use crate::tensor::TensorInfo;

pub static TILE: Operation = Operation {
    ty: OperationType::TILE,
    doc: "repeats a tensor along each dimension",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT16]),
            Row(3, &[TENSOR_FLOAT32]),
            Row(3, &[TENSOR_INT32]),
            Row(3, &[TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("input", 0), is("multiples", TENSOR_INT32)],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn multiples(args: &Args) -> Result<Vec<u32>, OpError> {
    let multiple =
        |&n: &i32| u32::try_from(n).map_err(|_| OpError::failed(format!("multiple {n} is negative")));
    ints(args, 1, &[args.get(0)?.dims().len()])?.iter().map(multiple).collect()
}

fn shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    let dims = args.get(0)?.dims().iter().zip(multiples(args)?);
    Ok(vec![dims.map(|(&dim, multiple)| times(dim, multiple)).collect::<Result<_, _>>()?])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    make(args, outs, moves)
}

pub(super) fn moves(args: &Args, outs: &[&TensorInfo]) -> Moves {
    let (input, out) = (args.get(0)?, outs[0]);
    let dims = input.dims().iter().map(|&dim| i64::from(dim));
    let axes = dims.zip(multiples(args)?).zip(steps(input.dims()).into_iter().zip(steps(&out.dims)));
    Move::only(Walk::new(axes.flat_map(|((dim, multiple), (from, to))| {
        // Repeating is a walk that stands still in the source.
        [(multiple.into(), 0, to * dim), (dim, from, to)]
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, i32s};

    fn tiled(multiples: [i32; 2]) -> Result<(Vec<u32>, Vec<i32>), OpError> {
        call_simple(&TILE, &[i32s(&[2, 2], &[1, 2, 3, 4]), i32s(&[2], &multiples)])
    }

    #[test]
    fn repeats_along_each_dimension() {
        assert_eq!(tiled([1, 2]), Ok((vec![2, 4], vec![1, 2, 1, 2, 3, 4, 3, 4])));
        assert_eq!(tiled([2, 1]), Ok((vec![4, 2], vec![1, 2, 3, 4, 1, 2, 3, 4])));
        assert_eq!(tiled([0, 3]), Ok((vec![0, 6], vec![])));
    }

    #[test]
    fn refuses_hostile_multiples() {
        for multiples in [[-1, 1], [-1, -1], [i32::MAX, i32::MAX], [i32::MIN, 0]] {
            assert!(tiled(multiples).is_err(), "{multiples:?}");
        }
    }
}
