//! Calls as a hostile client makes them: types, dimensions, steering values and data that make no sense.
//!
//! They may fail as they like, but not panic. Work is bounded by refusing large outputs, and by an interrupt that comes
//! soon.

use super::{Random, TensorInfo, Value};
use nnhal::memory::AlignedBuf;
use nnhal::ops::evaluate::with_dims;
use nnhal::ops::signature::{self, Count, Operand, Row, Slot, Ty};
use nnhal::ops::{Arg, Args, Interrupt, OpError, Operation, Out, Run};
use nnhal::tensor::{ChannelQuant, OperandType};
use smallvec::smallvec;
use std::sync::atomic::{AtomicU32, Ordering};

/// Outputs of more bytes than this are not computed.
const LARGEST_OUTPUT: usize = 1 << 16;
const EXTREME: [i64; 10] = [
    i32::MIN as i64,
    i32::MIN as i64 + 1,
    -5,
    -2,
    -1,
    255,
    256,
    1 << 16,
    i32::MAX as i64 - 1,
    i32::MAX as i64,
];
const WILD: [f64; 10] = [
    0.0,
    -0.0,
    -1.0,
    1e-40,
    1e30,
    f32::MAX as f64,
    f32::MIN as f64,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// Comes once it has been asked a number of times.
struct Soon(AtomicU32);

impl Interrupt for Soon {
    fn check(&self) -> Result<(), OpError> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| OpError::Cancelled)
    }
}

/// Repeats a good call with something made wrong.
pub fn spoiled_calls(
    operation: &Operation,
    inputs: &[Option<&Value>],
    outputs: &[TensorInfo],
    random: &mut Random,
) {
    for _ in 0..2 {
        let mut inputs: Vec<Option<Value>> = inputs.iter().map(|v| v.cloned()).collect();
        let mut outputs = outputs.to_vec();
        for _ in 0..=random.below(2) {
            spoil(&mut inputs, &mut outputs, random);
        }
        let _ = run(operation, &inputs, &outputs, random);
    }
}

fn spoil(inputs: &mut Vec<Option<Value>>, outputs: &mut Vec<TensorInfo>, random: &mut Random) {
    if inputs.is_empty() {
        return;
    }
    let at = random.below(inputs.len());
    match random.below(16) {
        0 => inputs[at] = None,
        1 => drop(inputs.remove(at)),
        2 => inputs.push(inputs[at].clone()),
        3 => drop(outputs.pop()),
        4 => outputs.iter_mut().for_each(|output| output.scale = random.pick(&[0.0, 1e-30, 1e30])),
        5 => outputs.iter_mut().for_each(|output| output.zero_point = random.pick(&[-128, 0, 255])),
        _ => {
            if let Some(value) = &mut inputs[at] {
                spoil_value(value, random);
            }
        }
    }
}

/// Changes a dimension, the quantisation, or some of the values.
fn spoil_value(value: &mut Value, random: &mut Random) {
    if !value.info.dims.is_empty() && random.one_in(3) {
        let at = random.below(value.info.dims.len());
        match random.below(8) {
            0 => drop(value.info.dims.remove(at)),
            1 => value.info.dims.push(random.pick(&[0, 1, 2])),
            _ => value.info.dims[at] = random.pick(&[0, 1, 2, 3, 5, 8]),
        }
        *value = filled(value.info.clone(), false, random);
        return;
    }
    if random.one_in(8) {
        value.info.scale = random.pick(&[0.0, 1e-30, 1e30]);
        return;
    }
    let size = value.info.ty.element_size().unwrap_or(1);
    let count = value.data.len() / size;
    for _ in 0..random.below(4).min(count) {
        let at = random.below(count) * size;
        let one = filled(TensorInfo { dims: smallvec![1], ..value.info.clone() }, true, random);
        value.data[at..at + size].copy_from_slice(&one.data);
    }
}

/// Calls `operation` with operands that mostly follow one of its signatures in their types, and in nothing else; says
/// whether that succeeded.
pub fn random_call(operation: &Operation, random: &mut Random) -> bool {
    let signature = &operation.signatures[random.below(operation.signatures.len())];
    let row = random.pick(signature.rows);
    // Few different sizes, so that dimensions that must agree often do.
    let sizes = [random.below(3) as u32 + 1, random.below(5) as u32, random.pick(&[4, 8, 12])];
    let slots = slots(signature.inputs, signature.input_count, random);
    let mut inputs: Vec<Option<Value>> = slots
        .iter()
        .map(|slot| (!(slot.optional && random.coin())).then(|| operand(slot, &row, &sizes, random)))
        .collect();
    let slots = self::slots(signature.outputs, signature.output_count, random);
    let mut outputs: Vec<TensorInfo> =
        slots.iter().map(|slot| operand(slot, &row, &sizes, random).info).collect();
    if random.one_in(8) {
        spoil(&mut inputs, &mut outputs, random);
    }
    run(operation, &inputs, &outputs, random).is_ok()
}

