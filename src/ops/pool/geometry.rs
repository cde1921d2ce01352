//! What a call of a pool asks for, and the plain loops over it.

use super::IMPLICIT;
use crate::ops::image::{channels_last, slide, ImageDims, Pixels, Strides, Window};
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::{keeps_quantisation, Args, OpError, Out, Shapes};
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
        let (strides, at) = Strides::from_args(args, 1, args.signature_index != IMPLICIT)?;
        let kernel = |i| Ok::<_, OpError>(u32::try_from(args.i32(i)?).unwrap_or(0));
        let kernel = (kernel(at)?, kernel(at + 1)?);
        let activation = args.activation(at + 2)?;
        let nchw = args.bool_or(at + 3, false)?;
        let input = ImageDims::of(&args.arg(0)?, nchw)?;
        let (height, width) = strides.windows(&input, kernel, (1, 1))?;
        Ok(PoolGeometry { input, height, width, activation, nchw })
    }

    /// Dimensions of the output in the call's layout.
    pub fn output_dims(&self) -> Result<Dims, OpError> {
        ImageDims { height: self.height.output, width: self.width.output, ..self.input }.to_dims(self.nchw)
    }

    /// Folds every window, channel by channel, from `start` on, and calls `emit(pixel, folded, cells, pace)` with the results of
    /// all channels of an output pixel and the number of cells that went into each. `input` has its channels last.
    fn reduce<T: Copy, A: Copy>(
        &self,
        input: &[T],
        pace: &mut Pace,
        start: A,
        fold: impl Fn(A, T) -> A,
        mut emit: impl FnMut(usize, &[A], usize, &mut Pace) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let channels = self.input.channels;
        let mut folded = filled(pace.interrupt(), start, channels)?;
        slide(&self.input, &self.height, &self.width, pace, |pixel, patch, pace| {
            pace.in_stretches(channels, 1, |part| folded[part].fill(start))?;
            patch.for_each(|_, cell| {
                let xs = &input[cell * channels..][..channels];
                pace.in_stretches(channels, 1, |part| {
                    let xs = &xs[part.clone()];
                    folded[part].iter_mut().zip(xs).for_each(|(folded, &x)| *folded = fold(*folded, x));
                })
            })?;
            emit(pixel, &folded, patch.cells(), pace)
        })
    }
}

pub(super) fn shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    Ok(vec![PoolGeometry::from_args(args)?.output_dims()?])
}

/// Evaluates a pool of floats: folds each window from `start` on, and finishes with the number of cells in it.
pub(super) fn pool_floats(
    args: &Args,
    out: &mut Out,
    start: f32,
    fold: impl Fn(f32, f32) -> f32,
    finish: impl Fn(f32, usize) -> f32,
) -> Result<(), OpError> {
    if out.data.is_empty() {
        return Ok(());
    }
    let (pool, input, mut pace) = (PoolGeometry::from_args(args)?, args.get(0)?, Pace::new(args));
    let values = channels_last(&input, input.floats()?, pool.nchw, &mut pace)?;
    let mut finished = filled(args.interrupt, 0.0, pool.input.channels)?;
    let mut pixels = Pixels::image(out, pool.nchw);
    pool.reduce(&values, &mut pace, start, fold, |pixel, folded, cells, pace| {
        pace.in_stretches(folded.len(), 1, |part| {
            for (to, &folded) in finished[part.clone()].iter_mut().zip(&folded[part]) {
                *to = pool.activation.apply(finish(folded, cells));
            }
        })?;
        pixels.put_floats(pixel, &finished, pace)
    })
}

/// The same of quantised values, which keep their scale and zero point.
pub(super) fn pool_integers<A: Copy>(
    args: &Args,
    out: &mut Out,
    start: A,
    fold: impl Fn(A, i32) -> A,
    finish: impl Fn(A, usize) -> i32,
) -> Result<(), OpError> {
    if out.data.is_empty() {
        return Ok(());
    }
    let (pool, input, mut pace) = (PoolGeometry::from_args(args)?, args.get(0)?, Pace::new(args));
    let values = channels_last(&input, input.integers()?, pool.nchw, &mut pace)?;
    let mut finished = filled(args.interrupt, 0, pool.input.channels)?;
    let (lo, hi) = pool.activation.quantised_range(out.info.ty, out.info.scale, out.info.zero_point);
    let mut pixels = Pixels::image(out, pool.nchw);
    pool.reduce(&values, &mut pace, start, fold, |pixel, folded, cells, pace| {
        pace.in_stretches(folded.len(), 1, |part| {
            for (to, &folded) in finished[part.clone()].iter_mut().zip(&folded[part]) {
                // Not `clamp`, which panics where hostile scales turn the bounds around.
                *to = finish(folded, cells).max(lo).min(hi);
            }
        })?;
        pixels.put_integers(pixel, &finished, pace)
    })
}
