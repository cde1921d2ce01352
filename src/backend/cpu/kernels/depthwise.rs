//! DEPTHWISE_CONV_2D with one output channel per input channel: sums over taps, channels side by side in vectors.

use super::conv::{signed_weights, signed_zero, QuantInput, PACKED_INPUTS};
use super::scaling::{scale, Scaling};
use super::simd::{dispatch, Isa, Simd};
use super::{input, output, rows_per_task, Kernel, Source, Work};
use crate::memory::{Target, View, Weights};
use crate::ops::conv::{ChannelRequant, DepthwiseGeometry};
use crate::ops::{Args, OpError};
use crate::tensor::OperandType;
use bytemuck::AnyBitPattern;

/// A kernel for this call of DEPTHWISE_CONV_2D.
pub(super) fn select(isa: Isa, args: &Args, source: &mut Source) -> Option<Box<dyn Kernel>> {
    let geometry = DepthwiseGeometry::from_args(args).ok().filter(|g| !g.nchw && g.multiplier == 1)?;
    let (input, filter, bias) = (args.get(0).ok()?, args.get(1).ok()?, args.get(2).ok()?);
    let channels = geometry.input.channels;
    let count = geometry.filter_len();
    match input.ty() {
        OperandType::TENSOR_FLOAT32 => Some(Box::new(DepthwiseF32 {
            isa,
            geometry,
            weights: source.take(count, |to| copy::<f32, f32>(to, filter.elements().ok()?, |w| w))?,
            bias: source.take(channels, |to| copy::<f32, f32>(to, bias.elements().ok()?, |b| b))?,
        })),
        ty if ty.is_quant8_asymm() => {
            let output = args.output(0).ok()?;
            let requant =
                ChannelRequant::new(input.info, filter.info, output, channels, geometry.activation).ok()?;
            let zero = signed_zero(&filter);
            let centred = |w: i8| (i32::from(w) - zero) as i16;
            Some(Box::new(DepthwiseI8 {
                isa,
                input: QuantInput::new(&input),
                weights: source.take(count, |to| copy(to, &signed_weights(&filter)?, centred))?,
                bias: source.take(channels, |to| copy::<i32, i32>(to, bias.elements().ok()?, |b| b))?,
                mantissa: requant.multipliers.iter().map(|m| m.mantissa).collect(),
                shift: requant.multipliers.iter().map(|m| m.shift).collect(),
                output_zero: requant.zero_point,
                range: requant.range,
                geometry,
            }))
        }
        _ => None,
    }
}

/// Fills `to` from as many elements.
fn copy<S: Copy, T>(to: &mut [T], from: &[S], convert: impl Fn(S) -> T) -> Option<()> {
    let from = Some(from).filter(|from| from.len() == to.len())?;
    to.iter_mut().zip(from).for_each(|(to, &from)| *to = convert(from));
    Some(())
}

/// Calls `work(taps and input cells, channels of the output pixel)` for the pixels in `out`, from pixel `first` on.
#[inline(always)]
fn for_each_pixel<T: AnyBitPattern>(
    geometry: &DepthwiseGeometry,
    first: usize,
    mut out: Target<T>,
    mut work: impl FnMut(&[(usize, usize)], Target<T>),
) {
    let (height, width, channels) = (&geometry.height, &geometry.width, geometry.input.channels);
    let mut taps = Vec::with_capacity(height.kernel * width.kernel);
    for i in 0..out.len() / channels {
        let pixel = first + i;
        let (image, y, x) = (
            pixel / (height.output * width.output),
            pixel / width.output % height.output,
            pixel % width.output,
        );
        taps.clear();
        for row in height.taps(y) {
            let line = (image * height.input + height.cell(y, row)) * width.input;
            for column in width.taps(x) {
                let tap = row * width.kernel + column;
                taps.push((tap * channels, (line + width.cell(x, column)) * channels));
            }
        }
        work(&taps, out.part(i * channels, channels));
    }
}

struct DepthwiseF32 {
    isa: Isa,
    geometry: DepthwiseGeometry,
    /// f32, `[tap][channel]`.
    weights: Weights,
    /// f32 per channel.
    bias: Weights,
}

