//! Float products: C = clamp(A * B + bias).
//!
//! A tile of rows by one panel of two vectors stays in registers over the whole depth, and each sum is formed in the order
//! of depth: a result depends on nothing but its own row and column.

use super::micro::{for_each_height, with_height, Block, Family, Micro, Tiles};
use super::requant::Form;
#[cfg(target_arch = "aarch64")]
use crate::backend::cpu::kernels::neon::Neon;
use crate::backend::cpu::kernels::simd::{self, Simd};

/// Products of f32.
#[derive(Clone, Copy, Debug)]
pub struct Float;

impl Family for Float {
    type Input = f32;
    type Weight = f32;
    type Output = f32;
    type Bias = f32;
    /// Bounds of the activation.
    type Scaling = (f32, f32);
    type Finish<'a> = (f32, f32);

    fn finish(range: &Self::Scaling, _: usize) -> Self::Finish<'_> {
        *range
    }
}

const fn of(name: &'static str, rows: usize, columns: usize, run: unsafe fn(&Block<Float>)) -> Micro<Float> {
    Micro {
        name,
        rows,
        columns,
        group: 1,
        at_once: 1,
        padded: |depth| depth,
        even: false,
        room: 0,
        flip: 0,
        form: Form::Wide,
        run,
    }
}

pub static BASE: Micro<Float> = of("base float", 4, 2 * simd::Base::LANES, base);
#[cfg(target_arch = "x86_64")]
pub static AVX2: Micro<Float> = of("avx2 float", 6, 2 * simd::Avx2::LANES, avx2);
#[cfg(target_arch = "x86_64")]
pub static AVX512: Micro<Float> = of("avx512 float", 12, 2 * simd::Avx512::LANES, avx512);

/// Panels that lie side by side, for one row: as many as have enough additions under way.
const SIDE: usize = 4;
/// As [`AVX2`] and [`AVX512`], for one row, with [`SIDE`] of their panels as one: weights are read from the first to the last, which a
/// machine's second cache gives faster than as many streams. For whole panels.
#[cfg(target_arch = "x86_64")]
pub static AVX2_ROW: Micro<Float> = of("avx2 float row", 1, SIDE * 2 * simd::Avx2::LANES, avx2_row);
#[cfg(target_arch = "x86_64")]
pub static AVX512_ROW: Micro<Float> = of("avx512 float row", 1, SIDE * 2 * simd::Avx512::LANES, avx512_row);

#[cfg(target_arch = "aarch64")]
pub static NEON: Micro<Float> = of("neon float", 9, 2 * Neon::LANES, neon);

