//! Products of pairs of matrices both of which only a run brings. A strip of a right matrix is packed when it is needed,
//! into memory of the thread that multiplies by it, and nothing of it is kept.

use super::choice;
use super::float::Float;
use super::image::BLOCK_BYTES;
use super::micro::{Block, Micro, Shape, MAX_ROWS};
use super::packed::{Folding, Zeros, MOST_INPUTS};
use super::product::Outputs;
use super::quant::Quant;
use super::requant::{Requant, Requantisation};
use super::right::{Packing, Panel, Right};
use super::scratch::{Room, Scratch};
use super::share::even_part;
use crate::backend::cpu::kernels::isa::Isa;
use crate::backend::cpu::kernels::kernel::{input, output, ByPairs, ByRight, PairSize, Pause};
use crate::backend::cpu::kernels::vector::Level;
use crate::backend::cpu::kernels::{Kernel, Then, Work};
use crate::memory::{Target, View};
use crate::ops::matmul::BatchMatmulGeometry;
use crate::ops::OpError;
use bytemuck::Pod;
use std::ops::Range;

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
        if sizes.contains(&0) || dims.contains(&0) || geometry.inner > MOST_INPUTS {
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

    /// Whether a right matrix can be packed as a whole.
    fn is_small(&self) -> bool {
        let panels = self.geometry.columns.div_ceil(self.micro.columns);
        panels.checked_mul(self.panel() * size_of::<F::Weight>()).is_some_and(|bytes| bytes <= WHOLE_BYTES)
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
        let threads = work.team.threads();
        // What is gone on with are whole rows.
        let (bands, strips) = match work.then {
            Some(_) => (ByPairs::bands(self, threads), 1),
            None => (1, self.strips(threads)),
        };
        let owner = std::thread::current().id();
        let pause = || work.pause(owner);
        let (parts, panels) = (bands * strips, columns.div_ceil(self.micro.columns));
        let time = self.time(rows.div_ceil(bands), columns.div_ceil(strips), work.then);
        let each = work.units_per_task(self.batches * parts, time, 0);
        work.for_each_part(self.batches * parts, each, |units| {
            let mut packed = PackedRight::new(self);
            for unit in units {
                let (batch, band, strip) = (unit / parts, unit % parts / strips, unit % strips);
                packed.fill(right, batch, even_part(panels, strip, strips), &pause)?;
                let rows = even_part(rows, band, bands);
                // SAFETY: no other unit has these rows of this strip, which are memory of ours if they are gone on with.
                unsafe { packed.part(left, batch, rows, (to, work.then), &pause) }?;
            }
            Ok(())
        })
    }

    fn goes_on(&self) -> Option<usize> {
        self.is_small().then_some(self.geometry.columns)
    }

    fn by_pairs(&self) -> Option<&dyn ByPairs> {
        self.is_small().then_some(self)
    }
}

impl<F: Right> ByPairs for Pairs<F> {
    fn size(&self) -> PairSize {
        let BatchMatmulGeometry { rows, inner, columns, transpose_left, .. } = self.geometry;
        PairSize {
            pairs: self.batches,
            rows,
            read: (!transpose_left).then_some(inner * size_of::<F::Input>()),
            made: columns * size_of::<F::Output>(),
            element: size_of::<F::Output>(),
            tile: self.micro.rows,
        }
    }

    fn bands(&self, threads: usize) -> usize {
        match threads {
            1 => 1,
            threads => (4 * threads).div_ceil(self.batches).min(self.geometry.rows / WORTHWHILE_ROWS).max(1),
        }
    }

    fn time(&self, rows: usize, then: Option<Then>) -> usize {
        Pairs::time(self, rows, self.geometry.columns, then)
    }

    fn packed(&self) -> Box<dyn ByRight + '_> {
        Box::new(PackedRight::new(self))
    }
}

/// Panels of a right matrix, in memory of the thread that multiplies by them.
struct PackedRight<'a, F: Right> {
    pairs: &'a Pairs<F>,
    /// Columns of the matrix.
    columns: Range<usize>,
    panels: Room,
    bias: Room,
    rows: Scratch<F::Input>,
}

impl<F: Right> ByRight for PackedRight<'_, F> {
    fn pack(&mut self, right: View<u8>, pair: usize, pause: Pause) -> Result<(), OpError> {
        let panels = self.pairs.geometry.columns.div_ceil(self.pairs.micro.columns);
        self.fill(elements(right)?, pair, 0..panels, pause)
    }

    unsafe fn multiply(&mut self, left: View<u8>, rows: Range<usize>, to: *mut u8) -> Result<(), OpError> {
        // SAFETY: the same contract.
        unsafe { self.rows(elements(left)?, rows, to.cast()) }
    }
}

