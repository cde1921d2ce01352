//! BOX_WITH_NMS_LIMIT: the best boxes of each class, with overlapping ones suppressed or their scores decayed.

use super::boxes::{area, ensure, ensure_all_ordered, ensure_eighths, fours, overlap, suppress, Corners};
use super::outputs;
use crate::ops::evaluate::check_sizes;
use crate::ops::pace::Pace;
use crate::ops::scratch::{collected, reserved, Scratch};
use crate::ops::signature::{int, is, var, Row};
use crate::ops::sort::sort;
use crate::ops::{no_check, Args, Computed, OpError, Operation, OperationType, Run, Signature};
use crate::tensor::OperandType::*;
use smallvec::smallvec;
use std::iter;
use std::ops::Range;

pub static BOX_WITH_NMS_LIMIT: Operation = Operation {
    ty: OperationType::BOX_WITH_NMS_LIMIT,
    doc: "the best boxes of each class in each image, after hard or soft non-maximum suppression",
    signatures: &[Signature::new(
        &[
            Row(3, &[TENSOR_FLOAT32, TENSOR_FLOAT32, FLOAT32]),
            Row(3, &[TENSOR_FLOAT16, TENSOR_FLOAT16, FLOAT16]),
            Row(3, &[TENSOR_QUANT8_ASYMM, TENSOR_QUANT16_ASYMM, FLOAT32]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED, TENSOR_QUANT16_ASYMM, FLOAT32]),
        ],
        &[
            var("scores", 0),
            var("roi", 1),
            is("batches", TENSOR_INT32),
            var("score_threshold", 2),
            int("max_detections"),
            int("kernel"),
            var("iou_threshold", 2),
            var("sigma", 2),
            var("nms_score_threshold", 2),
        ],
        &[var("scores", 0), var("roi", 1), is("classes", TENSOR_INT32), is("batches", TENSOR_INT32)],
    )],
    check: no_check,
    run: Run::Unshaped { eval },
};

/// How the score of a box decays by its overlap with a better one.
enum Kernel {
    Hard { threshold: f32 },
    Linear { threshold: f32 },
    Gaussian { sigma: f32 },
}

impl Kernel {
    fn new(args: &Args) -> Result<Self, OpError> {
        match args.i32(5)? {
            0 => Ok(Kernel::Hard { threshold: args.f32(6)? }),
            1 => Ok(Kernel::Linear { threshold: args.f32(6)? }),
            2 => Ok(Kernel::Gaussian { sigma: args.f32(7)? }),
            code => Err(OpError::failed(format!("input 5: {code} is not a suppression kernel (0 to 2)"))),
        }
    }

    /// What the score is multiplied by.
    fn decay(&self, overlap: f32) -> f32 {
        match *self {
            Kernel::Hard { threshold } | Kernel::Linear { threshold } if overlap < threshold => 1.0,
            Kernel::Hard { .. } => 0.0,
            Kernel::Linear { .. } => 1.0 - overlap,
            // Most boxes do not touch: an exponential that is 1 need not be computed.
            Kernel::Gaussian { sigma } if overlap == 0.0 && sigma > 0.0 => 1.0,
            Kernel::Gaussian { sigma } => (-overlap * overlap / sigma).exp(),
        }
    }
}

/// A box with its score so far.
#[derive(Clone, Copy)]
struct Candidate {
    score: f32,
    row: usize,
    class: usize,
    corners: Corners,
    area: f32,
}

struct Call<'a> {
    scores: &'a [f32],
    boxes: &'a [Corners],
    classes: usize,
    kernel: Kernel,
    score_threshold: f32,
    nms_score_threshold: f32,
    /// Most boxes of one image.
    limit: usize,
}

