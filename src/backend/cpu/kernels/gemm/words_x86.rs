//! 8-bit products in AVX2: inputs are widened to 16 bits once for all panels, and repeated in all lanes by loads alone.
//!
//! The instruction that multiplies pairs of bytes saturates, so that bytes have to be widened. To do so in registers for each
//! panel takes a third as many instructions as the products.

use super::dot::Dot;
use super::dot_x86::widen;
use super::finish::{Epilogue, Finish, Quant};
use super::lanes::Lanes;
use super::micro::{for_each_height, heights, with_height, Block, Micro, Tiles};
use super::products_x86::add_pairs;
use super::quant;
use crate::backend::cpu::kernels::simd::Avx2;
use std::mem::MaybeUninit;

/// Rows of a tile: their sums, weights and an input are all registers.
const ROWS: usize = 6;
/// From so many panels on it pays to widen rows for all of them.
const PANELS: usize = 2;
/// Columns of a panel.
const COLUMNS: usize = 2 * Avx2::LANES;
/// Words of rows that are made at once, on the stack: they and the weights of a panel stay in the first cache.
const WIDENED: usize = 12 * 1024;

/// For unsigned and for signed inputs.
pub static MICROS: [Micro<Quant>; 2] = quant::of::<Avx2>("avx2 8-bit", ROWS, [unsigned, signed]);

// The closures are compiled for AVX2 as the functions are that they stand in.

macro_rules! entry_points {
    ($($name:ident: $signed:literal;)*) => {
        $(#[target_feature(enable = "avx2,fma")]
        unsafe fn $name(block: &Block<Quant>) {
            // SAFETY: by the contract of `Micro::run`; tiles are such as the block has.
            unsafe {
                run::<$signed>(
                    block,
                    |epilogue, words, tiles, panel| {
                        with_height!(tiles.height, [1 2 3 4 5 6], M => one::<M>(block, epilogue, words, tiles, panel))
                    },
                    |epilogue, tiles, panel| {
                        with_height!(tiles.height, [1 2 3 4 5 6], M => quant::one::<Avx2, $signed, M>(block, epilogue, tiles, panel))
                    },
                )
            }
        })*
    };
}

entry_points!(unsigned: false; signed: true;);

/// Some rows of inputs, widened, one after the other, with their segments one after the other.
struct Words {
    words: *const i16,
    /// Words of a row.
    depth: usize,
    /// The first row as the block counts.
    first: usize,
}

/// Goes through a block: some rows by one panel after the other. Where there are few rows or panels, or no room for a tile,
/// rows are widened a tile at a time for each panel.
///
/// # Safety
/// The machine must have AVX2, and the block be as `Micro::run` demands.
#[inline(always)]
unsafe fn run<const SIGNED: bool>(
    block: &Block<Quant>,
    of_words: impl Fn(&Epilogue<Avx2>, &Words, Tiles, usize),
    of_bytes: impl Fn(&Epilogue<Avx2>, Tiles, usize),
) {
    let (depth, panels) = (block.segments() * block.padded, block.columns.div_ceil(COLUMNS));
    let most = WIDENED / depth.max(1);
    if block.rows <= 2 || panels < PANELS || most < ROWS {
        // SAFETY: the same contract.
        return unsafe { quant::run::<Avx2, SIGNED>(block, ROWS, of_bytes) };
    }
    // SAFETY: the same contract.
    let epilogue = unsafe { Epilogue::<Avx2>::of::<SIGNED>(block) };
    let mut room = MaybeUninit::<[i16; WIDENED]>::uninit();
    // No closure widens: it would not be compiled for AVX2.
    for parts in heights(block.rows, most / ROWS * ROWS) {
        for first in (parts.first..).step_by(parts.height).take(parts.count) {
            let words = room.as_mut_ptr().cast::<i16>();
            for (segment, inputs) in block.inputs.chunks_exact(block.rows).enumerate() {
                let mut to = words.wrapping_add(segment * block.padded);
                for &from in &inputs[first..first + parts.height] {
                    // SAFETY: the block has the rows, and there is room for as many.
                    unsafe { widen::<SIGNED>(from, to, block.padded) };
                    to = to.wrapping_add(depth);
                }
            }
            let words = Words { words, depth, first };
            for panel in 0..panels {
                for_each_height(parts.height, ROWS, |tiles| of_words(&epilogue, &words, tiles, panel));
            }
        }
    }
}

/// Computes tiles of `M` rows of a panel, or of its first vector where that has all columns that are left.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
unsafe fn one<const M: usize>(
    block: &Block<Quant>,
    epilogue: &Epilogue<Avx2>,
    words: &Words,
    tiles: Tiles,
    panel: usize,
) {
    // SAFETY: by contract.
    unsafe {
        match Finish::<Avx2>::is_half(block.columns - panel * COLUMNS) {
            true => tile::<M, 1>(block, epilogue, words, tiles, panel),
            false => tile::<M, 2>(block, epilogue, words, tiles, panel),
        }
    }
}

/// Computes tiles of `M` rows of `V` vectors of a panel.
///
/// # Safety
/// The machine must have AVX2, the block be as `Micro::run` demands, and there be the tiles' rows of words, `M` in each.
#[inline(always)]
unsafe fn tile<const M: usize, const V: usize>(
    block: &Block<Quant>,
    epilogue: &Epilogue<Avx2>,
    words: &Words,
    tiles: Tiles,
    panel: usize,
) {
    // SAFETY: panels and rows exist by contract.
    unsafe {
        let finish = Finish::of(block, epilogue, panel);
        let panels = block.panels.add(panel * block.panel);
        for row in (tiles.first..).step_by(M).take(tiles.count) {
            let inputs = words.words.add(row * words.depth);
            let row = words.first + row;
            let mut sums = quant::starts::<Avx2, M, 1>(block, epilogue, row, panel);
            add_pairs::<M, 1, V>(&mut sums, inputs, words.depth, panels, words.depth / Avx2::GROUP);
            match V {
                1 => finish.half_tile(&sums, row),
                _ => finish.tile(&sums, 0, row),
            }
        }
    }
}
