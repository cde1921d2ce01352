//! Products of bytes in tiles (AMX): 16 rows of 64 bytes times 16 columns of as many.
//!
//! Weights are packed as for vectors; their groups are shared evenly among steps of at most 16, so that no step is short.
//! Tiles are shaped once a block, which takes longer than a small product. So a block's last tile overlaps the one before
//! it where rows are left over, and computes some of them again. Where there is something between lines of rows tiles go on
//! across it, as long as no other tile can be spared: what comes of that is not stored.

use super::amx_row;
use super::lanes::Lanes;
use super::micro::{Block, Micro};
use super::quant::{Epilogue, Finish, Quant};
use super::tiles::{Tile, Tiles};
use crate::backend::cpu::kernels::simd::Avx512;
use std::arch::asm;
use std::mem::MaybeUninit;

/// For unsigned inputs, and for signed ones.
pub static MICRO: [Micro<Quant>; 2] = [of(unsigned), of(signed)];

/// Weights stay signed: tiles have a product for them with either inputs, so that rows of inputs need no sums of their own.
const fn of(run: unsafe fn(&Block<Quant>)) -> Micro<Quant> {
    Micro {
        name: "amx 8-bit",
        rows: 32,
        columns: 32,
        group: 4,
        at_once: 4,
        padded,
        even: true,
        room: 0,
        flip: 0,
        form: Avx512::FORM,
        run,
    }
}

/// Steps that a segment takes, and bytes of a row in each.
fn steps(depth: usize) -> (usize, usize) {
    let groups = depth.div_ceil(4);
    let count = groups.div_ceil(16);
    (count, groups.div_ceil(count.max(1)) * 4)
}

fn padded(depth: usize) -> usize {
    let (count, bytes) = steps(depth);
    count * bytes
}

/// Shapes of the tiles, as the instruction takes them.
#[repr(C, align(64))]
pub struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shapes {
    /// Sums in tiles 0 to 3, two rows of tiles by two columns of them; inputs in 4 and 5; weights in 6 and 7.
    pub fn new(rows: usize, bytes: usize) -> Self {
        let (mut shape, rows, bytes) = ([(0, 0); 16], rows.min(16) as u8, bytes as u16);
        shape[..4].fill((rows, 64));
        shape[4..6].fill((rows, bytes));
        shape[6..8].fill(((bytes / 4) as u8, 64));
        Shapes {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            bytes: shape.map(|s| s.1),
            rows: shape.map(|s| s.0),
        }
    }
}

/// Sums of two tiles beside and below each other.
#[repr(C, align(64))]
struct Sums {
    _sums: [i32; 32 * 32],
}

