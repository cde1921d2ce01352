//! The integer LSTM cell: 8-bit inputs, outputs and weights, 16-bit gates and cell; TFLite's arithmetic.
//!
//! It works on operands that [`LstmLayout::shape`] has checked. Where the reference departs from the documentation (it
//! forgets biases without layer normalisation, reads peepholes' cell state before it is written, and scales the
//! projection clip by the weights' scale) this follows the documentation.

use super::linear::FUNCTION;
use super::lstm_cell::clip;
use super::lstm_layout::{Gate, LstmLayout, LstmShape};
use super::operands::{centred, elements, power_of_two};
use crate::ops::pace::Pace;
use crate::ops::scratch::{collected, copied, filled, Scratch};
use crate::ops::{Args, OpError};
use crate::tensor::fixed_point::{logistic, saturate, tanh, LayerNorm, Moments};
use crate::tensor::requant::{rounding_divide_by_pot, Multiplier};
use crate::tensor::TensorInfo;

/// Integer bits of a gate before its function.
const GATE_BITS: i32 = 3;

/// Where the inputs lie that only the integer LSTM has.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// First of four scalars: the scales of the gates' intermediate results.
    pub intermediate_scales: usize,
    /// Scalar, followed by the projection's.
    pub cell_clip: usize,
    /// Scalar, followed by the scale.
    pub hidden_zero_point: usize,
}

/// The multiplier nearest to `real`, which must be positive and finite.
fn multiplier(real: f32, what: &str) -> Result<Multiplier, OpError> {
    if real.is_finite() && real > 0.0 {
        return Ok(Multiplier::new(f64::from(real)));
    }
    Err(OpError::failed(format!("{what} is {real}, must be finite and greater than 0")))
}

/// Sum of weights times values. Wraps, as 32-bit accumulators do.
fn dot(weights: &[i8], values: &[i32], pace: &mut Pace) -> Result<i32, OpError> {
    let mut sum = 0i32;
    pace.in_stretches(weights.len().min(values.len()), 1, |part| {
        let products = weights[part.clone()].iter().zip(&values[part]);
        sum = products.fold(sum, |sum, (&weight, value)| sum.wrapping_add(value.wrapping_mul(weight.into())));
    })?;
    Ok(sum)
}

fn add_saturated(a: i16, b: i32) -> i16 {
    saturate(b.saturating_add(a.into()))
}

struct GateWeights<'a> {
    input: &'a [i8],
    input_scale: Multiplier,
    recurrent: &'a [i8],
    recurrent_scale: Multiplier,
    peephole: Option<(&'a [i16], Multiplier)>,
    layer_norm: Option<(&'a [i16], f32)>,
    bias: &'a [i32],
}

impl<'a> GateWeights<'a> {
    fn load(
        args: &Args<'a>,
        layout: &LstmLayout,
        parameters: &Parameters,
        gate: Gate,
    ) -> Result<Self, OpError> {
        let scale = |i: usize| args.get(i).map(|arg| arg.scale());
        let (input, recurrent) = (layout.input_weights(gate), layout.recurrent_weights(gate));
        let intermediate = args.f32(parameters.intermediate_scales + gate as usize)?;
        let peephole = match layout.peephole(gate) {
            Some(i) if args.opt(i).is_some() => {
                let effective = cell_scale(scale(layout.cell)?)?.0 * scale(i)? / intermediate;
                Some((elements(args, i)?, multiplier(effective, "a gate's peephole scale")?))
            }
            _ => None,
        };
        let norm = layout.layer_norm(gate);
        Ok(GateWeights {
            input: elements(args, input)?,
            input_scale: multiplier(scale(input)? * scale(0)? / intermediate, "a gate's input scale")?,
            recurrent: elements(args, recurrent)?,
            recurrent_scale: multiplier(
                scale(recurrent)? * scale(layout.hidden)? / intermediate,
                "a gate's recurrent scale",
            )?,
            peephole,
            layer_norm: match args.opt(norm) {
                Some(weights) => Some((elements(args, norm)?, weights.scale())),
                None => None,
            },
            bias: elements(args, layout.bias(gate))?,
        })
    }

    /// The gate before its function, with 3 integer bits.
    fn compute(
        &self,
        x: &[i32],
        hidden: &[i32],
        cell: &[i16],
        out: &mut [i16],
        pace: &mut Pace,
    ) -> Result<(), OpError> {
        let rows = self.input.chunks_exact(x.len()).zip(self.recurrent.chunks_exact(hidden.len()));
        for (u, ((input, recurrent), out)) in rows.zip(&mut *out).enumerate() {
            // Layer normalisation adds the bias after it.
            let bias = if self.layer_norm.is_some() { 0 } else { self.bias[u] };
            let of_input = saturate(self.input_scale.apply(dot(input, x, pace)?.wrapping_add(bias)));
            *out = add_saturated(of_input, self.recurrent_scale.apply(dot(recurrent, hidden, pace)?));
        }
        if let Some((weights, scale)) = self.peephole {
            pace.each(out.iter_mut().zip(weights).zip(cell), FUNCTION, |((out, &weight), &cell)| {
                *out = add_saturated(*out, scale.apply(i32::from(weight) * i32::from(cell)));
            })?;
        }
        if let Some((weights, scale)) = self.layer_norm {
            let mut moments = Moments::default();
            pace.each(&*out, 1, |&x| moments.add(x))?;
            let norm = LayerNorm::new(&moments, scale);
            let values = out.iter_mut().zip(weights).zip(self.bias);
            pace.each(values, FUNCTION, |((x, &weight), &bias)| *x = norm.apply(*x, weight, bias))?;
        }
        Ok(())
    }
}

/// The cell's scale, rounded to a power of two, and its integer bits.
pub fn cell_scale(scale: f32) -> Result<(f32, i32), OpError> {
    match power_of_two(scale) {
        // Fewer integer bits than none and more than tanh takes have no 16-bit form.
        Some(exponent @ -15..=-9) => Ok((2f32.powi(exponent), 15 + exponent)),
        _ => Err(OpError::failed(format!(
            "the cell state's scale {scale} is not a power of two, 2^-15 to 2^-9"
        ))),
    }
}

struct Projection<'a> {
    weights: &'a [i8],
    bias: Option<&'a [i32]>,
    scale: Multiplier,
    bounds: (i32, i32),
    zero_point: i32,
}

