//! Random calls of all recurrent operations, from valid to absurd: none may panic.

use super::*;
use crate::memory::AlignedBuf;
use crate::ops::evaluate::evaluate;
use crate::ops::hostile::{type_of, Random};
use crate::ops::signature::{Count, Row, Slot};
use crate::ops::{Arg, Args, NeverInterrupted, Operation, Run};
use crate::tensor::{OperandType, TensorInfo};

const OPERATIONS: [&Operation; 9] = [
    &LSTM,
    &UNIDIRECTIONAL_SEQUENCE_LSTM,
    &BIDIRECTIONAL_SEQUENCE_LSTM,
    &RNN,
    &UNIDIRECTIONAL_SEQUENCE_RNN,
    &BIDIRECTIONAL_SEQUENCE_RNN,
    &SVDF,
    &QUANTIZED_16BIT_LSTM,
    &QUANTIZED_LSTM,
];

/// Sizes of a call and how it departs from a valid one.
struct Plan {
    batch: u32,
    time: u32,
    input: u32,
    units: u32,
    outputs: u32,
    memory: u32,
    cifg: bool,
    peephole: bool,
    layer_norm: bool,
    aux: bool,
    rank_of_input: usize,
    time_major: bool,
    quantised: bool,
    /// One operand in so many is not what it should be; 0 for none.
    mischief: usize,
}

impl Plan {
    fn new(random: &mut Random, operation: &Operation) -> Self {
        let name = operation.ty.name();
        let units = random.below(4) as u32 + 1;
        let projection = name.contains("LSTM") && name != "QUANTIZED_16BIT_LSTM" && random.one_in(2);
        Plan {
            batch: random.below(3) as u32,
            time: random.below(3) as u32,
            input: random.below(9) as u32 + 1,
            units,
            outputs: if projection { units + 1 } else { units },
            memory: random.below(3) as u32 + 1,
            cifg: random.one_in(3),
            peephole: random.one_in(2),
            layer_norm: random.one_in(2),
            aux: random.one_in(2),
            rank_of_input: if name.contains("SEQUENCE") { 3 } else { 2 },
            time_major: random.one_in(2),
            quantised: name.starts_with("QUANTIZED"),
            mischief: random.pick(&[0, 0, 4, 30]),
        }
    }

    fn omitted(&self, name: &str) -> bool {
        match name {
            "projection_weights" | "projection_bias" => self.outputs == self.units,
            name if name.contains("aux") => !self.aux || (self.cifg && name.ends_with("to_input_weights")),
            "input_to_input_weights" | "recurrent_to_input_weights" | "input_gate_bias" => self.cifg,
            name if name.starts_with("cell_to") => !self.peephole || (self.cifg && name.contains("input")),
            name if name.contains("layer_norm") => {
                !self.layer_norm || (self.cifg && name.starts_with("input"))
            }
            _ => false,
        }
    }

    fn dims(&self, name: &str) -> Vec<u32> {
        let Plan { batch, time, input, units, outputs, .. } = *self;
        match name {
            "input" | "aux_input" if self.rank_of_input == 3 && self.time_major => vec![time, batch, input],
            "input" | "aux_input" if self.rank_of_input == 3 => vec![batch, time, input],
            "input" => vec![batch, input],
            "state_in" => vec![batch, units * self.memory],
            "weights_time" => vec![units, self.memory],
            "projection_weights" => vec![outputs, units],
            "projection_bias" => vec![outputs],
            "recurrent_weights" => vec![units, units],
            name if name.contains("recurrent") => vec![units, outputs],
            name if name.contains("hidden_state") => vec![batch, outputs],
            name if name.contains("output_state") || name == "prev_output" => vec![batch, outputs],
            name if name.contains("cell_state") => vec![batch, units],
            name if name.starts_with("cell_to") || name.contains("bias") || name.contains("layer_norm") => {
                vec![units]
            }
            _ => vec![units, input],
        }
    }

