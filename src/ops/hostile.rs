//! Random calls of operations, most of them nonsense, to show that no operation panics (tests only).
//!
//! Calls match a signature in types and mostly in ranks; dimensions, steering values and data are whatever a hostile
//! client might send. Work is bounded by refusing large outputs and by an interrupt that comes soon.

use super::evaluate::with_dims;
use super::signature::{Count, Row, Signature, Slot, Ty};
use super::testing::{tensor, InterruptedAfter, Tensor};
use super::{Arg, Args, OpError, Operation, Out, Run};
use crate::memory::AlignedBuf;
use crate::tensor::{OperandType, TensorInfo};
use half::f16;

/// Outputs of more bytes than this are not computed.
const LARGEST_OUTPUT: usize = 1 << 16;

/// xorshift64*: the same calls each time.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Makes `calls` random calls of `operation`; says how many of them succeeded.
pub fn storm(operation: &Operation, calls: usize, random: &mut Random) -> usize {
    (0..calls).filter(|_| call(operation, random).is_ok()).count()
}

/// Makes `calls` calls of `operation` that are `inputs` with up to two things made wrong; says how many succeeded.
pub fn corrupt(
    operation: &Operation,
    inputs: &[Tensor],
    outputs: &[TensorInfo],
    calls: usize,
    random: &mut Random,
) -> usize {
    let mut call = || {
        let mut inputs = inputs.to_vec();
        for _ in 0..random.below(3) {
            let at = random.below(inputs.len());
            spoil(&mut inputs[at], random);
        }
        let inputs: Vec<_> =
            inputs.iter().map(|t| Some(Arg { info: &t.info, data: Some(&t.data) })).collect();
        run(operation, &Args { form: 0, inputs: &inputs, outputs, interrupt: &InterruptedAfter::checks(20) })
            .is_ok()
    };
    (0..calls).filter(|_| call()).count()
}

/// Changes a dimension, or some of the values.
fn spoil(operand: &mut Tensor, random: &mut Random) {
    if !operand.info.dims.is_empty() && random.one_in(3) {
        let at = random.below(operand.info.dims.len());
        operand.info.dims[at] = random.pick(&[0, 1, 2, 3, 5]);
        *operand = filled(operand.info.clone(), false, random);
        return;
    }
    let size = operand.info.ty.element_size().unwrap_or(1);
    let count = operand.data.len() / size;
    for _ in 0..=random.below(3) {
        let at = random.below(count);
        let one = filled(TensorInfo { dims: vec![1], ..operand.info.clone() }, true, random);
        if let Some(element) = operand.data.chunks_exact_mut(size).nth(at) {
            element.copy_from_slice(&one.data);
        }
    }
}

fn call(operation: &Operation, random: &mut Random) -> Result<(), OpError> {
    let form = random.below(operation.signatures.len());
    let signature = &operation.signatures[form];
    let row = random.pick(signature.rows);
    // Few different sizes, so that dimensions that must agree often do.
    let sizes = [random.below(3) as u32 + 1, random.below(5) as u32, random.pick(&[4, 8, 12])];
    let inputs: Vec<Option<Tensor>> = slots(signature, random)
        .iter()
        .map(|slot| (!(slot.optional && random.one_in(2))).then(|| operand(slot, &row, &sizes, random)))
        .collect();
    let outputs: Vec<TensorInfo> =
        signature.outputs.iter().map(|slot| operand(slot, &row, &sizes, random).info).collect();
    let inputs: Vec<Option<Arg>> = inputs
        .iter()
        .map(|t| t.as_ref().map(|t| Arg { info: &t.info, data: (!random.one_in(50)).then_some(&t.data[..]) }))
        .collect();
    run(
        operation,
        &Args { form, inputs: &inputs, outputs: &outputs, interrupt: &InterruptedAfter::checks(20) },
    )
}

