//! What a call of a resize asks for.

use crate::ops::image::ImageDims;
use crate::ops::pace::{steps_to_touch, Pace};
use crate::ops::{keeps_quantisation, Args, OpError, Shapes};
use crate::tensor::{Dims, OperandType};

/// A resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeGeometry {
    /// Of the input.
    pub input: ImageDims,
    /// At least 1.
    pub out_height: usize,
    /// At least 1.
    pub out_width: usize,
    /// Input and output have their channels first.
    pub nchw: bool,
    /// Centres of the corner pixels are made to coincide.
    pub align_corners: bool,
    /// Pixels are sampled at their centres; never with `align_corners`.
    pub half_pixel_centers: bool,
}

/// Lines that an output pixel is made from, at the most.
pub const LINES: usize = 2;

impl ResizeGeometry {
    pub fn from_args(args: &Args) -> Result<Self, OpError> {
        let nchw = args.bool_or(3, false)?;
        let align_corners = args.bool_or(4, false)?;
        let half_pixel_centers = args.bool_or(5, false)?;
        if align_corners && half_pixel_centers {
            return Err(OpError::failed("align corners and half pixel centers exclude each other"));
        }
        let input = ImageDims::of(&args.arg(0)?, nchw)?;
        let out_width = out_size(args, 1, input.width)?;
        let out_height = out_size(args, 2, input.height)?;
        Ok(ResizeGeometry { input, out_height, out_width, nchw, align_corners, half_pixel_centers })
    }

    /// Dimensions of the output in the call's layout.
    pub fn output_dims(&self) -> Result<Dims, OpError> {
        ImageDims { height: self.out_height, width: self.out_width, ..self.input }.to_dims(self.nchw)
    }

    /// Input cells per output cell along a dimension of `input` cells resized to `output`.
    pub fn scale(&self, input: usize, output: usize) -> f32 {
        if self.align_corners && output > 1 {
            (input - 1) as f32 / (output - 1) as f32
        } else {
            input as f32 / output as f32
        }
    }

    /// Calls `visit(pixel, image, row, column, pace)` for every output pixel in order.
    pub(super) fn for_each_pixel(
        &self,
        pace: &mut Pace,
        mut visit: impl FnMut(usize, usize, usize, usize, &mut Pace) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let pixels = self.input.batches.saturating_mul(self.out_height).saturating_mul(self.out_width);
        let to_touch = steps_to_touch(self.input.elements(), pixels, LINES);
        let mut pixel = 0;
        for image in 0..self.input.batches {
            for row in 0..self.out_height {
                for column in 0..self.out_width {
                    pace.spend(to_touch)?;
                    visit(pixel, image, row, column, pace)?;
                    pixel += 1;
                }
            }
        }
        Ok(())
    }
}

/// The output's size in input `i` along a dimension of `input` cells.
fn out_size(args: &Args, i: usize, input: usize) -> Result<usize, OpError> {
    let size = match args.get(i)?.ty() {
        OperandType::INT32 => i64::from(args.i32(i)?),
        // A cast saturates and makes 0 of a NaN.
        _ => (input as f32 * args.f32(i)?).floor() as i64,
    };
    if (1..=i64::from(i32::MAX)).contains(&size) {
        return Ok(size as usize);
    }
    Err(OpError::failed(format!("input {i} makes an output of {size} cells")))
}

pub(super) fn shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    Ok(vec![ResizeGeometry::from_args(args)?.output_dims()?])
}
