//! TFLite_Detection_PostProcess, the custom operator that ends networks which find things: NNAPI has it under another name.

use super::call::{dims, Call, Mapped};
use super::elementwise::like;
use super::error::Refusal;
use super::flexbuffer::Map;
use super::graph::{Operator, Tensor};
use crate::client::builder::OperandIndex;
use crate::ops::OperationType;
use crate::tensor::{OperandType, TensorInfo};

pub const NAME: &str = "custom TFLite_Detection_PostProcess";

/// What the operator is told.
struct Detection {
    most: u32,
    classes_each: u32,
    per_class: u32,
    by_class: bool,
    score: f32,
    overlap: f32,
    classes: u32,
    /// Of y, x, height and width.
    scales: [f32; 4],
}

impl Detection {
    fn read(custom: &[u8]) -> Result<Self, Refusal> {
        let map = Map::read(custom).ok_or("its options are damaged")?;
        let real =
            |name: &str| map.number(name).ok_or_else(|| Refusal(format!("its option {name} is missing")));
        let count = |name: &str| match real(name)? {
            value if (1.0..1e6).contains(&value) => Ok(value as u32),
            value => Err(Refusal(format!("its option {name} is {value}"))),
        };
        Ok(Detection {
            most: count("max_detections")?,
            classes_each: count("max_classes_per_detection")?,
            per_class: count("detections_per_class").unwrap_or(100),
            by_class: map.number("use_regular_nms").is_some_and(|flag| flag != 0.0),
            score: real("nms_score_threshold")? as f32,
            overlap: real("nms_iou_threshold")? as f32,
            classes: count("num_classes")?,
            scales: [
                real("y_scale")? as f32,
                real("x_scale")? as f32,
                real("h_scale")? as f32,
                real("w_scale")? as f32,
            ],
        })
    }

    /// How many detections come out, some of which may be none.
    fn rows(&self) -> u32 {
        self.most.saturating_mul(self.classes_each)
    }

    /// How many of them NNAPI makes: the others stay empty.
    fn made(&self) -> u32 {
        if self.by_class {
            self.most
        } else {
            self.rows()
        }
    }

    /// How many boxes there are among so many detections: NNAPI counts each class of a box.
    fn boxes(&self, call: &mut Call, detections: OperandIndex) -> OperandIndex {
        if self.by_class || self.classes_each == 1 {
            return detections;
        }
        let each = call.builder().ints(&[1], &[self.classes_each as i32]);
        let none = call.builder().int(0);
        let boxes = like(call, detections);
        call.emit(OperationType::DIV, &[detections, each, none], &[boxes]);
        boxes
    }

    /// NNAPI takes scores above the threshold and drops overlaps that reach theirs; here a score may be equal to the threshold,
    /// and so may an overlap. No float lies between a threshold and the next.
    fn thresholds(&self) -> [f32; 2] {
        // NNAPI takes no negative ones: a score of 0 is never above 0.
        let score = if self.score > 0.0 { self.score.next_down() } else { self.score };
        [score, self.overlap.next_up()]
    }
}

/// Gives the operator's outputs their dimensions, which files often leave out: boxes, classes, scores and how many.
pub fn set_dims(tensors: &mut [Tensor], operator: &Operator) {
    let Ok(detection) = Detection::read(&operator.custom) else { return };
    let rows = detection.rows();
    for (&output, dims) in
        operator.outputs.iter().zip([vec![1, rows, 4], vec![1, rows], vec![1, rows], vec![1]])
    {
        tensors[output].dims = dims;
    }
}

/// Inputs: boxes as differences from anchors, the classes' scores, and anchors.
pub fn postprocess(call: &mut Call) -> Mapped {
    let detection = Detection::read(&call.operator.custom)?;
    let score_dims = dims(call.tensor(1)?)?;
    let [batches, boxes, classes] = score_dims[..] else {
        return Err(format!("scores of {score_dims:?}, expected three dimensions").into());
    };
    if !detection.by_class && detection.classes_each > detection.classes {
        let (each, all) = (detection.classes_each, detection.classes);
        return Err(format!("rows for {each} classes of each box, of which there are {all}").into());
    }
    let (deltas, mut scores, anchors) = (call.float_input(0)?, call.float_input(1)?, call.float_input(2)?);
    match classes.checked_sub(detection.classes) {
        Some(1) => {}
        // NNAPI takes the first class for the background: here it is one that no box has.
        Some(0) => {
            let paddings = call.builder().ints(&[3, 2], &[0, 0, 0, 0, 1, 0]);
            let padded = call.temporary_like(scores, &[batches, boxes, classes + 1]);
            call.emit(OperationType::PAD, &[scores, paddings], &[padded]);
            scores = padded;
        }
        _ => return Err(format!("scores of {classes} classes, expected {}", detection.classes).into()),
    }
    let mut operands = vec![scores, deltas, anchors];
    operands.extend(detection.scales.map(|scale| call.builder().float(scale)));
    operands.push(call.builder().boolean(detection.by_class));
    let counts = [detection.most, detection.classes_each, detection.per_class];
    operands.extend(counts.map(|count| call.builder().int(count as i32)));
    operands.extend(detection.thresholds().map(|threshold| call.builder().float(threshold)));
    operands.push(call.builder().boolean(false)); // classes count without the background
    let [boxes, classes, scores] = [0, 1, 2].map(|i| rows(call, i, detection.made()));
    let (boxes, classes, scores, count) = (boxes?, classes?, scores?, call.output(3)?);
    // Classes and the count are whole numbers in NNAPI, but floats here.
    let mut whole = |dims: &[u32]| call.builder().temporary(TensorInfo::new(OperandType::TENSOR_INT32, dims));
    let (whole_classes, whole_count) = (whole(&[batches, detection.made()]), whole(&[batches]));
    let outputs = [scores.made, boxes.made, whole_classes, whole_count];
    call.emit(OperationType::DETECTION_POSTPROCESSING, &operands, &outputs);
    call.emit(OperationType::CAST, &[whole_classes], &[classes.made]);
    let whole_boxes = detection.boxes(call, whole_count);
    call.emit(OperationType::CAST, &[whole_boxes], &[count]);
    for rows in [boxes, classes, scores] {
        rows.pad(call);
    }
    Ok(())
}

/// Rows of detections, and the output that they are the first of.
struct Rows {
    made: OperandIndex,
    output: OperandIndex,
}

/// So many rows of output `i`.
fn rows(call: &mut Call, i: usize, count: u32) -> Result<Rows, Refusal> {
    let output = call.output(i)?;
    let mut dims = call.builder().info(output).dims.clone();
    match dims.get_mut(1) {
        Some(rows) if *rows > count => {
            *rows = count;
            Ok(Rows { made: call.temporary_like(output, &dims), output })
        }
        _ => Ok(Rows { made: output, output }),
    }
}

impl Rows {
    /// Emits what puts empty rows behind, where there are to be more.
    fn pad(self, call: &mut Call) {
        let [made, whole] = [self.made, self.output].map(|i| call.builder().info(i).dims.clone());
        if made == whole {
            return;
        }
        let behind = made.iter().zip(&whole).flat_map(|(few, all)| [0, (all - few) as i32]);
        let paddings: Vec<i32> = behind.collect();
        let paddings = call.builder().ints(&[whole.len() as u32, 2], &paddings);
        call.emit(OperationType::PAD, &[self.made, paddings], &[self.output]);
    }
}
