//! CONV_2D as a matrix product: each output pixel is a row of inputs, its patch of the image, times the packed filter.

use super::gemm::{self, Constants, Packed, Product, Requantisation, Rows, Shape, Zeros};
use super::isa::Isa;
use super::{Kernel, Source};
use crate::ops::conv::{ChannelRequant, ConvGeometry};
use crate::ops::{Arg, Args};
use crate::tensor::requant::Activation;
use crate::tensor::OperandType;
use bytemuck::AnyBitPattern;

/// Filter and bias, which [`float`] and [`quant`] pack.
pub(super) const PACKED_INPUTS: &[usize] = &[1, 2];

/// A kernel for this call of CONV_2D.
pub(super) fn select(isa: Isa, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    let geometry = ConvGeometry::from_args(args).ok().filter(|g| !g.nchw && g.groups == 1)?;
    let (shape, activation) = (gemm::image_shape(&geometry)?, geometry.activation);
    let input = args.get(0).ok()?;
    match input.ty() {
        OperandType::TENSOR_FLOAT32 => {
            let packed = float(isa, args, shape, activation, source)?;
            let rows = rows(geometry, 0.0, packed.padded - shape.depth)?;
            Some(Box::new(Product { packed, rows }))
        }
        ty if ty.is_quant8_asymm() => {
            let slack = gemm::padded(isa, shape.depth) - shape.depth;
            // Where lines are copied anyway they become what is multiplied best.
            let is_copied = !gemm::is_matrix(&geometry) && gemm::copies(&geometry, slack);
            let flip = if is_copied { gemm::flip(isa, is_signed(&input)) } else { 0 };
            let once = geometry.is_fully_connected();
            let packed = quant(isa, args, shape, activation, (once, flip), source)?;
            let rows = match rows(geometry, input.zero_point() as u8 ^ flip, slack)? {
                Rows::Image(image) if flip != 0 => Rows::Image(image.changed(flip_signs)),
                rows => rows,
            };
            Some(Box::new(Product { packed, rows }))
        }
        _ => None,
    }
}

/// The rows of inputs of a convolution; each segment is read by `slack` elements beyond its end.
fn rows<T: AnyBitPattern + Send + Sync>(geometry: ConvGeometry, pad: T, slack: usize) -> Option<Rows<T>> {
    match gemm::is_matrix(&geometry) {
        true => Some(Rows::Matrix),
        false => gemm::Image::new(geometry, pad, slack).map(Rows::Image),
    }
}

/// Packs filter (input 1, `[channels][inputs]`) and bias (input 2) of a float call.
pub(super) fn float(
    isa: Isa,
    args: &Args,
    shape: Shape,
    activation: Activation,
    source: &mut Source,
) -> Option<Packed<gemm::Float>> {
    let bias = args.get(2).ok()?;
    let (weights, interrupt) = (source.view(args, 1), args.interrupt);
    let constants = || Some(Constants { weights: weights?, bias: bias.elements().ok()?, interrupt });
    Packed::float(isa, shape, activation.float_range(), source, constants)
}

fn is_signed(input: &Arg) -> bool {
    input.ty() == OperandType::TENSOR_QUANT8_ASYMM_SIGNED
}

/// Makes signed bytes unsigned.
fn flip_signs(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte ^= 0x80);
}

/// Packs filter (input 1, `[channels][inputs]`) and bias (input 2) of an 8-bit call; `once`: see [`ChannelRequant::once`];
/// `flip`: what the inputs are xored with before they are multiplied, nothing or their sign.
pub(super) fn quant(
    isa: Isa,
    args: &Args,
    shape: Shape,
    activation: Activation,
    (once, flip): (bool, u8),
    source: &mut Source,
) -> Option<Packed<gemm::Quant>> {
    let (input, filter, bias) = (args.get(0).ok()?, args.get(1).ok()?, args.get(2).ok()?);
    let output = args.output(0).ok()?;
    let requant = ChannelRequant::new(input.info, filter.info, output, shape.columns, activation).ok()?;
    let requantisation = Requantisation {
        multipliers: &requant.multipliers,
        ty: output.ty,
        zero: requant.zero_point,
        range: requant.range,
        once,
    };
    let zeros = Zeros {
        signed_inputs: is_signed(&input) && flip == 0,
        input: input.zero_point() + i32::from(flip),
        signed_weights: filter.ty() != OperandType::TENSOR_QUANT8_ASYMM,
        weight: filter.zero_point(),
    };
    let (weights, interrupt) = (source.view(args, 1), args.interrupt);
    let constants = || Some(Constants { weights: weights?, bias: bias.elements().ok()?, interrupt });
    Packed::quant(isa, shape, zeros, &requantisation, source, constants)
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
        let flip = if is_signed(input) { 0x80 } else { 0 };
        QuantInput { zero: input.zero_point() as u8 ^ flip, flip }
    }
}
