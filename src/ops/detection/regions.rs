//! What ROI_ALIGN and ROI_POOLING share: regions of interest, checked and scaled to cells of a feature map.

use super::boxes::{ensure, ensure_eighths, ensure_ordered, fours, indices, Corners};
use super::image::Image;
use crate::ops::pace::Pace;
use crate::ops::scratch::{reserved, Scratch};
use crate::ops::{Arg, Args, OpError};
use crate::tensor::Dims;
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
    scaled(&args.get(1)?.reals()?, &args.arg(2)?, strides(args)?, features, &mut Pace::new(args))
}

/// Elements of an image to one of the feature map, down and across.
pub fn strides(args: &Args) -> Result<[f32; 2], OpError> {
    Ok([args.f32(5)?, args.f32(6)?])
}

/// Regions with these corners in images, and these batches.
pub fn scaled(
    corners: &[f32],
    batches: &Arg,
    strides: [f32; 2],
    features: &Image,
    pace: &mut Pace,
) -> Result<Scratch<Region>, OpError> {
    let batches = indices(batches, features.batches, pace)?;
    let [y_scale, x_scale] = strides.map(|stride| 1.0 / stride);
    let scale = |corners: &Corners, batch: usize| {
        ensure_ordered(corners)?;
        let &[x1, y1, x2, y2] = corners;
        let (left, top, right, bottom) = (x1 * x_scale, y1 * y_scale, x2 * x_scale, y2 * y_scale);
        let inside =
            left >= 0.0 && top >= 0.0 && right <= features.width as f32 && bottom <= features.height as f32;
        ensure(inside, &format!("region {corners:?} is not within the feature map"))?;
        Ok(Region { batch, left, top, right, bottom })
    };
    let mut regions = reserved(batches.len())?;
    for (corners, &batch) in fours(corners).iter().zip(&*batches) {
        pace.spend(16)?;
        regions.push(scale(corners, batch)?);
    }
    Ok(regions)
}
