//! SLICE and STRIDED_SLICE: a box out of a tensor, whole or every n-th element, forwards or backwards.

use super::steer::ints;
use super::walk::{make, steps, Move, Moves, Walk};
use crate::ops::signature::{int, is, var, Row};
use crate::ops::{
    keeps_quantisation, no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::Dims;
use crate::tensor::OperandType::*;
use crate::tensor::TensorInfo;

pub static SLICE: Operation = Operation {
    ty: OperationType::SLICE,
    doc: "takes a box of given start and size",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT16]),
            Row(3, &[TENSOR_FLOAT32]),
            Row(3, &[TENSOR_INT32]),
            Row(3, &[TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("input", 0), is("begin", TENSOR_INT32), is("size", TENSOR_INT32)],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes: slice_shapes, eval: slice_eval },
};

pub static STRIDED_SLICE: Operation = Operation {
    ty: OperationType::STRIDED_SLICE,
    doc: "takes every n-th element between two corners, backwards if n is negative",
    signatures: &[Signature::new(
        &[
            Row(2, &[TENSOR_FLOAT32]),
            Row(2, &[TENSOR_QUANT8_ASYMM]),
            Row(3, &[TENSOR_FLOAT16]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[
            var("input", 0).rank(1, 4),
            is("begin", TENSOR_INT32),
            is("end", TENSOR_INT32),
            is("strides", TENSOR_INT32),
            int("begin mask"),
            int("end mask"),
            int("shrink axis mask"),
        ],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes: strided_slice_shapes, eval: strided_slice_eval },
};

/// What is taken along one axis.
struct Range {
    begin: i64,
    step: i64,
    count: u32,
    /// The axis is not in the output.
    shrunk: bool,
}

fn slice_ranges(args: &Args) -> Result<Vec<Range>, OpError> {
    let dims = args.get(0)?.dims();
    let (begins, sizes) = (ints(args, 1, &[dims.len()])?, ints(args, 2, &[dims.len()])?);
    let range = |((&dim, &begin), &size): ((&u32, &i32), &i32)| {
        let (dim, begin) = (i64::from(dim), i64::from(begin));
        let size = if size == -1 { dim - begin } else { i64::from(size) };
        if begin < 0 || size < 0 || begin + size > dim {
            return Err(OpError::failed(format!("{size} elements from {begin} are not within {dim}")));
        }
        Ok(Range { begin, step: 1, count: size as u32, shrunk: false })
    };
    dims.iter().zip(begins).zip(sizes).map(range).collect()
}

fn strided_ranges(args: &Args) -> Result<Vec<Range>, OpError> {
    let dims = args.get(0)?.dims();
    let (begins, ends) = (ints(args, 1, &[dims.len()])?, ints(args, 2, &[dims.len()])?);
    let strides = ints(args, 3, &[dims.len()])?;
    let masks = [args.i32(4)?, args.i32(5)?, args.i32(6)?];
    let range = |i: usize| {
        // Axes beyond the masks' bits are not masked.
        let [no_begin, no_end, shrunk] = masks.map(|mask| i < 32 && (mask >> i) & 1 != 0);
        strided_range(dims[i].into(), begins[i].into(), ends[i].into(), strides[i].into(), no_begin, no_end)
            .and_then(|range| match shrunk {
                true if range.step < 0 || range.count != 1 => Err(OpError::failed(format!(
                    "axis {i} cannot be shrunk: {} elements at stride {}",
                    range.count, range.step
                ))),
                _ => Ok(Range { shrunk, ..range }),
            })
    };
    (0..dims.len()).map(range).collect()
}

/// What `begin..end` at stride `step` takes of `dim` elements; negative positions count from the end.
fn strided_range(
    dim: i64,
    begin: i64,
    end: i64,
    step: i64,
    no_begin: bool,
    no_end: bool,
) -> Result<Range, OpError> {
    if step == 0 {
        return Err(OpError::failed("stride 0"));
    }
    // A walk begins and ends on an element, or one step behind the last one in its direction.
    let (first, last) = if step > 0 { (0, dim) } else { (-1, dim - 1) };
    let clamp = |at: i64| (if at < 0 { at + dim } else { at }).clamp(first, last);
    let begin = match no_begin {
        true if step > 0 => 0,
        true => dim - 1,
        false => clamp(begin),
    };
    let end = match no_end {
        true if step > 0 => dim,
        true => -1,
        false => clamp(end),
    };
    let distance = if step > 0 { end - begin } else { begin - end };
    let count = (distance.max(0) as u64).div_ceil(step.unsigned_abs());
    Ok(Range { begin, step, count: count as u32, shrunk: false })
}

fn slice_shapes(args: &Args) -> Shapes {
    Ok(vec![slice_ranges(args)?.iter().map(|range| range.count).collect()])
}

fn strided_slice_shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    let ranges = strided_ranges(args)?;
    let mut dims: Dims = ranges.iter().filter(|range| !range.shrunk).map(|range| range.count).collect();
    if dims.is_empty() {
        dims.push(1);
    }
    Ok(vec![dims])
}

fn slice_eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    make(args, outs, slice_moves)
}

pub(super) fn slice_moves(args: &Args, _: &[&TensorInfo]) -> Moves {
    take(args, &slice_ranges(args)?)
}

fn strided_slice_eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    make(args, outs, strided_slice_moves)
}

