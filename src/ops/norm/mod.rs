//! Normalisations: operations that rescale each lane, window or plane of a tensor by its own statistics.

mod instance;
mod l2;
mod lanes;
mod local_response;
mod log_softmax;
mod softmax;

pub use instance::INSTANCE_NORMALIZATION;
pub use l2::{L2_NORMALIZATION, SHORTEST};
pub use lanes::Lanes;
pub use local_response::LOCAL_RESPONSE_NORMALIZATION;
pub use log_softmax::LOG_SOFTMAX;
pub use softmax::SOFTMAX;

use super::OpError;
use crate::tensor::TensorInfo;

/// Refuses a quantised output whose scale and zero point are not those the interface fixes for its type.
fn fixed_quantisation(output: &TensorInfo, scale: f32, zero_point: i32) -> Result<(), OpError> {
    if output.ty.is_float() || (output.scale == scale && output.zero_point == zero_point) {
        return Ok(());
    }
    Err(OpError::failed(format!(
        "the output has scale {} and zero point {}; this operation gives scale {scale} and zero point {zero_point}",
        output.scale, output.zero_point
    )))
}
