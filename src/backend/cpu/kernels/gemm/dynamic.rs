//! Products of floats with bytes, in integers: each row of inputs becomes bytes, with a scale and a zero point of its own.
//!
//! A row's bytes span from its least to its greatest number, 0 among them, so that a sum is off by at most half of a 255th of that span
//! for each weight: what TensorFlow Lite calls dynamic range quantisation. Nothing is rounded besides, sums are exact, and a row
//! must not depend on any other. Only who was [told that it may](crate::model::hints::DYNAMIC_RANGE) multiplies so.

use super::dot::Dot;
#[cfg(target_arch = "aarch64")]
use super::dot_neon::Dotprod;
#[cfg(target_arch = "x86_64")]
use super::dot_x86::{AvxVnni, Vnni};
use super::finish::Finish;
use super::lanes::Lanes;
use super::micro::{for_each_height, with_height, Block, Family, Micro, Tiles, MAX_ROWS};
use super::quant::{self, add};
use super::rounded::{self, Rounds, Row};
use crate::backend::cpu::kernels::simd;
use std::mem::MaybeUninit;

/// Products of rows of floats, as bytes, with bytes.
#[derive(Clone, Copy, Debug)]
pub struct Dynamic;

/// What a column has besides its weights.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Column {
    pub bias: f32,
    /// Of the weights.
    pub scale: f32,
    /// Of the weights, as bytes.
    pub sum: i32,
}

impl Family for Dynamic {
    type Input = f32;
    type Weight = i8;
    type Output = f32;
    type Bias = Column;
    /// Bounds of the activation.
    type Scaling = (f32, f32);
    type Finish<'a> = (f32, f32);
    const PACKS_NARROW: bool = true;

    fn finish(range: &Self::Scaling, _: usize) -> Self::Finish<'_> {
        *range
    }

    fn room(rows: usize, inputs: usize) -> usize {
        rows.saturating_mul(distance(inputs))
    }
}

/// Bytes from one row to the next: rows a part of 4096 apart would have the same places in a cache.
fn distance(inputs: usize) -> usize {
    inputs.next_multiple_of(64).saturating_add(64)
}

/// Columns of the widest panel.
const MOST_COLUMNS: usize = 32;

/// Defines the micro-kernel `$name`, called `$called`, as one of bytes of `$dot`, for inputs that are signed or not, whichever weights
/// need no change for.
macro_rules! micro_kernel {
    ($name:ident = $called:literal, $dot:ty, $signed:literal, [$($height:literal)*], $most:literal $(, $features:literal)?) => {
        pub static $name: Micro<Dynamic> = {
            $(#[target_feature(enable = $features)])?
            unsafe fn run(block: &Block<Dynamic>) {
                // SAFETY: by the contract of `Micro::run`; tiles are such as the block has.
                unsafe {
                    self::run::<$dot, $signed>(block, $most, |rows, tiles, panel| {
                        with_height!(tiles.height, [$($height)*], M => one::<$dot, $signed, M>(block, rows, tiles, panel))
                    })
                }
            }
            quant::like::<$dot, Dynamic>($called, $most, 0, run)
        };
    };
}

micro_kernel!(BASE = "base dynamic 8-bit", simd::Base, false, [1 2 3 4], 4);
#[cfg(target_arch = "x86_64")]
micro_kernel!(AVX2 = "avx2 dynamic 8-bit", simd::Avx2, false, [1 2 3 4 5 6], 6, "avx2,fma");
#[cfg(target_arch = "x86_64")]
micro_kernel!(AVX_VNNI = "avx-vnni dynamic 8-bit", AvxVnni, false, [1 2 3 4 5 6], 6, "avx2,fma,avxvnni");
#[cfg(target_arch = "x86_64")]
micro_kernel!(AVX512 = "avx512 dynamic 8-bit", simd::Avx512, false, [1 2 3 4 5 6 7 8], 8, "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl");
#[cfg(target_arch = "x86_64")]
micro_kernel!(
    VNNI = "vnni dynamic 8-bit",
    Vnni,
    false,
    [1 2 3 4 5 6 7 8 9 10 11 12],
    12,
    "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"
);
#[cfg(target_arch = "aarch64")]
micro_kernel!(DOTPROD = "dotprod dynamic 8-bit", Dotprod, true, [1 2 3 4 5 6 7 8 9], 9, "dotprod");

/// A block's rows as bytes.
struct Rows<'a> {
    bytes: *const u8,
    /// Bytes from one row to the next, and those that there are weights for.
    distance: usize,
    depth: usize,
    rows: &'a [Row],
}

/// Goes through a block as the products of bytes do.
///
/// # Safety
/// The machine must have the instruction set of `D`, and the block be as `Micro::run` demands, with room as [`Dynamic`] says.
#[inline(always)]
unsafe fn run<D: Dot<V: Rounds>, const SIGNED: bool>(
    block: &Block<Dynamic>,
    most: usize,
    one: impl Fn(&Rows, Tiles, usize),
) {
    let depth = block.segments() * block.padded;
    let distance = distance(depth);
    let mut made = [const { MaybeUninit::<Row>::uninit() }; MAX_ROWS];
    for (row, made) in made.iter_mut().take(block.rows).enumerate() {
        let segments = block.inputs.iter().skip(row).step_by(block.rows);
        let to = block.room.wrapping_add(row * distance);
        // SAFETY: each segment has so many inputs, and there is room for a row by contract.
        made.write(unsafe { rounded::row::<D::V, SIGNED>(segments, block.depth, to, block.padded) });
    }
    // SAFETY: as many were written.
    let rows = unsafe { std::slice::from_raw_parts(made.as_ptr().cast::<Row>(), block.rows) };
    let rows = Rows { bytes: block.room, distance, depth, rows };
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
                tile::<D, SIGNED, 1, 4, 2>(block, &rows, Tiles { first: 0, height: 1, count: 1 }, panel)
            },
            // SAFETY: as above.
            2 => unsafe {
                tile::<D, SIGNED, 2, 2, 2>(block, &rows, Tiles { first: 0, height: 2, count: 1 }, panel)
            },
            _ => for_each_height(block.rows, most, |tiles| one(&rows, tiles, panel)),
        }
        panel += side;
    }
}

