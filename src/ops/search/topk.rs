//! TOPK_V2: the largest elements along the last dimension, and where they are.

use super::key::keys;
use crate::ops::pace::Pace;
use crate::ops::scratch::reserved;
use crate::ops::signature::{int, is, var, Row};
use crate::ops::sort::sort;
use crate::ops::{
    keeps_quantisation, no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::Dims;
use crate::tensor::OperandType::*;
use std::cmp::Reverse;

pub static TOPK_V2: Operation = Operation {
    ty: OperationType::TOPK_V2,
    doc: "the k largest elements along the last dimension, largest first, and their indices",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT16]),
            Row(3, &[TENSOR_FLOAT32]),
            Row(3, &[TENSOR_INT32]),
            Row(3, &[TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("input", 0), int("k")],
        &[var("values", 0), is("indices", TENSOR_INT32)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    let mut dims = Dims::from(args.get(0)?.dims());
    let k = args.i32(1)?;
    let row = dims.last_mut().ok_or_else(|| OpError::failed("the input has no dimension to search along"))?;
    let fits = u32::try_from(k).ok().filter(|&k| k > 0 && k <= *row);
    *row = fits.ok_or_else(|| OpError::failed(format!("k {k} is not within 1 to {row}")))?;
    Ok(vec![dims.clone(), dims])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let [values, indices] = outs else { return Err(OpError::failed("expected two outputs")) };
    if values.data.is_empty() {
        return Ok(());
    }
    let input = args.get(0)?;
    let (from, size) = (input.bytes()?, input.ty().element_size().unwrap_or(1));
    let (row, k) = (input.dims().last(), values.dims().last());
    let (row, k) = (row.map_or(1, |&n| n as usize), k.map_or(1, |&n| n as usize));
    let (mut order, mut pace) = (reserved(row)?, Pace::new(args));
    let rows = keys(&input)?;
    let rows = rows.chunks_exact(row).zip(from.chunks_exact(row * size));
    let outs = values.data.chunks_exact_mut(k * size).zip(indices.elements::<i32>()?.chunks_exact_mut(k));
    for ((keys, from), (values, indices)) in rows.zip(outs) {
        order.clear();
        pace.each(0..row as u32, 1, |i| order.push(i))?;
        // Of equal elements the one with the larger index comes first.
        let rank = |&i: &u32| Reverse((keys[i as usize], i));
        sort(&mut order, k, &mut pace, |a, b| rank(a).cmp(&rank(b)))?;
        let results = order.iter().zip(values.chunks_exact_mut(size)).zip(indices);
        pace.each(results, 8, |((&at, value), index)| {
            value.copy_from_slice(&from[at as usize * size..][..size]);
            *index = at as i32;
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, f32s, int};
    use crate::tensor::TensorInfo;

    fn top(values: &[f32], k: i32) -> Result<(Vec<f32>, Vec<i32>), OpError> {
        let input = f32s(&[2, values.len() as u32 / 2], values);
        let outs = [TensorInfo::new(TENSOR_FLOAT32, &[]), TensorInfo::new(TENSOR_INT32, &[])];
        let out = call(&TOPK_V2, &[Some(input), Some(int(k))], &outs)?;
        assert_eq!(out[0].dims[..], [2, k as u32]);
        let values = bytemuck::cast_slice(&out[0].data).to_vec();
        Ok((values, bytemuck::cast_slice(&out[1].data).to_vec()))
    }

    #[test]
    fn largest_first_and_larger_index_first_among_equals() {
        let rows = [1.0, 3.0, 2.0, 7.0, 7.0, -1.0];
        assert_eq!(top(&rows, 2), Ok((vec![3.0, 2.0, 7.0, 7.0], vec![1, 2, 1, 0])));
        assert_eq!(top(&rows, 3).unwrap().1, [1, 2, 0, 1, 0, 2]);
    }

    #[test]
    fn rows_of_any_rank() {
        let input = f32s(&[1, 2, 1, 1, 3], &[1.0, 3.0, 2.0, 7.0, 7.0, -1.0]);
        let outs = [TensorInfo::new(TENSOR_FLOAT32, &[]), TensorInfo::new(TENSOR_INT32, &[])];
        let out = call(&TOPK_V2, &[Some(input), Some(int(2))], &outs).unwrap();
        assert_eq!((&out[0].dims[..], &out[1].dims[..]), (&[1, 2, 1, 1, 2][..], &[1, 2, 1, 1, 2][..]));
        assert_eq!(bytemuck::cast_slice::<_, i32>(&out[1].data), [1, 2, 1, 0]);
    }

    #[test]
    fn survives_nan_and_bad_k() {
        let (values, indices) = top(&[f32::NAN, 1.0, 2.0, f32::NAN, f32::NAN, 0.0], 2).unwrap();
        assert!(values[0].is_nan() && values[1] == 2.0);
        assert_eq!(indices, [0, 2, 1, 0]);
        for k in [0, -1, 4, i32::MIN, i32::MAX] {
            assert!(top(&[0.0; 6], k).is_err(), "{k}");
        }
    }
}
