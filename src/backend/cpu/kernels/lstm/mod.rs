//! LSTM and UNIDIRECTIONAL_SEQUENCE_LSTM in floats: the inputs of many steps are multiplied at once, states step by step,
//! all gates side by side in one product; `cell` makes gates of the sums, `layer` is what an LSTM is made of.

mod cell;
mod layer;
#[cfg(test)]
mod tests;

use super::gemm::{Constants, Float, Outputs, Packed, Shape, MAX_ROWS};
use super::isa::Isa;
use super::kernel::{input, output};
use super::vector::Level;
use super::{Kernel, Source, Work};
use crate::memory::{Target, View, Weights};
use crate::ops::recurrent::{Gate, LstmCall};
use crate::ops::scratch::{filled, reserved, Scratch};
use crate::ops::{Args, OpError, OperationType};
use crate::tensor::OperandType;
use cell::{Cell, Rows};
use layer::{copy, GateInputs, Lstm, Places};

/// A kernel for this call, if it is one of an LSTM.
pub(super) fn select(
    isa: Isa,
    ty: OperationType,
    args: &Args,
    source: &mut Source,
) -> Option<Box<dyn Kernel>> {
    let (call, places) = match ty {
        OperationType::LSTM => (LstmCall::of_step(args).ok()?, Places { rows: 3, scratch: Some(0) }),
        _ => (LstmCall::of_sequence(args).ok()?, Places { rows: 0, scratch: None }),
    };
    let is_float = args.get(0).ok()?.ty() == OperandType::TENSOR_FLOAT32;
    if !is_float || call.sequence.rows() == 0 {
        return None;
    }
    let (shape, projects) = (call.shape, args.opt(call.layout.projection()).is_some());
    let [size, units, width] = [shape.input, shape.units, shape.outputs].map(|size| size as usize);
    let gates: &[Gate] = if shape.cifg { &Gate::ALL[1..] } else { &Gate::ALL };
    let columns = gates.len().checked_mul(units)?;
    // Sums of a step, or of as many rows as are multiplied at once, have places in memory.
    columns.checked_mul(MAX_ROWS.max(shape.batch as usize))?.checked_mul(size_of::<f32>())?;
    let mut pack = |inputs: &[usize], columns, depth| {
        let joined = match source {
            Source::Pack(..) => Some(join(args, inputs, columns)?),
            _ => None,
        };
        let (weights, bias) =
            joined.as_ref().map_or((&[][..], &[][..]), |(weights, bias)| (&weights[..], &bias[..]));
        let shape = Shape { columns, segments: 1, depth };
        let constants = || Some(Constants { weights: View::of(weights), bias, interrupt: args.interrupt });
        let range = (f32::NEG_INFINITY, f32::INFINITY);
        Packed::float(isa, shape, range, source, constants).filter(|packed| packed.padded == depth)
    };
    let indices = |index: &dyn Fn(Gate) -> usize| gates.iter().map(|&gate| index(gate)).collect::<Vec<_>>();
    let of_inputs = pack(&indices(&|gate| call.layout.input_weights(gate)), columns, size)?;
    let of_state = pack(&indices(&|gate| call.layout.recurrent_weights(gate)), columns, width)?;
    let projection = match projects {
        true => Some(pack(&[call.layout.projection()], width, units)?),
        false => None,
    };
    let present = |i: usize| args.opt(i).map(|_| i);
    let gates = gates.iter().map(|&gate| GateInputs {
        bias: call.layout.bias(gate),
        peephole: call.layout.peephole(gate).and_then(present),
        norm: present(call.layout.layer_norm(gate)),
    });
    Some(Box::new(Lstm {
        level: Level::detect(),
        places,
        gates: gates.collect(),
        projection_bias: present(call.layout.projection_bias()),
        call,
        of_inputs,
        of_state,
        projection,
    }))
}

/// The weights in `inputs`, one after the other, and as many zeros as they have rows: biases are added later.
fn join(args: &Args, inputs: &[usize], columns: usize) -> Option<(Scratch<f32>, Scratch<f32>)> {
    let part = |&i: &usize| args.arg(i).ok()?.elements().ok();
    let parts: Vec<&[f32]> = inputs.iter().map(part).collect::<Option<_>>()?;
    let mut weights = reserved(parts.iter().map(|part| part.len()).sum()).ok()?;
    for part in parts {
        args.interrupt.check().ok()?;
        weights.extend_from_slice(part);
    }
    Some((weights, filled(args.interrupt, 0.0, columns).ok()?))
}

