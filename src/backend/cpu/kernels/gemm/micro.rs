//! The seam between matrix products and instruction sets.
//!
//! A micro-kernel says how its weights are packed and multiplies blocks of any number of rows. Everything above it (which
//! rows, from where, on which thread) is the same for all; everything below it (vectors or tiles, how many rows at a time,
//! how sums become outputs) is its own affair. A result must not depend on the rows and panels that a block has besides.

use super::requant::Form;
use bytemuck::{AnyBitPattern, Pod};

/// The most rows that a block has.
pub const MAX_ROWS: usize = 384;

/// The elements of one kind of product.
pub trait Family: Copy + Send + Sync + 'static {
    type Input: AnyBitPattern + Send + Sync;
    type Weight: Pod;
    type Output: AnyBitPattern + Send + Sync;
    /// Like the bias of a column.
    type Bias: Pod;
    /// What turns sums into outputs, for all columns.
    type Scaling: Send + Sync;
    /// The same as a block has it.
    type Finish<'a>: Copy;

    /// Whether weights are packed as the bytes that the call's floats were dequantised from.
    const PACKS_NARROW: bool = false;

    /// What a block needs whose first column is `column`.
    fn finish(scaling: &Self::Scaling, column: usize) -> Self::Finish<'_>;

    /// Bytes of memory that a block of so many rows needs, of so many inputs, besides what its micro-kernel says.
    fn room(_rows: usize, _inputs: usize) -> usize {
        0
    }
}

/// A micro-kernel.
///
/// Weights are packed in panels of `columns` columns: `[panel][segment][group][column][weight of the group]`, where a
/// group is `group` weights of a column, one after the other in depth, and zeros fill up what does not exist.
pub struct Micro<F: Family> {
    /// Instructions and elements, for profiles.
    pub name: &'static str,
    /// Rows that it multiplies at once, where there are as many: more rows in a block cost nothing besides.
    pub rows: usize,
    pub columns: usize,
    pub group: usize,
    /// Products that take about as long as one of floats in vectors.
    pub at_once: usize,
    /// How many weights a column gets for a segment of so many: a multiple of `group`. As many inputs are read.
    pub padded: fn(usize) -> usize,
    /// Whether the rows of a block must lie at one distance from each other, in lines of which there is something between.
    pub even: bool,
    /// Bytes of memory that it needs for a block.
    pub room: usize,
    /// What 8-bit weights are xored with before they are packed.
    pub flip: u8,
    /// In what form it wants the constants that scale 8-bit sums.
    pub form: Form,
    /// Multiplies a block.
    ///
    /// # Safety
    /// The machine must have the instruction set; pointers must be valid for what the block says of them, aligned or not.
    pub run: unsafe fn(&Block<F>),
}

/// The shape of the packed side. All sizes are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Columns of the result.
    pub columns: usize,
    /// Parts of a row of inputs, each of which lies in one piece.
    pub segments: usize,
    /// Inputs of a segment.
    pub depth: usize,
}

impl Shape {
    /// Inputs of a row.
    pub fn inputs(&self) -> Option<usize> {
        self.segments.checked_mul(self.depth)
    }
}

/// How rows lie at one distance that there is something between: in lines of places, the first of which rows have. Elements
/// of whatever value can be read at the others, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Rows of a line, and all its places.
    pub rows: usize,
    pub places: usize,
    /// How many rows of the first line are not the block's.
    pub before: usize,
    /// Elements from one place to the next.
    pub distance: usize,
}