/// Bytes as elements.
fn elements<T: Pod>(bytes: View<u8>) -> Result<View<T>, OpError> {
    bytes.elements().ok_or_else(|| OpError::failed("a matrix's bytes do not fit its type"))
}

impl<'a, F: Right> PackedRight<'a, F> {
    fn new(pairs: &'a Pairs<F>) -> Self {
        let (panels, bias) = (Room::default(), Room::default());
        PackedRight { pairs, columns: 0..0, panels, bias, rows: Scratch::new() }
    }

    /// Packs some panels of the matrix that goes with left matrix `batch`.
    fn fill(
        &mut self,
        right: View<F::Weight>,
        batch: usize,
        panels: Range<usize>,
        pause: Pause,
    ) -> Result<(), OpError> {
        let Pairs { micro, geometry, level, fold, .. } = self.pairs;
        let (width, panel) = (micro.columns, self.pairs.panel());
        let BatchMatmulGeometry { inner, columns, transpose_right, .. } = *geometry;
        self.columns = panels.start * width..columns.min(panels.end * width);
        self.panels.make(panels.len() * panel * size_of::<F::Weight>())?;
        self.bias.make(panels.len() * width * size_of::<F::Bias>())?;
        let packed: &mut [F::Weight] = bytemuck::cast_slice_mut(&mut self.panels);
        let bias: &mut [F::Bias] = bytemuck::cast_slice_mut(&mut self.bias);
        let right = right.part(geometry.right_matrix(batch) * inner * columns, inner * columns);
        let steps = if transpose_right { (1, inner) } else { (columns, 1) };
        let each = packed.chunks_exact_mut(panel).zip(bias.chunks_exact_mut(width));
        for (p, (to, bias)) in each.take(panels.len()).enumerate() {
            pause()?;
            let first = self.columns.start + p * width;
            let columns = first..self.columns.end.min(first + width);
            let panel: Panel<F> = Panel { right, steps, group: micro.group, depth: inner, columns, to, bias };
            level.run(Packing { fold: *fold, panel });
        }
        Ok(())
    }

    /// Makes some rows of products of a left matrix, `batch` among all, and goes on with them; `to` is where the first of all
    /// goes.
    ///
    /// # Safety
    /// The outputs must have these rows' columns, which no other thread writes, and be memory of ours if they are gone on with.
    unsafe fn part(
        &mut self,
        left: View<F::Input>,
        batch: usize,
        band: Range<usize>,
        (to, then): (Outputs<F::Output>, Option<Then>),
        pause: Pause,
    ) -> Result<(), OpError> {
        let BatchMatmulGeometry { rows, inner, columns, .. } = self.pairs.geometry;
        let left = left.part(batch * rows * inner, rows * inner);
        let (most, mut first) = (self.pairs.rows_per_block(then.is_some()), band.start);
        while first < band.end {
            pause()?;
            let block = first..band.end.min(first + most);
            let made = batch * rows + block.start..batch * rows + block.end;
            // SAFETY: by contract.
            unsafe { self.rows(left, block.clone(), to.at(made.start * columns + self.columns.start)) }?;
            if let Some(then) = then {
                // SAFETY: they were just written, and are all columns of these rows; the rest is the contract.
                unsafe { then.on(to.0, made, self.columns.clone(), columns) }?;
            }
            first = block.end;
        }
        Ok(())
    }

    /// Multiplies at most [`MAX_ROWS`] rows of a left matrix; `outputs` is where the first one's first product goes.
    ///
    /// # Safety
    /// There must be room for the products, at a distance of all columns from one row to the next, which no other thread writes.
    unsafe fn rows(
        &mut self,
        left: View<F::Input>,
        rows: Range<usize>,
        outputs: *mut F::Output,
    ) -> Result<(), OpError> {
        let Pairs { micro, geometry, padded, scaling, .. } = self.pairs;
        self.rows.own.make(micro.room)?;
        self.pairs.lay(left, rows.clone(), &mut self.rows)?;
        let block = Block {
            inputs: &self.rows.pointers,
            line: None,
            rows: rows.len(),
            depth: geometry.inner,
            padded: *padded,
            group: micro.group,
            panels: self.panels.as_ptr().cast(),
            panel: self.pairs.panel(),
            columns: self.columns.len(),
            bias: self.bias.as_ptr().cast(),
            outputs,
            stride: geometry.columns,
            finish: F::finish(scaling, self.columns.start),
            room: self.rows.own.as_mut_ptr(),
        };
        // SAFETY: micro-kernels come from detected instruction sets; `lay` gave pointers to whole rows, panels and biases were
        // packed, and the outputs are there by contract.
        unsafe { (micro.run)(&block) };
        Ok(())
    }
}

impl<F: Right> Pairs<F> {
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
