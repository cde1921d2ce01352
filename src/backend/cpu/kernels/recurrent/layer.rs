//! A float layer in one direction: its products, and the walk through its steps.

use super::super::gemm::{Constants, Float, Outputs, Packed, Shape, MAX_ROWS};
use super::super::isa::Isa;
use super::super::kernel::{input, output};
use super::super::vector::Level;
use super::super::{Source, Work};
use super::cell::{copy, CellVectors, Rows, STRETCH};
use crate::memory::{Target, View};
use crate::ops::pace::Pace;
use crate::ops::recurrent::{Cell, Layer};
use crate::ops::scratch::{filled, reserved, Scratch};
use crate::ops::{self, Args, OpError};

/// A layer with its weights packed.
pub struct PackedLayer {
    level: Level,
    call: Layer,
    /// Those of each of the layer's inputs.
    of_inputs: Vec<Packed<Float>>,
    of_state: Packed<Float>,
    projection: Option<Packed<Float>>,
}

/// The operands that are packed.
pub fn weights(layer: &Layer) -> Vec<usize> {
    let of_inputs = layer.inputs.iter().flat_map(|stepped| &stepped.weights);
    let projection = layer.projection.as_ref().map(|(weights, _)| weights);
    of_inputs.chain(&layer.recurrent).chain(projection).copied().collect()
}

/// Products of a block of rows and one panel: what takes about a millisecond.
const MOST_PRODUCTS: usize = 1 << 25;

/// Units at the most: what becomes of an element's sums is made without a look whether to stop. A layer of more is evaluated
/// plainly.
pub const MOST_UNITS: usize = 1 << 16;

impl PackedLayer {
    pub fn pack(isa: Isa, call: Layer, args: &Args, source: &mut Source) -> Option<Self> {
        let sequence = call.sequence;
        if sequence.rows() == 0 {
            return None;
        }
        let (units, width) = (call.units as usize, call.outputs as usize);
        if units > MOST_UNITS {
            return None;
        }
        let columns = call.recurrent.len().checked_mul(units)?;
        // Sums of a step, or of as many rows as are multiplied at once, have places in memory.
        columns.checked_mul(MAX_ROWS.max(sequence.batch as usize))?.checked_mul(size_of::<f32>())?;
        let mut packed = |rows, weights: &[usize], columns, depth| {
            pack(isa, args, weights, (rows, Shape { columns, segments: 1, depth }), source)
        };
        let batch = sequence.batch as usize;
        let of_inputs =
            call.inputs.iter().map(|x| packed(sequence.rows(), &x.weights, columns, x.size as usize));
        let of_inputs = of_inputs.collect::<Option<_>>()?;
        let of_state = packed(batch, &call.recurrent, columns, width)?;
        let projection = match call.projection {
            Some((weights, _)) => Some(packed(batch, &[weights], width, units)?),
            None => None,
        };
        Some(PackedLayer { level: Level::detect(), call, of_inputs, of_state, projection })
    }

    pub fn name(&self) -> String {
        let cell = match self.call.cell {
            Cell::Rnn(_) => "rnn",
            Cell::Lstm { .. } => "lstm",
        };
        format!("{cell}, gemm {}", self.of_state.micro.name)
    }

    /// In the order in which they were packed.
    pub fn products(&self) -> impl Iterator<Item = &Packed<Float>> {
        self.of_inputs.iter().chain([&self.of_state]).chain(&self.projection)
    }

    /// Sums of a step for an element of the batch.
    fn columns(&self) -> usize {
        self.of_state.shape.columns
    }

