//! Products of bytes in small matrices (I8MM): two rows of eight inputs times two columns of as many weights.
//!
//! Weights are packed in groups of eight, so that two columns of a panel are a vector. A vector of sums is two rows of two
//! columns, which are put in order when they are complete. The compiler has no stable intrinsics for these instructions.

use super::finish::{Epilogue, Finish, Way};
use super::i8mm_finish::Constants;
use super::i8mm_pairs::{multiply, Pairs, Step};
use super::lanes::Lanes;
use super::micro::{for_each_height, with_height, Block, Micro, Tiles};
use super::order_neon::{load_two, VECTOR};
use super::quant::Quant;
use crate::backend::cpu::kernels::neon::Neon;
use std::arch::aarch64::*;
use std::mem::MaybeUninit;

/// For unsigned inputs, and for signed ones. Weights are signed for either.
pub static MICRO: [Micro<Quant>; 2] = [of(unsigned), of(signed)];

const fn of(run: unsafe fn(&Block<Quant>)) -> Micro<Quant> {
    Micro {
        name: "i8mm 8-bit",
        rows: 8,
        columns: 8,
        group: 8,
        at_once: 4,
        padded,
        even: false,
        room: 0,
        flip: 0,
        form: Neon::FORM,
        run,
    }
}

fn padded(depth: usize) -> usize {
    depth.next_multiple_of(8)
}

// The closures are compiled for I8MM as the functions are that they stand in.

macro_rules! entry_points {
    ($($name:ident: $signed:literal;)*) => {
        $(#[target_feature(enable = "i8mm")]
        unsafe fn $name(block: &Block<Quant>) {
            // SAFETY: by the contract of `Micro::run`; tiles are such as the block has.
            unsafe {
                run::<$signed>(
                    block,
                    |epilogue, paired, tiles, panel| {
                        with_height!(tiles.height, [1 2 3 4], PAIRS => tiles_of_pairs::<$signed, PAIRS>(block, epilogue, paired, tiles, panel))
                    },
                    |epilogue, row, height, panel| {
                        with_height!(height.div_ceil(2), [1 2 3 4], PAIRS => tile::<$signed, PAIRS, 1>(block, epilogue, row, height, panel))
                    },
                )
            }
        })*
    };
}

entry_points!(unsigned: false; signed: true;);

/// Bytes of rows that are put in pairs at once, on the stack: nothing is to be allocated here, and a thread has as much.
const PAIRED: usize = 64 * 1024;

/// Goes through a block: some rows by one panel after the other. One or two rows take panels side by side to have enough
/// under way.
///
/// # Safety
/// The machine must have I8MM, and the block be as `Micro::run` demands.
#[inline(always)]
unsafe fn run<const SIGNED: bool>(
    block: &Block<Quant>,
    by_pairs: impl Fn(&Epilogue<Neon>, &Pairs, Tiles, usize),
    one: impl Fn(&Epilogue<Neon>, usize, usize, usize),
) {
    // SAFETY: the same contract.
    let epilogue = unsafe { Epilogue::<Neon>::of::<SIGNED>(block) };
    let panels = block.columns.div_ceil(8);
    let bytes = block.segments() * block.padded;
    let most = PAIRED / bytes.max(1);
    if block.rows > 2 && most >= 8 {
        let mut room = [MaybeUninit::<u8>::uninit(); PAIRED];
        for_each_height(block.rows.div_ceil(2), most / 8 * 4, |parts| {
            let pairs = parts.height;
            for first in (parts.first..).step_by(pairs).take(parts.count) {
                // SAFETY: the block has the rows, and there is room for as many.
                let paired = unsafe { Pairs::fill(block, first, pairs, &mut room) };
                for panel in 0..panels {
                    for_each_height(pairs, 4, |tiles| by_pairs(&epilogue, &paired, tiles, panel));
                }
            }
        });
        return;
    }
    let mut panel = 0;
    while panel < panels {
        if block.rows <= 2 && panels - panel >= 2 {
            // SAFETY: as many panels are left, and the block has the rows.
            unsafe { tile::<SIGNED, 1, 2>(block, &epilogue, 0, block.rows, panel) };
            panel += 2;
        } else {
            for_each_height(block.rows, 8, |tiles| {
                for row in (tiles.first..).step_by(tiles.height).take(tiles.count) {
                    one(&epilogue, row, tiles.height, panel);
                }
            });
            panel += 1;
        }
    }
}

