//! QUANTIZED_16BIT_LSTM: one step of a long short-term memory layer on 8-bit values with a 16-bit cell.
//!
//! All scales are fixed: inputs and outputs have 1/128 and zero point 128, the cell 2^-11 (4 integer bits).

use super::operands::{centred, dims, elements, expect, not_empty, power_of_two};
use crate::ops::pace::Pace;
use crate::ops::scratch::{copied, copy, filled, reserved};
use crate::ops::signature::{is, join, Row, Slot};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::fixed_point::{logistic, mul, rescale, saturate, tanh};
use crate::tensor::requant::Multiplier;
use crate::tensor::OperandType::*;
use smallvec::smallvec;

const WEIGHTS: [Slot; 8] = [
    is("input_to_input_weights", TENSOR_QUANT8_ASYMM),
    is("input_to_forget_weights", TENSOR_QUANT8_ASYMM),
    is("input_to_cell_weights", TENSOR_QUANT8_ASYMM),
    is("input_to_output_weights", TENSOR_QUANT8_ASYMM),
    is("recurrent_to_input_weights", TENSOR_QUANT8_ASYMM),
    is("recurrent_to_forget_weights", TENSOR_QUANT8_ASYMM),
    is("recurrent_to_cell_weights", TENSOR_QUANT8_ASYMM),
    is("recurrent_to_output_weights", TENSOR_QUANT8_ASYMM),
];

const INPUTS: [Slot; 15] = join(&[
    &[is("input", TENSOR_QUANT8_ASYMM)],
    &WEIGHTS,
    &[is("input_gate_bias", TENSOR_INT32), is("forget_gate_bias", TENSOR_INT32)],
    &[is("cell_bias", TENSOR_INT32), is("output_gate_bias", TENSOR_INT32)],
    &[is("prev_cell_state", TENSOR_QUANT16_SYMM), is("prev_output", TENSOR_QUANT8_ASYMM)],
]);

