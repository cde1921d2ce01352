//! Where the elements of an image tensor lie, in either layout.

use crate::ops::image::named;
use crate::ops::OpError;

/// A four-dimensional tensor of real dimensions, NHWC or NCHW.
pub struct Image {
    pub batches: usize,
    pub height: usize,
    pub width: usize,
    pub depth: usize,
    nchw: bool,
}

impl Image {
    /// `dims` are those of a tensor that exists, so that its element count does not overflow.
    pub fn new(dims: &[u32], nchw: bool) -> Result<Self, OpError> {
        let dims: [u32; 4] = dims
            .try_into()
            .map_err(|_| OpError::failed(format!("a tensor of rank {} where an image has 4", dims.len())))?;
        let [batches, height, width, depth] = named(dims.map(|dim| dim as usize), nchw);
        Ok(Image { batches, height, width, depth, nchw })
    }

    pub fn channels_come_first(&self) -> bool {
        self.nchw
    }

    /// Index of an element that is inside the image.
    pub fn at(&self, batch: usize, y: usize, x: usize, channel: usize) -> usize {
        if self.nchw {
            ((batch * self.depth + channel) * self.height + y) * self.width + x
        } else {
            ((batch * self.height + y) * self.width + x) * self.depth + channel
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_layouts_number_all_elements() {
        for nchw in [false, true] {
            let image = Image::new(&[2, 3, 4, 5], nchw).unwrap();
            assert_eq!((image.depth, image.height), if nchw { (3, 4) } else { (5, 3) });
            assert_eq!(image.at(1, image.height - 1, image.width - 1, image.depth - 1), 2 * 3 * 4 * 5 - 1);
            assert_eq!(image.at(0, 0, 1, 0), if nchw { 1 } else { 5 });
        }
        assert!(Image::new(&[1, 2, 3], false).is_err());
    }
}
