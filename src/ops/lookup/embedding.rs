//! EMBEDDING_LOOKUP: rows of a table by their indices.

use super::rows;
use crate::ops::movement::take_slices;
use crate::ops::signature::{is, var, Row};
use crate::ops::{
    keeps_quantisation, no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::OperandType::*;

pub static EMBEDDING_LOOKUP: Operation = Operation {
    ty: OperationType::EMBEDDING_LOOKUP,
    doc: "takes rows of a table by their indices",
    signatures: &[Signature::new(
        &[
            Row(1, &[TENSOR_FLOAT32]),
            Row(3, &[TENSOR_INT32]),
            Row(3, &[TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_FLOAT16]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[is("lookups", TENSOR_INT32), var("values", 0)],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 1)?;
    match (args.get(0)?.dims(), args.get(1)?.dims()) {
        (&[lookups], [_, row @ ..]) if !row.is_empty() => Ok(vec![[&[lookups], row].concat().into()]),
        (lookups, values) => Err(OpError::failed(format!(
            "lookups of dimensions {lookups:?} and values of {values:?}, expected rank 1 and at least 2"
        ))),
    }
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let values = args.get(1)?;
    let (count, row) = rows(&values);
    take_slices(args, args.get(0)?.elements()?, count, row, values.bytes()?, &mut outs[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, f32s, i32s};
    use crate::tensor::TensorInfo;

    fn looked_up(lookups: &[i32], dims: &[u32]) -> Result<(Vec<u32>, Vec<f32>), OpError> {
        let values: Vec<f32> = (0..dims.iter().product()).map(|i| i as f32).collect();
        let inputs = [Some(i32s(&[lookups.len() as u32], lookups)), Some(f32s(dims, &values))];
        let out = call(&EMBEDDING_LOOKUP, &inputs, &[TensorInfo::new(TENSOR_FLOAT32, &[])])?.remove(0);
        Ok((out.dims.to_vec(), bytemuck::cast_slice(&out.data).to_vec()))
    }

    #[test]
    fn takes_rows() {
        assert_eq!(looked_up(&[2, 0], &[3, 2]), Ok((vec![2, 2], vec![4.0, 5.0, 0.0, 1.0])));
        assert_eq!(looked_up(&[], &[3, 2]), Ok((vec![0, 2], vec![])));
        assert_eq!(looked_up(&[9], &[3, 0]), Ok((vec![1, 0], vec![])));
    }

    #[test]
    fn refuses_rows_that_are_not_there() {
        for lookup in [-1, 3, i32::MIN, i32::MAX] {
            assert!(looked_up(&[0, lookup], &[3, 2]).is_err(), "{lookup}");
        }
        assert!(looked_up(&[0], &[0, 2]).is_err());
        assert!(looked_up(&[0], &[3]).is_err());
    }
}
