//! The basic recurrent cell that the RNN operations share: hidden = activation(W x + A aux + R hidden + bias).

use super::linear::{add_product, CellActivation};
use super::operands::{dims, expect, floats, floats_if_present, not_empty};
use crate::ops::pace::Pace;
use crate::ops::scratch::{Scratch, Values};
use crate::ops::signature::{var, Slot};
use crate::ops::{Args, OpError};

/// The slots of a cell, in the order of [`RnnLayout::first`].
pub const CELL: [Slot; 4] =
    [var("weights", 0), var("recurrent_weights", 0), var("bias", 0), var("hidden_state_in", 0)];

/// Where the operands of a cell lie among an operation's inputs.
#[derive(Clone, Copy, Debug)]
pub struct RnnLayout {
    /// Weights, recurrent weights, bias and state, in this order.
    pub first: usize,
    /// Weights of the auxiliary input.
    pub aux: Option<usize>,
}

impl RnnLayout {
    pub fn has_aux_weights(&self, args: &Args) -> bool {
        self.aux.is_some_and(|aux| args.opt(aux).is_some())
    }

    /// Checks all operands of the cell and gives its number of units.
    pub fn units(&self, args: &Args, batch: u32, input: u32, aux: u32) -> Result<u32, OpError> {
        let [units, _] = dims(args, self.first)?;
        not_empty(&[input, units])?;
        expect(args, self.first, &[units, input])?;
        expect(args, self.first + 1, &[units, units])?;
        expect(args, self.first + 2, &[units])?;
        expect(args, self.first + 3, &[batch, units])?;
        match self.aux {
            Some(weights) if args.opt(weights).is_some() => expect(args, weights, &[units, aux])?,
            _ => {}
        }
        Ok(units)
    }
}

/// A cell with its state.
pub struct RnnCell<'a> {
    weights: Values<'a, f32>,
    recurrent: Values<'a, f32>,
    bias: Values<'a, f32>,
    aux: Option<Values<'a, f32>>,
    activation: CellActivation,
    pace: Pace<'a>,
    /// State [batch, units].
    pub hidden: Scratch<f32>,
}

impl<'a> RnnCell<'a> {
    /// The cell at `layout`, whose operands have been checked.
    pub fn load(args: &Args<'a>, layout: &RnnLayout, activation: CellActivation) -> Result<Self, OpError> {
        Ok(RnnCell {
            weights: floats(args, layout.first)?,
            recurrent: floats(args, layout.first + 1)?,
            bias: floats(args, layout.first + 2)?,
            aux: layout.aux.map_or(Ok(None), |aux| floats_if_present(args, aux))?,
            activation,
            pace: Pace::new(args),
            hidden: floats(args, layout.first + 3)?.into_owned(args.interrupt)?,
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
        let hidden = &mut self.hidden[batch * self.bias.len()..][..self.bias.len()];
        out.copy_from_slice(&self.bias);
        add_product(&self.weights, x, out, pace)?;
        if let (Some(weights), Some(aux)) = (&self.aux, aux) {
            add_product(weights, aux, out, pace)?;
        }
        add_product(&self.recurrent, hidden, out, pace)?;
        out.iter_mut().for_each(|x| *x = self.activation.apply(*x));
        hidden.copy_from_slice(out);
        Ok(())
    }
}
