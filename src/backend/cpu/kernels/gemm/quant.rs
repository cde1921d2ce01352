//! 8-bit products: exact integers, the same on every machine.
//!
//! With za and zw the zero points, the sum of (a - za)(w - zw) is sum(a w) - za sum(w) - zw sum(a) + k za zw: the second and
//! last terms are folded into the bias, the third is a term of its own for each row, left out where zw is 0. Inputs are
//! read as they lie, signed or not; weights are packed as the other where the instructions want it so, which moves zw.

use super::dot::{Dot, Sums};
#[cfg(target_arch = "aarch64")]
use super::dot_neon::Dotprod;
#[cfg(target_arch = "x86_64")]
use super::dot_x86::{AvxVnni, Vnni};
pub use super::finish::{Epilogue, Finish, Quant};
use super::lanes::Lanes;
use super::micro::{for_each_height, with_height, Block, Family, Micro, Tiles};
use crate::backend::cpu::kernels::simd;

/// The micro-kernels of `D` for unsigned and for signed inputs.
pub const fn of<D: Dot>(
    name: &'static str,
    rows: usize,
    [unsigned, signed]: [unsafe fn(&Block<Quant>); 2],
) -> [Micro<Quant>; 2] {
    let flip = [if D::FLIP[0] { 0x80 } else { 0 }, if D::FLIP[1] { 0x80 } else { 0 }];
    [like::<D, Quant>(name, rows, flip[0], unsigned), like::<D, Quant>(name, rows, flip[1], signed)]
}

/// A micro-kernel that takes its weights as `D` does.
pub const fn like<D: Dot, F: Family>(
    name: &'static str,
    rows: usize,
    flip: u8,
    run: unsafe fn(&Block<F>),
) -> Micro<F> {
    Micro {
        name,
        rows,
        columns: 2 * D::V::LANES,
        group: D::GROUP,
        // Two instructions multiply groups of eight.
        at_once: if D::GROUP < 4 { D::GROUP } else { 4 },
        padded: |depth| depth.next_multiple_of(D::GROUP),
        even: false,
        room: 0,
        flip,
        form: D::V::FORM,
        run,
    }
}

/// Defines the micro-kernels `$name`, called `$called`, of `$dot`, with tiles of these heights, of at most `$most`, compiled for `$features` or
/// for what every machine of the target has.
macro_rules! micro_kernels {
    ($name:ident = $called:literal, $dot:ty, [$($height:literal)*], $most:literal $(, $features:literal)?) => {
        pub static $name: [Micro<Quant>; 2] = {
            $(#[target_feature(enable = $features)])?
            unsafe fn unsigned(block: &Block<Quant>) {
                // SAFETY: by the contract of `Micro::run`.
                unsafe {
                    run::<$dot, false>(block, $most, |epilogue, tiles, panel| {
                        with_height!(tiles.height, [$($height)*], M => one::<$dot, false, M>(block, epilogue, tiles, panel))
                    })
                }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn signed(block: &Block<Quant>) {
                // SAFETY: by the contract of `Micro::run`.
                unsafe {
                    run::<$dot, true>(block, $most, |epilogue, tiles, panel| {
                        with_height!(tiles.height, [$($height)*], M => one::<$dot, true, M>(block, epilogue, tiles, panel))
                    })
                }
            }
            of::<$dot>($called, $most, [unsigned, signed])
        };
    };
}

micro_kernels!(BASE = "base 8-bit", simd::Base, [1 2 3 4], 4);
#[cfg(target_arch = "x86_64")]
micro_kernels!(AVX_VNNI = "avx-vnni 8-bit", AvxVnni, [1 2 3 4 5 6], 6, "avx2,fma,avxvnni");
#[cfg(target_arch = "x86_64")]
micro_kernels!(AVX512 = "avx512 8-bit", simd::Avx512, [1 2 3 4 5 6 7 8], 8, "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl");
#[cfg(target_arch = "x86_64")]
micro_kernels!(
    VNNI = "vnni 8-bit",
    Vnni,
    [1 2 3 4 5 6 7 8 9 10 11 12],
    12,
    "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
);

#[cfg(target_arch = "aarch64")]
micro_kernels!(DOTPROD = "dotprod 8-bit", Dotprod, [1 2 3 4 5 6 7 8 9], 9, "dotprod");

/// Goes through a block as the float product does.
///
/// # Safety
/// The machine must have the instruction set of `D`, and the block be as `Micro::run` demands.
#[inline(always)]
pub unsafe fn run<D: Dot, const SIGNED: bool>(
    block: &Block<Quant>,
    most: usize,
    one: impl Fn(&Epilogue<D::V>, Tiles, usize),
) {
    // SAFETY: the same contract.
    let epilogue = unsafe { Epilogue::<D::V>::of::<SIGNED>(block) };
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
            4 => unsafe {
                tile::<D, SIGNED, 1, 4, 2>(block, &epilogue, Tiles { first: 0, height: 1, count: 1 }, panel)
            },
            // SAFETY: as above.
            2 => unsafe {
                tile::<D, SIGNED, 2, 2, 2>(block, &epilogue, Tiles { first: 0, height: 2, count: 1 }, panel)
            },
            _ => for_each_height(block.rows, most, |tiles| one(&epilogue, tiles, panel)),
        }
        panel += side;
    }
}

