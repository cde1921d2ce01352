//! The kernel of an operation that is a product: rows of inputs, from wherever they lie, times packed weights.

use super::image::{Image, BLOCK_BYTES};
use super::kept;
use super::micro::{Family, Line, MAX_ROWS};
use super::packed::Packed;
use super::scratch::{gather, join, Scratch};
use super::share::{Cost, Grid, EACH, FEW, LONG, PICOSECONDS};
use crate::backend::cpu::kernels::kernel::{elements, input, output, ByRows, Lines, Pause};
use crate::backend::cpu::kernels::{Kernel, Then, Work};
use crate::memory::{Target, View, Weights};
use crate::ops::OpError;
use std::ops::Range;

/// Input 0 times weights that are packed from inputs 1 and 2.
pub struct Product<F: Family> {
    pub packed: Packed<F>,
    pub rows: Rows<F::Input>,
}

/// What the rows of inputs are.
pub enum Rows<T> {
    /// The input as it lies.
    Matrix,
    /// The patches of an image under a filter. Where what is packed has one segment, theirs are joined.
    Image(Box<Image<T>>),
}

/// Rows of a product below which what another thread has is near everywhere. There blocks are low: where one panel goes down
/// many tiles, the machine sees a row of outputs follow another at one distance, and fetches some more of them ahead, which
/// are those of the next thread. It costs both as much as they write.
const NEAR: usize = 1024;
/// Tiles of such a block: more of them, and a panel is looked up less often.
const LOW: usize = 4;

/// Products that take as long as to write a byte, whose page may be touched for the first time.
const WRITTEN: usize = 8;

/// Counts products, so that there is a pause after as many as take about a millisecond.
#[derive(Default)]
struct Since(u64);

impl Since {
    /// Notes what takes as long as so many that are about to be multiplied.
    fn spend(&mut self, products: usize, pause: Pause) -> Result<(), OpError> {
        let before = self.0;
        self.0 = before.saturating_add(products as u64);
        if before == 0 || self.0 <= LONG {
            return Ok(());
        }
        self.0 = products as u64;
        pause()
    }
}

/// Where outputs go, from several threads.
#[derive(Clone, Copy)]
pub struct Outputs<T>(pub *mut T);

impl<T> Outputs<T> {
    /// Where element `i` goes.
    pub fn at(self, i: usize) -> *mut T {
        self.0.wrapping_add(i)
    }
}

// SAFETY: each task writes elements of its own.
unsafe impl<T: Send> Send for Outputs<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Outputs<T> {}

impl<F: Family> Kernel for Product<F> {
    fn name(&self) -> String {
        format!("gemm {}", self.packed.micro.name)
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (input, mut out) = (input::<F::Input>(inputs, 0)?, output::<F::Output>(outputs, 0)?);
        let (columns, len) = (self.packed.shape.columns, out.len());
        let rows = len / columns;
        if rows * columns != len || self.inputs(rows) != Some(input.len()) {
            return Err(OpError::failed("matrices do not fit"));
        }
        let cost = self.parts(rows);
        // What is made of outputs may take far longer than what makes them.
        let after = work.then.map_or(0, |then| columns.saturating_mul(then.picoseconds) / PICOSECONDS);
        let is_gone_on_with = work.then.is_some();
        let cost = Cost { finish: cost.finish.saturating_add(after), is_gone_on_with, ..cost };
        let (grid, to) = (Grid::new(cost, work.team.threads()), Outputs(out.pointer(0, len)));
        let is_near = work.team.threads() > 1 && rows < NEAR;
        // A single task is this thread's, which has the turn.
        let owner = (grid.tasks() > 1).then(|| std::thread::current().id());
        let pause = &|| owner.map_or_else(|| work.interrupt.yield_point(), |owner| work.pause(owner));
        work.for_each_task(grid.tasks(), |i| {
            let (rows, panels) = grid.task(i);
            // SAFETY: tasks have different rows or panels, all of them those of the outputs.
            unsafe { self.multiply(Lines::all(input), rows, panels, to, (work.then, is_near), pause) }
        })
    }

    fn weights(&self) -> Vec<&Weights> {
        self.packed.weights()
    }

    fn packed_inputs(&self) -> &'static [usize] {
        &[1, 2]
    }

    fn packed_in_place(&self) -> &'static [usize] {
        &[1]
    }

    fn packs_narrow(&self) -> bool {
        F::PACKS_NARROW
    }

    fn by_rows(&self) -> Option<&dyn ByRows> {
        Some(self)
    }

    fn goes_on(&self) -> Option<usize> {
        Some(1)
    }
}

