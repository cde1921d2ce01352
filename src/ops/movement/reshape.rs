//! RESHAPE, SQUEEZE and EXPAND_DIMS: the same elements under other dimensions.

use super::steer::vector;
use super::walk::{make, Move, Moves, Walk};
use crate::ops::signature::{int, is, var, Row};
use crate::ops::{
    axis_index, keeps_quantisation, no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes,
    Signature,
};
use crate::tensor::Dims;
use crate::tensor::OperandType::*;
use crate::tensor::TensorInfo;

pub static RESHAPE: Operation = Operation {
    ty: OperationType::RESHAPE,
    doc: "gives a tensor other dimensions, one of which may follow from the rest",
    signatures: &[Signature::new(
        &[
            Row(1, &[TENSOR_FLOAT32]),
            Row(3, &[TENSOR_FLOAT16]),
            Row(1, &[TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
            Row(6, &[TENSOR_INT32]),
        ],
        &[var("input", 0).rank(1, 4), is("shape", TENSOR_INT32)],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes: reshape_shapes, eval },
};

pub static SQUEEZE: Operation = Operation {
    ty: OperationType::SQUEEZE,
    doc: "removes dimensions of size 1, all or those given",
    signatures: &[Signature::new(
        &[
            Row(2, &[TENSOR_FLOAT32]),
            Row(2, &[TENSOR_QUANT8_ASYMM]),
            Row(3, &[TENSOR_FLOAT16]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("input", 0).rank(1, 4), is("dimensions", TENSOR_INT32).optional()],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes: squeeze_shapes, eval },
};

pub static EXPAND_DIMS: Operation = Operation {
    ty: OperationType::EXPAND_DIMS,
    doc: "inserts a dimension of size 1",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT16]),
            Row(3, &[TENSOR_FLOAT32]),
            Row(3, &[TENSOR_INT32]),
            Row(3, &[TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("input", 0), int("axis")],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes: expand_dims_shapes, eval },
};

fn reshape_shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    let count = args.get(0)?.count()? as u64;
    let shape = vector(args, 1)?;
    let impossible = || OpError::failed(format!("{count} elements cannot take shape {shape:?}"));
    if shape.is_empty() || shape.iter().any(|&d| d < -1) || shape.iter().filter(|&&d| d == -1).count() > 1 {
        return Err(impossible());
    }
    let given: Vec<u32> = shape.iter().filter_map(|&d| u32::try_from(d).ok()).collect();
    let given = crate::tensor::element_count(&given).ok_or_else(impossible)? as u64;
    let follows = match shape.contains(&-1) {
        // Any size would do for no elements: there is no right one.
        true if given == 0 || !count.is_multiple_of(given) => return Err(impossible()),
        true => u32::try_from(count / given).map_err(|_| impossible())?,
        false if given != count => return Err(impossible()),
        false => 0,
    };
    Ok(vec![shape.iter().map(|&d| u32::try_from(d).unwrap_or(follows)).collect()])
}

fn squeeze_shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    let dims = args.get(0)?.dims();
    let mut squeezed = vec![false; dims.len()];
    if args.opt(1).is_some() {
        for &axis in vector(args, 1)? {
            let at = axis_index(axis, dims.len())?;
            if dims[at] != 1 {
                return Err(OpError::failed(format!("dimension {axis} is {}, not 1", dims[at])));
            }
            squeezed[at] = true;
        }
    } else {
        squeezed.iter_mut().zip(dims).for_each(|(squeezed, &dim)| *squeezed = dim == 1);
    }
    let mut left: Dims = dims.iter().zip(squeezed).filter(|(_, gone)| !gone).map(|(&d, _)| d).collect();
    if left.is_empty() {
        left.push(1);
    }
    Ok(vec![left])
}

fn expand_dims_shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    let mut dims = Dims::from(args.get(0)?.dims());
    dims.insert(axis_index(args.i32(1)?, dims.len() + 1)?, 1);
    Ok(vec![dims])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    make(args, outs, moves)
}

pub(super) fn moves(args: &Args, _: &[&TensorInfo]) -> Moves {
    Move::only(Walk::new([(args.get(0)?.count()? as i64, 1, 1)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, call_simple, f32s, i32s, int};

    fn reshaped(dims: &[u32], shape: &[i32]) -> Result<Vec<u32>, OpError> {
        let values: Vec<f32> = (0..dims.iter().product()).map(|i| i as f32).collect();
        let inputs = [f32s(dims, &values), i32s(&[shape.len() as u32], shape)];
        let (dims, moved) = call_simple::<f32>(&RESHAPE, &inputs)?;
        assert_eq!(moved, values);
        Ok(dims)
    }

    #[test]
    fn one_dimension_follows_from_the_rest() {
        assert_eq!(reshaped(&[2, 6], &[3, 4]), Ok(vec![3, 4]));
        assert_eq!(reshaped(&[2, 6], &[3, -1, 2]), Ok(vec![3, 2, 2]));
        assert_eq!(reshaped(&[0, 6], &[-1, 3]), Ok(vec![0, 3]));
        assert_eq!(reshaped(&[0, 6], &[7, 0]), Ok(vec![7, 0]));
    }

    #[test]
    fn refuses_impossible_shapes() {
        for shape in [
            &[3, 5][..],
            &[-1, 5],
            &[-1, -1],
            &[-2, -6],
            &[-1, 0],
            &[],
            &[i32::MIN],
            &[i32::MAX, i32::MAX, i32::MAX],
        ] {
            assert!(reshaped(&[2, 6], shape).is_err(), "{shape:?}");
        }
        assert!(reshaped(&[0, 6], &[-1, 0]).is_err());
        assert!(reshaped(&[0, 6], &[0; 255]).is_ok() && reshaped(&[0, 6], &[0; 256]).is_err());
    }

    #[test]
    fn squeezes_all_or_the_given() {
        let input = || f32s(&[1, 2, 1], &[3.0, 4.0]);
        let out = call_simple::<f32>(&SQUEEZE, &[input(), i32s(&[2], &[-1, 2])]);
        assert_eq!(out, Ok((vec![1, 2], vec![3.0, 4.0])));
        let out = call(&SQUEEZE, &[Some(input()), None], &[input().info]).unwrap();
        assert_eq!(out[0].dims[..], [2]);
        let one = f32s(&[1, 1], &[5.0]);
        assert_eq!(call_simple(&SQUEEZE, &[one, i32s(&[2], &[0, 1])]), Ok((vec![1], vec![5.0f32])));
        assert!(call_simple::<f32>(&SQUEEZE, &[input(), i32s(&[1], &[1])]).is_err());
        assert!(call_simple::<f32>(&SQUEEZE, &[input(), i32s(&[1], &[i32::MIN])]).is_err());
    }

    #[test]
    fn expands_at_either_end() {
        let out = |axis| call_simple::<f32>(&EXPAND_DIMS, &[f32s(&[2], &[3.0, 4.0]), int(axis)]);
        assert_eq!(out(0), Ok((vec![1, 2], vec![3.0, 4.0])));
        assert_eq!(out(-1), Ok((vec![2, 1], vec![3.0, 4.0])));
        assert!(out(2).is_err() && out(-3).is_err());
    }
}
