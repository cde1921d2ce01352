//! RESIZE_BILINEAR: every output pixel is a blend of the four input pixels around its place.

use super::geometry::{shapes, ResizeGeometry};
use super::{INPUTS, OUTPUTS};
use crate::ops::image::{channels_last, Pixels};
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::signature::Row;
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Signature};
use crate::tensor::OperandType::*;

pub static RESIZE_BILINEAR: Operation = Operation {
    ty: OperationType::RESIZE_BILINEAR,
    doc: "every output pixel is a blend of the four input pixels around its place",
    signatures: &[Signature::new(
        &[
            Row(1, &[TENSOR_FLOAT32, INT32]),
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
    .input_counts(&[3, 4, 5, 6])],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

/// The two input cells around a place, and how much of the upper one is blended in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blend {
    pub lower: usize,
    pub upper: usize,
    /// Below 0 only where both cells are the same.
    pub fraction: f32,
}

impl ResizeGeometry {
    /// What output `output` is blended of, along a dimension of `input` cells with `scale` of them per output.
    pub fn blend(&self, output: usize, input: usize, scale: f32) -> Blend {
        let place =
            if self.half_pixel_centers { (output as f32 + 0.5) * scale - 0.5 } else { output as f32 * scale };
        let last = input - 1;
        let lower = (place.floor().max(0.0) as usize).min(last);
        let upper = (place.ceil().max(0.0) as usize).min(last);
        Blend { lower, upper, fraction: place - lower as f32 }
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
        return blend(
            &resize,
            &values,
            |x| x,
            &mut pace,
            |pixel, blended, pace| pixels.put_floats(pixel, blended, pace),
        );
    }
    // Input and output have the same scale and zero point, so elements are blended as they are.
    let values = channels_last(&input, input.integers()?, resize.nchw, &mut pace)?;
    let mut rounded = filled(args.interrupt, 0, resize.input.channels)?;
    let mut pixels = Pixels::image(out, resize.nchw);
    blend(
        &resize,
        &values,
        |q| q as f32,
        &mut pace,
        |pixel, blended, pace| {
            pace.in_stretches(blended.len(), 1, |part| {
                for (to, &x) in rounded[part.clone()].iter_mut().zip(&blended[part]) {
                    *to = x.round() as i32; // halves away from zero in stored units, as in TensorFlow Lite's reference
                }
            })?;
            pixels.put_integers(pixel, &rounded, pace)
        },
    )
}

/// Calls `emit(pixel, blended, pace)` with the blended channels of every output pixel.
fn blend<T: Copy>(
    resize: &ResizeGeometry,
    values: &[T],
    as_float: impl Fn(T) -> f32,
    pace: &mut Pace,
    mut emit: impl FnMut(usize, &[f32], &mut Pace) -> Result<(), OpError>,
) -> Result<(), OpError> {
    let dims = resize.input;
    let scale_y = resize.scale(dims.height, resize.out_height);
    let scale_x = resize.scale(dims.width, resize.out_width);
    let mut blended = filled(pace.interrupt(), 0.0, dims.channels)?;
    resize.for_each_pixel(pace, |pixel, image, row, column, pace| {
        let y = resize.blend(row, dims.height, scale_y);
        let x = resize.blend(column, dims.width, scale_x);
        let at = |row: usize, column: usize| {
            let cell = (image * dims.height + row) * dims.width + column;
            &values[cell * dims.channels..][..dims.channels]
        };
        let corners =
            [at(y.lower, x.lower), at(y.upper, x.lower), at(y.lower, x.upper), at(y.upper, x.upper)];
        let weights = [
            (1.0 - y.fraction) * (1.0 - x.fraction),
            y.fraction * (1.0 - x.fraction),
            (1.0 - y.fraction) * x.fraction,
            y.fraction * x.fraction,
        ];
        pace.in_stretches(dims.channels, 4, |part| {
            for c in part {
                blended[c] = (0..4).map(|corner| as_float(corners[corner][c]) * weights[corner]).sum();
            }
        })?;
        emit(pixel, &blended, pace)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call_simple, f32s, float, int, tensor, Tensor};
    use crate::tensor::TensorInfo;

    fn resized(width: Tensor, height: Tensor, flags: &[bool]) -> Result<(Vec<u32>, Vec<f32>), OpError> {
        let mut inputs = vec![f32s(&[1, 1, 2, 1], &[0.0, 4.0]), width, height];
        inputs.extend(flags.iter().map(|&flag| boolean(flag)));
        call_simple(&RESIZE_BILINEAR, &inputs)
    }

    #[test]
    fn three_ways_to_place_pixels() {
        let to_4 = |flags: &[bool]| resized(int(4), int(1), flags).map(|(_, values)| values);
        assert_eq!(to_4(&[]), Ok(vec![0.0, 2.0, 4.0, 4.0]));
        assert_eq!(to_4(&[false, false, true]), Ok(vec![0.0, 1.0, 3.0, 4.0]));
        let aligned = to_4(&[false, true]).unwrap();
        assert!(aligned.iter().zip([0.0, 4.0 / 3.0, 8.0 / 3.0, 4.0]).all(|(a, b)| (a - b).abs() < 1e-6));
        assert!(to_4(&[false, true, true]).is_err());
    }

    #[test]
    fn factors_are_rounded_down_and_width_comes_first() {
        let (dims, _) = resized(float(1.9), float(2.5), &[]).unwrap();
        assert_eq!(dims, [1, 2, 3, 1]);
        for factor in [0.0, 0.4, -1.0, f32::NAN, f32::INFINITY, 1e30] {
            assert!(resized(float(factor), float(1.0), &[]).is_err(), "{factor}");
        }
        for size in [0, -1, i32::MIN] {
            assert!(resized(int(1), int(size), &[]).is_err(), "{size}");
        }
    }

    #[test]
    fn quantised_halves_round_away_from_zero() {
        let info = |ty, zero| TensorInfo::quantised(ty, &[1, 2, 1, 1], 1.0, zero);
        let unsigned = tensor(info(TENSOR_QUANT8_ASYMM, 0), &[126u8, 127]);
        let out = call_simple::<u8>(&RESIZE_BILINEAR, &[unsigned, int(1), int(4)]);
        assert_eq!(out, Ok((vec![1, 4, 1, 1], vec![126, 127, 127, 127])));
        let signed = tensor(info(TENSOR_QUANT8_ASYMM_SIGNED, -128), &[-2i8, -1]);
        let out = call_simple::<i8>(&RESIZE_BILINEAR, &[signed, int(1), int(4)]);
        assert_eq!(out, Ok((vec![1, 4, 1, 1], vec![-2, -2, -1, -1])));
    }
}
