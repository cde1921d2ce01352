//! Bounding boxes: what is valid, how much two overlap, and suppression of those that overlap a better one.

use crate::ops::pace::Pace;
use crate::ops::scratch::{reserved, Scratch};
use crate::ops::sort::sort;
use crate::ops::{Arg, Interrupt, OpError};
use crate::tensor::{OperandType, TensorInfo};
use std::iter;

/// Two opposite corners, `[x1, y1, x2, y2]` or `[y1, x1, y2, x2]`: the measures here are the same for both.
pub type Corners = [f32; 4];

/// Refuses `ok == false`, saying what must hold.
pub fn ensure(ok: bool, rule: &str) -> Result<(), OpError> {
    if ok {
        Ok(())
    } else {
        Err(OpError::failed(rule))
    }
}

/// Refuses quantised coordinates in other units than the eighths of a pixel that the interface fixes.
pub fn ensure_eighths(what: &str, info: &TensorInfo) -> Result<(), OpError> {
    let quantised = matches!(info.ty, OperandType::TENSOR_QUANT16_ASYMM | OperandType::TENSOR_QUANT16_SYMM);
    let ok = !quantised || (info.scale == 0.125 && info.zero_point == 0);
    ensure(ok, &format!("{what} must have scale 0.125 and zero point 0"))
}

/// Refuses corners that are not top left and bottom right, or not numbers.
pub fn ensure_ordered(&[x1, y1, x2, y2]: &Corners) -> Result<(), OpError> {
    if x1 <= x2 && y1 <= y2 {
        return Ok(());
    }
    Err(OpError::failed(format!("a box from ({x1}, {y1}) to ({x2}, {y2}) is inside out")))
}

/// The elements of a tensor in fours.
pub fn fours(values: &[f32]) -> &[Corners] {
    values.as_chunks().0
}

/// Refuses boxes of which one is inside out.
pub fn ensure_all_ordered(boxes: &[Corners], pace: &mut Pace) -> Result<(), OpError> {
    boxes.iter().try_for_each(|corners| {
        pace.spend(4)?;
        ensure_ordered(corners)
    })
}

/// The values of an INT32 tensor as indices below `count`.
pub fn indices(arg: &Arg, count: usize, pace: &mut Pace) -> Result<Scratch<usize>, OpError> {
    let values = arg.elements::<i32>()?;
    let mut indices = reserved(values.len())?;
    for &i in values {
        pace.spend(2)?;
        let index = usize::try_from(i).ok().filter(|&i| i < count);
        indices.push(index.ok_or_else(|| {
            OpError::failed(format!("batch {i} of a box is out of range, there are {count}"))
        })?);
    }
    Ok(indices)
}

/// What two corners enclose.
pub fn area(c: &Corners) -> f32 {
    (c[2] - c[0]) * (c[3] - c[1])
}

/// Intersection over union of boxes with these areas; 0 where the union is empty.
#[inline(always)]
pub fn overlap(a: &Corners, area_of_a: f32, b: &Corners, area_of_b: f32) -> f32 {
    let side = |i: usize| (a[i + 2].min(b[i + 2]) - a[i].max(b[i])).max(0.0);
    let intersection = side(0) * side(1);
    let union = area_of_a + area_of_b - intersection;
    if union > 0.0 {
        intersection / union
    } else {
        0.0
    }
}

/// A box moved and scaled by deltas `[dx, dy, dw, dh]`, then cut to an image of `[height, width]`.
pub fn transform(
    &[x1, y1, x2, y2]: &Corners,
    &[dx, dy, dw, dh]: &Corners,
    [height, width]: [f32; 2],
) -> Corners {
    let (w, h) = (x2 - x1, y2 - y1);
    let (x, y) = ((x1 + x2) / 2.0 + dx * w, (y1 + y2) / 2.0 + dy * h);
    let (w, h) = (dw.exp() * w / 2.0, dh.exp() * h / 2.0);
    let cut = |x: f32, size: f32| x.max(0.0).min(size);
    [cut(x - w, width), cut(y - h, height), cut(x + w, width), cut(y + h, height)]
}

