//! LSTM: one step of a long short-term memory layer.

use super::layer::{Layer, Place, RecurrentCall};
use super::lstm_cell::{LstmCell, LstmParams, COMMON_INPUTS, LAYER_NORM};
use super::lstm_layout::{LstmLayout, LstmShape};
use super::operands::{dims, floats};
use super::sequence::Sequence;
use crate::ops::scratch::filled;
use crate::ops::signature::{join, var, Row, Slot};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;
use smallvec::smallvec;

const WITH_LAYER_NORM: [Slot; 27] = join(&[&COMMON_INPUTS, &LAYER_NORM]);

const OUTPUTS: [Slot; 4] =
    [var("scratch_buffer", 0), var("output_state_out", 0), var("cell_state_out", 0), var("output", 0)];

pub static LSTM: Operation = Operation {
    ty: OperationType::LSTM,
    doc: "one step of a long short-term memory layer",
    signatures: &[
        Signature::new(
            &[Row(1, &[TENSOR_FLOAT32, FLOAT32]), Row(3, &[TENSOR_FLOAT16, FLOAT16])],
            &COMMON_INPUTS,
            &OUTPUTS,
        ),
        Signature::new(
            &[Row(3, &[TENSOR_FLOAT32, FLOAT32]), Row(3, &[TENSOR_FLOAT16, FLOAT16])],
            &WITH_LAYER_NORM,
            &OUTPUTS,
        ),
    ],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

const LAYOUT: LstmLayout = LstmLayout { weights: 1, hidden: 18, cell: 19, layer_norm: 23, aux: None };
const PARAMS: usize = 20;

fn shape(args: &Args) -> Result<LstmShape, OpError> {
    let [batch, input] = dims(args, 0)?;
    LAYOUT.shape(args, batch, input, 0)
}

impl RecurrentCall {
    /// One of LSTM.
    pub fn of_lstm(args: &Args) -> Result<Self, OpError> {
        let (shape, params) = (shape(args)?, LstmParams::from_inputs(args, PARAMS)?);
        let steps = (Sequence::single(shape.batch), &[(0, shape.input)][..]);
        let place = Place::whole(3, shape.outputs, &[1, 2]);
        let layers = vec![Layer::lstm(args, &LAYOUT, &shape, params, steps, place)];
        Ok(RecurrentCall { layers, scratch: Some(0) })
    }
}

fn shapes(args: &Args) -> Shapes {
    let LstmShape { batch, units, outputs, cifg, .. } = shape(args)?;
    let gates = if cifg { 3 } else { 4 };
    let scratch = units.checked_mul(gates).ok_or_else(|| OpError::failed("too many units"))?;
    Ok(vec![
        smallvec![batch, scratch],
        smallvec![batch, outputs],
        smallvec![batch, units],
        smallvec![batch, outputs],
    ])
}

/// The scratch buffer's content is unspecified: it stays zeroed.
fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (shape, params) = (shape(args)?, LstmParams::from_inputs(args, PARAMS)?);
    let mut cell = LstmCell::load(args, &LAYOUT, &shape, params)?;
    let (size, outputs) = (shape.input as usize, shape.outputs as usize);
    let x = floats(args, 0)?;
    let mut out = filled(args.interrupt, 0.0, cell.hidden.len())?;
    Sequence::single(shape.batch).walk(false, args.interrupt, |b, row| {
        cell.step(b, &x[row * size..][..size], None, &mut out[row * outputs..][..outputs])
    })?;
    outs[1].store_floats(args.interrupt, &cell.hidden)?;
    outs[2].store_floats(args.interrupt, &cell.cell)?;
    outs[3].store_floats(args.interrupt, &out)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ops::evaluate::evaluate;
    use crate::ops::testing::{call, f32s, float, int, Counting, Tensor};
    use crate::ops::{Arg, Computed};
    use crate::tensor::TensorInfo;

    /// An LSTM of one unit in which nothing depends on the input: its gates are open by half, its cell is modulated by
    /// 4, it holds 2, its activation is none.
    pub fn one_unit() -> Vec<Option<Tensor>> {
        let zero = || Some(f32s(&[1, 1], &[0.0]));
        let bias = |x| Some(f32s(&[1], &[x]));
        let mut inputs: Vec<Option<Tensor>> = (0..9).map(|_| zero()).collect();
        inputs.extend([None, None, None]);
        inputs.extend([bias(0.0), bias(0.0), bias(4.0), bias(0.0)]);
        inputs.extend([None, None]);
        inputs.extend([zero(), Some(f32s(&[1, 1], &[2.0]))]);
        inputs.extend([Some(int(0)), Some(float(0.0)), Some(float(0.0))]);
        inputs
    }

    fn run(inputs: &[Option<Tensor>]) -> Result<Vec<Computed>, OpError> {
        call(&LSTM, inputs, &vec![TensorInfo::new(TENSOR_FLOAT32, &[]); 4])
    }

    /// Cell state and output, which must equal the hidden state.
    fn state(inputs: &[Option<Tensor>]) -> (f32, f32) {
        let outputs = run(inputs).unwrap();
        let value = |i: usize| bytemuck::cast_slice::<u8, f32>(&outputs[i].data)[0];
        assert_eq!(value(1), value(3));
        (value(2), value(3))
    }

    #[test]
    fn gates_mix_state_and_modulation() {
        let inputs = one_unit();
        assert_eq!(state(&inputs), (0.5 * 2.0 + 0.5 * 4.0, 1.5));
        assert_eq!(run(&inputs).unwrap()[0].dims[..], [1, 4]);
    }

    #[test]
    fn coupled_gates_need_no_input_gate() {
        let mut inputs = one_unit();
        for i in [1, 5, 12] {
            inputs[i] = None;
        }
        inputs[13] = Some(f32s(&[1], &[3f32.ln()])); // the forget gate is open by 3/4, so the input gate by 1/4
        let (cell, output) = state(&inputs);
        assert!((cell - (1.5 + 1.0)).abs() < 1e-6 && (output - 1.25).abs() < 1e-6);
        assert_eq!(run(&inputs).unwrap()[0].dims[..], [1, 3]);
        inputs[5] = Some(f32s(&[1, 1], &[0.0]));
        assert!(run(&inputs).is_err());
    }

    #[test]
    fn the_output_peephole_sees_the_new_cell_state() {
        let mut inputs = one_unit();
        inputs[9] = Some(f32s(&[1], &[0.0]));
        inputs[10] = Some(f32s(&[1], &[0.0]));
        inputs[11] = Some(f32s(&[1], &[3f32.ln() / 3.0])); // opens the output gate by 3/4 for a cell of 3
        let (cell, output) = state(&inputs);
        assert_eq!(cell, 3.0);
        assert!((output - 2.25).abs() < 1e-6);
        inputs[9] = None;
        assert!(run(&inputs).is_err(), "an input gate needs its peephole weights");
    }

    #[test]
    fn clips_and_projection() {
        let mut inputs = one_unit();
        inputs[21] = Some(float(2.5));
        assert_eq!(state(&inputs), (2.5, 1.25));
        inputs[16] = Some(f32s(&[1, 1], &[-2.0]));
        assert_eq!(state(&inputs), (2.5, -2.5));
        inputs[17] = Some(f32s(&[1], &[1.0]));
        assert_eq!(state(&inputs), (2.5, -1.5));
        inputs[22] = Some(float(0.5));
        assert_eq!(state(&inputs), (2.5, -0.5));
        inputs[22] = Some(float(-0.5));
        assert!(run(&inputs).is_err());
    }

    #[test]
    fn layer_normalisation_comes_before_the_bias() {
        let mut inputs = one_unit();
        inputs[7] = Some(f32s(&[1, 1], &[100.0])); // a single unit is always normalised to 0
        inputs[18] = Some(f32s(&[1, 1], &[1.0]));
        inputs.extend((0..4).map(|_| Some(f32s(&[1], &[5.0]))));
        assert_eq!(state(&inputs), (3.0, 1.5));
        inputs[24] = None;
        assert!(run(&inputs).is_err());
    }

    #[test]
    fn inconsistent_operands_are_refused() {
        for i in (2..20).filter(|i| one_unit()[*i].is_some()) {
            for dims in [&[2, 1][..], &[1, 2], &[1, 1, 1], &[0, 1], &[1, 0]] {
                let mut inputs = one_unit();
                inputs[i] = Some(f32s(dims, &vec![0.0; dims.iter().product::<u32>() as usize]));
                assert!(run(&inputs).is_err(), "input {i} of {dims:?}");
            }
        }
        let mut inputs = one_unit();
        inputs[20] = Some(int(5));
        assert!(run(&inputs).is_err(), "no such activation");
    }

    #[test]
    fn a_step_of_very_many_units_gives_way() {
        const UNITS: usize = 1 << 18;
        let vector = |dims: &[u32]| Some(f32s(dims, &vec![0.5; UNITS]));
        let (rows, each) = ([UNITS as u32, 1], [UNITS as u32]);
        let mut inputs = one_unit();
        inputs[1..9].fill(vector(&rows));
        inputs[12..16].fill(vector(&each));
        (inputs[16], inputs[19]) = (vector(&[1, UNITS as u32]), vector(&[1, UNITS as u32]));
        let inputs: Vec<_> =
            inputs.iter().map(|t| t.as_ref().map(|t| Arg { info: &t.info, data: Some(&t.data) })).collect();
        let (interrupt, outputs) = (Counting::default(), vec![TensorInfo::new(TENSOR_FLOAT32, &[]); 4]);
        evaluate(&LSTM, &inputs, &outputs, &interrupt).unwrap();
        // The products and copies come by no more than half as many.
        let passed = interrupt.take();
        assert!(passed >= 200, "{passed} yield points");
    }
}
