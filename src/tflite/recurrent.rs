//! Recurrent layers. A state that nobody keeps is zero before every run.

use super::call::{options, Call, Domain, Mapped};
use super::schema::Options;
use crate::ops::OperationType;
use crate::tensor::{OperandType, TensorInfo};

/// Inputs up to the cell state stand in NNAPI's order; layer-norm weights follow there after the options.
const STATE_INPUTS: usize = 20;
const LAYER_NORM_INPUTS: usize = 4;
/// Of activation and cell, which are the last of those.
const STATES: [usize; 2] = [18, 19];

pub fn unidirectional_lstm(call: &mut Call) -> Mapped {
    let (activation, clips, time_major, diagonal) = options!(call, SequenceLstm(o) => (
        o.activation,
        [o.cell_clip, o.proj_clip],
        o.time_major,
        o.diagonal_recurrent
    ));
    if diagonal {
        return Err("NNAPI has no diagonal recurrent weights".into());
    }
    // The same codes on both sides, but for the two that one side lacks.
    if ![0, 1, 3, 4].contains(&activation) {
        return Err(format!("NNAPI's LSTM has no activation {activation}").into());
    }
    let mut operands = Vec::with_capacity(STATE_INPUTS + LAYER_NORM_INPUTS + 4);
    for i in 0..STATE_INPUTS {
        operands.push(optional_input(call, i)?);
    }
    operands.push(call.builder().int(activation.into()));
    operands.extend(clips.map(|clip| call.builder().float(clip)));
    operands.push(call.builder().boolean(time_major));
    for i in STATE_INPUTS..STATE_INPUTS + LAYER_NORM_INPUTS {
        operands.push(optional_input(call, i)?);
    }
    let [activation_state, cell_state] = STATES;
    let states = [call.kept_state(activation_state)?, call.kept_state(cell_state)?];
    match states {
        [None, None] => {
            call.emit_to_output(Domain::Own, OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM, &operands)
        }
        [Some(activation), Some(cell)] => {
            let output = call.output(0)?;
            let outputs = [output, activation, cell];
            call.emit(OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM, &operands, &outputs);
            Ok(())
        }
        _ => Err("one of its states is kept, and the other is not".into()),
    }
}

fn optional_input(call: &mut Call, i: usize) -> Result<i32, super::error::Refusal> {
    if call.has_input(i) {
        return call.input(i);
    }
    Ok(call.builder().omitted(TensorInfo::new(OperandType::TENSOR_FLOAT32, &[])))
}
