//! ARGMAX and ARGMIN: where along an axis the largest or smallest element is.

use super::key::keys;
use crate::ops::movement::around_axis;
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::signature::{int, is, var, Row};
use crate::ops::{
    axis_index, no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::Dims;
use crate::tensor::OperandType::*;

pub static ARGMAX: Operation = Operation {
    ty: OperationType::ARGMAX,
    doc: "the index of the first largest element along an axis",
    signatures: SIGNATURES,
    check: no_check,
    run: Run::Shaped { shapes, eval: |args, outs| eval(args, outs, |new, best| new > best) },
};

pub static ARGMIN: Operation = Operation {
    ty: OperationType::ARGMIN,
    doc: "the index of the first smallest element along an axis",
    signatures: SIGNATURES,
    check: no_check,
    run: Run::Shaped { shapes, eval: |args, outs| eval(args, outs, |new, best| new < best) },
};

static SIGNATURES: &[Signature] = &[Signature::new(
    &[
        Row(3, &[TENSOR_FLOAT16]),
        Row(3, &[TENSOR_FLOAT32]),
        Row(3, &[TENSOR_INT32]),
        Row(3, &[TENSOR_QUANT8_ASYMM]),
        Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    &[var("input", 0), int("axis")],
    &[is("output", TENSOR_INT32)],
)];

fn shapes(args: &Args) -> Shapes {
    let mut dims = Dims::from(args.get(0)?.dims());
    let axis = axis_index(args.i32(1)?, dims.len())?;
    if dims.remove(axis) == 0 {
        return Err(OpError::failed(format!("axis {axis} has no elements to choose from")));
    }
    if dims.is_empty() {
        dims.push(1);
    }
    Ok(vec![dims])
}

fn eval(args: &Args, outs: &mut [Out], beats: fn(i32, i32) -> bool) -> Result<(), OpError> {
    let input = args.get(0)?;
    let found = outs[0].elements::<i32>()?;
    if found.is_empty() {
        return Ok(());
    }
    let axis = axis_index(args.i32(1)?, input.dims().len())?;
    let (_, inner) = around_axis(input.dims(), axis);
    let keys = keys(&input)?;
    let mut pace = Pace::new(args);
    let mut best = filled(args.interrupt, 0, inner)?;
    let groups = keys.chunks_exact(inner * input.dims()[axis] as usize);
    for (group, found) in groups.zip(found.chunks_exact_mut(inner)) {
        pace.in_stretches(inner, 1, |part| best[part.clone()].copy_from_slice(&group[part]))?;
        for (i, row) in (0i32..).zip(group.chunks_exact(inner)) {
            pace.each(row.iter().zip(best.iter_mut()).zip(found.iter_mut()), 1, |((&key, best), found)| {
                if beats(key, *best) {
                    (*best, *found) = (key, i);
                }
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, f32s, int, tensor, Tensor};
    use crate::tensor::TensorInfo;

    fn found(operation: &Operation, input: Tensor, axis: i32) -> Result<(Vec<u32>, Vec<i32>), OpError> {
        let out = TensorInfo::new(TENSOR_INT32, &[]);
        let out = call(operation, &[Some(input), Some(int(axis))], &[out])?.remove(0);
        Ok((out.dims.to_vec(), bytemuck::cast_slice(&out.data).to_vec()))
    }

    #[test]
    fn finds_the_first_along_any_axis() {
        let input = || f32s(&[2, 3], &[1.0, 5.0, 5.0, -2.0, 0.0, -2.0]);
        assert_eq!(found(&ARGMAX, input(), -1), Ok((vec![2], vec![1, 1])));
        assert_eq!(found(&ARGMIN, input(), 1), Ok((vec![2], vec![0, 0])));
        assert_eq!(found(&ARGMAX, input(), 0), Ok((vec![3], vec![0, 0, 0])));
        assert_eq!(found(&ARGMIN, input(), 0), Ok((vec![3], vec![1, 1, 1])));
        let signed = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[3], 1.0, 0);
        assert_eq!(found(&ARGMAX, tensor(signed, &[-128i8, 127, 0]), 0), Ok((vec![1], vec![1])));
    }

    #[test]
    fn hostile_axes_and_empty_tensors() {
        for axis in [2, -3, i32::MIN, i32::MAX] {
            assert!(found(&ARGMAX, f32s(&[1, 1], &[0.0]), axis).is_err(), "{axis}");
        }
        assert!(found(&ARGMAX, f32s(&[2, 0], &[]), 1).is_err());
        assert_eq!(found(&ARGMAX, f32s(&[0, 2], &[]), 1), Ok((vec![0], vec![])));
    }
}
