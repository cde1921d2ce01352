//! CONV_2D as a matrix product: each output pixel is a row of inputs, its patch of the image, times the packed filter. Filters of
//! 3 x 3 may go [another way](super::winograd).

use super::eight_bit::{is_signed, requant};
use super::gemm::{self, Constants, Packed, Product, Requantisation, Rows, Shape, Zeros};
use super::isa::Isa;
use super::picked::Picked;
use super::was_bytes::was_bytes;
use super::{winograd, Kernel, Source};
use crate::memory::{AlignedBuf, View};
use crate::ops::conv::ConvGeometry;
use crate::ops::pace::Pace;
use crate::ops::scratch::{reserved, Scratch};
use crate::ops::Args;
use crate::tensor::requant::Activation;
use crate::tensor::OperandType;
use bytemuck::{AnyBitPattern, Pod};

/// What it costs to put together what a column has besides its weights, in the steps that [`Pace`] counts.
const COLUMN: usize = 8;

/// Filter and bias, which [`float`] and [`quant`] pack.
pub(super) const PACKED_INPUTS: &[usize] = &[1, 2];

/// A kernel for this call of CONV_2D.
pub(super) fn select(isa: Isa, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    let geometry = ConvGeometry::from_args(args).ok().filter(|g| g.groups == 1)?;
    let shape = gemm::image_shape(&geometry)?;
    if let Some(packed) = dynamic(isa, args, shape, geometry.activation, source) {
        let rows = rows(geometry, 0.0, packed.padded - shape.depth, None)?;
        return Some(Box::new(Product { packed, rows }));
    }
    if let Some(micro) = winograd::floats::micro(isa, args, &geometry) {
        return winograd::floats::select(isa, args, geometry, micro, source);
    }
    #[cfg(target_arch = "x86_64")]
    if winograd::bytes::is_taken(isa, args, &geometry) {
        return winograd::bytes::select(isa, args, geometry, source);
    }
    product(isa, args, geometry, geometry.is_fully_connected(), None, source)
}

/// A convolution of a call's input by its filter, or by what is `picked` out of it; `once`: see [`ChannelRequant::once`].
pub(super) fn product(
    isa: Isa,
    args: &Args,
    geometry: ConvGeometry,
    once: bool,
    picked: Option<&Picked>,
    source: &mut Source,
) -> Option<Box<dyn Kernel>> {
    let (shape, activation) = (gemm::image_shape(&geometry)?, geometry.activation);
    let input = args.get(0).ok()?;
    match input.ty() {
        OperandType::TENSOR_FLOAT32 => {
            let pixels = [geometry.input.batches, geometry.height.output, geometry.width.output];
            let pixels = pixels.into_iter().fold(1, usize::saturating_mul);
            let packed = float(isa, args, (pixels, shape), activation, picked, source)?;
            let rows = rows(geometry, 0.0, packed.padded - shape.depth, None)?;
            Some(Box::new(Product { packed, rows }))
        }
        ty if ty.is_quant8_asymm() => {
            let joins = gemm::joins(isa, shape);
            // Segments are read as they are multiplied, or in words as they are joined.
            let read =
                if joins { shape.depth.next_multiple_of(gemm::WORD) } else { gemm::padded(isa, shape.depth) };
            let slack = read - shape.depth;
            let shape = if joins { Shape { segments: 1, depth: shape.inputs()?, ..shape } } else { shape };
            // Where lines are copied anyway they become what is multiplied best.
            let is_copied = !gemm::is_matrix(&geometry) && gemm::copies(&geometry, slack);
            let prefers = gemm::prefers_signed(isa).filter(|_| is_copied);
            let flip = if prefers.is_some_and(|signed| signed != is_signed(&input)) { 0x80 } else { 0 };
            let packed = quant(isa, args, shape, activation, (once, flip), picked, source)?;
            let even = packed.micro.even.then(|| packed.panels());
            let rows = match rows(geometry, input.zero_point() as u8 ^ flip, slack, even)? {
                Rows::Image(image) if flip != 0 => Rows::Image(image.changed(flip_signs).into()),
                rows => rows,
            };
            Some(Box::new(Product { packed, rows }))
        }
        _ => None,
    }
}

/// The rows of inputs of a convolution; each segment is read by `slack` elements beyond its end; `even`: see [`gemm::Image`].
fn rows<T: AnyBitPattern + Send + Sync>(
    geometry: ConvGeometry,
    pad: T,
    slack: usize,
    even: Option<usize>,
) -> Option<Rows<T>> {
    // An output may be cut off, where it is a part of a larger one.
    let is_cut = [geometry.height, geometry.width].iter().any(|window| window.output != window.input);
    match gemm::is_matrix(&geometry) && !is_cut {
        true => Some(Rows::Matrix),
        false => gemm::Image::new(geometry, pad, slack, even).map(|image| Rows::Image(image.into())),
    }
}