/// Defines `$name`, which adds the products of one segment to the tiles of sums.
macro_rules! segment {
    ($(#[$doc:meta])* fn $name:ident($product:literal)) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The machine must have AMX, tiles be shaped, and each row have `steps` times `bytes` inputs, aligned or not.
        #[inline(always)]
        unsafe fn $name<const TWO: bool>(
            (first, second): (*const u8, *const u8),
            distance: isize,
            weights: *const i8,
            (steps, bytes): (usize, usize),
        ) {
            // SAFETY: tiles are loaded from what exists by contract; the tile registers are nobody else's.
            unsafe {
                if TWO {
                    asm!(
                        "2:",
                        "tileloadd tmm6, [{weights} + {line}]",
                        "tileloadd tmm4, [{first} + {distance}]",
                        "tileloadd tmm7, [{weights} + {line} + 64]",
                        concat!($product, " tmm0, tmm4, tmm6"),
                        "tileloadd tmm5, [{second} + {distance}]",
                        concat!($product, " tmm1, tmm4, tmm7"),
                        concat!($product, " tmm2, tmm5, tmm6"),
                        concat!($product, " tmm3, tmm5, tmm7"),
                        "add {first}, {bytes}",
                        "add {second}, {bytes}",
                        "add {weights}, {panel}",
                        "dec {steps}",
                        "jnz 2b",
                        first = inout(reg) first => _,
                        second = inout(reg) second => _,
                        distance = in(reg) distance,
                        weights = inout(reg) weights => _,
                        line = in(reg) 128usize,
                        bytes = in(reg) bytes,
                        panel = in(reg) bytes * 32,
                        steps = inout(reg) steps => _,
                        options(nostack, readonly),
                    );
                } else {
                    asm!(
                        "2:",
                        "tileloadd tmm6, [{weights} + {line}]",
                        "tileloadd tmm4, [{first} + {distance}]",
                        "tileloadd tmm7, [{weights} + {line} + 64]",
                        concat!($product, " tmm0, tmm4, tmm6"),
                        concat!($product, " tmm1, tmm4, tmm7"),
                        "add {first}, {bytes}",
                        "add {weights}, {panel}",
                        "dec {steps}",
                        "jnz 2b",
                        first = inout(reg) first => _,
                        distance = in(reg) distance,
                        weights = inout(reg) weights => _,
                        line = in(reg) 128usize,
                        bytes = in(reg) bytes,
                        panel = in(reg) bytes * 32,
                        steps = inout(reg) steps => _,
                        options(nostack, readonly),
                    );
                }
            }
        }
    };
}

segment! {
    /// Unsigned inputs by signed weights.
    fn add_unsigned("tdpbusd")
}
segment! {
    /// Signed inputs by signed weights.
    fn add_signed("tdpbssd")
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn unsigned(block: &Block<Quant>) {
    // SAFETY: by the contract of `Micro::run`.
    unsafe { run::<false>(block) }
}

#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn signed(block: &Block<Quant>) {
    // SAFETY: by the contract of `Micro::run`.
    unsafe { run::<true>(block) }
}

/// Goes through a block: all rows by one panel after the other.
///
/// # Safety
/// The machine must have AMX and AVX-512, and the block be as `Micro::run` demands.
#[inline(always)]
unsafe fn run<const SIGNED: bool>(block: &Block<Quant>) {
    // SAFETY: the same contract.
    let epilogue = unsafe { Epilogue::<Avx512>::of::<SIGNED>(block) };
    let (_, bytes) = steps(block.depth);
    let tiles = Tiles::new(block.rows, block.line);
    if block.rows == 1 {
        let mut sums = MaybeUninit::<Sums>::uninit();
        for panel in 0..block.columns.div_ceil(32) {
            let sums = sums.as_mut_ptr().cast();
            // SAFETY: the block has the panel and one row, of which the sums are just made.
            unsafe {
                amx_row::multiply::<SIGNED>(block, panel, sums);
                store(block, &epilogue, [tiles.tile(0), Tile::default()], |row| row, panel, sums);
            }
        }
        return;
    }
    let distance = distance(block);
    let shapes = Shapes::new(tiles.height(), bytes);
    // While vectors turn the sums of one part into outputs, tiles multiply the next.
    let (mut sums, mut turn) = ([const { MaybeUninit::<Sums>::uninit() }; 2], 0);
    let mut last = None;
    // SAFETY: the shapes are such as the machine has: at most 16 rows and 64 bytes, at least one of each.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &shapes, options(nostack, readonly)) };
    for panel in 0..block.columns.div_ceil(32) {
        for first in (0..tiles.count()).step_by(2) {
            // The last one may have none beside it.
            let beside = if first + 1 < tiles.count() { tiles.tile(first + 1) } else { Tile::default() };
            let pair = [tiles.tile(first), beside];
            // SAFETY: the block has the tiles, in each of which as many places can be read as there are in the shapes.
            unsafe {
                let sums = sums[turn].as_mut_ptr().cast();
                let starts = pair.map(|tile| tile.start());
                if beside.rows().is_empty() {
                    multiply::<SIGNED, false>(block, starts, distance, panel, sums);
                } else {
                    multiply::<SIGNED, true>(block, starts, distance, panel, sums);
                }
                if let Some((pair, panel, sums)) = last.replace((pair, panel, sums)) {
                    store_pair(block, &epilogue, (&tiles, pair), panel, sums);
                }
            }
            turn = 1 - turn;
        }
    }
    if let Some((pair, panel, sums)) = last {
        // SAFETY: as above.
        unsafe { store_pair(block, &epilogue, (&tiles, pair), panel, sums) };
    }
    // SAFETY: nothing is in the tiles any more. Left in use they would be saved at each change of threads.
    unsafe { asm!("tilerelease", options(nostack, nomem)) };
}

/// Bytes from a row's place to the next.
fn distance(block: &Block<Quant>) -> isize {
    match (block.line, block.inputs) {
        (Some(line), _) => line.distance as isize,
        (None, [first, second, ..]) if block.rows > 1 => (*second as isize).wrapping_sub(*first as isize),
        _ => 64,
    }
}

/// The sums of one or two tiles' rows and a panel.
///
/// # Safety
/// As for [`run`]; tiles must be shaped, the block have a tile's places from each start on, `distance` bytes from each other,
/// and `sums` have room for [`Sums`].
#[inline(always)]
unsafe fn multiply<const SIGNED: bool, const TWO: bool>(
    block: &Block<Quant>,
    starts: [usize; 2],
    distance: isize,
    panel: usize,
    sums: *mut i32,
) {
    let (count, bytes) = steps(block.depth);
    // SAFETY: by contract.
    unsafe {
        asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack, nomem));
        for (segment, inputs) in block.inputs.chunks_exact(block.rows).enumerate() {
            let weights = block.panels.add(panel * block.panel + segment * block.padded * 32);
            let at = |start: usize| inputs[0].wrapping_offset(start as isize * distance);
            let rows = (at(starts[0]), at(starts[1]));
            if SIGNED {
                add_signed::<TWO>(rows, distance, weights, (count, bytes));
            } else {
                add_unsigned::<TWO>(rows, distance, weights, (count, bytes));
            }
        }
        asm!(
            "tilestored [{sums} + {line}], tmm0",
            "tilestored [{sums} + {line} + 64], tmm1",
            sums = in(reg) sums,
            line = in(reg) 128usize,
            options(nostack),
        );
        if TWO {
            asm!(
                "tilestored [{sums} + {line}], tmm2",
                "tilestored [{sums} + {line} + 64], tmm3",
                sums = in(reg) sums.add(16 * 32),
                line = in(reg) 128usize,
                options(nostack),
            );
        }
    }
}

