//! What the kernel of 8-bit types has packed.

use super::super::eight_bit::QuantInput;
use super::super::gemm::{Lanes, Requant};
use super::instructions::Instructions;
use super::layout::{Order, CHANNELS};
use super::quads::{PixelScales, Quads, PIXELS};
#[cfg(target_arch = "aarch64")]
use super::slide::Fit;
use crate::memory::Weights;
use crate::ops::conv::DepthwiseGeometry;

/// The kernel: weights as quads, and all that they are multiplied and scaled with.
pub struct Depthwise {
    pub instructions: Instructions,
    /// How outputs are made if that is as `slide` does.
    #[cfg(target_arch = "aarch64")]
    pub slides: Option<Fit>,
    /// The order in which channels are packed, for who makes them.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // elsewhere there is one
    pub order: Order,
    pub geometry: DepthwiseGeometry,
    pub input: QuantInput,
    pub weight_zero: i32,
    pub weights: Weights,
    /// i32 per channel.
    pub bias: Weights,
    pub requant: Requant,
    /// Rows of outputs, one below the other, that are made of the same quads where there are as many: one or two.
    pub rows: usize,
}

impl Depthwise {
    /// What a block's sums become bytes with.
    #[inline(always)]
    pub fn scales<Q: Quads>(&self, block: usize) -> PixelScales {
        let vectors = CHANNELS / Q::V::LANES;
        let scale = |i: usize| self.requant.scales(block * vectors + i % vectors);
        [[scale(0), scale(1)], [scale(2), scale(3)]]
    }

    /// The bytes of one pixel of a block.
    ///
    /// # Safety
    /// The machine must have the instruction set of `Q`.
    #[inline(always)]
    pub unsafe fn requantise<Q: Quads>(&self, block: usize, sums: Q::Sums) -> [u8; CHANNELS] {
        // SAFETY: by contract.
        unsafe {
            Q::requantise([sums; PIXELS], &self.scales::<Q>(block), Q::V::target(self.requant.target))[0]
        }
    }
}