unsafe fn base(block: &Block<Float>) {
    // SAFETY: by the contract of `Micro::run`; heights are at most 4.
    unsafe {
        run::<simd::Base>(
            block,
            4,
            |tiles, panel| with_height!(tiles.height, [1 2 3 4], M => one::<simd::Base, M>(block, tiles, panel)),
        )
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(block: &Block<Float>) {
    // SAFETY: by the contract of `Micro::run`; heights are at most 6.
    unsafe {
        run::<simd::Avx2>(
            block,
            6,
            |tiles, panel| with_height!(tiles.height, [1 2 3 4 5 6], M => one::<simd::Avx2, M>(block, tiles, panel)),
        )
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn avx512(block: &Block<Float>) {
    // SAFETY: by the contract of `Micro::run`; heights are at most 12.
    unsafe {
        run::<simd::Avx512>(
            block,
            12,
            |tiles, panel| with_height!(tiles.height, [1 2 3 4 5 6 7 8 9 10 11 12], M => one::<simd::Avx512, M>(block, tiles, panel)),
        )
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2_row(block: &Block<Float>) {
    // SAFETY: by the contract of `Micro::run`.
    unsafe { row_by_row::<simd::Avx2>(block) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn avx512_row(block: &Block<Float>) {
    // SAFETY: by the contract of `Micro::run`.
    unsafe { row_by_row::<simd::Avx512>(block) }
}

/// Multiplies one row by one panel of a block.
///
/// # Safety
/// The machine must have AVX-512, and the block, as `Micro::run` demands it, have the row and the panel.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn avx512_one(block: &Block<Float>, row: usize, panel: usize) {
    // SAFETY: the same contract.
    unsafe { one::<simd::Avx512, 1>(block, Tiles { first: row, height: 1, count: 1 }, panel) }
}

#[cfg(target_arch = "aarch64")]
unsafe fn neon(block: &Block<Float>) {
    // SAFETY: by the contract of `Micro::run`; heights are at most 9.
    unsafe {
        run::<Neon>(
            block,
            9,
            |tiles, panel| with_height!(tiles.height, [1 2 3 4 5 6 7 8 9], M => one::<Neon, M>(block, tiles, panel)),
        )
    }
}

/// Goes through a block: all rows by one panel after the other. Each addition waits for the one before, so one or two rows
/// take panels side by side to have enough under way.
///
/// # Safety
/// The machine must have the instruction set of `S`, and the block be as `Micro::run` demands.
#[inline(always)]
unsafe fn run<S: Simd>(block: &Block<Float>, most: usize, tile: impl Fn(Tiles, usize)) {
    let panels = block.columns.div_ceil(2 * S::LANES);
    let mut panel = 0;
    while panel < panels {
        let side = match (block.rows, panels - panel) {
            (1, SIDE..) => SIDE,
            (2, 2..) => 2,
            _ => 1,
        };
        match side {
            // SAFETY: as many panels are left, and the block has as many rows.
            SIDE => unsafe {
                wide::<S, 1, SIDE, 2, false>(block, Tiles { first: 0, height: 1, count: 1 }, panel)
            },
            // SAFETY: as above.
            2 => unsafe { wide::<S, 2, 2, 2, false>(block, Tiles { first: 0, height: 2, count: 1 }, panel) },
            _ => for_each_height(block.rows, most, |tiles| tile(tiles, panel)),
        }
        panel += side;
    }
}

/// Goes through a block whose panels are [`SIDE`] ones side by side: one row after the other by all of a panel.
///
/// # Safety
/// As for [`run`]; all panels must have all their columns.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn row_by_row<S: Simd>(block: &Block<Float>) {
    let tiles = Tiles { first: 0, height: 1, count: block.rows };
    for panel in 0..block.columns.div_ceil(SIDE * 2 * S::LANES) {
        // SAFETY: by contract, as the block's panels are those.
        unsafe { wide::<S, 1, SIDE, 2, true>(block, tiles, panel) }
    }
}

/// Computes tiles of `M` rows of one panel, or of its first vector where that has all columns that are left.
///
/// # Safety
/// As for [`wide`].
#[inline(always)]
unsafe fn one<S: Simd, const M: usize>(block: &Block<Float>, tiles: Tiles, panel: usize) {
    // Where vectors are short there is less to save than a loop of their own over whole panels brings.
    let is_half = S::LANES > 4 && block.columns - panel * 2 * S::LANES <= S::LANES;
    // SAFETY: by contract.
    unsafe {
        match is_half {
            true => wide::<S, M, 1, 1, false>(block, tiles, panel),
            false => wide::<S, M, 1, 2, false>(block, tiles, panel),
        }
    }
}

/// Computes tiles of `M` rows of `P` panels, `V` vectors of each. Panels that are `JOINED` are one of the block's.
///
/// # Safety
/// The machine must have the instruction set of `S`, the block be as `Micro::run` demands, and have the tiles' rows, `M` in
/// each, and `P` panels from `panel` on.
#[inline(always)]
unsafe fn wide<S: Simd, const M: usize, const P: usize, const V: usize, const JOINED: bool>(
    block: &Block<Float>,
    tiles: Tiles,
    panel: usize,
) {
    let (lanes, width) = (S::LANES, 2 * S::LANES);
    // From one panel's weights to the next panel's of the same input, and to those of the next input.
    let (apart, onward) = if JOINED { (width, P * width) } else { (block.panel, width) };
    let start = panel * onward;
    let (segments, columns) = (block.segments(), block.columns - start);
    let is_whole = columns >= P * width;
    let (bias, first) = (block.bias.wrapping_add(start), block.panels.wrapping_add(panel * block.panel));
    // Where each operand is loaded by an instruction, what nothing comes of is worth leaving out, too.
    if S::LOADS_APART && P == 1 && V == 2 && is_whole && segments == 1 {
        // SAFETY: by contract.
        unsafe {
            return match block.finish {
                (f32::NEG_INFINITY, f32::INFINITY) => whole::<S, M, 0>(block, tiles, panel),
                (_, f32::INFINITY) => whole::<S, M, 1>(block, tiles, panel),
                _ => whole::<S, M, 2>(block, tiles, panel),
            };
        }
    }
    // Each tile asks for the next part.
    let mut ahead = block.ahead((tiles.first, M), panel, segments * block.depth);
    for row in (tiles.first..).step_by(M).take(tiles.count) {
        // SAFETY: panels, bias, rows of inputs and outputs exist by contract; of vectors at the edge, the existing columns are
        // stored.
        unsafe {
            let mut sums = [[[S::splat(0.0); 2]; P]; M];
            for row in &mut sums {
                for (p, sums) in row.iter_mut().enumerate() {
                    *sums = S::load_two(bias.add(p * width));
                }
            }
            let mut weights = first;
            for segment in 0..segments {
                let inputs = block.pointers::<M>(segment, row);
                let mut done = 0;
                if P == 1 && V == 2 {
                    done = S::products(&mut sums, inputs, weights, block.depth);
                    weights = weights.add(done * width);
                }
                for i in done..block.depth {
                    if !JOINED {
                        ahead.ask();
                    }
                    for p in 0..P {
                        let b = weights.add(p * apart);
                        let (b0, b1) = (S::load(b), S::load(b.add((V - 1) * lanes)));
                        for (m, row) in sums.iter_mut().enumerate() {
                            let x = S::splat(inputs[m].add(i).read_unaligned());
                            row[p][0] = S::mul_add(x, b0, row[p][0]);
                            if V == 2 {
                                row[p][1] = S::mul_add(x, b1, row[p][1]);
                            }
                        }
                    }
                    weights = weights.add(onward);
                }
            }
            let (lo, hi) = (S::splat(block.finish.0), S::splat(block.finish.1));
            let to = block.outputs.add(row * block.stride + start);
            if is_whole {
                let mut to = to;
                for sums in &sums {
                    for (p, sum) in sums.iter().enumerate() {
                        S::store(to.add(p * width), S::clamp(sum[0], lo, hi));
                        S::store(to.add(p * width + lanes), S::clamp(sum[1], lo, hi));
                    }
                    to = to.wrapping_add(block.stride);
                }
                continue;
            }
            for (m, sums) in sums.iter().enumerate() {
                for (p, sum) in sums.iter().enumerate() {
                    let (to, left) = (to.add(m * block.stride + p * width), columns - p * width);
                    S::store_some(to, S::clamp(sum[0], lo, hi), left.min(lanes));
                    if left > lanes {
                        S::store_some(to.add(lanes), S::clamp(sum[1], lo, hi), (left - lanes).min(lanes));
                    }
                }
            }
        }
    }
}

/// [`wide`] of one panel that has all its columns, for rows that lie in one piece. Of the `BOUNDS`, none may change anything,
/// or the lower one, or both. It is a function of its own so that registers hold what all tiles have, which they do not
/// among the tiles of all heights.
///
/// # Safety
/// As for [`wide`]; the instruction set must be what every machine has, and have a loop of its own for products of any depth.
#[inline(never)]
unsafe fn whole<S: Simd, const M: usize, const BOUNDS: usize>(
    block: &Block<Float>,
    tiles: Tiles,
    panel: usize,
) {
    let (start, depth, stride) = (panel * 2 * S::LANES, block.depth, block.stride);
    // In memory, as sums and what they are made of leave no registers for them.
    // SAFETY: by contract.
    let bounds = unsafe { [S::splat(block.finish.0), S::splat(block.finish.1)] };
    let (bias, weights) = (block.bias.wrapping_add(start), block.panels.wrapping_add(panel * block.panel));
    let mut rows = block.inputs.as_ptr().wrapping_add(tiles.first).cast::<[*const f32; M]>();
    let mut to = block.outputs.wrapping_add(tiles.first * stride + start);
    for _ in 0..tiles.count {
        // SAFETY: by contract.
        unsafe {
            let mut sums = [[[S::splat(0.0); 2]; 1]; M];
            for sums in &mut sums {
                sums[0] = S::load_two(bias);
            }
            S::products(&mut sums, rows.read(), weights, depth);
            rows = rows.wrapping_add(1);
            let [lo, hi] = if BOUNDS == 0 { bounds } else { S::load_two((&raw const bounds).cast()) };
            for [sums] in sums {
                let bounded = sums.map(|sum| match BOUNDS {
                    0 => sum,
                    1 => S::clamp_below(sum, lo),
                    _ => S::clamp(sum, lo, hi),
                });
                S::store(to, bounded[0]);
                S::store(to.add(S::LANES), bounded[1]);
                to = to.wrapping_add(stride);
            }
        }
    }
}
