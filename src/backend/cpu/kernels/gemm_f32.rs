//! Float matrix multiplication with one packed side: C = clamp(A * B + bias).
//!
//! B (the weights) is packed once into panels of two vectors' width, `[panel][k][column]`; A is read in place by
//! broadcast. A tile of rows by one panel stays in registers over the whole depth, so a result depends on nothing but
//! its own row and column.

use super::simd::{dispatch, Isa, Simd};
use super::Source;
use crate::memory::{Target, View, Weights};

/// Weights packed for one instruction set, with bias and activation.
pub struct PackedF32 {
    isa: Isa,
    /// Depth of the product: columns of A.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
    panels: Weights,
    /// One f32 per column, padded with zeros to whole panels.
    bias: Weights,
    range: (f32, f32),
}

/// Columns of a panel.
fn panel_width(isa: Isa) -> usize {
    2 * match isa {
        Isa::Base => super::simd::Base::LANES,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => super::simd::Avx2::LANES,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => super::simd::Avx512::LANES,
    }
}

impl PackedF32 {
    /// Packs weights and bias, which `constants` gives: weights as rows of the result's columns, `[n][k]`, which is how
    /// NNAPI lays out filters. `None` where there are none, or no memory.
    pub fn new<'w>(
        isa: Isa,
        (k, n): (usize, usize),
        range: (f32, f32),
        source: &mut Source,
        constants: impl Fn() -> Option<(&'w [f32], &'w [f32])>,
    ) -> Option<Self> {
        let width = panel_width(isa);
        let count = n.div_ceil(width);
        let panels = source.take(count.checked_mul(k)?.checked_mul(width)?, |packed: &mut [f32]| {
            let (weights, _) = constants()?;
            if weights.len() != n.checked_mul(k)? {
                return None;
            }
            for (column, row) in weights.chunks_exact(k.max(1)).enumerate() {
                let start = column / width * k * width + column % width;
                row.iter().enumerate().for_each(|(i, &w)| packed[start + i * width] = w);
            }
            Some(())
        })?;
        let bias = source.take(count.checked_mul(width)?, |padded: &mut [f32]| {
            let (_, bias) = constants()?;
            padded.get_mut(..n).filter(|to| to.len() == bias.len())?.copy_from_slice(bias);
            Some(())
        })?;
        Some(PackedF32 { isa, k, n, panels, bias, range })
    }

    pub fn weights(&self) -> Vec<&Weights> {
        vec![&self.panels, &self.bias]
    }

    /// Multiplies the rows of `a`, `[rows][k]`, into `c`, `[rows][n]`.
    pub fn multiply(&self, a: View<f32>, c: Target<f32>) {
        if self.n == 0 || c.is_empty() {
            return;
        }
        let rows = c.len() / self.n;
        assert!(a.len() == rows * self.k && c.len() == rows * self.n, "matrices do not fit");
        multiply(self.isa, self, a, c);
    }
}

dispatch! {
    /// Multiplies with the kernels of one instruction set.
    fn multiply => multiply_with(packed: &PackedF32, a: View<f32>, c: Target<f32>)
}

/// # Safety
/// The machine must have the instruction set of `S`; `packed` must have been packed for it, and the matrices fit.
#[inline(always)]
unsafe fn multiply_with<S: Simd>(packed: &PackedF32, a: View<f32>, mut c: Target<f32>) {
    let (k, n, width) = (packed.k, packed.n, 2 * S::LANES);
    let rows = c.len() / n;
    // Rows in blocks that stay in the first cache while the panels stream past them.
    let block = (4096 / k.max(1)).clamp(1, 32) * 12;
    for first in (0..rows).step_by(block) {
        let last = rows.min(first + block);
        let mut start = 0;
        while start < n {
            // Each addition waits for the one before: few rows need panels side by side to have enough under way.
            let side = match (rows, (n - start).div_ceil(width)) {
                (1, 4..) => 4,
                (2, 2..) => 2,
                _ => 1,
            };
            let tile = Tile {
                k,
                n,
                panels: packed.panels.elements(start * k, side * k * width),
                bias: packed.bias.elements(start, side * width),
                columns: n - start,
                range: packed.range,
            };
            let mut row = first;
            while row < last {
                let left = last - row;
                let a = a.pointer(row * k, left * k);
                let c = c.pointer(row * n + start, left * n - start);
                // SAFETY: by this function's contract; as many rows are left from `a` and `c` on.
                row += unsafe {
                    match (left, side) {
                        (_, 4) => tile.run::<S, 1, 4>(a, c),
                        (_, 2) => tile.run::<S, 2, 2>(a, c),
                        (12.., _) if S::LANES == 16 => tile.run::<S, 12, 1>(a, c),
                        (6.., _) => tile.run::<S, 6, 1>(a, c),
                        (4.., _) => tile.run::<S, 4, 1>(a, c),
                        (2.., _) => tile.run::<S, 2, 1>(a, c),
                        _ => tile.run::<S, 1, 1>(a, c),
                    }
                };
            }
            start += side * width;
        }
    }
}

/// What a tile of rows and panels works on.
struct Tile {
    k: usize,
    n: usize,
    panels: *const f32,
    bias: *const f32,
    /// Columns from the first panel on that exist.
    columns: usize,
    range: (f32, f32),
}

