//! 8-bit matrix multiplication with one packed side and requantisation: exact integers, the same on every machine.
//!
//! Weights are signed bytes in panels of two vectors' width, `[panel][k/4][column][4]`; rows of A are unsigned bytes,
//! padded to a multiple of 4. With za and zw the zero points, the sum of (a - za)(w - zw) is
//! sum(a w) - za sum(w) - zw sum(a) + k za zw: the second and last terms are folded into the bias, the third is left
//! out where zw is 0.

use super::simd::{dispatch, Isa, Simd};
use super::Source;
use crate::memory::{Target, View, Weights};
use crate::tensor::requant::Multiplier;
use std::borrow::Cow;

/// Weights packed for one instruction set, with everything that turns sums into outputs.
pub struct PackedI8 {
    isa: Isa,
    pub k: usize,
    pub n: usize,
    panels: Weights,
    /// Zero point of the weights as signed bytes.
    weight_zero: i32,
    /// An i32 per column, padded to whole panels: bias with the constant terms folded in.
    bias: Weights,
    /// Per column, padded likewise.
    mantissa: Vec<i32>,
    shift: Vec<i32>,
    /// Zero point of the output, and the bounds of its activation.
    output_zero: i32,
    range: (i32, i32),
    once: bool,
}

/// What turns sums into outputs.
pub struct Requantisation<'a> {
    /// Per column.
    pub multipliers: &'a [Multiplier],
    pub output_zero: i32,
    pub range: (i32, i32),
    /// Whether to round as [`Multiplier::apply_once`] does.
    pub once: bool,
}

fn lanes(isa: Isa) -> usize {
    match isa {
        Isa::Base => super::simd::Base::LANES,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => super::simd::Avx2::LANES,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => super::simd::Avx512::LANES,
    }
}

impl PackedI8 {
    /// Packs weights and bias, which `constants` gives: weights as `[n][k]` signed bytes with zero point `weight_zero`,
    /// for rows of A that are unsigned bytes with zero point `input_zero`. `None` where there are none, or no memory,
    /// or lengths do not fit.
    pub fn new<'w>(
        isa: Isa,
        (k, n): (usize, usize),
        (input_zero, weight_zero): (i32, i32),
        requantisation: &Requantisation,
        source: &mut Source,
        constants: impl FnOnce() -> Option<(Cow<'w, [i8]>, &'w [i32])>,
    ) -> Option<Self> {
        let (width, k4) = (2 * lanes(isa), k.div_ceil(4));
        if requantisation.multipliers.len() != n {
            return None;
        }
        let padded = n.div_ceil(width).checked_mul(width)?;
        let mut folded = Vec::new();
        let panels = source.take(padded.checked_mul(k4)?.checked_mul(4)?, |packed: &mut [i8]| {
            let (weights, bias) = constants()?;
            if weights.len() != n.checked_mul(k)? || bias.len() != n {
                return None;
            }
            folded.extend_from_slice(bias);
            for (column, row) in weights.chunks_exact(k.max(1)).enumerate() {
                let start = column / width * k4 * width * 4 + column % width * 4;
                row.iter().enumerate().for_each(|(i, &w)| packed[start + i / 4 * width * 4 + i % 4] = w);
                let sum = row.iter().fold(0i32, |sum, &w| sum.wrapping_add(w.into()));
                let constant =
                    (k as i32).wrapping_mul(weight_zero).wrapping_sub(sum).wrapping_mul(input_zero);
                folded[column] = bias[column].wrapping_add(constant);
            }
            Some(())
        })?;
        let bias = source.take(padded, |to: &mut [i32]| {
            to[..n].copy_from_slice(&folded);
            Some(())
        })?;
        let per_column = |of: fn(&Multiplier) -> i32| {
            let mut values: Vec<i32> = requantisation.multipliers.iter().map(of).collect();
            values.resize(padded, 0);
            values
        };
        let (mantissa, shift) = (per_column(|m| m.mantissa), per_column(|m| m.shift));
        let Requantisation { output_zero, range, once, .. } = *requantisation;
        Some(PackedI8 { isa, k, n, panels, weight_zero, bias, mantissa, shift, output_zero, range, once })
    }

    pub fn weights(&self) -> Vec<&Weights> {
        vec![&self.panels, &self.bias]
    }

    /// Bytes of a row of A: `k` padded to a multiple of 4. What the padding holds does not matter.
    pub fn row(&self) -> usize {
        self.k.next_multiple_of(4)
    }

    /// Multiplies the rows of `a`, `[rows][row()]`, into `c`, `[rows][n]`: bytes of the output's type.
    pub fn multiply(&self, a: View<u8>, c: Target<u8>) {
        if self.n == 0 || c.is_empty() {
            return;
        }
        let rows = c.len() / self.n;
        assert!(a.len() == rows * self.row() && c.len() == rows * self.n, "matrices do not fit");
        multiply(self.isa, self, a, c);
    }
}

