//! QUANTIZED_LSTM: one step of a long short-term memory layer on signed 8-bit values with a 16-bit cell.

use super::lstm_layout::{LstmLayout, LstmShape};
use super::operands::{centred, dims};
use super::quantized_lstm_cell::{cell_scale, Parameters, QuantizedLstmCell};
use super::sequence::Sequence;
use crate::ops::scratch::{copy, filled};
use crate::ops::signature::{int, is, join, Row, Slot};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;
use smallvec::smallvec;

const WEIGHTS: [Slot; 17] = [
    is("input_to_input_weights", TENSOR_QUANT8_SYMM).optional(),
    is("input_to_forget_weights", TENSOR_QUANT8_SYMM),
    is("input_to_cell_weights", TENSOR_QUANT8_SYMM),
    is("input_to_output_weights", TENSOR_QUANT8_SYMM),
    is("recurrent_to_input_weights", TENSOR_QUANT8_SYMM).optional(),
    is("recurrent_to_forget_weights", TENSOR_QUANT8_SYMM),
    is("recurrent_to_cell_weights", TENSOR_QUANT8_SYMM),
    is("recurrent_to_output_weights", TENSOR_QUANT8_SYMM),
    is("cell_to_input_weights", TENSOR_QUANT16_SYMM).optional(),
    is("cell_to_forget_weights", TENSOR_QUANT16_SYMM).optional(),
    is("cell_to_output_weights", TENSOR_QUANT16_SYMM).optional(),
    is("input_gate_bias", TENSOR_INT32).optional(),
    is("forget_gate_bias", TENSOR_INT32),
    is("cell_gate_bias", TENSOR_INT32),
    is("output_gate_bias", TENSOR_INT32),
    is("projection_weights", TENSOR_QUANT8_SYMM).optional(),
    is("projection_bias", TENSOR_INT32).optional(),
];

const LAYER_NORM: [Slot; 4] = [
    is("input_layer_norm_weights", TENSOR_QUANT16_SYMM).optional(),
    is("forget_layer_norm_weights", TENSOR_QUANT16_SYMM).optional(),
    is("cell_layer_norm_weights", TENSOR_QUANT16_SYMM).optional(),
    is("output_layer_norm_weights", TENSOR_QUANT16_SYMM).optional(),
];

const SCALARS: [Slot; 8] = [
    is("cell_clip", FLOAT32),
    is("projection_clip", FLOAT32),
    is("input_intermediate_scale", FLOAT32),
    is("forget_intermediate_scale", FLOAT32),
    is("cell_intermediate_scale", FLOAT32),
    is("output_intermediate_scale", FLOAT32),
    int("hidden_state_zero_point"),
    is("hidden_state_scale", FLOAT32),
];

const INPUTS: [Slot; 32] = join(&[
    &[is("input", TENSOR_QUANT8_ASYMM_SIGNED)],
    &WEIGHTS,
    &[is("output_state_in", TENSOR_QUANT8_ASYMM_SIGNED), is("cell_state_in", TENSOR_QUANT16_SYMM)],
    &LAYER_NORM,
    &SCALARS,
]);

