//! Images as plain bytes: how large the pixels of a format are, and where rows lie that padding may part.
//!
//! The plain bytes of an image are its pixels, row by row, without what lies between rows. It knows formats whose pixels are
//! whole bytes side by side in one plane. Planar YUV is none of them: its planes differ in size, and no document says in
//! which order one operand has them.

use crate::aidl::PixelFormat;
use std::ops::Range;

/// Bytes of a pixel, as android/hardware_buffer.h has them, and vndk/hardware_buffer.h for BGRA.
pub(super) fn bytes_per_pixel(format: PixelFormat) -> Option<usize> {
    match format {
        PixelFormat::BLOB | PixelFormat::R_8 => Some(1),
        PixelFormat::RGB_565 | PixelFormat::R_16_UINT => Some(2),
        PixelFormat::RGB_888 => Some(3),
        PixelFormat::RGBA_8888
        | PixelFormat::RGBX_8888
        | PixelFormat::BGRA_8888
        | PixelFormat::RGBA_1010102
        | PixelFormat::RG_1616_UINT => Some(4),
        PixelFormat::RGBA_FP16 | PixelFormat::RGBA_10101010 => Some(8),
        _ => None,
    }
}

/// Where the rows of an image lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    /// Bytes of a row's pixels.
    len: usize,
    /// Bytes from the start of a row to that of the next.
    stride: usize,
}

impl Rows {
    /// So many bytes without padding.
    pub fn plain(len: usize) -> Self {
        Rows { len, stride: len }
    }

    /// `count` rows of `len` bytes, and how many bytes they span. `None` if they overlap, or no memory is so large.
    pub fn new(count: usize, len: usize, stride: usize) -> Option<(Self, usize)> {
        let before_last = count.checked_sub(1)?.checked_mul(stride)?;
        let span =
            before_last.checked_add(len).filter(|&span| stride >= len && span <= isize::MAX as usize)?;
        // Rows without anything between them are as good as one row.
        let rows = if stride == len || count == 1 { Rows::plain(span) } else { Rows { len, stride } };
        Some((rows, span))
    }

    /// Whether the plain bytes lie in memory as they are.
    pub fn are_plain(self) -> bool {
        self.len == self.stride
    }

    /// The `len` plain bytes from `offset` on, in runs that lie together in memory: where a run starts there, and which of the
    /// plain bytes it is.
    pub fn runs(self, offset: usize, len: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            (done < len).then(|| {
                let (row, column) = ((offset + done) / self.len, (offset + done) % self.len);
                let part = done..done + (self.len - column).min(len - done);
                done = part.end;
                (row * self.stride + column, part)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(rows: Rows, offset: usize, len: usize) -> Vec<(usize, Range<usize>)> {
        rows.runs(offset, len).collect()
    }

    #[test]
    fn bytes_of_padded_rows_are_found_one_by_one() {
        let (rows, span) = Rows::new(3, 4, 10).unwrap();
        assert!(!rows.are_plain());
        assert_eq!(span, 24);
        for at in 0..12 {
            let expected = (at / 4) * 10 + at % 4;
            assert_eq!(runs(rows, at, 1), [(expected, 0..1)]);
        }
        assert_eq!(runs(rows, 0, 12), [(0, 0..4), (10, 4..8), (20, 8..12)]);
        assert_eq!(runs(rows, 3, 6), [(3, 0..1), (10, 1..5), (20, 5..6)]);
        assert_eq!(runs(rows, 12, 0), []);
    }

    #[test]
    fn rows_without_padding_are_one() {
        for (count, stride) in [(3, 4), (1, 4), (1, 100)] {
            let (rows, span) = Rows::new(count, 4, stride).unwrap();
            assert!(rows.are_plain());
            assert_eq!((span, runs(rows, 1, 3)), (4 * count, vec![(1, 0..3)]));
        }
        assert_eq!(runs(Rows::plain(0), 0, 0), []);
    }

    #[test]
    fn rows_that_overlap_or_fit_no_memory_are_none() {
        for (count, len, stride) in [
            (2, 4, 3),
            (1, 4, 0),
            (0, 4, 4),
            (usize::MAX, 4, 8),
            (3, 4, usize::MAX),
            (2, 1, isize::MAX as usize),
        ] {
            assert!(Rows::new(count, len, stride).is_none(), "{count} rows of {len} in {stride}");
        }
    }
}
