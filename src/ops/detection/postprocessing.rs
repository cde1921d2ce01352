//! DETECTION_POSTPROCESSING: boxes decoded from anchors, suppressed, and the best of them by class.

use super::boxes::{ensure, fours, sort_descending, suppress, Corners};
use crate::ops::pace::Pace;
use crate::ops::scratch::{collected, filled, reserved, Scratch};
use crate::ops::signature::{boolean, int, is, var, Row};
use crate::ops::{no_check, Args, OpError, Operation, OperationType, Out, Run, Shapes, Signature};
use crate::tensor::OperandType::*;
use smallvec::smallvec;

pub static DETECTION_POSTPROCESSING: Operation = Operation {
    ty: OperationType::DETECTION_POSTPROCESSING,
    doc: "boxes decoded from anchors and deltas, suppressed by overlap, with classes and scores",
    signatures: &[Signature::new(
        &[Row(3, &[TENSOR_FLOAT32, FLOAT32]), Row(3, &[TENSOR_FLOAT16, FLOAT16])],
        &[
            var("scores", 0),
            var("deltas", 0),
            var("anchors", 0),
            var("scale_y", 1),
            var("scale_x", 1),
            var("scale_h", 1),
            var("scale_w", 1),
            boolean("regular_nms"),
            int("max_detections"),
            int("max_classes_per_detection"),
            int("max_detections_per_class"),
            var("score_threshold", 1),
            var("iou_threshold", 1),
            boolean("background_in_label"),
        ],
        &[var("scores", 0), var("boxes", 0), is("classes", TENSOR_INT32), is("detections", TENSOR_INT32)],
    )],
    check: no_check,
    run: Run::Shaped { shapes, eval },
};

/// The value of an INT32 scalar that must be positive.
fn positive(args: &Args, i: usize) -> Result<u32, OpError> {
    let value = args.i32(i)?;
    u32::try_from(value)
        .ok()
        .filter(|&n| n > 0)
        .ok_or_else(|| OpError::failed(format!("input {i} is {value}, it must be greater than 0")))
}

fn shapes(args: &Args) -> Shapes {
    let (scores, deltas, anchors) = (args.get(0)?, args.get(1)?, args.get(2)?);
    let &[batches, boxes, classes] = scores.dims() else {
        return Err(OpError::failed("the scores must have rank 3: batches, anchors, classes"));
    };
    ensure(classes > 1, "there must be a class beside the background")?;
    ensure(deltas.dims() == [batches, boxes, deltas.dim(2)], "the deltas do not fit the scores")?;
    ensure(deltas.dim(2) >= 4, "there must be at least 4 deltas to a box")?;
    ensure(anchors.dims() == [boxes, 4], "there must be 4 values to each anchor")?;
    for i in 3..=6 {
        ensure(args.f32(i)? > 0.0, "scales must be greater than 0")?;
    }
    for i in 11..=12 {
        ensure(args.f32(i)? >= 0.0, "thresholds must not be negative")?;
    }
    let mut rows = positive(args, 8)?;
    if args.bool(7)? {
        positive(args, 10)?;
    } else {
        rows = rows.checked_mul(positive(args, 9)?).ok_or_else(|| OpError::failed("too many detections"))?;
    }
    Ok(vec![
        smallvec![batches, rows],
        smallvec![batches, rows, 4],
        smallvec![batches, rows],
        smallvec![batches],
    ])
}

/// What is the same for all images.
struct Call {
    classes: usize,
    score_threshold: f32,
    iou_threshold: f32,
    max_detections: usize,
    max_classes_per_detection: usize,
    /// `None`: suppression once, on the best class of each box.
    max_detections_per_class: Option<usize>,
}

/// A detection: index of the box, class.
type Detection = (usize, usize);

