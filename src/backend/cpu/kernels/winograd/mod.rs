//! CONV_2D of floats by filters of 3 x 3 after Winograd: a tile of 2 x 2 output pixels takes 16 products for each pair of
//! channels in place of 36. The 4 x 4 inputs under a tile become 16 sums, its places; each place of all tiles is a matrix,
//! which is multiplied by one of 16 that were made of the filter; and sums of the 16 results are the outputs.
//!
//! Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", F(2 x 2, 3 x 3). Sums are of other terms than those of
//! a plain product, and as exact where the pixels of a tile are of one size; a NaN or an infinity spreads to its whole tile.
//! Larger tiles would take fewer products and lose exactness.
//!
//! - `transform`: the sums, in vectors.
//! - `filter`: the matrices.

mod filter;
#[cfg(test)]
mod tests;
mod transform;

use super::gemm::{self, Cost, Float, Grid, Micro, Outputs, Packed, Room, Shape, EACH, PICOSECONDS};
use super::isa::Isa;
use super::kernel::{input, output};
use super::{Kernel, Source, Then, Work};
use crate::memory::{Target, View, Weights};
use crate::ops::conv::ConvGeometry;
use crate::ops::image::Window;
use crate::ops::{copy, Args, OpError};
use crate::tensor::OperandType;
use std::ops::Range;
use transform::{from_places, to_places, Made, PLACES, READ, WRITTEN};

/// The place whose sum is in each output of a tile once: a bias added there is added to all.
const BIASED: usize = 5;

/// Channels of input and output from which on it pays: fewer multiplications for each sum.
const LEAST_CHANNELS: usize = 16;
/// Tiles from which on it pays: the matrices are larger than the filter, and are read for all of them.
const LEAST_TILES: usize = 36;
/// Channels of the input, at most, so that a block of few tiles stays near.
const MOST_CHANNELS: usize = 2048;
/// Bytes of a block's places.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes of the sums of a block's places.
const SUM_BYTES: usize = 256 << 10;
/// Tiles of a block, at most.
const MOST_TILES: usize = 96;
/// Floats between a place and the next: where places were a power of two apart, those of a tile would share a part of the cache.
const APART: usize = 16;

/// Bytes of a filter with these dimensions, and of so many bytes of floats, if it is packed this way.
pub(super) fn packed_bytes(dims: &[u32], bytes: usize) -> usize {
    match dims {
        [_, 3, 3, _] => (bytes / filter::TAPS).saturating_mul(PLACES),
        _ => bytes,
    }
}

/// The micro-kernel of a convolution that is to go this way; `None` for others.
pub(super) fn micro(isa: Isa, args: &Args, geometry: &ConvGeometry) -> Option<&'static Micro<Float>> {
    let is_plain = |window: &Window| (window.kernel, window.stride, window.dilation) == (3, 1, 1);
    let is_float = args.get(0).is_ok_and(|input| input.ty() == OperandType::TENSOR_FLOAT32);
    let is_one = is_float && geometry.groups == 1 && is_plain(&geometry.height) && is_plain(&geometry.width);
    let (inputs, outputs) = (geometry.input.channels, geometry.out_channels);
    let is_deep = (LEAST_CHANNELS..=MOST_CHANNELS).contains(&inputs) && outputs >= LEAST_CHANNELS;
    let (tiles, pixels) =
        (tiles(geometry)?, geometry.input.batches * geometry.height.output * geometry.width.output);
    // Where images are small, much of their tiles is cut off.
    let is_mostly_whole = pixels.saturating_mul(3) >= tiles.saturating_mul(8);
    if !is_one || !is_deep || tiles < LEAST_TILES || !is_mostly_whole {
        return None;
    }
    // Where the machine has tiles of its own for the plain product, that stays.
    gemm::simple_float(isa, pixels, gemm::image_shape(geometry)?)
}

/// A kernel for a convolution that such a micro-kernel is [for](micro).
pub(super) fn select(
    isa: Isa,
    args: &Args,
    geometry: ConvGeometry,
    micro: &'static Micro<Float>,
    source: &mut Source,
) -> Option<Box<dyn Kernel>> {
    let (depth, width) = (geometry.input.channels, micro.columns);
    let panels = geometry.out_channels.div_ceil(width);
    let shape = Shape { columns: panels.checked_mul(width)?.checked_mul(PLACES)?, segments: 1, depth };
    let filter = source.view::<f32>(args, 1);
    let fill =
        |to: &mut [f32]| filter::pack(filter?, (geometry.out_channels, depth, width), to, args.interrupt);
    let biases = |to: &mut [f32]| {
        let from = args.get(2).ok()?.elements::<f32>().ok()?;
        let to = to.get_mut(BIASED * panels * width..)?.get_mut(..geometry.out_channels)?;
        copy(args.interrupt, bytemuck::cast_slice_mut(to), bytemuck::cast_slice(from)).ok()
    };
    let packed = Packed::filled(micro, shape, source, fill, biases)?;
    Some(Box::new(Winograd { isa, packed, geometry, panels, range: geometry.activation.float_range() }))
}

