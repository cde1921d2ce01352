//! Products of bytes in NEON with its dot products.

use super::dot::{Dot, Sums};
use super::finish::{Finish, Quant, Way};
use super::lanes::Lanes;
use super::micro::{Block, Tiles};
use super::order_neon::{multiply, ByPart, SignedBytes, UnsignedBytes, TALL};
use crate::backend::cpu::kernels::neon::Neon;
use std::arch::aarch64::*;

/// NEON with dot products, of bytes that are alike: weights for unsigned inputs are unsigned.
#[derive(Clone, Copy)]
pub struct Dotprod;

// SAFETY: callers have detected the dot products, as the trait demands; all loads may be unaligned.
unsafe impl Dot for Dotprod {
    type V = Neon;
    type A = uint8x16_t;
    type B = uint8x16_t;
    const FLIP: [bool; 2] = [true, false];

    #[inline(always)]
    unsafe fn inputs<const SIGNED: bool>(p: *const u8) -> Self::A {
        // SAFETY: by the trait's contract.
        unsafe { vreinterpretq_u8_u32(vdupq_n_u32(p.cast::<u32>().read_unaligned())) }
    }
    #[inline(always)]
    unsafe fn products<const SIGNED: bool, const M: usize, const P: usize, const V: usize>(
        sums: &mut [[[Sums<Self>; 2]; P]; M],
        inputs: [*const u8; M],
        weights: *const i8,
        padded: usize,
    ) -> usize {
        // SAFETY: by the trait's contract.
        unsafe {
            if SIGNED {
                multiply::<SignedBytes, M, P>(sums, inputs, weights.cast(), padded);
            } else {
                multiply::<UnsignedBytes, M, P>(sums, inputs, weights.cast(), padded);
            }
        }
        padded
    }
    #[inline(always)]
    unsafe fn tiles<const SIGNED: bool, const M: usize>(
        block: &Block<Quant>,
        finish: &Finish<Neon>,
        tiles: Tiles,
        panel: usize,
    ) -> bool {
        let is_one = block.segments() == 1;
        if !SIGNED || M < FEW {
            return false;
        }
        // SAFETY: by the trait's contract.
        unsafe {
            match (finish.way, is_one) {
                (Way::Positive, true) => usual_tiles::<M, true, true>(block, finish, tiles, panel),
                (Way::Positive, false) if M >= TALL => {
                    usual_tiles::<M, true, false>(block, finish, tiles, panel)
                }
                (Way::Plain, true) => usual_tiles::<M, false, true>(block, finish, tiles, panel),
                (Way::Plain, false) if M >= TALL => {
                    usual_tiles::<M, false, false>(block, finish, tiles, panel)
                }
                _ => return false,
            }
        }
        true
    }
    #[inline(always)]
    unsafe fn weights(p: *const i8) -> [Self::B; 2] {
        // SAFETY: by the trait's contract.
        unsafe { p.cast::<[Self::B; 2]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn dot<const SIGNED: bool>(sums: Sums<Self>, a: Self::A, b: Self::B) -> Sums<Self> {
        // SAFETY: by the trait's contract.
        unsafe {
            if SIGNED {
                SignedBytes::add::<0>(sums, b, a)
            } else {
                UnsignedBytes::add::<0>(sums, b, a)
            }
        }
    }
}

/// Rows of a tile that is worth code of its own.
const FEW: usize = 4;

/// Computes tiles of a panel, of signed bytes, whose rows lie in `ONE` piece each or in several. Here nothing is asked for
/// each tile: where rows are short, that takes as many instructions as the outputs do. It is a function of its own so that
/// registers hold what all tiles have, which they do not among the tiles of all heights.
///
/// # Safety
/// The machine must have dot products, the block be as `Micro::run` demands, and have the panel and the tiles' rows, `M` in
/// each; `finish` be that of the panel, whose way is positive or plain.
#[target_feature(enable = "dotprod")]
#[inline(never)]
unsafe fn usual_tiles<const M: usize, const POSITIVE: bool, const ONE: bool>(
    block: &Block<Quant>,
    finish: &Finish<Neon>,
    tiles: Tiles,
    panel: usize,
) {
    let (finish, padded, rows) = (*finish, block.padded, block.rows);
    let segments = if ONE { 1 } else { block.segments() };
    let bias = block.bias.wrapping_add(panel * 2 * Neon::LANES);
    let first_weights = block.panels.wrapping_add(panel * block.panel).cast::<u8>();
    let mut first = block.inputs.as_ptr().wrapping_add(tiles.first);
    let mut to = finish.output(tiles.first);
    for _ in 0..tiles.count {
        // SAFETY: panels, bias, rows of inputs and outputs exist by contract.
        unsafe {
            let mut sums = [[[Neon::splat(0); 2]; 1]; M];
            for sums in &mut sums {
                sums[0] = Neon::load_two(bias);
            }
            let (mut inputs, mut weights) = (first, first_weights);
            for _ in 0..segments {
                let pointers = inputs.cast::<[*const u8; M]>().read();
                multiply::<SignedBytes, M, 1>(&mut sums, pointers, weights, padded);
                (inputs, weights) =
                    (inputs.wrapping_add(rows), weights.wrapping_add(padded * 2 * Neon::LANES));
            }
            to = finish.loaded().usual_tile::<M, 1, true, POSITIVE>(&sums, 0, to);
            first = first.wrapping_add(M);
        }
    }
}