/// Computes tiles of `PAIRS` pairs of rows of a panel.
///
/// # Safety
/// The machine must have I8MM, the block be as `Micro::run` demands, and there be the tiles' pairs, `PAIRS` in each.
#[inline(always)]
unsafe fn tiles_of_pairs<const SIGNED: bool, const PAIRS: usize>(
    block: &Block<Quant>,
    epilogue: &Epilogue<Neon>,
    paired: &Pairs,
    tiles: Tiles,
    panel: usize,
) {
    // SAFETY: panels and pairs exist by contract.
    unsafe {
        let (finish, constants) = (Finish::of(block, epilogue, panel), Constants::of(block, panel));
        let product = Product { paired, weights: block.panels.add(panel * block.panel).cast() };
        match finish.way {
            Way::Positive => {
                return usual_tiles::<SIGNED, PAIRS, true>(block, product, &constants, tiles, &finish)
            }
            Way::Plain => {
                return usual_tiles::<SIGNED, PAIRS, false>(block, product, &constants, tiles, &finish)
            }
            _ => {}
        }
        for pair in (tiles.first..).step_by(PAIRS).take(tiles.count) {
            let sums = product.sums::<SIGNED, PAIRS>(pair, &constants);
            let row = 2 * (paired.first + pair);
            // Written out, as sums that are indexed by a variable would be kept in memory all along.
            macro_rules! store_pairs {
                ($($p:literal)*) => {
                    $(if PAIRS > $p {
                        let rows = [row + 2 * $p, (block.rows - 1).min(row + 2 * $p + 1)];
                        store(block, epilogue, sums[$p.min(PAIRS - 1)], rows, &finish);
                    })*
                };
            }
            store_pairs!(0 1 2 3);
        }
    }
}

/// The same where outputs are such as [`Constants`] makes. Here nothing is asked for each tile.
///
/// # Safety
/// As for [`tiles_of_pairs`].
#[inline(always)]
unsafe fn usual_tiles<const SIGNED: bool, const PAIRS: usize, const POSITIVE: bool>(
    block: &Block<Quant>,
    product: Product,
    constants: &Constants,
    tiles: Tiles,
    finish: &Finish<Neon>,
) {
    let row = 2 * (product.paired.first + tiles.first);
    // The block's last row may have no other.
    let (mut left, mut to) = (block.rows - row, finish.output(row));
    for pair in (tiles.first..).step_by(PAIRS).take(tiles.count) {
        // SAFETY: by contract.
        unsafe {
            let sums = product.sums::<SIGNED, PAIRS>(pair, constants);
            to = constants.outputs::<PAIRS, POSITIVE>(&sums, to, left < 2 * PAIRS);
        }
        left = left.wrapping_sub(2 * PAIRS);
    }
}

/// Pairs and the weights of a panel.
#[derive(Clone, Copy)]
struct Product<'a> {
    paired: &'a Pairs,
    weights: *const u8,
}

impl Product<'_> {
    /// The sums of `PAIRS` pairs, in the order that `order_neon` tells of.
    ///
    /// # Safety
    /// The machine must have I8MM, and there be the pairs and the weights.
    #[inline(always)]
    unsafe fn sums<const SIGNED: bool, const PAIRS: usize>(
        self,
        pair: usize,
        constants: &Constants,
    ) -> [[int32x4_t; 4]; PAIRS] {
        // Segments of pairs, and those of a panel, lie one after the other.
        let (bytes, size) = (self.paired.bytes, self.paired.size);
        let groups = size / VECTOR;
        let mut step = Step {
            inputs: std::array::from_fn::<_, PAIRS, _>(|p| bytes.wrapping_add((pair + p) * size)),
            weights: self.weights,
            // SAFETY: every machine has the instruction.
            a: [[unsafe { vdupq_n_u8(0) }; 2]; PAIRS],
            // SAFETY: as above.
            b: [unsafe { vdupq_n_u8(0) }; 4],
        };
        // SAFETY: as above.
        let mut sums = [[unsafe { vdupq_n_s32(0) }; 4]; PAIRS];
        for sums in &mut sums {
            *sums = constants.start();
        }
        // SAFETY: by contract; all but the last step load what the next one multiplies.
        unsafe {
            if groups > 1 {
                step.a = step.inputs.map(|pair| load_two::<0>(pair));
                step.weights_of_group();
                let others = groups / 2 - 1;
                if others % 2 > 0 {
                    step.two_groups::<SIGNED, true>(&mut sums);
                }
                for _ in 0..others / 2 {
                    step.four_groups::<SIGNED>(&mut sums);
                }
                step.two_groups::<SIGNED, false>(&mut sums);
            }
            if groups % 2 > 0 {
                step.weights_of_group();
                for (sums, pair) in sums.iter_mut().zip(step.inputs) {
                    let a = pair.cast::<uint8x16_t>().read_unaligned();
                    let b = step.b.map(|b| vreinterpretq_s8_u8(b));
                    *sums = [
                        multiply::<SIGNED>(sums[0], a, b[0]),
                        multiply::<SIGNED>(sums[1], a, b[1]),
                        multiply::<SIGNED>(sums[2], a, b[2]),
                        multiply::<SIGNED>(sums[3], a, b[3]),
                    ];
                }
            }
        }
        sums
    }
}

