//! Products of pairs of matrices both of which only a run brings. A strip of a right matrix is packed when it is needed,
//! into memory of the thread that multiplies by it, and nothing of it is kept.

use super::choice;
use super::float::Float;
use super::micro::{Block, Family, Micro, Shape, MAX_ROWS};
use super::packed::{Folding, Zeros};
use super::product::{Outputs, BLOCK_BYTES};
use super::quant::Quant;
use super::requant::{Requant, Requantisation};
use super::scratch::{Room, Scratch};
use crate::backend::cpu::kernels::isa::Isa;
use crate::backend::cpu::kernels::kernel::{input, output};
use crate::backend::cpu::kernels::vector::{Level, Loop};
use crate::backend::cpu::kernels::{Kernel, Then, Work};
use crate::memory::{Target, View};
use crate::ops::matmul::BatchMatmulGeometry;
use crate::ops::OpError;
use bytemuck::Pod;
use std::ops::Range;
use std::sync::OnceLock;

/// Bytes of a strip, unless a single panel has more.
const STRIP_BYTES: usize = 256 * 1024;
/// Bytes of a right matrix whose rows of products are gone on with: all of it is packed at once.
const WHOLE_BYTES: usize = 1 << 20;
/// Bytes of products that are gone on with at a time: they are to stay in the cache.
const NEAR_BYTES: usize = 64 * 1024;
/// Rows for which a right matrix is worth being packed again.
const WORTHWHILE_ROWS: usize = 64;
/// The most bytes of a panel: longer sums are left to the plain evaluation.
const MOST_BYTES: usize = 16 << 20;
/// Elements along each side of a block that is turned.
const TURNED: usize = 16;

/// Input 0 times input 1, matrix by matrix.
pub struct Pairs<F: Right> {
    micro: &'static Micro<F>,
    level: Level,
    geometry: BatchMatmulGeometry,
    batches: usize,
    /// Weights of a column.
    padded: usize,
    scaling: F::Scaling,
    fold: F::Fold,
}

/// Products whose weights can be packed in a run.
pub trait Right: Family<Input: Pod, Weight: Pod + Send + Sync> {
    /// What a column's bias follows from.
    type Fold: Copy + Send + Sync;

    /// Packs a panel, whatever was there before, and settles its biases. What no column or no sum has are zeros.
    fn pack(fold: Self::Fold, panel: Panel<Self>);
}

/// A panel to be packed of some columns of a matrix.
pub struct Panel<'a, F: Family> {
    right: View<'a, F::Weight>,
    /// Elements from a column's weight to its next, and from a weight to the next column's.
    steps: (usize, usize),
    /// Weights of a column that lie together.
    group: usize,
    depth: usize,
    columns: Range<usize>,
    to: &'a mut [F::Weight],
    bias: &'a mut [F::Bias],
}

impl Right for Float {
    type Fold = ();

    #[inline(always)]
    fn pack((): (), panel: Panel<Self>) {
        let Panel { right, steps: (down, across), depth, columns, to, bias, .. } = panel;
        let (width, count) = (to.len() / depth, columns.len());
        bias.fill(0.0);
        let first = columns.start * across;
        if count < width {
            to.fill(0.0);
        }
        if across == 1 {
            for (i, to) in to.chunks_exact_mut(width).enumerate() {
                let from = right.pointer(first + i * down, count);
                // SAFETY: `count` elements were asked for.
                let at = |c: usize| unsafe { from.add(c).read_unaligned() };
                to[..count].iter_mut().enumerate().for_each(|(c, to)| *to = at(c));
            }
            return;
        }
        for (block, to) in to.chunks_mut(TURNED * width).enumerate() {
            let rows = to.len() / width;
            for c in 0..count {
                let from = right.pointer(first + c * across + block * TURNED, rows);
                for (i, to) in to.chunks_exact_mut(width).enumerate() {
                    // SAFETY: as many elements were asked for.
                    to[c] = unsafe { from.add(i).read_unaligned() };
                }
            }
        }
    }
}

impl Right for Quant {
    type Fold = Folding;

