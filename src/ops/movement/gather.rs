//! GATHER: slices of a tensor along an axis, chosen by indices.

use super::walk::around_axis;
use crate::ops::pace::Pace;
use crate::ops::signature::{int, is, var, Row};
use crate::ops::{
    axis_index, keeps_quantisation, no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes,
    Signature,
};
use crate::tensor::OperandType::*;

pub static GATHER: Operation = Operation {
    ty: OperationType::GATHER,
    doc: "takes slices along an axis by their indices",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT16]),
            Row(3, &[TENSOR_FLOAT32]),
            Row(3, &[TENSOR_INT32]),
            Row(3, &[TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("input", 0), int("axis"), is("indices", TENSOR_INT32)],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    let dims = args.get(0)?.dims();
    let axis = axis_index(args.i32(1)?, dims.len())?;
    Ok(vec![[&dims[..axis], args.get(2)?.dims(), &dims[axis + 1..]].concat().into()])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (input, out) = (args.get(0)?, &mut outs[0]);
    let axis = axis_index(args.i32(1)?, input.dims().len())?;
    let size = input.ty().element_size().unwrap_or(1);
    let (_, inner) = around_axis(input.dims(), axis);
    let slice = inner.saturating_mul(size);
    take_slices(args, args.get(2)?.elements()?, input.dims()[axis] as usize, slice, input.bytes()?, out)
}

/// Bytes copied in one go.
const STRETCH: usize = 1 << 18;
/// Bytes that slices may be of so that most are on pages which were touched before.
const NEAR: usize = 1 << 20;

/// Writes, for each group of `rows` slices of `slice` bytes in `from`, those that `indices` name.
pub fn take_slices(
    args: &Args,
    indices: &[i32],
    rows: usize,
    slice: usize,
    from: &[u8],
    out: &mut Out,
) -> Result<(), OpError> {
    if out.data.is_empty() {
        return Ok(());
    }
    let misfit = || OpError::failed("a tensor's bytes do not fit its dimensions");
    let group = rows.checked_mul(slice).ok_or_else(misfit)?;
    if slice == 0 || group == 0 || indices.is_empty() {
        return Err(OpError::failed(format!("there are no slices, but {} indices", indices.len())));
    }
    // Where there are many pages, each slice may be on one that was never touched.
    let (mut pace, each) = (Pace::new(args), if from.len() > NEAR { 1024 } else { 16 });
    for (from, to) in from.chunks_exact(group).zip(out.data.chunks_exact_mut(slice * indices.len())) {
        for (to, &index) in to.chunks_exact_mut(slice).zip(indices) {
            let row = usize::try_from(index).ok().filter(|&row| row < rows);
            let row =
                row.ok_or_else(|| OpError::failed(format!("index {index} is out of range for {rows}")))?;
            let from = &from[row * slice..][..slice];
            for (to, from) in to.chunks_mut(STRETCH).zip(from.chunks(STRETCH)) {
                to.copy_from_slice(from);
                // A step is about a byte of a short slice, or eight of a long one.
                pace.spend(each + to.len() / 8)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, i32s, int};

    fn gathered(axis: i32, indices: &[i32]) -> Result<(Vec<u32>, Vec<i32>), OpError> {
        let indices = i32s(&[1, indices.len() as u32], indices);
        call_simple(&GATHER, &[i32s(&[2, 3], &[1, 2, 3, 4, 5, 6]), int(axis), indices])
    }

    #[test]
    fn indices_take_the_place_of_the_axis() {
        assert_eq!(gathered(0, &[1, 1]), Ok((vec![1, 2, 3], vec![4, 5, 6, 4, 5, 6])));
        assert_eq!(gathered(-1, &[2, 0]), Ok((vec![2, 1, 2], vec![3, 1, 6, 4])));
        assert_eq!(gathered(1, &[]), Ok((vec![2, 1, 0], vec![])));
    }

    #[test]
    fn refuses_indices_out_of_range() {
        for index in [-1, 3, i32::MIN, i32::MAX] {
            assert!(gathered(1, &[0, index]).is_err(), "{index}");
        }
        assert!(gathered(2, &[0]).is_err());
        let empty = [i32s(&[0, 3], &[]), int(0), i32s(&[1], &[0])];
        assert!(call_simple::<i32>(&GATHER, &empty).is_err());
    }
}
