//! QUANTIZED_LSTM: one step of a long short-term memory layer on signed 8-bit values with a 16-bit cell.

use super::lstm_layout::{LstmLayout, LstmShape};
use super::operands::{centred, dims, join};
use super::quantized_lstm_cell::{cell_scale, Parameters, QuantizedLstmCell};
use super::sequence::Sequence;
use crate::ops::signature::{int, is, Row, Slot};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;

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
    Ok(vec![vec![batch, outputs], vec![batch, units], vec![batch, outputs]])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let shape = shape(args)?;
    let mut cell = QuantizedLstmCell::load(args, &LAYOUT, &shape, &PARAMETERS)?;
    let (input, outputs) = (shape.input as usize, shape.outputs as usize);
    let x = centred(args, 0)?;
    let mut out = vec![0; shape.batch as usize * outputs];
    Sequence::single(shape.batch).walk(false, args.interrupt, |b, row| {
        cell.step(b, &x[row * input..][..input], &mut out[row * outputs..][..outputs]);
    })?;
    outs[0].store_integers(&out)?;
    outs[1].elements::<i16>()?.copy_from_slice(&cell.cell);
    outs[2].store_integers(&out)
}
