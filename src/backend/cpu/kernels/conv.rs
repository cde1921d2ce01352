//! CONV_2D as a matrix product: each output pixel is a row of input patches times the packed filter.
//!
//! A filter of one tap with stride 1 multiplies the input as it lies where types allow; otherwise the patches of a few rows at
//! a time are gathered into scratch memory that stays in the cache.

use super::gemm_f32::PackedF32;
use super::gemm_i8::{PackedI8, Requantisation};
use super::simd::Isa;
use super::{input, output, rows_per_task, Kernel, Source, Work};
use crate::memory::{Target, View, Weights};
use crate::ops::conv::{ChannelRequant, ConvGeometry};
use crate::ops::{Arg, Args, OpError};
use crate::tensor::requant::Activation;
use crate::tensor::OperandType;
use bytemuck::AnyBitPattern;

/// Filter and bias, which [`pack_f32`] and [`pack_i8`] pack.
pub(super) const PACKED_INPUTS: &[usize] = &[1, 2];

/// A kernel for this call of CONV_2D.
pub(super) fn select(isa: Isa, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    let geometry = ConvGeometry::from_args(args).ok().filter(|g| !g.nchw && g.groups == 1)?;
    let k =
        geometry.height.kernel.checked_mul(geometry.width.kernel)?.checked_mul(geometry.input.channels)?;
    let shape = (k, geometry.out_channels);
    match args.get(0).ok()?.ty() {
        OperandType::TENSOR_FLOAT32 => {
            let packed = pack_f32(isa, args, shape, geometry.activation, source)?;
            Some(Box::new(ConvF32 { geometry, packed }))
        }
        ty if ty.is_quant8_asymm() => {
            let once = geometry.is_fully_connected();
            let packed = pack_i8(isa, args, shape, geometry.activation, once, source)?;
            Some(Box::new(ConvI8 { geometry, packed, input: QuantInput::new(&args.get(0).ok()?) }))
        }
        _ => None,
    }
}

/// Packs filter (input 1, `[channels][k]`) and bias (input 2) of a float call.
pub(super) fn pack_f32(
    isa: Isa,
    args: &Args,
    shape: (usize, usize),
    activation: Activation,
    source: &mut Source,
) -> Option<PackedF32> {
    let (filter, bias) = (args.get(1).ok()?, args.get(2).ok()?);
    let constants = || Some((filter.elements().ok()?, bias.elements().ok()?));
    PackedF32::new(isa, shape, activation.float_range(), source, constants)
}

/// Packs filter (input 1, `[channels][k]`) and bias (input 2) of an 8-bit call; `once`: see [`ChannelRequant::once`].
pub(super) fn pack_i8(
    isa: Isa,
    args: &Args,
    (k, channels): (usize, usize),
    activation: Activation,
    once: bool,
    source: &mut Source,
) -> Option<PackedI8> {
    let (input, filter, bias) = (args.get(0).ok()?, args.get(1).ok()?, args.get(2).ok()?);
    let requant =
        ChannelRequant::new(input.info, filter.info, args.output(0).ok()?, channels, activation).ok()?;
    let requantisation = Requantisation {
        multipliers: &requant.multipliers,
        output_zero: requant.zero_point,
        range: requant.range,
        once,
    };
    let zeros = (QuantInput::new(&input).zero.into(), signed_zero(&filter));
    let constants = || Some((signed_weights(&filter)?.into(), bias.elements().ok()?));
    PackedI8::new(isa, (k, channels), zeros, &requantisation, source, constants)
}

/// Weights as signed bytes.
pub(super) fn signed_weights(filter: &Arg) -> Option<Vec<i8>> {
    let flip = if filter.ty() == OperandType::TENSOR_QUANT8_ASYMM { 0x80 } else { 0 };
    Some(filter.bytes().ok()?.iter().map(|&b| (b ^ flip) as i8).collect())
}

/// The zero point that goes with [`signed_weights`].
pub(super) fn signed_zero(filter: &Arg) -> i32 {
    let shift = if filter.ty() == OperandType::TENSOR_QUANT8_ASYMM { 128 } else { 0 };
    filter.zero_point() - shift
}

/// An 8-bit input as unsigned bytes: signed ones have their top bit flipped.
#[derive(Clone, Copy)]
pub(super) struct QuantInput {
    pub zero: u8,
    pub flip: u8,
}

impl QuantInput {
    pub fn new(input: &Arg) -> Self {
        let flip = if input.ty() == OperandType::TENSOR_QUANT8_ASYMM_SIGNED { 0x80 } else { 0 };
        QuantInput { zero: input.zero_point() as u8 ^ flip, flip }
    }

    /// Makes bytes that were copied from the input unsigned.
    pub fn unsign(self, bytes: &mut [u8]) {
        if self.flip != 0 {
            bytes.iter_mut().for_each(|b| *b ^= self.flip);
        }
    }
}

