//! Object detection: operations on bounding boxes, and on the regions of feature maps that boxes cut out.

mod align;
mod bbox_transform;
mod box_with_nms_limit;
mod boxes;
mod generate_proposals;
mod heatmap_max_keypoint;
#[cfg(test)]
mod hostile_tests;
mod image;
mod outputs;
mod pooling;
mod postprocessing;
mod regions;

pub use align::{Axis, ROI_ALIGN};
pub use bbox_transform::AXIS_ALIGNED_BBOX_TRANSFORM;
pub use box_with_nms_limit::BOX_WITH_NMS_LIMIT;
pub use generate_proposals::GENERATE_PROPOSALS;
pub use heatmap_max_keypoint::HEATMAP_MAX_KEYPOINT;
pub use image::Image;
pub use pooling::{cell, ROI_POOLING};
pub use postprocessing::DETECTION_POSTPROCESSING;
pub use regions::{scaled, Region, Scales};
