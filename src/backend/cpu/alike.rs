//! Calls that one kernel does, weights included: the rounds of an unrolled loop, say, which would pack the same weights again
//! each time. Must not know what calls compute.

use crate::ops::pace::Pace;
use crate::ops::scratch::{filled, reserved, Scratch};
use crate::ops::sort::sort;
use crate::ops::{OpError, Operation};
use crate::tensor::TensorInfo;
use std::hash::{BuildHasher, RandomState};

/// A value as a kernel is made from it.
pub enum Input<'v> {
    /// A constant of many bytes: the same only if it is the same value.
    Large,
    /// Any other.
    Small(&'v TensorInfo, &'v [u8]),
    Other(&'v TensorInfo),
}

/// Bytes of a key, at the most: an operand takes them each time that it is listed.
const LONGEST: usize = 2048;

/// Bytes that hold most keys: one that grows is copied for each of its first operands.
const USUAL: usize = 256;

/// What a call's kernel is made from: calls of which these are equal have the same one. `None` where that is long, or an input
/// is `None`, and where none is a large constant: such a kernel is made sooner than found.
pub fn key<'v>(
    (operation, signature_index): (&Operation, usize),
    inputs: &[Option<usize>],
    outputs: &[TensorInfo],
    input: impl Fn(usize) -> Option<Input<'v>>,
) -> Option<Vec<u8>> {
    let (mut key, mut has_large) = (Vec::with_capacity(USUAL), false);
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

/// By call, of which there are `count`: the first one before that has the same key. Keys of all calls would take more memory than
/// most models, so that only numbers of them are held, and those are made again whose numbers are equal.
pub fn firsts(
    count: usize,
    key: impl Fn(usize, &mut Pace) -> Result<Option<Vec<u8>>, OpError>,
    pace: &mut Pace,
) -> Result<Scratch<Option<usize>>, OpError> {
    // A client must not know which keys have the same number.
    let numbers = RandomState::new();
    let mut numbered = reserved(count)?;
    for call in 0..count {
        if let Some(key) = key(call, pace)? {
            pace.spend(key.len())?;
            numbered.push((numbers.hash_one(key), call));
        }
    }
    // Calls of one number stay in order.
    sort(&mut numbered, usize::MAX, pace, |a: &(u64, usize), b| a.0.cmp(&b.0))?;
    let mut firsts = filled(pace.interrupt(), None, count)?;
    for same in numbered.chunk_by(|a, b| a.0 == b.0) {
        pace.spend(1)?;
        let &[(_, first), ref others @ ..] = same else { continue };
        if others.is_empty() {
            continue;
        }
        let of_first = key(first, pace)?;
        for &(_, call) in others {
            let own = key(call, pace)?;
            pace.spend(own.as_ref().map_or(0, Vec::len))?;
            firsts[call] = (own == of_first).then_some(first);
        }
    }
    Ok(firsts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Budget;
    use crate::ops::testing::Counting;
    use crate::ops::{NeverInterrupted, OperationType};
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

    #[test]
    fn each_call_finds_the_first_one_that_is_alike() {
        let keys = [None, Some(1u8), Some(2), None, Some(1), Some(2), Some(1), Some(3)];
        let key = |call: usize, _: &mut Pace| Ok(keys[call].map(|key| vec![key]));
        let firsts = firsts(keys.len(), key, &mut Pace::of(&NeverInterrupted)).unwrap();
        assert_eq!(firsts[..], [None, None, None, None, Some(1), Some(2), Some(1), None]);
    }

    /// Some dozen MB, if all keys were held.
    #[test]
    fn many_long_keys_are_looked_at_with_pauses_and_not_held() {
        const CALLS: usize = 20_000;
        let budget = Budget::new(8 << 20);
        let _account = budget.on_account_of(1);
        let interrupt = Counting::default();
        let key = |call: usize, _: &mut Pace| {
            // What is not counted is not held, either, but for the key at hand.
            Ok(Some([&(call / 2).to_le_bytes()[..], &vec![7; LONGEST]].concat()))
        };
        let firsts = firsts(CALLS, key, &mut Pace::of(&interrupt)).unwrap();
        assert!((0..CALLS).all(|call| firsts[call] == (call % 2 == 1).then(|| call - 1)));
        assert!(budget.private().held() >= (CALLS * size_of::<Option<usize>>()) as u64);
        let passed = interrupt.take();
        assert!(passed >= (CALLS * LONGEST) >> 16, "{passed} yield points");
    }
}
