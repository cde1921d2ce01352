//! Sums of products of words in AVX-512, as [`products_x86`](super::products_x86) has them in AVX2: with `vpdpwssd`, which adds a
//! pair's products to a sum, where there is VNNI.

use super::micro::{for_each_height, with_height};
use std::arch::asm;
use std::arch::x86_64::*;

/// Sums of a vector, of which a panel has two.
const LANES: usize = 16;
const COLUMNS: usize = 2 * LANES;
/// Rows of a tile: their sums, weights and an input are all registers.
const ROWS: usize = 12;

/// Multiplies rows of words, `apart` words from each other, by `pairs` pairs of words of so many columns, whose panels lie one after
/// the other: to where rows are `line` sums apart, whole vectors of them.
///
/// # Safety
/// The machine must have AVX-512 BW, and VNNI where that is asked for, and there be at least one row, the rows, the panels and room
/// for the sums.
pub unsafe fn multiply_words_512<const VNNI: bool>(
    rows: (*const i16, usize, usize),
    weights: (*const i16, usize, usize),
    to: (*mut i32, usize),
) {
    // SAFETY: the same contract.
    unsafe {
        match VNNI {
            true => with_vnni(rows, weights, to),
            false => without(rows, weights, to),
        }
    }
}

macro_rules! entry_points {
    ($($name:ident: $features:literal, $vnni:literal;)*) => {
        $(#[target_feature(enable = $features)]
        unsafe fn $name(
            (inputs, apart, rows): (*const i16, usize, usize),
            (weights, columns, pairs): (*const i16, usize, usize),
            (to, line): (*mut i32, usize),
        ) {
            for panel in 0..columns.div_ceil(COLUMNS) {
                let is_half = columns - panel * COLUMNS <= LANES;
                let weights = weights.wrapping_add(panel * pairs * 2 * COLUMNS);
                let to = to.wrapping_add(panel * COLUMNS);
                for_each_height(rows, ROWS, |tiles| {
                    for row in (tiles.first..).step_by(tiles.height).take(tiles.count) {
                        let (inputs, to) = (inputs.wrapping_add(row * apart), to.wrapping_add(row * line));
                        // SAFETY: by contract.
                        unsafe {
                            with_height!(
                                tiles.height,
                                [1 2 3 4 5 6 7 8 9 10 11 12],
                                M => match is_half {
                                    true => one::<$vnni, M, 1>(inputs, apart, weights, pairs, (to, line)),
                                    false => one::<$vnni, M, 2>(inputs, apart, weights, pairs, (to, line)),
                                }
                            )
                        };
                    }
                });
            }
        })*
    };
}

entry_points! {
    with_vnni: "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni", true;
    without: "avx512f,avx512bw,avx512dq,avx512vl", false;
}

/// The same of `M` rows and a panel, or its first `V` vectors.
///
/// # Safety
/// As for [`multiply_words_512`].
#[inline(always)]
unsafe fn one<const VNNI: bool, const M: usize, const V: usize>(
    inputs: *const i16,
    apart: usize,
    weights: *const i16,
    pairs: usize,
    (to, line): (*mut i32, usize),
) {
    // SAFETY: by contract.
    unsafe {
        let mut sums = [[_mm512_setzero_si512(); V]; M];
        for i in 0..pairs {
            let b = weights.add(i * 2 * COLUMNS);
            // What is multiplied by next comes from beyond the first cache, and no prefetcher of the machine's looks from one panel
            // to the next. It is a hint, which never faults.
            for line in 0..2 {
                _mm_prefetch::<_MM_HINT_T0>(b.wrapping_add(pairs * 2 * COLUMNS + line * 2 * LANES).cast());
            }
            let b = [_mm512_loadu_si512(b.cast()), _mm512_loadu_si512(b.add(2 * LANES).cast())];
            for (m, sums) in sums.iter_mut().enumerate() {
                let a = _mm512_set1_epi32(inputs.add(m * apart + i * 2).cast::<i32>().read_unaligned());
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = match VNNI {
                        true => add_products(*sum, a, b),
                        false => _mm512_add_epi32(*sum, _mm512_madd_epi16(a, b)),
                    };
                }
            }
        }
        for (m, sums) in sums.into_iter().enumerate() {
            for (half, sum) in sums.into_iter().enumerate() {
                _mm512_storeu_si512(to.wrapping_add(m * line + half * LANES).cast(), sum);
            }
        }
    }
}

/// Adds the products of pairs of words to sums. It is written out, as the compiler takes the intrinsic apart into a product and a
/// sum, which take twice as long where they do not wait for each other.
///
/// # Safety
/// The machine must have AVX-512 VNNI.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn add_products(mut sums: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: it changes nothing but that register.
    unsafe {
        asm!(
            "vpdpwssd {sums}, {a}, {b}",
            sums = inout(zmm_reg) sums,
            a = in(zmm_reg) a,
            b = in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}
