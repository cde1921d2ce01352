//! Patches of an image at one distance from each other, for products that want them so.
//!
//! The lines of the image that a block of output pixels needs are copied one behind the other, with what is beside them. So
//! the patches of neighbouring pixels lie at one distance, and those below each other at a multiple of it: a line has places
//! for a few pixels more than the output has. With a stride, lines that many apart follow each other, so that the same holds
//! for each row of taps. This costs a copy of the lines, once for all pixels of a block, where the alternatives are blocks of
//! single rows of pixels, or a copy of each patch.

use super::image::{is_one_piece, is_padded, Image, BLOCK_BYTES, POINTERS};
use super::micro::{Line, MAX_ROWS};
use super::scratch::Scratch;
use super::tiles::{Tiles, HEIGHT};
use crate::backend::cpu::kernels::kernel::Lines;
use crate::ops::OpError;
use bytemuck::AnyBitPattern;
use std::ops::Range;

/// Cycles that things take, about: to multiply a step of a tile by a panel, to set up a block or copy a line or a segment
/// besides its bytes, which go so many a cycle; and how many bytes of weights come in a cycle, all of them for each block.
const STEP: u64 = 32;
const BLOCK: u64 = 500;
const COPY: u64 = 16;
const BYTES: u64 = 32;
const WEIGHTS: u64 = 24;
/// Bytes of a step, and columns of a panel.
const DEPTH: u64 = 64;
const COLUMNS: usize = 32;

/// Of sizes that fit memory. What they make of each other need not fit it: where pointers have 32 bits, less than a GiB of
/// weights has costs beyond them.
fn product(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1, |product, &size| product.saturating_mul(size as u64))
}

impl<T: AnyBitPattern + Send + Sync> Image<T> {
    /// Whether the pixels of a block lie in lines.
    pub fn has_lines(&self) -> bool {
        self.even_rows > 0
    }

    /// Output pixels of a row.
    pub fn width(&self) -> usize {
        self.geometry.width.output
    }

    /// Places of a line.
    fn places(&self) -> usize {
        let width = &self.geometry.width;
        let cells = (width.output - 1).saturating_mul(width.stride).saturating_add(self.extent());
        cells.div_ceil(width.stride)
    }

    /// Elements of a line with all its places.
    fn even_line(&self) -> usize {
        let step = self.geometry.width.stride.saturating_mul(self.geometry.input.channels);
        self.places().saturating_mul(step)
    }

    /// Lines that so many rows of pixels need, those between two of them counted.
    fn lines_of(&self, rows: usize) -> usize {
        let height = &self.geometry.height;
        (rows - 1) * height.stride + (height.kernel - 1) * height.dilation + 1
    }

    fn segments(&self) -> (usize, usize) {
        let taps = if is_one_piece(&self.geometry) { 1 } else { self.geometry.width.kernel };
        (self.geometry.height.kernel * taps, taps)
    }

    /// How many rows of pixels a block should have whose lines are copied; 0 where other ways are better for a product by
    /// so many panels.
    pub(super) fn best_even_rows(&self, panels: usize) -> usize {
        let (height, width) = (&self.geometry.height, &self.geometry.width);
        let bytes = self.even_line().saturating_mul(size_of::<T>());
        let (lines, least) = (BLOCK_BYTES / bytes.max(1), self.lines_of(1));
        let most = (POINTERS / self.segments().0).min(MAX_ROWS) / width.output;
        if lines < least || most == 0 {
            return 0;
        }
        let rows = ((lines - least) / height.stride + 1).min(most).min(height.output);
        match self.cost_of_lines(rows, panels) < self.cost_of_others(rows, panels) {
            true => rows,
            false => 0,
        }
    }

    /// Cycles that a block of so many rows takes, about.
    fn cost_of_lines(&self, rows: usize, panels: usize) -> u64 {
        let (width, places) = (self.geometry.width.output, self.places());
        let line = Line { rows: width, places, before: 0, distance: 1 };
        let tiles = Tiles::new(rows * width, Some(line)).count() as u64;
        let tiles = tiles.saturating_mul(self.cost_of_tile(panels));
        let lines = self.cost_of_copies(self.lines_of(rows), self.even_line());
        self.cost_of_weights(panels).saturating_add(tiles).saturating_add(lines)
    }