impl<F: Family> ByRows for Product<F> {
    fn reads(&self, rows: Range<usize>) -> Range<usize> {
        match &self.rows {
            Rows::Matrix => rows,
            Rows::Image(image) => image.reads(rows),
        }
    }

    fn cost(&self) -> usize {
        let Cost { products, panels, .. } = self.parts(1);
        products.saturating_mul(panels).saturating_mul(PICOSECONDS)
    }

    fn run_rows(
        &self,
        input: Lines<u8>,
        rows: Range<usize>,
        mut out: Target<u8>,
        pause: Pause,
    ) -> Result<(), OpError> {
        let (input, mut out) = (input.of::<F::Input>()?, elements::<F::Output>(&mut out)?);
        let (columns, len) = (self.packed.shape.columns, out.len());
        let (pixels, panels, to) = (len / columns, 0..self.packed.panels(), Outputs(out.pointer(0, len)));
        match &self.rows {
            Rows::Matrix => {
                // A row has as many pixels as one of the output.
                let inputs = pixels / rows.len() * self.packed.shape.depth;
                let start = (rows.start - input.first) * inputs;
                let input = Lines::all(input.elements.part(start, rows.len() * inputs));
                // SAFETY: all columns of so many pixels are the outputs.
                unsafe { self.multiply(input, 0..pixels, panels, to, (None, false), pause) }
            }
            Rows::Image(_) => {
                let start = rows.start * (pixels / rows.len());
                let to = Outputs(to.0.wrapping_sub(start * columns));
                // SAFETY: as above, for pixels from another one on.
                unsafe { self.multiply(input, start..start + pixels, panels, to, (None, false), pause) }
            }
        }
    }
}

impl<F: Family> Product<F> {
    /// How many elements of input there must be for so many rows.
    fn inputs(&self, rows: usize) -> Option<usize> {
        match &self.rows {
            Rows::Matrix => rows.checked_mul(self.packed.shape.depth),
            Rows::Image(image) => Some(image.inputs()).filter(|_| rows == image.pixels()),
        }
    }

    /// Products that take as long as to copy the inputs of a row of outputs.
    fn copied(&self) -> usize {
        match &self.rows {
            Rows::Matrix => 0,
            Rows::Image(image) => image.copied,
        }
    }

    /// Multiplications for a row and a panel, as many as take the time of one of floats.
    fn products(&self) -> usize {
        let micro = self.packed.micro;
        (self.packed.shape.segments * self.packed.padded / micro.at_once).saturating_mul(micro.columns)
    }

    /// What there is to be shared out for so many rows.
    fn parts(&self, rows: usize) -> Cost {
        let micro = self.packed.micro;
        let depth = self.packed.shape.segments * self.packed.padded;
        let row_bytes = match &self.rows {
            Rows::Matrix => depth.saturating_mul(size_of::<F::Input>()),
            Rows::Image(image) => image.bytes_per_pixel(),
        };
        let panel_bytes = depth.saturating_mul(micro.columns * size_of::<F::Weight>());
        let output_bytes = self.packed.shape.columns.saturating_mul(size_of::<F::Output>());
        let panels = self.packed.panels();
        let (tile, is_of_lines) = match &self.rows {
            Rows::Image(image) if image.has_lines() => (image.width(), true),
            _ => (micro.rows, false),
        };
        let finish = output_bytes.saturating_mul(WRITTEN).saturating_add(self.copied());
        Cost {
            rows,
            tile,
            is_of_lines,
            panels,
            products: self.products(),
            finish,
            row_bytes,
            panel_bytes,
            output_bytes,
            each: if micro.room > 0 { FEW } else { EACH },
            is_gone_on_with: false,
        }
    }