/// Computes `height` rows, in `PAIRS` of them of which the last may be half a one, of `P` panels.
///
/// # Safety
/// The machine must have I8MM, the block be as `Micro::run` demands, and have the rows from `row` on and `P` panels from
/// `panel` on.
#[inline(always)]
unsafe fn tile<const SIGNED: bool, const PAIRS: usize, const P: usize>(
    block: &Block<Quant>,
    epilogue: &Epilogue<Neon>,
    row: usize,
    height: usize,
    panel: usize,
) {
    let last = row + height - 1;
    // SAFETY: panels and rows of inputs exist by contract.
    unsafe {
        let mut sums = [[[vdupq_n_s32(0); 4]; P]; PAIRS];
        for p in 0..P {
            let start = start_with_bias(block, panel + p);
            sums.iter_mut().for_each(|sums| sums[p] = start);
        }
        let mut weights = block.panels.add(panel * block.panel);
        for segment in 0..block.segments() {
            let inputs = &block.inputs[segment * block.rows..][..block.rows];
            let pairs: [[*const u8; 2]; PAIRS] =
                std::array::from_fn(|i| [inputs[row + 2 * i], inputs[last.min(row + 2 * i + 1)]]);
            let whole = block.padded - block.padded % 16;
            for i in (0..whole).step_by(16) {
                // Two groups of two rows.
                let mut a = [[vdupq_n_u8(0); 2]; PAIRS];
                for (a, pair) in a.iter_mut().zip(pairs) {
                    let rows = pair.map(|row| row.add(i).cast::<uint64x2_t>().read_unaligned());
                    a[0] = vreinterpretq_u8_u64(vzip1q_u64(rows[0], rows[1]));
                    a[1] = vreinterpretq_u8_u64(vzip2q_u64(rows[0], rows[1]));
                }
                for p in 0..P {
                    let b = weights.add(p * block.panel).cast::<[[int8x16_t; 4]; 2]>().read_unaligned();
                    for (sums, a) in sums.iter_mut().zip(a) {
                        for j in 0..4 {
                            sums[p][j] = multiply::<SIGNED>(sums[p][j], a[0], b[0][j]);
                        }
                    }
                    for (sums, a) in sums.iter_mut().zip(a) {
                        for j in 0..4 {
                            sums[p][j] = multiply::<SIGNED>(sums[p][j], a[1], b[1][j]);
                        }
                    }
                }
                weights = weights.add(128);
            }
            if whole < block.padded {
                for p in 0..P {
                    let b = weights.add(p * block.panel).cast::<[int8x16_t; 4]>().read_unaligned();
                    for (sums, pair) in sums.iter_mut().zip(pairs) {
                        let rows = pair.map(|row| row.add(whole).cast::<uint8x8_t>().read_unaligned());
                        let a = vcombine_u8(rows[0], rows[1]);
                        for j in 0..4 {
                            sums[p][j] = multiply::<SIGNED>(sums[p][j], a, b[j]);
                        }
                    }
                }
                weights = weights.add(64);
            }
        }
        for p in 0..P {
            let finish = Finish::of(block, epilogue, panel + p);
            for (i, sums) in sums.iter().enumerate() {
                let rows = [row + 2 * i, last.min(row + 2 * i + 1)];
                store(block, epilogue, sums[p], rows, &finish);
            }
        }
    }
}

/// The bias of a panel as sums of two rows and two columns each.
///
/// # Safety
/// The block must be as `Micro::run` demands, and have the panel.
#[inline(always)]
unsafe fn start_with_bias(block: &Block<Quant>, panel: usize) -> [int32x4_t; 4] {
    // SAFETY: the bias has whole panels by contract.
    unsafe {
        let pair = |i: usize| {
            let pair = block.bias.add(panel * 8 + 2 * i).cast::<u64>().read_unaligned();
            vreinterpretq_s32_u64(vdupq_n_u64(pair))
        };
        [pair(0), pair(1), pair(2), pair(3)]
    }
}

/// Sums of two rows and two columns each as those of two rows.
#[inline(always)]
fn in_order(sums: [int32x4_t; 4]) -> [[int32x4_t; 2]; 2] {
    // SAFETY: every machine has these instructions.
    unsafe {
        let [a, b, c, d] = sums.map(|sums| vreinterpretq_s64_s32(sums));
        let first = [vzip1q_s64(a, b), vzip1q_s64(c, d)].map(|sums| vreinterpretq_s32_s64(sums));
        let second = [vzip2q_s64(a, b), vzip2q_s64(c, d)].map(|sums| vreinterpretq_s32_s64(sums));
        [first, second]
    }
}

/// Turns the sums of two rows into outputs.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
unsafe fn store(
    block: &Block<Quant>,
    epilogue: &Epilogue<Neon>,
    sums: [int32x4_t; 4],
    rows: [usize; 2],
    finish: &Finish<Neon>,
) {
    // SAFETY: the block has the rows by contract.
    unsafe {
        let [mut first, mut second] = in_order(sums);
        if block.finish.0.row_factor != 0 {
            let less = |sums: int32x4_t, row: usize| Neon::sub(sums, Neon::splat(epilogue.terms[row]));
            first = first.map(|sums| less(sums, rows[0]));
            second = second.map(|sums| less(sums, rows[1]));
        }
        finish.rows([first, second], rows);
    }
}