fn eval(args: &Args, outs: &mut [Out]) -> Result<(), OpError> {
    let (scores, deltas, anchors) = (args.get(0)?, args.get(1)?, args.get(2)?);
    let (box_count, classes, length) =
        (scores.dim(1) as usize, scores.dim(2) as usize, deltas.dim(2) as usize);
    let count = |i| Ok::<_, OpError>(args.i32(i)?.max(0) as usize);
    let call = Call {
        classes,
        score_threshold: args.f32(11)?,
        iou_threshold: args.f32(12)?,
        max_detections: count(8)?,
        max_classes_per_detection: count(9)?,
        max_detections_per_class: if args.bool(7)? { Some(count(10)?) } else { None },
    };
    let scales = [args.f32(3)?, args.f32(4)?, args.f32(5)?, args.f32(6)?];
    let first_label = usize::from(!args.bool(13)?);
    let (scores, deltas, anchors) = (scores.floats()?, deltas.floats()?, anchors.floats()?);
    if box_count == 0 {
        return Ok(()); // all outputs are 0 as they are, and there may be very many classes
    }
    let rows = outs[0].dims()[1] as usize;
    let batches = outs[0].dims()[0] as usize;
    let mut out_scores = filled(args.interrupt, 0f32, batches * rows)?;
    let mut out_boxes = filled(args.interrupt, 0f32, batches * rows * 4)?;
    let mut out_classes = filled(args.interrupt, 0i32, batches * rows)?;
    let mut pace = Pace::new(args);
    for batch in 0..batches {
        pace.spend(64)?;
        let scores = &scores[batch * box_count * classes..][..box_count * classes];
        let deltas = &deltas[batch * box_count * length..][..box_count * length];
        let decoded = fours(&anchors).iter().zip(deltas.chunks_exact(length));
        let boxes = collected(args.interrupt, decoded.map(|(a, d)| decode(a, d, scales)))?;
        let detections = call.image(scores, &boxes, &mut pace)?;
        for (row, &(i, class)) in detections.iter().enumerate() {
            pace.spend(16)?;
            let at = batch * rows + row;
            out_scores[at] = scores[i * classes + class];
            out_boxes[4 * at..4 * at + 4].copy_from_slice(&boxes[i]);
            out_classes[at] = (class - first_label) as i32;
        }
        outs[3].elements::<i32>()?[batch] = detections.len() as i32;
    }
    outs[0].store_floats(args.interrupt, &out_scores)?;
    outs[1].store_floats(args.interrupt, &out_boxes)?;
    outs[2].store_integers(args.interrupt, &out_classes)
}

/// Corners `[y1, x1, y2, x2]` of an anchor `[y, x, h, w]` (centre and size) moved and scaled by deltas in that order.
fn decode(&[y, x, h, w]: &Corners, deltas: &[f32], scales: [f32; 4]) -> Corners {
    let (y, x) = (y + h * deltas[0] / scales[0], x + w * deltas[1] / scales[1]);
    let (h, w) = (h * (deltas[2] / scales[2]).exp() / 2.0, w * (deltas[3] / scales[3]).exp() / 2.0);
    [y - h, x - w, y + h, x + w]
}

impl Call {
    fn image(
        &self,
        scores: &[f32],
        boxes: &[Corners],
        pace: &mut Pace,
    ) -> Result<Scratch<Detection>, OpError> {
        match self.max_detections_per_class {
            Some(limit) => self.suppress_by_class(scores, boxes, limit, pace),
            None => self.suppress_once(scores, boxes, pace),
        }
    }

    /// Those of `count` whose score is above the threshold.
    fn candidates(
        &self,
        count: usize,
        score: impl Fn(usize) -> f32,
        pace: &mut Pace,
    ) -> Result<Scratch<usize>, OpError> {
        let mut candidates = reserved(count)?;
        pace.each(0..count, 2, |i| {
            if score(i) > self.score_threshold {
                candidates.push(i);
            }
        })?;
        Ok(candidates)
    }

    /// Suppression within each class, then the best of all classes. Class 0 is the background and never detected.
    fn suppress_by_class(
        &self,
        scores: &[f32],
        boxes: &[Corners],
        limit: usize,
        pace: &mut Pace,
    ) -> Result<Scratch<Detection>, OpError> {
        let mut kept = reserved(0)?;
        for class in 1..self.classes {
            pace.spend(32)?;
            let cell = |i: usize| i * self.classes + class;
            let candidates = self.candidates(boxes.len(), |i| scores[cell(i)], pace)?;
            let best =
                suppress(candidates, |i| scores[cell(i)], |i| &boxes[i], self.iou_threshold, limit, pace)?;
            kept.append(pace.interrupt(), best.iter().map(|&i| cell(i)))?;
        }
        sort_descending(&mut kept, |cell| scores[cell], pace)?;
        kept.truncate(self.max_detections);
        collected(pace.interrupt(), kept.iter().map(|cell| (cell / self.classes, cell % self.classes)))
    }

