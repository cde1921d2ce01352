//! ROI_ALIGN: averages of bilinear samples in each cell of a grid laid over regions of a feature map.

use super::boxes::ensure;
use super::image::Image;
use super::regions::{self, Region};
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::signature::{boolean, int, is, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;

pub static ROI_ALIGN: Operation = Operation {
    ty: OperationType::ROI_ALIGN,
    doc: "averages of bilinear samples in each cell of a grid over regions of a feature map",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT32, TENSOR_FLOAT32, FLOAT32]),
            Row(3, &[TENSOR_FLOAT16, TENSOR_FLOAT16, FLOAT16]),
            Row(3, &[TENSOR_QUANT8_ASYMM, TENSOR_QUANT16_ASYMM, FLOAT32]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED, TENSOR_QUANT16_ASYMM, FLOAT32]),
        ],
        &[
            var("features", 0),
            var("roi", 1),
            is("batches", TENSOR_INT32),
            int("output_height"),
            int("output_width"),
            var("height_stride", 2),
            var("width_stride", 2),
            int("height_samples"),
            int("width_samples"),
            boolean("nchw"),
        ],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    let nchw = args.bool(9)?;
    ensure(args.i32(7)? >= 0 && args.i32(8)? >= 0, "numbers of samples must not be negative")?;
    ensure(!args.get(0)?.dims().contains(&0), "the feature map must not be empty")?;
    Ok(vec![regions::output_dims(args, nchw)?])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (features, nchw) = (args.get(0)?, args.bool(9)?);
    let image = Image::new(features.dims(), nchw)?;
    let grid = Image::new(outs[0].dims(), nchw)?;
    let samples = [args.i32(7)?, args.i32(8)?].map(|n| n.max(0) as usize);
    let values = features.reals()?;
    let mut aligned = filled(args.interrupt, 0f32, grid.batches * grid.height * grid.width * grid.depth)?;
    let mut pace = Pace::new(args);
    for (n, region) in regions::read(args, &image)?.iter().enumerate() {
        align(region, samples, &values, &image, &mut pace, &grid, |y, x, c, value| {
            aligned[grid.at(n, y, x, c)] = value;
        })?;
    }
    outs[0].store_reals(args.interrupt, &aligned)
}

/// Calls `give` with row, column, channel and value of each cell of the grid over one region.
fn align(
    region: &Region,
    [y_samples, x_samples]: [usize; 2],
    values: &[f32],
    image: &Image,
    pace: &mut Pace,
    grid: &Image,
    mut give: impl FnMut(usize, usize, usize, f32),
) -> Result<(), OpError> {
    let rows = Axis::new(region.top, region.bottom, grid.height, y_samples, image.height);
    let columns = Axis::new(region.left, region.right, grid.width, x_samples, image.width);
    let mut sums = filled(pace.interrupt(), 0f32, grid.depth)?;
    for y in 0..grid.height {
        for x in 0..grid.width {
            for (top, bottom, down) in rows.samples(y) {
                for (left, right, across) in columns.samples(x) {
                    pace.each(sums.iter_mut().enumerate(), 8, |(c, sum)| {
                        let value = |y, x| values[image.at(region.batch, y, x, c)];
                        *sum += (1.0 - down)
                            * ((1.0 - across) * value(top, left) + across * value(top, right))
                            + down * ((1.0 - across) * value(bottom, left) + across * value(bottom, right));
                    })?;
                }
            }
            let count = rows.count as f32 * columns.count as f32;
            pace.each(sums.iter_mut().enumerate(), 4, |(c, sum)| give(y, x, c, std::mem::take(sum) / count))?;
        }
    }
    Ok(())
}

/// Where samples lie along one axis of the feature map.
pub struct Axis {
    start: f32,
    /// Length of a cell of the grid.
    step: f32,
    /// Samples in a cell.
    pub count: usize,
    /// Elements of the feature map.
    size: usize,
}

impl Axis {
    /// `samples` in each of `cells` between `start` and `end`; 0 stands for one to each element.
    #[inline(always)]
    pub fn new(start: f32, end: f32, cells: usize, samples: usize, size: usize) -> Self {
        // A region is at least one element long.
        let step = (end - start).max(1.0) / cells as f32;
        let count = if samples > 0 { samples } else { step.ceil() as usize };
        Axis { start, step, count, size }
    }

    /// The samples of a cell: the elements before and after each, and how far it is from the first to the second.
    #[inline(always)]
    pub fn samples(&self, cell: usize) -> impl Iterator<Item = (usize, usize, f32)> + use<'_> {
        let from = self.step * cell as f32 + self.start;
        let step = self.step / self.count as f32;
        (0..self.count).map(move |i| {
            let at = from + step / 2.0 + step * i as f32;
            let before = at.floor() as usize;
            if before >= self.size - 1 {
                (self.size - 1, self.size - 1, 0.0)
            } else {
                (before, before + 1, at - before as f32)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call_simple, f32s, float, i32s, int};

    fn align_once(corners: [f32; 4], samples: i32) -> Result<Vec<f32>, OpError> {
        let inputs = [
            f32s(&[1, 3, 3, 1], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
            f32s(&[1, 4], &corners),
            i32s(&[1], &[0]),
            int(1),
            int(2),
            float(2.0),
            float(2.0),
            int(samples),
            int(samples),
            boolean(false),
        ];
        Ok(call_simple::<f32>(&ROI_ALIGN, &inputs)?.1)
    }

    #[test]
    fn samples_between_elements() {
        // Cells of 1 x 1 elements from (0, 0): samples at (0.5, 0.5) and (1.5, 0.5).
        assert_eq!(align_once([0.0, 0.0, 4.0, 2.0], 1), Ok(vec![2.0, 3.0]));
        // The map is linear there, so that more samples make no difference.
        assert_eq!(align_once([0.0, 0.0, 4.0, 2.0], 2), Ok(vec![2.0, 3.0]));
        assert_eq!(align_once([0.0, 0.0, 4.0, 2.0], 0), Ok(vec![2.0, 3.0]));
        // A point is widened to one element, and what lies beyond the last is the last.
        assert_eq!(align_once([6.0, 6.0, 6.0, 6.0], 1), Ok(vec![8.0, 8.0]));
    }

    #[test]
    fn refuses_regions_outside_and_negative_samples() {
        assert!(align_once([0.0, 0.0, 6.5, 2.0], 1).is_err());
        assert!(align_once([0.0, 0.0, 4.0, f32::NAN], 1).is_err());
        assert!(align_once([0.0, 0.0, 4.0, 2.0], -1).is_err());
    }
}
