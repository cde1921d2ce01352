//! Tiles of bytes: 4 x 4 output pixels take 36 products for each pair of channels in place of 144. All of it is integers, and
//! exact: the bytes are those of the plain product. See [`bytes_x86`] for how.
//!
//! It pays most where bytes have to be widened to be multiplied anyway, as in AVX2: products of words then take as long. Where they
//! take twice as long it pays for many channels. Packed, a filter is eight times as large, which bounds for what it is done.

use super::super::eight_bit::{is_signed, requant, sign_flip, signed_zero};
use super::super::gemm::{Form, Requant, Requantisation};
use super::super::isa::{Isa, Level};
use super::super::{Kernel, Source};
use super::bytes_x86::{After, Before, InAvx2, InAvx512, InVnni, Set, LEAST, MOST, WRITTEN};
use super::matrices::Filter;
use super::{suits, Made, Sums, Tile, Winograd};
use crate::memory::Weights;
use crate::ops::conv::ConvGeometry;
use crate::ops::{copy, Args};
use std::marker::PhantomData;
use std::ops::Range;

/// Tiles from which on it pays: fewer are not worth the memory.
const LEAST_TILES: usize = 9;
/// Bytes of the matrices for each tile, at most: they are read for all tiles, and take memory.
const MOST_BYTES: usize = 96 << 10;
/// Channels of input and output from which on it pays where bytes can be multiplied as they are: a vector has half as many words,
/// so that products alone take half of their time, and sums cost as much as ever.
const LEAST_BESIDE_PRODUCTS: (usize, usize) = (48, 32);
/// The size of an input at most, less 128 if it is unsigned.
const LARGEST_INPUT: usize = 128;

/// Whether a convolution goes this way.
pub fn is_taken(isa: Isa, args: &Args, geometry: &ConvGeometry) -> bool {
    let is_of_bytes = args.get(0).is_ok_and(|input| input.ty().is_quant8_asymm());
    let (channels, columns) = (geometry.input.channels, geometry.out_channels);
    // As tiles are few where images are small, a plain product is better there for many channels.
    let tiles = super::tiles::<Bytes<InAvx2>>(geometry).unwrap_or(0);
    let places = Bytes::<InAvx2>::PLACES;
    let bytes = channels.saturating_mul(columns).saturating_mul(places * size_of::<i16>());
    let pays = match isa.level() {
        Level::Avx2 | Level::Avx512 => true,
        Level::Vnni => channels >= LEAST_BESIDE_PRODUCTS.0 && columns >= LEAST_BESIDE_PRODUCTS.1,
        _ => false,
    };
    pays && is_of_bytes
        && suits::<Bytes<InAvx2>>(geometry, LEAST_TILES)
        && bytes <= tiles.saturating_mul(MOST_BYTES)
}

/// A kernel for a convolution that [is taken](is_taken).
pub fn select(isa: Isa, args: &Args, geometry: ConvGeometry, source: &mut Source) -> Option<Box<dyn Kernel>> {
    match isa.level() {
        Level::Avx2 => select_in::<InAvx2>(args, geometry, source),
        Level::Avx512 => select_in::<InAvx512>(args, geometry, source),
        _ => select_in::<InVnni>(args, geometry, source),
    }
}

fn select_in<S: Set + 'static>(
    args: &Args,
    geometry: ConvGeometry,
    source: &mut Source,
) -> Option<Box<dyn Kernel>> {
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
    let requant = Requant::new(&requantisation, Form::Wide, S::COLUMNS / 2, 0)?;

    let (panels, depth) = (columns.div_ceil(S::COLUMNS), channels.next_multiple_of(2));
    let part = part(zero).min(depth);
    let count = panels.checked_mul(S::COLUMNS)?.checked_mul(depth)?.checked_mul(Bytes::<S>::PLACES)?;
    let (weights, mut sums) = (source.view::<i8>(args, 1), None);
    let matrices = source.take(count, |to: &mut [i16]| {
        let filter = Filter { weights: weights?, columns, channels, flip: flip as i8, zero: zero as i16 };
        sums = Some(filter.pack((part, S::COLUMNS), to, args.interrupt)?);
        Some(())
    })?;
    let bias = source.take(panels.checked_mul(S::COLUMNS)?, |to: &mut [i32]| {
        let (from, sums) = (args.get(2).ok()?.elements::<i32>().ok()?, sums?);
        let to = to.get_mut(..columns)?;
        copy(args.interrupt, bytemuck::cast_slice_mut(to), bytemuck::cast_slice(from)).ok()?;
        // What lies beside the image is counted as inputs, and stands for none.
        to.iter_mut().zip(sums.iter()).for_each(|(to, sum)| *to = to.wrapping_sub(beside.wrapping_mul(*sum)));
        Some(())
    })?;
    let tile = Bytes::<S> {
        matrices,
        bias,
        requant,
        channels,
        panels,
        part,
        is_signed,
        beside: input.zero_point() as u8,
        set: PhantomData,
    };
    Some(Box::new(Winograd { tile, geometry }))
}

/// Channels whose sums are certain to be [short enough](MOST), whatever inputs and weights of such a zero point are.
fn part(zero: i32) -> usize {
    let largest_weight = (128 + zero.abs()) as usize;
    (MOST - 1) / (LARGEST_INPUT * super::filter::TAPS * largest_weight) / LEAST * LEAST
}

pub struct Bytes<S> {
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
    set: PhantomData<S>,
}

// SAFETY: only a machine with the set takes it, and what is written is what the functions say.
unsafe impl<S: Set> Tile for Bytes<S> {
    type Input = u8;
    type Output = u8;
    type Place = i16;
    type Sum = i32;
    const WRITTEN: usize = WRITTEN;
    const ADDITIONS: usize = 32;
    const AT_ONCE: usize = 2;

    fn name(&self) -> String {
        format!("{} 8-bit", S::NAME)
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
        (S::ROWS, S::COLUMNS)
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
                    true => S::to_places::<true>(from, self.channels, to, apart),
                    false => S::to_places::<false>(from, self.channels, to, apart),
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
        let (first, panels) = (columns.start / S::COLUMNS, columns.len().div_ceil(S::COLUMNS));
        let at = ((place * all + start) * self.panels + first * deep) * S::COLUMNS;
        let weights = self.matrices.elements(at, panels * deep * S::COLUMNS);
        // SAFETY: the same contract; the matrices have the panels. An odd last channel has a neighbour without weight.
        unsafe {
            S::multiply((from.wrapping_add(start), all, count), (weights, columns.len(), deep / 2), to)
        };
    }

    unsafe fn gather(&self, sums: Sums<i32>, first: usize, made: Made<u8>) {
        for column in (0..made.channels).step_by(S::COLUMNS) {
            let kept = sums.kept.wrapping_add(column);
            let before = match sums.part {
                0 => Before { at: self.bias.elements(first + column, S::COLUMNS), step: 0 },
                _ => Before { at: kept, step: sums.line },
            };
            let after = match sums.part + 1 == self.parts() {
                true => After::Bytes(&self.requant, (first + column) / S::COLUMNS),
                false => After::Kept(kept, sums.line),
            };
            let made = Made { to: made.to.wrapping_add(column), channels: made.channels - column, ..made };
            // SAFETY: the same contract.
            unsafe { S::from_places(Sums { at: sums.at.wrapping_add(column), ..sums }, before, after, made) };
        }
    }
}
