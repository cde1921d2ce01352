//! GENERATE_PROPOSALS: anchors moved over an image, refined by deltas, filtered and suppressed.

use super::boxes::{
    ensure, ensure_all_ordered, ensure_eighths, fours, sort_descending, suppress, transform, Corners,
};
use super::image::Image;
use super::outputs;
use crate::ops::evaluate::check_sizes;
use crate::ops::pace::Pace;
use crate::ops::scratch::{collected, reserved, Scratch};
use crate::ops::signature::{boolean, int, is, var, Row};
use crate::ops::{no_check, Args, Computed, OpError, Operation, OperationType, Run, Signature};
use crate::tensor::OperandType::*;
use smallvec::smallvec;

pub static GENERATE_PROPOSALS: Operation = Operation {
    ty: OperationType::GENERATE_PROPOSALS,
    doc: "the best boxes of those that anchors give at each position, after suppression",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT32, TENSOR_FLOAT32, TENSOR_FLOAT32, FLOAT32]),
            Row(3, &[TENSOR_FLOAT16, TENSOR_FLOAT16, TENSOR_FLOAT16, FLOAT16]),
            Row(3, &[TENSOR_QUANT8_ASYMM, TENSOR_QUANT16_SYMM, TENSOR_QUANT16_ASYMM, FLOAT32]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED, TENSOR_QUANT16_SYMM, TENSOR_QUANT16_ASYMM, FLOAT32]),
        ],
        &[
            var("scores", 0),
            var("deltas", 0),
            var("anchors", 1),
            var("image_info", 2),
            var("height_stride", 3),
            var("width_stride", 3),
            int("pre_nms_max"),
            int("post_nms_max"),
            var("iou_threshold", 3),
            var("min_size", 3),
            boolean("nchw"),
        ],
        &[var("scores", 0), var("roi", 2), is("batches", TENSOR_INT32)],
    )],
    check: no_check,
    run: Run::Unshaped { eval },
};

struct Call<'a> {
    /// Layout of the scores; deltas lie likewise with four times the depth.
    positions: Image,
    delta_positions: Image,
    scores: &'a [f32],
    deltas: &'a [f32],
    anchors: &'a [Corners],
    strides: [f32; 2],
    pre_limit: usize,
    post_limit: usize,
    iou_threshold: f32,
    min_size: f32,
}

/// A box that was kept.
#[derive(Clone, Copy)]
struct Proposal {
    score: f32,
    corners: Corners,
    batch: usize,
}

fn check(args: &Args) -> Result<(Image, Image), OpError> {
    let nchw = args.bool(10)?;
    let (anchors, images) = (args.get(2)?, args.get(3)?);
    let scores = Image::new(args.get(0)?.dims(), nchw)?;
    let deltas = Image::new(args.get(1)?.dims(), nchw)?;
    let places = |image: &Image| (image.batches, image.height, image.width);
    ensure(
        places(&scores) == places(&deltas) && Some(deltas.depth) == scores.depth.checked_mul(4),
        "there must be four deltas to each score",
    )?;
    ensure(anchors.dims() == [anchors.dim(0), 4], "the anchors must be a matrix of 4 columns")?;
    ensure(anchors.dim(0) as usize == scores.depth, "there must be an anchor to each channel of scores")?;
    ensure(images.dims() == [images.dim(0), 2], "input 3 must be image heights and widths")?;
    ensure(images.dim(0) as usize == scores.batches, "there must be an image size to each batch")?;
    ensure_eighths("anchors", anchors.info)?;
    ensure_eighths("image sizes", images.info)?;
    ensure_eighths("output boxes", args.output(1)?)?;
    Ok((scores, deltas))
}

fn eval(args: &Args) -> Result<Vec<Computed>, OpError> {
    let (positions, delta_positions) = check(args)?;
    let (scores, deltas) = (args.get(0)?.reals()?, args.get(1)?.reals()?);
    let (anchors, images) = (args.get(2)?.reals()?, args.get(3)?.reals()?);
    // A limit that is not positive is none.
    let limit = |n: i32| usize::try_from(n).ok().filter(|&n| n > 0).unwrap_or(usize::MAX);
    let call = Call {
        positions,
        delta_positions,
        scores: &scores,
        deltas: &deltas,
        anchors: fours(&anchors),
        strides: [args.f32(4)?, args.f32(5)?],
        pre_limit: limit(args.i32(6)?),
        post_limit: limit(args.i32(7)?),
        iou_threshold: args.f32(8)?,
        min_size: args.f32(9)?,
    };
    let mut pace = Pace::new(args);
    ensure_all_ordered(call.anchors, &mut pace)?;
    let mut kept = reserved(0)?;
    // Where there are no scores, there may be very many images, or positions of no anchors.
    let images = if call.scores.is_empty() { &[] } else { images.as_chunks().0 };
    for (batch, &size) in images.iter().enumerate() {
        pace.spend(64)?;
        call.image(batch, size, &mut kept, &mut pace)?;
    }
    let count = u32::try_from(kept.len()).map_err(|_| OpError::failed("too many boxes"))?;
    check_sizes(args.outputs, &[smallvec![count], smallvec![count, 4], smallvec![count]])?;
    let scores = collected(args.interrupt, kept.iter().map(|proposal| proposal.score))?;
    let boxes = collected(args.interrupt, kept.iter().map(|proposal| proposal.corners))?;
    let batches = collected(args.interrupt, kept.iter().map(|proposal| proposal.batch as i32))?;
    Ok(vec![
        outputs::reals(args, args.output(0)?, smallvec![count], &scores)?,
        outputs::reals(args, args.output(1)?, smallvec![count, 4], boxes.as_flattened())?,
        outputs::integers(args, args.output(2)?, smallvec![count], &batches)?,
    ])
}

