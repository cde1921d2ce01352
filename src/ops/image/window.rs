//! Sliding windows: strides, paddings and dilations checked once, and the walk over the cells they cover.

use super::ImageDims;
use crate::ops::pace::{steps_to_touch, Pace};
use crate::ops::signature::{int, Slot};
use crate::ops::{Args, OpError};
use std::ops::Range;

/// Cells added around a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// As many as make the output `ceil(input / stride)` long, the odd one after.
    Same,
    None,
    /// Before and after.
    Explicit(i32, i32),
}

impl Padding {
    /// The padding of an implicit scheme's code, PaddingScheme of the interface.
    pub fn from_code(code: i32) -> Result<Self, OpError> {
        match code {
            1 => Ok(Padding::Same),
            2 => Ok(Padding::None),
            _ => Err(OpError::failed(format!("{code} is not a padding scheme (1 is SAME, 2 is VALID)"))),
        }
    }
}

/// The inputs of a call with a padding scheme that [`Strides`] are read from.
pub const IMPLICIT_STRIDES: [Slot; 3] = [int("padding scheme"), int("stride width"), int("stride height")];

/// Those of a call with explicit paddings.
pub const EXPLICIT_STRIDES: [Slot; 6] = [
    int("padding left"),
    int("padding right"),
    int("padding top"),
    int("padding bottom"),
    int("stride width"),
    int("stride height"),
];

/// Paddings and strides of a call, as its inputs list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    pub horizontal: Padding,
    pub vertical: Padding,
    pub stride_width: i32,
    pub stride_height: i32,
}

impl Strides {
    /// Reads inputs from `at` on, [`EXPLICIT_STRIDES`] or [`IMPLICIT_STRIDES`]. Gives also the index of the input after
    /// them.
    pub fn from_args(args: &Args, at: usize, explicit: bool) -> Result<(Self, usize), OpError> {
        let (horizontal, vertical, next) = if explicit {
            (
                Padding::Explicit(args.i32(at)?, args.i32(at + 1)?),
                Padding::Explicit(args.i32(at + 2)?, args.i32(at + 3)?),
                at + 4,
            )
        } else {
            let scheme = Padding::from_code(args.i32(at)?)?;
            (scheme, scheme, at + 1)
        };
        let strides = Strides {
            horizontal,
            vertical,
            stride_width: args.i32(next)?,
            stride_height: args.i32(next + 1)?,
        };
        Ok((strides, next + 2))
    }

    /// The windows over height and width of `input`; `kernel` and `dilation` are width and height, as in all calls.
    pub fn windows(
        &self,
        input: &ImageDims,
        kernel: (u32, u32),
        dilation: (i32, i32),
    ) -> Result<(Window, Window), OpError> {
        let Strides { horizontal, vertical, stride_width, stride_height } = *self;
        let height = Window::new("height", input.height, kernel.1, stride_height, dilation.1, vertical)?;
        let width = Window::new("width", input.width, kernel.0, stride_width, dilation.0, horizontal)?;
        // Taps are counted. A machine of 32 bits counts no further than that, and no filter need be in memory.
        if height.kernel.checked_mul(width.kernel).is_none() {
            return Err(OpError::failed(format!("{} x {} taps are too many", kernel.0, kernel.1)));
        }
        Ok((height, width))
    }
}

/// A window that slides along one dimension. All sizes fit 32 bits, and every sum or product the methods form of them
/// fits a pointer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Size of the input along the dimension, at least 1.
    pub input: usize,
    /// Taps of the window, at least 1.
    pub kernel: usize,
    /// At least 1.
    pub stride: usize,
    /// Distance of neighbouring taps, at least 1.
    pub dilation: usize,
    /// Cells of padding before the input; fewer than the window covers.
    pub pad_before: usize,
    /// Cells of padding after the input; fewer than the window covers.
    pub pad_after: usize,
    /// Size of the output along the dimension, at least 1.
    pub output: usize,
}

