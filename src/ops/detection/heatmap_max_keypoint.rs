//! HEATMAP_MAX_KEYPOINT: the place of the greatest score in each heatmap, to a fraction of a cell.

use super::boxes::{ensure, ensure_all_ordered, ensure_eighths, fours};
use super::image::Image;
use crate::ops::pace::Pace;
use crate::ops::scratch::{filled, reserved, Scratch};
use crate::ops::signature::{boolean, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;
use smallvec::smallvec;

pub static HEATMAP_MAX_KEYPOINT: Operation = Operation {
    ty: OperationType::HEATMAP_MAX_KEYPOINT,
    doc: "score and place of the maximum of each heatmap, refined between cells and scaled to its box",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT32, TENSOR_FLOAT32]),
            Row(3, &[TENSOR_FLOAT16, TENSOR_FLOAT16]),
            Row(3, &[TENSOR_QUANT8_ASYMM, TENSOR_QUANT16_ASYMM]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED, TENSOR_QUANT16_ASYMM]),
        ],
        &[var("heatmaps", 0), var("boxes", 1), boolean("nchw")],
        &[var("scores", 0), var("keypoints", 1)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

fn shapes(args: &Args) -> Shapes {
    let (heatmaps, boxes) = (args.get(0)?, args.get(1)?);
    let image = Image::new(heatmaps.dims(), args.bool(2)?)?;
    ensure(
        image.height == image.width && image.width >= 2,
        "heatmaps must be square, of 2 cells or more a side",
    )?;
    ensure(boxes.dims() == [heatmaps.dim(0), 4], "there must be a box of 4 values to each heatmap")?;
    ensure_eighths("boxes", boxes.info)?;
    ensure_eighths("keypoints", args.output(1)?)?;
    let (count, keypoints) = (heatmaps.dim(0), image.depth as u32);
    Ok(vec![smallvec![count, keypoints], smallvec![count, keypoints, 2]])
}

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let heatmaps = args.get(0)?;
    let image = Image::new(heatmaps.dims(), args.bool(2)?)?;
    let tolerance = if heatmaps.ty() == TENSOR_FLOAT16 { 1e-3 } else { 1e-5 };
    let (heat, boxes) = (heatmaps.reals()?, args.get(1)?.reals()?);
    let mut pace = Pace::new(args);
    ensure_all_ordered(fours(&boxes), &mut pace)?;
    if outs[0].data.is_empty() {
        return Ok(()); // and the sides of the heatmaps are whatever the client likes
    }
    let count = image.batches * image.depth;
    let (mut scores, mut keypoints) = (reserved(count)?, reserved(count)?);
    for (n, &[x1, y1, x2, y2]) in fours(&boxes).iter().enumerate() {
        let peaks = peaks(&image, &heat[image.at(n, 0, 0, 0)..], &mut pace)?;
        for (channel, &peak) in peaks.iter().enumerate() {
            let (x, y, score) = refined(peak, &image, |y, x| heat[image.at(n, y, x, channel)], tolerance);
            let place =
                |cell: f32, from: f32, to: f32| (cell + 0.5) / image.width as f32 * (to - from) + from;
            pace.spend(64)?;
            keypoints.push([place(x, x1, x2), place(y, y1, y2)]);
            scores.push(score);
        }
    }
    outs[0].store_reals(args.interrupt, &scores)?;
    outs[1].store_reals(args.interrupt, keypoints.as_flattened())
}

/// The greatest score of a heatmap, and in which of its cells it is first.
#[derive(Clone, Copy)]
struct Peak {
    score: f32,
    cell: usize,
}

impl Peak {
    fn see(&mut self, score: f32, cell: usize) {
        if score > self.score {
            *self = Peak { score, cell };
        }
    }
}

/// The peak of each channel of the image that `heat` begins with, in the order in which scores lie in memory.
fn peaks(image: &Image, heat: &[f32], pace: &mut Pace) -> Result<Scratch<Peak>, OpError> {
    let mut peaks = filled(pace.interrupt(), Peak { score: f32::MIN, cell: 0 }, image.depth)?;
    let cells = image.width * image.width;
    if image.channels_come_first() {
        for (peak, heat) in peaks.iter_mut().zip(heat.chunks_exact(cells)) {
            pace.each(heat.iter().enumerate(), 1, |(cell, &score)| peak.see(score, cell))?;
        }
        return Ok(peaks);
    }
    for (cell, heat) in heat.chunks_exact(image.depth.max(1)).take(cells).enumerate() {
        pace.each(peaks.iter_mut().zip(heat), 1, |(peak, &score)| peak.see(score, cell))?;
    }
    Ok(peaks)
}

