//! Where the operands of an LSTM lie among an operation's inputs, which of them belong together, and what dimensions
//! they must have. Shared by all LSTM operations, quantised ones included.

use super::operands::{all_or_none, dims, expect, expect_if_present, not_empty};
use crate::ops::{Args, OpError};

/// The four gates, in the order in which all groups of operands list them. `Cell` is the gate that modulates the cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    Input,
    Forget,
    Cell,
    Output,
}

impl Gate {
    pub const ALL: [Gate; 4] = [Gate::Input, Gate::Forget, Gate::Cell, Gate::Output];
}

/// Indices of the first operand of each group.
#[derive(Clone, Copy, Debug)]
pub struct LstmLayout {
    /// 17 operands: 4 input weights, 4 recurrent weights, 3 peephole weights (none for the cell gate), 4 biases,
    /// projection weights and bias.
    pub weights: usize,
    /// State [batch, outputs].
    pub hidden: usize,
    /// State [batch, units].
    pub cell: usize,
    /// 4 layer normalisation weights; may lie beyond the end of the inputs.
    pub layer_norm: usize,
    /// 4 weights of the auxiliary input.
    pub aux: Option<usize>,
}

/// The sizes that all operands of an LSTM agree on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LstmShape {
    pub batch: u32,
    pub input: u32,
    pub units: u32,
    pub outputs: u32,
    /// The input gate is coupled to the forget gate: input = 1 - forget.
    pub cifg: bool,
}

impl LstmLayout {
    pub fn input_weights(&self, gate: Gate) -> usize {
        self.weights + gate as usize
    }

    pub fn recurrent_weights(&self, gate: Gate) -> usize {
        self.weights + 4 + gate as usize
    }

    pub fn peephole(&self, gate: Gate) -> Option<usize> {
        match gate {
            Gate::Input => Some(self.weights + 8),
            Gate::Forget => Some(self.weights + 9),
            Gate::Cell => None,
            Gate::Output => Some(self.weights + 10),
        }
    }

    pub fn bias(&self, gate: Gate) -> usize {
        self.weights + 11 + gate as usize
    }

    pub fn projection(&self) -> usize {
        self.weights + 15
    }

    pub fn projection_bias(&self) -> usize {
        self.weights + 16
    }

    pub fn layer_norm(&self, gate: Gate) -> usize {
        self.layer_norm + gate as usize
    }

    pub fn aux_weights(&self, gate: Gate) -> Option<usize> {
        self.aux.map(|aux| aux + gate as usize)
    }

    /// Whether all weights of the auxiliary input are given; an error if only some are. An LSTM with coupled gates has
    /// none for its input gate.
    pub fn has_aux_weights(&self, args: &Args) -> Result<bool, OpError> {
        let Some(aux) = self.aux else { return Ok(false) };
        let first = usize::from(args.opt(self.input_weights(Gate::Input)).is_none());
        if first == 1 && args.opt(aux).is_some() {
            return Err(OpError::failed(format!("input {aux} is given, but there is no input gate")));
        }
        all_or_none(args, &(aux + first..aux + 4).collect::<Vec<_>>())
    }

    /// Checks all operands of the LSTM, for a batch of `batch` vectors of `input` elements and, where its weights are
    /// given, an auxiliary input of `aux` elements.
    pub fn shape(&self, args: &Args, batch: u32, input: u32, aux: u32) -> Result<LstmShape, OpError> {
        let cifg = !all_or_none(
            args,
            &[self.input_weights(Gate::Input), self.recurrent_weights(Gate::Input), self.bias(Gate::Input)],
        )?;
        let [units, _] = dims(args, self.input_weights(Gate::Output))?;
        let [_, outputs] = dims(args, self.recurrent_weights(Gate::Output))?;
        let shape = LstmShape { batch, input, units, outputs, cifg };
        not_empty(&[input, units, outputs])?;
        self.check_groups(args, cifg)?;
        for gate in Gate::ALL {
            self.check_gate(args, gate, &shape, aux)?;
        }
        if args.opt(self.projection()).is_some() {
            expect(args, self.projection(), &[outputs, units])?;
            expect_if_present(args, self.projection_bias(), &[outputs])?;
        } else if outputs != units {
            return Err(OpError::failed(format!(
                "{outputs} outputs for {units} units, but there is no projection"
            )));
        }
        expect(args, self.hidden, &[batch, outputs])?;
        expect(args, self.cell, &[batch, units])?;
        Ok(shape)
    }

    /// Operands that may only be given together.
    fn check_groups(&self, args: &Args, cifg: bool) -> Result<(), OpError> {
        let peephole = all_or_none(args, &[self.weights + 9, self.weights + 10])?;
        let input_peephole = args.opt(self.weights + 8).is_some();
        // With coupled gates the input gate's peephole weights have no use; they are tolerated, as the reference does.
        if input_peephole != peephole && (input_peephole || !cifg) {
            return Err(OpError::failed(format!(
                "inputs {} to {} must be given all or not at all",
                self.weights + 8,
                self.weights + 10
            )));
        }
        let norm = all_or_none(args, &[self.layer_norm + 1, self.layer_norm + 2, self.layer_norm + 3])?;
        if args.opt(self.layer_norm).is_some() != (norm && !cifg) {
            return Err(OpError::failed(format!(
                "input {} must be given if and only if there are an input gate and layer normalisation",
                self.layer_norm
            )));
        }
        if args.opt(self.projection_bias()).is_some() && args.opt(self.projection()).is_none() {
            return Err(OpError::failed(format!(
                "input {} is given, but there is no projection",
                self.projection_bias()
            )));
        }
        Ok(())
    }

    fn check_gate(&self, args: &Args, gate: Gate, shape: &LstmShape, aux: u32) -> Result<(), OpError> {
        let LstmShape { input, units, outputs, cifg, .. } = *shape;
        if !(cifg && gate == Gate::Input) {
            expect(args, self.input_weights(gate), &[units, input])?;
            expect(args, self.recurrent_weights(gate), &[units, outputs])?;
            expect(args, self.bias(gate), &[units])?;
        }
        if let Some(peephole) = self.peephole(gate) {
            expect_if_present(args, peephole, &[units])?;
        }
        if let Some(weights) = self.aux_weights(gate) {
            expect_if_present(args, weights, &[units, aux])?;
        }
        expect_if_present(args, self.layer_norm(gate), &[units])
    }
}
