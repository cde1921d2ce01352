//! What a kernel is to those who run it, and how it reaches its operands.

use super::then::{Elementwise, Then};
use super::work::Work;
use crate::memory::{Target, View, Weights};
use crate::ops::OpError;
use bytemuck::AnyBitPattern;
use std::ops::Range;

/// A kernel made for one call of an operation: geometry resolved, weights packed.
pub trait Kernel: Send + Sync {
    /// What to call it in a profile: its kind, and the instructions that were chosen where that makes a difference.
    fn name(&self) -> String;

    /// Fills the outputs, which have the dimensions known at compilation, from the inputs, by index. Of those that are
    /// packed there may be none.
    ///
    /// All may lie in client memory, which changes meanwhile: an input is for arithmetic only, and what was written must
    /// not be read. A kernel that goes by an input's values must copy them first.
    fn run(&self, inputs: &[Option<View<u8>>], outputs: &mut [Target<u8>], work: Work)
        -> Result<(), OpError>;

    /// Its packed weights, in the order in which it took them from its [`Source`](super::Source); most kernels have none.
    fn weights(&self) -> Vec<&Weights> {
        Vec::new()
    }

    /// Inputs whose data are in the packed weights: a run does without them.
    fn packed_inputs(&self) -> &[usize] {
        &[]
    }

    /// Those of the packed inputs that are packed where they lie, which may be in a client's memory: see [`Source::view`].
    ///
    /// [`Source::view`]: super::Source::view
    fn packed_in_place(&self) -> &[usize] {
        &[]
    }

    /// Whether it packs weights that [were bytes](super::was_bytes) as these.
    fn packs_narrow(&self) -> bool {
        false
    }

    /// The same kernel, some rows at a time.
    fn by_rows(&self) -> Option<&dyn ByRows> {
        None
    }

    /// Picoseconds that an element of the output takes, about. Asked of kernels that do a part of others' work.
    fn picoseconds(&self) -> usize {
        1000
    }

    /// The same kernel in place, if it can.
    fn elementwise(&self) -> Option<&dyn Elementwise> {
        None
    }

    /// The same kernel, some rows of some matrices at a time, if it multiplies pairs of matrices.
    fn by_pairs(&self) -> Option<&dyn ByPairs> {
        None
    }

    /// The same kernel, a tile at a time.
    fn tiled(&self) -> Option<&dyn Tiled> {
        None
    }

    /// If a run does with its output what its [work](Work::then) says, in stretches of how many elements it does: of one, or of
    /// those of a row.
    fn goes_on(&self) -> Option<usize> {
        None
    }
}

/// A kernel that makes a tile where it is called, on that thread: as many of the output's first elements as are asked for, in
/// whole rows if it goes by rows, from as many of the inputs' or from those that are there again for each.
pub trait Tiled: Send + Sync {
    /// Fills `out`. Inputs, by index, may be longer than it needs.
    fn tile(&self, inputs: &[Option<View<u8>>], out: &mut Target<u8>) -> Result<(), OpError>;
}

/// A kernel that makes each row of its output from some rows of input 0, and needs nothing else that a run brings. Rows are
/// counted through all images of a batch.
pub trait ByRows: Send + Sync {
    /// The rows of the input that rows `rows` of the output are made from.
    fn reads(&self, rows: Range<usize>) -> Range<usize>;

    /// Picoseconds that a pixel of the output takes, about.
    fn cost(&self) -> usize;

    /// Fills `out` with rows `rows` of the output: the same bytes as a [run](Kernel::run) gives. A row may take long.
    fn run_rows(
        &self,
        input: Lines<u8>,
        rows: Range<usize>,
        out: Target<u8>,
        pause: Pause,
    ) -> Result<(), OpError>;
}

/// A kernel that multiplies matrices of input 0 by matrices of input 1.
pub trait ByPairs: Send + Sync {
    fn size(&self) -> PairSize;

    /// How many bands the rows of a matrix are to be split into: enough for all threads.
    fn bands(&self, threads: usize) -> usize;

    /// About how long it takes to pack a right matrix, to multiply so many rows by it, and to go on with them, in picoseconds.
    fn time(&self, rows: usize, then: Option<Then>) -> usize;

    /// What multiplies on a thread.
    fn packed(&self) -> Box<dyn ByRight + '_>;
}

/// What a kernel multiplies, and what it makes.
#[derive(Clone, Copy, Debug)]
pub struct PairSize {
    pub pairs: usize,
    /// Rows of a left matrix, and of what is made of it.
    pub rows: usize,
    /// Bytes of a row of a left matrix; `None` where its rows do not lie one after the other.
    pub read: Option<usize>,
    /// Bytes of a row of what is made, and of an element of it.
    pub made: usize,
    pub element: usize,
    /// Rows that are multiplied at once, at the most.
    pub tile: usize,
}

/// Looks whether to stop, and may wait.
pub type Pause<'a> = &'a dyn Fn() -> Result<(), OpError>;

/// Multiplies rows by a right matrix, which it has packed into memory of its own.
pub trait ByRight {
    /// Packs the matrix that left matrix `pair` is multiplied by; `right` are all of input 1.
    fn pack(&mut self, right: View<u8>, pair: usize, pause: Pause) -> Result<(), OpError>;

    /// Multiplies rows `rows` of one left matrix, at most [`MAX_ROWS`](super::gemm::MAX_ROWS) of them, and puts their
    /// products where `to` points, one row after the other.
    ///
    /// # Safety
    /// There must be room for them, which no other thread writes.
    unsafe fn multiply(&mut self, left: View<u8>, rows: Range<usize>, to: *mut u8) -> Result<(), OpError>;
}

/// Rows of an image one after the other.
#[derive(Clone, Copy)]
pub struct Lines<'m, T> {
    pub elements: View<'m, T>,
    /// Which row of the whole the first one is.
    pub first: usize,
}

impl<'m, T: AnyBitPattern> Lines<'m, T> {
    /// An image as a whole.
    pub fn all(elements: View<'m, T>) -> Self {
        Lines { elements, first: 0 }
    }

    /// Row `row` of the whole, which is so long.
    pub fn line(&self, row: usize, len: usize) -> View<'m, T> {
        self.elements.part((row - self.first) * len, len)
    }
}

impl<'m> Lines<'m, u8> {
    /// The same as elements.
    pub(super) fn of<T: AnyBitPattern>(self) -> Result<Lines<'m, T>, OpError> {
        let elements =
            self.elements.elements().ok_or_else(|| OpError::failed("a row's bytes do not fit its type"))?;
        Ok(Lines { elements, first: self.first })
    }
}

/// Input `i` as elements.
pub(super) fn input<'a, T: AnyBitPattern>(
    inputs: &[Option<View<'a, u8>>],
    i: usize,
) -> Result<View<'a, T>, OpError> {
    let bytes = inputs.get(i).copied().flatten().ok_or(OpError::Unresolved)?;
    bytes.elements().ok_or_else(|| OpError::failed("operand's bytes do not fit its type"))
}

/// Output `i` as elements.
pub(super) fn output<'a, T: AnyBitPattern>(
    outputs: &'a mut [Target<u8>],
    i: usize,
) -> Result<Target<'a, T>, OpError> {
    elements(outputs.get_mut(i).ok_or(OpError::Unresolved)?)
}

/// What is to be written as elements.
pub(super) fn elements<'a, T: AnyBitPattern>(out: &'a mut Target<u8>) -> Result<Target<'a, T>, OpError> {
    out.elements().ok_or_else(|| OpError::failed("output's bytes do not fit its type"))
}