impl Kernel for DepthwiseF32 {
    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let channels = self.geometry.input.channels;
        let (input, out) = (input::<f32>(inputs, 0)?, output::<f32>(outputs, 0)?);
        let taps = self.geometry.height.kernel * self.geometry.width.kernel;
        let chunk = rows_per_task(out.len() / channels, channels * taps, work.team.threads()) * channels;
        work.for_each_chunk(out, chunk, |first, out| {
            pixels_f32(self.isa, self, input, first / channels, out);
        })
    }

    fn weights(&self) -> Vec<&Weights> {
        vec![&self.weights, &self.bias]
    }

    fn packed_inputs(&self) -> &'static [usize] {
        PACKED_INPUTS
    }
}

dispatch! {
    /// Computes the pixels of `out`, from pixel `first` on.
    fn pixels_f32 => pixels_f32_with(kernel: &DepthwiseF32, input: View<f32>, first: usize, out: Target<f32>)
}

/// # Safety
/// The machine must have the instruction set of `S`.
#[inline(always)]
unsafe fn pixels_f32_with<S: Simd>(kernel: &DepthwiseF32, input: View<f32>, first: usize, out: Target<f32>) {
    let (lo, hi) = kernel.geometry.activation.float_range();
    let (count, channels) = (kernel.geometry.filter_len(), kernel.geometry.input.channels);
    let (weights, bias) =
        (kernel.weights.elements::<f32>(0, count), kernel.bias.elements::<f32>(0, channels));
    for_each_pixel(&kernel.geometry, first, out, |taps, mut out| {
        let pixel = Pixel { weights, bias, range: (lo, hi), input, taps };
        let (vectors, mut c) = (channels - channels % S::LANES, 0);
        while c < vectors {
            // SAFETY: as many channels are left, which are as many as the bias has; each tap has as many weights, all of
            // which were asked for.
            c += unsafe {
                match (vectors - c) / S::LANES {
                    4.. => pixel.sum::<S, 4>(c, &mut out),
                    2.. => pixel.sum::<S, 2>(c, &mut out),
                    _ => pixel.sum::<S, 1>(c, &mut out),
                }
            };
        }
        for c in vectors..channels {
            // SAFETY: as above, for one element.
            let sum = unsafe {
                taps.iter().fold(bias.add(c).read(), |sum, &(weight, cell)| {
                    sum + input.get(cell + c) * weights.add(weight + c).read()
                })
            };
            out.set(c, kernel.geometry.activation.apply(sum));
        }
    });
}

/// What the channels of an output pixel are summed from.
struct Pixel<'a> {
    weights: *const f32,
    bias: *const f32,
    range: (f32, f32),
    input: View<'a, f32>,
    taps: &'a [(usize, usize)],
}

impl Pixel<'_> {
    /// Sums `V` vectors of channels, from channel `c` on; gives how many channels that are. Several are summed side by
    /// side because each addition waits for the one before.
    ///
    /// # Safety
    /// The machine must have the instruction set of `S`; bias, and weights at each tap, must have the channels.
    #[inline(always)]
    unsafe fn sum<S: Simd, const V: usize>(&self, c: usize, out: &mut Target<f32>) -> usize {
        let (lanes, count) = (S::LANES, V * S::LANES);
        // SAFETY: by contract; cells and results are asked for where they are used.
        unsafe {
            let mut sums = [S::splat(0.0); V];
            for (v, sum) in sums.iter_mut().enumerate() {
                *sum = S::load(self.bias.add(c + v * lanes));
            }
            for &(weight, cell) in self.taps {
                let (x, w) = (self.input.pointer(cell + c, count), self.weights.add(weight + c));
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = S::mul_add(S::load(x.add(v * lanes)), S::load(w.add(v * lanes)), *sum);
                }
            }
            let (lo, hi) = (S::splat(self.range.0), S::splat(self.range.1));
            let to = out.pointer(c, count);
            for (v, &sum) in sums.iter().enumerate() {
                S::store(to.add(v * lanes), S::clamp(sum, lo, hi));
            }
        }
        count
    }
}

