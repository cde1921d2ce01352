//! One row by weights that are packed for tiles, by vectors: to shape tiles takes longer than most such products, and of
//! each a sixteenth would be used.

use super::micro::Block;
use super::quant::Quant;
use std::arch::x86_64::*;

/// The sums of a block's only row and a panel, 32 of them.
///
/// # Safety
/// The machine must have AVX-512 with VNNI, the block have one row and the panel, and `sums` room for 32.
#[inline(always)]
pub unsafe fn multiply<const SIGNED: bool>(block: &Block<Quant>, panel: usize, sums: *mut i32) {
    // SAFETY: the weights have whole groups by 32 columns, and so many inputs can be read, by the contract of `Block`.
    unsafe {
        let half = _mm512_set1_epi8(-128);
        // Two sums of each column, as a product takes several times as long as the machine takes to begin another.
        let mut totals = [[_mm512_setzero_si512(); 2]; 2];
        // Signed inputs count as unsigned ones, which are 128 more: what that adds.
        let mut excess = totals;
        for (segment, &inputs) in block.inputs.iter().enumerate() {
            let weights = block.panels.add(panel * block.panel + segment * block.padded * 32);
            let groups = block.padded / 4;
            for group in 0..groups {
                let four = _mm512_set1_epi32(inputs.add(4 * group).cast::<i32>().read_unaligned());
                let four = if SIGNED { _mm512_xor_si512(four, half) } else { four };
                for column in 0..2 {
                    let weights = _mm512_loadu_si512(weights.add(group * 128 + column * 64).cast());
                    let (total, excess) = (&mut totals[group % 2][column], &mut excess[group % 2][column]);
                    *total = _mm512_dpbusd_epi32(*total, four, weights);
                    if SIGNED {
                        *excess = _mm512_dpbusd_epi32(*excess, half, weights);
                    }
                }
            }
        }
        for column in 0..2 {
            let total = _mm512_add_epi32(totals[0][column], totals[1][column]);
            let excess = _mm512_add_epi32(excess[0][column], excess[1][column]);
            _mm512_storeu_si512(sums.add(16 * column).cast(), _mm512_sub_epi32(total, excess));
        }
    }
}
