//! MIRROR_PAD: a border that mirrors the tensor's edge.

use super::pad;
use super::steer::paddings;
use super::walk::{around_axis, Walk};
use crate::memory::AlignedBuf;
use crate::ops::pace::Pace;
use crate::ops::signature::{int, is, var, Row};
use crate::ops::{same_quantisation, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::byte_size;
use crate::tensor::OperandType::*;

/// Bytes that are copied in one go.
const PART: usize = 1 << 17;

pub static MIRROR_PAD: Operation = Operation {
    ty: OperationType::MIRROR_PAD,
    doc: "pads a tensor with its own mirror image",
    signatures: &[Signature::new(
        &[
            Row(7, &[TENSOR_FLOAT16]),
            Row(7, &[TENSOR_FLOAT32]),
            Row(7, &[TENSOR_QUANT8_ASYMM]),
            Row(7, &[TENSOR_QUANT8_ASYMM_SIGNED]),
            Row(7, &[TENSOR_INT32]),
        ],
        &[var("input", 0), is("paddings", TENSOR_INT32).rank(2, 2), int("mode")],
        &[var("output", 0)],
    )],
    check,
    run: Run::Shaped { shapes, eval },
};

fn check(args: &Args) -> Result<(), OpError> {
    let (input, pads, output) = (args.get(0)?, args.get(1)?, args.output(0)?);
    if input.ty().is_quant8_asymm() {
        same_quantisation(input.info, output)?;
    }
    let rank = input.dims().len();
    let wrong = |what: &str, size: usize| {
        Err(OpError::failed(format!("{what} {size} does not fit an input of rank {rank}")))
    };
    match (pads.dim(0) as usize, pads.dim(1) as usize) {
        (_, 1 | 3..) => Err(OpError::failed("the paddings' second dimension is not 2")),
        (rows, _) if rank != 0 && rows != 0 && rows != rank => wrong("the paddings' first dimension", rows),
        _ if rank != 0 && !output.dims.is_empty() && output.dims.len() != rank => {
            wrong("the output's rank", output.dims.len())
        }
        _ => Ok(()),
    }
}

/// Elements at the edge that the mirror leaves out: one if it stands on the last element (REFLECT), none if it stands
/// behind it (SYMMETRIC).
fn offset(args: &Args) -> Result<u32, OpError> {
    match args.i32(2)? {
        0 => Ok(1),
        1 => Ok(0),
        mode => Err(OpError::failed(format!("{mode} is not a mode (0 REFLECT, 1 SYMMETRIC)"))),
    }
}

fn shapes(args: &Args) -> Shapes {
    let offset = offset(args)?;
    let dims = args.get(0)?.dims();
    for (&dim, (before, after)) in dims.iter().zip(paddings(args, 1, dims.len())?) {
        let (most, pad) = (dim.saturating_sub(offset), before.max(after));
        if pad > most {
            return Err(OpError::failed(format!("padding {pad}, at most {most} fits a dimension of {dim}")));
        }
    }
    pad::shapes(args)
}

/// Pads axis by axis, so that corners mirror what is already padded.
fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (input, out) = (args.get(0)?, &mut outs[0]);
    if out.data.is_empty() {
        return Ok(());
    }
    let offset = i64::from(offset(args)?);
    let mut dims = input.dims().to_vec();
    let mut padded: Option<AlignedBuf> = None;
    for (axis, (before, after)) in paddings(args, 1, dims.len())?.into_iter().enumerate() {
        if (before, after) == (0, 0) {
            continue;
        }
        let (outer, inner) = around_axis(&dims, axis);
        let (outer, inner, dim) = (outer as i64, inner as i64, i64::from(dims[axis]));
        dims[axis] = out.dims()[axis];
        let row = inner * i64::from(dims[axis]);
        let size = byte_size(out.info.ty, &dims).unwrap_or(usize::MAX);
        let mut wider = AlignedBuf::zeroed(size).ok_or(OpError::OutOfMemory(size))?;
        let (before, after) = (i64::from(before), i64::from(after));
        let parts = [
            (before, before - 1 + offset, -1, 0),
            (dim, 0, 1, before),
            (after, dim - 1 - offset, -1, before + dim),
        ];
        for (count, from, step, to) in parts {
            let axes = [(outer, inner * dim, row), (count, step * inner, inner), (inner, 1, 1)];
            let walk = Walk::new(axes).start(from * inner, to * inner);
            walk.run(args, out.info.ty, padded.as_deref().map_or(input.bytes(), Ok)?, &mut wider)?;
        }
        padded = Some(wider);
    }
    let padded = padded.as_deref().map_or(input.bytes(), Ok)?;
    if padded.len() != out.data.len() {
        return Err(OpError::failed("the input's bytes do not fit its dimensions"));
    }
    let parts = out.data.chunks_mut(PART).zip(padded.chunks(PART));
    Pace::new(args).each(parts, PART, |(to, from)| to.copy_from_slice(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, i32s, int};

    fn padded(pads: [i32; 4], mode: i32) -> Result<(Vec<u32>, Vec<i32>), OpError> {
        let input = i32s(&[2, 3], &[1, 2, 3, 4, 5, 6]);
        call_simple(&MIRROR_PAD, &[input, i32s(&[2, 2], &pads), int(mode)])
    }

    #[test]
    fn mirrors_with_and_without_the_edge() {
        assert_eq!(padded([0, 0, 2, 1], 0).unwrap().1, [3, 2, 1, 2, 3, 2, 6, 5, 4, 5, 6, 5]);
        assert_eq!(padded([0, 0, 2, 1], 1).unwrap().1, [2, 1, 1, 2, 3, 3, 5, 4, 4, 5, 6, 6]);
        assert_eq!(padded([1, 0, 0, 1], 0), Ok((vec![3, 4], vec![4, 5, 6, 5, 1, 2, 3, 2, 4, 5, 6, 5])));
        assert_eq!(padded([0; 4], 0), Ok((vec![2, 3], vec![1, 2, 3, 4, 5, 6])));
    }

    #[test]
    fn refuses_more_than_there_is_to_mirror() {
        assert!(padded([0, 0, 3, 0], 0).is_err());
        assert!(padded([0, 0, 0, 4], 1).is_err());
        assert!(padded([0, 0, 0, -1], 1).is_err());
        assert!(padded([0; 4], 2).is_err());
        let empty = i32s(&[0], &[]);
        assert!(call_simple::<i32>(&MIRROR_PAD, &[empty, i32s(&[1, 2], &[1, 0]), int(1)]).is_err());
    }
}