/// Computes tiles of `M` rows of one panel, or of its first vector where that has all columns that are left.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
pub unsafe fn one<D: Dot, const SIGNED: bool, const M: usize>(
    block: &Block<Quant>,
    epilogue: &Epilogue<D::V>,
    tiles: Tiles,
    panel: usize,
) {
    // SAFETY: by contract.
    unsafe {
        match Finish::<D::V>::is_half(block.columns - panel * 2 * D::V::LANES) {
            true => tile::<D, SIGNED, M, 1, 1>(block, epilogue, tiles, panel),
            false => tile::<D, SIGNED, M, 1, 2>(block, epilogue, tiles, panel),
        }
    }
}

/// Computes tiles of `M` rows of `P` panels, `V` vectors of each.
///
/// # Safety
/// The machine must have the instruction set of `D`, the block be as `Micro::run` demands, and have the tiles' rows, `M` in
/// each, and `P` panels from `panel` on.
#[inline(always)]
unsafe fn tile<D: Dot, const SIGNED: bool, const M: usize, const P: usize, const V: usize>(
    block: &Block<Quant>,
    epilogue: &Epilogue<D::V>,
    tiles: Tiles,
    panel: usize,
) {
    let width = 2 * D::V::LANES;
    let (segments, start) = (block.segments(), block.panels.wrapping_add(panel * block.panel));
    // SAFETY: the panels exist by contract.
    let mut finishes = [unsafe { Finish::of(block, epilogue, panel) }; P];
    // SAFETY: by contract.
    if P == 1 && V == 2 && unsafe { D::tiles::<SIGNED, M>(block, &finishes[0], tiles, panel) } {
        return;
    }
    for (p, finish) in finishes.iter_mut().enumerate().skip(1) {
        // SAFETY: as above.
        *finish = unsafe { Finish::of(block, epilogue, panel + p) };
    }
    for row in (tiles.first..).step_by(M).take(tiles.count) {
        // SAFETY: panels, bias and rows of inputs exist by contract.
        unsafe {
            let mut sums = starts::<D::V, M, P>(block, epilogue, row, panel);
            let mut weights = start;
            for segment in 0..segments {
                let inputs = block.pointers::<M>(segment, row);
                add::<D, SIGNED, M, P, V>(&mut sums, inputs, weights, (block.panel, block.padded));
                weights = weights.add(block.padded * width);
            }
            if V == 1 {
                finishes[0].half_tile(&sums, row);
                continue;
            }
            // Written out, as sums that are indexed by a variable would be kept in memory all along.
            macro_rules! finish_panels {
                ($($p:literal)*) => {
                    $(if P > $p {
                        let p = $p.min(P - 1);
                        finishes[p].tile(&sums, p, row);
                    })*
                };
            }
            finish_panels!(0 1 2 3);
        }
    }
}

/// Adds to the sums of `M` rows the products of `padded` inputs of each with `P` panels, which are so many weights apart, `V` vectors of
/// each.
///
/// # Safety
/// The machine must have the instruction set of `D`, and there be as many inputs and weights.
#[inline(always)]
pub unsafe fn add<D: Dot, const SIGNED: bool, const M: usize, const P: usize, const V: usize>(
    sums: &mut [[[Sums<D>; 2]; P]; M],
    inputs: [*const u8; M],
    mut weights: *const i8,
    (panel, padded): (usize, usize),
) {
    let (width, group) = (2 * D::V::LANES, D::GROUP);
    // SAFETY: by contract.
    unsafe {
        let mut done = 0;
        if P == 1 {
            done = D::products::<SIGNED, M, P, V>(sums, inputs, weights, padded);
            weights = weights.add(done * width);
        }
        for i in (done..padded).step_by(group) {
            for p in 0..P {
                let b = D::weights(weights.add(p * panel));
                for (m, sums) in sums.iter_mut().enumerate() {
                    let a = D::inputs::<SIGNED>(inputs[m].add(i));
                    sums[p][0] = D::dot::<SIGNED>(sums[p][0], a, b[0]);
                    if V == 2 {
                        sums[p][1] = D::dot::<SIGNED>(sums[p][1], a, b[1]);
                    }
                }
            }
            weights = weights.add(width * group);
        }
    }
}

/// What the sums of `M` rows of `P` panels start from: the bias, less the rows' terms.
///
/// # Safety
/// The machine must have the instruction set of `L`, and the block the rows and panels.
#[inline(always)]
pub unsafe fn starts<L: Lanes, const M: usize, const P: usize>(
    block: &Block<Quant>,
    epilogue: &Epilogue<L>,
    row: usize,
    panel: usize,
) -> [[[L::I; 2]; P]; M] {
    let width = 2 * L::LANES;
    // SAFETY: by contract.
    unsafe {
        let bias = block.bias.add(panel * width);
        let mut sums = [[[L::splat(0); 2]; P]; M];
        for sums in &mut sums {
            for (p, sums) in sums.iter_mut().enumerate() {
                *sums = L::load_two(bias.add(p * width));
            }
        }
        if block.finish.0.row_factor != 0 {
            for (m, sums) in sums.iter_mut().enumerate() {
                let term = L::splat(*epilogue.terms.get_unchecked(row + m));
                for sums in sums {
                    *sums = [L::sub(sums[0], term), L::sub(sums[1], term)];
                }
            }
        }
        sums
    }
}
