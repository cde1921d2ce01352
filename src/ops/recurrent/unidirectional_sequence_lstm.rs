//! UNIDIRECTIONAL_SEQUENCE_LSTM: a long short-term memory layer over a sequence.

use super::layer::{Layer, Place, RecurrentCall};
use super::lstm_cell::{LstmCell, LstmParams, COMMON_INPUTS, LAYER_NORM};
use super::lstm_layout::{LstmLayout, LstmShape};
use super::operands::floats;
use super::sequence::Sequence;
use crate::ops::scratch::filled;
use crate::ops::signature::{boolean, join, var, Row, Slot};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;
use smallvec::smallvec;

const INPUTS: [Slot; 28] = join(&[&COMMON_INPUTS, &[boolean("time_major")], &LAYER_NORM]);

pub static UNIDIRECTIONAL_SEQUENCE_LSTM: Operation = Operation {
    ty: OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM,
    doc: "a long short-term memory layer over a sequence",
    signatures: &[
        Signature::new(
            &[Row(3, &[TENSOR_FLOAT32, FLOAT32]), Row(3, &[TENSOR_FLOAT16, FLOAT16])],
            &INPUTS,
            &[var("output", 0)],
        ),
        Signature::new(
            &[Row(4, &[TENSOR_FLOAT32, FLOAT32]), Row(4, &[TENSOR_FLOAT16, FLOAT16])],
            &INPUTS,
            &[var("output", 0), var("output_state_out", 0), var("cell_state_out", 0)],
        ),
    ],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

const LAYOUT: LstmLayout = LstmLayout { weights: 1, hidden: 18, cell: 19, layer_norm: 24, aux: None };
const PARAMS: usize = 20;
const TIME_MAJOR: usize = 23;

fn shape(args: &Args) -> Result<(Sequence, LstmShape), OpError> {
    let (sequence, input) = Sequence::of_input(args, 0, args.bool(TIME_MAJOR)?)?;
    Ok((sequence, LAYOUT.shape(args, sequence.batch, input, 0)?))
}

impl RecurrentCall {
    /// One of UNIDIRECTIONAL_SEQUENCE_LSTM.
    pub fn of_lstm_sequence(args: &Args) -> Result<Self, OpError> {
        let ((sequence, shape), params) = (shape(args)?, LstmParams::from_inputs(args, PARAMS)?);
        let states = if args.outputs.len() > 1 { &[1, 2][..] } else { &[] };
        let (steps, place) = ((sequence, &[(0, shape.input)][..]), Place::whole(0, shape.outputs, states));
        let layers = vec![Layer::lstm(args, &LAYOUT, &shape, params, steps, place)];
        Ok(RecurrentCall { layers, scratch: None })
    }
}

fn shapes(args: &Args) -> Shapes {
    let (sequence, LstmShape { batch, units, outputs, .. }) = shape(args)?;
    let mut shapes = vec![sequence.dims(outputs), smallvec![batch, outputs], smallvec![batch, units]];
    if args.outputs.len() == 1 {
        shapes.truncate(1);
    }
    Ok(shapes)
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let ((sequence, shape), params) = (shape(args)?, LstmParams::from_inputs(args, PARAMS)?);
    let mut cell = LstmCell::load(args, &LAYOUT, &shape, params)?;
    let (size, outputs) = (shape.input as usize, shape.outputs as usize);
    let x = floats(args, 0)?;
    let mut out = filled(args.interrupt, 0.0, sequence.rows() * outputs)?;
    sequence.walk(false, args.interrupt, |b, row| {
        cell.step(b, &x[row * size..][..size], None, &mut out[row * outputs..][..outputs])
    })?;
    outs[0].store_floats(args.interrupt, &out)?;
    if outs.len() > 1 {
        outs[1].store_floats(args.interrupt, &cell.hidden)?;
        outs[2].store_floats(args.interrupt, &cell.cell)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::lstm::tests::one_unit;
    use super::*;
    use crate::ops::testing::{boolean, call, f32s, Tensor};
    use crate::ops::Computed;
    use crate::tensor::TensorInfo;

    /// The unit of LSTM's tests with the input added to what modulates its cell.
    fn inputs(dims: [u32; 3], x: &[f32], batch: u32, time_major: bool) -> Vec<Option<Tensor>> {
        let mut inputs = one_unit();
        let states = vec![0.0; batch as usize];
        inputs[0] = Some(f32s(&dims, x));
        inputs[3] = Some(f32s(&[1, 1], &[1.0]));
        inputs[14] = Some(f32s(&[1], &[0.0]));
        inputs[18] = Some(f32s(&[batch, 1], &states));
        inputs[19] = Some(f32s(&[batch, 1], &states));
        inputs.push(Some(boolean(time_major)));
        inputs.extend([None, None, None, None]);
        inputs
    }

    fn run(inputs: &[Option<Tensor>], outputs: usize) -> Result<Vec<Computed>, OpError> {
        let outputs = vec![TensorInfo::new(TENSOR_FLOAT32, &[]); outputs];
        call(&UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, &outputs)
    }

    fn values(output: &Computed) -> &[f32] {
        bytemuck::cast_slice(&output.data)
    }

    #[test]
    fn state_passes_from_step_to_step_in_either_layout() {
        // cell: 4 -> 2, then 2 -> 1 + 1 = 2; output: half of the cell
        let out = run(&inputs([2, 1, 1], &[4.0, 2.0], 1, true), 3).unwrap();
        assert_eq!(
            (values(&out[0]), values(&out[1]), values(&out[2])),
            (&[1.0, 1.0][..], &[1.0][..], &[2.0][..])
        );
        let time_major = run(&inputs([2, 2, 1], &[4.0, 8.0, 0.0, 8.0], 2, true), 1).unwrap();
        assert_eq!(values(&time_major[0]), [1.0, 2.0, 0.5, 3.0]);
        let batch_major = run(&inputs([2, 2, 1], &[4.0, 0.0, 8.0, 8.0], 2, false), 1).unwrap();
        assert_eq!(values(&batch_major[0]), [1.0, 0.5, 2.0, 3.0]);
    }

    #[test]
    fn an_empty_sequence_leaves_the_state_as_it_was() {
        let mut args = inputs([0, 1, 1], &[], 1, true);
        args[19] = Some(f32s(&[1, 1], &[7.0]));
        let out = run(&args, 3).unwrap();
        assert_eq!((out[0].dims.as_slice(), values(&out[2])), (&[0, 1, 1][..], &[7.0][..]));
        let none = run(&inputs([u32::MAX, 0, 1], &[], 0, true), 3).unwrap();
        assert_eq!(none[0].dims[..], [u32::MAX, 0, 1]);
    }

    #[test]
    fn counts_of_operands_are_strict() {
        let args = inputs([1, 1, 1], &[1.0], 1, true);
        assert!(run(&args, 2).is_err());
        assert!(run(&args[..27], 1).is_err());
    }
}