impl Kernel for Lstm {
    fn name(&self) -> String {
        format!("lstm, gemm {}", self.of_inputs.micro.name)
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (sequence, shape) = (self.call.sequence, self.call.shape);
        let [batch, size, units, width] =
            [shape.batch, shape.input, shape.units, shape.outputs].map(|size| size as usize);
        let (steps, columns) = (sequence.steps as usize, self.of_state.shape.columns);
        let at_once = (MAX_ROWS / batch).clamp(1, steps);
        let x = input::<f32>(inputs, 0)?;
        let mut hidden = copy(input(inputs, self.call.layout.hidden)?, batch * width)?;
        let mut state = copy(input(inputs, self.call.layout.cell)?, batch * units)?;
        let mut ahead = filled(work.interrupt, 0f32, at_once * batch * columns)?;
        let mut sums = filled(work.interrupt, 0f32, batch * columns)?;
        let mut shown = filled(work.interrupt, 0f32, batch * units)?;
        let cell = Cell::read(self, inputs)?;
        if let Some(i) = self.places.scratch {
            let mut scratch = output::<f32>(outputs, i)?;
            (0..scratch.len()).for_each(|at| scratch.set(at, 0.0));
        }
        for step in 0..steps {
            work.interrupt.yield_point()?;
            if step % at_once == 0 {
                let rows = batch * at_once.min(steps - step);
                let row = |i: usize| sequence.row(step + i / batch, i % batch);
                let from = |i: usize| x.pointer(row(i) * size, size);
                multiply(&self.of_inputs, rows, from, &mut ahead, work)?;
            }
            let from = |b: usize| hidden[b * width..][..width].as_ptr();
            multiply(&self.of_state, batch, from, &mut sums, work)?;
            let ahead = &ahead[step % at_once * batch * columns..][..batch * columns];
            let mut rows = Rows { ahead, sums: &mut sums, state: &mut state, shown: &mut shown };
            cell.step(&mut rows, work)?;
            match &self.projection {
                Some(projection) => {
                    let from = |b: usize| shown[b * units..][..units].as_ptr();
                    multiply(projection, batch, from, &mut hidden, work)?;
                    cell.finish_projection(&mut hidden);
                }
                None => hidden.copy_from_slice(&shown),
            }
            let mut out = output::<f32>(outputs, self.places.rows)?;
            for (b, hidden) in hidden.chunks_exact(width).enumerate() {
                out.copy_from(sequence.row(step, b) * width, hidden);
            }
        }
        if outputs.len() > 1 {
            output(outputs, 1)?.copy_from(0, &hidden);
            output(outputs, 2)?.copy_from(0, &state);
        }
        Ok(())
    }

    fn weights(&self) -> Vec<&Weights> {
        let products = [&self.of_inputs, &self.of_state].into_iter().chain(&self.projection);
        products.flat_map(Packed::weights).collect()
    }

    fn packed_inputs(&self) -> &'static [usize] {
        match (self.call.shape.cifg, self.projection.is_some()) {
            (false, false) => &[1, 2, 3, 4, 5, 6, 7, 8],
            (false, true) => &[1, 2, 3, 4, 5, 6, 7, 8, 16],
            (true, false) => &[2, 3, 4, 6, 7, 8],
            (true, true) => &[2, 3, 4, 6, 7, 8, 16],
        }
    }
}

/// Multiplies `count` rows, each of which begins where `from` says, by all of `packed`, panels shared among threads.
fn multiply(
    packed: &Packed<Float>,
    count: usize,
    from: impl Fn(usize) -> *const f32 + Sync,
    to: &mut [f32],
    work: Work,
) -> Result<(), OpError> {
    let columns = packed.shape.columns;
    let to = Outputs(to[..count * columns].as_mut_ptr());
    for first in (0..count).step_by(MAX_ROWS) {
        let rows = MAX_ROWS.min(count - first);
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