    #[inline(always)]
    fn pack(fold: Folding, panel: Panel<Self>) {
        match panel.group {
            1 => in_groups::<1>(fold, panel),
            2 => in_groups::<2>(fold, panel),
            4 => in_groups::<4>(fold, panel),
            8 => in_groups::<8>(fold, panel),
            other => unreachable!("groups of {other} weights"),
        }
    }
}

/// Packs a panel of bytes in groups of `G`.
#[inline(always)]
fn in_groups<const G: usize>(fold: Folding, panel: Panel<Quant>) {
    let Panel { right, steps: (down, across), depth, columns, to, bias, .. } = panel;
    let (width, count) = (bias.len(), columns.len());
    let first = columns.start * across;
    bias.fill(0);
    match count < width {
        true => to.fill(0),
        false => to[depth / G * G * width..].fill(0),
    }
    for (i, group) in to.chunks_exact_mut(width * G).enumerate().take(depth.div_ceil(G)) {
        let weights = (depth - i * G).min(G);
        for w in 0..weights {
            let from = right.pointer(first + (i * G + w) * down, (count - 1) * across + 1);
            for c in 0..count {
                // SAFETY: all elements from the first column's to the last one's were asked for.
                let weight = unsafe { from.add(c * across).read() };
                group[c * G + w] = weight ^ fold.flip;
                bias[c] = bias[c].wrapping_add(fold.number(weight));
            }
        }
    }
    bias.iter_mut().for_each(|bias| *bias = fold.bias(*bias, 0));
}

impl Pairs<Float> {
    pub fn float(isa: Isa, geometry: BatchMatmulGeometry) -> Option<Self> {
        let range = (f32::NEG_INFINITY, f32::INFINITY);
        let shape = Shape { columns: geometry.columns, segments: 1, depth: geometry.inner };
        Pairs::new(choice::float(isa, geometry.rows, shape), geometry, range, ())
    }
}

impl Pairs<Quant> {
    /// Bytes of whatever types; all columns have one multiplier.
    pub fn quant(
        isa: Isa,
        geometry: BatchMatmulGeometry,
        zeros: Zeros,
        requantisation: &Requantisation,
    ) -> Option<Self> {
        let micro = choice::quant(isa, zeros.signed_inputs);
        let fold = Folding::new(zeros, micro, geometry.inner);
        let requant = Requant::new(requantisation, micro.form, micro.columns / 2, fold.row_factor)?;
        Pairs::new(micro, geometry, requant, fold)
    }
}

impl<F: Right> Pairs<F> {
    /// `None` where a sum is too long, or empty.
    fn new(
        micro: &'static Micro<F>,
        geometry: BatchMatmulGeometry,
        scaling: F::Scaling,
        fold: F::Fold,
    ) -> Option<Self> {
        let sizes = [geometry.rows, geometry.inner, geometry.columns];
        let dims = [&geometry.batch_dims[..], &geometry.right_batch_dims].concat();
        if sizes.contains(&0) || dims.contains(&0) {
            return None;
        }
        let padded = (micro.padded)(geometry.inner);
        let bytes = padded.checked_mul(micro.columns * size_of::<F::Weight>())?;
        let batches = geometry.batch_dims.iter().map(|&dim| dim as usize).product();
        (bytes <= MOST_BYTES).then(|| Pairs {
            micro,
            level: Level::detect(),
            geometry,
            batches,
            padded,
            scaling,
            fold,
        })
    }

    /// Elements of a panel.
    fn panel(&self) -> usize {
        self.micro.columns * self.padded
    }

    /// How many strips a matrix is split into: enough for all threads, and each of them short.
    fn strips(&self, threads: usize) -> usize {
        const WORTHWHILE: usize = 96 * 1024;
        let panels = self.geometry.columns.div_ceil(self.micro.columns);
        let short = STRIP_BYTES / (self.panel() * size_of::<F::Weight>()).max(1);
        let products = self.geometry.rows.saturating_mul(self.panel() / self.micro.at_once);
        let shared = match threads {
            1 => 1,
            threads => (4 * threads).div_ceil(self.batches).min(products.saturating_mul(panels) / WORTHWHILE),
        };
        panels.div_ceil(short.max(1)).max(shared).min(panels)
    }

