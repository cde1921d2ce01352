//! What ROI_ALIGN and ROI_POOLING share: regions of interest, checked and scaled to cells of a feature map.

use super::boxes::{ensure, ensure_eighths, ensure_ordered, fours, indices, Corners};
use super::image::Image;
use crate::ops::pace::Pace;
use crate::ops::scratch::{reserved, Scratch};
use crate::ops::{Arg, Args, OpError};
use crate::tensor::{Dims, OperandType};
use half::f16;
use smallvec::smallvec;

/// A region in cells of the feature map of one image.
pub struct Region {
    pub batch: usize,
    pub left: f32,
    pub top: f32,
    pub right: f32,
    pub bottom: f32,
}

/// Dimensions of the output of either operation, whose inputs 0 to 6 mean the same.
pub fn output_dims(args: &Args, nchw: bool) -> Result<Dims, OpError> {
    let (features, roi, batches) = (args.get(0)?, args.get(1)?, args.get(2)?);
    let depth = Image::new(features.dims(), nchw)?.depth as u32;
    let count = roi.dim(0);
    ensure(roi.dims() == [count, 4], "the regions must be a matrix of 4 columns")?;
    ensure(batches.dims() == [count], "input 2 must have a batch to each region")?;
    ensure_eighths("regions", roi.info)?;
    let (height, width) = (args.i32(3)?, args.i32(4)?);
    ensure(height > 0 && width > 0, "output height and width must be greater than 0")?;
    ensure(args.f32(5)? > 0.0 && args.f32(6)? > 0.0, "strides must be greater than 0")?;
    let (height, width) = (height as u32, width as u32);
    Ok(if nchw { smallvec![count, depth, height, width] } else { smallvec![count, height, width, depth] })
}

/// The regions of a call, all within the feature map.
pub fn read(args: &Args, features: &Image) -> Result<Scratch<Region>, OpError> {
    scaled(&args.get(1)?.reals()?, &args.arg(2)?, Scales::new(args)?, features, &mut Pace::new(args))
}

/// How corners in images become cells of the feature map.
#[derive(Clone, Copy, Debug)]
pub struct Scales {
    down: f32,
    across: f32,
    /// Corners are half floats, and the interface's reference has the scales and all products in those, too.
    half: bool,
}

impl Scales {
    /// Of a call, whose strides are elements of an image to one of the feature map.
    pub fn new(args: &Args) -> Result<Self, OpError> {
        let [down, across] = [args.f32(5)?, args.f32(6)?].map(|stride| 1.0 / stride);
        Ok(Scales { down, across, half: args.arg(1)?.ty() == OperandType::TENSOR_FLOAT16 })
    }

    /// Where a corner lies along a dimension of `size` cells; `None` where that is outside.
    fn cells(self, corner: f32, scale: f32, size: usize) -> Option<f32> {
        let (at, size) = (corner * scale, size as f32);
        // What is barely outside may be rounded to the edge.
        let rounded = |x: f32| f16::from_f32(x).to_f32();
        let inside = at <= size || (self.half && rounded(corner * rounded(scale)) <= rounded(size));
        (at >= 0.0 && inside).then(|| at.min(size))
    }
}

/// Regions with these corners in images, and these batches.
pub fn scaled(
    corners: &[f32],
    batches: &Arg,
    scales: Scales,
    features: &Image,
    pace: &mut Pace,
) -> Result<Scratch<Region>, OpError> {
    let batches = indices(batches, features.batches, pace)?;
    let scale = |corners: &Corners, batch: usize| {
        ensure_ordered(corners)?;
        let &[x1, y1, x2, y2] = corners;
        let across = |x| scales.cells(x, scales.across, features.width);
        let down = |y| scales.cells(y, scales.down, features.height);
        match (across(x1), down(y1), across(x2), down(y2)) {
            (Some(left), Some(top), Some(right), Some(bottom)) => {
                Ok(Region { batch, left, top, right, bottom })
            }
            _ => Err(OpError::failed(format!("region {corners:?} is not within the feature map"))),
        }
    };
    let mut regions = reserved(batches.len())?;
    for (corners, &batch) in fours(corners).iter().zip(&*batches) {
        pace.spend(16)?;
        regions.push(scale(corners, batch)?);
    }
    Ok(regions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{i32s, Tensor};
    use crate::ops::NeverInterrupted;

    #[test]
    fn half_floats_may_be_at_the_edge_by_their_own_count() {
        let map = Image::new(&[1, 4, 10, 1], false).unwrap();
        let Tensor { info, data } = i32s(&[1], &[0]);
        let batches = Arg { info: &info, data: Some(&data) };
        let args = Args { signature_index: 0, inputs: &[], outputs: &[], interrupt: &NeverInterrupted };
        let right = |x: f32, half: bool| {
            let scales = Scales { down: 1.0, across: 1.0 / 3.0, half };
            let regions = scaled(&[0.0, 0.0, x, 1.0], &batches, scales, &map, &mut Pace::new(&args));
            regions.map(|regions| regions[0].right).ok()
        };
        // A third is 0.33325 there, and 10.0028 is 10, as the next number is 10.0078.
        assert_eq!((right(30.015_625, true), right(30.015_625, false)), (Some(10.0), None));
        assert_eq!(right(30.0625, true), None);
        assert_eq!(right(29.5, true), right(29.5, false));
    }
}