/// Boxes that are compared with one at once.
const BLOCK: usize = 8;
/// Blocks compared between two notes of the work done.
const BLOCKS: usize = 1 << 9;

/// Boxes that were kept, laid out for many comparisons: by blocks, in each of which those of a kind stand side by side.
struct Kept {
    /// The four corners, and the area.
    blocks: Scratch<[[f32; BLOCK]; 5]>,
    len: usize,
}

impl Kept {
    fn push(&mut self, interrupt: &dyn Interrupt, corners: &Corners) -> Result<(), OpError> {
        if self.len.is_multiple_of(BLOCK) {
            self.blocks.append(interrupt, iter::once([[0.0; BLOCK]; 5]))?;
        }
        if let Some(block) = self.blocks.last_mut() {
            let values = corners.iter().copied().chain([area(corners)]);
            block.iter_mut().zip(values).for_each(|(all, value)| all[self.len % BLOCK] = value);
        }
        self.len += 1;
        Ok(())
    }

    /// Whether the overlap with each of them is below `threshold`.
    fn are_apart_from(&self, corners: &Corners, threshold: f32, pace: &mut Pace) -> Result<bool, OpError> {
        let area = area(corners);
        let is_apart = |first: usize, [x1, y1, x2, y2, areas]: &[[f32; BLOCK]; 5]| {
            let apart: [bool; BLOCK] = std::array::from_fn(|i| {
                overlap(corners, area, &[x1[i], y1[i], x2[i], y2[i]], areas[i]) < threshold
            });
            apart[..BLOCK.min(self.len - first)].iter().all(|&apart| apart)
        };
        for (stretch, blocks) in self.blocks.chunks(BLOCKS).enumerate() {
            pace.spend(16 * BLOCK * blocks.len())?;
            let firsts = (stretch * BLOCKS * BLOCK..).step_by(BLOCK);
            if !firsts.zip(blocks).all(|(first, block)| is_apart(first, block)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Greedy non-maximum suppression: of `candidates`, by descending score, those that overlap no better one by
/// `threshold` or more; at most `limit`.
pub fn suppress<'b>(
    mut candidates: Scratch<usize>,
    score: impl Fn(usize) -> f32,
    corners: impl Fn(usize) -> &'b Corners,
    threshold: f32,
    limit: usize,
    pace: &mut Pace,
) -> Result<Scratch<usize>, OpError> {
    sort_descending(&mut candidates, &score, pace)?;
    let (mut kept, mut boxes) = (reserved(0)?, Kept { blocks: reserved(0)?, len: 0 });
    for &candidate in &*candidates {
        if kept.len() >= limit {
            break;
        }
        pace.spend(4)?;
        if boxes.are_apart_from(corners(candidate), threshold, pace)? {
            boxes.push(pace.interrupt(), corners(candidate))?;
            kept.append(pace.interrupt(), iter::once(candidate))?;
        }
    }
    Ok(kept)
}

/// Sorts by descending score; equals stay in order.
pub fn sort_descending(
    items: &mut Vec<usize>,
    score: impl Fn(usize) -> f32,
    pace: &mut Pace,
) -> Result<(), OpError> {
    sort(items, usize::MAX, pace, |&a, &b| score(b).total_cmp(&score(a)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::scratch::copied;
    use crate::ops::testing::Counting;
    use crate::ops::{Args, NeverInterrupted};

    #[test]
    fn overlap_is_intersection_over_union() {
        let overlap = |a: &Corners, b: &Corners| overlap(a, area(a), b, area(b));
        assert_eq!(overlap(&[0.0, 0.0, 2.0, 2.0], &[1.0, 0.0, 3.0, 2.0]), 2.0 / 6.0);
        assert_eq!(overlap(&[0.0, 0.0, 1.0, 1.0], &[1.0, 1.0, 2.0, 2.0]), 0.0);
        assert_eq!(overlap(&[1.0; 4], &[1.0; 4]), 0.0);
        assert_eq!(overlap(&[f32::NAN; 4], &[f32::INFINITY; 4]), 0.0);
    }

    #[test]
    fn transforms_about_the_centre_and_cuts() {
        let moved = transform(&[2.0, 2.0, 4.0, 6.0], &[0.5, -0.25, 0.0, 2f32.ln()], [100.0, 4.5]);
        assert_eq!(moved, [3.0, 0.0, 4.5, 7.0]);
        assert_eq!(transform(&[1.0; 4], &[f32::NAN; 4], [2.0, 2.0]), [0.0; 4]);
    }

    #[test]
    fn suppresses_the_worse_of_two() {
        let boxes = [[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9], [5.0, 5.0, 6.0, 6.0], [5.0, 5.0, 6.0, 6.1]];
        let scores = [0.5, 0.9, 0.7, 0.7];
        let args = Args { signature_index: 0, inputs: &[], outputs: &[], interrupt: &NeverInterrupted };
        let kept = |threshold, limit| {
            suppress(
                copied(&NeverInterrupted, &[0, 1, 2, 3]).unwrap(),
                |i| scores[i],
                |i| &boxes[i],
                threshold,
                limit,
                &mut Pace::new(&args),
            )
            .unwrap()
        };
        assert_eq!(*kept(0.5, usize::MAX), [1, 2]);
        assert_eq!(*kept(1.0, usize::MAX), [1, 2, 3, 0]);
        assert_eq!(*kept(0.5, 1), [1]);
    }

    #[test]
    fn others_have_their_turns_while_one_box_is_compared_with_very_many() {
        let interrupt = Counting::default();
        let pace = &mut Pace::of(&interrupt);
        let mut kept = Kept { blocks: reserved(0).unwrap(), len: 0 };
        for i in 0..1 << 18 {
            kept.push(&interrupt, &[i as f32, 0.0, i as f32 + 1.0, 1.0]).unwrap();
        }
        interrupt.take();
        assert_eq!(kept.are_apart_from(&[-2.0, 0.0, -1.0, 1.0], 0.5, pace), Ok(true));
        assert!(interrupt.take() >= 32);
        let last = (1 << 18) as f32 - 1.0;
        assert_eq!(kept.are_apart_from(&[last, 0.0, last + 1.0, 1.0], 0.5, pace), Ok(false));
    }

    #[test]
    fn inside_out_boxes_are_refused() {
        assert!(ensure_ordered(&[1.0, 0.0, 1.0, 0.0]).is_ok());
        for bad in [[1.0, 0.0, 0.5, 0.0], [0.0, 1.0, 1.0, 0.0], [f32::NAN, 0.0, 1.0, 1.0]] {
            assert!(ensure_ordered(&bad).is_err());
        }
    }

    #[test]
    fn suppression_is_that_of_pairs() {
        use crate::ops::scratch::collected;
        let interrupted = crate::ops::NeverInterrupted;
        let args =
            crate::ops::Args { signature_index: 0, inputs: &[], outputs: &[], interrupt: &interrupted };
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as f32
        };
        for (threshold, limit) in [(0.0, 100), (0.3, 100), (0.3, 9), (1.0, 100), (f32::NAN, 100), (0.5, 0)] {
            let mut boxes: Vec<Corners> = (0..90).map(|_| [next(), next(), next(), next()]).collect();
            boxes.iter_mut().for_each(|b| (b[2], b[3]) = (b[0] + b[2] / 3.0, b[1] + b[3] / 3.0));
            boxes[40] = [f32::NAN; 4];
            let scores: Vec<f32> = (0..90).map(|_| (next() / 4.0).floor()).collect();
            let mut order = collected(&interrupted, 0..90).unwrap();
            let all = collected(&interrupted, 0..90).unwrap();
            sort_descending(&mut order, |i| scores[i], &mut Pace::new(&args)).unwrap();
            let mut expected: Vec<usize> = Vec::new();
            for &i in &*order {
                let apart =
                    |&j: &usize| overlap(&boxes[i], area(&boxes[i]), &boxes[j], area(&boxes[j])) < threshold;
                if expected.len() < limit && expected.iter().all(apart) {
                    expected.push(i);
                }
            }
            let pace = &mut Pace::new(&args);
            let kept = suppress(all, |i| scores[i], |i| &boxes[i], threshold, limit, pace);
            assert_eq!(*kept.unwrap(), expected, "{threshold} {limit}");
        }
    }
}
