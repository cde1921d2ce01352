//! BIDIRECTIONAL_SEQUENCE_LSTM: two long short-term memory layers over a sequence, one in order of time and one against
//! it.

use super::bidirectional::{aux_size, store_states, Linking, Outputs, Rows};
use super::layer::{Layer, RecurrentCall};
use super::lstm_cell::{LstmCell, LstmParams, LAYER_NORM, PARAMETERS, WEIGHTS};
use super::lstm_layout::{LstmLayout, LstmShape};
use super::operands::{floats, floats_if_present};
use super::sequence::Sequence;
use crate::ops::signature::{boolean, join, var, Row, Slot};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;
use smallvec::smallvec;

const AUX_WEIGHTS: [Slot; 4] = [
    var("aux_input_to_input_weights", 0).optional(),
    var("aux_input_to_forget_weights", 0).optional(),
    var("aux_input_to_cell_weights", 0).optional(),
    var("aux_input_to_output_weights", 0).optional(),
];

const INPUTS: [Slot; 61] = join(&[
    &[var("input", 0)],
    &WEIGHTS,
    &WEIGHTS,
    &[var("fw_output_state_in", 0), var("fw_cell_state_in", 0)],
    &[var("bw_output_state_in", 0), var("bw_cell_state_in", 0)],
    &[var("aux_input", 0).optional()],
    &AUX_WEIGHTS,
    &AUX_WEIGHTS,
    &PARAMETERS,
    &[boolean("merge_outputs"), boolean("time_major")],
    &LAYER_NORM,
    &LAYER_NORM,
]);

/// The second is the backward output, or the first state if outputs are merged.
const OUTPUTS: [Slot; 6] = [
    var("fw_output", 0),
    var("bw_output", 0),
    var("fw_output_state_out", 0),
    var("fw_cell_state_out", 0),
    var("bw_output_state_out", 0),
    var("bw_cell_state_out", 0),
];

