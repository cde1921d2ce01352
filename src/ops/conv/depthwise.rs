//! DEPTHWISE_CONV_2D: each channel filtered by itself, into one or more output channels.

use super::{accumulate_rows, check_channel_dim, evaluate, filter_dims, Number, WeightedSums};
use super::{IMPLICIT, OUTPUT, ROWS, TENSORS};
use crate::ops::image::{slide, ImageDims, Strides, Window, EXPLICIT_STRIDES, IMPLICIT_STRIDES};
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::signature::{boolean, int, join, Slot};
use crate::ops::{Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::requant::Activation;
use crate::tensor::Dims;

const REST: [Slot; 5] = [
    int("depth multiplier"),
    int("activation"),
    boolean("nchw"),
    int("dilation width"),
    int("dilation height"),
];

pub static DEPTHWISE_CONV_2D: Operation = Operation {
    ty: OperationType::DEPTHWISE_CONV_2D,
    doc: "each channel filtered by itself, into one or more output channels",
    signatures: &[
        Signature::new(ROWS, &join::<11>(&[&TENSORS, &IMPLICIT_STRIDES, &REST]), OUTPUT)
            .input_counts(&[8, 9, 11]),
        Signature::new(ROWS, &join::<14>(&[&TENSORS, &EXPLICIT_STRIDES, &REST]), OUTPUT)
            .input_counts(&[11, 12, 14]),
    ],
    check: |args| check_channel_dim(args, 3),
    run: Run::Shaped { shapes, eval },
};

/// A depthwise convolution: filter `[1, height.kernel, width.kernel, input.channels * multiplier]`, whatever the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepthwiseGeometry {
    /// Of the input.
    pub input: ImageDims,
    pub height: Window,
    pub width: Window,
    /// Output channels per input channel, at least 1: output channel `c * multiplier + m` sees input channel `c`.
    pub multiplier: usize,
    pub activation: Activation,
    /// Input and output have their channels first.
    pub nchw: bool,
}

impl DepthwiseGeometry {
    pub fn from_args(args: &Args) -> Result<Self, OpError> {
        let (strides, at) = Strides::from_args(args, 3, args.signature_index != IMPLICIT)?;
        let multiplier = usize::try_from(args.i32(at)?).unwrap_or(0);
        let activation = args.activation(at + 1)?;
        let nchw = args.bool_or(at + 2, false)?;
        let dilations = (args.i32_or(at + 3, 1)?, args.i32_or(at + 4, 1)?);
        let input = ImageDims::of(&args.arg(0)?, nchw)?;
        let [one, height, width, out_channels] = filter_dims(args, 3)?;
        let fits = input.channels.checked_mul(multiplier) == Some(out_channels as usize);
        if one != 1 || !fits {
            return Err(OpError::failed(format!(
                "filter of {:?}, expected [1, height, width, {} * depth multiplier {multiplier}]",
                args.get(1)?.dims(),
                input.channels
            )));
        }
        let (height, width) = strides.windows(&input, (width, height), dilations)?;
        Ok(DepthwiseGeometry { input, height, width, multiplier, activation, nchw })
    }

    /// Elements of the filter.
    pub fn filter_len(&self) -> usize {
        // A tensor's size was checked to fit 32 bits.
        self.height.kernel * self.width.kernel * self.input.channels * self.multiplier
    }

    /// Dimensions of the output in the call's layout.
    pub fn output_dims(&self) -> Result<Dims, OpError> {
        let (height, width) = (self.height.output, self.width.output);
        ImageDims { height, width, channels: self.out_channels(), ..self.input }.to_dims(self.nchw)
    }
}

impl WeightedSums for DepthwiseGeometry {
    fn out_channels(&self) -> usize {
        self.input.channels * self.multiplier
    }

    fn activation(&self) -> Activation {
        self.activation
    }

    fn nchw(&self) -> bool {
        self.nchw
    }