pub static QUANTIZED_LSTM: Operation = Operation {
    ty: OperationType::QUANTIZED_LSTM,
    doc: "one step of a long short-term memory layer on signed 8-bit values with a 16-bit cell",
    signatures: &[Signature::new(
        &[Row(4, &[])],
        &INPUTS,
        &[
            is("output_state_out", TENSOR_QUANT8_ASYMM_SIGNED),
            is("cell_state_out", TENSOR_QUANT16_SYMM),
            is("output", TENSOR_QUANT8_ASYMM_SIGNED),
        ],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

const LAYOUT: LstmLayout = LstmLayout { weights: 1, hidden: 18, cell: 19, layer_norm: 20, aux: None };
const PARAMETERS: Parameters = Parameters { intermediate_scales: 26, cell_clip: 24, hidden_zero_point: 30 };

fn shape(args: &Args) -> Result<LstmShape, OpError> {
    let [batch, input] = dims(args, 0)?;
    let shape = LAYOUT.shape(args, batch, input, 0)?;
    cell_scale(args.get(LAYOUT.cell)?.scale())?;
    Ok(shape)
}

fn shapes(args: &Args) -> Shapes {
    let LstmShape { batch, units, outputs, .. } = shape(args)?;
    Ok(vec![smallvec![batch, outputs], smallvec![batch, units], smallvec![batch, outputs]])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let shape = shape(args)?;
    let mut cell = QuantizedLstmCell::load(args, &LAYOUT, &shape, &PARAMETERS)?;
    let (input, outputs) = (shape.input as usize, shape.outputs as usize);
    let x = centred(args, 0)?;
    let mut out = filled(args.interrupt, 0, shape.batch as usize * outputs)?;
    Sequence::single(shape.batch).walk(false, args.interrupt, |b, row| {
        cell.step(b, &x[row * input..][..input], &mut out[row * outputs..][..outputs])
    })?;
    outs[0].store_integers(args.interrupt, &out)?;
    copy(args.interrupt, outs[1].data, bytemuck::cast_slice(&cell.cell))?;
    outs[2].store_integers(args.interrupt, &out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, float, int, tensor, Tensor};
    use crate::tensor::TensorInfo;

    const BIAS_ONE: i32 = 4096;

    fn q8(dims: &[u32], scale: f32, value: i8) -> Option<Tensor> {
        Some(tensor(TensorInfo::quantised(TENSOR_QUANT8_SYMM, dims, scale, 0), &[value]))
    }

    fn q16(dims: &[u32], scale: f32, value: i16) -> Option<Tensor> {
        Some(tensor(TensorInfo::quantised(TENSOR_QUANT16_SYMM, dims, scale, 0), &[value]))
    }

    fn bias(value: i32) -> Option<Tensor> {
        Some(tensor(TensorInfo::new(TENSOR_INT32, &[1]), &[value]))
    }

    fn state(zero_point: i32) -> Option<Tensor> {
        let info = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[1, 1], 1.0 / 128.0, zero_point);
        Some(tensor(info, &[zero_point as i8]))
    }

    /// A unit whose weights are 0, whose gates are open by half, whose cell holds 2 and is modulated by (almost) 1.
    fn one_unit() -> Vec<Option<Tensor>> {
        let mut inputs = vec![state(0)];
        inputs.extend((0..8).map(|_| q8(&[1, 1], 1.0 / 32.0, 0)));
        inputs.extend([None, None, None]);
        inputs.extend([bias(0), bias(0), bias(8 * BIAS_ONE - 1), bias(0), None, None]);
        inputs.extend([state(0), q16(&[1, 1], 1.0 / 2048.0, 4096)]);
        inputs.extend([None, None, None, None]);
        inputs.extend([float(0.0), float(0.0)].map(Some));
        inputs.extend((0..4).map(|_| Some(float(1.0 / 4096.0))));
        inputs.extend([Some(int(0)), Some(float(1.0 / 128.0))]);
        inputs
    }

    /// Cell state, 2048 being 1, and output, 128 being 1.
    fn run(inputs: &[Option<Tensor>]) -> Result<(i16, i8), OpError> {
        let byte = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[], 1.0 / 128.0, 0);
        let cell = TensorInfo::quantised(TENSOR_QUANT16_SYMM, &[], 1.0 / 2048.0, 0);
        let outputs = call(&QUANTIZED_LSTM, inputs, &[byte.clone(), cell, byte])?;
        assert_eq!(outputs[0].data[..], outputs[2].data[..]);
        Ok((bytemuck::cast_slice(&outputs[1].data)[0], outputs[2].data[0] as i8))
    }

    #[test]
    fn gates_mix_state_and_modulation() {
        // cell: 2 / 2 + 1 / 2; output: tanh(1.5) / 2 = 0.4526
        assert_eq!(run(&one_unit()), Ok((3072, 58)));
    }

    #[test]
    fn coupled_gates_need_no_input_gate() {
        let mut inputs = one_unit();
        for i in [1, 5, 12] {
            inputs[i] = None;
        }
        inputs[13] = bias((3f32.ln() * BIAS_ONE as f32) as i32); // forget gate 3/4, so input gate 1/4
        let (cell, _) = run(&inputs).unwrap();
        assert!((cell - 3584).abs() <= 2, "{cell} is not 1.75");
        inputs[1] = q8(&[1, 1], 1.0, 0);
        assert!(run(&inputs).is_err());
    }

    #[test]
    fn the_output_peephole_sees_the_new_cell_state() {
        let mut inputs = one_unit();
        inputs[9] = q16(&[1], 1.0, 0);
        inputs[10] = q16(&[1], 1.0, 0);
        inputs[11] = q16(&[1], 1.0 / 16384.0, 16384); // output gate: logistic(1.5) = 0.8176
        assert_eq!(run(&inputs), Ok((3072, 95)));
    }

    #[test]
    fn clips_and_projection() {
        let mut inputs = one_unit();
        inputs[24] = Some(float(1.0));
        assert_eq!(run(&inputs), Ok((2048, 49)), "tanh(1) / 2 = 0.3808");
        inputs[30] = Some(int(10));
        assert_eq!(
            run(&inputs),
            Ok((2048, 39)),
            "the hidden zero point is subtracted, as the reference does"
        );
        inputs[16] = q8(&[1, 1], 1.0 / 64.0, 64);
        inputs[18] = state(-3);
        assert_eq!(run(&inputs), Ok((2048, 46)), "a projection by 1 undoes the hidden zero point");
        inputs[17] = bias(-9 * 64);
        assert_eq!(run(&inputs), Ok((2048, 37)));
        inputs[25] = Some(float(0.25));
        assert_eq!(run(&inputs), Ok((2048, 29)), "0.25 is 32 above the zero point");
    }

    #[test]
    fn layer_normalisation_comes_before_the_bias() {
        let mut inputs = one_unit();
        inputs[7] = q8(&[1, 1], 1.0, 100); // a single unit is always normalised to 0
        inputs[18] = state(50);
        inputs[20..24].fill(q16(&[1], 1.0 / 1024.0, 1024));
        inputs[14] = bias(8 << 20);
        assert_eq!(run(&inputs), Ok((3072, 58)));
        inputs[22] = None;
        assert!(run(&inputs).is_err());
    }

    #[test]
    fn hostile_scales_are_refused() {
        for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            for i in [26, 27, 28, 29, 31] {
                let mut inputs = one_unit();
                inputs[i] = Some(float(scale));
                assert!(run(&inputs).is_err(), "input {i}: {scale}");
            }
            let mut inputs = one_unit();
            inputs[19] = q16(&[1, 1], scale, 0);
            assert!(run(&inputs).is_err(), "cell scale {scale}");
        }
        for cell_scale in [0.3, 2f32.powi(-16), 2f32.powi(-8)] {
            let mut inputs = one_unit();
            inputs[19] = q16(&[1, 1], cell_scale, 0);
            assert!(run(&inputs).is_err(), "cell scale {cell_scale}");
        }
        for zero_point in [128, -129, i32::MIN] {
            let mut inputs = one_unit();
            inputs[30] = Some(int(zero_point));
            assert!(run(&inputs).is_err());
        }
    }
}