    pub fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let Layer { sequence, place, .. } = &self.call;
        let [batch, units, width] =
            [sequence.batch, self.call.units, self.call.outputs].map(|size| size as usize);
        let (steps, columns) = (sequence.steps as usize, self.columns());
        let at_once = (MAX_ROWS / batch).clamp(1, steps);
        let interrupt = work.interrupt;
        let mut hidden = copy(input(inputs, self.call.hidden)?, batch * width, interrupt)?;
        let mut state = match self.call.cell {
            Cell::Lstm { state, .. } => copy(input(inputs, state)?, batch * units, interrupt)?,
            Cell::Rnn(_) => reserved(0)?,
        };
        let mut ahead = filled(interrupt, 0f32, at_once * batch * columns)?;
        let mut more = filled(interrupt, 0f32, if self.of_inputs.len() > 1 { ahead.len() } else { 0 })?;
        let mut sums = filled(interrupt, 0f32, batch * columns)?;
        let mut shown = filled(interrupt, 0f32, batch * units)?;
        let vectors = CellVectors::read(self.level, &self.call, inputs, interrupt)?;
        for turn in 0..steps {
            interrupt.yield_point()?;
            if turn % at_once == 0 {
                let turns = turn..steps.min(turn + at_once);
                self.sum_ahead(inputs, turns, [&mut ahead, &mut more], work)?;
            }
            let from = |b: usize| hidden[b * width..][..width].as_ptr();
            multiply(&self.of_state, batch, from, &mut sums, work)?;
            let ahead = &ahead[turn % at_once * batch * columns..][..batch * columns];
            let mut rows = Rows { ahead, sums: &mut sums, state: &mut state, shown: &mut shown };
            vectors.step(&mut rows, work)?;
            match &self.projection {
                Some(projection) => {
                    let from = |b: usize| shown[b * units..][..units].as_ptr();
                    multiply(projection, batch, from, &mut hidden, work)?;
                    vectors.finish_projection(&mut hidden, interrupt)?;
                }
                None => {
                    ops::copy(interrupt, bytemuck::cast_slice_mut(&mut hidden), bytemuck::cast_slice(&shown))?
                }
            }
            let (mut out, time) = (output::<f32>(outputs, place.output)?, self.call.time(turn));
            let rows = hidden.chunks_exact(width).enumerate();
            Pace::of(interrupt).each(rows, width, |(b, hidden)| {
                let at = sequence.row(time, b) * place.stride as usize + place.first as usize;
                out.copy_from(at, hidden);
            })?;
        }
        for (&i, state) in place.states.iter().zip([&hidden, &state]) {
            let mut out = output(outputs, i)?;
            Pace::of(interrupt)
                .in_stretches(state.len(), 1, |part| out.copy_from(part.start, &state[part]))?;
        }
        Ok(())
    }

    /// The sums of all inputs for some turns, in `sums`; there is room for as many beside them.
    fn sum_ahead(
        &self,
        inputs: &[Option<View<u8>>],
        turns: std::ops::Range<usize>,
        [sums, more]: [&mut [f32]; 2],
        work: Work,
    ) -> Result<(), OpError> {
        let sequence = &self.call.sequence;
        let batch = sequence.batch as usize;
        let row = |i: usize| sequence.row(self.call.time(turns.start + i / batch), i % batch);
        let count = batch * turns.len();
        for (nth, (stepped, packed)) in self.call.inputs.iter().zip(&self.of_inputs).enumerate() {
            let (x, size) = (input::<f32>(inputs, stepped.operand)?, stepped.size as usize);
            let from = |i: usize| x.pointer(row(i) * size, size);
            if nth == 0 {
                multiply(packed, count, from, sums, work)?;
                continue;
            }
            multiply(packed, count, from, more, work)?;
            let len = count * self.columns();
            for (sums, more) in sums[..len].chunks_mut(STRETCH).zip(more.chunks(STRETCH)) {
                work.interrupt.yield_point()?;
                sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            }
        }
        Ok(())
    }
}

/// Rows that are too few for products that want memory besides.
const SOME: usize = 12;

/// Packs the matrices `weights` one below the other, for about so many rows, without a bias: it is added later.
pub fn pack(
    isa: Isa,
    args: &Args,
    weights: &[usize],
    (rows, shape): (usize, Shape),
    source: &mut Source,
) -> Option<Packed<Float>> {
    let joined = match source {
        Source::Pack(..) => Some(join(args, weights, shape.columns)?),
        _ => None,
    };
    let (weights, bias) =
        joined.as_ref().map_or((&[][..], &[][..]), |(weights, bias)| (&weights[..], &bias[..]));
    let constants = || Some(Constants { weights: View::of(weights), bias, interrupt: args.interrupt });
    let range = (f32::NEG_INFINITY, f32::INFINITY);
    let packed = Packed::float(isa, rows.min(SOME), shape, range, source, constants);
    packed.filter(|packed| packed.padded == shape.depth)
}

/// The weights in `inputs`, one after the other, and as many zeros as they have rows.
fn join(args: &Args, inputs: &[usize], columns: usize) -> Option<(Scratch<f32>, Scratch<f32>)> {
    let part = |&i: &usize| args.arg(i).ok()?.elements().ok();
    let parts: Vec<&[f32]> = inputs.iter().map(part).collect::<Option<_>>()?;
    let mut weights = reserved(parts.iter().map(|part| part.len()).sum()).ok()?;
    for part in parts.iter().flat_map(|part| part.chunks(STRETCH)) {
        args.interrupt.yield_point().ok()?;
        weights.extend_from_slice(part);
    }
    Some((weights, filled(args.interrupt, 0.0, columns).ok()?))
}

/// Multiplies `count` rows, each of which begins where `from` says, by all of `packed`, panels shared among threads.
pub fn multiply(
    packed: &Packed<Float>,
    count: usize,
    from: impl Fn(usize) -> *const f32 + Sync,
    to: &mut [f32],
    work: Work,
) -> Result<(), OpError> {
    let columns = packed.shape.columns;
    let to = Outputs(to[..count * columns].as_mut_ptr());
    let panel = packed.padded.saturating_mul(packed.micro.columns).max(1);
    let most = (MOST_PRODUCTS / panel).clamp(1, MAX_ROWS);
    for first in (0..count).step_by(most) {
        let rows = most.min(count - first);
        let picoseconds = rows.saturating_mul(packed.padded).saturating_mul(columns / packed.panels() * 20);
        work.for_each_range(packed.panels(), picoseconds, |panels| {
            let inputs: Vec<*const f32> = (first..first + rows).map(&from).collect();
            let outputs = to.at(first * columns);
            // SAFETY: callers give pointers to rows as long as the packed depth; the outputs are there, and no other
            // range has these panels.
            unsafe { packed.multiply(&inputs, rows, panels, outputs) };
        })?;
    }
    Ok(())
}
