//! Float products in tiles (AMX), which multiply bfloat16: floats of 8 significant bits, the upper half of an f32.
//!
//! A float is the sum of three such halves, exactly: the nearest one, the one nearest to what is left, and the rest. Of the
//! nine products of two floats' halves six are added up. The other three are less than a float's last bit together, so that
//! a product is as good as one of floats; six products in tiles take 0.4 of its time in vectors. Inputs and weights are
//! taken apart as they are needed, into memory of the task: packed weights are the same as for vectors.
//!
//! Neither what is infinite nor NaN has halves, and sums of very large ones may not be finite where those of floats are. So a row of inputs
//! or a panel of weights that has such values is multiplied by vectors. Tiles take what is below 2^-126 for 0: what that
//! changes in a product is less than 2^-64.

use super::amx::Shapes;
use super::float::{self, Float};
use super::halves::{columns, split_panel, split_row, Step, STEP, STEPS, TILE};
use super::micro::{Block, Micro, Shape, MAX_ROWS};
use super::requant::Form;
use crate::backend::cpu::kernels::simd::{Avx512, Simd};
use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;

pub static MICRO: Micro<Float> = Micro {
    name: "amx float",
    rows: 2 * TILE,
    columns: 2 * TILE,
    group: 1,
    at_once: 2,
    padded: |depth| depth,
    even: false,
    room: size_of::<Room>(),
    flip: 0,
    form: Form::Wide,
    run,
};

const DEPTH: usize = STEPS * STEP;
/// Panels that are taken apart before rows are multiplied by them.
const PANELS: usize = 8;
/// Pairs of tiles' rows that are multiplied by these. What is made of a pair stays in the nearest cache.
const PAIRS: usize = 7;
const ROWS: usize = PAIRS * 2 * TILE;

/// Which products are faster so, by measurement: rows must be multiplied by enough columns, and columns by enough rows, to
/// be worth taking apart, also where threads share them out; and short segments take longer to put together.
pub fn is_worthwhile(rows: usize, shape: Shape) -> bool {
    const PRODUCTS: usize = 1 << 23;
    let Shape { columns, segments, depth } = shape;
    let products = rows.saturating_mul(columns).saturating_mul(segments.saturating_mul(depth));
    rows >= 96 && columns >= 64 && depth >= 2 * STEP && products >= PRODUCTS
}

/// Sums of two rows of tiles by two columns of them.
#[repr(C, align(64))]
struct Sums([[f32; 2 * TILE]; 2 * TILE]);

