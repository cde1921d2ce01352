//! Where the inputs of a convolution's output pixels lie.
//!
//! The taps of a filter's row touch pixels beside each other, unless it is dilated: they are one segment of inputs. Where such
//! a segment reaches beyond the image, or what is read is padded, the lines of the image that a block of pixels needs are
//! copied with what is beside them; otherwise they are read in place. So a filter costs a copy of the lines at most, not of
//! each patch. Each tap of a dilated filter is a segment of its own, which lies in the image or beside it.

use super::micro::Shape;
use super::scratch::{Few, Scratch};
use crate::backend::cpu::kernels::kernel::Lines;
use crate::memory::View;
use crate::ops::conv::ConvGeometry;
use crate::ops::image::Window;
use crate::ops::pace::touched;
use crate::ops::OpError;
use bytemuck::AnyBitPattern;
use std::ops::Range;

/// An image under a filter.
pub struct Image<T> {
    pub(super) geometry: ConvGeometry,
    /// What lies beside the image.
    pub(super) pad: T,
    /// What each row of a filter reads beyond its inputs, at most.
    pub(super) slack: usize,
    /// What lines become as they are copied.
    change: Option<fn(&mut [T])>,
    /// Whether pixels must lie at one distance in each row of the filter, also in one that is beside the image.
    even: bool,
    /// Rows of output pixels of a block whose lines are copied so that all its pixels lie at one distance; 0 where that is not
    /// done.
    pub(super) even_rows: usize,
    /// Products that take as long as to touch the inputs of an output pixel and to copy its lines, about, where no line is copied for
    /// two rows of pixels.
    pub(super) copied: usize,
}

/// The most bytes of lines that one pixel may need, and the most segments: a filter beyond them is evaluated plainly. Half as
/// much again is copied without a yield point.
const MOST_BYTES: usize = 8 << 20;
const MOST_SEGMENTS: usize = 1 << 14;
/// How often what its taps touch a copied line may have, unless all that is copied are few bytes: no yield point comes between
/// copies, whose number follows from what is multiplied.
const MOST_GAPS: usize = 8;
const FEW_BYTES: usize = 4 << 20;
/// Products that take as long as to copy a byte of a line, as to touch a page for the first time, for each of its bytes, and as to
/// begin with a line.
const COPIED: usize = 2;
const TOUCHED: usize = 16;
const BEGUN: usize = 256;
/// Elements after which what lies beside an image ends, so that copies start with a cache line.
const LINE: usize = 64;
/// Bytes of inputs that a block of rows goes back to for each panel: they are to stay in the cache.
pub const BLOCK_BYTES: usize = 192 * 1024;
/// Pointers of a block.
pub(super) const POINTERS: usize = 1 << 14;

/// How a filter's rows are to be packed; `None` where it is too large.
pub fn shape(geometry: &ConvGeometry) -> Option<Shape> {
    let (height, width, channels) = (&geometry.height, &geometry.width, geometry.input.channels);
    let (segments, depth) = match is_one_piece(geometry) {
        true => (height.kernel, width.kernel.checked_mul(channels)?),
        false => (height.kernel.checked_mul(width.kernel)?, channels),
    };
    let shape = Shape { columns: geometry.out_channels, segments, depth };
    (segments <= MOST_SEGMENTS && depth > 0 && geometry.out_channels > 0).then_some(shape)
}

/// Whether the taps of a filter's row are one segment.
pub(super) fn is_one_piece(geometry: &ConvGeometry) -> bool {
    geometry.width.dilation == 1 || geometry.width.kernel == 1
}

/// Whether the patches of the output pixels, one after the other, are the input as it lies.
pub fn is_matrix(geometry: &ConvGeometry) -> bool {
    [&geometry.height, &geometry.width]
        .into_iter()
        .all(|w| w.kernel == 1 && w.stride == 1 && (w.pad_before, w.pad_after) == (0, 0))
}

/// Whether all lines of an image are copied of which each row of the filter reads `slack` elements beyond its inputs.
pub fn copies(geometry: &ConvGeometry, slack: usize) -> bool {
    slack > 0 || (is_padded(&geometry.width) && is_one_piece(geometry))
}

/// Whether patches reach beyond the image.
pub(super) fn is_padded(window: &Window) -> bool {
    (window.pad_before, window.pad_after) != (0, 0)
}

