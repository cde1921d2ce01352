//! Tiles of floats: 2 x 2 output pixels take 16 products for each pair of channels in place of 36.
//!
//! F(2 x 2, 3 x 3): sums are of other terms than those of a plain product, and as exact where the pixels of a tile are of one
//! size; a NaN or an infinity is in no other outputs than those of a plain product, but of an infinity these may be NaN. Larger
//! tiles would take fewer products and lose exactness.

use super::super::gemm::{self, Float, Micro, Packed, Shape};
use super::super::isa::Isa;
use super::super::{Kernel, Source};
use super::transform::{self, from_places, to_places};
use super::{filter, suits, Made, Sums, Tile, Winograd, MOST_TILES};
use crate::memory::Weights;
use crate::ops::conv::ConvGeometry;
use crate::ops::{copy, Args};
use crate::tensor::OperandType;
use std::ops::Range;

/// The place whose sum is in each output of a tile once: a bias added there is added to all.
const BIASED: usize = 5;
/// Tiles from which on it pays: the matrices are larger than the filter, and are read for all of them.
pub const LEAST_TILES: usize = 36;

/// Bytes of a filter with these dimensions, and of so many bytes of floats, if it is packed this way.
pub fn packed_bytes(dims: &[u32], bytes: usize) -> usize {
    match dims {
        [_, 3, 3, _] => (bytes / filter::TAPS).saturating_mul(Floats::PLACES),
        _ => bytes,
    }
}

/// The micro-kernel of a convolution that is to go this way; `None` for others.
pub fn micro(isa: Isa, args: &Args, geometry: &ConvGeometry) -> Option<&'static Micro<Float>> {
    let is_float = args.get(0).is_ok_and(|input| input.ty() == OperandType::TENSOR_FLOAT32);
    if !is_float || !suits::<Floats>(geometry, LEAST_TILES) {
        return None;
    }
    let pixels = geometry.input.batches * geometry.height.output * geometry.width.output;
    // Where the machine has tiles of its own for the plain product, that stays.
    gemm::simple_float(isa, pixels, gemm::image_shape(geometry)?)
}

/// A kernel for a convolution that such a micro-kernel is [for](micro).
pub fn select(
    isa: Isa,
    args: &Args,
    geometry: ConvGeometry,
    micro: &'static Micro<Float>,
    source: &mut Source,
) -> Option<Box<dyn Kernel>> {
    let (depth, width) = (geometry.input.channels, micro.columns);
    let panels = geometry.out_channels.div_ceil(width);
    let shape =
        Shape { columns: panels.checked_mul(width)?.checked_mul(Floats::PLACES)?, segments: 1, depth };
    let filter = source.view::<f32>(args, 1);
    let fill =
        |to: &mut [f32]| filter::pack(filter?, (geometry.out_channels, depth, width), to, args.interrupt);
    let biases = |to: &mut [f32]| {
        let from = args.get(2).ok()?.elements::<f32>().ok()?;
        let to = to.get_mut(BIASED * panels * width..)?.get_mut(..geometry.out_channels)?;
        copy(args.interrupt, bytemuck::cast_slice_mut(to), bytemuck::cast_slice(from)).ok()
    };
    let packed = Packed::filled(micro, shape, source, fill, biases)?;
    let tile = Floats { isa, packed, panels, range: geometry.activation.float_range() };
    Some(Box::new(Winograd { tile, geometry }))
}

pub struct Floats {
    isa: Isa,
    /// `[place][panel]`.
    packed: Packed<Float>,
    /// Of each place.
    panels: usize,
    /// Bounds of the activation.
    range: (f32, f32),
}

// SAFETY: what is written is what the transforms and the product write, as the trait says.
unsafe impl Tile for Floats {
    type Input = f32;
    type Output = f32;
    type Place = f32;
    type Sum = f32;
    const WRITTEN: usize = transform::WRITTEN;
    const ADDITIONS: usize = 48;
    const AT_ONCE: usize = 1;

    fn name(&self) -> String {
        self.packed.micro.name.into()
    }

    fn weights(&self) -> Vec<&Weights> {
        self.packed.weights()
    }

    fn beside(&self) -> f32 {
        0.0
    }

    fn depth(&self) -> usize {
        self.packed.shape.depth
    }

    fn size(&self) -> (usize, usize) {
        (self.packed.micro.rows, self.packed.micro.columns)
    }

    unsafe fn spread(&self, from: &[*const f32], to: *mut f32, apart: usize) {
        let (from, _) = from.as_chunks();
        for from in from {
            // SAFETY: the same contract; a tile has one such chunk.
            unsafe { to_places(self.isa, from, self.depth(), to, apart) };
        }
    }

    unsafe fn multiply(
        &self,
        (from, count): (*const f32, usize),
        (place, _): (usize, usize),
        columns: Range<usize>,
        to: (*mut f32, usize),
    ) {
        let mut rows = [std::ptr::null(); MOST_TILES];
        let rows = &mut rows[..count];
        rows.iter_mut().enumerate().for_each(|(i, row)| *row = from.wrapping_add(i * self.depth()));
        let panel = place * self.panels + columns.start / self.packed.micro.columns;
        // SAFETY: the same contract.
        unsafe { self.packed.multiply_apart(rows, panel, columns.len(), to) };
    }

    unsafe fn gather(&self, sums: Sums<f32>, _: usize, made: Made<f32>) {
        // SAFETY: the same contract.
        unsafe { from_places(self.isa, sums.at, sums.distance, self.range, made) };
    }
}
