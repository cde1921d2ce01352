//! Weights and bias of 8-bit types in the form that quads are multiplied with.

use super::super::gemm::{Lanes, Requant, Requantisation};
use super::super::Source;
use super::layout::{number, CHANNELS, QUAD, ROWS};
use super::quads::Quads;
use crate::memory::Weights;
use crate::ops::conv::DepthwiseGeometry;
use crate::ops::pace::Pace;
use crate::ops::{Arg, Args};
use crate::tensor::OperandType;

/// Channels that are gone through between two looks whether to stop.
const RUN: usize = 4096;

/// Weights and bias on their way into their packed form.
pub struct Packing<'a> {
    pub geometry: &'a DepthwiseGeometry,
    pub input_zero: u8,
    pub weight_zero: i32,
    /// For how many rows of outputs, one below the other, weights lie beside the rows of one quad.
    pub rows: usize,
}

impl Packing<'_> {
    fn channels(&self) -> usize {
        self.geometry.input.channels * self.geometry.multiplier
    }

    /// The weights, and what turns sums of them into bytes.
    pub fn weights_for<Q: Quads>(
        &self,
        args: &Args,
        source: &mut Source,
        requantisation: &Requantisation,
    ) -> Option<(Weights, Requant)> {
        let requant = Requant::new(requantisation, Q::V::FORM, Q::V::LANES, 0)?;
        Some((self.weights::<Q>(args, source)?, requant))
    }

    /// Quads of weights, `[block of channels][row of outputs][group of rows][column]`.
    fn weights<Q: Quads>(&self, args: &Args, source: &mut Source) -> Option<Weights> {
        let (height, width, channels) =
            (self.geometry.height.kernel, self.geometry.width.kernel, self.channels());
        let (groups, blocks) = (height.div_ceil(ROWS), channels.div_ceil(CHANNELS));
        let quads = blocks.checked_mul(self.rows)?.checked_mul(groups)?.checked_mul(width)?;
        source.take::<Q::Weight>(quads.checked_mul(QUAD)?, |to| {
            let (filter, mut pace) = (args.arg(1).ok()?, Pace::new(args));
            let (weights, flip) = (filter.bytes().ok()?, flip(&filter));
            let weights = (weights.len() == height * width * channels).then_some(weights)?;
            for (cell, weights) in weights.chunks_exact(channels).enumerate() {
                let (row, column) = (cell / width, cell % width);
                for (row, below) in (0..self.rows).map(|below| (row + below, below)) {
                    for (block, weights) in weights.chunks(CHANNELS).enumerate() {
                        let quad = ((block * self.rows + below) * groups + row / ROWS) * width + column;
                        let quad = &mut to[quad * QUAD..][..QUAD];
                        for (c, &weight) in weights.iter().enumerate() {
                            quad[Q::place(c, row % ROWS)] = ((weight ^ flip) as i8).into();
                        }
                        pace.spend(2 * QUAD).ok()?;
                    }
                }
            }
            Some(())
        })
    }

    /// The bias, with what the zero points add to the sum of the plain products.
    pub fn bias(&self, args: &Args, source: &mut Source) -> Option<Weights> {
        let channels = self.channels();
        source.take::<i32>(channels.next_multiple_of(CHANNELS), |to| {
            let (filter, arg, mut pace) = (args.arg(1).ok()?, args.get(2).ok()?, Pace::new(args));
            let (weights, flip) = (filter.bytes().ok()?, flip(&filter));
            let bias: &[i32] = arg.elements().ok().filter(|bias: &&[i32]| bias.len() == channels)?;
            let zero = number(self.input_zero);
            for (start, bias) in (0..channels).step_by(RUN).zip(bias.chunks(RUN)) {
                let to = &mut to[start..][..bias.len()];
                to.copy_from_slice(bias);
                for weights in weights.chunks_exact(channels) {
                    pace.spend(RUN).ok()?;
                    for (to, &weight) in to.iter_mut().zip(&weights[start..]) {
                        let weight = i32::from((weight ^ flip) as i8);
                        *to = to.wrapping_sub(zero.wrapping_mul(weight.wrapping_sub(self.weight_zero)));
                    }
                }
            }
            Some(())
        })
    }
}

/// What a filter's bytes are xored with to become signed.
fn flip(filter: &Arg) -> u8 {
    if filter.ty() == OperandType::TENSOR_QUANT8_ASYMM {
        0x80
    } else {
        0
    }
}
