//! The float LSTM cell that all float LSTM operations share: coupled gates, peepholes, projection, layer normalisation,
//! clipping, auxiliary input.
//!
//! It works on operands that [`LstmLayout::shape`] has checked.

use super::linear::{add_product, dot, sigmoid_all, CellActivation, FUNCTION};
use super::lstm_layout::{Gate, LstmLayout, LstmShape};
use super::operands::{floats, floats_if_present};
use crate::ops::pace::Pace;
use crate::ops::scratch::{self, filled, Scratch};
use crate::ops::signature::{int, join, var, Slot};
use crate::ops::{Args, OpError};

type Values<'a> = scratch::Values<'a, f32>;

/// The 17 slots of an LSTM's weights and biases; types in column 0.
pub const WEIGHTS: [Slot; 17] = [
    var("input_to_input_weights", 0).optional(),
    var("input_to_forget_weights", 0),
    var("input_to_cell_weights", 0),
    var("input_to_output_weights", 0),
    var("recurrent_to_input_weights", 0).optional(),
    var("recurrent_to_forget_weights", 0),
    var("recurrent_to_cell_weights", 0),
    var("recurrent_to_output_weights", 0),
    var("cell_to_input_weights", 0).optional(),
    var("cell_to_forget_weights", 0).optional(),
    var("cell_to_output_weights", 0).optional(),
    var("input_gate_bias", 0).optional(),
    var("forget_gate_bias", 0),
    var("cell_bias", 0),
    var("output_gate_bias", 0),
    var("projection_weights", 0).optional(),
    var("projection_bias", 0).optional(),
];

/// Activation and clips; scalars in column 1.
pub const PARAMETERS: [Slot; 3] = [int("activation"), var("cell_clip", 1), var("projection_clip", 1)];

pub const LAYER_NORM: [Slot; 4] = [
    var("input_layer_norm_weights", 0).optional(),
    var("forget_layer_norm_weights", 0).optional(),
    var("cell_layer_norm_weights", 0).optional(),
    var("output_layer_norm_weights", 0).optional(),
];

/// The inputs that LSTM and UNIDIRECTIONAL_SEQUENCE_LSTM begin with.
pub const COMMON_INPUTS: [Slot; 23] =
    join(&[&[var("input", 0)], &WEIGHTS, &[var("output_state_in", 0), var("cell_state_in", 0)], &PARAMETERS]);

/// Activation and clips of a cell; a clip that is off is infinite.
#[derive(Clone, Copy, Debug)]
pub struct LstmParams {
    pub activation: CellActivation,
    pub cell_clip: f32,
    pub projection_clip: f32,
}

impl LstmParams {
    /// Reads three inputs, the first of which is `first`.
    pub fn from_inputs(args: &Args, first: usize) -> Result<Self, OpError> {
        Ok(LstmParams {
            activation: CellActivation::from_input(args, first)?,
            cell_clip: clip(args, first + 1)?,
            projection_clip: clip(args, first + 2)?,
        })
    }
}

/// The clip in input `i`; infinite if it is 0, which is off.
pub fn clip(args: &Args, i: usize) -> Result<f32, OpError> {
    match args.f32(i)? {
        0.0 => Ok(f32::INFINITY),
        clip if clip > 0.0 => Ok(clip),
        clip => Err(OpError::failed(format!("input {i}: clip {clip} is not 0 (off) or greater"))),
    }
}

/// One gate: what its inputs are multiplied with.
struct GateWeights<'a> {
    input: Values<'a>,
    recurrent: Values<'a>,
    aux: Option<Values<'a>>,
    peephole: Option<Values<'a>>,
    layer_norm: Option<Values<'a>>,
    bias: Values<'a>,
}

impl<'a> GateWeights<'a> {
    fn load(args: &Args<'a>, layout: &LstmLayout, gate: Gate) -> Result<Self, OpError> {
        let optional = |i: Option<usize>| i.map_or(Ok(None), |i| floats_if_present(args, i));
        Ok(GateWeights {
            input: floats(args, layout.input_weights(gate))?,
            recurrent: floats(args, layout.recurrent_weights(gate))?,
            aux: optional(layout.aux_weights(gate))?,
            peephole: optional(layout.peephole(gate))?,
            layer_norm: optional(Some(layout.layer_norm(gate)))?,
            bias: floats(args, layout.bias(gate))?,
        })
    }

    /// The gate's value before its activation.
    fn compute(
        &self,
        (x, aux): (&[f32], Option<&[f32]>),
        hidden: &[f32],
        cell: &[f32],
        out: &mut [f32],
        pace: &mut Pace,
    ) -> Result<(), OpError> {
        pace.each(&mut *out, 1, |out| *out = 0.0)?;
        add_product(&self.input, x, out, pace)?;
        if let (Some(weights), Some(aux)) = (&self.aux, aux) {
            add_product(weights, aux, out, pace)?;
        }
        add_product(&self.recurrent, hidden, out, pace)?;
        if let Some(peephole) = &self.peephole {
            pace.each(out.iter_mut().zip(&**peephole).zip(cell), 1, |((out, w), c)| *out += w * c)?;
        }
        if let Some(weights) = &self.layer_norm {
            normalise(out, pace)?;
            pace.each(out.iter_mut().zip(&**weights), 1, |(out, w)| *out *= w)?;
        }
        pace.each(out.iter_mut().zip(&*self.bias), 1, |(out, bias)| *out += bias)
    }
}

