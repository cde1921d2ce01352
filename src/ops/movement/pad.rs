//! PAD and PAD_V2: a border of one value around a tensor.

use super::fill::fill;
use super::steer::{padded, paddings};
use super::walk::{steps, Move, Moves, Walk};
use crate::ops::signature::{is, var, Row};
use crate::ops::{
    keeps_quantisation, no_check, Arg, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::OperandType::*;
use crate::tensor::TensorInfo;

pub static PAD: Operation = Operation {
    ty: OperationType::PAD,
    doc: "pads a tensor with zero (the zero point, if it is quantised)",
    signatures: &[Signature::new(
        &[
            Row(2, &[TENSOR_FLOAT32]),
            Row(3, &[TENSOR_FLOAT16]),
            Row(2, &[TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("input", 0).rank(1, 4), is("paddings", TENSOR_INT32)],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

pub static PAD_V2: Operation = Operation {
    ty: OperationType::PAD_V2,
    doc: "pads a tensor with a given value",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT32, FLOAT32]),
            Row(3, &[TENSOR_FLOAT16, FLOAT16]),
            Row(3, &[TENSOR_QUANT8_ASYMM, INT32]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED, INT32]),
        ],
        &[var("input", 0).rank(1, 4), is("paddings", TENSOR_INT32), var("padding value", 1)],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

pub fn shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    let dims = args.get(0)?.dims();
    let pads = paddings(args, 1, dims.len())?;
    Ok(vec![dims.iter().zip(pads).map(|(&dim, pads)| padded(dim, pads)).collect::<Result<_, _>>()?])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (input, out) = (args.get(0)?, &mut outs[0]);
    let before: Vec<u32> = paddings(args, 1, input.dims().len())?.iter().map(|pads| pads.0).collect();
    let zero = input.zero_point().to_le_bytes();
    // A quantised value is given as INT32 and means its low byte.
    let value = if args.len() > 2 { args.get(2)?.bytes()? } else { &zero };
    pad(args, &input, &before, value, &out.info.dims, out.data)
}

/// Fills `to`, a tensor of dimensions `dims`, with the element that `value` begins with, and copies `input` into it, `before` elements from the start
/// of each dimension.
pub fn pad(
    args: &Args,
    input: &Arg,
    before: &[u32],
    value: &[u8],
    dims: &[u32],
    to: &mut [u8],
) -> Result<(), OpError> {
    if to.is_empty() {
        return Ok(());
    }
    let element = input.ty().element_size().and_then(|size| value.get(..size));
    fill(args, element.ok_or_else(|| OpError::failed("the padding value is too short"))?, to)?;
    walk(input, before, dims).run(args, input.ty(), input.bytes()?, to)
}

fn walk(input: &Arg, before: &[u32], dims: &[u32]) -> Walk {
    let out_steps = steps(dims);
    let start = before.iter().zip(&out_steps).map(|(&before, step)| i64::from(before) * step).sum();
    let axes = input.dims().iter().zip(steps(input.dims())).zip(&out_steps);
    Walk::new(axes.map(|((&dim, from), &to)| (dim.into(), from, to))).start(0, start)
}

/// The move into an output that is padding already.
pub(super) fn moves(args: &Args, outs: &[&TensorInfo]) -> Moves {
    let input = args.get(0)?;
    let before: Vec<u32> = paddings(args, 1, input.dims().len())?.iter().map(|pads| pads.0).collect();
    Move::only(walk(&input, &before, &outs[0].dims))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, f32s, float, i32s, int, tensor};
    use crate::tensor::TensorInfo;

    #[test]
    fn pads_around() {
        let pads = i32s(&[2, 2], &[1, 0, 0, 2]);
        let out = call_simple::<f32>(&PAD, &[f32s(&[1, 2], &[1.0, 2.0]), pads.clone()]);
        assert_eq!(out, Ok((vec![2, 4], vec![0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0])));
        let out = call_simple::<f32>(&PAD_V2, &[f32s(&[1, 2], &[1.0, 2.0]), pads, float(7.0)]);
        assert_eq!(out, Ok((vec![2, 4], vec![7.0, 7.0, 7.0, 7.0, 1.0, 2.0, 7.0, 7.0])));
    }

    #[test]
    fn quantised_zero_is_the_zero_point() {
        let info = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[1], 0.5, -5);
        let pads = i32s(&[1, 2], &[1, 1]);
        let out = call_simple::<i8>(&PAD, &[tensor(info.clone(), &[3i8]), pads.clone()]);
        assert_eq!(out, Ok((vec![3], vec![-5, 3, -5])));
        let out = call_simple::<i8>(&PAD_V2, &[tensor(info, &[3i8]), pads, int(-128)]);
        assert_eq!(out, Ok((vec![3], vec![-128, 3, -128])));
    }

    #[test]
    fn an_empty_tensor_can_be_padded() {
        let out = call_simple::<f32>(&PAD_V2, &[f32s(&[0], &[]), i32s(&[1, 2], &[1, 1]), float(7.0)]);
        assert_eq!(out, Ok((vec![2], vec![7.0, 7.0])));
    }

    #[test]
    fn refuses_bad_paddings() {
        for (dims, pads) in [
            (&[1, 2][..], &[-1, 1][..]),
            (&[1, 2], &[i32::MAX, i32::MAX]),
            (&[2], &[1, 1]),
            (&[2, 1], &[1, 1]),
            (&[2, 2], &[0; 4]),
        ] {
            assert!(call_simple::<f32>(&PAD, &[f32s(&[2], &[0.0; 2]), i32s(dims, pads)]).is_err());
        }
    }
}