pub(super) fn strided_slice_moves(args: &Args, _: &[&TensorInfo]) -> Moves {
    take(args, &strided_ranges(args)?)
}

fn take(args: &Args, ranges: &[Range]) -> Moves {
    let from = steps(args.get(0)?.dims());
    let counts: Vec<u32> = ranges.iter().map(|range| range.count).collect();
    let start = ranges.iter().zip(&from).map(|(range, step)| range.begin * step).sum();
    let axes = ranges.iter().zip(&from).zip(steps(&counts));
    let axes = axes.map(|((range, from), to)| (range.count.into(), range.step * from, to));
    Move::only(Walk::new(axes).start(start, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, f32s, i32s, int};

    fn sliced(begin: [i32; 2], size: [i32; 2]) -> Result<(Vec<u32>, Vec<i32>), OpError> {
        let input = i32s(&[2, 3], &[1, 2, 3, 4, 5, 6]);
        call_simple(&SLICE, &[input, i32s(&[2], &begin), i32s(&[2], &size)])
    }

    #[test]
    fn slices_a_box() {
        assert_eq!(sliced([0, 1], [2, 2]), Ok((vec![2, 2], vec![2, 3, 5, 6])));
        assert_eq!(sliced([1, 0], [-1, 2]), Ok((vec![1, 2], vec![4, 5])));
        assert_eq!(sliced([2, 0], [0, 3]), Ok((vec![0, 3], vec![])));
        for (begin, size) in [
            ([0, 2], [2, 2]),
            ([-1, 0], [1, 1]),
            ([3, 0], [-1, 1]),
            ([0, 0], [-2, 1]),
            ([1, 1], [i32::MAX; 2]),
        ] {
            assert!(sliced(begin, size).is_err(), "{begin:?} {size:?}");
        }
    }

    fn strided(begin: i32, end: i32, stride: i32, masks: [i32; 3]) -> Result<(Vec<u32>, Vec<f32>), OpError> {
        let vector = |x| i32s(&[1], &[x]);
        call_simple(
            &STRIDED_SLICE,
            &[
                f32s(&[4], &[1.0, 2.0, 3.0, 4.0]),
                vector(begin),
                vector(end),
                vector(stride),
                int(masks[0]),
                int(masks[1]),
                int(masks[2]),
            ],
        )
    }

    #[test]
    fn strides_either_way_and_clamps() {
        assert_eq!(strided(1, 3, 1, [0; 3]), Ok((vec![2], vec![2.0, 3.0])));
        assert_eq!(strided(-3, 100, 2, [0; 3]), Ok((vec![2], vec![2.0, 4.0])));
        assert_eq!(strided(-1, -5, -1, [0; 3]), Ok((vec![4], vec![4.0, 3.0, 2.0, 1.0])));
        assert_eq!(strided(3, 0, -2, [0; 3]), Ok((vec![2], vec![4.0, 2.0])));
        assert_eq!(strided(2, 2, 3, [1, 1, 0]), Ok((vec![2], vec![1.0, 4.0])));
        assert_eq!(strided(2, 2, -3, [1, 1, 0]), Ok((vec![2], vec![4.0, 1.0])));
        assert_eq!(strided(3, 1, 1, [0; 3]), Ok((vec![0], vec![])));
        assert_eq!(strided(i32::MAX, i32::MIN, i32::MIN, [0; 3]), Ok((vec![1], vec![4.0])));
    }

    #[test]
    fn shrinks_one_element_only() {
        assert_eq!(strided(1, 2, 1, [0, 0, 1]), Ok((vec![1], vec![2.0])));
        assert!(strided(1, 3, 1, [0, 0, 1]).is_err());
        assert!(strided(2, 1, -1, [0, 0, 1]).is_err());
        assert!(strided(1, 1, 1, [0, 0, 1]).is_err());
        assert!(strided(0, 4, 0, [0; 3]).is_err());
    }
}