impl<T: AnyBitPattern + Send + Sync> Image<T> {
    /// `slack`: how many elements are read beyond a segment; `even`: by how many panels pixels are multiplied if they must lie
    /// at one distance. `None` where lines are too long.
    pub fn new(geometry: ConvGeometry, pad: T, slack: usize, even: Option<usize>) -> Option<Self> {
        let mut image =
            Image { geometry, pad, slack, change: None, even: even.is_some(), even_rows: 0, copied: 0 };
        let bytes = image.line(1).checked_mul(geometry.height.kernel)?.checked_mul(size_of::<T>())?;
        if bytes > MOST_BYTES || (image.copies() && image.has_many_gaps()) {
            return None;
        }
        image.even_rows = even.map_or(0, |panels| image.best_even_rows(panels));
        image.copied = image.cost_of_copied();
        Some(image)
    }

    /// The same of what `change` makes of lines. They must be [copied](copies).
    pub fn changed(self, change: fn(&mut [T])) -> Self {
        Image { change: Some(change), ..self }
    }

    /// Output pixels of all images.
    pub fn pixels(&self) -> usize {
        let ConvGeometry { input, height, width, .. } = &self.geometry;
        input.batches.saturating_mul(height.output).saturating_mul(width.output)
    }

    /// Elements of all images.
    pub fn inputs(&self) -> usize {
        self.geometry.input.elements()
    }

    /// The rows of the input that rows of output pixels are made from.
    pub fn reads(&self, rows: Range<usize>) -> Range<usize> {
        self.geometry.height.cells_under(rows)
    }

    /// Bytes that an output pixel adds to those read and written.
    pub fn bytes_per_pixel(&self) -> usize {
        let read = self.inputs() / self.pixels().max(1);
        let copied = match self.copies() {
            // Written, and read again.
            true => {
                let lines = self.line(self.geometry.width.output).saturating_mul(self.fresh());
                (lines / self.geometry.width.output).saturating_mul(2)
            }
            false => 0,
        };
        read.saturating_add(copied).saturating_mul(size_of::<T>())
    }

    /// Cells that a filter's row reaches over.
    pub(super) fn extent(&self) -> usize {
        (self.geometry.width.kernel - 1) * self.geometry.width.dilation + 1
    }

    /// Elements of a line for so many output pixels, and what is read beyond.
    pub(super) fn line(&self, pixels: usize) -> usize {
        let cells = (pixels - 1).saturating_mul(self.geometry.width.stride).saturating_add(self.extent());
        cells.saturating_mul(self.geometry.input.channels).saturating_add(self.slack)
    }

    /// Elements of a segment, and what is read beyond.
    fn segment(&self) -> usize {
        let taps = if is_one_piece(&self.geometry) { self.geometry.width.kernel } else { 1 };
        (taps * self.geometry.input.channels).saturating_add(self.slack)
    }

    /// Whether copied lines are mostly what lies between taps, and take long.
    fn has_many_gaps(&self) -> bool {
        let ConvGeometry { input, height, width, .. } = &self.geometry;
        let pixels = self.pixels_copied();
        let line = self.line(pixels).saturating_sub(self.slack);
        let touched = pixels.saturating_mul(width.kernel).saturating_mul(input.channels).max(1);
        let blocks = [input.batches, height.output, width.output.div_ceil(pixels)];
        let copied = blocks
            .into_iter()
            .fold(line.saturating_mul(height.kernel * size_of::<T>()), usize::saturating_mul);
        line / touched > MOST_GAPS && copied > FEW_BYTES
    }

    /// Output pixels of one row for which lines are copied at once.
    fn pixels_copied(&self) -> usize {
        self.pixels_in_row(BLOCK_BYTES).min(self.geometry.width.output).max(1)
    }

    /// Products that take as long as to touch what an output pixel is made of, and to copy it, where it is copied.
    fn cost_of_copied(&self) -> usize {
        let rows = self.geometry.height.kernel;
        let inputs = self.inputs().saturating_mul(size_of::<T>());
        let touched = touched(inputs, self.pixels(), rows).saturating_mul(TOUCHED);
        if !self.copies() {
            return touched;
        }
        let pixels = self.pixels_copied();
        let line = self.line(pixels).saturating_mul(size_of::<T>() * COPIED).saturating_add(BEGUN);
        line.saturating_mul(rows).div_ceil(pixels).saturating_add(touched)
    }

    /// Whether lines are copied.
    pub(super) fn copies(&self) -> bool {
        copies(&self.geometry, self.slack)
    }

