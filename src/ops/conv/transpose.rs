//! TRANSPOSE_CONV_2D: the gradient of CONV_2D; each input pixel spreads over a window of the output.

use super::geometry::regroup;
use super::{accumulate_rows, check_channel_dim, evaluate, filter_dims, Number, WeightedSums};
use super::{IMPLICIT, OUTPUT, ROWS_FROM_3, TENSORS};
use crate::ops::image::{expect_rank, ImageDims, Padding, Strides, EXPLICIT_STRIDES, IMPLICIT_STRIDES};
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::signature::{boolean, int, is, join, Slot};
use crate::ops::{Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::requant::Activation;
use crate::tensor::Dims;
use crate::tensor::OperandType::TENSOR_INT32;

const REST: [Slot; 2] = [int("activation"), boolean("nchw")];

pub static TRANSPOSE_CONV_2D: Operation = Operation {
    ty: OperationType::TRANSPOSE_CONV_2D,
    doc: "the gradient of CONV_2D: each input pixel spreads over a window of the output",
    signatures: &[
        Signature::new(
            ROWS_FROM_3,
            &join::<9>(&[&TENSORS, &[is("output shape", TENSOR_INT32)], &IMPLICIT_STRIDES, &REST]),
            OUTPUT,
        ),
        Signature::new(ROWS_FROM_3, &join::<11>(&[&TENSORS, &EXPLICIT_STRIDES, &REST]), OUTPUT),
    ],
    check: |args| check_channel_dim(args, 0),
    run: Run::Shaped { shapes, eval },
};

/// One dimension of a transposed convolution: tap `t` of input `i` falls on output `i * stride + t - pad_before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransposeWindow {
    /// Size of the input along the dimension, at least 1.
    pub input: usize,
    /// Taps of the filter, at least 1.
    pub kernel: usize,
    /// At least 1.
    pub stride: usize,
    /// Cells cut off before the output; what is cut off after it follows from `output`.
    pub pad_before: usize,
    /// Size of the output along the dimension, at least 1.
    pub output: usize,
}

impl TransposeWindow {
    /// `wanted` is the output's size that SAME padding is computed for; `name` the dimension's, for messages.
    pub fn new(
        name: &str,
        input: usize,
        kernel: u32,
        stride: i32,
        padding: Padding,
        wanted: i32,
    ) -> Result<Self, OpError> {
        let wrong = |why: String| OpError::failed(format!("{name}: {why}"));
        if kernel == 0 || stride <= 0 || input > u32::MAX as usize {
            return Err(wrong(format!("filter {kernel} and stride {stride} must be positive")));
        }
        let (input, kernel, stride) = (input as i64, i64::from(kernel), i64::from(stride));
        let (before, after) = match padding {
            Padding::None => (0, 0),
            Padding::Explicit(before, after) => (i64::from(before), i64::from(after)),
            Padding::Same if wanted <= 0 => return Err(wrong(format!("an output shape of {wanted}"))),
            Padding::Same => {
                let wanted = i64::from(wanted);
                let total = (wanted - 1) / stride * stride + kernel - wanted;
                // What is cut off after may be negative: output that no input reaches.
                (total.max(0) / 2, total - total.max(0) / 2)
            }
        };
        // The first product is below 2^63, and the rest is far below what separates it from there.
        let output = (input - 1) * stride + kernel - before - after;
        if before < 0 || output <= 0 || output > i64::from(i32::MAX) {
            return Err(wrong(format!("paddings {before} and {after} make an output of {output}")));
        }
        Ok(TransposeWindow {
            input: input as usize,
            kernel: kernel as usize,
            stride: stride as usize,
            pad_before: before as usize,
            output: output as usize,
        })
    }

    /// The pairs of tap and input that fall on output `output`.
    pub fn sources(&self, output: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let position = output + self.pad_before;
        // Inputs from the last one down, so taps ascend.
        let last = (position / self.stride).min(self.input - 1);
        let first = (position + 1).saturating_sub(self.kernel).div_ceil(self.stride);
        (first..=last).rev().map(move |input| (position - input * self.stride, input))
    }
}

/// A transposed convolution: filter `[out_channels, height.kernel, width.kernel, input.channels]`, whatever the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransposeGeometry {
    /// Of the input.
    pub input: ImageDims,
    pub height: TransposeWindow,
    pub width: TransposeWindow,
    pub out_channels: usize,
    pub activation: Activation,
    /// Input and output have their channels first.
    pub nchw: bool,
}

impl TransposeGeometry {
    pub fn from_args(args: &Args) -> Result<Self, OpError> {
        let implicit = args.signature_index == IMPLICIT;
        let (strides, at) = Strides::from_args(args, if implicit { 4 } else { 3 }, !implicit)?;
        let (activation, nchw) = (args.activation(at)?, args.bool(at + 1)?);
        let wanted = if implicit { wanted_size(args, nchw)? } else { (0, 0) };
        let input = ImageDims::of(&args.arg(0)?, nchw)?;
        let [out_channels, kernel_height, kernel_width, depth] = filter_dims(args, 0)?;
        if depth as usize != input.channels {
            return Err(OpError::failed(format!(
                "a filter for {depth} of {} input channels",
                input.channels
            )));
        }
        let Strides { horizontal, vertical, stride_width, stride_height } = strides;
        let height =
            TransposeWindow::new("height", input.height, kernel_height, stride_height, vertical, wanted.0)?;
        let width =
            TransposeWindow::new("width", input.width, kernel_width, stride_width, horizontal, wanted.1)?;
        let out_channels = out_channels as usize;
        Ok(TransposeGeometry { input, height, width, out_channels, activation, nchw })
    }