/// Some rows times some panels.
///
/// A row of inputs is made of segments, each of `depth` elements that lie one after the other; a panel has the weights of
/// one segment after those of the other.
pub struct Block<'a, F: Family> {
    /// Where the inputs lie: `[segment][row]`; from each, as many as the padded depth can be read.
    pub inputs: &'a [*const F::Input],
    /// How those of a segment lie where they must lie at one distance; `None` if each follows the one before.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // only tiles want it
    pub line: Option<Line>,
    /// At least 1, at most [`MAX_ROWS`].
    pub rows: usize,
    /// Elements of a segment.
    pub depth: usize,
    /// The same as packed.
    pub padded: usize,
    /// Weights of a group.
    pub group: usize,
    pub panels: *const F::Weight,
    /// Elements of a panel.
    pub panel: usize,
    /// Columns from the first panel on, those of the last panel only as far as they exist.
    pub columns: usize,
    /// The bias of these columns, padded to whole panels.
    pub bias: *const F::Bias,
    /// The first output, and how many elements there are from one row to the next.
    pub outputs: *mut F::Output,
    pub stride: usize,
    pub finish: F::Finish<'a>,
    /// As many bytes as [`Micro::room`] and [`Family::room`] say, aligned as tiles are, with whatever is in them.
    pub room: *mut u8,
}

impl<F: Family> Block<'_, F> {
    pub fn segments(&self) -> usize {
        self.inputs.len() / self.rows
    }

    /// Where `M` rows from `row` on lie in a segment.
    ///
    /// # Safety
    /// The block must have the segment and the rows: to look each time costs as much as a part of the products.
    #[inline(always)]
    pub unsafe fn pointers<const M: usize>(&self, segment: usize, row: usize) -> [*const F::Input; M] {
        debug_assert!(segment < self.segments() && row + M <= self.rows);
        // SAFETY: by contract; pointers lie one after the other.
        unsafe { self.inputs.as_ptr().add(segment * self.rows + row).cast::<[*const F::Input; M]>().read() }
    }

    /// The part of the next panel to ask for while `height` rows from `row` on are multiplied by `panel`, in so many pieces.
    #[inline(always)]
    pub fn ahead(&self, (row, height): (usize, usize), panel: usize, pieces: usize) -> Ahead {
        let bytes = self.panel * size_of::<F::Weight>();
        // Rows that are one tile are done with a panel as soon as they have it.
        let share = if height < self.rows { bytes * height / self.rows } else { 0 };
        let next = self.panels.wrapping_add((panel + 1) * self.panel).cast::<u8>();
        Ahead { at: next.wrapping_add(bytes * row / self.rows), piece: share.div_ceil(pieces.max(1)) }
    }
}

/// Weights to ask for ahead of their use. Those of a large model come from beyond the second cache, and no prefetcher of
/// the machine's looks from one panel to the next: without asking, a float product waits for a quarter of its time. In
/// 8-bit tiles it made no difference.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    /// Need not be there: what is not is not asked for.
    at: *const u8,
    /// Bytes that each piece goes on.
    piece: usize,
}

impl Ahead {
    /// Asks for a piece's first cache line; the machine adds its neighbour.
    #[inline(always)]
    pub fn ask(&mut self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T1};
            // SAFETY: it is a hint, which every machine of the architecture takes, and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.at.cast()) };
        }
        self.at = self.at.wrapping_add(self.piece);
    }
}

/// Tiles of one height, one below the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// The first row.
    pub first: usize,
    pub height: usize,
    pub count: usize,
}

/// Splits `rows` into tiles of at most `most`, as evenly as can be. Those of one height are done together, as what a panel
/// has for all of them is then looked up once.
#[inline(always)]
pub fn for_each_height(rows: usize, most: usize, mut tiles: impl FnMut(Tiles)) {
    let [higher, others] = heights(rows, most);
    if higher.count > 0 {
        tiles(higher);
    }
    if others.height > 0 {
        tiles(others);
    }
}

/// The tiles of either height, of which there may be none.
#[inline(always)]
pub fn heights(rows: usize, most: usize) -> [Tiles; 2] {
    let count = rows.div_ceil(most).max(1);
    let (height, higher) = (rows / count, rows % count);
    [
        Tiles { first: 0, height: height + 1, count: higher },
        Tiles { first: higher * (height + 1), height, count: count - higher },
    ]
}

/// Evaluates `$call` with the constant `$name` set to a height known only now; no other than those listed may occur.
macro_rules! with_height {
    ($height:expr, [$($known:literal)*], $name:ident => $call:expr) => {
        match $height {
            $($known => {
                const $name: usize = $known;
                $call
            })*
            other => unreachable!("a tile of {other} rows"),
        }
    };
}
pub(super) use with_height;
