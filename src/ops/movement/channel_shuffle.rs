//! CHANNEL_SHUFFLE: the channels of groups, interleaved.

use super::steer::divided;
use super::walk::{around_axis, make, Move, Moves, Walk};
use crate::ops::signature::{int, var, Row};
use crate::ops::{
    axis_index, keeps_quantisation, no_check, same_as_first, Args, OpError, Operation, OperationType, Out,
    Run, Shapes, Signature,
};
use crate::tensor::OperandType::*;
use crate::tensor::TensorInfo;

pub static CHANNEL_SHUFFLE: Operation = Operation {
    ty: OperationType::CHANNEL_SHUFFLE,
    doc: "interleaves the channels of groups along an axis",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT16]),
            Row(3, &[TENSOR_FLOAT32]),
            Row(3, &[TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("input", 0).rank(1, 4), int("groups"), int("axis")],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

/// The axis, the number of groups, and the number of channels in each.
fn groups(args: &Args) -> Result<(usize, u32, u32), OpError> {
    let dims = args.get(0)?.dims();
    let axis = axis_index(args.i32(2)?, dims.len())?;
    let groups = args.i32(1)?;
    let groups = u32::try_from(groups)
        .map_err(|_| OpError::failed(format!("the number of groups, {groups}, is negative")))?;
    Ok((axis, groups, divided(dims[axis], groups, "number of channels")?))
}

fn shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    groups(args)?;
    same_as_first(args)
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    make(args, outs, moves)
}

pub(super) fn moves(args: &Args, _: &[&TensorInfo]) -> Moves {
    let (axis, groups, channels) = groups(args)?;
    let (outer, inner) = around_axis(args.get(0)?.dims(), axis);
    let (groups, channels) = (i64::from(groups), i64::from(channels));
    let (outer, inner) = (outer as i64, inner as i64);
    let whole = groups * channels * inner;
    Move::only(Walk::new([
        (outer, whole, whole),
        (channels, inner, groups * inner),
        (groups, channels * inner, inner),
        (inner, 1, 1),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, f32s, int};

    #[test]
    fn interleaves_groups() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let out = |dims: &[u32], groups, axis| {
            call_simple::<f32>(&CHANNEL_SHUFFLE, &[f32s(dims, &values), int(groups), int(axis)])
        };
        assert_eq!(out(&[6], 2, -1), Ok((vec![6], vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0])));
        assert_eq!(out(&[6], 3, 0), Ok((vec![6], vec![1.0, 3.0, 5.0, 2.0, 4.0, 6.0])));
        assert_eq!(out(&[2, 3], 2, 0), Ok((vec![2, 3], values.to_vec())));
        for groups in [0, -1, 4, i32::MIN, i32::MAX] {
            assert!(out(&[6], groups, 0).is_err(), "{groups}");
        }
        assert!(out(&[6], 2, 1).is_err());
    }
}
