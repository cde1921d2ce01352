//! HASHTABLE_LOOKUP: rows of a table by their keys.

use super::rows;
use crate::memory::Counted;
use crate::ops::pace::Pace;
use crate::ops::signature::{is, var, Row};
use crate::ops::{
    copy, keeps_quantisation, no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::OperandType::*;
use smallvec::smallvec;
use std::collections::HashMap;

pub static HASHTABLE_LOOKUP: Operation = Operation {
    ty: OperationType::HASHTABLE_LOOKUP,
    doc: "takes rows of a table by their keys, zeros for keys that are not in it, and says which were",
    signatures: &[Signature::new(
        &[Row(1, &[TENSOR_FLOAT32]), Row(1, &[TENSOR_INT32]), Row(1, &[TENSOR_QUANT8_ASYMM])],
        &[is("lookups", TENSOR_INT32), is("keys", TENSOR_INT32), var("values", 0)],
        &[var("output", 0), is("hits", TENSOR_QUANT8_ASYMM)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 2)?;
    // Which is a rule of execution as well.
    let hits = args.output(1)?;
    if (hits.scale, hits.zero_point) != (1.0, 0) {
        return Err(OpError::failed("the hits must have scale 1 and zero point 0"));
    }
    let (lookups, keys, values) = (args.get(0)?.dims(), args.get(1)?.dims(), args.get(2)?.dims());
    match (lookups, keys, values) {
        (&[lookups], &[keys], [rows, row @ ..]) if *rows == keys => {
            Ok(vec![[&[lookups], row].concat().into(), smallvec![lookups]])
        }
        _ => Err(OpError::failed(format!(
            "lookups {lookups:?}, keys {keys:?} and values {values:?}: expected rank 1, rank 1, and a row for each key"
        ))),
    }
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let lookups = args.get(0)?.elements::<i32>()?;
    let values = args.get(2)?;
    let (_, row) = rows(&values);
    let table = values.bytes()?;
    // Keys are sorted by specification, but a client's word is not enough to search by it.
    let keys = args.get(1)?.elements::<i32>()?;
    let mut pace = Pace::new(args);
    let mut row_of = HashMap::new();
    // An entry has key, row and a byte of the table's own, of which an eighth is empty.
    let bytes = keys.len().saturating_mul(20);
    let _counted = Counted::take(bytes).ok_or(OpError::OutOfMemory(bytes))?;
    row_of.try_reserve(keys.len()).map_err(|_| OpError::OutOfMemory(bytes))?;
    for (at, &key) in keys.iter().enumerate() {
        row_of.entry(key).or_insert(at);
        pace.spend(64)?;
    }
    let [out, hits] = outs else { return Err(OpError::failed("expected two outputs")) };
    for (i, (lookup, hit)) in lookups.iter().zip(hits.data.iter_mut()).enumerate() {
        pace.spend(64 + row / 8)?;
        // A miss keeps the zero bytes that the output begins with.
        let Some(&at) = row_of.get(lookup) else { continue };
        *hit = 1;
        if !out.data.is_empty() {
            copy(args.interrupt, &mut out.data[i * row..][..row], &table[at * row..][..row])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, i32s};
    use crate::tensor::TensorInfo;

    fn looked_up(lookups: &[i32], keys: &[i32], dims: &[u32]) -> Result<(Vec<i32>, Vec<u8>), OpError> {
        let values: Vec<i32> = (1..=dims.iter().product::<u32>() as i32).collect();
        let inputs = [
            Some(i32s(&[lookups.len() as u32], lookups)),
            Some(i32s(&[keys.len() as u32], keys)),
            Some(i32s(dims, &values)),
        ];
        let outs =
            [TensorInfo::new(TENSOR_INT32, &[]), TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], 1.0, 0)];
        let out = call(&HASHTABLE_LOOKUP, &inputs, &outs)?;
        Ok((bytemuck::cast_slice(&out[0].data).to_vec(), out[1].data.to_vec()))
    }

    #[test]
    fn finds_keys_and_marks_misses() {
        let sorted = looked_up(&[7, 5, -3, 8], &[-3, 0, 7], &[3, 2]);
        assert_eq!(sorted, Ok((vec![5, 6, 0, 0, 1, 2, 0, 0], vec![1, 0, 1, 0])));
        let unsorted = looked_up(&[7, i32::MIN], &[7, i32::MAX, i32::MIN, 7], &[4]);
        assert_eq!(unsorted, Ok((vec![1, 3], vec![1, 1])));
    }

    #[test]
    fn empty_tables_and_rows_are_harmless() {
        assert_eq!(looked_up(&[1], &[], &[0, 2]), Ok((vec![0, 0], vec![0])));
        assert_eq!(looked_up(&[1, 2], &[1], &[1, 0]), Ok((vec![], vec![1, 0])));
        assert!(looked_up(&[1], &[1, 2], &[1, 2]).is_err());
    }
}
