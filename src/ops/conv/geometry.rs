//! What a call of CONV_2D or GROUPED_CONV_2D asks for, and the plain loops over it.

use super::{accumulate_rows, filter_dims, Number, WeightedSums, IMPLICIT};
use crate::ops::image::{slide, ImageDims, Strides, Window};
use crate::ops::pace::Pace;
use crate::ops::scratch::{filled, reserved, Scratch};
use crate::ops::{Args, OpError};
use crate::tensor::requant::Activation;
use crate::tensor::Dims;

/// A convolution: filter `[out_channels, height.kernel, width.kernel, in_channels / groups]`, whatever the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvGeometry {
    /// Of the input.
    pub input: ImageDims,
    pub height: Window,
    pub width: Window,
    pub out_channels: usize,
    /// At least 1; divides the channels of input and output. Output channels of a group see the group's input channels.
    pub groups: usize,
    pub activation: Activation,
    /// Input and output have their channels first.
    pub nchw: bool,
}

impl ConvGeometry {
    /// Reads a call of CONV_2D.
    pub fn from_args(args: &Args) -> Result<Self, OpError> {
        let (strides, at) = Strides::from_args(args, 3, args.signature_index != IMPLICIT)?;
        let activation = args.activation(at)?;
        let nchw = args.bool_or(at + 1, false)?;
        let dilations = (args.i32_or(at + 2, 1)?, args.i32_or(at + 3, 1)?);
        Self::new(args, strides, 1, activation, nchw, dilations)
    }

    /// Reads a call of GROUPED_CONV_2D.
    pub fn from_grouped_args(args: &Args) -> Result<Self, OpError> {
        let (strides, at) = Strides::from_args(args, 3, args.signature_index != IMPLICIT)?;
        let groups = args.i32(at)?;
        let activation = args.activation(at + 1)?;
        Self::new(args, strides, groups, activation, args.bool(at + 2)?, (1, 1))
    }

    fn new(
        args: &Args,
        strides: Strides,
        groups: i32,
        activation: Activation,
        nchw: bool,
        dilations: (i32, i32),
    ) -> Result<Self, OpError> {
        let input = ImageDims::of(&args.arg(0)?, nchw)?;
        let [out_channels, height, width, depth] = filter_dims(args, 0)?;
        let (out_channels, depth) = (out_channels as usize, depth as usize);
        let groups = usize::try_from(groups).unwrap_or(0);
        if groups == 0
            || depth.checked_mul(groups) != Some(input.channels)
            || !out_channels.is_multiple_of(groups)
        {
            return Err(OpError::failed(format!(
                "a filter from {depth} to {out_channels} channels in {groups} groups does not fit {} input channels",
                input.channels
            )));
        }
        let (height, width) = strides.windows(&input, (width, height), dilations)?;
        Ok(ConvGeometry { input, height, width, out_channels, groups, activation, nchw })
    }

    /// Whether this is a fully connected layer, its rows images of one pixel: what per-channel weights make of one, as
    /// FULLY_CONNECTED takes none. Its sums are rounded once, as TensorFlow Lite rounds those of fully connected layers
    /// and not those of convolutions; NNAPI leaves it open.
    pub fn is_fully_connected(&self) -> bool {
        let one = |window: &Window| window.kernel == 1 && window.output == 1;
        let input = &self.input;
        input.batches > 1 && (input.height, input.width) == (1, 1) && one(&self.height) && one(&self.width)
    }

    /// Dimensions of the output in the call's layout.
    pub fn output_dims(&self) -> Result<Dims, OpError> {
        let (height, width) = (self.height.output, self.width.output);
        ImageDims { height, width, channels: self.out_channels, ..self.input }.to_dims(self.nchw)
    }
}

/// A filter `[output channel, tap, input channel]` as `[group, tap, input channel, output channel of the group]`: what the
/// sums of one pixel need lies together, output channels innermost.
pub(super) fn regroup<W: Copy>(
    filter: &[W],
    out_channels: usize,
    groups: usize,
    taps: usize,
    pace: &mut Pace,
) -> Result<Scratch<W>, OpError> {
    let per_output = filter.len() / out_channels;
    let outputs = out_channels / groups;
    let depth = per_output / taps;
    let mut regrouped = reserved(filter.len())?;
    for group in filter.chunks_exact(per_output * outputs) {
        for tap_and_input in 0..taps * depth {
            let mut weights = group.iter().skip(tap_and_input).step_by(per_output);
            pace.in_stretches(outputs, 1, |part| regrouped.extend(weights.by_ref().take(part.len())))?;
        }
    }
    Ok(regrouped)
}

impl WeightedSums for ConvGeometry {
    fn out_channels(&self) -> usize {
        self.out_channels
    }

    fn activation(&self) -> Activation {
        self.activation
    }

    fn nchw(&self) -> bool {
        self.nchw
    }

    fn rounds_once(&self) -> bool {
        self.is_fully_connected()
    }

    fn sums<T: Number, W: Copy>(
        &self,
        input: &[T],
        filter: &[W],
        value: impl Fn(W) -> T + Copy,
        pace: &mut Pace,
        mut emit: impl FnMut(usize, &[T], &mut Pace) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let taps = self.height.kernel * self.width.kernel;
        let weights = regroup(filter, self.out_channels, self.groups, taps, pace)?;
        let channels = self.input.channels;
        let (inputs, outputs) = (channels / self.groups, self.out_channels / self.groups);
        let group_size = weights.len() / self.groups;
        let mut sums = filled(pace.interrupt(), T::default(), self.out_channels)?;
        slide(&self.input, &self.height, &self.width, pace, |pixel, patch, pace| {
            pace.in_stretches(sums.len(), 1, |part| sums[part].fill(T::default()))?;
            patch.for_each(|tap, cell| {
                let xs = input[cell * channels..][..channels].chunks_exact(inputs);
                let groups = sums.chunks_exact_mut(outputs).zip(weights.chunks_exact(group_size));
                for ((sums, weights), xs) in groups.zip(xs) {
                    let weights = &weights[tap * inputs * outputs..];
                    accumulate_rows(sums, xs.iter().copied(), weights, value, pace)?;
                }
                Ok(())
            })?;
            emit(pixel, &sums, pace)
        })
    }
}