dispatch! {
    /// Multiplies with the kernels of one instruction set.
    fn multiply => multiply_with(packed: &PackedI8, a: View<u8>, c: Target<u8>)
}

/// # Safety
/// The machine must have the instruction set of `S`; `packed` must have been packed for it, and the matrices fit.
#[inline(always)]
unsafe fn multiply_with<S: Simd>(packed: &PackedI8, a: View<u8>, mut c: Target<u8>) {
    let (n, width, row_bytes) = (packed.n, 2 * S::LANES, packed.row());
    let rows = c.len() / n;
    let block = (16384 / row_bytes.max(1)).clamp(1, 32) * 12;
    for first in (0..rows).step_by(block) {
        let last = rows.min(first + block);
        for start in (0..n).step_by(width) {
            let mut row = first;
            while row < last {
                let left = last - row;
                let a = a.pointer(row * row_bytes, left * row_bytes);
                let c = c.pointer(row * n + start, left * n - start);
                // SAFETY: by this function's contract; as many rows are left from `a` and `c` on.
                row += unsafe {
                    match left {
                        12.. if S::LANES == 16 => tile::<S, 12>(packed, start, a, c),
                        4.. => tile::<S, 4>(packed, start, a, c),
                        2.. => tile::<S, 2>(packed, start, a, c),
                        _ => tile::<S, 1>(packed, start, a, c),
                    }
                };
            }
        }
    }
}

/// Computes `M` rows of the panel whose first column is `start`; gives `M`.
///
/// # Safety
/// The machine must have the instruction set of `S`; `a` must point to `M` rows, and `c` to `M` rows less `start` columns.
#[inline(always)]
unsafe fn tile<S: Simd, const M: usize>(packed: &PackedI8, start: usize, a: *const u8, c: *mut u8) -> usize {
    let (n, lanes, row_bytes) = (packed.n, S::LANES, packed.row());
    let panel = packed.panels.elements::<i8>(start * row_bytes, 2 * lanes * row_bytes);
    let bias = packed.bias.elements::<i32>(start, 2 * lanes);
    let mut sums = [[0i32; 32]; M];
    // SAFETY: the panel has row_bytes / 4 groups of 2 * LANES * 4 bytes, the bias 2 * LANES values, and `a` M rows; a
    // row of `sums` is as wide as the widest panel.
    unsafe {
        let bias = [S::load_i32(bias), S::load_i32(bias.add(lanes))];
        let mut acc = [bias; M];
        let mut b = panel;
        for i in 0..row_bytes / 4 {
            for (m, acc) in acc.iter_mut().enumerate() {
                let x = a.add(m * row_bytes + i * 4).cast::<u32>().read_unaligned();
                acc[0] = S::dot4(acc[0], x, b);
                acc[1] = S::dot4(acc[1], x, b.add(lanes * 4));
            }
            b = b.add(lanes * 8);
        }
        for (acc, sums) in acc.iter().zip(&mut sums) {
            S::store_i32(sums.as_mut_ptr(), acc[0]);
            S::store_i32(sums.as_mut_ptr().add(lanes), acc[1]);
        }
    }
    let columns = (2 * lanes).min(n - start);
    for (m, sums) in sums.iter_mut().enumerate() {
        if packed.weight_zero != 0 {
            // SAFETY: `a` points to `M` rows of at least `k` bytes.
            let byte = |i: usize| unsafe { a.add(m * row_bytes + i).read() };
            let sum = (0..packed.k).fold(0i32, |sum, i| sum.wrapping_add(byte(i).into()));
            let term = sum.wrapping_mul(packed.weight_zero);
            sums.iter_mut().for_each(|s| *s = s.wrapping_sub(term));
        }
        let width = 2 * lanes;
        let scaling = Scaling {
            mantissa: &packed.mantissa[start..][..width],
            shift: &packed.shift[start..][..width],
            output_zero: packed.output_zero,
            range: packed.range,
        };
        let mut bytes = [0u8; 32];
        match packed.once {
            false => scaling.requantise(&sums[..width], &mut bytes[..width], scale),
            true => scaling.requantise(&sums[..width], &mut bytes[..width], scale_once),
        }
        // SAFETY: `c` points to `M` rows, of which these columns exist.
        unsafe { libc::memcpy(c.add(m * n).cast(), bytes.as_ptr().cast(), columns) };
    }
    M
}

/// What turns sums into bytes: the arithmetic of [`Multiplier`], in a form that compiles to vectors.
pub(super) struct Scaling<'a> {
    /// Per column.
    pub mantissa: &'a [i32],
    pub shift: &'a [i32],
    pub output_zero: i32,
    pub range: (i32, i32),
}