    /// The same of the pixels of each row at one distance, where they lie in the image or in copies of its lines, or else of
    /// copies of all patches.
    fn cost_of_others(&self, rows: usize, panels: usize) -> u64 {
        let (width, (segments, taps)) = (&self.geometry.width, self.segments());
        let copied = |lines: usize| match self.copies() {
            true => self.cost_of_copies(lines, self.line(width.output)),
            false => 0,
        };
        let (tile, block) = (self.cost_of_tile(panels), self.cost_of_weights(panels));
        if width.output >= HEIGHT && (self.copies() || !is_padded(width)) {
            let tiles = tile.saturating_mul(width.output.div_ceil(HEIGHT) as u64);
            let row = block.saturating_add(tiles).saturating_add(copied(self.geometry.height.kernel));
            return row.saturating_mul(rows as u64);
        }
        let (pixels, depth) = (rows * width.output, self.depth(taps));
        let blocks = product(&[pixels, segments]).saturating_mul(depth).div_ceil(BLOCK_BYTES as u64);
        let patches = product(&[pixels, segments]).saturating_mul(COPY + depth / BYTES);
        let tiles = tile.saturating_mul(pixels.div_ceil(HEIGHT) as u64);
        let costs = [blocks.saturating_mul(block), tiles, patches, copied(rows * self.fresh())];
        costs.into_iter().fold(0, u64::saturating_add)
    }

    /// What it takes to copy so many lines of so many elements.
    fn cost_of_copies(&self, lines: usize, elements: usize) -> u64 {
        let line = product(&[elements, size_of::<T>()]) / BYTES;
        line.saturating_add(COPY).saturating_mul(lines as u64)
    }

    /// What a block takes besides its tiles: each goes through all weights.
    fn cost_of_weights(&self, panels: usize) -> u64 {
        let (segments, taps) = self.segments();
        let bytes = product(&[panels, COLUMNS, segments]).saturating_mul(self.depth(taps));
        BLOCK.saturating_add(bytes / WEIGHTS)
    }

    fn cost_of_tile(&self, panels: usize) -> u64 {
        let (segments, taps) = self.segments();
        let steps = self.depth(taps).div_ceil(DEPTH);
        STEP.saturating_mul(steps).saturating_mul(product(&[panels, segments]))
    }

    /// Bytes of a segment.
    fn depth(&self, taps: usize) -> u64 {
        let cells = if taps == 1 { self.geometry.width.kernel } else { 1 };
        product(&[cells, self.geometry.input.channels, size_of::<T>()])
    }

    /// How many output pixels from `first` on a block should have whose pixels lie in lines: whole rows of one image, about
    /// as many in each block.
    pub fn pixels_of_lines(&self, first: usize) -> Option<usize> {
        if !self.has_lines() {
            return None;
        }
        let (height, width) = (self.geometry.height.output, self.width());
        let left = height - first / width % height;
        let rows = left.div_ceil(left.div_ceil(self.even_rows));
        Some(rows * width - first % width)
    }