pub static QUANTIZED_16BIT_LSTM: Operation = Operation {
    ty: OperationType::QUANTIZED_16BIT_LSTM,
    doc: "one step of a long short-term memory layer on 8-bit values with a 16-bit cell",
    signatures: &[Signature::new(
        &[Row(3, &[])],
        &INPUTS,
        &[is("cell_state_out", TENSOR_QUANT16_SYMM), is("output", TENSOR_QUANT8_ASYMM)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

/// First of the 4 input weights, recurrent weights and biases: input, forget, cell, output.
const INPUT_WEIGHTS: usize = 1;
const RECURRENT_WEIGHTS: usize = 5;
const BIASES: usize = 9;
const PREV_CELL: usize = 13;
const PREV_OUTPUT: usize = 14;
/// Integer bits of the cell state, and of what the gates' functions take.
const CELL_BITS: i32 = 4;
const GATE_BITS: i32 = 3;

struct Shape {
    batch: u32,
    input: u32,
    outputs: u32,
}

fn shape(args: &Args) -> Result<Shape, OpError> {
    let [batch, input] = dims(args, 0)?;
    let [_, outputs] = dims(args, PREV_OUTPUT)?;
    not_empty(&[input, outputs])?;
    expect(args, PREV_OUTPUT, &[batch, outputs])?;
    expect(args, PREV_CELL, &[batch, outputs])?;
    let first = args.get(INPUT_WEIGHTS)?;
    for gate in 0..4 {
        expect(args, INPUT_WEIGHTS + gate, &[outputs, input])?;
        expect(args, RECURRENT_WEIGHTS + gate, &[outputs, outputs])?;
        expect(args, BIASES + gate, &[outputs])?;
        for weights in [INPUT_WEIGHTS + gate, RECURRENT_WEIGHTS + gate] {
            expect_quantisation(args, weights, first.scale(), first.zero_point())?;
        }
        expect_quantisation(args, BIASES + gate, first.scale() / 128.0, 0)?;
    }
    if first.scale() <= 0.0 {
        return Err(OpError::failed("the weights' scale must be greater than 0"));
    }
    expect_quantisation(args, 0, 1.0 / 128.0, 128)?;
    expect_quantisation(args, PREV_OUTPUT, 1.0 / 128.0, 128)?;
    let cell = args.get(PREV_CELL)?;
    if power_of_two(cell.scale()) != Some(CELL_BITS - 15) || cell.zero_point() != 0 {
        return Err(OpError::failed(format!("input {PREV_CELL} has scale {}, expected 2^-11", cell.scale())));
    }
    Ok(Shape { batch, input, outputs })
}

fn expect_quantisation(args: &Args, i: usize, scale: f32, zero_point: i32) -> Result<(), OpError> {
    let arg = args.get(i)?;
    if arg.scale() == scale && arg.zero_point() == zero_point {
        return Ok(());
    }
    Err(OpError::failed(format!(
        "input {i} has scale {} and zero point {}, expected {scale} and {zero_point}",
        arg.scale(),
        arg.zero_point()
    )))
}

fn shapes(args: &Args) -> Shapes {
    let Shape { batch, outputs, .. } = shape(args)?;
    Ok(vec![smallvec![batch, outputs]; 2])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let shape = shape(args)?;
    let (input, outputs) = (shape.input as usize, shape.outputs as usize);
    let gates = [0, 1, 2, 3].map(|gate| Gate::load(args, gate));
    let [input_gate, forget_gate, cell_gate, output_gate] = gates;
    let gates = [input_gate?, forget_gate?, cell_gate?, output_gate?];
    let (x, hidden) = (centred(args, 0)?, centred(args, PREV_OUTPUT)?);
    let mut cell = copied(args.interrupt, elements::<i16>(args, PREV_CELL)?)?;
    let mut out = filled(args.interrupt, 0, hidden.len())?;
    let rows = x.chunks_exact(input).zip(hidden.chunks_exact(outputs));
    let states = cell.chunks_exact_mut(outputs).zip(out.chunks_exact_mut(outputs));
    let mut both = reserved(input + outputs)?;
    let mut pace = Pace::new(args);
    for ((x, hidden), (cell, out)) in rows.zip(states) {
        args.interrupt.yield_point()?;
        // TFLite has one weight matrix for the input followed by the state. NNAPI's operands are that matrix cut in
        // two, but with the recurrent columns first: they are applied to the concatenation from its beginning, as the
        // reference does, whatever part of it they meet.
        both.clear();
        for values in [x, hidden] {
            pace.in_stretches(values.len(), 1, |part| both.extend_from_slice(&values[part]))?;
        }
        let (hidden, x) = both.split_at(outputs);
        for (u, (cell, out)) in cell.iter_mut().zip(out).enumerate() {
            let mut sums = [0; 4];
            for (sum, gate) in sums.iter_mut().zip(&gates) {
                *sum = gate.compute(u, x, hidden, &mut pace)?;
            }
            let [i, f, g, o] = sums;
            let modulation = mul(logistic(i), tanh(g, GATE_BITS));
            *cell = rescale(modulation, -CELL_BITS).saturating_add(mul(logistic(f), *cell));
            let activation = tanh(rescale(*cell, CELL_BITS - GATE_BITS), GATE_BITS);
            *out = 128 + i32::from(rescale(mul(logistic(o), activation), -8));
        }
    }
    copy(args.interrupt, outs[0].data, bytemuck::cast_slice(&cell))?;
    outs[1].store_integers(args.interrupt, &out)
}

struct Gate<'a> {
    input: &'a [u8],
    recurrent: &'a [u8],
    bias: &'a [i32],
    zero_point: i32,
    /// From the bias' scale to 3 integer bits.
    rescale: Multiplier,
}

impl<'a> Gate<'a> {
    fn load(args: &Args<'a>, gate: usize) -> Result<Self, OpError> {
        Ok(Gate {
            input: elements(args, INPUT_WEIGHTS + gate)?,
            recurrent: elements(args, RECURRENT_WEIGHTS + gate)?,
            bias: elements(args, BIASES + gate)?,
            zero_point: args.get(INPUT_WEIGHTS)?.zero_point(),
            rescale: Multiplier::new(4096.0 * f64::from(args.get(BIASES + gate)?.scale())),
        })
    }

    /// Unit `u` of the gate before its function, with 3 integer bits.
    fn compute(&self, u: usize, x: &[i32], hidden: &[i32], pace: &mut Pace) -> Result<i16, OpError> {
        let sum = self.bias[u]
            .wrapping_add(self.dot(&self.input[u * x.len()..], x, pace)?)
            .wrapping_add(self.dot(&self.recurrent[u * hidden.len()..], hidden, pace)?);
        Ok(saturate(self.rescale.apply(sum)))
    }

    /// Sum of weights, less their zero point, times values. Wraps, as 32-bit accumulators do.
    fn dot(&self, weights: &[u8], values: &[i32], pace: &mut Pace) -> Result<i32, OpError> {
        let mut sum = 0i32;
        pace.in_stretches(values.len(), 1, |part| {
            for (&weight, &value) in weights[part.clone()].iter().zip(&values[part]) {
                let weight = i32::from(weight).wrapping_sub(self.zero_point);
                sum = sum.wrapping_add(weight.wrapping_mul(value));
            }
        })?;
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::evaluate::evaluate;
    use crate::ops::testing::{call, tensor, Counting, Tensor};
    use crate::ops::Arg;
    use crate::tensor::TensorInfo;

    /// One unit whose weights all stand for 0 and whose biases keep all gates open by half.
    fn one_unit() -> Vec<Option<Tensor>> {
        let byte = |dims: &[u32], scale, value: u8| {
            Some(tensor(TensorInfo::quantised(TENSOR_QUANT8_ASYMM, dims, scale, 128), &[value]))
        };
        let bias = || Some(tensor(TensorInfo::quantised(TENSOR_INT32, &[1], 1.0 / 4096.0, 0), &[0i32]));
        let mut inputs = vec![byte(&[1, 1], 1.0 / 128.0, 255)];
        inputs.extend((0..8).map(|_| byte(&[1, 1], 1.0 / 32.0, 128)));
        inputs.extend((0..4).map(|_| bias()));
        let cell = TensorInfo::quantised(TENSOR_QUANT16_SYMM, &[1, 1], 1.0 / 2048.0, 0);
        inputs.push(Some(tensor(cell, &[2048i16])));
        inputs.push(byte(&[1, 1], 1.0 / 128.0, 128));
        inputs
    }

    fn run(inputs: &[Option<Tensor>]) -> Result<(i16, u8), OpError> {
        let outputs = [
            TensorInfo::quantised(TENSOR_QUANT16_SYMM, &[], 1.0 / 2048.0, 0),
            TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], 1.0 / 128.0, 128),
        ];
        let outputs = call(&QUANTIZED_16BIT_LSTM, inputs, &outputs)?;
        Ok((bytemuck::cast_slice(&outputs[0].data)[0], outputs[1].data[0]))
    }

    #[test]
    fn a_half_open_cell_keeps_half_of_its_state() {
        // cell: 1 / 2; output: tanh(1/2) / 2 = 0.231, that is 29.6 / 128
        assert_eq!(run(&one_unit()), Ok((1024, 128 + 30)));
    }

    #[test]
    fn the_joint_weight_matrix_is_put_together_again() {
        // Weights of 1 that open the output gate by logistic(1) where they meet the input, 127/128.
        let mut inputs = one_unit();
        inputs[4].as_mut().unwrap().data[0] = 128 + 32;
        assert_eq!(run(&inputs), Ok((1024, 128 + 30)), "the input weights meet the state, which is 0");
        inputs[8].as_mut().unwrap().data[0] = 128 + 32;
        assert_eq!(run(&inputs), Ok((1024, 128 + 43)));
    }

    #[test]
    fn operands_must_have_the_fixed_quantisation() {
        for i in 0..15 {
            for (scale, zero_point) in [(0.3, 128), (f32::NAN, 0), (1.0 / 128.0, 1)] {
                let mut inputs = one_unit();
                let info = &mut inputs[i].as_mut().unwrap().info;
                (info.scale, info.zero_point) = (scale, zero_point);
                assert!(run(&inputs).is_err(), "input {i} with {scale} and {zero_point}");
            }
        }
    }

    #[test]
    fn extremes_do_not_overflow() {
        for bias in [i32::MIN, i32::MAX] {
            for (weight, state) in [(0, i16::MIN), (255, i16::MAX)] {
                let mut inputs = one_unit();
                for weights in &mut inputs[1..9] {
                    weights.as_mut().unwrap().data[0] = weight;
                }
                for biases in &mut inputs[9..13] {
                    biases.as_mut().unwrap().data.copy_from_slice(&bias.to_ne_bytes());
                }
                inputs[13].as_mut().unwrap().data.copy_from_slice(&state.to_ne_bytes());
                assert!(run(&inputs).is_ok());
            }
        }
    }

    #[test]
    fn a_very_long_input_is_summed_with_pauses() {
        const LEN: usize = 1 << 20;
        let mut inputs = one_unit();
        for input in &mut inputs[..5] {
            let scale = input.as_ref().unwrap().info.scale;
            let info = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[1, LEN as u32], scale, 128);
            *input = Some(tensor(info, &vec![128u8; LEN]));
        }
        let inputs: Vec<_> =
            inputs.iter().map(|t| t.as_ref().map(|t| Arg { info: &t.info, data: Some(&t.data) })).collect();
        let interrupt = Counting::default();
        let outputs = [
            TensorInfo::quantised(TENSOR_QUANT16_SYMM, &[], 1.0 / 2048.0, 0),
            TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], 1.0 / 128.0, 128),
        ];
        evaluate(&QUANTIZED_16BIT_LSTM, &inputs, &outputs, &interrupt).unwrap();
        // For each of four gates; what is copied comes by fewer.
        let passed = interrupt.take();
        assert!(passed >= 5 * (LEN >> 16), "{passed} yield points");
    }
}