impl Window {
    /// The cells that windows of some outputs reach over, where outputs and cells are counted through all images of a batch.
    /// Those of later outputs start and end no earlier.
    pub fn cells_under(&self, outputs: Range<usize>) -> Range<usize> {
        let reach = (self.kernel - 1) * self.dilation + 1;
        let cell = |output: usize, beyond: usize| {
            let (image, output) = (output / self.output, output % self.output);
            let cell = (output * self.stride + beyond).saturating_sub(self.pad_before);
            image * self.input + cell.min(self.input)
        };
        match outputs.is_empty() {
            true => 0..0,
            false => cell(outputs.start, 0)..cell(outputs.end - 1, reach),
        }
    }

    /// A window of `kernel` taps; `name` is the dimension's, for messages.
    pub fn new(
        name: &str,
        input: usize,
        kernel: u32,
        stride: i32,
        dilation: i32,
        padding: Padding,
    ) -> Result<Self, OpError> {
        let wrong = |why: String| OpError::failed(format!("{name}: {why}"));
        if input == 0 || kernel == 0 || stride <= 0 || dilation <= 0 {
            return Err(wrong(format!(
                "input {input}, filter {kernel}, stride {stride} and dilation {dilation} must be positive"
            )));
        }
        let (input, stride) = (input as i64, i64::from(stride));
        let extent = (i64::from(kernel) - 1) * i64::from(dilation) + 1;
        if extent > i64::from(i32::MAX) || input > i64::from(u32::MAX) {
            return Err(wrong(format!("a filter over {extent} cells of {input} is too large")));
        }
        let (before, after) = match padding {
            Padding::None => (0, 0),
            Padding::Explicit(before, after) => (i64::from(before), i64::from(after)),
            Padding::Same => {
                let last_start = (input - 1) / stride * stride;
                let total = (last_start + extent - input).max(0);
                (total / 2, total - total / 2)
            }
        };
        // More padding than this would make windows without any input.
        if !(0..extent).contains(&before) || !(0..extent).contains(&after) {
            return Err(wrong(format!("paddings {before} and {after} of a filter over {extent} cells")));
        }
        let slack = input + before + after - extent;
        if slack < 0 {
            return Err(wrong(format!("a filter over {extent} cells is larger than the padded input")));
        }
        let output = slack / stride + 1;
        // No cell that the methods name lies beyond, which a machine of 32 bits must be able to count.
        if output > i64::from(u32::MAX) || usize::try_from(input + before + after).is_err() {
            return Err(wrong(format!("an output of {output} cells is too large")));
        }
        Ok(Window {
            input: input as usize,
            kernel: kernel as usize,
            stride: stride as usize,
            dilation: dilation as usize,
            pad_before: before as usize,
            pad_after: after as usize,
            output: output as usize,
        })
    }

    /// The taps that fall on the input for output `output`.
    pub fn taps(&self, output: usize) -> Range<usize> {
        let start = (output * self.stride) as i64 - self.pad_before as i64;
        let first_at_or_after = |cell: i64| {
            let distance = (cell - start).max(0) as usize;
            distance.div_ceil(self.dilation).min(self.kernel)
        };
        first_at_or_after(0)..first_at_or_after(self.input as i64)
    }

    /// The input under tap `tap` for output `output`; the tap is one of [`Self::taps`].
    pub fn cell(&self, output: usize, tap: usize) -> usize {
        output * self.stride + tap * self.dilation - self.pad_before
    }
}

/// The window over one output pixel.
pub struct Patch<'w> {
    height: &'w Window,
    width: &'w Window,
    /// First row of the image, counting rows of all images.
    first_row: usize,
    row: usize,
    column: usize,
}