/// Memory of a task.
#[repr(C, align(64))]
struct Room {
    inputs: [Step; STEPS],
    weights: [[Step; STEPS]; PANELS],
    sums: [[Sums; PAIRS]; PANELS],
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn run(block: &Block<Float>) {
    let (all, panels) = (block.segments() * block.depth, block.columns.div_ceil(2 * TILE));
    let (shapes, mut large_rows) = (Shapes::new(TILE, 64), [false; MAX_ROWS]);
    // SAFETY: shapes are such as the machine has; the room is there by the contract of `Micro::run`, and any bytes are one.
    let room = unsafe {
        asm!("ldtilecfg [{}]", in(reg) &shapes, options(nostack, readonly));
        &mut *block.room.cast::<Room>()
    };
    for rows in even_parts(block.rows, ROWS, 2 * TILE) {
        for panels in even_parts(panels, PANELS, 1) {
            let mut large_panels = [false; PANELS];
            for depth in even_parts(all, DEPTH, STEP) {
                // SAFETY: the block has these rows, panels and products, and the machine all that it takes.
                unsafe {
                    for ((panel, to), is_large) in
                        panels.clone().zip(&mut room.weights).zip(&mut large_panels)
                    {
                        *is_large |= split_panel(block, panel, depth.clone(), to);
                    }
                    multiply(block, (&rows, &panels, &depth), room, &mut large_rows);
                }
            }
            let large = panels.zip(large_panels).filter(|&(_, is_large)| is_large);
            for (panel, _) in large {
                // SAFETY: the block has the rows and the panel.
                rows.clone().for_each(|row| unsafe { float::avx512_one(block, row, panel) });
            }
        }
    }
    // SAFETY: nothing is in the tiles any more. Left in use they would be saved at each change of threads.
    unsafe { asm!("tilerelease", options(nostack, nomem)) };
    for row in (0..block.rows).filter(|&row| large_rows[row]) {
        // SAFETY: as above.
        (0..panels).for_each(|panel| unsafe { float::avx512_one(block, row, panel) });
    }
}

/// Ranges of at most `most`, nearly as long as each other, all but the last of whole units; `most` must be of such.
fn even_parts(all: usize, most: usize, unit: usize) -> impl Iterator<Item = Range<usize>> {
    let each = all.div_ceil(all.div_ceil(most).max(1)).next_multiple_of(unit).max(1);
    (0..all).step_by(each).map(move |start| start..all.min(start + each))
}

/// Multiplies some rows by some panels, which were taken apart, for a part of their sums; makes outputs of sums that are
/// done. Notes which rows have values that are too large.
///
/// # Safety
/// The block must have them, the first of a sum's parts come first, and tiles be shaped.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn multiply(
    block: &Block<Float>,
    (rows, panels, depth): (&Range<usize>, &Range<usize>, &Range<usize>),
    room: &mut Room,
    large_rows: &mut [bool; MAX_ROWS],
) {
    let all = block.segments() * block.depth;
    let (is_first, is_last) = (depth.start == 0, depth.end == all);
    let steps = depth.len().div_ceil(STEP);
    // While vectors turn the sums of one pair of tiles' rows into outputs, tiles multiply the next.
    let (mut last, mut turn) = (None, 0);
    for (pair, first) in rows.clone().step_by(2 * TILE).enumerate() {
        let pair_rows = first..rows.end.min(first + 2 * TILE);
        for (i, row) in pair_rows.clone().enumerate() {
            // SAFETY: the block has the row, and the room as many steps.
            large_rows[row] |= unsafe { split_row(block, row, depth.clone(), i, &mut room.inputs) };
        }
        for (p, panel) in panels.clone().enumerate() {
            let sums = match is_first && is_last {
                true => &mut room.sums[0][turn],
                false => &mut room.sums[p][pair],
            };
            let sums = sums.0.as_mut_ptr().cast::<f32>();
            // SAFETY: the block has the panel; sums and steps are within the room.
            unsafe {
                load_sums(sums, is_first);
                let operands = (room.inputs.as_ptr(), room.weights[p].as_ptr(), steps);
                match (pair_rows.len() > TILE, columns(block, panel) > TILE) {
                    (true, true) => two_by_two(operands),
                    (true, false) => two_by_one(operands),
                    (false, true) => one_by_two(operands),
                    (false, false) => one_by_one(operands),
                }
                store_sums(sums);
                if is_last {
                    let done = (pair_rows.clone(), panel, sums.cast_const());
                    if let Some((rows, panel, sums)) = last.replace(done) {
                        store(block, rows, panel, sums);
                    }
                }
            }
            turn = 1 - turn;
        }
    }
    if let Some((rows, panel, sums)) = last {
        // SAFETY: as above.
        unsafe { store(block, rows, panel, sums) };
    }
}

/// # Safety
/// Tiles must be shaped, and there be sums unless these are their first products.
#[inline(always)]
unsafe fn load_sums(sums: *const f32, is_first: bool) {
    // SAFETY: by contract.
    unsafe {
        if is_first {
            asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack, nomem));
        } else {
            asm!(
                "tileloadd tmm0, [{sums} + {line}]",
                "tileloadd tmm1, [{sums} + {line} + 64]",
                "tileloadd tmm2, [{sums} + {line} + 2048]",
                "tileloadd tmm3, [{sums} + {line} + 2112]",
                sums = in(reg) sums,
                line = in(reg) 128usize,
                options(nostack, readonly),
            );
        }
    }
}

/// # Safety
/// Tiles must be shaped, and there be room for [`Sums`].
#[inline(always)]
unsafe fn store_sums(sums: *mut f32) {
    // SAFETY: by contract.
    unsafe {
        asm!(
            "tilestored [{sums} + {line}], tmm0",
            "tilestored [{sums} + {line} + 64], tmm1",
            "tilestored [{sums} + {line} + 2048], tmm2",
            "tilestored [{sums} + {line} + 2112], tmm3",
            sums = in(reg) sums,
            line = in(reg) 128usize,
            options(nostack),
        );
    }
}

