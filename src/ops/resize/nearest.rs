//! RESIZE_NEAREST_NEIGHBOR: every output pixel is the input pixel nearest to its place.

use super::geometry::{shapes, ResizeGeometry};
use super::{INPUTS, OUTPUTS};
use crate::ops::image::{channels_last, Pixels};
use crate::ops::pace::Pace;
use crate::ops::signature::Row;
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Signature};
use crate::tensor::OperandType::*;

pub static RESIZE_NEAREST_NEIGHBOR: Operation = Operation {
    ty: OperationType::RESIZE_NEAREST_NEIGHBOR,
    doc: "every output pixel is the input pixel nearest to its place",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT32, INT32]),
            Row(3, &[TENSOR_FLOAT32, FLOAT32]),
            Row(3, &[TENSOR_FLOAT16, INT32]),
            Row(3, &[TENSOR_FLOAT16, FLOAT16]),
            Row(3, &[TENSOR_QUANT8_ASYMM, INT32]),
            Row(3, &[TENSOR_QUANT8_ASYMM, FLOAT32]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED, INT32]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED, FLOAT32]),
        ],
        INPUTS,
        OUTPUTS,
    )
    .input_counts(&[4, 5, 6])],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

impl ResizeGeometry {
    /// The input cell for output `output`, along a dimension of `input` cells with `scale` of them per output.
    pub fn nearest(&self, output: usize, input: usize, scale: f32) -> usize {
        let place = (output as f32 + if self.half_pixel_centers { 0.5 } else { 0.0 }) * scale;
        let nearest = if self.align_corners { place.round() } else { place.floor() };
        (nearest as usize).min(input - 1)
    }
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let resize = ResizeGeometry::from_args(args)?;
    let input = args.get(0)?;
    let out = &mut outs[0];
    if out.data.is_empty() {
        return Ok(());
    }
    let mut pace = Pace::new(args);
    if input.ty().is_float() {
        let values = channels_last(&input, input.floats()?, resize.nchw, &mut pace)?;
        let mut pixels = Pixels::image(out, resize.nchw);
        choose(&resize, &values, &mut pace, |pixel, chosen, pace| pixels.put_floats(pixel, chosen, pace))
    } else {
        let values = channels_last(&input, input.integers()?, resize.nchw, &mut pace)?;
        let mut pixels = Pixels::image(out, resize.nchw);
        choose(&resize, &values, &mut pace, |pixel, chosen, pace| pixels.put_integers(pixel, chosen, pace))
    }
}

/// Calls `emit(pixel, channels, pace)` with the channels of the input pixel chosen for every output pixel.
fn choose<T: Copy>(
    resize: &ResizeGeometry,
    values: &[T],
    pace: &mut Pace,
    mut emit: impl FnMut(usize, &[T], &mut Pace) -> Result<(), OpError>,
) -> Result<(), OpError> {
    let dims = resize.input;
    let scale_y = resize.scale(dims.height, resize.out_height);
    let scale_x = resize.scale(dims.width, resize.out_width);
    resize.for_each_pixel(pace, |pixel, image, row, column, pace| {
        let y = resize.nearest(row, dims.height, scale_y);
        let x = resize.nearest(column, dims.width, scale_x);
        let cell = (image * dims.height + y) * dims.width + x;
        emit(pixel, &values[cell * dims.channels..][..dims.channels], pace)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call_simple, f32s, int};

    fn widened(width: i32, align_corners: bool, half_pixel: bool) -> Result<(Vec<u32>, Vec<f32>), OpError> {
        let image = f32s(&[1, 2, 1, 2], &[1.0, 2.0, 10.0, 20.0]);
        let flags = [true, align_corners, half_pixel].map(boolean);
        let mut inputs = vec![image, int(width), int(1)];
        inputs.extend(flags);
        call_simple(&RESIZE_NEAREST_NEIGHBOR, &inputs)
    }

    #[test]
    fn rounding_depends_on_the_placement() {
        let both = |[a, b, c]: [f32; 3]| Ok((vec![1, 2, 1, 3], vec![a, b, c, a * 10.0, b * 10.0, c * 10.0]));
        assert_eq!(widened(3, false, false), both([1.0, 1.0, 2.0]));
        assert_eq!(widened(3, true, false), both([1.0, 2.0, 2.0]));
        assert_eq!(widened(3, false, true), both([1.0, 2.0, 2.0]));
        assert!(widened(3, true, true).is_err());
    }
}