/// An LSTM with its state.
pub struct QuantizedLstmCell<'a> {
    /// `None` if it is coupled to the forget gate.
    input: Option<GateWeights<'a>>,
    forget: GateWeights<'a>,
    modulation: GateWeights<'a>,
    output: GateWeights<'a>,
    projection: Option<Projection<'a>>,
    units: usize,
    outputs: usize,
    cell_bits: i32,
    cell_clip: Option<i16>,
    hidden_scale: Multiplier,
    hidden_zero_point: i32,
    /// State [batch, outputs], less its zero point.
    hidden: Scratch<i32>,
    /// State [batch, units].
    pub cell: Scratch<i16>,
    scratch: [Scratch<i16>; 4],
    pace: Pace<'a>,
}

impl<'a> QuantizedLstmCell<'a> {
    pub fn load(
        args: &Args<'a>,
        layout: &LstmLayout,
        shape: &LstmShape,
        parameters: &Parameters,
    ) -> Result<Self, OpError> {
        let load = |gate| GateWeights::load(args, layout, parameters, gate);
        let state = args.get(layout.cell)?;
        let cell_clip = clip(args, parameters.cell_clip)? / state.scale();
        let hidden_zero_point = args.i32(parameters.hidden_zero_point)?;
        if i8::try_from(hidden_zero_point).is_err() {
            return Err(OpError::failed(format!(
                "hidden zero point {hidden_zero_point} does not fit 8 bits"
            )));
        }
        let hidden_scale = args.f32(parameters.hidden_zero_point + 1)?;
        let fixed_point_one = 2f32.powi(-15);
        let units = shape.units as usize;
        let scratch = || filled(args.interrupt, 0, units);
        let scratch = [scratch()?, scratch()?, scratch()?, scratch()?];
        Ok(QuantizedLstmCell {
            scratch,
            pace: Pace::new(args),
            input: if shape.cifg { None } else { Some(load(Gate::Input)?) },
            forget: load(Gate::Forget)?,
            modulation: load(Gate::Cell)?,
            output: load(Gate::Output)?,
            projection: projection(args, layout, parameters, hidden_scale)?,
            units,
            outputs: shape.outputs as usize,
            cell_bits: cell_scale(state.scale())?.1,
            cell_clip: (cell_clip >= 1.0 && cell_clip.is_finite())
                .then_some(cell_clip.min(f32::from(i16::MAX)) as i16),
            hidden_scale: multiplier(
                fixed_point_one / hidden_scale * fixed_point_one,
                "the reciprocal of the hidden state's scale",
            )?,
            hidden_zero_point,
            hidden: centred(args, layout.hidden)?,
            cell: copied(args.interrupt, elements(args, layout.cell)?)?,
        })
    }

