//! Floats taken apart into halves that tiles multiply: bfloat16, 8 significant bits. Each float is the sum of three: the
//! nearest half, the one nearest to what is left, and the rest.

use super::float::Float;
use super::micro::Block;
use crate::backend::cpu::kernels::simd::{Avx512, Simd};
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows and columns of a tile.
pub const TILE: usize = 16;
/// Products of a sum that tiles add up at once.
pub const STEP: usize = 32;
/// Steps that are taken apart together.
pub const STEPS: usize = 4;
const DEPTH: usize = STEPS * STEP;
/// Larger values have no halves that are of use: 2^60.
const LARGE: f32 = (1u64 << 60) as f32;

/// One half of each float of two tiles beside or below each other.
type Halves = [[u8; 1024]; 2];
/// All halves of the floats of a step.
pub type Step = [Halves; 3];

/// Columns of a panel.
pub fn columns(block: &Block<Float>, panel: usize) -> usize {
    (block.columns - panel * 2 * TILE).min(2 * TILE)
}

/// The larger of sizes and those of values, as bits. NaN is the largest: its bits would not survive to be rounded.
#[target_feature(enable = "avx512f")]
fn larger(sizes: __m512i, values: __m512) -> __m512i {
    _mm512_max_epi32(sizes, _mm512_and_si512(_mm512_castps_si512(values), _mm512_set1_epi32(i32::MAX)))
}

#[target_feature(enable = "avx512f")]
fn is_large(sizes: __m512i) -> bool {
    _mm512_cmpge_epi32_mask(sizes, _mm512_set1_epi32(LARGE.to_bits() as i32)) != 0
}

/// Takes inputs of a row apart, the `i`th of a pair of tiles' rows. Gives whether one is too large.
///
/// # Safety
/// The block must have the row and the inputs, and the room as many steps.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn split_row(
    block: &Block<Float>,
    row: usize,
    depth: Range<usize>,
    i: usize,
    to: &mut [Step; STEPS],
) -> bool {
    let mut together = [0f32; DEPTH];
    let to = to.as_mut_ptr().cast::<u8>();
    // SAFETY: segments have the inputs that a part of the depth asks them for, and of steps only as many are written.
    unsafe {
        let to = to.add(i / TILE * 1024 + i % TILE * 64);
        let inputs = in_one_piece(block, row, depth.clone(), &mut together);
        let upper_words: [u16; 32] = std::array::from_fn(|i| 2 * i as u16 + 1);
        let upper_words = _mm512_loadu_si512(upper_words.as_ptr().cast());
        let mut largest = _mm512_setzero_si512();
        for (step, first) in (0..depth.len()).step_by(STEP).enumerate() {
            let left = depth.len() - first;
            let mut rest = match left >= STEP {
                true => [_mm512_loadu_ps(inputs.add(first)), _mm512_loadu_ps(inputs.add(first + 16))],
                false => [0, 16].map(|skipped: usize| {
                    Avx512::load_some(
                        inputs.wrapping_add(first + skipped),
                        left.saturating_sub(skipped).min(16),
                    )
                }),
            };
            largest = larger(larger(largest, rest[0]), rest[1]);
            for plane in 0..3 {
                let rounded = rest.map(|rest| rounded(rest));
                let halves = _mm512_permutex2var_epi16(rounded[0], upper_words, rounded[1]);
                _mm512_storeu_si512(to.add(step * size_of::<Step>() + plane * 2048).cast(), halves);
                rest = [less(rest[0], rounded[0]), less(rest[1], rounded[1])];
            }
        }
        is_large(largest)
    }
}

/// Floats with the nearest halves in their upper words.
#[target_feature(enable = "avx512f")]
fn rounded(x: __m512) -> __m512i {
    _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000))
}

/// What is left of floats without the halves in the upper words of `rounded`.
#[target_feature(enable = "avx512f")]
fn less(x: __m512, rounded: __m512i) -> __m512 {
    let halves = _mm512_and_si512(rounded, _mm512_set1_epi32(0xffff_0000u32 as i32));
    _mm512_sub_ps(x, _mm512_castsi512_ps(halves))
}

/// Where inputs of a row lie one after the other: as they are, or copied from their segments.
///
/// # Safety
/// The block must have them.
#[inline(always)]
unsafe fn in_one_piece(
    block: &Block<Float>,
    row: usize,
    depth: Range<usize>,
    together: &mut [f32; DEPTH],
) -> *const f32 {
    let at = |i: usize| {
        let segment = i / block.depth;
        // SAFETY: by contract.
        let [inputs] = unsafe { block.pointers::<1>(segment, row) };
        (inputs.wrapping_add(i % block.depth), (segment + 1) * block.depth - i)
    };
    let (first, left) = at(depth.start);
    if left >= depth.len() {
        return first;
    }
    let mut i = depth.start;
    while i < depth.end {
        let (from, left) = at(i);
        let count = left.min(depth.end - i);
        // SAFETY: the segment has so many more inputs; libc's memcpy may read a client's memory.
        unsafe { libc::memcpy(together[i - depth.start..].as_mut_ptr().cast(), from.cast(), count * 4) };
        i += count;
    }
    together.as_ptr()
}

/// Takes weights of a panel apart, of all its columns or of the first half; halves of two products lie together, column
/// by column. Gives whether one is too large.
///
/// # Safety
/// The block must have the panel and the products, and the room as many steps.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn split_panel(
    block: &Block<Float>,
    panel: usize,
    depth: Range<usize>,
    to: &mut [Step; STEPS],
) -> bool {
    let (halves_of_columns, lines) = (columns(block, panel).div_ceil(TILE), depth.len());
    // SAFETY: by contract; lines that there are none of are made zeros, up to whole steps.
    unsafe {
        let weights = block.panels.add(panel * block.panel + depth.start * 2 * TILE);
        let upper = _mm512_set1_epi32(0xffff_0000u32 as i32);
        let (to, mut largest) = (to.as_mut_ptr().cast::<u8>(), _mm512_setzero_si512());
        for line in (0..lines.next_multiple_of(STEP)).step_by(2) {
            let to = to.add(line / STEP * size_of::<Step>() + line % STEP / 2 * 64);
            for column in 0..halves_of_columns {
                let load = |line: usize| match line < lines {
                    true => _mm512_loadu_ps(weights.add(line * 2 * TILE + column * TILE)),
                    false => _mm512_setzero_ps(),
                };
                let mut rest = [load(line), load(line + 1)];
                largest = larger(larger(largest, rest[0]), rest[1]);
                for plane in 0..3 {
                    let rounded = rest.map(|rest| rounded(rest));
                    let second = _mm512_and_si512(rounded[1], upper);
                    let halves = _mm512_or_si512(_mm512_srli_epi32::<16>(rounded[0]), second);
                    _mm512_storeu_si512(to.add(plane * 2048 + column * 1024).cast(), halves);
                    rest = [less(rest[0], rounded[0]), less(rest[1], rounded[1])];
                }
            }
        }
        is_large(largest)
    }
}
