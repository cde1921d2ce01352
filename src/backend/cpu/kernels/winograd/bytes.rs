//! Tiles of bytes: 4 x 4 output pixels take 36 products for each pair of channels in place of 144. All of it is integers, and
//! exact: the bytes are those of the plain product. See [`bytes_x86`] for how.
//!
//! It pays where bytes have to be widened to be multiplied anyway, as in AVX2: products of words then take as long. Packed, a
//! filter is eight times as large, which bounds for what it is done.

use super::super::eight_bit::{is_signed, requant, sign_flip, signed_zero};
use super::super::gemm::{multiply_words, Form, Requant, Requantisation};
use super::super::isa::{Isa, Level};
use super::super::{Kernel, Source};
use super::bytes_x86::{from_places, to_places, After, Before, Finish, COLUMNS, LANES, MOST, WRITTEN};
use super::matrices::Filter;
use super::{suits, Made, Sums, Tile, Winograd};
use crate::memory::Weights;
use crate::ops::conv::ConvGeometry;
use crate::ops::{copy, Args};
use std::ops::Range;

/// Tiles from which on it pays: fewer are not worth the memory.
const LEAST_TILES: usize = 9;
/// Bytes of the matrices for each tile, at most: they are read for all tiles, and take memory.
const MOST_BYTES: usize = 96 << 10;
/// The size of an input at most, less 128 if it is unsigned.
const LARGEST_INPUT: usize = 128;
/// Rows that are multiplied at once.
const ROWS: usize = 6;

/// Whether a convolution goes this way.
pub fn is_taken(isa: Isa, args: &Args, geometry: &ConvGeometry) -> bool {
    let is_of_bytes = args.get(0).is_ok_and(|input| input.ty().is_quant8_asymm());
    let (channels, columns) = (geometry.input.channels, geometry.out_channels);
    // As tiles are few where images are small, a plain product is better there for many channels.
    let tiles = super::tiles::<Bytes>(geometry).unwrap_or(0);
    let bytes = channels.saturating_mul(columns).saturating_mul(Bytes::PLACES * size_of::<i16>());
    isa.level() == Level::Avx2
        && is_of_bytes
        && suits::<Bytes>(geometry, LEAST_TILES)
        && bytes <= tiles.saturating_mul(MOST_BYTES)
}

/// A kernel for a convolution that [is taken](is_taken).
pub fn select(args: &Args, geometry: ConvGeometry, source: &mut Source) -> Option<Box<dyn Kernel>> {
    let (input, filter, output) = (args.get(0).ok()?, args.get(1).ok()?, args.output(0).ok()?);
    let (channels, columns) = (geometry.input.channels, geometry.out_channels);
    let is_signed = is_signed(&input);
    let (flip, zero) = (sign_flip(&filter), signed_zero(&filter));
    let beside = input.zero_point() - if is_signed { 0 } else { 128 };

    let scale = requant(args, columns, geometry.activation, source)?;
    if source.runs() && scale.multipliers.len() != columns {
        return None;
    }
    let requantisation = Requantisation {
        multipliers: &scale.multipliers,
        ty: output.ty,
        zero: scale.zero_point,
        range: scale.range,
        once: geometry.is_fully_connected(),
        interrupt: args.interrupt,
    };
    let requant = Requant::new(&requantisation, Form::Wide, COLUMNS / 2, 0)?;

    let (panels, depth) = (columns.div_ceil(COLUMNS), channels.next_multiple_of(2));
    let part = part(zero).min(depth);
    let count = panels.checked_mul(COLUMNS)?.checked_mul(depth)?.checked_mul(Bytes::PLACES)?;
    let (weights, mut sums) = (source.view::<i8>(args, 1), None);
    let matrices = source.take(count, |to: &mut [i16]| {
        let filter = Filter { weights: weights?, columns, channels, flip: flip as i8, zero: zero as i16 };
        sums = Some(filter.pack(part, to, args.interrupt)?);
        Some(())
    })?;
    let bias = source.take(panels.checked_mul(COLUMNS)?, |to: &mut [i32]| {
        let (from, sums) = (args.get(2).ok()?.elements::<i32>().ok()?, sums?);
        let to = to.get_mut(..columns)?;
        copy(args.interrupt, bytemuck::cast_slice_mut(to), bytemuck::cast_slice(from)).ok()?;
        // What lies beside the image is counted as inputs, and stands for none.
        to.iter_mut().zip(sums.iter()).for_each(|(to, sum)| *to = to.wrapping_sub(beside.wrapping_mul(*sum)));
        Some(())
    })?;
    let tile = Bytes {
        matrices,
        bias,
        requant,
        channels,
        panels,
        part,
        is_signed,
        beside: input.zero_point() as u8,
    };
    Some(Box::new(Winograd { tile, geometry }))
}