fn eval(args: &Args) -> Result<Vec<Computed>, OpError> {
    let (scores, roi, batches) = (args.get(0)?, args.get(1)?, args.get(2)?);
    let (rows, classes) = (scores.dim(0), scores.dim(1));
    ensure(scores.dims().len() == 2 && classes > 1, "the scores must be a matrix of 2 or more classes")?;
    ensure(
        roi.dims().len() == 2 && roi.dim(0) == rows && u64::from(roi.dim(1)) == 4 * u64::from(classes),
        "the boxes must be a matrix of 4 columns to each class",
    )?;
    ensure(batches.dims() == [rows], "input 2 must have a batch to each row of scores")?;
    ensure_eighths("boxes", roi.info)?;
    ensure_eighths("output boxes", args.output(1)?)?;
    let (scores, roi, batches) = (scores.reals()?, roi.reals()?, batches.elements::<i32>()?);
    let call = Call {
        scores: &scores,
        boxes: fours(&roi),
        classes: classes as usize,
        kernel: Kernel::new(args)?,
        score_threshold: args.f32(3)?,
        nms_score_threshold: args.f32(8)?,
        limit: usize::try_from(args.i32(4)?).unwrap_or(usize::MAX), // negative: no limit
    };
    let mut pace = Pace::new(args);
    ensure_all_ordered(call.boxes, &mut pace)?;
    let mut kept = reserved(0)?;
    let mut start = 0;
    // Boxes of one image stand together.
    while start < batches.len() {
        let mut end = start + 1;
        while batches.get(end) == Some(&batches[start]) {
            pace.spend(1)?;
            end += 1;
        }
        let image = call.image(start..end, &mut pace)?;
        kept.append(args.interrupt, image.iter().copied())?;
        start = end;
    }
    write(args, &call, &kept, batches)
}

fn write(args: &Args, call: &Call, kept: &[Candidate], batches: &[i32]) -> Result<Vec<Computed>, OpError> {
    let count = u32::try_from(kept.len()).map_err(|_| OpError::failed("too many boxes"))?;
    check_sizes(args.outputs, &[smallvec![count], smallvec![count, 4], smallvec![count], smallvec![count]])?;
    let scores = collected(args.interrupt, kept.iter().map(|c| c.score))?;
    let boxes = collected(args.interrupt, kept.iter().map(|c| call.boxes[c.row * call.classes + c.class]))?;
    let classes = collected(args.interrupt, kept.iter().map(|c| c.class as i32))?;
    let batches = collected(args.interrupt, kept.iter().map(|c| batches[c.row]))?;
    Ok(vec![
        outputs::reals(args, args.output(0)?, smallvec![count], &scores)?,
        outputs::reals(args, args.output(1)?, smallvec![count, 4], boxes.as_flattened())?,
        outputs::integers(args, args.output(2)?, smallvec![count], &classes)?,
        outputs::integers(args, args.output(3)?, smallvec![count], &batches)?,
    ])
}

