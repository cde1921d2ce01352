//! Products of bytes on 64-bit Arm without dot products: eight inputs of a row times as many weights of a column.
//!
//! A product of two bytes has 16 bits, and two of them are added up there before they go to sums of 32 bits, which is
//! three instructions for sixteen products. Two products of -128 and -128 are beyond 16 bits, so a panel that has such
//! weights takes a fourth, and so do unsigned bytes. Each vector of sums is of one row and one column; they are added up
//! at the end.

use super::finish::{Epilogue, Finish, Quant};
use super::lanes::Lanes;
use super::micro::{Block, Micro};
use super::order_neon::load_two;
use crate::backend::cpu::kernels::neon::Neon;
use std::arch::aarch64::*;
use std::arch::asm;

/// For unsigned inputs, and for signed ones. Weights are such, too.
pub static MICRO: [Micro<Quant>; 2] = [of(unsigned, 0x80), of(signed, 0)];

const fn of(run: unsafe fn(&Block<Quant>), flip: u8) -> Micro<Quant> {
    Micro {
        name: "neon 8-bit",
        rows: ROWS,
        columns: COLUMNS,
        group: GROUP,
        at_once: if GROUP < 4 { GROUP } else { 4 },
        padded,
        even: false,
        room: 0,
        flip,
        form: Neon::FORM,
        run,
    }
}

/// Rows that are multiplied at once.
const ROWS: usize = 2;
/// Columns of a panel.
const COLUMNS: usize = 8;
/// Bytes of a group.
const GROUP: usize = 8;
/// Bytes of the weights of two groups.
const STEP: usize = 2 * GROUP * COLUMNS;
/// Rows from which on it is worth looking through a panel.
const MANY: usize = 8;

fn padded(depth: usize) -> usize {
    depth.next_multiple_of(GROUP)
}

unsafe fn unsigned(block: &Block<Quant>) {
    // SAFETY: by the contract of `Micro::run`.
    unsafe { run::<false>(block) }
}

unsafe fn signed(block: &Block<Quant>) {
    // SAFETY: by the contract of `Micro::run`.
    unsafe { run::<true>(block) }
}

/// Goes through a block: all rows by one panel after the other.
///
/// # Safety
/// The block must be as `Micro::run` demands.
#[inline(always)]
unsafe fn run<const SIGNED: bool>(block: &Block<Quant>) {
    // SAFETY: by contract; there are as many panels, of whole groups.
    unsafe {
        let epilogue = Epilogue::<Neon>::of::<SIGNED>(block);
        for panel in 0..block.columns.div_ceil(COLUMNS) {
            let weights = block.panels.add(panel * block.panel);
            if SIGNED && block.rows >= MANY && !has_least(weights, block.panel) {
                tiles::<SIGNED, true>(block, &epilogue, panel);
            } else {
                tiles::<SIGNED, false>(block, &epilogue, panel);
            }
        }
    }
}

/// Whether a weight is -128.
///
/// # Safety
/// There must be `count` weights, in whole groups of a panel.
#[inline(always)]
unsafe fn has_least(weights: *const i8, count: usize) -> bool {
    // SAFETY: by contract; every machine has these instructions.
    unsafe {
        let mut least = [vdupq_n_s8(0); 2];
        for i in (0..count).step_by(32) {
            let [a, b] = weights.add(i).cast::<[int8x16_t; 2]>().read_unaligned();
            least = [vminq_s8(least[0], a), vminq_s8(least[1], b)];
        }
        vminvq_s8(vminq_s8(least[0], least[1])) == i8::MIN
    }
}

/// Computes all rows of a panel. `PAIRS` says that two products are within 16 bits.
///
/// # Safety
/// The block must be as `Micro::run` demands, and have the panel.
#[inline(always)]
unsafe fn tiles<const SIGNED: bool, const PAIRS: bool>(
    block: &Block<Quant>,
    epilogue: &Epilogue<Neon>,
    panel: usize,
) {
    let whole = block.rows - block.rows % ROWS;
    // SAFETY: by contract; the block has the rows.
    unsafe {
        let finish = Finish::of(block, epilogue, panel);
        for row in (0..whole).step_by(ROWS) {
            tile::<SIGNED, PAIRS, ROWS>(block, epilogue, &finish, (row, panel));
        }
        if whole < block.rows {
            tile::<SIGNED, PAIRS, 1>(block, epilogue, &finish, (whole, panel));
        }
    }
}

