//! CONV_2D by filters of 3 x 3 after Winograd: fewer products for each pair of channels. The inputs under a tile of output
//! pixels become sums, its places; each place of all tiles is a matrix, which is multiplied by one of as many that were made
//! of the filter; and sums of the results are the outputs.
//!
//! Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks".
//!
//! - `floats`: tiles of 2 x 2 pixels, 16 products in place of 36; `transform` has their sums in vectors, `filter` the matrices.
//! - `bytes`: tiles of 4 x 4 pixels, 36 products in place of 144, in integers, and exact; `bytes_x86` and `matrices` the same
//!   for them.
//!
//! What is here is the same for both: where tiles lie, and how they are shared out and gone through.

#[cfg(target_arch = "x86_64")]
pub(super) mod bytes;
#[cfg(all(test, target_arch = "x86_64"))]
mod bytes_tests;
#[cfg(target_arch = "x86_64")]
mod bytes_x86;
mod filter;
pub(super) mod floats;
#[cfg(target_arch = "x86_64")]
mod matrices;
#[cfg(test)]
mod tests;
mod transform;
#[cfg(target_arch = "x86_64")]
mod words_x86;

use super::gemm::{Cost, Grid, Outputs, Room, EACH, PICOSECONDS};
use super::kernel::{input, output};
use super::{Kernel, Then, Work};
use crate::memory::{Target, View, Weights};
use crate::ops::conv::ConvGeometry;
use crate::ops::image::Window;
use crate::ops::OpError;
use bytemuck::AnyBitPattern;
use std::ops::Range;

/// Channels of input and output from which on it pays: fewer multiplications for each sum.
const LEAST_CHANNELS: usize = 16;
/// Channels of the input, at most, so that a block of few tiles stays near.
const MOST_CHANNELS: usize = 2048;
/// Bytes of a block's places.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes of the sums of a block's places.
const SUM_BYTES: usize = 256 << 10;
/// Tiles of a block, at most.
const MOST_TILES: usize = 96;
/// Bytes between a place and the next: where places were a power of two apart, those of a tile would share a part of the cache.
const APART: usize = 64;
/// Places of a tile, at most.
const MOST_PLACES: usize = 36;
/// More pixels than a tile makes, along each dimension, are read for it.
const AROUND: usize = 2;

/// What is done to tiles of one kind of elements.
///
/// # Safety
/// The functions write no more than what each says.
#[allow(clippy::missing_safety_doc)] // the trait's section holds for each function
unsafe trait Tile: Send + Sync {
    type Input: AnyBitPattern + Send + Sync;
    type Output: AnyBitPattern + Send + Sync;
    /// What inputs become.
    type Place;
    /// What products of places are added up to.
    type Sum;
    /// Outputs of a tile along each dimension.
    const WRITTEN: usize;
    /// Inputs under it, and places.
    const READ: usize = Self::WRITTEN + AROUND;
    const PLACES: usize = Self::READ * Self::READ;
    /// Products that take as long as what else is done for a channel of a tile.
    const ADDITIONS: usize;
    /// Products that take as long as one of floats.
    const AT_ONCE: usize;

    fn name(&self) -> String;
    fn weights(&self) -> Vec<&Weights>;
    /// What is read beside an image.
    fn beside(&self) -> Self::Input;
    /// Elements from a tile to the next in a place.
    fn depth(&self) -> usize;
    /// Rows and columns that are multiplied at once.
    fn size(&self) -> (usize, usize);
    /// Stretches of channels whose products are added up each by itself.
    fn parts(&self) -> usize {
        1
    }

    /// Makes the places of a tile, so many elements from one to the next, of the pixels under it, row by row.
    unsafe fn spread(&self, from: &[*const Self::Input], to: *mut Self::Place, apart: usize);

    /// Multiplies a place's part of so many rows, which are [`Self::depth`] elements apart, by some columns, the first of which
    /// is a panel's, to where rows are so many sums apart.
    unsafe fn multiply(
        &self,
        rows: (*const Self::Place, usize),
        place: (usize, usize),
        columns: Range<usize>,
        to: (*mut Self::Sum, usize),
    );

    /// Makes the outputs of a tile from column `first` on of the sums of a part, or adds to what is kept of the parts before.
    unsafe fn gather(&self, sums: Sums<Self::Sum>, first: usize, made: Made<Self::Output>);
}

/// The sums of a tile.
#[derive(Clone, Copy)]
struct Sums<S> {
    at: *const S,
    /// Sums from a place to the next.
    distance: usize,
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // floats have one part
    part: usize,
    /// What is kept from part to part where there are several: each output's `line` sums.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    kept: *mut S,
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    line: usize,
}

/// Where outputs of a tile go: those that exist of its rows and columns.
#[derive(Clone, Copy)]
struct Made<T> {
    to: *mut T,
    /// Elements from a pixel to the next, and from a line to the next.
    pixel: usize,
    line: usize,
    rows: usize,
    columns: usize,
    channels: usize,
}

