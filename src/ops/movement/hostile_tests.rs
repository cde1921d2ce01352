//! No operation of this family, nor of the look-ups and searches beside it, may panic, whatever it is called with.

use crate::ops::testing::{call, tensor, Tensor};
use crate::ops::{lookup, search, Operation};
use crate::tensor::{element_count, OperandType, TensorInfo};
use proptest::prelude::*;

use super::*;
use OperandType::*;

static OPERATIONS: &[&Operation] = &[
    &CONCATENATION,
    &DEPTH_TO_SPACE,
    &SPACE_TO_DEPTH,
    &BATCH_TO_SPACE_ND,
    &SPACE_TO_BATCH_ND,
    &RESHAPE,
    &SQUEEZE,
    &EXPAND_DIMS,
    &STRIDED_SLICE,
    &SLICE,
    &SPLIT,
    &TRANSPOSE,
    &PAD,
    &PAD_V2,
    &MIRROR_PAD,
    &TILE,
    &GATHER,
    &REVERSE,
    &PACK,
    &FILL,
    &RANK,
    &CHANNEL_SHUFFLE,
    &lookup::EMBEDDING_LOOKUP,
    &lookup::HASHTABLE_LOOKUP,
    &search::TOPK_V2,
    &search::ARGMAX,
    &search::ARGMIN,
];

/// Steering values: mostly plausible, sometimes extreme.
fn value() -> impl Strategy<Value = i32> {
    prop_oneof![
        8 => -3..6i32,
        1 => prop::sample::select(vec![i32::MIN, i32::MIN + 1, -65536, 65536, i32::MAX - 1, i32::MAX]),
    ]
}

/// Dimensions of a tensor that is small, or empty but for all its other dimensions huge.
fn dims() -> impl Strategy<Value = Vec<u32>> {
    let huge = prop::sample::select(vec![0, 1, 2, 65536, 1 << 31, u32::MAX]);
    prop_oneof![
        6 => prop::collection::vec(0..5u32, 1..5),
        1 => prop::collection::vec(1..3u32, 1..10),
        1 => (prop::collection::vec(huge, 1..5), any::<prop::sample::Index>()).prop_map(|(mut dims, at)| {
            let at = at.index(dims.len());
            dims[at] = 0;
            dims
        }),
    ]
}

/// A tensor with `values` repeated for its elements; integers as they are, other types by their low bytes.
fn filled(ty: OperandType, dims: &[u32], zero_point: i32, values: &[i32]) -> Tensor {
    let info = TensorInfo { scale: 0.5, zero_point, ..TensorInfo::new(ty, dims) };
    let (count, size) = (element_count(dims).unwrap_or(0), ty.element_size().unwrap_or(1));
    let bytes: Vec<u8> =
        values.iter().cycle().take(count).flat_map(|value| value.to_le_bytes()[..size].to_vec()).collect();
    tensor(info, &bytes)
}

/// Everything of a call but which signature it follows.
#[derive(Clone, Debug)]
struct Seed {
    row: prop::sample::Index,
    count: usize,
    input_dims: Vec<u32>,
    other_dims: Vec<Vec<u32>>,
    values: Vec<i32>,
    zero_points: (i32, i32),
    fitting: bool,
}

fn seed() -> impl Strategy<Value = Seed> {
    (
        any::<prop::sample::Index>(),
        0..3usize,
        dims(),
        prop::collection::vec(dims(), 8),
        prop::collection::vec(value(), 1..24),
        (prop::sample::select(vec![0, 7, 255]), prop::sample::select(vec![0, 7])),
        prop::bool::weighted(0.8),
    )
        .prop_map(|(row, count, input_dims, other_dims, values, zero_points, fitting)| Seed {
            row,
            count,
            input_dims,
            other_dims,
            values,
            zero_points,
            fitting,
        })
}