    /// Multiplies some rows by some panels, and goes on with what was made. It pauses where that takes long, which is where rows
    /// are not shared out in tasks, or one tile of them and one panel are large.
    ///
    /// # Safety
    /// The outputs must have the rows and the panels' columns, which nobody else writes, and be memory of ours if they are gone
    /// on with.
    unsafe fn multiply(
        &self,
        input: Lines<F::Input>,
        rows: Range<usize>,
        panels: Range<usize>,
        to: Outputs<F::Output>,
        (then, is_near): (Option<Then>, bool),
        pause: Pause,
    ) -> Result<(), OpError> {
        let (all, width) = (self.packed.shape.columns, self.packed.micro.columns);
        let (products, copied) = (self.products(), self.copied());
        let mut since = Since::default();
        let mut scratch = Scratch::new();
        let mut first = rows.start;
        while first < rows.end {
            let block = first..self.block_end(first, rows.end, is_near && panels.len() > 1);
            let inputs = self.packed.shape.segments * self.packed.padded;
            let room = self.packed.micro.room.saturating_add(F::room(block.len(), inputs));
            scratch.own.make(room)?;
            since.spend(copied.saturating_mul(block.len()), pause)?;
            let line = self.lay(input, block.clone(), &mut scratch)?;
            let outputs = to.at(first * all);
            let Scratch { pointers, own, .. } = &mut scratch;
            let each = products.saturating_mul(block.len());
            let at_once = match each.saturating_mul(panels.len()) as u64 {
                ..=LONG => panels.len().max(1),
                _ => (LONG as usize / each).max(1),
            };
            for start in panels.clone().step_by(at_once) {
                let some = start..panels.end.min(start.saturating_add(at_once));
                since.spend(each.saturating_mul(some.len()), pause)?;
                // SAFETY: `lay` gave pointers to whole segments; the outputs are there by contract.
                unsafe { self.packed.multiply_lines((pointers, line), block.len(), some, outputs, own) };
            }
            first = block.end;
            if let Some(then) = then {
                let columns = panels.start * width..all.min(panels.end * width);
                // SAFETY: they were just written; the rest is the contract.
                unsafe { then.on(to.0, block, columns, all) }?;
            }
        }
        Ok(())
    }

    /// Where a block of rows ends that starts with `first`: blocks are about even.
    fn block_end(&self, first: usize, end: usize, is_low: bool) -> usize {
        let (micro, left) = (self.packed.micro, end - first);
        // Where something is made of inputs before they are multiplied, that is what stays in the cache, and only copies
        // take memory.
        let bytes = match &self.rows {
            _ if micro.room == 0 => BLOCK_BYTES,
            Rows::Image(image) if image.copies() => kept::LARGEST / 4 * 3,
            _ => usize::MAX,
        };
        let most = match &self.rows {
            Rows::Matrix => bytes / (self.packed.padded * size_of::<F::Input>()).max(1),
            Rows::Image(image) => match image.pixels_of_lines(first) {
                Some(pixels) => return end.min(first + pixels),
                None => image.pixels_per_block(first, micro.even, bytes),
            },
        };
        let most = if is_low && micro.room == 0 { most.min(micro.rows * LOW) } else { most };
        let most = most.min(MAX_ROWS);
        let most = if most > micro.rows { most / micro.rows * micro.rows } else { most.max(1) };
        let even = left.div_ceil(left.div_ceil(most)).next_multiple_of(micro.rows);
        first + if micro.room > 0 { even.min(most) } else { most }.min(left)
    }

    /// Points to the inputs of some rows, in place where they can be read as they lie, and tells how they lie if it is in lines.
    fn lay(
        &self,
        input: Lines<F::Input>,
        rows: Range<usize>,
        scratch: &mut Scratch<F::Input>,
    ) -> Result<Option<Line>, OpError> {
        let (depth, padded) = (self.packed.shape.depth, self.packed.padded);
        match &self.rows {
            Rows::Matrix => {
                let start = input.elements.pointer(rows.start * depth, rows.len() * depth);
                scratch.pointers.resize(rows.len())?;
                let row = |i: usize| start.wrapping_add(i * depth);
                scratch.pointers.iter_mut().enumerate().for_each(|(i, pointer)| *pointer = row(i));
                // What is read beyond a row must be there, too.
                if depth == padded {
                    return Ok(None);
                }
            }
            Rows::Image(image) => {
                if image.has_lines() {
                    return image.lay_lines(input, rows, scratch).map(Some);
                }
                image.lay(input, rows.clone(), scratch)?;
                let (segments, joined) = (scratch.pointers.len() / rows.len(), self.packed.shape.segments);
                if segments > joined {
                    // SAFETY: pointers were given to as many inputs, and what is beyond them to the end of a word.
                    return unsafe { join(scratch, rows.len(), (depth / segments, padded)) }.map(|()| None);
                }
                if !self.packed.micro.even || image.is_even(rows.clone()) {
                    return Ok(None);
                }
            }
        }
        // SAFETY: pointers were given to as many inputs as a segment has.
        unsafe { gather(scratch, rows.len(), (depth, padded)) }.map(|()| None)
    }
}
