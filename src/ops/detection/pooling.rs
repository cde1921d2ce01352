//! ROI_POOLING: the greatest element in each cell of a grid laid over regions of a feature map.

use super::image::Image;
use super::regions::{self, Region};
use crate::ops::pace::Pace;
use crate::ops::scratch::{filled, Scratch};
use crate::ops::signature::{boolean, int, is, var, Row};
use crate::ops::{
    no_check, same_quantisation, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature,
};
use crate::tensor::OperandType::*;
use std::ops::Range;

pub static ROI_POOLING: Operation = Operation {
    ty: OperationType::ROI_POOLING,
    doc: "the greatest element in each cell of a grid over regions of a feature map",
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
            boolean("nchw"),
        ],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    same_quantisation(args.get(0)?.info, args.output(0)?)?;
    Ok(vec![regions::output_dims(args, args.bool(7)?)?])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (features, nchw) = (args.get(0)?, args.bool(7)?);
    let image = Image::new(features.dims(), nchw)?;
    let grid = Image::new(outs[0].dims(), nchw)?;
    let regions = regions::read(args, &image)?;
    if outs[0].data.is_empty() {
        return Ok(()); // and the dimensions other than those of 0 are whatever the client likes
    }
    if features.ty().is_float() {
        let pooled = pool(args, &features.floats()?, 0.0, &image, &grid, &regions)?;
        return outs[0].store_floats(args.interrupt, &pooled);
    }
    let pooled = pool(args, &features.integers()?, features.zero_point(), &image, &grid, &regions)?;
    outs[0].store_integers(args.interrupt, &pooled)
}

/// `empty` is what a cell without elements gives.
fn pool<T: Copy + PartialOrd>(
    args: &Args,
    values: &[T],
    empty: T,
    image: &Image,
    grid: &Image,
    regions: &[Region],
) -> Result<Scratch<T>, OpError> {
    let mut pooled = filled(args.interrupt, empty, grid.batches * grid.height * grid.width * grid.depth)?;
    let mut pace = Pace::new(args);
    for (n, region) in regions.iter().enumerate() {
        for y in 0..grid.height {
            let rows = cell(region.top, region.bottom, y, grid.height, image.height);
            for x in 0..grid.width {
                let columns = cell(region.left, region.right, x, grid.width, image.width);
                for c in 0..grid.depth {
                    let mut greatest = None;
                    for y in rows.clone() {
                        // A row can be as long as the map is wide, or there can be very many of which a cell has nothing.
                        pace.in_stretches(columns.len(), 2, |part| {
                            let elements =
                                part.map(|x| values[image.at(region.batch, y, columns.start + x, c)]);
                            greatest =
                                greatest.into_iter().chain(elements).reduce(|a, b| if b > a { b } else { a });
                        })?;
                    }
                    pooled[grid.at(n, y, x, c)] = greatest.unwrap_or(empty);
                    pace.spend(4)?;
                }
            }
        }
    }
    Ok(pooled)
}

/// Elements of cell `i` of `count` between `start` and `end`, both rounded and included, out of `limit`.
pub fn cell(start: f32, end: f32, i: usize, count: usize, limit: usize) -> Range<usize> {
    let (start, end) = (start.round(), end.round());
    let step = (end - start + 1.0).max(1.0) / count as f32;
    let first = (step * i as f32 + start).floor() as usize;
    let last = (step * (i + 1) as f32 + start).ceil() as usize;
    first.min(limit)..last.min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call_simple, f32s, float, i32s, int};

    fn pool_once(corners: [f32; 4], batch: i32, size: i32, stride: f32) -> Result<Vec<f32>, OpError> {
        let features: Vec<f32> = (0..16).map(|i| -(i as f32)).collect();
        let inputs = [
            f32s(&[1, 4, 4, 1], &features),
            f32s(&[1, 4], &corners),
            i32s(&[1], &[batch]),
            int(size),
            int(size),
            float(stride),
            float(stride),
            boolean(false),
        ];
        Ok(call_simple::<f32>(&ROI_POOLING, &inputs)?.1)
    }

    #[test]
    fn takes_the_greatest_of_each_cell() {
        assert_eq!(pool_once([0.0, 0.0, 3.0, 3.0], 0, 2, 1.0), Ok(vec![0.0, -2.0, -8.0, -10.0]));
        assert_eq!(pool_once([4.0, 4.0, 6.0, 6.0], 0, 2, 2.0), Ok(vec![-10.0, -11.0, -14.0, -15.0]));
        // A region at the far edge has cells without elements.
        assert_eq!(pool_once([4.0, 4.0, 4.0, 4.0], 0, 1, 1.0), Ok(vec![0.0]));
    }

    #[test]
    fn refuses_regions_outside_and_bad_scalars() {
        assert!(pool_once([0.0, 0.0, 4.5, 1.0], 0, 1, 1.0).is_err());
        assert!(pool_once([-1.0, 0.0, 1.0, 1.0], 0, 1, 1.0).is_err());
        assert!(pool_once([0.0; 4], 1, 1, 1.0).is_err());
        assert!(pool_once([0.0; 4], 0, 0, 1.0).is_err());
        assert!(pool_once([0.0; 4], 0, 1, 0.0).is_err());
        assert!(pool_once([0.0; 4], 0, i32::MAX, 1.0).is_err());
    }
}
