//! Images resized.
//!
//! A backend with fast kernels reads a call through [`ResizeGeometry`]; only the loops are its own.

mod bilinear;
mod geometry;
mod nearest;

pub use bilinear::{Blend, RESIZE_BILINEAR};
pub use geometry::{ResizeGeometry, LINES};
pub use nearest::RESIZE_NEAREST_NEIGHBOR;

use super::signature::{boolean, var, Slot};

/// Inputs of both operations; sizes are integers, or factors of the input's sizes.
const INPUTS: &[Slot] = &[
    var("input", 0),
    var("width or its factor", 1),
    var("height or its factor", 1),
    boolean("nchw"),
    boolean("align corners"),
    boolean("half pixel centers"),
];

const OUTPUTS: &[Slot] = &[var("output", 0)];
