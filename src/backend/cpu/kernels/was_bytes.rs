//! The stamp of tensors of floats that were bytes before they were dequantised.
//!
//! A tensor of floats has no scale. One that has was bytes, of that scale or of one for each of its rows, and a product may be made of
//! these: that is how its kernel knows, also of a model that was saved. Nothing else may go by it.

use crate::tensor::{OperandType, TensorInfo};

/// Whether it is a tensor of floats that was bytes.
pub fn was_bytes(info: &TensorInfo) -> bool {
    info.ty == OperandType::TENSOR_FLOAT32 && (info.scale != 0.0 || info.channel_quant.is_some())
}

/// The type `floats` with the stamp that it was `bytes`.
pub fn stamped(floats: &TensorInfo, bytes: &TensorInfo) -> TensorInfo {
    TensorInfo { scale: bytes.scale, channel_quant: bytes.channel_quant.clone(), ..floats.clone() }
}

/// The type without its stamp, if it has one.
pub fn unstamped(info: &TensorInfo) -> TensorInfo {
    match was_bytes(info) {
        true => TensorInfo::new(info.ty, &info.dims),
        false => info.clone(),
    }
}