    /// The step of element `batch` of the batch: takes `x`, less its zero point, updates the cell state, writes `out`.
    pub fn step(&mut self, batch: usize, x: &[i32], out: &mut [i32]) -> Result<(), OpError> {
        let pace = &mut self.pace;
        let hidden = &self.hidden[batch * self.outputs..][..self.outputs];
        let cell = &mut self.cell[batch * self.units..][..self.units];
        let [input, forget, modulation, output] = &mut self.scratch;
        self.forget.compute(x, hidden, cell, forget, pace)?;
        pace.each(&mut **forget, FUNCTION, |x| *x = logistic(*x))?;
        self.modulation.compute(x, hidden, cell, modulation, pace)?;
        match &self.input {
            Some(gate) => {
                gate.compute(x, hidden, cell, input, pace)?;
                pace.each(&mut **input, FUNCTION, |x| *x = logistic(*x))?;
            }
            None => pace.each(input.iter_mut().zip(&**forget), 1, |(input, f)| *input = i16::MAX - f)?,
        }
        pace.each(cell.iter_mut().enumerate(), FUNCTION, |(u, c)| {
            let kept = product(forget[u], *c, 15);
            // From two factors without integer bits to the cell's.
            let added = product(input[u], tanh(modulation[u], GATE_BITS), 15 + self.cell_bits as u32);
            *c = kept.saturating_add(added);
            if let Some(clip) = self.cell_clip {
                *c = (*c).clamp(-clip, clip);
            }
        })?;
        self.output.compute(x, hidden, cell, output, pace)?;
        let hidden = output.iter().zip(&*cell).map(|(&output, &c)| {
            // The zero point is subtracted here and added back by the projection, as the reference does.
            let value = i32::from(logistic(output)) * i32::from(tanh(c, self.cell_bits));
            (self.hidden_scale.apply(value).saturating_sub(self.hidden_zero_point)).clamp(-128, 127)
        });
        match &self.projection {
            None => pace.each(out.iter_mut().zip(hidden), FUNCTION, |(out, hidden)| *out = hidden),
            Some(projection) => {
                let hidden = hidden.map(|q| q + self.hidden_zero_point);
                let hidden = collected(pace.interrupt(), hidden)?;
                projection.apply(&hidden, out, pace)
            }
        }
    }
}

/// Product of 16-bit numbers, divided by a power of two, rounded and saturated.
fn product(a: i16, b: i16, shift: u32) -> i16 {
    saturate(rounding_divide_by_pot(i32::from(a) * i32::from(b), shift))
}

fn projection<'a>(
    args: &Args<'a>,
    layout: &LstmLayout,
    parameters: &Parameters,
    hidden_scale: f32,
) -> Result<Option<Projection<'a>>, OpError> {
    let Some(weights) = args.opt(layout.projection()) else { return Ok(None) };
    let TensorInfo { scale, zero_point, .. } = *args.get(layout.hidden)?.info;
    let limit = clip(args, parameters.cell_clip + 1)? / scale;
    let bounds = if limit >= 1.0 && limit.is_finite() {
        let limit = limit.min(255.0) as i32;
        (zero_point.saturating_sub(limit), zero_point.saturating_add(limit))
    } else {
        (-128, 127)
    };
    Ok(Some(Projection {
        weights: elements(args, layout.projection())?,
        bias: args
            .opt(layout.projection_bias())
            .map(|_| elements(args, layout.projection_bias()))
            .transpose()?,
        scale: multiplier(weights.scale() * hidden_scale / scale, "the projection's scale")?,
        bounds: (bounds.0.max(-128), bounds.1.min(127)),
        zero_point,
    }))
}

impl Projection<'_> {
    /// Projects `hidden`, which is less its zero point.
    fn apply(&self, hidden: &[i32], out: &mut [i32], pace: &mut Pace) -> Result<(), OpError> {
        for (o, (row, out)) in self.weights.chunks_exact(hidden.len()).zip(out).enumerate() {
            let sum = dot(row, hidden, pace)?.wrapping_add(self.bias.map_or(0, |bias| bias[o]));
            let value = self.scale.apply(sum).saturating_add(self.zero_point);
            *out = value.max(self.bounds.0).min(self.bounds.1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::Counting;

    #[test]
    fn a_very_long_row_is_summed_with_pauses() {
        const LEN: usize = (1 << 20) + 1;
        let interrupt = Counting::default();
        let sum = dot(&vec![1; LEN], &vec![2; LEN], &mut Pace::of(&interrupt));
        assert_eq!((sum, interrupt.take()), (Ok(2 * LEN as i32), LEN >> 16));
    }
}
