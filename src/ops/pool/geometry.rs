//! What a call of a pool asks for, and the plain loop over it.

use super::IMPLICIT;
use crate::ops::image::{slide, ImageDims, Strides, Window};
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::{Args, OpError, Shapes};
use crate::tensor::requant::Activation;
use crate::tensor::Dims;

/// A pool. Every window holds at least one cell of input; padding takes no part in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolGeometry {
    /// Of the input.
    pub input: ImageDims,
    /// Dilations are 1.
    pub height: Window,
    pub width: Window,
    pub activation: Activation,
    /// Input and output have their channels first.
    pub nchw: bool,
}

impl PoolGeometry {
    pub fn from_args(args: &Args) -> Result<Self, OpError> {
        let (strides, at) = Strides::from_args(args, 1, args.form != IMPLICIT)?;
        let kernel = |i| Ok::<_, OpError>(u32::try_from(args.i32(i)?).unwrap_or(0));
        let (kernel_width, kernel_height) = (kernel(at)?, kernel(at + 1)?);
        let activation = args.activation(at + 2)?;
        let nchw = args.bool_or(at + 3, false)?;
        let input = ImageDims::of(&args.get(0)?, nchw)?;
        let height =
            Window::new("height", input.height, kernel_height, strides.stride_height, 1, strides.vertical)?;
        let width =
            Window::new("width", input.width, kernel_width, strides.stride_width, 1, strides.horizontal)?;
        Ok(PoolGeometry { input, height, width, activation, nchw })
    }

    /// Dimensions of the output in the call's layout.
    pub fn output_dims(&self) -> Result<Dims, OpError> {
        ImageDims { height: self.height.output, width: self.width.output, ..self.input }.to_dims(self.nchw)
    }

    /// Folds every window, channel by channel, from `start` on, and calls `emit(pixel, folded, cells)` with the results of
    /// all channels of an output pixel and the number of cells that went into each. `input` has its channels last.
    pub(super) fn reduce<T: Copy, A: Copy>(
        &self,
        input: &[T],
        pace: &mut Pace,
        start: A,
        fold: impl Fn(A, T) -> A,
        mut emit: impl FnMut(usize, &[A], usize) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let channels = self.input.channels;
        let mut folded = filled(start, channels)?;
        slide(&self.input, &self.height, &self.width, |pixel, patch| {
            folded.fill(start);
            patch.for_each(|_, cell| {
                pace.spend(channels)?;
                let xs = &input[cell * channels..][..channels];
                folded.iter_mut().zip(xs).for_each(|(folded, &x)| *folded = fold(*folded, x));
                Ok(())
            })?;
            emit(pixel, &folded, patch.cells())
        })
    }
}

pub(super) fn shapes(args: &Args) -> Shapes {
    Ok(vec![PoolGeometry::from_args(args)?.output_dims()?])
}