pub static BIDIRECTIONAL_SEQUENCE_LSTM: Operation = Operation {
    ty: OperationType::BIDIRECTIONAL_SEQUENCE_LSTM,
    doc: "two long short-term memory layers over a sequence, one in order of time and one against it",
    signatures: &[
        Signature::new(
            &[Row(3, &[TENSOR_FLOAT32, FLOAT32]), Row(3, &[TENSOR_FLOAT16, FLOAT16])],
            &INPUTS,
            &OUTPUTS,
        )
        .output_counts(&[1, 2]),
        Signature::new(
            &[Row(4, &[TENSOR_FLOAT32, FLOAT32]), Row(4, &[TENSOR_FLOAT16, FLOAT16])],
            &INPUTS,
            &OUTPUTS,
        )
        .output_counts(&[5, 6]),
    ],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

const FORWARD: LstmLayout = LstmLayout { weights: 1, hidden: 35, cell: 36, layer_norm: 53, aux: Some(40) };
const BACKWARD: LstmLayout = LstmLayout { weights: 18, hidden: 37, cell: 38, layer_norm: 57, aux: Some(44) };
const AUX: usize = 39;
const PARAMS: usize = 48;
const MERGE_OUTPUTS: usize = 51;
const TIME_MAJOR: usize = 52;

struct Shape {
    linking: Linking,
    aux: u32,
    fw: LstmShape,
    bw: LstmShape,
    outputs: Outputs,
}

fn shape(args: &Args) -> Result<Shape, OpError> {
    let (sequence, input) = Sequence::of_input(args, 0, args.bool(TIME_MAJOR)?)?;
    let (fw_weights, bw_weights) = (FORWARD.has_aux_weights(args)?, BACKWARD.has_aux_weights(args)?);
    let linking = Linking::of(args, AUX, fw_weights, bw_weights)?;
    let aux = aux_size(args, AUX, &sequence)?;
    let (bw_input, linked_aux) = linking.sizes(input, aux);
    let fw = FORWARD.shape(args, sequence.batch, input, linked_aux)?;
    let bw = BACKWARD.shape(args, sequence.batch, bw_input, linked_aux)?;
    let merged = args.bool(MERGE_OUTPUTS)?;
    let outputs = Outputs { sequence, fw: fw.outputs, bw: bw.outputs, merged };
    Ok(Shape { linking, aux, fw, bw, outputs })
}

fn shapes(args: &Args) -> Shapes {
    let Shape { fw, bw, outputs, .. } = shape(args)?;
    let states =
        [fw, bw].into_iter().flat_map(|s| [smallvec![s.batch, s.outputs], smallvec![s.batch, s.units]]);
    outputs.shapes(args.outputs.len(), states.collect())
}

impl RecurrentCall {
    /// One of BIDIRECTIONAL_SEQUENCE_LSTM.
    pub fn of_two_lstms(args: &Args) -> Result<Self, OpError> {
        let (shape, params) = (shape(args)?, LstmParams::from_inputs(args, PARAMS)?);
        let sequence = shape.outputs.sequence;
        let [fw_reads, bw_reads] = shape.linking.operands(shape.fw.input, (AUX, shape.aux));
        let [fw_place, bw_place] = shape.outputs.places(args.outputs.len(), 2)?;
        let fw = Layer::lstm(args, &FORWARD, &shape.fw, params, (sequence, &fw_reads), fw_place);
        let bw = Layer::lstm(args, &BACKWARD, &shape.bw, params, (sequence, &bw_reads), bw_place);
        Ok(RecurrentCall { layers: vec![fw, bw.reversed()], scratch: None })
    }
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let shape = shape(args)?;
    let params = LstmParams::from_inputs(args, PARAMS)?;
    let mut fw = LstmCell::load(args, &FORWARD, &shape.fw, params)?;
    let mut bw = LstmCell::load(args, &BACKWARD, &shape.bw, params)?;
    let (x, aux) = (floats(args, 0)?, floats_if_present(args, AUX)?);
    let input = Rows { values: &x, size: shape.fw.input as usize };
    let aux = aux.as_deref().map(|values| Rows { values, size: shape.aux as usize });
    let (bw_input, aux) = shape.linking.rows(input, aux);
    let stored = shape.outputs.run(
        outs,
        args.interrupt,
        |b, row, out| fw.step(b, input.row(row), aux.map(|aux| aux.row(row)), out),
        |b, row, out| bw.step(b, bw_input.row(row), aux.map(|aux| aux.row(row)), out),
    )?;
    store_states(args, outs, stored, &[&fw.hidden, &fw.cell, &bw.hidden, &bw.cell])
}

#[cfg(test)]
mod tests {
    use super::super::lstm::tests::one_unit;
    use super::*;
    use crate::ops::testing::{boolean, call, f32s, float, int, Tensor};
    use crate::tensor::TensorInfo;

    /// Two cells like that of LSTM's tests, without state and with the input added to what modulates them: each step
    /// halves the cell and adds half of the input, and the output is half of the cell. Three steps, time major.
    fn inputs(merge: bool) -> Vec<Option<Tensor>> {
        let mut unit = one_unit();
        unit[3] = Some(f32s(&[1, 1], &[1.0]));
        unit[14] = Some(f32s(&[1], &[0.0]));
        let weights = unit[1..18].to_vec();
        let mut inputs = vec![Some(f32s(&[3, 1, 1], &[8.0, 4.0, 16.0]))];
        inputs.extend(weights.clone());
        inputs.extend(weights);
        inputs.extend(vec![Some(f32s(&[1, 1], &[0.0])); 4]);
        inputs.extend(vec![None; 9]);
        inputs.extend([int(0), float(0.0), float(0.0), boolean(merge), boolean(true)].map(Some));
        inputs.extend(vec![None; 8]);
        inputs
    }

    fn run(inputs: &[Option<Tensor>], outputs: usize) -> Result<Vec<Vec<f32>>, OpError> {
        let outputs = vec![TensorInfo::new(TENSOR_FLOAT32, &[]); outputs];
        let outputs = call(&BIDIRECTIONAL_SEQUENCE_LSTM, inputs, &outputs)?;
        Ok(outputs.iter().map(|out| bytemuck::cast_slice(&out.data).to_vec()).collect())
    }

    #[test]
    fn the_backward_output_stays_in_order_of_time() {
        let out = run(&inputs(false), 6).unwrap();
        assert_eq!(out[..2], [[2.0, 2.0, 5.0], [3.5, 3.0, 4.0]]);
        assert_eq!(out[2..], [[5.0], [10.0], [3.5], [7.0]]);
        let merged = run(&inputs(true), 5).unwrap();
        assert_eq!(merged[0], [2.0, 3.5, 2.0, 3.0, 5.0, 4.0]);
        assert_eq!(merged[1..], out[2..]);
        for (merge, count) in [(true, 2), (true, 6), (false, 1), (false, 5), (false, 4)] {
            assert!(run(&inputs(merge), count).is_err(), "{merge} {count}");
        }
    }

    #[test]
    fn linking_of_the_auxiliary_input() {
        let mut parallel = inputs(false);
        parallel[39] = Some(f32s(&[3, 1, 1], &[0.0, 0.0, 4.0]));
        assert_eq!(run(&parallel, 2).unwrap(), [[2.0, 2.0, 5.0], [0.25, 0.5, 1.0]]);
        parallel[39] = Some(f32s(&[2, 1, 1], &[0.0, 0.0]));
        assert!(run(&parallel, 2).is_err(), "the auxiliary input must have as many steps");

        // Auxiliary vectors of two elements, the first of which adds to what modulates the forward cell.
        let mut cross = inputs(false);
        cross[39] = Some(f32s(&[3, 1, 2], &[4.0, 9.0, 0.0, 9.0, 0.0, 9.0]));
        cross[40..48].fill(Some(f32s(&[1, 2], &[0.0, 0.0])));
        cross[42] = Some(f32s(&[1, 2], &[1.0, 0.0]));
        assert_eq!(run(&cross, 2).unwrap(), [[3.0, 2.5, 5.25], [3.5, 3.0, 4.0]]);
        cross[45] = None;
        assert!(run(&cross, 2).is_err(), "auxiliary weights come all or not at all");
    }

    #[test]
    fn coupled_gates_go_without_auxiliary_weights_of_an_input_gate() {
        let mut cifg = inputs(false);
        cifg[39] = Some(f32s(&[3, 1, 1], &[0.0; 3]));
        cifg[40..48].fill(Some(f32s(&[1, 1], &[0.0])));
        for i in [1, 5, 12, 18, 22, 29] {
            cifg[i] = None;
        }
        assert!(run(&cifg, 2).is_err());
        (cifg[40], cifg[44]) = (None, None);
        assert_eq!(run(&cifg, 2).unwrap(), [[2.0, 2.0, 5.0], [3.5, 3.0, 4.0]]);
    }
}
