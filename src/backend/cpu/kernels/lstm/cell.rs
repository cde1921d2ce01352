//! What an LSTM does with the sums of a step: gates, in loops that compile to vectors. In private memory, and in the order
//! of the plain evaluation.

use super::super::elementwise::math::{logistic, tanh};
use super::super::gemm::Outputs;
use super::super::kernel::input;
use super::super::vector::Loop;
use super::super::Work;
use super::layer::{copy, GateInputs, Lstm};
use crate::memory::View;
use crate::ops::recurrent::{normalise, CellActivation, LstmParams};
use crate::ops::scratch::Scratch;
use crate::ops::OpError;

/// The part of an LSTM that is not a product, as it is during a run.
pub struct Cell<'a> {
    lstm: &'a Lstm,
    gates: Vec<GateVectors>,
    projection_bias: Option<Scratch<f32>>,
}

/// What a gate's sums are multiplied by, or has added to them: an element a unit.
struct GateVectors {
    bias: Scratch<f32>,
    peephole: Option<Scratch<f32>>,
    norm: Option<Scratch<f32>>,
}

impl GateVectors {
    fn read(inputs: &[Option<View<u8>>], gate: &GateInputs, units: usize) -> Result<Self, OpError> {
        let vector = |i: usize| copy(input(inputs, i)?, units);
        Ok(GateVectors {
            bias: vector(gate.bias)?,
            peephole: gate.peephole.map(vector).transpose()?,
            norm: gate.norm.map(vector).transpose()?,
        })
    }
}

/// A step of a whole batch.
pub struct Rows<'a> {
    /// Sums of the inputs, all gates of an element of the batch one after the other.
    pub ahead: &'a [f32],
    /// Sums of the state. Gates are made in their place.
    pub sums: &'a mut [f32],
    pub state: &'a mut [f32],
    /// What the output gate lets through of the state.
    pub shown: &'a mut [f32],
}

impl<'a> Cell<'a> {
    pub fn read(lstm: &'a Lstm, inputs: &[Option<View<u8>>]) -> Result<Self, OpError> {
        let (units, width) = (lstm.call.shape.units as usize, lstm.call.shape.outputs as usize);
        let gates = lstm.gates.iter().map(|gate| GateVectors::read(inputs, gate, units));
        let projection_bias = lstm.projection_bias.map(|i| copy(input(inputs, i)?, width));
        Ok(Cell {
            lstm,
            gates: gates.collect::<Result<_, _>>()?,
            projection_bias: projection_bias.transpose()?,
        })
    }

    /// Updates the state.
    pub fn step(&self, rows: &mut Rows, work: Work) -> Result<(), OpError> {
        let (units, columns) = (self.lstm.call.shape.units as usize, self.lstm.of_state.shape.columns);
        let batch = rows.state.len() / units;
        let [sums, state, shown] =
            [&mut *rows.sums, &mut *rows.state, &mut *rows.shown].map(|all| Outputs(all.as_mut_ptr()));
        let ahead = rows.ahead;
        work.for_each_range(batch, columns.saturating_mul(1500), |range| {
            for b in range {
                let part = |all: Outputs<f32>, len: usize| {
                    // SAFETY: all have `len` elements for each of the batch, and each of those is one call's.
                    unsafe { std::slice::from_raw_parts_mut(all.at(b * len), len) }
                };
                self.lstm.level.run(Element {
                    cell: self,
                    ahead: &ahead[b * columns..][..columns],
                    sums: part(sums, columns),
                    state: part(state, units),
                    shown: part(shown, units),
                });
            }
        })
    }

    /// Adds the bias to a projection of a whole batch, and clips it.
    pub fn finish_projection(&self, hidden: &mut [f32]) {
        let clip = self.lstm.call.params.projection_clip;
        if let Some(bias) = &self.projection_bias {
            hidden.chunks_exact_mut(bias.len()).for_each(|row| add(row, bias));
        }
        hidden.iter_mut().for_each(|x| *x = x.clamp(-clip, clip));
    }
}

/// A step of one element of the batch.
struct Element<'a> {
    cell: &'a Cell<'a>,
    ahead: &'a [f32],
    sums: &'a mut [f32],
    state: &'a mut [f32],
    shown: &'a mut [f32],
}

impl Loop for Element<'_> {
    #[inline(always)]
    fn run(self) {
        let Element { cell: Cell { lstm, gates, .. }, ahead, sums, state, shown } = self;
        let LstmParams { activation, cell_clip, .. } = lstm.call.params;
        add(sums, ahead);
        let (before, output) = sums.split_at_mut(sums.len() - state.len());
        let (before, modulation) = before.split_at_mut(before.len() - state.len());
        let (input, forget) = before.split_at_mut(before.len() - state.len());
        // A coupled input gate has no vectors.
        let [.., forget_vectors, modulation_vectors, output_vectors] = &gates[..] else { return };
        forget_vectors.apply(forget, state);
        activate(CellActivation::Sigmoid, forget);
        if !input.is_empty() {
            gates[0].apply(input, state);
            activate(CellActivation::Sigmoid, input);
        }
        modulation_vectors.apply(modulation, state);
        activate(activation, modulation);
        for (u, c) in state.iter_mut().enumerate() {
            let input = if input.is_empty() { 1.0 - forget[u] } else { input[u] };
            let next = forget[u] * *c + input * modulation[u];
            *c = next.clamp(-cell_clip, cell_clip);
        }
        output_vectors.apply(output, state);
        activate(CellActivation::Sigmoid, output);
        shown.copy_from_slice(state);
        activate(activation, shown);
        shown.iter_mut().zip(output).for_each(|(shown, output)| *shown *= *output);
    }
}

impl GateVectors {
    /// What a gate makes of its sums before its activation.
    #[inline(always)]
    fn apply(&self, sums: &mut [f32], state: &[f32]) {
        if let Some(peephole) = &self.peephole {
            sums.iter_mut().zip(peephole.iter()).zip(state).for_each(|((sum, w), c)| *sum += w * c);
        }
        if let Some(norm) = &self.norm {
            normalise(sums);
            sums.iter_mut().zip(norm.iter()).for_each(|(sum, w)| *sum *= w);
        }
        add(sums, &self.bias);
    }
}

#[inline(always)]
fn add(to: &mut [f32], terms: &[f32]) {
    to.iter_mut().zip(terms).for_each(|(to, term)| *to += term);
}

#[inline(always)]
fn activate(activation: CellActivation, values: &mut [f32]) {
    match activation {
        CellActivation::Tanh => values.iter_mut().for_each(|x| *x = tanh(*x)),
        CellActivation::Sigmoid => values.iter_mut().for_each(|x| *x = logistic(*x)),
        fused => values.iter_mut().for_each(|x| *x = fused.apply(*x)),
    }
}
