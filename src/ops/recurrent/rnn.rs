//! RNN and UNIDIRECTIONAL_SEQUENCE_RNN: a basic recurrent layer, one step or over a sequence.

use super::layer::{Layer, Place, RecurrentCall};
use super::linear::CellActivation;
use super::operands::{dims, floats};
use super::rnn_cell::{RnnCell, RnnLayout, CELL};
use super::sequence::Sequence;
use crate::ops::scratch::{filled, Scratch};
use crate::ops::signature::{int, join, var, Row, Slot};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;
use smallvec::smallvec;

const STEP_INPUTS: [Slot; 6] = join(&[&[var("input", 0)], &CELL, &[int("activation")]]);

pub static RNN: Operation = Operation {
    ty: OperationType::RNN,
    doc: "one step of a basic recurrent layer",
    signatures: &[Signature::new(
        &[Row(1, &[TENSOR_FLOAT32]), Row(3, &[TENSOR_FLOAT16])],
        &STEP_INPUTS,
        &[var("hidden_state_out", 0), var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes: step_shapes, eval: eval_step },
};

/// Its time_major is an INT32, unlike that of all other sequence operations.
const SEQUENCE_INPUTS: [Slot; 7] = join(&[&STEP_INPUTS, &[int("time_major")]]);

pub static UNIDIRECTIONAL_SEQUENCE_RNN: Operation = Operation {
    ty: OperationType::UNIDIRECTIONAL_SEQUENCE_RNN,
    doc: "a basic recurrent layer over a sequence",
    signatures: &[
        Signature::new(
            &[Row(3, &[TENSOR_FLOAT32]), Row(3, &[TENSOR_FLOAT16])],
            &SEQUENCE_INPUTS,
            &[var("output", 0)],
        ),
        Signature::new(
            &[Row(4, &[TENSOR_FLOAT32]), Row(4, &[TENSOR_FLOAT16])],
            &SEQUENCE_INPUTS,
            &[var("output", 0), var("hidden_state_out", 0)],
        ),
    ],
    check: no_check,
    run: Run::Shaped { shapes: sequence_shapes, eval: eval_sequence },
};

const LAYOUT: RnnLayout = RnnLayout { first: 1, aux: None };
const ACTIVATION: usize = 5;
const TIME_MAJOR: usize = 6;

/// The sequence, size of an input vector, units.
type Shape = (Sequence, u32, u32);

fn step_shape(args: &Args) -> Result<Shape, OpError> {
    let [batch, input] = dims(args, 0)?;
    Ok((Sequence::single(batch), input, LAYOUT.units(args, batch, input, 0)?))
}

fn step_shapes(args: &Args) -> Shapes {
    let (sequence, _, units) = step_shape(args)?;
    Ok(vec![smallvec![sequence.batch, units]; 2])
}

fn eval_step(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (out, hidden) = run(args, step_shape(args)?)?;
    outs[0].store_floats(args.interrupt, &hidden)?;
    outs[1].store_floats(args.interrupt, &out)
}

fn sequence_shape(args: &Args) -> Result<Shape, OpError> {
    let time_major = match args.i32(TIME_MAJOR)? {
        0 => false,
        1 => true,
        other => return Err(OpError::failed(format!("input {TIME_MAJOR}: {other} is neither 0 nor 1"))),
    };
    let (sequence, input) = Sequence::of_input(args, 0, time_major)?;
    Ok((sequence, input, LAYOUT.units(args, sequence.batch, input, 0)?))
}

fn sequence_shapes(args: &Args) -> Shapes {
    let (sequence, _, units) = sequence_shape(args)?;
    let mut shapes = vec![sequence.dims(units)];
    if args.outputs.len() > 1 {
        shapes.push(smallvec![sequence.batch, units]);
    }
    Ok(shapes)
}

fn eval_sequence(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (out, hidden) = run(args, sequence_shape(args)?)?;
    outs[0].store_floats(args.interrupt, &out)?;
    outs.get_mut(1).map_or(Ok(()), |state| state.store_floats(args.interrupt, &hidden))
}

impl RecurrentCall {
    /// One of RNN.
    pub fn of_rnn(args: &Args) -> Result<Self, OpError> {
        let shape = step_shape(args)?;
        RecurrentCall::of_shape(args, shape, Place::whole(1, shape.2, &[0]))
    }

    /// One of UNIDIRECTIONAL_SEQUENCE_RNN.
    pub fn of_rnn_sequence(args: &Args) -> Result<Self, OpError> {
        let (shape, states) = (sequence_shape(args)?, if args.outputs.len() > 1 { &[1][..] } else { &[] });
        RecurrentCall::of_shape(args, shape, Place::whole(0, shape.2, states))
    }

    fn of_shape(args: &Args, (sequence, input, units): Shape, place: Place) -> Result<Self, OpError> {
        let activation = CellActivation::from_input(args, ACTIVATION)?;
        let layers = vec![Layer::rnn(&LAYOUT, activation, units, (sequence, &[(0, input)]), place)];
        Ok(RecurrentCall { layers, scratch: None })
    }
}

/// The output and the last state.
fn run(args: &Args, (sequence, input, units): Shape) -> Result<(Scratch<f32>, Scratch<f32>), OpError> {
    let mut cell = RnnCell::load(args, &LAYOUT, CellActivation::from_input(args, ACTIVATION)?)?;
    let (input, units) = (input as usize, units as usize);
    let x = floats(args, 0)?;
    let mut out = filled(args.interrupt, 0.0, sequence.rows() * units)?;
    sequence.walk(false, args.interrupt, |b, row| {
        cell.step(b, &x[row * input..][..input], None, &mut out[row * units..][..units])
    })?;
    Ok((out, cell.hidden))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, f32s, int, Tensor};
    use crate::tensor::TensorInfo;

    /// hidden = max(0, x + hidden / 2 + 1)
    fn inputs(dims: &[u32], x: &[f32], state: &[f32]) -> Vec<Option<Tensor>> {
        let half = f32s(&[1, 1], &[0.5]);
        let one = f32s(&[1, 1], &[1.0]);
        let state = f32s(&[state.len() as u32, 1], state);
        [f32s(dims, x), one, half, f32s(&[1], &[1.0]), state, int(1)].map(Some).into()
    }

    fn run(
        operation: &Operation,
        inputs: &[Option<Tensor>],
        outputs: usize,
    ) -> Result<Vec<Vec<f32>>, OpError> {
        let outputs = vec![TensorInfo::new(TENSOR_FLOAT32, &[]); outputs];
        let outputs = call(operation, inputs, &outputs)?;
        Ok(outputs.iter().map(|out| bytemuck::cast_slice(&out.data).to_vec()).collect())
    }

    #[test]
    fn a_step_gives_the_state_twice() {
        let out = run(&RNN, &inputs(&[2, 1], &[1.0, -9.0], &[4.0, 2.0]), 2).unwrap();
        assert_eq!(out, [[4.0, 0.0], [4.0, 0.0]]);
    }

    #[test]
    fn state_passes_through_a_sequence_in_either_layout() {
        let mut args = inputs(&[2, 2, 1], &[1.0, 2.0, 3.0, 4.0], &[0.0, 10.0]);
        args.push(Some(int(1)));
        let time_major = run(&UNIDIRECTIONAL_SEQUENCE_RNN, &args, 2).unwrap();
        assert_eq!(time_major, [vec![2.0, 8.0, 5.0, 9.0], vec![5.0, 9.0]]);
        args[6] = Some(int(0));
        let batch_major = run(&UNIDIRECTIONAL_SEQUENCE_RNN, &args, 1).unwrap();
        assert_eq!(batch_major, [[2.0, 4.0, 9.0, 9.5]]);
        args[6] = Some(int(2));
        assert!(run(&UNIDIRECTIONAL_SEQUENCE_RNN, &args, 1).is_err());
    }

    #[test]
    fn inconsistent_operands_are_refused() {
        for i in 0..5 {
            for dims in [&[2, 2][..], &[1, 1, 1], &[0, 1], &[1, 0]] {
                let mut args = inputs(&[1, 1], &[1.0], &[0.0]);
                args[i] = Some(f32s(dims, &vec![0.0; dims.iter().product::<u32>() as usize]));
                assert!(run(&RNN, &args, 2).is_err(), "input {i} of {dims:?}");
            }
        }
    }
}
