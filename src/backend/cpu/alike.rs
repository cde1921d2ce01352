//! Calls that one kernel does, weights included: the rounds of an unrolled loop, say, which would pack the same weights again
//! each time. Must not know what calls compute.

use crate::ops::Operation;
use crate::tensor::TensorInfo;
use std::collections::HashMap;

/// A value as a kernel is made from it.
pub enum Input<'v> {
    /// A constant of many bytes: the same only if it is the same value.
    Large,
    /// Any other.
    Small(&'v TensorInfo, &'v [u8]),
    Other(&'v TensorInfo),
}

/// Bytes of a key, at the most: an operand takes them each time that it is listed, and keys of all calls are held at once.
const LONGEST: usize = 2048;

/// What a call's kernel is made from: calls of which these are equal have the same one. `None` where that is long, or an input
/// is `None`, and where none is a large constant: such a kernel is made sooner than found.
pub fn key<'v>(
    (operation, signature_index): (&Operation, usize),
    inputs: &[Option<usize>],
    outputs: &[TensorInfo],
    input: impl Fn(usize) -> Option<Input<'v>>,
) -> Option<Vec<u8>> {
    let (mut key, mut has_large) = (Vec::new(), false);
    number(&mut key, operation.ty.code() as usize);
    number(&mut key, signature_index);
    for v in inputs {
        if key.len() > LONGEST {
            return None;
        }
        let Some(v) = *v else {
            key.push(0);
            continue;
        };
        match input(v)? {
            Input::Large => {
                has_large = true;
                key.push(1);
                number(&mut key, v);
            }
            Input::Small(info, bytes) => {
                key.push(2);
                add_info(&mut key, info)?;
                number(&mut key, bytes.len());
                key.extend_from_slice(bytes);
            }
            Input::Other(info) => {
                key.push(3);
                add_info(&mut key, info)?;
            }
        }
    }
    key.push(4);
    for info in outputs {
        if key.len() > LONGEST {
            return None;
        }
        add_info(&mut key, info)?;
    }
    has_large.then_some(key)
}

fn number(key: &mut Vec<u8>, x: usize) {
    key.extend_from_slice(&x.to_le_bytes());
}

/// `None` for what only large constants are.
fn add_info(key: &mut Vec<u8>, info: &TensorInfo) -> Option<()> {
    let TensorInfo { ty, dims, scale, zero_point, channel_quant: None } = info else { return None };
    number(key, ty.code() as usize);
    number(key, dims.len());
    dims.iter().for_each(|&dim| number(key, dim as usize));
    key.extend_from_slice(&scale.to_bits().to_le_bytes());
    key.extend_from_slice(&zero_point.to_le_bytes());
    Some(())
}

/// By call, in order: the first one before that has the same key.
pub fn firsts(keys: impl Iterator<Item = Option<Vec<u8>>>) -> Vec<Option<usize>> {
    let mut known = HashMap::new();
    let mut first = |(i, key): (usize, Option<Vec<u8>>)| {
        let first = *known.entry(key?).or_insert(i);
        (first != i).then_some(first)
    };
    keys.enumerate().map(&mut first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::OperationType;
    use crate::tensor::OperandType;

    /// An operand takes its bytes each time that it is listed.
    #[test]
    fn long_keys_are_none() {
        let info = TensorInfo::new(OperandType::TENSOR_INT32, &[64]);
        let operation = OperationType::CONCATENATION.operation().unwrap();
        let key = |count: usize| {
            let inputs: Vec<_> = std::iter::once(Some(0)).chain(vec![Some(1); count]).collect();
            let input = |v| Some(if v == 0 { Input::Large } else { Input::Small(&info, &[0; 256]) });
            key((operation, 0), &inputs, std::slice::from_ref(&info), input)
        };
        assert!(key(4).is_some() && key(8000).is_none());
        // Nor do outputs make long ones.
        let outputs = vec![info.clone(); 8000];
        assert!(super::key((operation, 0), &[Some(0)], &outputs, |_| Some(Input::Large)).is_none());
    }
}