    /// Dimensions of the output in the call's layout.
    pub fn output_dims(&self) -> Result<Dims, OpError> {
        let (height, width) = (self.height.output, self.width.output);
        ImageDims { height, width, channels: self.out_channels, ..self.input }.to_dims(self.nchw)
    }
}

/// Height and width out of the output shape, which is in the call's layout. Its batches and channels do not count.
fn wanted_size(args: &Args, nchw: bool) -> Result<(i32, i32), OpError> {
    let shape = args.get(3)?;
    expect_rank(&shape, "output shape", 1)?;
    match *shape.elements::<i32>()? {
        [_, _, height, width] if nchw => Ok((height, width)),
        [_, height, width, _] => Ok((height, width)),
        ref other => Err(OpError::failed(format!("an output shape of {} elements, expected 4", other.len()))),
    }
}

impl WeightedSums for TransposeGeometry {
    fn out_channels(&self) -> usize {
        self.out_channels
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
        let (channels, outputs) = (self.input.channels, self.out_channels);
        let weights = regroup(filter, outputs, 1, self.height.kernel * self.width.kernel, pace)?;
        let tap_size = channels * outputs;
        let mut sums = filled(pace.interrupt(), T::default(), outputs)?;
        let mut pixel = 0;
        for image in 0..self.input.batches {
            for row in 0..self.height.output {
                for column in 0..self.width.output {
                    pace.in_stretches(outputs, 1, |part| sums[part].fill(T::default()))?;
                    for (tap_row, in_row) in self.height.sources(row) {
                        for (tap_column, in_column) in self.width.sources(column) {
                            let cell = (image * self.height.input + in_row) * self.width.input + in_column;
                            let tap = tap_row * self.width.kernel + tap_column;
                            let weights = &weights[tap * tap_size..][..tap_size];
                            let xs = input[cell * channels..][..channels].iter().copied();
                            accumulate_rows(&mut sums, xs, weights, value, pace)?;
                        }
                    }
                    emit(pixel, &sums, pace)?;
                    pixel += 1;
                }
            }
        }
        Ok(())
    }
}

fn shapes(args: &Args) -> Shapes {
    Ok(vec![TransposeGeometry::from_args(args)?.output_dims()?])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    evaluate(&TransposeGeometry::from_args(args)?, args, &mut outs[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call_simple, f32s, i32s, int, Tensor};

    fn tensors(input: &[f32], filter: &[f32]) -> Vec<Tensor> {
        let width = |values: &[f32]| [1, 1, values.len() as u32, 1];
        vec![f32s(&width(input), input), f32s(&width(filter), filter), f32s(&[1], &[0.5])]
    }

    fn explicit(input: &[f32], filter: &[f32], ints: [i32; 7]) -> Result<(Vec<u32>, Vec<f32>), OpError> {
        let mut inputs = tensors(input, filter);
        inputs.extend(ints.map(int));
        inputs.push(boolean(false));
        call_simple(&TRANSPOSE_CONV_2D, &inputs)
    }

    #[test]
    fn inputs_spread_and_overlap() {
        let out = explicit(&[1.0, 10.0], &[1.0, 2.0, 3.0], [0, 0, 0, 0, 2, 1, 0]);
        assert_eq!(out, Ok((vec![1, 1, 5, 1], vec![1.5, 2.5, 13.5, 20.5, 30.5])));
        let cut = explicit(&[1.0, 10.0], &[1.0, 2.0, 3.0], [1, 2, 0, 0, 2, 1, 0]);
        assert_eq!(cut, Ok((vec![1, 1, 2, 1], vec![2.5, 13.5])));
        // Negative padding after: output that no input reaches.
        let longer = explicit(&[1.0, 10.0], &[1.0], [0, -1, 0, 0, 2, 1, 0]);
        assert_eq!(longer, Ok((vec![1, 1, 4, 1], vec![1.5, 0.5, 10.5, 0.5])));
    }

    #[test]
    fn same_padding_follows_the_output_shape() {
        let mut inputs = tensors(&[1.0, 10.0], &[1.0, 2.0, 3.0]);
        inputs.push(i32s(&[4], &[1, 1, 4, 1]));
        inputs.extend([1, 2, 1, 0].map(int));
        inputs.push(boolean(false));
        let out = call_simple::<f32>(&TRANSPOSE_CONV_2D, &inputs);
        assert_eq!(out, Ok((vec![1, 1, 4, 1], vec![1.5, 2.5, 13.5, 20.5])));
        inputs[3] = i32s(&[4], &[1, i32::MIN, 4, 1]);
        assert!(call_simple::<f32>(&TRANSPOSE_CONV_2D, &inputs).is_err());
        inputs[3] = i32s(&[3], &[1, 1, 4]);
        assert!(call_simple::<f32>(&TRANSPOSE_CONV_2D, &inputs).is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |ints| explicit(&[1.0, 10.0], &[1.0, 2.0, 3.0], ints).is_err();
        assert!(refused([-1, 0, 0, 0, 1, 1, 0]));
        assert!(refused([2, 2, 0, 0, 1, 1, 0]));
        assert!(refused([0, 0, 0, 0, 0, 1, 0]));
        assert!(refused([0, i32::MIN, 0, 0, 1, 1, 0]));
        assert!(refused([0, 0, 0, 0, i32::MAX, 1, 0]));
    }
}