/// Channels whose sums are certain to be [short enough](MOST), whatever inputs and weights of such a zero point are.
fn part(zero: i32) -> usize {
    let largest_weight = (128 + zero.abs()) as usize;
    (MOST - 1) / (LARGEST_INPUT * super::filter::TAPS * largest_weight) / LANES * LANES
}

pub struct Bytes {
    /// `[place][part][panel]`.
    matrices: Weights,
    /// For whole panels.
    bias: Weights,
    requant: Requant,
    channels: usize,
    panels: usize,
    /// Channels of a part but the last.
    part: usize,
    is_signed: bool,
    beside: u8,
}

// SAFETY: only a machine with AVX2 takes it, and what is written is what the functions say.
unsafe impl Tile for Bytes {
    type Input = u8;
    type Output = u8;
    type Place = i16;
    type Sum = i32;
    const WRITTEN: usize = WRITTEN;
    const ADDITIONS: usize = 32;
    const AT_ONCE: usize = 2;

    fn name(&self) -> String {
        "avx2 8-bit".into()
    }

    fn weights(&self) -> Vec<&Weights> {
        vec![&self.matrices, &self.bias]
    }

    fn beside(&self) -> u8 {
        self.beside
    }

    fn depth(&self) -> usize {
        self.channels.next_multiple_of(2)
    }

    fn size(&self) -> (usize, usize) {
        (ROWS, COLUMNS)
    }

    fn parts(&self) -> usize {
        self.channels.div_ceil(self.part)
    }

    unsafe fn spread(&self, from: &[*const u8], to: *mut i16, apart: usize) {
        let (from, _) = from.as_chunks();
        for from in from {
            // SAFETY: the same contract; a tile has one such chunk.
            unsafe {
                match self.is_signed {
                    true => to_places::<true>(from, self.channels, to, apart),
                    false => to_places::<false>(from, self.channels, to, apart),
                }
            }
        }
    }

    unsafe fn multiply(
        &self,
        (from, count): (*const i16, usize),
        (place, part): (usize, usize),
        columns: Range<usize>,
        to: (*mut i32, usize),
    ) {
        let (all, start) = (self.depth(), part * self.part);
        let deep = self.part.min(all - start);
        let (first, panels) = (columns.start / COLUMNS, columns.len().div_ceil(COLUMNS));
        let at = ((place * all + start) * self.panels + first * deep) * COLUMNS;
        let weights = self.matrices.elements(at, panels * deep * COLUMNS);
        // SAFETY: the same contract; the matrices have the panels. An odd last channel has a neighbour without weight.
        unsafe { multiply_words((from.wrapping_add(start), all, count), (weights, panels, deep / 2), to) };
    }

    unsafe fn gather(&self, sums: Sums<i32>, first: usize, made: Made<u8>) {
        for column in (0..made.channels).step_by(COLUMNS) {
            let kept = sums.kept.wrapping_add(column);
            // SAFETY: the machine has AVX2 and FMA.
            let finish = unsafe { Finish::of(&self.requant, (first + column) / COLUMNS) };
            let before = match sums.part {
                0 => Before { at: self.bias.elements(first + column, COLUMNS), step: 0 },
                _ => Before { at: kept, step: sums.line },
            };
            let after = match sums.part + 1 == self.parts() {
                true => After::Bytes(&finish),
                false => After::Kept(kept, sums.line),
            };
            let made = Made { to: made.to.wrapping_add(column), channels: made.channels - column, ..made };
            // SAFETY: the same contract.
            unsafe { from_places(Sums { at: sums.at.wrapping_add(column), ..sums }, before, after, made) };
        }
    }
}