/// Builds operands for `operation`'s first signature. `fitting` seeds give steering tensors dimensions that go with the
/// input's rank, so that a good part of the calls gets as far as evaluation.
fn attempt(operation: &Operation, seed: &Seed) -> bool {
    use crate::ops::signature::{Count, Slot, Ty};
    let signature = &operation.signatures[0];
    let row = &signature.rows[seed.row.index(signature.rows.len())];
    let ty = |slot: &Slot| match slot.ty {
        Ty::Var(column) => row.1[column],
        Ty::Is(ty) => ty,
        Ty::Any(types) => types[seed.row.index(types.len())],
    };
    let slots: Vec<&Slot> = match signature.input_count {
        Count::Repeat(at) => {
            let repeated = std::iter::repeat_n(&signature.inputs[at], seed.count);
            signature.inputs[..at].iter().chain(repeated).chain(&signature.inputs[at..]).collect()
        }
        Count::OneOf(counts) => signature.inputs[..counts[seed.count % counts.len()]].iter().collect(),
        Count::All => signature.inputs.iter().collect(),
    };
    let rank = seed.input_dims.len() as u32;
    let padded = if slots.iter().any(|slot| slot.name == "block sizes") { 2 } else { rank };
    let operand = |(i, slot): (usize, &&Slot)| {
        let ty = ty(slot);
        let steering = matches!(slot.ty, Ty::Is(TENSOR_INT32));
        let dims = match (ty.is_scalar(), steering, seed.fitting) {
            (true, ..) => vec![],
            (_, true, true) if slot.name == "paddings" => vec![padded, 2],
            (_, true, true) if slot.name == "block sizes" => vec![2],
            (_, true, true) if slot.name == "axis" => vec![1],
            (_, true, true) => vec![rank],
            (_, false, true) => seed.input_dims.clone(),
            _ => seed.other_dims[i % seed.other_dims.len()].clone(),
        };
        let rotated: Vec<i32> = seed.values.iter().cycle().skip(i).take(seed.values.len()).copied().collect();
        filled(ty, &dims, seed.zero_points.0, &rotated)
    };
    let inputs: Vec<_> = slots.iter().enumerate().map(operand).map(Some).collect();
    let outputs: Vec<_> = match signature.output_count {
        Count::Repeat(at) => vec![&signature.outputs[at]; seed.count + 1],
        _ => signature.outputs.iter().collect(),
    };
    let outputs: Vec<_> = outputs
        .into_iter()
        .map(|slot| TensorInfo::quantised(ty(slot), &[], 0.5, seed.zero_points.1))
        .collect();
    if output_bytes(operation, &inputs, &outputs).is_some_and(|bytes| bytes > 1 << 20) {
        return false;
    }
    call(operation, &inputs, &outputs).is_ok()
}

/// Size of the outputs, where there is one to be known.
fn output_bytes(operation: &Operation, inputs: &[Option<Tensor>], outputs: &[TensorInfo]) -> Option<usize> {
    use crate::ops::{Arg, Args, NeverInterrupted, Run};
    let Run::Shaped { shapes, .. } = operation.run else { return None };
    let inputs: Vec<_> =
        inputs.iter().flatten().map(|t| Some(Arg { info: &t.info, data: Some(&t.data[..]) })).collect();
    let dims = shapes(&Args { form: 0, inputs: &inputs, outputs, interrupt: &NeverInterrupted }).ok()?;
    dims.iter().map(|dims| element_count(dims)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_panics(seed in seed()) {
        for operation in OPERATIONS {
            attempt(operation, &seed);
        }
    }
}

/// The property above is worth something only if calls get through to every evaluation.
#[test]
fn calls_reach_evaluation() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let seeds: Vec<Seed> = (0..1500).map(|_| seed().new_tree(&mut runner).unwrap().current()).collect();
    for operation in OPERATIONS {
        assert!(seeds.iter().any(|seed| attempt(operation, seed)), "{} never succeeds", operation.ty);
    }
}