struct ConvF32 {
    geometry: ConvGeometry,
    packed: PackedF32,
}

impl Kernel for ConvF32 {
    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (n, k) = (self.packed.n, self.packed.k);
        let (input, out) = (input::<f32>(inputs, 0)?, output::<f32>(outputs, 0)?);
        let chunk = rows_per_task(out.len() / n, n * k, work.team.threads()) * n;
        work.for_each_chunk(out, chunk, |first, c| {
            let (row, rows) = (first / n, c.len() / n);
            if is_direct(&self.geometry) {
                return self.packed.multiply(input.part(row * k, rows * k), c);
            }
            in_blocks(row, c, n, k * 4, |row, c| {
                let mut patches = Vec::with_capacity(c.len() / n * k);
                gather(&self.geometry, input, 0.0, row..row + c.len() / n, k, &mut patches);
                self.packed.multiply(View::of(&patches), c);
            });
        })
    }

    fn weights(&self) -> Vec<&Weights> {
        self.packed.weights()
    }

    fn packed_inputs(&self) -> &'static [usize] {
        PACKED_INPUTS
    }
}

struct ConvI8 {
    geometry: ConvGeometry,
    packed: PackedI8,
    input: QuantInput,
}

impl Kernel for ConvI8 {
    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let (n, k, row_bytes) = (self.packed.n, self.packed.k, self.packed.row());
        let (input, out) = (input::<u8>(inputs, 0)?, output::<u8>(outputs, 0)?);
        let chunk = rows_per_task(out.len() / n, n * k / 4, work.team.threads()) * n;
        work.for_each_chunk(out, chunk, |first, c| {
            let (row, rows) = (first / n, c.len() / n);
            if is_direct(&self.geometry) && self.input.flip == 0 && k == row_bytes {
                return self.packed.multiply(input.part(row * k, rows * k), c);
            }
            in_blocks(row, c, n, row_bytes, |row, c| {
                let mut patches = Vec::with_capacity(c.len() / n * row_bytes);
                let pad = self.input.zero ^ self.input.flip;
                gather(&self.geometry, input, pad, row..row + c.len() / n, row_bytes, &mut patches);
                self.input.unsign(&mut patches);
                self.packed.multiply(View::of(&patches), c);
            });
        })
    }

    fn weights(&self) -> Vec<&Weights> {
        self.packed.weights()
    }

    fn packed_inputs(&self) -> &'static [usize] {
        PACKED_INPUTS
    }
}

/// Whether the patches of the output pixels, one after the other, are the input as it lies.
fn is_direct(geometry: &ConvGeometry) -> bool {
    [&geometry.height, &geometry.width]
        .into_iter()
        .all(|w| w.kernel == 1 && w.stride == 1 && (w.pad_before, w.pad_after) == (0, 0))
}

/// Splits the rows of `c` (each of `n`) into blocks whose patches take some tens of kilobytes.
fn in_blocks<T: AnyBitPattern>(
    first: usize,
    mut c: Target<T>,
    n: usize,
    patch_bytes: usize,
    mut work: impl FnMut(usize, Target<T>),
) {
    let rows = (32 * 1024 / patch_bytes.max(1)).max(1).next_multiple_of(12);
    for start in (0..c.len()).step_by(rows * n) {
        let len = (rows * n).min(c.len() - start);
        work(first + start / n, c.part(start, len));
    }
}

/// Appends the patches of output pixels `pixels` to `patches`: taps in order, `pad` where a tap falls beside the input
/// and from the end of a patch to `row` elements.
fn gather<T: AnyBitPattern>(
    geometry: &ConvGeometry,
    input: View<T>,
    pad: T,
    pixels: std::ops::Range<usize>,
    row: usize,
    patches: &mut Vec<T>,
) {
    let (height, width, channels) = (&geometry.height, &geometry.width, geometry.input.channels);
    for pixel in pixels {
        let end = patches.len() + row;
        let (image, y, x) = (
            pixel / (height.output * width.output),
            pixel / width.output % height.output,
            pixel % width.output,
        );
        let (rows, columns) = (height.taps(y), width.taps(x));
        for tap_row in 0..height.kernel {
            let line_end = patches.len() + width.kernel * channels;
            if rows.contains(&tap_row) && !columns.is_empty() {
                let line = (image * height.input + height.cell(y, tap_row)) * width.input;
                patches.resize(patches.len() + columns.start * channels, pad);
                if width.dilation == 1 {
                    let start = (line + width.cell(x, columns.start)) * channels;
                    input.part(start, columns.len() * channels).append_to(patches);
                } else {
                    for tap in columns.clone() {
                        let start = (line + width.cell(x, tap)) * channels;
                        input.part(start, channels).append_to(patches);
                    }
                }
            }
            patches.resize(line_end, pad);
        }
        patches.resize(end, pad);
    }
}
