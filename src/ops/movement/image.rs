//! Images as NNAPI lays them out, NHWC or NCHW, so that operations on them name their axes once.

use super::walk::steps;
use crate::ops::image::{named, ordered};
use crate::ops::OpError;
use crate::tensor::Dims;

/// A value for each axis of a batch of images: sizes, or steps.
#[derive(Clone, Copy, Debug)]
pub struct Image<T> {
    pub n: T,
    pub h: T,
    pub w: T,
    pub c: T,
}

impl Image<u32> {
    /// Sizes from a tensor's dimensions.
    pub fn of(dims: &[u32], nchw: bool) -> Result<Self, OpError> {
        let dims =
            dims.try_into().map_err(|_| OpError::failed(format!("rank {}, expected 4", dims.len())))?;
        let [n, h, w, c] = named(dims, nchw);
        Ok(Image { n, h, w, c })
    }

    /// Dimensions of a tensor of these sizes.
    pub fn dims(self, nchw: bool) -> Dims {
        ordered([self.n, self.h, self.w, self.c], nchw).into()
    }

    /// Steps along each axis in a tensor of these sizes.
    pub fn steps(self, nchw: bool) -> Image<i64> {
        let steps = steps(&self.dims(nchw));
        let [n, h, w, c] = named([0, 1, 2, 3].map(|axis| steps[axis]), nchw);
        Image { n, h, w, c }
    }
}
