//! 8-bit products: exact integers, the same on every machine.
//!
//! With za and zw the zero points, the sum of (a - za)(w - zw) is sum(a w) - za sum(w) - zw sum(a) + k za zw: the second and
//! last terms are folded into the bias, the third is a term of its own for each row, left out where zw is 0. Inputs are
//! read as they lie, signed or not; weights are packed as the other where the instructions want it so, which moves zw.

use super::dot::{Dot, Sums};
#[cfg(target_arch = "x86_64")]
use super::dot_x86::{AvxVnni, Vnni};
use super::lanes::Lanes;
use super::micro::{for_each_tile, with_height, Block, Family, Micro, MAX_ROWS};
use super::requant::Requant;
use crate::backend::cpu::kernels::simd;

/// Products of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Quant;

impl Family for Quant {
    type Input = u8;
    type Weight = i8;
    type Output = u8;
    type Bias = i32;
    /// How sums become bytes.
    type Scaling = Requant;
    /// The same, and the column of the first panel.
    type Finish<'a> = (&'a Requant, usize);

    fn finish(requant: &Self::Scaling, column: usize) -> Self::Finish<'_> {
        (requant, column)
    }
}

/// The micro-kernels of `D` for unsigned and for signed inputs.
const fn of<D: Dot>(rows: usize, run: [unsafe fn(&Block<Quant>); 2]) -> [Micro<Quant>; 2] {
    let columns = 2 * D::V::LANES;
    let padded = |depth: usize| depth.next_multiple_of(4);
    let flip = if D::FLIP { 0x80 } else { 0 };
    [
        Micro { rows, columns, group: 4, padded, even: false, flip: 0, run: run[0] },
        Micro { rows, columns, group: 4, padded, even: false, flip, run: run[1] },
    ]
}

