//! What an LSTM's kernel is made of: packed weights, and which operand is what.

use super::super::gemm::{Float, Packed};
use super::super::vector::Level;
use crate::memory::View;
use crate::ops::recurrent::LstmCall;
use crate::ops::scratch::{reserved, Scratch};
use crate::ops::OpError;

/// Which outputs are what; those of the states are 1 and 2, where there are any.
pub struct Places {
    pub rows: usize,
    /// One whose content is not specified: zeros.
    pub scratch: Option<usize>,
}

/// Inputs of a gate besides its weights.
pub struct GateInputs {
    pub bias: usize,
    pub peephole: Option<usize>,
    pub norm: Option<usize>,
}

pub struct Lstm {
    pub level: Level,
    pub call: LstmCall,
    pub places: Places,
    /// In the order in which they lie in sums: without the input gate where it is coupled.
    pub gates: Vec<GateInputs>,
    pub projection_bias: Option<usize>,
    pub of_inputs: Packed<Float>,
    pub of_state: Packed<Float>,
    pub projection: Option<Packed<Float>>,
}

/// A private copy of `count` elements.
pub fn copy(elements: View<f32>, count: usize) -> Result<Scratch<f32>, OpError> {
    let mut copy = reserved(count)?;
    elements.part(0, count).append_to(&mut copy);
    Ok(copy)
}
