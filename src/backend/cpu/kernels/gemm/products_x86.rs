//! Sums of products of words in AVX2: rows of words by a panel, whose weights are bytes or words.
//!
//! A panel has two vectors of columns, and the weights of a column in pairs, as `vpmaddwd` multiplies them. Sums go round at 32
//! bits.

use super::micro::{for_each_height, with_height};
use std::arch::asm;
use std::arch::x86_64::*;

/// Columns of a panel.
const COLUMNS: usize = 16;
/// Rows of a tile: their sums, weights and an input are all registers.
const ROWS: usize = 6;

/// Weights as a panel has them.
pub trait Weight: Sized {
    /// Those of a pair of inputs by a panel's columns, as words.
    ///
    /// # Safety
    /// The machine must have AVX2, and there be as many weights.
    unsafe fn two(weights: *const Self) -> [__m256i; 2];

    /// [`add_pairs`] of six rows.
    ///
    /// # Safety
    /// As for that.
    unsafe fn add_six(
        sums: &mut [[__m256i; 2]; ROWS],
        inputs: *const i16,
        apart: usize,
        weights: *const Self,
        pairs: usize,
    );
}

/// Adds the products of pairs of words to sums.
///
/// # Safety
/// The machine must have AVX2.
#[inline(always)]
pub unsafe fn add_products(sums: __m256i, a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: by contract.
    unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(a, b)) }
}

/// Adds the products of `pairs` pairs of inputs of each of `M` rows to the sums of the first panel, or of its first `V` vectors. The
/// first row lies at `inputs`, the others `apart` words from each other.
///
/// # Safety
/// The machine must have AVX2, and there be the inputs and the weights of a panel.
#[inline(always)]
pub unsafe fn add_pairs<const M: usize, const P: usize, const V: usize>(
    sums: &mut [[[__m256i; 2]; P]; M],
    inputs: *const i16,
    apart: usize,
    weights: *const impl Weight,
    pairs: usize,
) {
    if let (ROWS, 2) = (M, V) {
        // Written out, as sums that are indexed by a variable would be kept in memory all along.
        macro_rules! rows {
            ($($m:literal)*) => { [$(sums[$m.min(M - 1)][0]),*] };
        }
        let mut six = rows!(0 1 2 3 4 5);
        // SAFETY: the same contract; `M` is six.
        unsafe { Weight::add_six(&mut six, inputs, apart, weights, pairs) };
        sums.iter_mut().zip(six).for_each(|(sums, six)| sums[0] = six);
        return;
    }
    for i in 0..pairs {
        // SAFETY: by contract.
        unsafe {
            let b = Weight::two(weights.add(i * 2 * COLUMNS));
            for (m, sums) in sums.iter_mut().enumerate() {
                let a = _mm256_set1_epi32(inputs.add(m * apart + i * 2).cast::<i32>().read_unaligned());
                for v in 0..V {
                    sums[0][v] = add_products(sums[0][v], a, b[v]);
                }
            }
        }
    }
}

/// Multiplies rows of words, `apart` words from each other, by `pairs` pairs of words of so many columns, whose panels lie one after
/// the other: to where rows are `line` sums apart, whole panels of them.
///
/// # Safety
/// The machine must have AVX2, and there be at least one row, the rows, the panels and room for the sums.
#[target_feature(enable = "avx2")]
pub unsafe fn multiply_words(
    (inputs, apart, rows): (*const i16, usize, usize),
    (weights, columns, pairs): (*const i16, usize, usize),
    (to, line): (*mut i32, usize),
) {
    for panel in 0..columns.div_ceil(COLUMNS) {
        let weights = weights.wrapping_add(panel * pairs * 2 * COLUMNS);
        let to = to.wrapping_add(panel * COLUMNS);
        for_each_height(rows, ROWS, |tiles| {
            for row in (tiles.first..).step_by(tiles.height).take(tiles.count) {
                let (inputs, to) = (inputs.wrapping_add(row * apart), to.wrapping_add(row * line));
                // SAFETY: by contract.
                unsafe {
                    with_height!(tiles.height, [1 2 3 4 5 6], M => one::<M>(inputs, apart, weights, pairs, (to, line)))
                };
            }
        });
    }
}