impl Patch<'_> {
    /// Number of taps that fall on input; at least 1 in a window without dilation.
    pub fn cells(&self) -> usize {
        self.height.taps(self.row).len() * self.width.taps(self.column).len()
    }

    /// Calls `visit(tap, pixel)` for every tap that falls on input: which tap of the window, row by row, and which pixel
    /// of the input, row by row and image by image.
    pub fn for_each(
        &self,
        mut visit: impl FnMut(usize, usize) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let columns = self.width.taps(self.column);
        for tap_row in self.height.taps(self.row) {
            let row = (self.first_row + self.height.cell(self.row, tap_row)) * self.width.input;
            for tap_column in columns.clone() {
                let pixel = row + self.width.cell(self.column, tap_column);
                visit(tap_row * self.width.kernel + tap_column, pixel)?;
            }
        }
        Ok(())
    }
}

/// Calls `visit(pixel, patch, pace)` for every output pixel in order.
pub fn slide(
    dims: &ImageDims,
    height: &Window,
    width: &Window,
    pace: &mut Pace,
    mut visit: impl FnMut(usize, Patch, &mut Pace) -> Result<(), OpError>,
) -> Result<(), OpError> {
    let pixels = dims.batches.saturating_mul(height.output).saturating_mul(width.output);
    let to_touch = steps_to_touch(dims.elements(), pixels, height.kernel);
    let mut pixel = 0;
    for image in 0..dims.batches {
        for row in 0..height.output {
            for column in 0..width.output {
                let first_row = image * height.input;
                pace.spend(to_touch)?;
                visit(pixel, Patch { height, width, first_row, row, column }, pace)?;
                pixel += 1;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(input: usize, kernel: u32, stride: i32, dilation: i32, padding: Padding) -> Window {
        Window::new("width", input, kernel, stride, dilation, padding).unwrap()
    }

    #[test]
    fn same_padding_puts_the_odd_cell_after() {
        let w = window(5, 2, 1, 1, Padding::Same);
        assert_eq!((w.pad_before, w.pad_after, w.output), (0, 1, 5));
        let w = window(7, 3, 2, 2, Padding::Same);
        assert_eq!((w.pad_before, w.pad_after, w.output), (2, 2, 4));
        let w = window(4, 1, 3, 1, Padding::Same);
        assert_eq!((w.pad_before, w.pad_after, w.output), (0, 0, 2));
    }

    #[test]
    fn taps_are_those_on_the_input() {
        let w = window(4, 3, 1, 2, Padding::Explicit(3, 2));
        let on_input: Vec<Vec<usize>> =
            (0..w.output).map(|o| w.taps(o).map(|tap| w.cell(o, tap)).collect()).collect();
        assert_eq!(on_input, [vec![1], vec![0, 2], vec![1, 3], vec![0, 2], vec![1, 3]]);
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |input, kernel, stride, dilation, padding| {
            Window::new("width", input, kernel, stride, dilation, padding).is_err()
        };
        assert!(refused(0, 1, 1, 1, Padding::Same));
        assert!(refused(4, 0, 1, 1, Padding::Same));
        assert!(refused(4, 1, 0, 1, Padding::Same));
        assert!(refused(4, 1, 1, i32::MIN, Padding::None));
        assert!(refused(2, 3, 1, 1, Padding::None));
        assert!(refused(4, 2, 1, 1, Padding::Explicit(2, 0)));
        assert!(refused(4, 2, 1, 1, Padding::Explicit(0, -1)));
        assert!(refused(4, u32::MAX, 1, i32::MAX, Padding::Same));
        // Cells beyond those that 32 bits count.
        let uncounted = refused(u32::MAX as usize, i32::MAX as u32, 1, 1, Padding::Same);
        assert_eq!(uncounted, cfg!(target_pointer_width = "32"));
        let taps = |width, height| {
            let dims = ImageDims { batches: 1, height: 1, width: 1, channels: 1 };
            let strides = Strides {
                horizontal: Padding::Same,
                vertical: Padding::Same,
                stride_width: 1,
                stride_height: 1,
            };
            strides.windows(&dims, (width, height), (1, 1)).is_ok()
        };
        assert!(taps(1 << 15, 1 << 15));
        assert_eq!(taps(1 << 20, 1 << 20), cfg!(target_pointer_width = "64"));
    }
}