struct DepthwiseI8 {
    isa: Isa,
    geometry: DepthwiseGeometry,
    input: QuantInput,
    /// i16, `[tap][channel]`, zero point subtracted.
    weights: Weights,
    /// i32 per channel.
    bias: Weights,
    mantissa: Vec<i32>,
    shift: Vec<i32>,
    output_zero: i32,
    range: (i32, i32),
}

impl Kernel for DepthwiseI8 {
    fn run(
        &self,
        inputs: &[Option<View<u8>>],
        outputs: &mut [Target<u8>],
        work: Work,
    ) -> Result<(), OpError> {
        let channels = self.geometry.input.channels;
        let (input, out) = (input::<u8>(inputs, 0)?, output::<u8>(outputs, 0)?);
        let taps = self.geometry.height.kernel * self.geometry.width.kernel;
        let chunk = rows_per_task(out.len() / channels, channels * taps, work.team.threads()) * channels;
        work.for_each_chunk(out, chunk, |first, out| {
            pixels_i8(self.isa, self, input, first / channels, out);
        })
    }

    fn weights(&self) -> Vec<&Weights> {
        vec![&self.weights, &self.bias]
    }

    fn packed_inputs(&self) -> &'static [usize] {
        PACKED_INPUTS
    }
}

dispatch! {
    /// Computes the pixels of `out`, from pixel `first` on.
    fn pixels_i8 => pixels_i8_with(kernel: &DepthwiseI8, input: View<u8>, first: usize, out: Target<u8>)
}

/// Channels that are summed side by side.
const BLOCK: usize = 32;

/// # Safety
/// The machine must have the instruction set of `S`, which only chooses what this is compiled for.
#[inline(always)]
#[allow(clippy::extra_unused_type_parameters)] // as above
unsafe fn pixels_i8_with<S: Simd>(kernel: &DepthwiseI8, input: View<u8>, first: usize, out: Target<u8>) {
    let (flip, zero) = (kernel.input.flip, i16::from(kernel.input.zero));
    let (count, channels) = (kernel.geometry.filter_len(), kernel.geometry.input.channels);
    let (weights, bias) =
        (kernel.weights.elements::<i16>(0, count), kernel.bias.elements::<i32>(0, channels));
    for_each_pixel(&kernel.geometry, first, out, |taps, mut out| {
        for c in (0..channels).step_by(BLOCK) {
            let width = BLOCK.min(channels - c);
            let mut sums = [0i32; BLOCK];
            // SAFETY: c + width is at most `channels`, which are as many as the bias has; the array is larger.
            unsafe { bias.add(c).copy_to(sums.as_mut_ptr(), width) };
            for &(weight, cell) in taps {
                let x = input.part(cell + c, width);
                // SAFETY: each tap has `channels` weights, all of which were asked for.
                let w = unsafe { weights.add(weight + c) };
                if width == BLOCK {
                    // A length known to the compiler makes one loop of vectors.
                    // SAFETY: as many cells are asked for, and the tap has as many weights from `c` on.
                    let (x, w) = unsafe {
                        let x = x.pointer(0, BLOCK).cast::<[u8; BLOCK]>();
                        (x.read_unaligned(), w.cast::<[i16; BLOCK]>().read_unaligned())
                    };
                    for i in 0..BLOCK {
                        sums[i] =
                            sums[i].wrapping_add(i32::from(i16::from(x[i] ^ flip) - zero) * i32::from(w[i]));
                    }
                } else {
                    for (i, sum) in sums[..width].iter_mut().enumerate() {
                        // SAFETY: one of `width` elements.
                        let w = unsafe { w.add(i).read() };
                        *sum = sum.wrapping_add(i32::from(i16::from(x.get(i) ^ flip) - zero) * i32::from(w));
                    }
                }
            }
            let scaling = Scaling {
                mantissa: &kernel.mantissa[c..][..width],
                shift: &kernel.shift[c..][..width],
                output_zero: kernel.output_zero,
                range: kernel.range,
            };
            let mut bytes = [0u8; BLOCK];
            // A length known to the compiler makes one loop of vectors.
            match width == BLOCK {
                true => scaling.requantise(&sums, &mut bytes, scale),
                false => scaling.requantise(&sums[..width], &mut bytes[..width], scale),
            }
            out.copy_from(c, &bytes[..width]);
        }
    });
}