    fn sums<T: Number, W: Copy>(
        &self,
        input: &[T],
        filter: &[W],
        value: impl Fn(W) -> T + Copy,
        pace: &mut Pace,
        mut emit: impl FnMut(usize, &[T], &mut Pace) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let (channels, out_channels) = (self.input.channels, self.out_channels());
        let mut sums = filled(pace.interrupt(), T::default(), out_channels)?;
        slide(&self.input, &self.height, &self.width, pace, |pixel, patch, pace| {
            pace.in_stretches(out_channels, 1, |part| sums[part].fill(T::default()))?;
            patch.for_each(|tap, cell| {
                let xs = &input[cell * channels..][..channels];
                let weights = &filter[tap * out_channels..][..out_channels];
                if self.multiplier == 1 {
                    return pace.in_stretches(channels, 1, |part| {
                        let products = xs[part.clone()].iter().zip(&weights[part.clone()]);
                        for (sum, (&x, &weight)) in sums[part].iter_mut().zip(products) {
                            *sum = sum.plus_product(x, value(weight));
                        }
                    });
                }
                let of_channel = weights.chunks_exact(self.multiplier);
                for ((sums, x), weights) in sums.chunks_exact_mut(self.multiplier).zip(xs).zip(of_channel) {
                    accumulate_rows(sums, std::iter::once(*x), weights, value, pace)?;
                }
                Ok(())
            })?;
            emit(pixel, &sums, pace)
        })
    }
}

fn shapes(args: &Args) -> Shapes {
    Ok(vec![DepthwiseGeometry::from_args(args)?.output_dims()?])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    evaluate(&DepthwiseGeometry::from_args(args)?, args, &mut outs[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call_simple, f32s, int, tensor, Tensor};
    use crate::tensor::OperandType::*;
    use crate::tensor::TensorInfo;

    fn depthwise(filter_batch: u32, multiplier: i32) -> Vec<Tensor> {
        let mut inputs = vec![
            f32s(&[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]),
            f32s(&[filter_batch, 1, 2, 4 / filter_batch], &[1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0]),
            f32s(&[4 / filter_batch], &[0.5, 0.0, 0.0, 0.0][..(4 / filter_batch) as usize]),
        ];
        inputs.extend([2, 1, 1, multiplier, 0].map(int));
        inputs
    }

    #[test]
    fn each_channel_feeds_its_own_outputs() {
        let out = call_simple::<f32>(&DEPTHWISE_CONV_2D, &depthwise(1, 2));
        assert_eq!(out, Ok((vec![1, 1, 1, 4], vec![31.5, 62.0, 126.0, 168.0])));
    }

    #[test]
    fn a_filter_that_does_not_fit_is_refused() {
        assert!(call_simple::<f32>(&DEPTHWISE_CONV_2D, &depthwise(2, 1)).is_err());
        for multiplier in [i32::MIN, -1, 0, 1, 4, i32::MAX] {
            assert!(call_simple::<f32>(&DEPTHWISE_CONV_2D, &depthwise(1, multiplier)).is_err());
        }
    }

    #[test]
    fn quantised_padding_counts_as_zero() {
        let info =
            |dims: &[u32], scale, zero| TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, dims, scale, zero);
        let mut bias = crate::ops::testing::i32s(&[1], &[0]);
        bias.info.scale = 1.0;
        let mut inputs = vec![
            tensor(info(&[1, 1, 1, 1], 1.0, -10), &[-7i8]),
            tensor(info(&[1, 1, 3, 1], 1.0, 1), &[100i8, 6, 100]),
            bias,
        ];
        inputs.extend([1, 1, 1, 1, 1].map(int));
        inputs.extend([boolean(true), int(1), int(1)]);
        let out = call_simple::<i8>(&DEPTHWISE_CONV_2D, &inputs);
        assert_eq!(out, Ok((vec![1, 1, 1, 1], vec![5])));
    }
}
