//! Float recurrent layers as a table of operands: what is multiplied by which weights, what becomes of the sums, and where
//! results go. For those who compute them otherwise than the plain evaluation does; nothing here computes.

use super::linear::CellActivation;
use super::lstm_cell::LstmParams;
use super::lstm_layout::{Gate, LstmLayout, LstmShape};
use super::rnn_cell::RnnLayout;
use super::sequence::Sequence;
use crate::ops::Args;

/// A call of an operation that is made of float recurrent layers.
#[derive(Clone, Debug)]
pub struct RecurrentCall {
    pub layers: Vec<Layer>,
    /// An output whose content is not specified: zeros.
    pub scratch: Option<usize>,
}

/// A layer in one direction. Operands are given by their index.
#[derive(Clone, Debug)]
pub struct Layer {
    pub sequence: Sequence,
    /// It goes against the order of time.
    pub reversed: bool,
    /// What has a vector for each step.
    pub inputs: Vec<Stepped>,
    /// Weights of the hidden state, a matrix for each gate.
    pub recurrent: Vec<usize>,
    /// In the order of the weights. An RNN has one.
    pub gates: Vec<GateOperands>,
    pub cell: Cell,
    /// Weights and bias.
    pub projection: Option<(usize, Option<usize>)>,
    /// The hidden state before the first step.
    pub hidden: usize,
    pub units: u32,
    pub outputs: u32,
    pub place: Place,
}

/// Vectors of a size, one for each step of each element of the batch.
#[derive(Clone, Debug)]
pub struct Stepped {
    pub operand: usize,
    pub size: u32,
    /// A matrix for each gate.
    pub weights: Vec<usize>,
}

/// What belongs to a gate besides its matrices: vectors with an element for each unit.
#[derive(Clone, Copy, Debug)]
pub struct GateOperands {
    pub bias: usize,
    pub peephole: Option<usize>,
    pub norm: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub enum Cell {
    Rnn(CellActivation),
    /// `state`: that of the cell, before the first step. With three gates the input gate is coupled.
    Lstm {
        state: usize,
        params: LstmParams,
    },
}

/// Where a layer's results go.
#[derive(Clone, Debug)]
pub struct Place {
    pub output: usize,
    /// Where a vector of this layer begins in one of the output, and the size of the latter.
    pub first: u32,
    pub stride: u32,
    /// Outputs of the states after the last step, the hidden one first, as far as there are any.
    pub states: Vec<usize>,
}

impl Place {
    /// A whole output.
    pub fn whole(output: usize, size: u32, states: &[usize]) -> Self {
        Place { output, first: 0, stride: size, states: states.to_vec() }
    }
}

impl Layer {
    /// An LSTM that lies at `layout`; `inputs` are operands and the sizes of their vectors, the auxiliary one second.
    pub fn lstm(
        args: &Args,
        layout: &LstmLayout,
        shape: &LstmShape,
        params: LstmParams,
        (sequence, inputs): (Sequence, &[(usize, u32)]),
        place: Place,
    ) -> Self {
        let gates = if shape.cifg { &Gate::ALL[1..] } else { &Gate::ALL };
        let present = |i: usize| args.opt(i).map(|_| i);
        let stepped = |(nth, &(operand, size)): (usize, &(usize, u32))| {
            let weights = |&gate: &Gate| match nth {
                0 => Some(layout.input_weights(gate)),
                _ => layout.aux_weights(gate),
            };
            Stepped { operand, size, weights: gates.iter().filter_map(weights).collect() }
        };
        let operands = |&gate: &Gate| GateOperands {
            bias: layout.bias(gate),
            peephole: layout.peephole(gate).and_then(present),
            norm: present(layout.layer_norm(gate)),
        };
        Layer {
            sequence,
            reversed: false,
            inputs: inputs.iter().enumerate().map(stepped).collect(),
            recurrent: gates.iter().map(|&gate| layout.recurrent_weights(gate)).collect(),
            gates: gates.iter().map(operands).collect(),
            cell: Cell::Lstm { state: layout.cell, params },
            projection: present(layout.projection()).map(|i| (i, present(layout.projection_bias()))),
            hidden: layout.hidden,
            units: shape.units,
            outputs: shape.outputs,
            place,
        }
    }

    /// An RNN that lies at `layout`; `inputs` as above.
    pub fn rnn(
        layout: &RnnLayout,
        activation: CellActivation,
        units: u32,
        (sequence, inputs): (Sequence, &[(usize, u32)]),
        place: Place,
    ) -> Self {
        let weights = [Some(layout.first), layout.aux];
        let stepped = |(&(operand, size), weights): (&(usize, u32), Option<usize>)| Stepped {
            operand,
            size,
            weights: weights.into_iter().collect(),
        };
        Layer {
            sequence,
            reversed: false,
            inputs: inputs.iter().zip(weights).map(stepped).collect(),
            recurrent: vec![layout.first + 1],
            gates: vec![GateOperands { bias: layout.first + 2, peephole: None, norm: None }],
            cell: Cell::Rnn(activation),
            projection: None,
            hidden: layout.first + 3,
            units,
            outputs: units,
            place,
        }
    }

    /// The same against the order of time.
    pub fn reversed(self) -> Self {
        Layer { reversed: true, ..self }
    }

    /// The index of the step that it takes as its `turn`th.
    pub fn time(&self, turn: usize) -> usize {
        match self.reversed {
            true => self.sequence.steps as usize - 1 - turn,
            false => turn,
        }
    }
}