/// Packs filter (input 1, `[channels][inputs]`) and bias (input 2) of a float call, or what is `picked` out of them, for so
/// many rows of inputs.
pub(super) fn float(
    isa: Isa,
    args: &Args,
    (rows, shape): (usize, Shape),
    activation: Activation,
    picked: Option<&Picked>,
    source: &mut Source,
) -> Option<Packed<gemm::Float>> {
    let given = Given::of(args, picked, source)?;
    Packed::float(isa, rows, shape, activation.float_range(), source, || given.constants(args))
}

/// The same of a float call whose filter [was bytes](super::was_bytes), which are what is packed. `None` also where it was none.
pub(super) fn dynamic(
    isa: Isa,
    args: &Args,
    shape: Shape,
    activation: Activation,
    source: &mut Source,
) -> Option<Packed<gemm::Dynamic>> {
    let filter = args.get(1).ok()?.info;
    if !was_bytes(filter) {
        return None;
    }
    let (weights, mut columns) = (source.view(args, 1), None);
    if source.packs() {
        let bias: &[f32] = args.get(2).ok()?.elements().ok()?;
        let scales = filter.channel_quant.as_ref().map(|quant| &quant.scales);
        let scale = |i: usize| scales.map_or(Some(filter.scale), |scales| scales.get(i).copied());
        let (mut made, mut pace) = (reserved(bias.len()).ok()?, Pace::of(args.interrupt));
        for (i, &bias) in bias.iter().enumerate() {
            pace.spend(COLUMN).ok()?;
            made.push(gemm::Column { bias, scale: scale(i)?, sum: 0 });
        }
        columns = Some(made);
    }
    let interrupt = args.interrupt;
    let constants = || Some(Constants { weights: weights?, bias: columns.as_ref()?, interrupt });
    Packed::dynamic(isa, shape, activation.float_range(), source, constants)
}

/// Makes signed bytes unsigned, and unsigned ones signed.
fn flip_signs(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte ^= 0x80);
}

/// Packs filter (input 1, `[channels][inputs]`) and bias (input 2) of an 8-bit call, or what is `picked` out of them;
/// `once`: see [`ChannelRequant::once`]; `flip`: what the inputs are xored with before they are multiplied, nothing or
/// their top bit.
pub(super) fn quant(
    isa: Isa,
    args: &Args,
    shape: Shape,
    activation: Activation,
    (once, flip): (bool, u8),
    picked: Option<&Picked>,
    source: &mut Source,
) -> Option<Packed<gemm::Quant>> {
    let (input, filter) = (args.get(0).ok()?, args.get(1).ok()?);
    let output = args.output(0).ok()?;
    let channels = if picked.is_some() { filter.dim(0) as usize } else { shape.columns };
    let requant = requant(args, channels, activation, source)?;
    let multipliers = match picked.filter(|_| source.runs()) {
        Some(picked) => Some(picked.of_channels(&requant.multipliers)?),
        None => None,
    };
    let requantisation = Requantisation {
        multipliers: multipliers.as_ref().unwrap_or(&requant.multipliers),
        ty: output.ty,
        zero: requant.zero_point,
        range: requant.range,
        once,
        interrupt: args.interrupt,
    };
    let is_signed = is_signed(&input);
    let moved = if is_signed { i32::from(flip) } else { -i32::from(flip) };
    let zeros = Zeros {
        signed_inputs: is_signed == (flip == 0),
        input: input.zero_point() + moved,
        signed_weights: filter.ty() != OperandType::TENSOR_QUANT8_ASYMM,
        weight: filter.zero_point(),
    };
    let given = Given::of(args, picked, source)?;
    Packed::quant(isa, shape, zeros, &requantisation, source, || given.constants(args))
}

/// Weights and biases of a call as far as they are packed now, where they lie or picked out.
enum Given<'a, W, B> {
    Nothing,
    InPlace(View<'a, W>),
    Picked(AlignedBuf, Scratch<B>),
}

impl<'a, W: Pod, B: Pod> Given<'a, W, B> {
    /// `None` where something cannot be picked out.
    fn of<'s: 'a>(args: &Args<'a>, picked: Option<&Picked>, source: &Source<'s>) -> Option<Self> {
        let Some(view) = source.view(args, 1) else { return Some(Given::Nothing) };
        Some(match picked {
            None => Given::InPlace(view),
            Some(picked) => {
                let biases = picked.of_channels(args.get(2).ok()?.elements().ok()?)?;
                Given::Picked(picked.weights(view, args.interrupt)?, biases)
            }
        })
    }

    fn constants<'g>(&'g self, args: &Args<'g>) -> Option<Constants<'g, W, B>>
    where
        'a: 'g,
    {
        let interrupt = args.interrupt;
        match self {
            Given::Nothing => None,
            Given::InPlace(weights) => {
                Some(Constants { weights: *weights, bias: args.get(2).ok()?.elements().ok()?, interrupt })
            }
            Given::Picked(weights, bias) => {
                Some(Constants { weights: View::of(bytemuck::cast_slice(weights)), bias, interrupt })
            }
        }
    }
}