    /// How many bands the rows of a matrix are split into if they are gone on with: enough for all threads.
    fn bands(&self, threads: usize) -> usize {
        match threads {
            1 => 1,
            threads => (4 * threads).div_ceil(self.batches).min(self.geometry.rows / WORTHWHILE_ROWS).max(1),
        }
    }

    /// About how long it takes to multiply so many rows by so many columns, and to go on with them, in picoseconds.
    fn time(&self, rows: usize, columns: usize, then: Option<Then>) -> usize {
        let pack = self.padded.saturating_mul(columns).saturating_mul(600);
        let depth = self.padded / self.micro.at_once;
        let each = depth.saturating_mul(15).saturating_add(then.map_or(0, |then| then.picoseconds));
        pack.saturating_add(rows.saturating_mul(columns).saturating_mul(each))
    }
}

impl<F: Right> Kernel for Pairs<F> {
    fn name(&self) -> String {
        format!("gemm {}, packed in each run", self.micro.name)
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (left, right) = (input::<F::Input>(inputs, 0)?, input::<F::Weight>(inputs, 1)?);
        let mut out = output::<F::Output>(outputs, 0)?;
        let BatchMatmulGeometry { rows, columns, .. } = self.geometry;
        let to = Outputs(out.pointer(0, self.batches * rows * columns));
        let (threads, stopped) = (work.team.threads(), OnceLock::new());
        // What is gone on with are whole rows.
        let (bands, strips) = match work.then {
            Some(_) => (self.bands(threads), 1),
            None => (1, self.strips(threads)),
        };
        let owner = std::thread::current().id();
        let pause = || work.pause(owner);
        let (parts, panels) = (bands * strips, columns.div_ceil(self.micro.columns));
        let time = self.time(rows.div_ceil(bands), columns.div_ceil(strips), work.then);
        work.for_each_range(self.batches * parts, time, |units| {
            let mut memory = Memory::default();
            for unit in units {
                let (band, strip) = (unit % parts / strips, unit % strips);
                let part = Part {
                    batch: unit / parts,
                    rows: rows * band / bands..rows * (band + 1) / bands,
                    panels: panels * strip / strips..panels * (strip + 1) / strips,
                };
                let done = self.part((left, right), part, (to, work.then), &mut memory, &pause);
                if let Err(why) = done {
                    // Whoever was first has told already.
                    drop(stopped.set(why));
                    return;
                }
            }
        })?;
        stopped.into_inner().map_or(Ok(()), Err)
    }

    fn goes_on(&self) -> Option<usize> {
        let columns = self.geometry.columns;
        let whole =
            columns.div_ceil(self.micro.columns).checked_mul(self.panel() * size_of::<F::Weight>())?;
        (whole <= WHOLE_BYTES).then_some(columns)
    }
}

/// A part of the products: some rows of a left matrix times some panels of the right one.
struct Part {
    batch: usize,
    rows: Range<usize>,
    panels: Range<usize>,
}

/// Memory of a thread.
struct Memory<T> {
    panels: Room,
    bias: Room,
    rows: Scratch<T>,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Memory { panels: Room::default(), bias: Room::default(), rows: Scratch::new() }
    }
}

