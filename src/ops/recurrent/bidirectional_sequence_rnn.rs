//! BIDIRECTIONAL_SEQUENCE_RNN: two basic recurrent layers over a sequence, one in order of time and one against it.

use super::bidirectional::{aux_size, store_states, Linking, Outputs, Rows};
use super::layer::{Layer, RecurrentCall};
use super::linear::CellActivation;
use super::operands::{floats, floats_if_present};
use super::rnn_cell::{RnnCell, RnnLayout, CELL};
use super::sequence::Sequence;
use crate::ops::signature::{boolean, int, join, var, Row, Slot};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;
use smallvec::smallvec;

const INPUTS: [Slot; 15] = join(&[
    &[var("input", 0)],
    &CELL,
    &CELL,
    &[var("aux_input", 0).optional()],
    &[var("fw_aux_weights", 0).optional(), var("bw_aux_weights", 0).optional()],
    &[int("activation"), boolean("time_major"), boolean("merge_outputs")],
]);

/// The second is the backward output, or the first state if outputs are merged.
const OUTPUTS: [Slot; 4] =
    [var("fw_output", 0), var("bw_output", 0), var("fw_hidden_state_out", 0), var("bw_hidden_state_out", 0)];

pub static BIDIRECTIONAL_SEQUENCE_RNN: Operation = Operation {
    ty: OperationType::BIDIRECTIONAL_SEQUENCE_RNN,
    doc: "two basic recurrent layers over a sequence, one in order of time and one against it",
    signatures: &[
        Signature::new(&[Row(3, &[TENSOR_FLOAT32]), Row(3, &[TENSOR_FLOAT16])], &INPUTS, &OUTPUTS)
            .output_counts(&[1, 2]),
        Signature::new(&[Row(4, &[TENSOR_FLOAT32]), Row(4, &[TENSOR_FLOAT16])], &INPUTS, &OUTPUTS)
            .output_counts(&[3, 4]),
    ],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

const FORWARD: RnnLayout = RnnLayout { first: 1, aux: Some(10) };
const BACKWARD: RnnLayout = RnnLayout { first: 5, aux: Some(11) };
const AUX: usize = 9;
const ACTIVATION: usize = 12;
const TIME_MAJOR: usize = 13;
const MERGE_OUTPUTS: usize = 14;

struct Shape {
    linking: Linking,
    input: u32,
    aux: u32,
    outputs: Outputs,
}

fn shape(args: &Args) -> Result<Shape, OpError> {
    let (sequence, input) = Sequence::of_input(args, 0, args.bool(TIME_MAJOR)?)?;
    let (fw_weights, bw_weights) = (FORWARD.has_aux_weights(args), BACKWARD.has_aux_weights(args));
    let linking = Linking::of(args, AUX, fw_weights, bw_weights)?;
    let aux = aux_size(args, AUX, &sequence)?;
    let (bw_input, linked_aux) = linking.sizes(input, aux);
    let fw = FORWARD.units(args, sequence.batch, input, linked_aux)?;
    let bw = BACKWARD.units(args, sequence.batch, bw_input, linked_aux)?;
    let merged = args.bool(MERGE_OUTPUTS)?;
    Ok(Shape { linking, input, aux, outputs: Outputs { sequence, fw, bw, merged } })
}

fn shapes(args: &Args) -> Shapes {
    let outputs = shape(args)?.outputs;
    let batch = outputs.sequence.batch;
    outputs.shapes(args.outputs.len(), vec![smallvec![batch, outputs.fw], smallvec![batch, outputs.bw]])
}

impl RecurrentCall {
    /// One of BIDIRECTIONAL_SEQUENCE_RNN.
    pub fn of_two_rnns(args: &Args) -> Result<Self, OpError> {
        let (shape, activation) = (shape(args)?, CellActivation::from_input(args, ACTIVATION)?);
        let Outputs { sequence, fw, bw, .. } = shape.outputs;
        let [fw_reads, bw_reads] = shape.linking.operands(shape.input, (AUX, shape.aux));
        let [fw_place, bw_place] = shape.outputs.places(args.outputs.len(), 1)?;
        let fw = Layer::rnn(&FORWARD, activation, fw, (sequence, &fw_reads), fw_place);
        let bw = Layer::rnn(&BACKWARD, activation, bw, (sequence, &bw_reads), bw_place);
        Ok(RecurrentCall { layers: vec![fw, bw.reversed()], scratch: None })
    }
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let shape = shape(args)?;
    let activation = CellActivation::from_input(args, ACTIVATION)?;
    let mut fw = RnnCell::load(args, &FORWARD, activation)?;
    let mut bw = RnnCell::load(args, &BACKWARD, activation)?;
    let (x, aux) = (floats(args, 0)?, floats_if_present(args, AUX)?);
    let input = Rows { values: &x, size: shape.input as usize };
    let aux = aux.as_deref().map(|values| Rows { values, size: shape.aux as usize });
    let (bw_input, aux) = shape.linking.rows(input, aux);
    let stored = shape.outputs.run(
        outs,
        args.interrupt,
        |b, row, out| fw.step(b, input.row(row), aux.map(|aux| aux.row(row)), out),
        |b, row, out| bw.step(b, bw_input.row(row), aux.map(|aux| aux.row(row)), out),
    )?;
    store_states(args, outs, stored, &[&fw.hidden, &bw.hidden])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call, f32s, int, Tensor};
    use crate::tensor::TensorInfo;

    /// Forward: hidden = x + hidden. Backward: hidden = 10 x + hidden. Three steps, then merge_outputs.
    fn inputs(merge: bool) -> Vec<Option<Tensor>> {
        let one = || f32s(&[1, 1], &[1.0]);
        let zero = || f32s(&[1, 1], &[0.0]);
        let bias = || f32s(&[1], &[0.0]);
        let x = f32s(&[3, 1, 1], &[1.0, 2.0, 3.0]);
        let mut inputs: Vec<_> =
            [x, one(), one(), bias(), zero(), f32s(&[1, 1], &[10.0]), one(), bias(), zero()].map(Some).into();
        inputs.extend([None, None, None, Some(int(0)), Some(boolean(true)), Some(boolean(merge))]);
        inputs
    }

    fn run(inputs: &[Option<Tensor>], outputs: usize) -> Result<Vec<Vec<f32>>, OpError> {
        let outputs = vec![TensorInfo::new(TENSOR_FLOAT32, &[]); outputs];
        let outputs = call(&BIDIRECTIONAL_SEQUENCE_RNN, inputs, &outputs)?;
        Ok(outputs.iter().map(|out| bytemuck::cast_slice(&out.data).to_vec()).collect())
    }

    #[test]
    fn the_backward_output_stays_in_order_of_time() {
        let out = run(&inputs(false), 4).unwrap();
        assert_eq!(out, [vec![1.0, 3.0, 6.0], vec![60.0, 50.0, 30.0], vec![6.0], vec![60.0]]);
        let merged = run(&inputs(true), 3).unwrap();
        assert_eq!(merged, [vec![1.0, 60.0, 3.0, 50.0, 6.0, 30.0], vec![6.0], vec![60.0]]);
    }

    #[test]
    fn outputs_must_go_with_merge_outputs() {
        for (merge, fitting) in [(false, [2, 4]), (true, [1, 3])] {
            for count in 0..6 {
                assert_eq!(run(&inputs(merge), count).is_ok(), fitting.contains(&count), "{merge} {count}");
            }
        }
    }

    #[test]
    fn linking_of_the_auxiliary_input() {
        let mut parallel = inputs(false);
        parallel[9] = Some(f32s(&[3, 1, 2], &[1.0, 0.0, 0.0, 1.0, 0.0, 0.0]));
        assert!(run(&parallel, 2).is_err(), "the backward weights are for vectors of 1");
        parallel[5] = Some(f32s(&[1, 2], &[10.0, 100.0]));
        let out = run(&parallel, 2).unwrap();
        assert_eq!(out, [[1.0, 3.0, 6.0], [110.0, 100.0, 0.0]]);

        let mut cross = inputs(false);
        cross[9] = parallel[9].clone();
        cross[10] = Some(f32s(&[1, 2], &[0.0, 0.5]));
        assert!(run(&cross, 2).is_err(), "auxiliary weights come for both directions");
        cross[11] = Some(f32s(&[1, 2], &[1000.0, 0.0]));
        let out = run(&cross, 2).unwrap();
        assert_eq!(out, [[1.0, 3.5, 6.5], [1060.0, 50.0, 30.0]]);
        cross[9] = None;
        assert!(run(&cross, 2).is_err(), "auxiliary weights need an auxiliary input");
    }
}
