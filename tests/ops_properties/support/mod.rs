//! What the properties share: random operands, the naive arrays that results are compared with, and the comparison.

mod compare;
mod hostile;
mod nd;
mod property;
mod quant;
mod random;
mod unknown;
mod value;

pub use compare::{expect, expect_exactly, expect_within};
pub use hostile::{random_call, spoiled_calls};
pub use nd::Nd;
pub use property::{times, Property};
pub use quant::{activate, quantisation};
pub use random::Random;
pub use unknown::{shapes_resolve_late, validates};
pub use value::{boolean, call, call_with, float, int, ints, scalar, try_call, Value};

pub use nnhal::ops::OperationType;
pub use nnhal::tensor::{ChannelQuant, OperandType, TensorInfo};

use OperandType::*;

pub const FLOATS: [OperandType; 2] = [TENSOR_FLOAT32, TENSOR_FLOAT16];
pub const QUANTISED: [OperandType; 2] = [TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED];
/// The types that most operations take.
pub const COMMON: [OperandType; 4] =
    [TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED];
pub const COMMON_AND_INT: [OperandType; 5] =
    [TENSOR_FLOAT32, TENSOR_FLOAT16, TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED, TENSOR_INT32];

/// Whether elements of `ty` are integers that stand for other numbers.
pub fn is_quantised(ty: OperandType) -> bool {
    !matches!(ty, TENSOR_INT32 | INT32) && ty.integer_range().is_some()
}