/// The same of `M` rows and a panel.
///
/// # Safety
/// As for [`multiply_words`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn one<const M: usize>(
    inputs: *const i16,
    apart: usize,
    weights: *const i16,
    pairs: usize,
    (to, line): (*mut i32, usize),
) {
    let mut sums = [[[_mm256_setzero_si256(); 2]; 1]; M];
    // SAFETY: by contract.
    unsafe {
        add_pairs::<M, 1, 2>(&mut sums, inputs, apart, weights, pairs);
        for (m, [[low, high]]) in sums.into_iter().enumerate() {
            let to = to.wrapping_add(m * line);
            _mm256_storeu_si256(to.cast(), low);
            _mm256_storeu_si256(to.wrapping_add(8).cast(), high);
        }
    }
}

/// The products of a row's pair with both vectors, for the sums of that name.
macro_rules! row {
    ($at:literal, $sums:literal) => {
        concat!(
            "vpbroadcastd {both}, dword ptr [",
            $at,
            "]\n",
            "vpmaddwd {product}, {both}, {low}\n",
            "vpmaddwd {both}, {both}, {high}\n",
            "vpaddd {",
            $sums,
            "0}, {",
            $sums,
            "0}, {product}\n",
            "vpaddd {",
            $sums,
            "1}, {",
            $sums,
            "1}, {both}",
        )
    };
}

/// Implements [`Weight`] for a type of which sixteen are loaded as words by `$load`.
///
/// Six rows take all registers: what the compiler makes of intrinsics may need one more, and each step then waits for a sum that
/// the one before it stored.
macro_rules! weight {
    ($weight:ty, $load:literal, $from:literal, |$p:ident| $two:expr) => {
        impl Weight for $weight {
            #[inline(always)]
            unsafe fn two($p: *const Self) -> [__m256i; 2] {
                // SAFETY: by the trait's contract.
                unsafe { $two }
            }

            #[inline(always)]
            unsafe fn add_six(
                sums: &mut [[__m256i; 2]; ROWS],
                inputs: *const i16,
                apart: usize,
                weights: *const Self,
                pairs: usize,
            ) {
                #[inline]
                #[target_feature(enable = "avx2")]
                unsafe fn run(
                    [a, b, c, d, e, f]: &mut [[__m256i; 2]; ROWS],
                    inputs: *const i16,
                    apart: usize,
                    weights: *const $weight,
                    pairs: usize,
                ) {
                    // SAFETY: by contract, of which it reads as many inputs and weights; it changes nothing but registers.
                    unsafe {
                        asm!(
                            "test {pairs}, {pairs}",
                            "jz 3f",
                            "2:",
                            concat!($load, " {low}, ", $from, " ptr [{weights}]"),
                            concat!($load, " {high}, ", $from, " ptr [{weights} + {half}]"),
                            row!("{upper}", "a"),
                            row!("{upper} + {apart}", "b"),
                            row!("{upper} + 2 * {apart}", "c"),
                            row!("{lower}", "d"),
                            row!("{lower} + {apart}", "e"),
                            row!("{lower} + 2 * {apart}", "f"),
                            "add {upper}, 4",
                            "add {lower}, 4",
                            "add {weights}, 2 * {half}",
                            "dec {pairs}",
                            "jnz 2b",
                            "3:",
                            half = const COLUMNS * size_of::<$weight>(),
                            low = out(ymm_reg) _,
                            high = out(ymm_reg) _,
                            both = out(ymm_reg) _,
                            product = out(ymm_reg) _,
                            weights = inout(reg) weights => _,
                            upper = inout(reg) inputs => _,
                            lower = inout(reg) inputs.wrapping_add(3 * apart) => _,
                            apart = in(reg) apart * size_of::<i16>(),
                            pairs = inout(reg) pairs => _,
                            a0 = inout(ymm_reg) a[0],
                            a1 = inout(ymm_reg) a[1],
                            b0 = inout(ymm_reg) b[0],
                            b1 = inout(ymm_reg) b[1],
                            c0 = inout(ymm_reg) c[0],
                            c1 = inout(ymm_reg) c[1],
                            d0 = inout(ymm_reg) d[0],
                            d1 = inout(ymm_reg) d[1],
                            e0 = inout(ymm_reg) e[0],
                            e1 = inout(ymm_reg) e[1],
                            f0 = inout(ymm_reg) f[0],
                            f1 = inout(ymm_reg) f[1],
                            options(readonly, nostack),
                        );
                    }
                }
                // SAFETY: the same contract.
                unsafe { run(sums, inputs, apart, weights, pairs) }
            }
        }
    };
}

weight!(i8, "vpmovsxbw", "xmmword", |p| {
    [
        _mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast())),
        _mm256_cvtepi8_epi16(_mm_loadu_si128(p.add(COLUMNS).cast())),
    ]
});
weight!(i16, "vmovdqu", "ymmword", |p| {
    [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(COLUMNS).cast())]
});
