//! No detection operation panics, whatever its operands hold.

use super::*;
use crate::ops::hostile::{storm, Random};

#[test]
fn survives_hostile_operands() {
    let all = [
        &AXIS_ALIGNED_BBOX_TRANSFORM,
        &BOX_WITH_NMS_LIMIT,
        &DETECTION_POSTPROCESSING,
        &GENERATE_PROPOSALS,
        &HEATMAP_MAX_KEYPOINT,
        &ROI_ALIGN,
        &ROI_POOLING,
    ];
    for (seed, operation) in all.into_iter().enumerate() {
        let succeeded = storm(operation, 10_000, &mut Random::new(seed as u64 + 1));
        println!("{}: {succeeded}", operation.ty);
    }
}