/// Whether a convolution's filter, channels and tiles are such that it pays, from so many tiles on.
fn suits<T: Tile>(geometry: &ConvGeometry, least_tiles: usize) -> bool {
    let is_plain = |window: &Window| (window.kernel, window.stride, window.dilation) == (3, 1, 1);
    let is_one = geometry.groups == 1 && is_plain(&geometry.height) && is_plain(&geometry.width);
    let (inputs, outputs) = (geometry.input.channels, geometry.out_channels);
    let is_deep = (LEAST_CHANNELS..=MOST_CHANNELS).contains(&inputs) && outputs >= LEAST_CHANNELS;
    let Some(tiles) = tiles::<T>(geometry) else { return false };
    let pixels = geometry.input.batches * geometry.height.output * geometry.width.output;
    // Where images are small, much of their tiles is cut off.
    let is_mostly_whole = pixels.saturating_mul(3) >= tiles.saturating_mul(2 * T::WRITTEN * T::WRITTEN);
    is_one && is_deep && tiles >= least_tiles && is_mostly_whole
}

/// Tiles of all images, the last of a line and of a column cut off by where the image ends.
fn tiles<T: Tile>(geometry: &ConvGeometry) -> Option<usize> {
    let of_image = high::<T>(geometry).checked_mul(wide::<T>(geometry))?;
    geometry.input.batches.checked_mul(of_image)
}

/// Tiles below each other.
fn high<T: Tile>(geometry: &ConvGeometry) -> usize {
    geometry.height.output.div_ceil(T::WRITTEN)
}

/// Tiles beside each other.
fn wide<T: Tile>(geometry: &ConvGeometry) -> usize {
    geometry.width.output.div_ceil(T::WRITTEN)
}

struct Winograd<T> {
    tile: T,
    geometry: ConvGeometry,
}