    fn operand(&self, random: &mut Random, slot: &Slot, row: &Row) -> (TensorInfo, Option<AlignedBuf>) {
        let ty = type_of(slot, row, random);
        let mischief = self.mischief != 0 && random.one_in(self.mischief);
        let mut info = TensorInfo::new(ty, &[]);
        if ty.is_tensor() {
            info.dims = self.dims(slot.name).into();
            (info.scale, info.zero_point) = self.quantisation(slot.name, ty);
        }
        if mischief && ty.is_tensor() {
            match random.below(4) {
                0 => info.dims = (0..random.below(4) + 1).map(|_| random.below(4) as u32).collect(),
                1 => {
                    info.dims =
                        (0..random.below(4) + 1).map(|_| random.pick(&[0, 1, 65_536, u32::MAX])).collect()
                }
                2 => info.scale = random.pick(&[0.0, -1.0, f32::NAN, 1e-40, 1e38, 0.5]),
                _ => info.zero_point = random.pick(&[i32::MIN, i32::MAX, -1, 200]),
            }
        }
        let data = info.byte_size().filter(|&size| size < 1 << 20).map(|size| {
            let bytes: Vec<u8> = if ty.is_scalar() && !mischief {
                self.scalar(random, slot.name)[..size].to_vec()
            } else {
                (0..size).map(|_| random.below(256) as u8).collect()
            };
            AlignedBuf::copy_of(&bytes).unwrap()
        });
        (info, data)
    }

    fn quantisation(&self, name: &str, ty: OperandType) -> (f32, i32) {
        use OperandType::*;
        match ty {
            _ if !self.quantised => (0.0, 0),
            TENSOR_QUANT8_ASYMM => (1.0 / 128.0, 128),
            TENSOR_INT32 => (1.0 / 16_384.0, 0),
            TENSOR_QUANT8_ASYMM_SIGNED => (1.0 / 128.0, 3),
            _ if name.contains("cell_state") => (1.0 / 2048.0, 0),
            _ => (1.0 / 1024.0, 0),
        }
    }

    /// Bytes of a scalar that passes; its first bytes serve for narrower types.
    fn scalar(&self, random: &mut Random, name: &str) -> [u8; 4] {
        match name {
            "activation" => random.pick(&[0i32, 1, 2, 3, 4, 6]).to_ne_bytes(),
            "rank" => 1i32.to_ne_bytes(),
            "time_major" => i32::from(self.time_major).to_ne_bytes(),
            "merge_outputs" => random.pick(&[0i32, 1]).to_ne_bytes(),
            "hidden_state_zero_point" => (-7i32).to_ne_bytes(),
            name if name.contains("scale") => 0.5f32.to_ne_bytes(),
            _ => random.pick(&[0.0f32, 0.5]).to_ne_bytes(),
        }
    }
}

fn count(random: &mut Random, count: Count, slots: usize) -> usize {
    match count {
        Count::OneOf(counts) => random.pick(counts),
        _ => slots,
    }
}

/// One random call; whether it succeeded.
fn call(random: &mut Random, operation: &Operation) -> bool {
    let plan = Plan::new(random, operation);
    let (signature_index, signature) =
        random.pick(&operation.signatures.iter().enumerate().collect::<Vec<_>>());
    let row = random.pick(signature.rows);
    let inputs: Vec<_> = signature.inputs[..count(random, signature.input_count, signature.inputs.len())]
        .iter()
        .map(|slot| {
            let mischief = plan.mischief != 0 && random.one_in(plan.mischief);
            let omitted = slot.optional && plan.omitted(slot.name) != mischief;
            (!omitted).then(|| plan.operand(random, slot, &row))
        })
        .collect();
    let output_count = count(random, signature.output_count, signature.outputs.len());
    let outputs: Vec<_> =
        signature.outputs[..output_count].iter().map(|slot| plan.operand(random, slot, &row).0).collect();
    let args: Vec<_> = inputs
        .iter()
        .map(|input| input.as_ref().map(|(info, data)| Arg { info, data: data.as_deref() }))
        .collect();
    // Validation and compilation see operands without values, and dimensions of which no value could exist.
    let unresolved = Args { signature_index, inputs: &args, outputs: &outputs, interrupt: &NeverInterrupted };
    let _ = (operation.check)(&unresolved);
    if let Run::Shaped { shapes, .. } = operation.run {
        let _ = shapes(&unresolved);
    }
    let all_have_values = args.iter().flatten().all(|arg| arg.data.is_some());
    all_have_values && evaluate(operation, &args, &outputs, &NeverInterrupted).is_ok()
}

#[test]
fn no_call_panics() {
    let mut random = Random::new(7);
    for operation in OPERATIONS {
        let succeeded = (0..3000).filter(|_| call(&mut random, operation)).count();
        assert!(succeeded > 150, "{}: only {succeeded} calls succeeded", operation.ty.name());
    }
}
