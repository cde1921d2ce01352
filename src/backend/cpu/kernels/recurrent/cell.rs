//! What a layer does with the sums of a step: gates, in loops that compile to vectors. In private memory, and in the order
//! of the plain evaluation.

use super::super::elementwise::math::{logistic, tanh};
use super::super::gemm::Outputs;
use super::super::kernel::input;
use super::super::vector::{fused, Level, Loop};
use super::super::Work;
use crate::memory::View;
use crate::ops::pace::Pace;
use crate::ops::recurrent::{normalise, Cell, CellActivation, GateOperands, Layer, LstmParams};
use crate::ops::scratch::{reserved, Scratch};
use crate::ops::{Interrupt, NeverInterrupted, OpError};

/// Elements that are moved or added up between two looks whether to stop.
pub const STRETCH: usize = 1 << 16;

/// A private copy of `count` elements.
pub fn copy(elements: View<f32>, count: usize, interrupt: &dyn Interrupt) -> Result<Scratch<f32>, OpError> {
    let mut copy = reserved(count)?;
    for start in (0..count).step_by(STRETCH) {
        interrupt.yield_point()?;
        elements.part(start, STRETCH.min(count - start)).append_to(&mut copy);
    }
    Ok(copy)
}

/// The part of a layer that is not a product, as it is during a run.
pub struct CellVectors<'a> {
    level: Level,
    layer: &'a Layer,
    gates: Vec<GateVectors>,
    projection_bias: Option<Scratch<f32>>,
}

/// What a gate's sums are multiplied by, or has added to them: an element a unit.
struct GateVectors {
    bias: Scratch<f32>,
    peephole: Option<Scratch<f32>>,
    norm: Option<Scratch<f32>>,
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

impl<'a> CellVectors<'a> {
    pub fn read(
        level: Level,
        layer: &'a Layer,
        inputs: &[Option<View<u8>>],
        interrupt: &dyn Interrupt,
    ) -> Result<Self, OpError> {
        let (units, width) = (layer.units as usize, layer.outputs as usize);
        let vector = |i: usize, len: usize| copy(input(inputs, i)?, len, interrupt);
        let gate = |gate: &GateOperands| {
            Ok(GateVectors {
                bias: vector(gate.bias, units)?,
                peephole: gate.peephole.map(|i| vector(i, units)).transpose()?,
                norm: gate.norm.map(|i| vector(i, units)).transpose()?,
            })
        };
        let bias = layer.projection.and_then(|(_, bias)| bias);
        Ok(CellVectors {
            level,
            layer,
            gates: layer.gates.iter().map(gate).collect::<Result<_, OpError>>()?,
            projection_bias: bias.map(|i| vector(i, width)).transpose()?,
        })
    }

    /// Updates the state.
    pub fn step(&self, rows: &mut Rows, work: Work) -> Result<(), OpError> {
        let units = self.layer.units as usize;
        let batch = rows.shown.len() / units;
        let columns = rows.sums.len() / batch;
        // An RNN has no state but the hidden one.
        let kept = rows.state.len() / batch;
        let [sums, state, shown] =
            [&mut *rows.sums, &mut *rows.state, &mut *rows.shown].map(|all| Outputs(all.as_mut_ptr()));
        let ahead = rows.ahead;
        work.for_each_range(batch, columns.saturating_mul(1500), |range| {
            for b in range {
                let part = |all: Outputs<f32>, len: usize| {
                    // SAFETY: all have `len` elements for each of the batch, and each of those is one call's.
                    unsafe { std::slice::from_raw_parts_mut(all.at(b * len), len) }
                };
                self.level.run(Element {
                    vectors: self,
                    ahead: &ahead[b * columns..][..columns],
                    sums: part(sums, columns),
                    state: part(state, kept),
                    shown: part(shown, units),
                });
            }
        })
    }

    /// Adds the bias to a projection of a whole batch, and clips it.
    pub fn finish_projection(&self, hidden: &mut [f32], interrupt: &dyn Interrupt) -> Result<(), OpError> {
        let Cell::Lstm { params: LstmParams { projection_clip: clip, .. }, .. } = self.layer.cell else {
            return Ok(());
        };
        for row in hidden.chunks_exact_mut(self.layer.outputs as usize) {
            interrupt.yield_point()?;
            if let Some(bias) = &self.projection_bias {
                add(row, bias);
            }
            row.iter_mut().for_each(|x| *x = x.clamp(-clip, clip));
        }
        Ok(())
    }
}

/// A step of one element of the batch.
struct Element<'a> {
    vectors: &'a CellVectors<'a>,
    ahead: &'a [f32],
    sums: &'a mut [f32],
    state: &'a mut [f32],
    shown: &'a mut [f32],
}

impl Loop for Element<'_> {
    #[inline(always)]
    fn run(self) {
        let Element { vectors: &CellVectors { level, layer, ref gates, .. }, ahead, sums, state, shown } =
            self;
        add(sums, ahead);
        let LstmParams { activation, cell_clip, .. } = match layer.cell {
            Cell::Lstm { params, .. } => params,
            Cell::Rnn(activation) => {
                gates[0].apply(sums, state);
                activate(level, activation, sums);
                shown.copy_from_slice(sums);
                return;
            }
        };
        let (before, output) = sums.split_at_mut(sums.len() - state.len());
        let (before, modulation) = before.split_at_mut(before.len() - state.len());
        let (input, forget) = before.split_at_mut(before.len() - state.len());
        // A coupled input gate has no vectors.
        let [.., forget_vectors, modulation_vectors, output_vectors] = &gates[..] else { return };
        forget_vectors.apply(forget, state);
        activate(level, CellActivation::Sigmoid, forget);
        if !input.is_empty() {
            gates[0].apply(input, state);
            activate(level, CellActivation::Sigmoid, input);
        }
        modulation_vectors.apply(modulation, state);
        activate(level, activation, modulation);
        for (u, c) in state.iter_mut().enumerate() {
            let input = if input.is_empty() { 1.0 - forget[u] } else { input[u] };
            let next = forget[u] * *c + input * modulation[u];
            *c = next.clamp(-cell_clip, cell_clip);
        }
        output_vectors.apply(output, state);
        activate(level, CellActivation::Sigmoid, output);
        shown.copy_from_slice(state);
        activate(level, activation, shown);
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
            // No more units than may be worked on in one go.
            let _ = normalise(sums, &mut Pace::of(&NeverInterrupted));
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
pub fn activate(level: Level, activation: CellActivation, values: &mut [f32]) {
    match activation {
        CellActivation::Tanh => fused!(level, values.iter_mut().for_each(|x| *x = tanh::<FUSED>(*x))),
        CellActivation::Sigmoid => fused!(level, values.iter_mut().for_each(|x| *x = logistic::<FUSED>(*x))),
        fused => values.iter_mut().for_each(|x| *x = fused.apply(*x)),
    }
}