fn slots(signature: &Signature, random: &mut Random) -> Vec<Slot> {
    let mut slots = signature.inputs.to_vec();
    match signature.input_count {
        Count::All => {}
        Count::OneOf(counts) => slots.truncate(random.pick(counts)),
        Count::Repeat(at) => (0..random.below(3)).for_each(|_| slots.insert(at, slots[at])),
    }
    slots
}

fn run(operation: &Operation, args: &Args) -> Result<(), OpError> {
    (operation.check)(args)?;
    match operation.run {
        Run::ControlFlow => Ok(()),
        Run::Unshaped { eval } => eval(args).map(drop),
        Run::Shaped { shapes, eval } => {
            let dims = shapes(args)?;
            let infos: Vec<TensorInfo> =
                args.outputs.iter().zip(&dims).map(|(info, dims)| with_dims(info, dims)).collect();
            let mut data = Vec::new();
            for info in &infos {
                let size = info.byte_size().filter(|&n| n <= LARGEST_OUTPUT);
                let size = size.ok_or_else(|| OpError::failed("too large for this test"))?;
                data.extend(AlignedBuf::zeroed(size));
            }
            let mut outs: Vec<Out> =
                infos.iter().zip(&mut data).map(|(info, data)| Out { info, data: &mut data[..] }).collect();
            eval(args, &mut outs)
        }
    }
}

fn operand(slot: &Slot, row: &Row, sizes: &[u32; 3], random: &mut Random) -> Tensor {
    let ty = match slot.ty {
        Ty::Var(column) => row.1[column],
        Ty::Is(ty) => ty,
        Ty::Any(types) => random.pick(types),
    };
    let rank = match ty.is_scalar() {
        true => 0,
        false => (slot.rank.0 as usize + random.below(4)).min(slot.rank.1 as usize),
    };
    let dims: Vec<u32> =
        (0..rank).map(|_| random.pick(&[sizes[0], sizes[0], sizes[1], sizes[2], 4, 2])).collect();
    let scale = if ty.integer_range().is_none() {
        0.0
    } else {
        random.pick(&[0.125, 1.0 / 256.0, 1.0 / 128.0, 1e30])
    };
    let zero_point = match ty {
        OperandType::TENSOR_QUANT8_ASYMM => random.pick(&[0, 128, 255]),
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => random.pick(&[0, -128, 127]),
        _ => 0,
    };
    let wild = random.one_in(2);
    filled(TensorInfo::quantised(ty, &dims, scale, zero_point), wild, random)
}

/// A tensor of random values, some of them extreme if `wild`.
fn filled(info: TensorInfo, wild: bool, random: &mut Random) -> Tensor {
    let (ty, count) = (info.ty, info.dims.iter().map(|&d| d as usize).product());
    match ty.element_size() {
        Some(1) => tensor(info, &(0..count).map(|_| random.next() as u8).collect::<Vec<_>>()),
        Some(2) if !ty.is_float() => {
            tensor(info, &(0..count).map(|_| random.next() as u16).collect::<Vec<_>>())
        }
        Some(2) => tensor(info, &(0..count).map(|_| f16::from_f32(real(wild, random))).collect::<Vec<_>>()),
        Some(4) if ty.is_float() => tensor(info, &(0..count).map(|_| real(wild, random)).collect::<Vec<_>>()),
        _ => tensor(info, &(0..count).map(|_| integer(wild, random)).collect::<Vec<_>>()),
    }
}

fn real(wild: bool, random: &mut Random) -> f32 {
    const WILD: [f32; 10] =
        [0.0, -0.0, -1.0, 1e-40, 1e30, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    if wild && random.one_in(2) {
        return random.pick(&WILD);
    }
    random.below(64) as f32 / 8.0
}

fn integer(wild: bool, random: &mut Random) -> i32 {
    if wild && random.one_in(2) {
        return random.pick(&[i32::MIN, i32::MIN + 1, -5, -2, -1, 255, 256, 1 << 16, i32::MAX - 1, i32::MAX]);
    }
    random.below(4) as i32
}