/// Computes `M` rows of a panel.
///
/// # Safety
/// The block must be as `Micro::run` demands, and have the panel and `M` rows from `row` on; `finish` be that of the panel.
#[inline(always)]
unsafe fn tile<const SIGNED: bool, const PAIRS: bool, const M: usize>(
    block: &Block<Quant>,
    epilogue: &Epilogue<Neon>,
    finish: &Finish<Neon>,
    (row, panel): (usize, usize),
) {
    // SAFETY: panels, bias and rows of inputs exist by contract; every machine has these instructions.
    unsafe {
        let mut sums = [[vdupq_n_s32(0); COLUMNS]; M];
        let mut weights = block.panels.add(panel * block.panel).cast::<u8>();
        for segment in 0..block.segments() {
            let mut inputs = block.pointers::<M>(segment, row);
            let mut left = block.padded;
            if segment == 0 && left >= 2 * GROUP {
                two_groups::<SIGNED, PAIRS, true, M>(&mut sums, &mut inputs, weights);
                (weights, left) = (weights.add(STEP), left - 2 * GROUP);
            }
            while left >= 2 * GROUP {
                two_groups::<SIGNED, PAIRS, false, M>(&mut sums, &mut inputs, weights);
                (weights, left) = (weights.add(STEP), left - 2 * GROUP);
            }
            if left > 0 {
                let (b, c) = (load_two::<0>(weights), load_two::<32>(weights));
                for (sums, from) in sums.iter_mut().zip(&mut inputs) {
                    let a = twice(from);
                    add_group::<SIGNED, 0>(sums, a, b[0]);
                    add_group::<SIGNED, 2>(sums, a, b[1]);
                    add_group::<SIGNED, 4>(sums, a, c[0]);
                    add_group::<SIGNED, 6>(sums, a, c[1]);
                }
                weights = weights.add(STEP / 2);
            }
        }
        let bias = Neon::load_two(block.bias.add(panel * COLUMNS));
        let mut whole = [[bias; 1]; M];
        for (m, (whole, sums)) in whole.iter_mut().zip(&sums).enumerate() {
            let [a, b, c, d, e, f, g, h] = *sums;
            let first = add_neighbours(vpaddq_s32(a, b), vpaddq_s32(c, d));
            let second = add_neighbours(vpaddq_s32(e, f), vpaddq_s32(g, h));
            whole[0] = [vaddq_s32(bias[0], first), vaddq_s32(bias[1], second)];
            if block.finish.0.row_factor != 0 {
                let term = Neon::splat(*epilogue.terms.get_unchecked(row + m));
                whole[0] = [Neon::sub(whole[0][0], term), Neon::sub(whole[0][1], term)];
            }
        }
        finish.tile(&whole, 0, row);
    }
}

/// A group of bytes in both halves of a vector, from where a pointer is, which goes on to the next.
///
/// # Safety
/// It must be there.
#[inline(always)]
unsafe fn twice(from: &mut *const u8) -> uint8x16_t {
    let loaded;
    // SAFETY: by contract.
    unsafe {
        asm!(
            "ld1r {{{loaded:v}.2d}}, [{from}], #8",
            loaded = out(vreg) loaded,
            from = inout(reg) *from,
            options(readonly, nostack, preserves_flags),
        );
    }
    loaded
}