/// Computes tiles of `M` rows of one panel, or of its first vector where that has all columns that are left.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
unsafe fn one<D: Dot, const SIGNED: bool, const M: usize>(
    block: &Block<Dynamic>,
    rows: &Rows,
    tiles: Tiles,
    panel: usize,
) {
    // SAFETY: by contract.
    unsafe {
        match Finish::<D::V>::is_half(block.columns - panel * 2 * D::V::LANES) {
            true => tile::<D, SIGNED, M, 1, 1>(block, rows, tiles, panel),
            false => tile::<D, SIGNED, M, 1, 2>(block, rows, tiles, panel),
        }
    }
}

/// Computes tiles of `M` rows of `P` panels, `V` vectors of each.
///
/// # Safety
/// The machine must have the instruction set of `D`, the block be as `Micro::run` demands, with its rows made bytes, and have the
/// tiles' rows, `M` in each, and `P` panels from `panel` on.
#[inline(always)]
unsafe fn tile<D: Dot, const SIGNED: bool, const M: usize, const P: usize, const V: usize>(
    block: &Block<Dynamic>,
    rows: &Rows,
    tiles: Tiles,
    panel: usize,
) {
    let (lanes, start) = (D::V::LANES, block.panels.wrapping_add(panel * block.panel));
    // SAFETY: the panels' columns exist by contract.
    let columns: [Columns; P] =
        std::array::from_fn(|p| unsafe { Columns::of::<D::V, V>(block.bias.add((panel + p) * 2 * lanes)) });
    for row in (tiles.first..).step_by(M).take(tiles.count) {
        // SAFETY: panels, rows and outputs exist by contract.
        unsafe {
            let mut sums = [[[D::V::splat(0); 2]; P]; M];
            let inputs = std::array::from_fn(|m| rows.bytes.add((row + m) * rows.distance));
            add::<D, SIGNED, M, P, V>(&mut sums, inputs, start, (block.panel, rows.depth));
            for (m, sums) in sums.iter().enumerate() {
                let made = rows.rows.get_unchecked(row + m);
                for (p, sums) in sums.iter().enumerate() {
                    let first = (panel + p) * 2 * lanes;
                    let to = block.outputs.add((row + m) * block.stride + first);
                    let left = block.columns - first;
                    columns[p].finish::<D::V, V>(*sums, made, block.finish, (to, left));
                }
            }
        }
    }
}

/// What the columns of a panel have besides their weights, side by side.
struct Columns {
    bias: [f32; MOST_COLUMNS],
    scale: [f32; MOST_COLUMNS],
    sum: [i32; MOST_COLUMNS],
}

impl Columns {
    /// Of `V` vectors of columns.
    ///
    /// # Safety
    /// There must be as many.
    #[inline(always)]
    unsafe fn of<L: Lanes, const V: usize>(from: *const Column) -> Self {
        let mut columns =
            Columns { bias: [0.0; MOST_COLUMNS], scale: [0.0; MOST_COLUMNS], sum: [0; MOST_COLUMNS] };
        for i in 0..V * L::LANES {
            // SAFETY: by contract.
            let column = unsafe { from.add(i).read_unaligned() };
            (columns.bias[i], columns.scale[i], columns.sum[i]) = (column.bias, column.scale, column.sum);
        }
        columns
    }

    /// Turns the sums of a row into outputs, as many as are `left`.
    ///
    /// # Safety
    /// The machine must have the instruction set of `L`, and there be as many outputs.
    #[inline(always)]
    unsafe fn finish<L: Lanes, const V: usize>(
        &self,
        sums: [L::I; 2],
        row: &Row,
        (low, high): (f32, f32),
        (to, left): (*mut f32, usize),
    ) {
        let width = V * L::LANES;
        let mut given = [0i32; MOST_COLUMNS];
        // SAFETY: there is room for the widest vectors.
        unsafe {
            let given = given.as_mut_ptr();
            sums.into_iter()
                .take(V)
                .enumerate()
                .for_each(|(v, sums)| given.add(v * L::LANES).cast::<L::I>().write_unaligned(sums));
        }
        let output = |i: usize| {
            let sum = given[i].wrapping_sub(row.zero.wrapping_mul(self.sum[i]));
            let output = sum as f32 * (row.scale * self.scale[i]) + self.bias[i];
            // What is no number stays so.
            let output = if low > output { low } else { output };
            if high < output {
                high
            } else {
                output
            }
        };
        if left < width {
            for i in 0..left {
                // SAFETY: as many are left.
                unsafe { to.add(i).write_unaligned(output(i)) };
            }
            return;
        }
        for i in 0..width {
            // SAFETY: as above.
            unsafe { to.add(i).write_unaligned(output(i)) };
        }
    }
}