    /// Copies what lies under some output pixels, of no more rows of one image than a block has, and points there.
    pub fn lay_lines(
        &self,
        input: Lines<T>,
        pixels: Range<usize>,
        scratch: &mut Scratch<T>,
    ) -> Result<Line, OpError> {
        let (height, width) = (&self.geometry.height, &self.geometry.width);
        let channels = self.geometry.input.channels;
        let rows = pixels.start / width.output..(pixels.end - 1) / width.output + 1;
        let (image, top) = (rows.start / height.output, rows.start % height.output);
        let (count, line) = (self.lines_of(rows.len()), self.even_line());
        let each = count.div_ceil(height.stride);
        // What is read beyond the last line is multiplied by zeros.
        let lines = each * height.stride.min(count);
        let len = lines.checked_mul(line).and_then(|len| len.checked_add(self.slack));
        let bytes = len.and_then(|len| len.checked_mul(size_of::<T>()));
        scratch.lines.make(bytes.unwrap_or(usize::MAX))?;
        let start = scratch.lines.as_mut_ptr().cast::<T>();
        let at = |i: usize| start.wrapping_add((i % height.stride * each + i / height.stride) * line);
        for i in 0..count {
            // Lines that no tap touches.
            if height.kernel == 1 && i % height.stride > 0 {
                continue;
            }
            // SAFETY: there is room for all lines; each is nobody else's.
            let to = unsafe { std::slice::from_raw_parts_mut(at(i), self.line(width.output) - self.slack) };
            let cell = (top * height.stride + i).checked_sub(height.pad_before);
            match cell.filter(|&cell| cell < height.input) {
                Some(cell) => {
                    let from = input.line(image * height.input + cell, width.input * channels);
                    self.copy(from, 0, to);
                }
                None => to.fill(self.pad),
            }
        }
        let before = pixels.start - rows.start * width.output;
        let line =
            Line { rows: width.output, places: self.places(), before, distance: width.stride * channels };
        let (segments, taps) = self.segments();
        scratch.pointers.resize(segments * pixels.len())?;
        for (segment, pointers) in scratch.pointers.chunks_exact_mut(pixels.len()).enumerate() {
            let (row, tap) = (segment / taps * height.dilation, segment % taps * width.dilation);
            let mut base = at(row).wrapping_add(tap * channels).cast_const();
            let (first, others) = pointers.split_at_mut(pointers.len().min(line.rows - before));
            for (pointers, before) in
                std::iter::once((first, before)).chain(others.chunks_mut(line.rows).map(|p| (p, 0)))
            {
                let places = (before..).map(|place| base.wrapping_add(place * line.distance));
                pointers.iter_mut().zip(places).for_each(|(to, at)| *to = at);
                base = base.wrapping_add(line.places * line.distance);
            }
        }
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::kernels::gemm::kept;
    use crate::ops::conv::ConvGeometry;
    use crate::ops::image::{ImageDims, Window};
    use crate::tensor::requant::Activation;

    /// An image under a filter of so many taps each way, by eight panels.
    fn image(
        input: [usize; 3],
        (kernel, stride, dilation, pad): (usize, usize, usize, usize),
    ) -> Option<Image<u8>> {
        let window = |input: usize| {
            let reach = (kernel - 1) * dilation + 1;
            let output = (input + 2 * pad - reach) / stride + 1;
            Window { input, kernel, stride, dilation, pad_before: pad, pad_after: pad, output }
        };
        let [height, width, channels] = input;
        let geometry = ConvGeometry {
            input: ImageDims { batches: 1, height, width, channels },
            height: window(height),
            width: window(width),
            out_channels: 256,
            groups: 1,
            activation: Activation::None,
            nchw: false,
        };
        Image::new(geometry, 0, 0, Some(8))
    }

    #[test]
    fn lines_are_copied_where_that_spares_tiles_or_copies_of_patches() {
        let rows = |input, window| image(input, window).unwrap().even_rows;
        assert_eq!(rows([14, 14, 256], (3, 1, 1, 1)), 14, "all of a small image");
        assert_eq!(rows([56, 56, 64], (3, 1, 1, 1)), 6, "as many as a block has");
        assert!(rows([28, 28, 64], (3, 2, 1, 1)) > 0 && rows([32, 32, 64], (3, 1, 2, 2)) > 0);
        assert_eq!(rows([8, 4096, 64], (3, 1, 1, 1)), 0, "a line is more than a block");
    }

    #[test]
    fn lines_that_are_mostly_gaps_are_copied_only_if_they_are_few() {
        let is_copied = |input, window| {
            let geometry = image(input, window).unwrap().geometry;
            Image::new(geometry, 0u8, 4, None).is_some()
        };
        let far = |dilation| is_copied([64, 1, 1], (2, dilation, dilation, dilation));
        assert!(far(1 << 16) && !far(1 << 20));
        assert!(is_copied([65, 65, 256], (3, 1, 36, 36)), "neighbours share what lies between taps");
    }

    #[test]
    fn what_weights_cost_may_be_more_than_a_pointer_has_bits_for() {
        let rows = |panels| image([14, 14, 256], (3, 1, 1, 1)).unwrap().best_even_rows(panels);
        // Of some GiB, with which the costs do not fit 32 bits; and of more than fit any.
        assert_eq!(rows(1 << 22), rows(1 << 16));
        assert!(rows(usize::MAX) <= 14);
    }

    #[test]
    fn what_is_copied_of_any_image_is_little() {
        for input in [[1, 1 << 20, 1], [1 << 20, 1, 1], [1 << 10, 1 << 10, 3], [9, 9, 1 << 12]] {
            for window in
                [(1, 1 << 19, 1, 0), (1, 3, 1, 0), (3, 1, 1, 1), (3, 1, 1 << 18, 1 << 18), (5, 7, 2, 4)]
            {
                let reach = (window.0 - 1) * window.2 + 1;
                if input[0].min(input[1]) + 2 * window.3 < reach {
                    continue;
                }
                // Lines that are too long for a kernel are for the plain evaluation.
                let Some(image) = image(input, window) else { continue };
                let Some(pixels) = image.pixels_of_lines(0) else { continue };
                let elements = input.iter().product::<usize>();
                let input = vec![0u8; elements];
                let mut scratch = Scratch::new();
                let lines = Lines::all(crate::memory::View::of(&input[..]));
                image.lay_lines(lines, 0..pixels, &mut scratch).unwrap();
                assert!(pixels <= MAX_ROWS && scratch.lines.len() <= kept::LARGEST, "{:?}", image.geometry);
            }
        }
    }
}