impl Call<'_> {
    /// The boxes kept of one image's rows, by class and then by descending score.
    fn image(&self, rows: Range<usize>, pace: &mut Pace) -> Result<Scratch<Candidate>, OpError> {
        let mut kept = reserved(0)?;
        for class in 1..self.classes {
            pace.spend(32)?;
            let candidates = self.candidates(rows.clone(), class, pace)?;
            let best = match self.hard_threshold(&candidates, pace)? {
                Some(threshold) => self.suppress_hard(&candidates, threshold, pace)?,
                None => self.suppress(candidates, pace)?,
            };
            kept.append(pace.interrupt(), best.iter().copied())?;
        }
        sort(&mut kept, usize::MAX, pace, |a, b| b.score.total_cmp(&a.score))?;
        kept.truncate(self.limit);
        // The sort is stable: scores stay in order within a class.
        sort(&mut kept, usize::MAX, pace, |a, b| a.class.cmp(&b.class))?;
        Ok(kept)
    }

    /// The boxes of a class whose score is above the threshold.
    fn candidates(
        &self,
        rows: Range<usize>,
        class: usize,
        pace: &mut Pace,
    ) -> Result<Scratch<Candidate>, OpError> {
        let mut candidates = reserved(0)?;
        for row in rows {
            pace.spend(2)?;
            let cell = row * self.classes + class;
            if self.scores[cell] > self.score_threshold {
                let corners = self.boxes[cell];
                let (score, area) = (self.scores[cell], area(&corners));
                let candidate = Candidate { score, row, class, corners, area };
                candidates.append(pace.interrupt(), iter::once(candidate))?;
            }
        }
        Ok(candidates)
    }

    /// The threshold of overlaps where those of the kept decide all: no score is ever changed but to one that is dropped.
    fn hard_threshold(&self, candidates: &[Candidate], pace: &mut Pace) -> Result<Option<f32>, OpError> {
        let Kernel::Hard { threshold } = self.kernel else { return Ok(None) };
        let mut plain = self.nms_score_threshold > 0.0;
        pace.each(candidates, 1, |c| plain &= c.score > 0.0 && c.score.is_finite())?;
        Ok(plain.then_some(threshold))
    }

    /// What [`suppress`](Self::suppress) gives with a hard kernel, in fewer steps.
    fn suppress_hard(
        &self,
        candidates: &[Candidate],
        threshold: f32,
        pace: &mut Pace,
    ) -> Result<Scratch<Candidate>, OpError> {
        let score = |i: usize| candidates[i].score;
        let good = |&i: &usize| score(i) >= self.nms_score_threshold;
        let mut left = reserved(candidates.len())?;
        pace.each(0..candidates.len(), 2, |i| {
            if good(&i) {
                left.push(i);
            }
        })?;
        if left.is_empty() {
            // The best candidate is taken before any is dropped.
            let mut best = 0;
            pace.each(1..candidates.len(), 2, |i| best = if score(i) > score(best) { i } else { best })?;
            left.extend((!candidates.is_empty()).then_some(best));
        }
        let corners = |i: usize| &candidates[i].corners;
        let kept = suppress(left, score, corners, threshold, self.limit, pace)?;
        collected(pace.interrupt(), kept.iter().map(|&i| candidates[i]))
    }

    /// Takes the best candidate again and again, each time decaying the scores of those left.
    fn suppress(&self, mut left: Scratch<Candidate>, pace: &mut Pace) -> Result<Scratch<Candidate>, OpError> {
        let mut kept = reserved(0)?;
        while !left.is_empty() && kept.len() < self.limit {
            let mut at = 0;
            pace.each(1..left.len(), 2, |i| at = if left[i].score > left[at].score { i } else { at })?;
            let (best, mut count) = (left[at], 0);
            pace.each(0..left.len(), 16, |i| {
                let mut other = left[i];
                let overlap = overlap(&other.corners, other.area, &best.corners, best.area);
                other.score *= self.kernel.decay(overlap);
                // A score that is no number is not below the threshold.
                if i != at && (other.score >= self.nms_score_threshold || other.score.is_nan()) {
                    left[count] = other;
                    count += 1;
                }
            })?;
            left.truncate(count);
            kept.append(pace.interrupt(), iter::once(best))?;
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::scratch::copied;
    use crate::ops::testing::{call, f32s, float, i32s, int};
    use crate::tensor::TensorInfo;

    type Kept = (Vec<f32>, Vec<i32>, Vec<i32>);

    /// Three rows with background and two classes; in each class the first two boxes overlap by a half.
    fn nms(scores: [f32; 9], batches: [i32; 3], max: i32, kernel: i32) -> Result<Kept, OpError> {
        let row = |x: f32| [[0.0; 4], [x, 0.0, x + 2.0, 1.0], [x, 0.0, x + 2.0, 1.0]].concat();
        let roi = [row(0.0), row(2.0 / 3.0), row(10.0)].concat();
        let inputs = [
            f32s(&[3, 3], &scores),
            f32s(&[3, 12], &roi),
            i32s(&[3], &batches),
            float(0.1),
            int(max),
            int(kernel),
            float(0.4),
            float(0.5),
            float(0.2),
        ];
        let info = |ty| TensorInfo::new(ty, &[]);
        let outs = [info(TENSOR_FLOAT32), info(TENSOR_FLOAT32), info(TENSOR_INT32), info(TENSOR_INT32)];
        let out = call(&BOX_WITH_NMS_LIMIT, &inputs.map(Some), &outs)?;
        assert_eq!(out[1].dims[..], [out[0].dims[0], 4]);
        let ints = |i: usize| bytemuck::cast_slice(&out[i].data).to_vec();
        Ok((bytemuck::cast_slice(&out[0].data).to_vec(), ints(2), ints(3)))
    }

    const SCORES: [f32; 9] = [0.9, 0.8, 0.1, 0.9, 0.6, 0.3, 0.9, 0.5, 0.7];

    #[test]
    fn hard_kernel_drops_and_soft_ones_decay() {
        // Background never counts, 0.1 is not above the threshold of 0.1.
        assert_eq!(nms(SCORES, [0; 3], -1, 0), Ok((vec![0.8, 0.5, 0.7, 0.3], vec![1, 1, 2, 2], vec![0; 4])));
        let (scores, ..) = nms(SCORES, [0; 3], -1, 1).unwrap();
        assert!((scores[2] - 0.3).abs() < 1e-6, "0.6 decays to a half: {scores:?}");
        let (scores, ..) = nms(SCORES, [0; 3], -1, 2).unwrap();
        assert!((scores[2] - 0.6 * (-0.5f32).exp()).abs() < 1e-6, "{scores:?}");
        assert!(nms(SCORES, [0; 3], -1, 3).is_err());
    }

    #[test]
    fn limits_each_image_over_all_classes() {
        assert_eq!(nms(SCORES, [0; 3], 2, 0), Ok((vec![0.8, 0.7], vec![1, 2], vec![0, 0])));
        assert_eq!(nms(SCORES, [7, 7, 9], 1, 0), Ok((vec![0.8, 0.7], vec![1, 2], vec![7, 9])));
        assert_eq!(nms(SCORES, [0; 3], 0, 0), Ok((vec![], vec![], vec![])));
        assert_eq!(nms([0.0; 9], [0; 3], 5, 0), Ok((vec![], vec![], vec![])));
    }

    #[test]
    fn hard_suppression_gives_what_the_steps_of_any_kernel_give() {
        let interrupt = crate::ops::NeverInterrupted;
        let args = Args { signature_index: 0, inputs: &[], outputs: &[], interrupt: &interrupt };
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as f32
        };
        for nms_score_threshold in [0.1, 30.0, 300.0] {
            for (threshold, limit) in [(0.0, 50), (0.3, 50), (0.3, 4), (f32::NAN, 50), (0.9, 0)] {
                let candidates: Vec<_> = (0..40)
                    .map(|row| {
                        let [x, y] = [next(), next()];
                        let corners = [x, y, x + next() / 3.0, y + next() / 3.0];
                        let score = 1.0 + (next() / 8.0).floor() * 8.0;
                        Candidate { score, row, class: 1, corners, area: area(&corners) }
                    })
                    .collect();
                let kernel = Kernel::Hard { threshold };
                let call = Call {
                    scores: &[],
                    boxes: &[],
                    classes: 2,
                    kernel,
                    score_threshold: 0.0,
                    nms_score_threshold,
                    limit,
                };
                let pace = &mut Pace::new(&args);
                assert!(call.hard_threshold(&candidates, pace).unwrap().is_some());
                let told =
                    |kept: Scratch<Candidate>| -> Vec<_> { kept.iter().map(|c| (c.row, c.score)).collect() };
                let hard = told(call.suppress_hard(&candidates, threshold, pace).unwrap());
                assert_eq!(
                    hard,
                    told(call.suppress(copied(&interrupt, &candidates).unwrap(), pace).unwrap()),
                    "{threshold} {limit}"
                );
            }
        }
    }
}