/// Defines the micro-kernels `$name` of `$dot`, with tiles of these heights, of at most `$most`, compiled for `$features` or
/// for what every machine of the target has.
macro_rules! micro_kernels {
    ($name:ident = $dot:ty, [$($height:literal)*], $most:literal $(, $features:literal)?) => {
        pub static $name: [Micro<Quant>; 2] = {
            $(#[target_feature(enable = $features)])?
            unsafe fn unsigned(block: &Block<Quant>) {
                // SAFETY: by the contract of `Micro::run`.
                unsafe {
                    run::<$dot, false>(block, $most, |terms, row, height, panel| {
                        with_height!(height, [$($height)*], M => tile::<$dot, false, M, 1>(block, terms, row, panel))
                    })
                }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn signed(block: &Block<Quant>) {
                // SAFETY: by the contract of `Micro::run`.
                unsafe {
                    run::<$dot, true>(block, $most, |terms, row, height, panel| {
                        with_height!(height, [$($height)*], M => tile::<$dot, true, M, 1>(block, terms, row, panel))
                    })
                }
            }
            of::<$dot>($most, [unsigned, signed])
        };
    };
}

micro_kernels!(BASE = simd::Base, [1 2 3 4], 4);
#[cfg(target_arch = "x86_64")]
micro_kernels!(AVX2 = simd::Avx2, [1 2 3 4], 4, "avx2,fma");
#[cfg(target_arch = "x86_64")]
micro_kernels!(AVX_VNNI = AvxVnni, [1 2 3 4 5 6], 6, "avx2,fma,avxvnni");
#[cfg(target_arch = "x86_64")]
micro_kernels!(AVX512 = simd::Avx512, [1 2 3 4 5 6 7 8], 8, "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl");
#[cfg(target_arch = "x86_64")]
micro_kernels!(
    VNNI = Vnni,
    [1 2 3 4 5 6 7 8 9 10 11 12],
    12,
    "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
);

/// What is to be subtracted from each sum of a row: its inputs' sum, as often as the weights' zero point says.
///
/// # Safety
/// The machine must have the instruction set of `V`, and the block be as `Micro::run` demands.
#[inline(always)]
pub unsafe fn row_terms<V: Lanes, const SIGNED: bool>(block: &Block<Quant>) -> [i32; MAX_ROWS] {
    let (mut terms, factor) = ([0; MAX_ROWS], block.finish.0.row_factor);
    if factor == 0 {
        return terms;
    }
    for inputs in block.inputs.chunks_exact(block.rows) {
        for (term, &row) in terms.iter_mut().zip(inputs) {
            // SAFETY: by contract there are as many inputs.
            let sum = unsafe { V::sum::<SIGNED>(row, block.depth) };
            *term = term.wrapping_add(sum.wrapping_mul(factor));
        }
    }
    terms
}

/// Goes through a block as the float product does.
///
/// # Safety
/// The machine must have the instruction set of `D`, and the block be as `Micro::run` demands.
#[inline(always)]
unsafe fn run<D: Dot, const SIGNED: bool>(
    block: &Block<Quant>,
    most: usize,
    one: impl Fn(&[i32; MAX_ROWS], usize, usize, usize),
) {
    // SAFETY: the same contract.
    let terms = unsafe { row_terms::<D::V, SIGNED>(block) };
    let panels = block.columns.div_ceil(2 * D::V::LANES);
    let mut panel = 0;
    while panel < panels {
        let side = match (block.rows, panels - panel) {
            (1, 4..) => 4,
            (2, 2..) => 2,
            _ => 1,
        };
        match side {
            // SAFETY: as many panels are left, and the block has as many rows.
            4 => unsafe { tile::<D, SIGNED, 1, 4>(block, &terms, 0, panel) },
            // SAFETY: as above.
            2 => unsafe { tile::<D, SIGNED, 2, 2>(block, &terms, 0, panel) },
            _ => for_each_tile(block.rows, most, |row, height| one(&terms, row, height, panel)),
        }
        panel += side;
    }
}

/// Computes `M` rows of `P` panels.
///
/// # Safety
/// The machine must have the instruction set of `D`, the block be as `Micro::run` demands, and have `M` rows from `row` on
/// and `P` panels from `panel` on.
#[inline(always)]
unsafe fn tile<D: Dot, const SIGNED: bool, const M: usize, const P: usize>(
    block: &Block<Quant>,
    terms: &[i32; MAX_ROWS],
    row: usize,
    panel: usize,
) {
    let (lanes, width) = (D::V::LANES, 2 * D::V::LANES);
    // SAFETY: panels, bias and rows of inputs exist by contract.
    unsafe {
        let mut sums = [[[D::V::splat(0); 2]; P]; M];
        for p in 0..P {
            let bias = block.bias.add((panel + p) * width);
            let bias = [D::V::load(bias), D::V::load(bias.add(lanes))];
            for (m, sums) in sums.iter_mut().enumerate() {
                let term = D::V::splat(terms[row + m]);
                sums[p] = [D::V::sub(bias[0], term), D::V::sub(bias[1], term)];
            }
        }
        let mut weights = block.panels.add(panel * block.panel);
        for segment in 0..block.segments() {
            let inputs = block.pointers::<M>(segment, row);
            for i in (0..block.padded).step_by(4) {
                for p in 0..P {
                    let b = weights.add(p * block.panel);
                    let b = [D::weights(b), D::weights(b.add(lanes * 4))];
                    for (m, sums) in sums.iter_mut().enumerate() {
                        let a = D::inputs::<SIGNED>(inputs[m].add(i));
                        sums[p] =
                            [D::dot::<SIGNED>(sums[p][0], a, b[0]), D::dot::<SIGNED>(sums[p][1], a, b[1])];
                    }
                }
                weights = weights.add(width * 4);
            }
        }
        // Written out, as sums that are indexed by a variable would be kept in memory all along.
        macro_rules! finish_pairs {
            ($($p:literal: $($m:literal)*;)*) => {
                $($(if P > $p && M > $m {
                    let other = if M > $m + 1 { $m + 1 } else { $m };
                    let pair: [[Sums<D>; 2]; 2] = [sums[$m][$p], sums[other][$p]];
                    finish::<D::V>(block, pair, [row + $m, row + other], panel + $p);
                })*)*
            };
        }
        finish_pairs!(0: 0 2 4 6 8 10; 1: 0; 2: 0; 3: 0;);
    }
}

/// Turns the sums of two rows of a panel into outputs.
///
/// # Safety
/// The machine must have the instruction set of `V`, the block be as `Micro::run` demands, and have the rows and the panel.
#[inline(always)]
pub unsafe fn finish<V: Lanes>(block: &Block<Quant>, sums: [[V::I; 2]; 2], rows: [usize; 2], panel: usize) {
    let ((requant, first), column) = (block.finish, panel * 2 * V::LANES);
    let vector = (first + column) / V::LANES;
    let scales = [requant.scales(vector), requant.scales(vector + 1)];
    // SAFETY: the outputs exist by contract, as many as columns are left at least.
    unsafe {
        let [[a, b], [c, d]] = sums;
        let scaled = [
            [V::requantise(a, scales[0]), V::requantise(b, scales[1])],
            [V::requantise(c, scales[0]), V::requantise(d, scales[1])],
        ];
        let outputs = block.outputs.add(column);
        let to = [outputs.add(rows[0] * block.stride), outputs.add(rows[1] * block.stride)];
        V::store(scaled, to, block.columns - column, requant.target);
    }
}