/// Tiles of all images, the last of a line and of a column cut off by where the image ends.
fn tiles(geometry: &ConvGeometry) -> Option<usize> {
    let of_image = high(geometry).checked_mul(wide(geometry))?;
    geometry.input.batches.checked_mul(of_image)
}

/// Tiles below each other.
fn high(geometry: &ConvGeometry) -> usize {
    geometry.height.output.div_ceil(WRITTEN)
}

/// Tiles beside each other.
fn wide(geometry: &ConvGeometry) -> usize {
    geometry.width.output.div_ceil(WRITTEN)
}

struct Winograd {
    isa: Isa,
    /// `[place][panel]`.
    packed: Packed<Float>,
    geometry: ConvGeometry,
    /// Of each place.
    panels: usize,
    /// Bounds of the activation.
    range: (f32, f32),
}

impl Kernel for Winograd {
    fn name(&self) -> String {
        format!("winograd {}", self.packed.micro.name)
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (input, mut out) = (input::<f32>(inputs, 0)?, output::<f32>(outputs, 0)?);
        let geometry = &self.geometry;
        let (image, batches) = (&geometry.input, geometry.input.batches);
        let made = batches * geometry.height.output * geometry.width.output * geometry.out_channels;
        if input.len() != batches * image.height * image.width * image.channels || out.len() != made {
            return Err(OpError::failed("images do not fit"));
        }
        let after = work.then.map_or(0, |then| geometry.out_channels.saturating_mul(then.picoseconds));
        let threads = work.team.threads();
        let grid = Grid::new(self.cost(after / PICOSECONDS, work.then.is_some(), threads)?, threads);
        let to = Outputs(out.pointer(0, made));
        work.for_each_task(grid.tasks(), |i| {
            let (tiles, panels) = grid.task(i);
            // SAFETY: tasks have different tiles or panels, all of them those of the outputs.
            unsafe { self.make(input, tiles, panels, to, work.then) }
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

    fn goes_on(&self) -> Option<usize> {
        Some(1)
    }
}

/// Additions of a tile's places and outputs, for each channel, and what it takes to load and store them.
const ADDITIONS: usize = 48;

impl Winograd {
    /// What there is to be shared out, where so many products more are made of a pixel.
    fn cost(&self, after: usize, is_gone_on_with: bool, threads: usize) -> Result<Cost, OpError> {
        let (depth, columns) = (self.packed.shape.depth, self.geometry.out_channels);
        let micro = self.packed.micro;
        let output_bytes = (WRITTEN * WRITTEN * size_of::<f32>()).saturating_mul(columns);
        let products = (PLACES * depth + ADDITIONS).saturating_mul(micro.columns);
        let rows = tiles(&self.geometry).ok_or_else(|| OpError::failed("more tiles than can be counted"))?;
        // A task reads all matrices for each of its blocks: smaller ones would read them for fewer tiles.
        let each = (rows / most_tiles(depth, micro.rows) / threads).clamp(1, EACH);
        Ok(Cost {
            rows,
            tile: micro.rows,
            is_of_lines: false,
            panels: self.panels,
            products,
            finish: output_bytes.saturating_add((WRITTEN * WRITTEN).saturating_mul(after)),
            row_bytes: PLACES * depth * size_of::<f32>(),
            panel_bytes: PLACES * depth * micro.columns * size_of::<f32>(),
            output_bytes,
            each,
            is_gone_on_with,
        })
    }

    /// Makes some panels' channels of some tiles, and goes on with what was made.
    ///
    /// # Safety
    /// The outputs must have them, nobody else write them, and be memory of ours if they are gone on with.
    unsafe fn make(
        &self,
        input: View<f32>,
        tiles: Range<usize>,
        panels: Range<usize>,
        to: Outputs<f32>,
        then: Option<Then>,
    ) -> Result<(), OpError> {
        let (depth, width, all) =
            (self.packed.shape.depth, self.packed.micro.columns, self.geometry.out_channels);
        let most = most_tiles(depth, self.packed.micro.rows).min(tiles.len());
        let side = (SUM_BYTES / (PLACES * most * width * size_of::<f32>())).clamp(1, panels.len());
        let (apart, distance) = (most * depth + APART, most * side * width + APART);
        let (mut places, mut sums) = (Room::default(), Room::default());
        // What lies beside an image comes behind the places.
        places.make((PLACES * apart + depth) * size_of::<f32>())?;
        sums.make(PLACES * distance * size_of::<f32>())?;
        let (places, sums) = (places.as_mut_ptr().cast::<f32>(), sums.as_mut_ptr().cast::<f32>());
        let beside = places.wrapping_add(PLACES * apart);
        // SAFETY: there is room for a pixel.
        unsafe { beside.write_bytes(0, depth) };
        let mut first = tiles.start;
        while first < tiles.end {
            let block = first..tiles.end.min(first + most);
            for (i, tile) in block.clone().enumerate() {
                let from = self.inputs(input, tile, beside);
                // SAFETY: pointers are to pixels of so many channels, and there is room for the places.
                unsafe { to_places(self.isa, &from, depth, places.wrapping_add(i * depth), apart) };
            }
            let mut rows = [std::ptr::null(); MOST_TILES];
            let rows = &mut rows[..block.len()];
            for start in panels.clone().step_by(side) {
                let some = start..panels.end.min(start + side);
                let line = some.len() * width;
                let columns = line.min(all - start * width);
                for place in 0..PLACES {
                    let from = places.wrapping_add(place * apart);
                    rows.iter_mut().enumerate().for_each(|(i, row)| *row = from.wrapping_add(i * depth));
                    let (panel, to) = (place * self.panels + start, sums.wrapping_add(place * distance));
                    // SAFETY: rows are as long as the product is deep, and there is room for their sums.
                    unsafe { self.packed.multiply_apart(rows, panel, columns, (to, line)) };
                }
                for (i, tile) in block.clone().enumerate() {
                    let made = self.outputs(to, tile, start * width, columns);
                    // SAFETY: the sums are there, with room for whole panels, and the outputs by contract.
                    unsafe { from_places(self.isa, sums.wrapping_add(i * line), distance, self.range, made) };
                }
            }
            if let Some(then) = then {
                let columns = panels.start * width..all.min(panels.end * width);
                for pixels in self.pixels(block.clone()) {
                    // SAFETY: they were just written; the rest is the contract.
                    unsafe { then.on(to.0, pixels, columns.clone(), all) }?;
                }
            }
            first = block.end;
        }
        Ok(())
    }

    /// The image of a tile, and its first output's row and column.
    fn at(&self, tile: usize) -> (usize, usize, usize) {
        let (high, wide) = (high(&self.geometry), wide(&self.geometry));
        (tile / (high * wide), tile / wide % high * WRITTEN, tile % wide * WRITTEN)
    }

    /// Where the pixels under a tile lie; those beside the image are `beside`.
    fn inputs(&self, input: View<f32>, tile: usize, beside: *const f32) -> [*const f32; PLACES] {
        let (batch, row, column) = self.at(tile);
        let geometry = &self.geometry;
        let (width, channels) = (geometry.input.width, geometry.input.channels);
        let mut from = [beside; PLACES];
        for (i, from) in from.chunks_exact_mut(READ).enumerate() {
            let Some(row) = inside(&geometry.height, row + i) else { continue };
            let line = (batch * geometry.input.height + row) * width;
            for (j, from) in from.iter_mut().enumerate() {
                if let Some(column) = inside(&geometry.width, column + j) {
                    *from = input.pointer((line + column) * channels, channels);
                }
            }
        }
        from
    }

    /// Where some channels of a tile go.
    fn outputs(&self, to: Outputs<f32>, tile: usize, first: usize, channels: usize) -> Made {
        let (batch, row, column) = self.at(tile);
        let (height, width) = (self.geometry.height.output, self.geometry.width.output);
        let (all, pixel) = (self.geometry.out_channels, (batch * height + row) * width + column);
        Made {
            to: to.at(pixel * all + first),
            pixel: all,
            line: width * all,
            rows: WRITTEN.min(height - row),
            columns: WRITTEN.min(width - column),
            channels,
        }
    }

    /// The output pixels of some tiles, as stretches.
    fn pixels(&self, tiles: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let (wide, end) = (wide(&self.geometry), tiles.end);
        let (height, width) = (self.geometry.height.output, self.geometry.width.output);
        let lines = tiles.start / wide..tiles.end.div_ceil(wide);
        lines.flat_map(move |line| {
            let (first, last) = ((line * wide).max(tiles.start), ((line + 1) * wide).min(end));
            let (batch, row, column) = self.at(first);
            let until = width.min(((last - 1) % wide + 1) * WRITTEN);
            (row..height.min(row + WRITTEN)).map(move |row| {
                let start = (batch * height + row) * width;
                start + column..start + until
            })
        })
    }
}

/// The cell of the image at a place that is counted with what is beside it, if it is in the image.
fn inside(window: &Window, place: usize) -> Option<usize> {
    place.checked_sub(window.pad_before).filter(|&cell| cell < window.input)
}

/// Tiles of a block: whole tiles of the micro-kernel's, if there is room for one.
fn most_tiles(depth: usize, rows: usize) -> usize {
    let most = (BLOCK_BYTES / (PLACES * depth * size_of::<f32>())).clamp(rows, MOST_TILES);
    most / rows * rows
}
