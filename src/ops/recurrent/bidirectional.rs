//! What the two bidirectional operations share: how an auxiliary input takes part, and where the two directions' outputs
//! go.

use super::layer::Place;
use super::operands::dims;
use super::sequence::Sequence;
use crate::ops::scratch::filled;
use crate::ops::{Args, Interrupt, OpError, Out};
use crate::tensor::Dims;

/// The part that an auxiliary input takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Linking {
    /// There is none.
    None,
    /// The backward cell reads it in place of the input.
    Parallel,
    /// Both cells read it beside the input, through weights of its own.
    Cross,
}

impl Linking {
    /// From which of the auxiliary input `aux` and its forward and backward weights are given.
    pub fn of(args: &Args, aux: usize, fw_weights: bool, bw_weights: bool) -> Result<Self, OpError> {
        match (args.opt(aux).is_some(), fw_weights, bw_weights) {
            (false, false, false) => Ok(Linking::None),
            (true, false, false) => Ok(Linking::Parallel),
            (true, true, true) => Ok(Linking::Cross),
            _ => Err(OpError::failed(format!(
                "auxiliary weights need the auxiliary input {aux} and come for both directions or for none"
            ))),
        }
    }

    /// The operands that the forward and the backward cell read: `input` is operand 0, `aux` one at `at`.
    pub fn operands(self, input: u32, (at, aux): (usize, u32)) -> [Vec<(usize, u32)>; 2] {
        match self {
            Linking::None => [vec![(0, input)], vec![(0, input)]],
            Linking::Parallel => [vec![(0, input)], vec![(at, aux)]],
            Linking::Cross => [0; 2].map(|_| vec![(0, input), (at, aux)]),
        }
    }

    /// Sizes of an input vector of the backward cell and of an auxiliary vector of both, 0 where there is none.
    pub fn sizes(self, input: u32, aux: u32) -> (u32, u32) {
        match self {
            Linking::None => (input, 0),
            Linking::Parallel => (aux, 0),
            Linking::Cross => (input, aux),
        }
    }

    /// What the backward cell reads as its input, and what both read as their auxiliary input.
    pub fn rows<'a>(self, input: Rows<'a>, aux: Option<Rows<'a>>) -> (Rows<'a>, Option<Rows<'a>>) {
        match self {
            Linking::Parallel => (aux.unwrap_or(input), None),
            Linking::None | Linking::Cross => (input, aux),
        }
    }
}

/// Size of a vector of the auxiliary input, which must go along with `sequence`; 0 if it is left out.
pub fn aux_size(args: &Args, aux: usize, sequence: &Sequence) -> Result<u32, OpError> {
    if args.opt(aux).is_none() {
        return Ok(0);
    }
    let [outer, inner, size] = dims(args, aux)?;
    if sequence.dims(size)[..] == [outer, inner, size] {
        return Ok(size);
    }
    Err(OpError::failed(format!(
        "auxiliary input {aux} has another batch size or number of steps than input 0"
    )))
}

/// Vectors of one size, one after another.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub values: &'a [f32],
    pub size: usize,
}

impl<'a> Rows<'a> {
    pub fn row(&self, i: usize) -> &'a [f32] {
        &self.values[i * self.size..][..self.size]
    }
}

/// The outputs of both directions, in one tensor or in two.
#[derive(Clone, Copy, Debug)]
pub struct Outputs {
    pub sequence: Sequence,
    /// Sizes of an output vector of the forward and of the backward cell.
    pub fw: u32,
    pub bw: u32,
    pub merged: bool,
}

impl Outputs {
    /// Dimensions of the outputs, those of the states after them if there are outputs for these.
    pub fn shapes(&self, count: usize, states: Vec<Dims>) -> Result<Vec<Dims>, OpError> {
        let mut shapes = match self.merged {
            true => {
                let both = self.fw.checked_add(self.bw).ok_or_else(|| OpError::failed("too many outputs"))?;
                vec![self.sequence.dims(both)]
            }
            false => vec![self.sequence.dims(self.fw), self.sequence.dims(self.bw)],
        };
        if count != shapes.len() {
            shapes.extend(states);
        }
        if count != shapes.len() {
            return Err(OpError::failed(format!(
                "{count} outputs do not go with merge_outputs being {}",
                self.merged
            )));
        }
        Ok(shapes)
    }

    /// Where the outputs of the forward and of the backward cell go, of `count` in all; each cell has so many states.
    pub fn places(&self, count: usize, states: usize) -> Result<[Place; 2], OpError> {
        let first = if self.merged { 1 } else { 2 };
        let states = if count > first { states } else { 0 };
        let [fw, bw] = [0, 1].map(|nth| {
            let from = first + nth * states;
            (from..from + states).collect::<Vec<_>>()
        });
        if !self.merged {
            return Ok([Place::whole(0, self.fw, &fw), Place::whole(1, self.bw, &bw)]);
        }
        let stride = self.fw.checked_add(self.bw).ok_or_else(|| OpError::failed("too many outputs"))?;
        let place = |first, states| Place { output: 0, first, stride, states };
        Ok([place(0, fw), place(self.fw, bw)])
    }

    /// Runs both cells and stores their outputs; gives the number of outputs stored. A cell's step takes the index in
    /// the batch, the index of the vector, and where to write its output.
    pub fn run(
        &self,
        outs: &mut [Out],
        interrupt: &dyn Interrupt,
        mut fw: impl FnMut(usize, usize, &mut [f32]) -> Result<(), OpError>,
        mut bw: impl FnMut(usize, usize, &mut [f32]) -> Result<(), OpError>,
    ) -> Result<usize, OpError> {
        let (fw_size, bw_size) = (self.fw as usize, self.bw as usize);
        let rows = self.sequence.rows();
        // Merged, a vector is the forward output followed by the backward one.
        let both = fw_size + bw_size;
        let mut out = filled(interrupt, 0.0, rows * both)?;
        let (fw_stride, bw_start, bw_stride) =
            if self.merged { (both, fw_size, both) } else { (fw_size, rows * fw_size, bw_size) };
        self.sequence.walk(false, interrupt, |b, row| fw(b, row, &mut out[row * fw_stride..][..fw_size]))?;
        self.sequence
            .walk(true, interrupt, |b, row| bw(b, row, &mut out[bw_start + row * bw_stride..][..bw_size]))?;
        if self.merged {
            outs[0].store_floats(interrupt, &out)?;
            return Ok(1);
        }
        let (fw_out, bw_out) = out.split_at(bw_start);
        outs[0].store_floats(interrupt, fw_out)?;
        outs[1].store_floats(interrupt, bw_out)?;
        Ok(2)
    }
}

/// Stores the states in the outputs from `first` on, if there are outputs for them.
pub fn store_states(args: &Args, outs: &mut [Out], first: usize, states: &[&[f32]]) -> Result<(), OpError> {
    let outs = outs.iter_mut().skip(first);
    outs.zip(states).try_for_each(|(out, state)| out.store_floats(args.interrupt, state))
}