/// Column, row and score of a peak of a square heatmap, refined by [`refine`].
fn refined(peak: Peak, image: &Image, heat: impl Fn(usize, usize) -> f32, tolerance: f32) -> (f32, f32, f32) {
    let size = image.width;
    let (best, at) = (peak.score, (peak.cell / size, peak.cell % size));
    // Cells beyond an edge mirror those before it.
    let near = |i: usize| [if i == 0 { 1 } else { i - 1 }, i, if i + 1 == size { size - 2 } else { i + 1 }];
    let grid = near(at.0).map(|y| near(at.1).map(|x| heat(y, x)));
    let (dx, dy, score) = refine(&grid, tolerance).unwrap_or((0.0, 0.0, best));
    (at.1 as f32 + dx, at.0 as f32 + dy, score)
}

/// The maximum of the quadratic that the middle cell and its neighbours suggest: offsets in x and y, and its value.
/// `None` where the quadratic has no clear one.
fn refine(grid: &[[f32; 3]; 3], tolerance: f32) -> Option<(f32, f32, f32)> {
    let centre = grid[1][1];
    // First and second derivatives by central differences.
    let (gx, gy) = ((grid[1][2] - grid[1][0]) / 2.0, (grid[2][1] - grid[0][1]) / 2.0);
    let hxx = grid[1][0] - 2.0 * centre + grid[1][2];
    let hyy = grid[0][1] - 2.0 * centre + grid[2][1];
    let hxy = (grid[2][2] - grid[2][0] - grid[0][2] + grid[0][0]) / 4.0;
    let determinant = hxx * hyy - hxy * hxy;
    if determinant.abs() < tolerance + tolerance * hxx * hyy {
        return None;
    }
    let (dx, dy) = ((hxy * gy - hyy * gx) / determinant, (hxy * gx - hxx * gy) / determinant);
    // No further than one and a half cells.
    let scale = (1.5 / dx.abs().max(dy.abs())).min(1.0);
    let (dx, dy) = (dx * scale, dy * scale);
    let value = centre + gx * dx + gy * dy + (hxx * dx * dx + 2.0 * hxy * dx * dy + hyy * dy * dy) / 2.0;
    Some((dx, dy, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call, f32s};
    use crate::tensor::TensorInfo;

    fn keypoint(size: u32, heat: &[f32], corners: [f32; 4]) -> Result<(f32, Vec<f32>), OpError> {
        let inputs = [f32s(&[1, size, size, 1], heat), f32s(&[1, 4], &corners), boolean(false)];
        let info = TensorInfo::new(TENSOR_FLOAT32, &[]);
        let out = call(&HEATMAP_MAX_KEYPOINT, &inputs.map(Some), &[info.clone(), info])?;
        let score: &[f32] = bytemuck::cast_slice(&out[0].data);
        Ok((score[0], bytemuck::cast_slice(&out[1].data).to_vec()))
    }

    #[test]
    fn finds_the_top_of_a_paraboloid() {
        // 1 - (x - 1.25)^2 - (y - 0.9)^2, whose top is not on a cell.
        let heat: Vec<f32> =
            (0..9).map(|i| 1.0 - ((i % 3) as f32 - 1.25).powi(2) - ((i / 3) as f32 - 0.9).powi(2)).collect();
        let (score, place) = keypoint(3, &heat, [0.0, 0.0, 3.0, 6.0]).unwrap();
        assert!((score - 1.0).abs() < 1e-5, "{score}");
        assert!((place[0] - 1.75).abs() < 1e-5 && (place[1] - 2.8).abs() < 1e-5, "{place:?}");
    }

    #[test]
    fn flat_maps_and_nan_are_not_refined() {
        assert_eq!(keypoint(2, &[1.0; 4], [0.0, 0.0, 4.0, 8.0]), Ok((1.0, vec![1.0, 2.0])));
        assert!(keypoint(2, &[f32::NAN; 4], [0.0; 4]).is_ok());
        assert!(keypoint(2, &[1.0; 4], [1.0, 0.0, 0.0, 0.0]).is_err());
    }
}