    /// How many output pixels from `first` on a block should have, so that it takes about so many bytes. Those of one row
    /// lie at one distance.
    pub fn pixels_per_block(&self, first: usize, even: bool, bytes: usize) -> usize {
        let (height, width) = (&self.geometry.height, &self.geometry.width);
        let segments =
            if is_one_piece(&self.geometry) { height.kernel } else { height.kernel * width.kernel };
        let most = (POINTERS / segments).max(1);
        let left = width.output - first % width.output;
        if even && width.output >= 16 {
            return self.pixels_in_row(bytes).min(most).min(left);
        }
        let (line, fresh) = match self.copies() {
            true => (self.line(width.output), self.fresh()),
            false => {
                (width.input.saturating_mul(self.geometry.input.channels), height.kernel.min(height.stride))
            }
        };
        let line = line.saturating_mul(size_of::<T>());
        let rows = (bytes / line.max(1)).saturating_sub(height.kernel) / fresh;
        match rows {
            0 => self.pixels_in_row(bytes).min(most).min(left),
            _ => most.min(rows.saturating_mul(width.output)),
        }
    }

    /// How many output pixels of one row take about so many bytes, or half as much again as the first: weights for a large
    /// patch come from memory for each block, and neighbours share most of their patches.
    fn pixels_in_row(&self, bytes: usize) -> usize {
        let first = self.line(1);
        let line =
            (bytes / (self.geometry.height.kernel * size_of::<T>())).max(first.saturating_add(first / 2));
        let step = self.geometry.width.stride.saturating_mul(self.geometry.input.channels);
        1 + (line - first) / step.max(1)
    }

    /// Lines that a row of output pixels needs, and the row before it did not.
    pub(super) fn fresh(&self) -> usize {
        let height = &self.geometry.height;
        match height.stride.is_multiple_of(height.dilation) {
            true => height.kernel.min(height.stride / height.dilation),
            false => height.kernel,
        }
    }

    /// Whether pixels lie at one distance from each other.
    pub fn is_even(&self, pixels: Range<usize>) -> bool {
        let width = self.geometry.width.output;
        let lies_in_image = self.copies() || !is_padded(&self.geometry.width);
        lies_in_image && pixels.start / width == (pixels.end - 1) / width
    }

    /// Points to the inputs of some output pixels, of which there is at least one.
    pub fn lay(
        &self,
        input: Lines<T>,
        pixels: Range<usize>,
        scratch: &mut Scratch<T>,
    ) -> Result<(), OpError> {
        let (height, width, channels) =
            (&self.geometry.height, &self.geometry.width, self.geometry.input.channels);
        let rows = pixels.start / width.output..(pixels.end - 1) / width.output + 1;
        let columns = match rows.len() {
            1 => pixels.start % width.output..(pixels.end - 1) % width.output + 1,
            _ => 0..width.output,
        };
        let taps = if is_one_piece(&self.geometry) { 1 } else { width.kernel };
        let mut lines = self.lines(&rows, &columns, scratch)?;
        scratch.pointers.resize(height.kernel * taps * pixels.len())?;
        let (mut bases, mut above) = (Few::filled(height.kernel, None)?, Few::filled(height.kernel, None)?);
        for row in rows.clone() {
            above.copy_from_slice(&bases);
            for (tap, base) in bases.iter_mut().enumerate() {
                let same = tap + height.stride / height.dilation;
                let seen = row > rows.start
                    && row % height.output > 0
                    && height.stride.is_multiple_of(height.dilation);
                *base = match above.get(same) {
                    Some(&above) if seen => above,
                    _ => lines.line(self, input, row, tap)?,
                };
            }
            let (start, end) =
                (pixels.start.max(row * width.output), pixels.end.min((row + 1) * width.output));
            let first = start % width.output * width.stride;
            for (segment, pointers) in scratch.pointers.chunks_exact_mut(pixels.len()).enumerate() {
                let (base, tap) = (bases[segment / taps], segment % taps * width.dilation);
                let pointers = &mut pointers[start - pixels.start..end - pixels.start];
                // A step that no address has is of one pixel, or leads out of the image.
                let (cell, step) = (first + tap, width.stride.wrapping_mul(channels));
                let base = match base {
                    Some(base) => base,
                    None if self.even => lines.start.cast_const(),
                    None => {
                        pointers.fill(lines.start);
                        continue;
                    }
                };
                if self.copies() {
                    point(pointers, base.wrapping_add((cell - lines.first) * channels), step);
                } else {
                    // Cells before the one that comes first in the image, and before the one that comes first behind it.
                    let until =
                        |end: usize| end.saturating_sub(cell).div_ceil(width.stride).min(pointers.len());
                    let inside = until(width.pad_before)..until(width.pad_before + width.input);
                    pointers[..inside.start].fill(lines.start);
                    pointers[inside.end..].fill(lines.start);
                    let cell = cell + inside.start * width.stride;
                    let at = base.wrapping_add(cell.wrapping_sub(width.pad_before).wrapping_mul(channels));
                    point(&mut pointers[inside], at, step);
                }
            }
        }
        Ok(())
    }

