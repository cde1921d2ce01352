//! Every operation of the family on senseless operands: it may fail, but not panic, and what it gives fits its type.

use super::*;
use crate::memory::AlignedBuf;
use crate::ops::signature::Ty;
use crate::ops::testing::{call, Tensor};
use crate::ops::{Operation, OperationType};
use crate::tensor::{byte_size, ChannelQuant, OperandType, TensorInfo};
use proptest::prelude::*;
use proptest::sample::Index;

const FAMILY: &[&Operation] = &[
    &ABS,
    &ADD,
    &CAST,
    &DEQUANTIZE,
    &DIV,
    &ELU,
    &EQUAL,
    &EXP,
    &FLOOR,
    &GREATER,
    &GREATER_EQUAL,
    &HARD_SWISH,
    &LESS,
    &LESS_EQUAL,
    &LOG,
    &LOGICAL_AND,
    &LOGICAL_NOT,
    &LOGICAL_OR,
    &LOGISTIC,
    &MAXIMUM,
    &MINIMUM,
    &MUL,
    &NEG,
    &NOT_EQUAL,
    &POW,
    &PRELU,
    &QUANTIZE,
    &RELU,
    &RELU1,
    &RELU6,
    &RSQRT,
    &SELECT,
    &SIN,
    &SQRT,
    &SUB,
    &TANH,
];

/// What an operand is made of; its type comes from the signature.
#[derive(Clone, Debug)]
struct Draft {
    dims: Vec<u32>,
    bytes: Vec<u8>,
    scale: f32,
    /// Zero point's place within its type's range.
    zero: u8,
    channels: (Vec<f32>, u32),
    /// Takes the type that the signature has here, if it is so; any type otherwise.
    wrong_type: Option<Index>,
    pick: Index,
}

prop_compose! {
    fn draft()(
        dims in prop_oneof![
            9 => proptest::collection::vec(prop_oneof![4 => Just(1u32), 4 => Just(3), 1 => Just(0), 1 => Just(2)], 0..5),
            1 => proptest::collection::vec(prop_oneof![Just(0u32), Just(1), Just(u32::MAX)], 0..7),
        ],
        bytes in proptest::collection::vec(any::<u8>(), 1..32),
        scale in prop_oneof![
            Just(1.0 / 256.0), Just(1.0 / 128.0), Just(0.5), Just(0.0), Just(-1.0), Just(f32::MAX), Just(1e-45),
            Just(f32::NAN), Just(f32::INFINITY),
        ],
        zero in any::<u8>(),
        channels in (proptest::collection::vec(any::<f32>(), 0..4), 0u32..6),
        wrong_type in prop_oneof![30 => Just(None), 1 => any::<Index>().prop_map(Some)],
        pick in any::<Index>(),
    ) -> Draft {
        Draft { dims, bytes, scale, zero, channels, wrong_type, pick }
    }
}

fn info(draft: &Draft, ty: OperandType) -> TensorInfo {
    let ty = draft.wrong_type.map_or(ty, |i| *i.get(&OperandType::ALL[..15]));
    let (lo, hi) = ty.integer_range().unwrap_or((0, 0));
    TensorInfo {
        ty,
        dims: if ty.is_scalar() { vec![] } else { draft.dims.clone() },
        scale: draft.scale,
        zero_point: (lo.saturating_add(draft.zero.into())).min(hi),
        channel_quant: (ty == OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL)
            .then(|| ChannelQuant { scales: draft.channels.0.clone(), dim: draft.channels.1 }),
    }
}

/// An operand with its bytes repeated to its size; `None` if that is too large for a test.
fn operand(draft: &Draft, ty: OperandType) -> Option<Tensor> {
    let info = info(draft, ty);
    let size = info.byte_size().filter(|&size| size <= 1 << 16)?;
    let bytes: Vec<u8> = draft.bytes.iter().copied().cycle().take(size).collect();
    Some(Tensor { info, data: AlignedBuf::copy_of(&bytes)? })
}

fn attempt(operation: &Operation, drafts: &[Draft], same_dims: bool, activation: i32) {
    let signature = drafts[0].pick.get(operation.signatures);
    let row = drafts[1].pick.get(signature.rows);
    let ty = |ty: Ty, draft: &Draft| match ty {
        Ty::Var(column) => row.1[column],
        Ty::Is(ty) => ty,
        Ty::Any(types) => *draft.pick.get(types),
    };
    let mut inputs = Vec::new();
    for (slot, draft) in signature.inputs.iter().zip(drafts) {
        let dims = if same_dims { &drafts[0].dims } else { &draft.dims };
        let draft = Draft { dims: dims.clone(), ..draft.clone() };
        let mut tensor = operand(&draft, ty(slot.ty, &draft));
        if let Some(tensor) = tensor.as_mut().filter(|tensor| tensor.info.ty == OperandType::INT32) {
            tensor.data = AlignedBuf::copy_of(&activation.to_ne_bytes()).unwrap();
        }
        inputs.push(tensor);
    }
    let out = &drafts[3];
    let out = TensorInfo { dims: vec![], ..info(out, ty(signature.outputs[0].ty, out)) };
    if let Ok(results) = call(operation, &inputs, std::slice::from_ref(&out)) {
        assert_eq!(results.len(), 1);
        assert_eq!(byte_size(out.ty, &results[0].dims), Some(results[0].data.len()));
        if out.ty == OperandType::TENSOR_BOOL8 {
            assert!(
                results[0].data.iter().all(|&byte| byte <= 1),
                "{} gave other than 0 and 1",
                operation.ty
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_operand_makes_an_operation_panic(
        operation in any::<Index>(),
        drafts in proptest::collection::vec(draft(), 4),
        same_dims in any::<bool>(),
        activation in prop_oneof![0i32..4, any::<i32>()],
    ) {
        attempt(FAMILY[operation.index(FAMILY.len())], &drafts, same_dims, activation);
    }
}

#[test]
fn the_family_is_in_the_table() {
    for operation in FAMILY {
        let entry: Option<&Operation> = OperationType::operation(operation.ty);
        assert!(entry.is_some_and(|entry| std::ptr::eq(entry, *operation)), "{}", operation.ty);
    }
}