impl Call<'_> {
    /// Appends the boxes kept of one image to `all`, by descending score.
    fn image(
        &self,
        batch: usize,
        size: [f32; 2],
        all: &mut Scratch<Proposal>,
        pace: &mut Pace,
    ) -> Result<(), OpError> {
        let (scores, boxes) = self.proposals(batch, size, pace)?;
        let score = |i: usize| scores[i];
        let mut candidates = collected(pace.interrupt(), 0..boxes.len())?;
        if self.pre_limit < candidates.len() {
            sort_descending(&mut candidates, score, pace)?;
            candidates.truncate(self.pre_limit);
        }
        let mut sized = reserved(candidates.len())?;
        pace.each(&*candidates, 8, |&i| {
            if self.is_large_and_inside(&boxes[i], size) {
                sized.push(i);
            }
        })?;
        let kept = suppress(sized, score, |i| &boxes[i], self.iou_threshold, self.post_limit, pace)?;
        let proposal = |&i: &usize| Proposal { score: scores[i], corners: boxes[i], batch };
        all.append(pace.interrupt(), kept.iter().map(proposal))
    }

    /// Score and box of every anchor at every position of an image, row by row.
    fn proposals(
        &self,
        batch: usize,
        size: [f32; 2],
        pace: &mut Pace,
    ) -> Result<(Scratch<f32>, Scratch<Corners>), OpError> {
        // As many as the image has scores, which are in memory.
        let count = self.positions.height * self.positions.width * self.anchors.len();
        let (mut scores, mut boxes) = (reserved(count)?, reserved(count)?);
        for y in 0..self.positions.height {
            for x in 0..self.positions.width {
                let (dy, dx) = (y as f32 * self.strides[0], x as f32 * self.strides[1]);
                for (a, anchor) in self.anchors.iter().enumerate() {
                    pace.spend(32)?;
                    let delta =
                        [0, 1, 2, 3].map(|i| self.deltas[self.delta_positions.at(batch, y, x, 4 * a + i)]);
                    let [x1, y1, x2, y2] = *anchor;
                    scores.push(self.scores[self.positions.at(batch, y, x, a)]);
                    boxes.push(transform(&[x1 + dx, y1 + dy, x2 + dx, y2 + dy], &delta, size));
                }
            }
        }
        Ok((scores, boxes))
    }

    fn is_large_and_inside(&self, &[x1, y1, x2, y2]: &Corners, [height, width]: [f32; 2]) -> bool {
        let (w, h) = (x2 - x1, y2 - y1);
        w > self.min_size && h > self.min_size && x1 + w / 2.0 < width && y1 + h / 2.0 < height
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call, f32s, float, int};
    use crate::tensor::TensorInfo;

    /// One image of 1 x 3 positions, 10 pixels apart, with two anchors: one of 4 x 4 pixels, one of 2 x 2.
    fn propose(scores: [f32; 6], limits: [i32; 2], min_size: f32, nchw: bool) -> (Vec<f32>, Vec<f32>) {
        let dims = |depth| if nchw { vec![1, depth, 1, 3] } else { vec![1, 1, 3, depth] };
        let inputs = [
            f32s(&dims(2), &scores),
            f32s(&dims(8), &[0.0; 24]),
            f32s(&[2, 4], &[0.0, 0.0, 4.0, 4.0, 0.0, 0.0, 2.0, 2.0]),
            f32s(&[1, 2], &[10.0, 23.0]),
            float(10.0),
            float(10.0),
            int(limits[0]),
            int(limits[1]),
            float(0.2),
            float(min_size),
            boolean(nchw),
        ];
        let info = |ty| TensorInfo::new(ty, &[]);
        let outs = [info(TENSOR_FLOAT32), info(TENSOR_FLOAT32), info(TENSOR_INT32)];
        let out = call(&GENERATE_PROPOSALS, &inputs.map(Some), &outs).unwrap();
        assert_eq!(out[2].data.len(), out[0].data.len());
        let corners: Vec<f32> = bytemuck::cast_slice(&out[1].data).to_vec();
        (bytemuck::cast_slice(&out[0].data).to_vec(), corners.chunks(4).map(|c| c[2]).collect())
    }

    const SCORES: [f32; 6] = [0.9, 0.8, 0.3, 0.4, 0.2, 0.1];

    #[test]
    fn keeps_the_best_at_each_position() {
        // The small anchor is a quarter of the large one, more than the threshold; the last is cut at 23.
        assert_eq!(propose(SCORES, [0, 0], 0.0, false), (vec![0.9, 0.4, 0.2], vec![4.0, 12.0, 23.0]));
        assert_eq!(propose(SCORES, [2, 0], 0.0, false), (vec![0.9], vec![4.0]));
        assert_eq!(propose(SCORES, [-1, 2], 0.0, false), (vec![0.9, 0.4], vec![4.0, 12.0]));
        assert_eq!(propose(SCORES, [0, 0], 2.0, false), (vec![0.9, 0.3, 0.2], vec![4.0, 14.0, 23.0]));
    }

    #[test]
    fn layouts_agree() {
        let planes = [0.9, 0.3, 0.2, 0.8, 0.4, 0.1];
        assert_eq!(propose(planes, [0, 0], 0.0, true), propose(SCORES, [0, 0], 0.0, false));
    }
}