    /// Copies a line from cell `first` on, those beside the image counted.
    pub(super) fn copy(&self, line: View<T>, first: usize, to: &mut [T]) {
        let (width, channels) = (&self.geometry.width, self.geometry.input.channels);
        let cells = to.len() / channels;
        let before = width.pad_before.saturating_sub(first).min(cells);
        let skipped = first.saturating_sub(width.pad_before);
        let copied = width.input.saturating_sub(skipped).min(cells - before);
        to[..before * channels].fill(self.pad);
        let inside = &mut to[before * channels..][..copied * channels];
        input_part(line, skipped * channels, inside);
        if let Some(change) = self.change {
            change(inside);
        }
        to[(before + copied) * channels..].fill(self.pad);
    }

    /// Room for the lines of some output rows.
    fn lines(
        &self,
        rows: &Range<usize>,
        columns: &Range<usize>,
        scratch: &mut Scratch<T>,
    ) -> Result<Copies<T>, OpError> {
        let (height, width) = (&self.geometry.height, &self.geometry.width);
        // The first row of each image needs all lines anew.
        let images = (rows.end - 1) / height.output - rows.start / height.output + 1;
        let copied = match self.copies() {
            true => images * height.kernel + (rows.len() - images) * self.fresh(),
            false => 0,
        };
        let len =
            if self.copies() { self.line(columns.len()) } else { width.input * self.geometry.input.channels };
        // What lies beside the image: a segment for all pixels, or a line where each has one of its own.
        let beside = match (is_padded(height) || is_padded(width), self.even) {
            (false, _) => 0,
            (true, false) => self.segment().next_multiple_of(LINE),
            (true, true) => len,
        };
        let elements = len.checked_mul(copied).and_then(|elements| elements.checked_add(beside));
        let bytes = elements.and_then(|elements| elements.checked_mul(size_of::<T>()));
        scratch.lines.make(bytes.unwrap_or(usize::MAX))?;
        let (start, first) = (scratch.lines.as_mut_ptr().cast::<T>(), columns.start * width.stride);
        // SAFETY: there is room for as many elements.
        (0..beside).for_each(|i| unsafe { start.add(i).write(self.pad) });
        Ok(Copies { start, copies: start.wrapping_add(beside), len, left: copied, first })
    }
}

/// Points to places that are `step` elements from one to the next, some at a time.
fn point<T>(pointers: &mut [*const T], mut at: *const T, step: usize) {
    const SOME: usize = 8;
    let (several, others) = pointers.as_chunks_mut::<SOME>();
    for several in several {
        *several = std::array::from_fn(|i| at.wrapping_add(i * step));
        at = at.wrapping_add(SOME * step);
    }
    for (i, to) in others.iter_mut().enumerate() {
        *to = at.wrapping_add(i * step);
    }
}

/// Copies of lines.
struct Copies<T> {
    /// What lies beside the image.
    start: *mut T,
    /// Where the next one goes.
    copies: *mut T,
    /// Elements of each.
    len: usize,
    /// Those that there is room for.
    left: usize,
    /// The cell that they start with, counting those beside the image.
    first: usize,
}

impl<T: AnyBitPattern + Send + Sync> Copies<T> {
    /// Where the line lies that a row of output pixels has under a row of taps; `None` beside the image.
    fn line(
        &mut self,
        image: &Image<T>,
        input: Lines<T>,
        row: usize,
        tap: usize,
    ) -> Result<Option<*const T>, OpError> {
        let (height, width) = (&image.geometry.height, &image.geometry.width);
        let channels = image.geometry.input.channels;
        let (batch, row) = (row / height.output, row % height.output);
        if !height.taps(row).contains(&tap) {
            return Ok(None);
        }
        let line = input.line(batch * height.input + height.cell(row, tap), width.input * channels);
        if !image.copies() {
            return Ok(Some(line.pointer(0, line.len())));
        }
        if self.left == 0 {
            return Err(OpError::failed("more lines than were counted; this is a fault of the driver"));
        }
        let start = self.copies;
        (self.copies, self.left) = (start.wrapping_add(self.len), self.left - 1);
        // SAFETY: as many elements of this line are nobody else's.
        image.copy(line, self.first, unsafe { std::slice::from_raw_parts_mut(start, self.len) });
        Ok(Some(start))
    }
}

/// Copies elements from `start` on.
fn input_part<T: AnyBitPattern>(line: View<T>, start: usize, to: &mut [T]) {
    if !to.is_empty() {
        line.part(start, to.len()).copy_to(to);
    }
}