impl Scaling<'_> {
    /// Scales by [`scale`] or [`scale_once`]; all are as many as the columns.
    #[inline(always)]
    pub fn requantise(&self, sums: &[i32], bytes: &mut [u8], scale: impl Fn(i32, i32, i32) -> i32) {
        // Bounds are kept before the zero point is added, so that adding cannot overflow.
        let (lo, hi) = self.range;
        let (lo, hi) = (lo.saturating_sub(self.output_zero), hi.saturating_sub(self.output_zero));
        let multipliers = self.mantissa.iter().zip(self.shift);
        for ((to, &sum), (&mantissa, &shift)) in bytes.iter_mut().zip(sums).zip(multipliers) {
            *to = scale(sum, mantissa, shift).max(lo).min(hi).wrapping_add(self.output_zero) as u8;
        }
    }
}

/// `x` times a multiplier, rounded once, without a branch.
#[inline(always)]
fn scale_once(x: i32, mantissa: i32, shift: i32) -> i32 {
    let right = (-shift).max(0) as u32;
    let product = i64::from(shift_left(x, shift)) * i64::from(mantissa);
    // Products are below 2^62 in size: lifted by that none is negative, and the shift needs no sign.
    const LIFT: u64 = 1 << 62;
    let nudged = (product as u64).wrapping_add(LIFT + (1 << (30 + right)));
    ((nudged >> (31 + right)) as i32).wrapping_sub((LIFT >> (31 + right)) as i32)
}

/// `x` times a multiplier, without a branch.
#[inline(always)]
pub(super) fn scale(x: i32, mantissa: i32, shift: i32) -> i32 {
    let right = (-shift).max(0) as u32;
    let product = i64::from(shift_left(x, shift)) * i64::from(mantissa);
    // Mantissas are never negative, so the one product that would saturate does not occur; adding half before a shift
    // rounds as gemmlowp's division of the nudged product does. It has 32 bits, the same with and without sign.
    let high = ((product + (1 << 30)) as u64 >> 31) as i32;
    // Half away from zero.
    let mask = 1i32.wrapping_shl(right).wrapping_sub(1);
    let up = (high & mask) > (mask >> 1) + i32::from(high < 0);
    high.wrapping_shr(right) + i32::from(up)
}

/// `x` shifted left, if `shift` is positive, and saturated.
#[inline(always)]
fn shift_left(x: i32, shift: i32) -> i32 {
    let left = shift.max(0) as u32;
    let shifted = x.wrapping_shl(left);
    match shifted.wrapping_shr(left) == x {
        true => shifted,
        false => (x >> 31) ^ i32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn scales_as_the_shared_arithmetic(x in any::<i32>(), down in 0u32..32, real in 0.5f64..1.0, exponent in -36i32..36) {
            let (x, m) = (x >> down, Multiplier::new(real * f64::from(exponent).exp2()));
            prop_assert_eq!(scale(x, m.mantissa, m.shift), m.apply(x));
            prop_assert_eq!(scale_once(x, m.mantissa, m.shift), m.apply_once(x));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn equals_the_naive_product(rows in 0usize..30, k in 0usize..40, n in 1usize..70, zeros in any::<(u8, i8)>(), seed in any::<u32>()) {
            let mut state = seed | 1;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            };
            let weights: Vec<i8> = (0..n * k).map(|_| next() as i8).collect();
            let bias: Vec<i32> = (0..n).map(|_| i32::from(next()) * 100 - 10_000).collect();
            let multipliers: Vec<Multiplier> = (0..n).map(|_| Multiplier::new(f64::from(next()) / 30_000.0)).collect();
            let (za, zw) = (i32::from(zeros.0), i32::from(zeros.1));
            for isa in Isa::available() {
                let requantisation = Requantisation { multipliers: &multipliers, output_zero: 3, range: (-100, 120), once: k % 2 == 0 };
                let constants = || Some((Cow::Borrowed(&weights[..]), &bias[..]));
                let packed = PackedI8::new(isa, (k, n), (za, zw), &requantisation, &mut Source::Pack, constants).unwrap();
                let a: Vec<u8> = (0..rows * packed.row()).map(|_| next()).collect();
                let mut c = vec![0u8; rows * n];
                packed.multiply(View::of(&a), Target::of(&mut c));
                for (i, &actual) in c.iter().enumerate() {
                    let (row, column) = (i / n, i % n);
                    let dot: i32 = (0..k)
                        .map(|j| (i32::from(a[row * packed.row() + j]) - za) * (i32::from(weights[column * k + j]) - zw))
                        .sum();
                    let (multiplier, sum) = (multipliers[column], dot + bias[column]);
                    let scaled = if k % 2 == 0 { multiplier.apply_once(sum) } else { multiplier.apply(sum) };
                    let expected = (scaled + 3).clamp(-100, 120);
                    prop_assert_eq!(i32::from(actual as i8), expected, "{:?} {} {}", isa, row, column);
                }
            }
        }
    }
}
