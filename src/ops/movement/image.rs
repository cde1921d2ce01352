//! Images as NNAPI lays them out, NHWC or NCHW, so that operations on them name their axes once.

use super::walk::steps;
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
        match *dims {
            [n, c, h, w] if nchw => Ok(Image { n, h, w, c }),
            [n, h, w, c] => Ok(Image { n, h, w, c }),
            _ => Err(OpError::failed(format!("rank {}, expected 4", dims.len()))),
        }
    }

    /// Dimensions of a tensor of these sizes.
    pub fn dims(self, nchw: bool) -> Dims {
        let Image { n, h, w, c } = self;
        if nchw {
            vec![n, c, h, w]
        } else {
            vec![n, h, w, c]
        }
    }

    /// Steps along each axis in a tensor of these sizes.
    pub fn steps(self, nchw: bool) -> Image<i64> {
        let steps = steps(&self.dims(nchw));
        if nchw {
            Image { n: steps[0], c: steps[1], h: steps[2], w: steps[3] }
        } else {
            Image { n: steps[0], h: steps[1], w: steps[2], c: steps[3] }
        }
    }
}