fn slots(slots: &[Slot], count: Count, random: &mut Random) -> Vec<Slot> {
    let mut slots = slots.to_vec();
    match count {
        Count::All => {}
        Count::OneOf(counts) => slots.truncate(random.pick(counts)),
        Count::Repeat(at) => (0..random.below(3)).for_each(|_| slots.insert(at, slots[at])),
    }
    slots
}

fn operand(slot: &Slot, row: &Row, sizes: &[u32; 3], random: &mut Random) -> Value {
    let ty = match slot.ty {
        _ if random.one_in(200) => random.pick(&OperandType::ALL),
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
    let scale =
        if super::is_quantised(ty) { random.pick(&[0.125, 1.0 / 256.0, 1.0 / 128.0, 1e30]) } else { 0.0 };
    let zero_point = match ty {
        OperandType::TENSOR_QUANT8_ASYMM => random.pick(&[0, 128, 255]),
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => random.pick(&[0, -128, 127]),
        _ => 0,
    };
    let mut info = TensorInfo::quantised(ty, &dims, scale, zero_point);
    if ty == OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL {
        let dim = random.below(rank) as u32;
        info.channel_quant = Some(ChannelQuant {
            scales: vec![0.5; dims.get(dim as usize).map_or(1, |&d| d as usize)].into(),
            dim,
        });
    }
    filled(info, random.coin(), random)
}

/// A value of random elements, some of them extreme if `wild`.
fn filled(info: TensorInfo, wild: bool, random: &mut Random) -> Value {
    let count = info.dims.iter().map(|&d| d as usize).product();
    if info.ty.element_size().is_none() {
        return Value { info, data: AlignedBuf::default() };
    }
    let numbers: Vec<f64> = (0..count)
        .map(|_| match info.ty.is_float() {
            true if wild && random.coin() => random.pick(&WILD),
            true => random.below(64) as f64 / 8.0,
            false if wild && random.coin() => random.pick(&EXTREME) as f64,
            false if info.ty.element_size() == Some(1) => random.below(256) as f64,
            false => random.below(4) as f64,
        })
        .collect();
    Value::of_numbers(info, &numbers)
}

/// Matches, checks and evaluates a call; a few of its values are not known yet.
fn run(
    operation: &Operation,
    inputs: &[Option<Value>],
    outputs: &[TensorInfo],
    random: &mut Random,
) -> Result<(), OpError> {
    let operands: Vec<_> = inputs
        .iter()
        .map(|v| v.as_ref().map_or(Operand::Omitted(None), |v| Operand::Present(&v.info)))
        .collect();
    let results: Vec<_> = outputs.iter().map(Operand::Present).collect();
    let signature_index =
        signature::find(operation.signatures, &operands, &results).map_err(OpError::Failed)?.signature_index;
    let inputs: Vec<Option<Arg>> = inputs
        .iter()
        .map(|v| v.as_ref().map(|v| Arg { info: &v.info, data: (!random.one_in(50)).then_some(&v.data[..]) }))
        .collect();
    let interrupt = &Soon(AtomicU32::new(20));
    let args = Args { signature_index, inputs: &inputs, outputs, interrupt };
    (operation.check)(&args)?;
    match operation.run {
        Run::ControlFlow => Ok(()),
        Run::Unshaped { eval } => eval(&args).map(drop),
        Run::Shaped { shapes, eval } => {
            let infos: Vec<TensorInfo> =
                outputs.iter().zip(shapes(&args)?).map(|(info, dims)| with_dims(info, &dims)).collect();
            let mut data = Vec::new();
            for info in &infos {
                let size = info.byte_size().filter(|&n| n <= LARGEST_OUTPUT);
                data.push(vec![0u64; size.ok_or(OpError::Cancelled)?.div_ceil(8)]);
            }
            let mut outs: Vec<Out> = infos
                .iter()
                .zip(&mut data)
                .map(|(info, data)| Out {
                    info,
                    data: &mut bytemuck::cast_slice_mut(data)[..info.byte_size().unwrap_or(0)],
                })
                .collect();
            eval(&args, &mut outs)
        }
    }
}