/// Shifts and scales `values` to mean 0 and variance 1.
pub fn normalise(values: &mut [f32], pace: &mut Pace) -> Result<(), OpError> {
    /// Keeps constant vectors finite; the reference's value.
    const EPSILON: f32 = 1e-8;
    let n = values.len() as f32;
    let mut sum = 0.0;
    pace.each(&*values, 1, |x| sum += x)?;
    let mean = sum / n;
    pace.each(&mut *values, 1, |x| *x -= mean)?;
    let scale = 1.0 / (dot(values, values, pace)? / n + EPSILON).sqrt();
    pace.each(values, 1, |x| *x *= scale)
}

/// An LSTM with its state.
pub struct LstmCell<'a> {
    params: LstmParams,
    /// `None` if it is coupled to the forget gate.
    input: Option<GateWeights<'a>>,
    forget: GateWeights<'a>,
    modulation: GateWeights<'a>,
    output: GateWeights<'a>,
    projection: Option<(Values<'a>, Option<Values<'a>>)>,
    units: usize,
    outputs: usize,
    /// State [batch, outputs].
    pub hidden: Scratch<f32>,
    /// State [batch, units].
    pub cell: Scratch<f32>,
    scratch: [Scratch<f32>; 4],
    pace: Pace<'a>,
}

impl<'a> LstmCell<'a> {
    /// The LSTM that lies at `layout`; `shape` is what its operands' check gave.
    pub fn load(
        args: &Args<'a>,
        layout: &LstmLayout,
        shape: &LstmShape,
        params: LstmParams,
    ) -> Result<Self, OpError> {
        let load = |gate| GateWeights::load(args, layout, gate);
        let units = shape.units as usize;
        let projection = match floats_if_present(args, layout.projection())? {
            Some(weights) => Some((weights, floats_if_present(args, layout.projection_bias())?)),
            None => None,
        };
        let scratch = || filled(args.interrupt, 0.0, units);
        let scratch = [scratch()?, scratch()?, scratch()?, scratch()?];
        Ok(LstmCell {
            scratch,
            pace: Pace::new(args),
            params,
            input: if shape.cifg { None } else { Some(load(Gate::Input)?) },
            forget: load(Gate::Forget)?,
            modulation: load(Gate::Cell)?,
            output: load(Gate::Output)?,
            projection,
            units,
            outputs: shape.outputs as usize,
            hidden: floats(args, layout.hidden)?.into_owned(args.interrupt)?,
            cell: floats(args, layout.cell)?.into_owned(args.interrupt)?,
        })
    }

    /// One step of element `batch` of the batch: takes `x` and the auxiliary input, updates the state, writes `out`.
    pub fn step(
        &mut self,
        batch: usize,
        x: &[f32],
        aux: Option<&[f32]>,
        out: &mut [f32],
    ) -> Result<(), OpError> {
        let pace = &mut self.pace;
        let LstmParams { activation, cell_clip, projection_clip } = self.params;
        let hidden = &mut self.hidden[batch * self.outputs..][..self.outputs];
        let cell = &mut self.cell[batch * self.units..][..self.units];
        let [input, forget, modulation, output] = &mut self.scratch;

        self.forget.compute((x, aux), hidden, cell, forget, pace)?;
        sigmoid_all(forget, pace)?;
        match &self.input {
            Some(gate) => {
                gate.compute((x, aux), hidden, cell, input, pace)?;
                sigmoid_all(input, pace)?;
            }
            None => pace.each(input.iter_mut().zip(&**forget), 1, |(input, f)| *input = 1.0 - f)?,
        }
        self.modulation.compute((x, aux), hidden, cell, modulation, pace)?;
        pace.each(cell.iter_mut().enumerate(), FUNCTION, |(u, c)| {
            let next = forget[u] * *c + input[u] * activation.apply(modulation[u]);
            *c = next.clamp(-cell_clip, cell_clip);
        })?;
        self.output.compute((x, aux), hidden, cell, output, pace)?;
        sigmoid_all(output, pace)?;
        pace.each(output.iter_mut().zip(&*cell), FUNCTION, |(output, &c)| *output *= activation.apply(c))?;

        match &self.projection {
            Some((weights, bias)) => {
                match bias {
                    Some(bias) => pace.each(out.iter_mut().zip(&**bias), 1, |(out, &bias)| *out = bias)?,
                    None => pace.each(&mut *out, 1, |out| *out = 0.0)?,
                }
                add_product(weights, output, out, pace)?;
                pace.each(&mut *out, 1, |x| *x = x.clamp(-projection_clip, projection_clip))?;
            }
            None => pace.each(out.iter_mut().zip(&**output), 1, |(out, &output)| *out = output)?,
        }
        pace.each(hidden.iter_mut().zip(out), 1, |(hidden, out)| *hidden = *out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::NeverInterrupted;

    #[test]
    fn normalised_values_have_mean_0_and_variance_1() {
        let mut values = [1.0, 3.0];
        normalise(&mut values, &mut Pace::of(&NeverInterrupted)).unwrap();
        assert_eq!(values, [-1.0, 1.0]);
        let mut constant = [5.0; 3];
        normalise(&mut constant, &mut Pace::of(&NeverInterrupted)).unwrap();
        assert_eq!(constant, [0.0; 3]);
    }
}