/// Adds up neighbours. The compiler would take the instruction apart where something is added to what it gives.
#[inline(always)]
fn add_neighbours(mut a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: every machine has the instruction, which computes with registers only.
    unsafe {
        asm!(
            "addp {a:v}.4s, {a:v}.4s, {b:v}.4s",
            a = inout(vreg) a,
            b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    a
}

/// Adds the products of the next two groups of each row to the sums, which are 0 where this is the `FIRST` time.
///
/// # Safety
/// There must be as many inputs and weights.
#[inline(always)]
unsafe fn two_groups<const SIGNED: bool, const PAIRS: bool, const FIRST: bool, const M: usize>(
    sums: &mut [[int32x4_t; COLUMNS]; M],
    inputs: &mut [*const u8; M],
    weights: *const u8,
) {
    // SAFETY: by contract; every machine has these instructions.
    unsafe {
        let mut a = [[vdupq_n_u8(0); 2]; M];
        for (a, from) in a.iter_mut().zip(inputs) {
            *a = [twice(from), twice(from)];
        }
        let (b, c) = (load_two::<0>(weights), load_two::<64>(weights));
        add::<SIGNED, PAIRS, FIRST, M, 0>(sums, &a, [b[0], c[0]]);
        add::<SIGNED, PAIRS, FIRST, M, 2>(sums, &a, [b[1], c[1]]);
        let (b, c) = (load_two::<32>(weights), load_two::<96>(weights));
        add::<SIGNED, PAIRS, FIRST, M, 4>(sums, &a, [b[0], c[0]]);
        add::<SIGNED, PAIRS, FIRST, M, 6>(sums, &a, [b[1], c[1]]);
    }
}

/// The same with two columns from `AT` on.
#[inline(always)]
fn add<const SIGNED: bool, const PAIRS: bool, const FIRST: bool, const M: usize, const AT: usize>(
    sums: &mut [[int32x4_t; COLUMNS]; M],
    a: &[[uint8x16_t; 2]; M],
    b: [uint8x16_t; 2],
) {
    if !PAIRS {
        for (sums, a) in sums.iter_mut().zip(a) {
            add_group::<SIGNED, AT>(sums, a[0], b[0]);
            add_group::<SIGNED, AT>(sums, a[1], b[1]);
        }
        return;
    }
    // The rows take turns, as each instruction waits for the one that it adds to.
    macro_rules! add_rows {
        ($add:literal, $direction:ident) => {
            // SAFETY: every machine has these instructions, which compute with registers only.
            unsafe {
                asm!(
                    "smull {t:v}.8h, {a:v}.8b, {b:v}.8b",
                    "smull2 {u:v}.8h, {a:v}.16b, {b:v}.16b",
                    "smull {v:v}.8h, {c:v}.8b, {b:v}.8b",
                    "smull2 {w:v}.8h, {c:v}.16b, {b:v}.16b",
                    "smlal {t:v}.8h, {d:v}.8b, {e:v}.8b",
                    "smlal2 {u:v}.8h, {d:v}.16b, {e:v}.16b",
                    "smlal {v:v}.8h, {f:v}.8b, {e:v}.8b",
                    "smlal2 {w:v}.8h, {f:v}.16b, {e:v}.16b",
                    concat!($add, " {p:v}.4s, {t:v}.8h"),
                    concat!($add, " {q:v}.4s, {u:v}.8h"),
                    concat!($add, " {r:v}.4s, {v:v}.8h"),
                    concat!($add, " {s:v}.4s, {w:v}.8h"),
                    a = in(vreg) a[0][0],
                    d = in(vreg) a[0][1],
                    c = in(vreg) a[M - 1][0],
                    f = in(vreg) a[M - 1][1],
                    b = in(vreg) b[0],
                    e = in(vreg) b[1],
                    t = out(vreg) _,
                    u = out(vreg) _,
                    v = out(vreg) _,
                    w = out(vreg) _,
                    p = $direction(vreg) sums[0][AT],
                    q = $direction(vreg) sums[0][AT + 1],
                    r = $direction(vreg) sums[M - 1][AT],
                    s = $direction(vreg) sums[M - 1][AT + 1],
                    options(nomem, nostack, preserves_flags),
                );
            }
        };
    }
    macro_rules! add_row {
        ($add:literal, $direction:ident) => {
            // SAFETY: as above.
            unsafe {
                asm!(
                    "smull {t:v}.8h, {a:v}.8b, {b:v}.8b",
                    "smull2 {u:v}.8h, {a:v}.16b, {b:v}.16b",
                    "smlal {t:v}.8h, {d:v}.8b, {e:v}.8b",
                    "smlal2 {u:v}.8h, {d:v}.16b, {e:v}.16b",
                    concat!($add, " {p:v}.4s, {t:v}.8h"),
                    concat!($add, " {q:v}.4s, {u:v}.8h"),
                    a = in(vreg) a[0][0],
                    d = in(vreg) a[0][1],
                    b = in(vreg) b[0],
                    e = in(vreg) b[1],
                    t = out(vreg) _,
                    u = out(vreg) _,
                    p = $direction(vreg) sums[0][AT],
                    q = $direction(vreg) sums[0][AT + 1],
                    options(nomem, nostack, preserves_flags),
                );
            }
        };
    }
    match (M, FIRST) {
        (2, true) => add_rows!("saddlp", out),
        (2, false) => add_rows!("sadalp", inout),
        (_, true) => add_row!("saddlp", out),
        (_, false) => add_row!("sadalp", inout),
    }
}

/// Adds the products of a group of a row with those of two columns from `AT` on to their sums.
#[inline(always)]
fn add_group<const SIGNED: bool, const AT: usize>(
    sums: &mut [int32x4_t; COLUMNS],
    a: uint8x16_t,
    b: uint8x16_t,
) {
    macro_rules! add {
        ($low:literal, $high:literal, $add:literal) => {
            // SAFETY: every machine has these instructions, which compute with registers only.
            unsafe {
                asm!(
                    concat!($low, " {t:v}.8h, {a:v}.8b, {b:v}.8b"),
                    concat!($high, " {u:v}.8h, {a:v}.16b, {b:v}.16b"),
                    concat!($add, " {p:v}.4s, {t:v}.8h"),
                    concat!($add, " {q:v}.4s, {u:v}.8h"),
                    a = in(vreg) a,
                    b = in(vreg) b,
                    t = out(vreg) _,
                    u = out(vreg) _,
                    p = inout(vreg) sums[AT],
                    q = inout(vreg) sums[AT + 1],
                    options(nomem, nostack, preserves_flags),
                );
            }
        };
    }
    if SIGNED {
        add!("smull", "smull2", "sadalp");
    } else {
        add!("umull", "umull2", "uadalp");
    }
}