impl<F: Right> Pairs<F> {
    /// Makes a part of the products, and goes on with it.
    fn part(
        &self,
        (left, right): (View<F::Input>, View<F::Weight>),
        Part { batch, rows: band, panels }: Part,
        (to, then): (Outputs<F::Output>, Option<Then>),
        memory: &mut Memory<F::Input>,
        pause: &impl Fn() -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let BatchMatmulGeometry { rows, inner, columns, transpose_right, .. } = self.geometry;
        let width = self.micro.columns;
        let strip = panels.start * width..columns.min(panels.end * width);
        memory.panels.make(panels.len() * self.panel() * size_of::<F::Weight>())?;
        memory.rows.own.make(self.micro.room)?;
        memory.bias.make(panels.len() * width * size_of::<F::Bias>())?;
        let packed: &mut [F::Weight] = bytemuck::cast_slice_mut(&mut memory.panels);
        let bias: &mut [F::Bias] = bytemuck::cast_slice_mut(&mut memory.bias);
        let right = right.part(self.geometry.right_matrix(batch) * inner * columns, inner * columns);
        let steps = if transpose_right { (1, inner) } else { (columns, 1) };
        let each = packed.chunks_exact_mut(self.panel()).zip(bias.chunks_exact_mut(width));
        for (p, (to, bias)) in each.take(panels.len()).enumerate() {
            pause()?;
            let first = strip.start + p * width;
            let columns = first..strip.end.min(first + width);
            let group = self.micro.group;
            let panel: Panel<F> = Panel { right, steps, group, depth: inner, columns, to, bias };
            self.level.run(Packing { fold: self.fold, panel });
        }
        let left = left.part(batch * rows * inner, rows * inner);
        let (most, mut first) = (self.rows_per_block(then.is_some()), band.start);
        while first < band.end {
            pause()?;
            let block = first..band.end.min(first + most);
            self.lay(left, block.clone(), &mut memory.rows)?;
            let outputs = to.at((batch * rows + first) * columns + strip.start);
            let block = Block {
                inputs: &memory.rows.pointers,
                line: None,
                rows: block.len(),
                depth: inner,
                padded: self.padded,
                group: self.micro.group,
                panels: memory.panels.as_ptr().cast(),
                panel: self.panel(),
                columns: strip.len(),
                bias: memory.bias.as_ptr().cast(),
                outputs,
                stride: columns,
                finish: F::finish(&self.scaling, strip.start),
                room: memory.rows.own.as_mut_ptr(),
            };
            // SAFETY: micro-kernels come from detected instruction sets; `lay` gave pointers to whole rows, panels and
            // biases were packed above, and no other part has these rows of this strip.
            unsafe { (self.micro.run)(&block) };
            if let Some(then) = then {
                let made = batch * rows + first..batch * rows + first + block.rows;
                // SAFETY: they were just written, are all columns of these rows, and nobody else's.
                unsafe { then.on(to.0, made, strip.clone(), columns) }?;
            }
            first += block.rows;
        }
        Ok(())
    }

    fn rows_per_block(&self, go_on: bool) -> usize {
        let most = (BLOCK_BYTES / (self.padded * size_of::<F::Input>()).max(1)).min(MAX_ROWS);
        let row = self.geometry.columns * size_of::<F::Output>();
        let most = if go_on { most.min(NEAR_BYTES / row) } else { most };
        (most / self.micro.rows * self.micro.rows).max(self.micro.rows.min(MAX_ROWS))
    }

    /// Points to some rows of a left matrix: where they lie, unless they are columns there or more than they are is read.
    fn lay(
        &self,
        left: View<F::Input>,
        rows: Range<usize>,
        scratch: &mut Scratch<F::Input>,
    ) -> Result<(), OpError> {
        let BatchMatmulGeometry { rows: all, inner, transpose_left, .. } = self.geometry;
        scratch.pointers.resize(rows.len())?;
        if !transpose_left && self.padded == inner {
            let start = left.pointer(rows.start * inner, rows.len() * inner);
            let row = |i: usize| start.wrapping_add(i * inner);
            scratch.pointers.iter_mut().enumerate().for_each(|(i, pointer)| *pointer = row(i));
            return Ok(());
        }
        scratch.patches.make(rows.len() * self.padded * size_of::<F::Input>())?;
        let to: &mut [F::Input] = bytemuck::cast_slice_mut(&mut scratch.patches);
        let each = to.chunks_exact_mut(self.padded).zip(&mut *scratch.pointers);
        for (row, (to, pointer)) in rows.clone().zip(each) {
            *pointer = to.as_ptr();
            if !transpose_left {
                left.part(row * inner, inner).copy_to(&mut to[..inner]);
            }
        }
        if transpose_left {
            for i in 0..inner {
                let from = left.part(i * all + rows.start, rows.len());
                for (row, to) in to.chunks_exact_mut(self.padded).take(rows.len()).enumerate() {
                    to[i] = from.get(row);
                }
            }
        }
        Ok(())
    }
}

/// The packing of a panel, as a loop to be compiled for each level.
struct Packing<'a, F: Right> {
    fold: F::Fold,
    panel: Panel<'a, F>,
}

impl<F: Right> Loop for Packing<'_, F> {
    #[inline(always)]
    fn run(self) {
        F::pack(self.fold, self.panel);
    }
}