impl Tile {
    /// Computes `M` rows of `P` panels; gives `M`.
    ///
    /// # Safety
    /// The machine must have the instruction set of `S`; there must be `P` panels of `k` rows of two vectors, as much bias,
    /// and a column of the last panel; `a` must point to `M` rows of `k`, and `c` to `M` rows of `n` less the columns before
    /// the first panel, aligned or not.
    #[inline(always)]
    unsafe fn run<S: Simd, const M: usize, const P: usize>(&self, a: *const f32, c: *mut f32) -> usize {
        let (k, n, lanes) = (self.k, self.n, S::LANES);
        // SAFETY: the panels have P * k * 2 * LANES elements and the bias P * 2 * LANES, rows of `a` and `c` exist, all by
        // contract; a store beyond the existing columns goes to a buffer on the stack.
        unsafe {
            let mut sums = [[[S::splat(0.0); 2]; P]; M];
            for p in 0..P {
                let bias = self.bias.add(p * 2 * lanes);
                let bias = [S::load(bias), S::load(bias.add(lanes))];
                for row in &mut sums {
                    row[p] = bias;
                }
            }
            let mut b = self.panels;
            for i in 0..k {
                for p in 0..P {
                    let b = b.add(p * k * 2 * lanes);
                    let (b0, b1) = (S::load(b), S::load(b.add(lanes)));
                    for (m, row) in sums.iter_mut().enumerate() {
                        let x = S::splat(a.add(m * k + i).read_unaligned());
                        row[p][0] = S::mul_add(x, b0, row[p][0]);
                        row[p][1] = S::mul_add(x, b1, row[p][1]);
                    }
                }
                b = b.add(2 * lanes);
            }
            let (lo, hi) = (S::splat(self.range.0), S::splat(self.range.1));
            for (m, row) in sums.iter().enumerate() {
                for (p, sum) in row.iter().enumerate() {
                    let sum = [S::clamp(sum[0], lo, hi), S::clamp(sum[1], lo, hi)];
                    let (to, left) = (c.add(m * n + p * 2 * lanes), self.columns - p * 2 * lanes);
                    if left >= 2 * lanes {
                        S::store(to, sum[0]);
                        S::store(to.add(lanes), sum[1]);
                    } else {
                        let mut edge = [0f32; 32];
                        S::store(edge.as_mut_ptr(), sum[0]);
                        S::store(edge.as_mut_ptr().add(lanes), sum[1]);
                        libc::memcpy(to.cast(), edge.as_ptr().cast(), left * size_of::<f32>());
                    }
                }
            }
        }
        M
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn equals_the_naive_product(rows in 0usize..40, k in 0usize..50, n in 1usize..150, seed in any::<u32>()) {
            let mut state = seed | 1;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            };
            let a: Vec<f32> = (0..rows * k).map(|_| next()).collect();
            let weights: Vec<f32> = (0..n * k).map(|_| next()).collect();
            let bias: Vec<f32> = (0..n).map(|_| next()).collect();
            for isa in Isa::available() {
                let packed = PackedF32::new(isa, (k, n), (-1.5, 1.5), &mut Source::Pack, || Some((&weights, &bias))).unwrap();
                let mut c = vec![f32::NAN; rows * n];
                packed.multiply(View::of(&a), Target::of(&mut c));
                for (i, &actual) in c.iter().enumerate() {
                    let (row, column) = (i / n, i % n);
                    let dot: f32 = (0..k).map(|j| a[row * k + j] * weights[column * k + j]).sum();
                    let expected = (dot + bias[column]).clamp(-1.5, 1.5);
                    prop_assert!((actual - expected).abs() < 1e-4, "{isa:?} {row} {column}: {actual} {expected}");
                }
            }
        }

        /// Rows are split among threads in any way.
        #[test]
        fn a_row_is_the_same_bytes_whatever_is_beside_it(rows in 1usize..30, k in 1usize..50, n in 1usize..150, cut in any::<prop::sample::Index>()) {
            let values = |count: usize, by: f32| (0..count).map(|i| (i as f32 * by).sin()).collect::<Vec<f32>>();
            let (a, weights, bias) = (values(rows * k, 0.37), values(n * k, 0.73), values(n, 0.11));
            let cut = cut.index(rows);
            for isa in Isa::available() {
                let packed = PackedF32::new(isa, (k, n), (-1.5, 1.5), &mut Source::Pack, || Some((&weights, &bias))).unwrap();
                let mut whole = vec![f32::NAN; rows * n];
                packed.multiply(View::of(&a), Target::of(&mut whole));
                let mut parts = vec![f32::NAN; rows * n];
                for (first, last) in [(0, cut), (cut, cut + 1), (cut + 1, rows)] {
                    packed.multiply(View::of(&a[first * k..last * k]), Target::of(&mut parts[first * n..last * n]));
                }
                let bits = |c: &[f32]| c.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&whole), bits(&parts), "{:?}", isa);
            }
        }
    }

    #[test]
    fn keeps_nan_and_has_no_columns_to_spare() {
        for isa in Isa::available() {
            let packed =
                PackedF32::new(isa, (1, 1), (0.0, 6.0), &mut Source::Pack, || Some((&[1.0], &[0.0])))
                    .unwrap();
            let mut c = [0.0; 3];
            packed.multiply(View::of(&[f32::NAN, 9.0, -1.0]), Target::of(&mut c));
            assert!(c[0].is_nan() && c[1..] == [6.0, 0.0], "{isa:?} {c:?}");
        }
        let short = || Some((&[1.0f32][..], &[0.0f32, 0.0][..]));
        assert!(PackedF32::new(Isa::Base, (1, 2), (0.0, 6.0), &mut Source::Pack, short).is_none());
    }
}