/// Defines `$name`, which adds products to the tiles of sums, step by step: of the halves that are farthest down first, each
/// loaded as seldom as can be.
macro_rules! products {
    ($name:ident, inputs $inputs:tt, weights $weights:tt, $products:tt) => {
        /// # Safety
        /// Tiles must be shaped, and there be so many steps of inputs and of weights.
        #[inline(always)]
        unsafe fn $name((inputs, weights, steps): (*const Step, *const Step, usize)) {
            // SAFETY: by contract; the tile registers are nobody else's.
            unsafe {
                asm!(
                    "2:",
                    products!(load "inputs" "0" $inputs),
                    products!(load "weights" "4096" $weights),
                    products!(add $products),
                    products!(load "weights" "2048" $weights),
                    products!(add $products),
                    products!(load "inputs" "2048" $inputs),
                    products!(add $products),
                    products!(load "weights" "0" $weights),
                    products!(add $products),
                    products!(load "inputs" "4096" $inputs),
                    products!(add $products),
                    products!(load "inputs" "0" $inputs),
                    products!(add $products),
                    "add {inputs}, {step}",
                    "add {weights}, {step}",
                    "dec {steps}",
                    "jnz 2b",
                    inputs = inout(reg) inputs => _,
                    weights = inout(reg) weights => _,
                    line = in(reg) 64usize,
                    step = const size_of::<Step>(),
                    steps = inout(reg) steps => _,
                    options(nostack, readonly),
                );
            }
        }
    };
    (load $from:literal $plane:literal [$($tile:literal at $at:literal),*]) => {
        concat!($("tileloadd ", $tile, ", [{", $from, "} + {line} + ", $plane, " + ", $at, "]\n"),*)
    };
    (add [$($product:literal),*]) => { concat!($("tdpbf16ps ", $product, "\n"),*) };
}

products!(two_by_two, inputs ["tmm4" at "0", "tmm5" at "1024"], weights ["tmm6" at "0", "tmm7" at "1024"],
    ["tmm0, tmm4, tmm6", "tmm1, tmm4, tmm7", "tmm2, tmm5, tmm6", "tmm3, tmm5, tmm7"]);
products!(two_by_one, inputs ["tmm4" at "0", "tmm5" at "1024"], weights ["tmm6" at "0"],
    ["tmm0, tmm4, tmm6", "tmm2, tmm5, tmm6"]);
products!(one_by_two, inputs ["tmm4" at "0"], weights ["tmm6" at "0", "tmm7" at "1024"],
    ["tmm0, tmm4, tmm6", "tmm1, tmm4, tmm7"]);
products!(one_by_one, inputs ["tmm4" at "0"], weights ["tmm6" at "0"], ["tmm0, tmm4, tmm6"]);

/// Makes outputs of the sums of some rows and a panel.
///
/// # Safety
/// The block must have them, and there be sums of as many rows.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn store(block: &Block<Float>, rows: Range<usize>, panel: usize, sums: *const f32) {
    let columns = columns(block, panel);
    // SAFETY: by contract; of columns those are stored that there are.
    unsafe {
        let bias = block.bias.add(panel * 2 * TILE);
        let bias = [Avx512::load(bias), Avx512::load(bias.add(TILE))];
        let (lo, hi) = (Avx512::splat(block.finish.0), Avx512::splat(block.finish.1));
        for (i, row) in rows.enumerate() {
            let to = block.outputs.add(row * block.stride + panel * 2 * TILE);
            let of_row = sums.add(i * 2 * TILE);
            let sum = |half: usize| {
                Avx512::clamp(_mm512_add_ps(Avx512::load(of_row.add(half * TILE)), bias[half]), lo, hi)
            };
            Avx512::store_some(to, sum(0), columns.min(TILE));
            if columns > TILE {
                Avx512::store_some(to.add(TILE), sum(1), columns - TILE);
            }
        }
    }
}