/// Turns the sums of two tiles into outputs: rows that have nothing between them by code of their own, as there are many
/// products in which this takes most of the time.
///
/// # Safety
/// As for [`store`].
#[inline(always)]
unsafe fn store_pair(
    block: &Block<Quant>,
    epilogue: &Epilogue<Avx512>,
    (tiles, pair): (&Tiles, [Tile; 2]),
    panel: usize,
    sums: *const i32,
) {
    // SAFETY: the same contract.
    unsafe {
        if block.line.is_some() {
            store(block, epilogue, pair, |row| tiles.place(row), panel, sums);
        } else {
            store(block, epilogue, pair, |row| row, panel, sums);
        }
    }
}

/// Turns sums into outputs.
///
/// # Safety
/// As for [`run`]; the tiles must be the block's, of which [`multiply`] gave the sums; `place` must tell where rows are.
#[inline(always)]
unsafe fn store(
    block: &Block<Quant>,
    epilogue: &Epilogue<Avx512>,
    pair: [Tile; 2],
    place: impl Fn(usize) -> usize,
    panel: usize,
    sums: *const i32,
) {
    let has_terms = block.finish.0.row_factor != 0;
    // SAFETY: the bias has whole panels by contract; there are sums of as many rows, 32 of each.
    unsafe {
        let bias = block.bias.add(panel * 32);
        let bias = [Avx512::load(bias), Avx512::load(bias.add(16))];
        let finish = Finish::of(block, epilogue, panel);
        // What is subtracted from the sums.
        let none = Avx512::splat(0);
        let less = [Avx512::sub(none, bias[0]), Avx512::sub(none, bias[1])];
        for (half, tile) in pair.iter().enumerate() {
            let (start, std::ops::Range { start: mut first, end }) = (tile.start(), tile.rows());
            let sums = sums.add(half * 16 * 32);
            while first < end {
                let rows = [first, (first + 1).min(end - 1)];
                let mut sums_of_rows = [[none; 2]; 2];
                for (to, row) in sums_of_rows.iter_mut().zip(rows) {
                    let mut less = less;
                    if has_terms {
                        let term = Avx512::splat(epilogue.terms[row]);
                        less = [Avx512::sub(term, bias[0]), Avx512::sub(term, bias[1])];
                    }
                    let of_row = sums.add((place(row) - start) * 32);
                    *to = [
                        Avx512::sub(Avx512::load(of_row), less[0]),
                        Avx512::sub(Avx512::load(of_row.add(16)), less[1]),
                    ];
                }
                finish.rows(sums_of_rows, rows);
                first += 2;
            }
        }
    }
}