    /// Suppression by the best class of each box, then the best classes of each box that is left.
    fn suppress_once(
        &self,
        scores: &[f32],
        boxes: &[Corners],
        pace: &mut Pace,
    ) -> Result<Scratch<Detection>, OpError> {
        let mut best = reserved(boxes.len())?;
        for scores in scores.chunks_exact(self.classes) {
            let mut greatest = f32::NEG_INFINITY;
            pace.each(&scores[1..], 1, |&score| greatest = greatest.max(score))?;
            best.push(greatest);
        }
        let candidates = self.candidates(boxes.len(), |i| best[i], pace)?;
        let kept =
            suppress(candidates, |i| best[i], |i| &boxes[i], self.iou_threshold, self.max_detections, pace)?;
        let mut detections = reserved(0)?;
        for &i in kept.iter() {
            pace.spend(64)?;
            let mut classes = collected(pace.interrupt(), 1..self.classes)?;
            sort_descending(&mut classes, |class| scores[i * self.classes + class], pace)?;
            let first = classes.iter().take(self.max_classes_per_detection);
            detections.append(pace.interrupt(), first.map(|&class| (i, class)))?;
        }
        Ok(detections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{boolean, call, f32s, float, int};
    use crate::tensor::TensorInfo;

    struct Result4 {
        scores: Vec<f32>,
        boxes: Vec<f32>,
        classes: Vec<i32>,
        counts: Vec<i32>,
    }

    /// Three anchors, the first two the same, with two classes beside the background.
    fn detect(regular: bool, limits: [i32; 3], background: bool) -> Result<Result4, OpError> {
        let inputs = [
            f32s(&[1, 3, 3], &[0.9, 0.8, 0.1, 0.9, 0.7, 0.6, 0.9, 0.3, 0.5]),
            f32s(&[1, 3, 5], &[0.0, 0.0, 0.0, 0.0, 9.0].repeat(3)),
            f32s(&[3, 4], &[1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0, 10.0, 20.0, 2.0, 4.0]),
            float(10.0),
            float(10.0),
            float(5.0),
            float(5.0),
            boolean(regular),
            int(limits[0]),
            int(limits[1]),
            int(limits[2]),
            float(0.2),
            float(0.5),
            boolean(background),
        ];
        let info = |ty| TensorInfo::new(ty, &[]);
        let outs = [info(TENSOR_FLOAT32), info(TENSOR_FLOAT32), info(TENSOR_INT32), info(TENSOR_INT32)];
        let out = call(&DETECTION_POSTPROCESSING, &inputs.map(Some), &outs)?;
        Ok(Result4 {
            scores: bytemuck::cast_slice(&out[0].data).to_vec(),
            boxes: bytemuck::cast_slice(&out[1].data).to_vec(),
            classes: bytemuck::cast_slice(&out[2].data).to_vec(),
            counts: bytemuck::cast_slice(&out[3].data).to_vec(),
        })
    }

    #[test]
    fn suppresses_once_and_lists_the_best_classes() {
        let out = detect(false, [3, 2, 0], false).unwrap();
        assert_eq!(out.scores, [0.8, 0.1, 0.5, 0.3, 0.0, 0.0]);
        assert_eq!((out.classes, out.counts), (vec![0, 1, 1, 0, 0, 0], vec![4]));
        assert_eq!(out.boxes[8..12], [9.0, 18.0, 11.0, 22.0]);
    }

    #[test]
    fn suppresses_each_class_and_lists_the_best_boxes() {
        let out = detect(true, [3, 0, 9], true).unwrap();
        assert_eq!(out.scores, [0.8, 0.6, 0.5]);
        assert_eq!((out.classes, out.counts), (vec![1, 2, 2], vec![3]));
        assert_eq!(detect(true, [4, 0, 1], false).unwrap().counts, [2]);
    }

    #[test]
    fn refuses_limits_that_are_not_positive() {
        assert!(detect(false, [0, 1, 1], false).is_err());
        assert!(detect(false, [1, -1, 1], false).is_err());
        assert!(detect(true, [1, 1, 0], false).is_err());
        assert!(detect(false, [i32::MAX, i32::MAX, 1], false).is_err());
    }
}
