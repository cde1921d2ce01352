//! A tensor seen as lanes along one axis: what every normalisation walks over.

use crate::ops::{axis_index, OpError};
use crate::tensor::element_count;

/// The lanes of a tensor along an axis.
pub struct Lanes {
    /// Groups of lanes that lie side by side.
    pub outer: usize,
    /// Elements of a lane.
    pub len: usize,
    /// Distance between neighbours in a lane.
    pub stride: usize,
}

impl Lanes {
    /// Lanes of a tensor of real dimensions `dims` along `axis`, negative axes counted from the end.
    pub fn new(dims: &[u32], axis: i32) -> Result<Self, OpError> {
        let axis = axis_index(axis, dims.len())?;
        let count = |dims: &[u32]| element_count(dims).ok_or_else(|| OpError::failed("tensor too large"));
        if count(dims)? == 0 {
            return Ok(Lanes { outer: 0, len: 0, stride: 0 });
        }
        Ok(Lanes {
            outer: count(&dims[..axis])?,
            len: count(&dims[axis..=axis])?,
            stride: count(&dims[axis + 1..])?,
        })
    }

    /// The index of each lane's first element; an empty tensor has no lanes.
    pub fn starts(&self) -> impl Iterator<Item = usize> {
        let (len, stride) = (self.len, self.stride);
        (0..self.outer).flat_map(move |outer| (0..stride).map(move |inner| outer * len * stride + inner))
    }

    /// Indices of the elements of the lane that starts at `start`.
    pub fn indices(&self, start: usize) -> impl Iterator<Item = usize> + Clone {
        let stride = self.stride;
        (0..self.len).map(move |i| start + i * stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_the_middle_axis() {
        let lanes = Lanes::new(&[2, 3, 2], -2).unwrap();
        let seen: Vec<Vec<usize>> = lanes.starts().map(|start| lanes.indices(start).collect()).collect();
        assert_eq!(seen, [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]);
        assert_eq!(Lanes::new(&[2, 0, u32::MAX, u32::MAX], 2).unwrap().starts().count(), 0);
        assert!(Lanes::new(&[2, 3], 2).is_err());
    }
}