impl<T: Tile> Kernel for Winograd<T> {
    fn name(&self) -> String {
        format!("winograd {}", self.tile.name())
    }

    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (input, mut out) = (input::<T::Input>(inputs, 0)?, output::<T::Output>(outputs, 0)?);
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
        self.tile.weights()
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

impl<T: Tile> Winograd<T> {
    /// What there is to be shared out, where so many products more are made of a pixel.
    fn cost(&self, after: usize, is_gone_on_with: bool, threads: usize) -> Result<Cost, OpError> {
        let (depth, columns) = (self.tile.depth(), self.geometry.out_channels);
        let (tile, width) = self.tile.size();
        let pixels = T::WRITTEN * T::WRITTEN;
        let output_bytes = (pixels * size_of::<T::Output>()).saturating_mul(columns);
        let products = (T::PLACES * depth / T::AT_ONCE + T::ADDITIONS).saturating_mul(width);
        let rows =
            tiles::<T>(&self.geometry).ok_or_else(|| OpError::failed("more tiles than can be counted"))?;
        // A task reads all matrices for each of its blocks: smaller ones would read them for fewer tiles.
        let each = (rows / self.most_tiles() / threads).clamp(1, EACH);
        Ok(Cost {
            rows,
            tile,
            is_of_lines: false,
            panels: columns.div_ceil(width),
            products,
            finish: output_bytes.saturating_add(pixels.saturating_mul(after)),
            row_bytes: T::PLACES * depth * size_of::<T::Place>(),
            panel_bytes: T::PLACES * depth * width * size_of::<T::Place>(),
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
        input: View<T::Input>,
        tiles: Range<usize>,
        panels: Range<usize>,
        to: Outputs<T::Output>,
        then: Option<Then>,
    ) -> Result<(), OpError> {
        let (depth, all) = (self.tile.depth(), self.geometry.out_channels);
        let ((_, width), parts, pixels) = (self.tile.size(), self.tile.parts(), T::WRITTEN * T::WRITTEN);
        // Blocks of about one size: the matrices are read for each of them.
        let blocks = tiles.len().div_ceil(self.most_tiles()).max(1);
        let most = tiles.len().div_ceil(blocks);
        let side = (SUM_BYTES / (T::PLACES * most * width * size_of::<T::Sum>())).clamp(1, panels.len());
        let apart = most * depth + APART / size_of::<T::Place>();
        let distance = most * side * width + APART / size_of::<T::Sum>();
        let (mut places, mut sums) = (Room::default(), Room::default());
        // What lies beside an image comes behind the places, what is kept from part to part behind the sums.
        places.make(T::PLACES * apart * size_of::<T::Place>() + depth * size_of::<T::Input>())?;
        let kept = if parts > 1 { pixels * most * side * width } else { 0 };
        sums.make((T::PLACES * distance + kept) * size_of::<T::Sum>())?;
        let (places, sums) = (places.as_mut_ptr().cast::<T::Place>(), sums.as_mut_ptr().cast::<T::Sum>());
        let (beside, kept) = (
            places.wrapping_add(T::PLACES * apart).cast::<T::Input>(),
            sums.wrapping_add(T::PLACES * distance),
        );
        for i in 0..depth {
            // SAFETY: there is room for a pixel.
            unsafe { beside.add(i).write(self.tile.beside()) };
        }
        let mut first = tiles.start;
        while first < tiles.end {
            let block = first..tiles.end.min(first + most);
            for (i, tile) in block.clone().enumerate() {
                let from = self.inputs(input, tile, beside);
                // SAFETY: pointers are to pixels of all channels, and there is room for the places.
                unsafe { self.tile.spread(&from[..T::PLACES], places.wrapping_add(i * depth), apart) };
            }
            for start in panels.clone().step_by(side) {
                let some = start..panels.end.min(start + side);
                let (line, start) = (some.len() * width, start * width);
                let columns = start..all.min(start + line);
                for part in 0..parts {
                    for place in 0..T::PLACES {
                        let rows = (places.wrapping_add(place * apart).cast_const(), block.len());
                        let to = (sums.wrapping_add(place * distance), line);
                        // SAFETY: rows are as long as the product is deep, and there is room for their sums.
                        unsafe { self.tile.multiply(rows, (place, part), columns.clone(), to) };
                    }
                    for (i, tile) in block.clone().enumerate() {
                        let made = self.outputs(to, tile, start, columns.len());
                        let (at, kept) = (sums.wrapping_add(i * line), kept.wrapping_add(i * pixels * line));
                        // SAFETY: the sums are there, with room for whole panels, and the outputs by contract.
                        unsafe { self.tile.gather(Sums { at, distance, part, kept, line }, start, made) };
                    }
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

    /// Tiles of a block: whole tiles of what is multiplied at once, if there is room for one.
    fn most_tiles(&self) -> usize {
        let (rows, _) = self.tile.size();
        let bytes = T::PLACES * self.tile.depth() * size_of::<T::Place>();
        (BLOCK_BYTES / bytes).clamp(rows, MOST_TILES)
    }

    /// The image of a tile, and its first output's row and column.
    fn at(&self, tile: usize) -> (usize, usize, usize) {
        let (high, wide) = (high::<T>(&self.geometry), wide::<T>(&self.geometry));
        (tile / (high * wide), tile / wide % high * T::WRITTEN, tile % wide * T::WRITTEN)
    }

    /// Where the pixels under a tile lie; those beside the image are `beside`.
    fn inputs(
        &self,
        input: View<T::Input>,
        tile: usize,
        beside: *const T::Input,
    ) -> [*const T::Input; MOST_PLACES] {
        let (batch, row, column) = self.at(tile);
        let geometry = &self.geometry;
        let (width, channels) = (geometry.input.width, geometry.input.channels);
        let mut from = [beside; MOST_PLACES];
        let first = [(&geometry.height, row), (&geometry.width, column)].map(|(window, place)| {
            inside(window, place).filter(|_| inside(window, place + T::READ - 1).is_some())
        });
        if let [Some(row), Some(column)] = first {
            // All of them are in the image.
            let line = width * channels;
            let start = ((batch * geometry.input.height + row) * width + column) * channels;
            let start = input.pointer(start, (T::READ - 1) * line + T::READ * channels);
            for (i, from) in from[..T::PLACES].chunks_exact_mut(T::READ).enumerate() {
                for (j, from) in from.iter_mut().enumerate() {
                    *from = start.wrapping_add(i * line + j * channels);
                }
            }
            return from;
        }
        for (i, from) in from[..T::PLACES].chunks_exact_mut(T::READ).enumerate() {
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
    fn outputs(&self, to: Outputs<T::Output>, tile: usize, first: usize, channels: usize) -> Made<T::Output> {
        let (batch, row, column) = self.at(tile);
        let (height, width) = (self.geometry.height.output, self.geometry.width.output);
        let (all, pixel) = (self.geometry.out_channels, (batch * height + row) * width + column);
        Made {
            to: to.at(pixel * all + first),
            pixel: all,
            line: width * all,
            rows: T::WRITTEN.min(height - row),
            columns: T::WRITTEN.min(width - column),
            channels,
        }
    }

    /// The output pixels of some tiles, as stretches.
    fn pixels(&self, tiles: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let (wide, end) = (wide::<T>(&self.geometry), tiles.end);
        let (height, width) = (self.geometry.height.output, self.geometry.width.output);
        let lines = tiles.start / wide..tiles.end.div_ceil(wide);
        lines.flat_map(move |line| {
            let (first, last) = ((line * wide).max(tiles.start), ((line + 1) * wide).min(end));
            let (batch, row, column) = self.at(first);
            let until = width.min(((last - 1) % wide + 1) * T::WRITTEN);
            (row..height.min(row + T::WRITTEN)).map(move |row| {
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
