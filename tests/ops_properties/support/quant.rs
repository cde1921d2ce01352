//! Quantisation of random operands, and fused activations on real numbers.

use super::{OperandType, Random};
use OperandType::*;

/// Some scale and zero point for a tensor of `ty`; zeros for types without.
pub fn quantisation(ty: OperandType, random: &mut Random) -> (f32, i32) {
    match ty {
        TENSOR_QUANT8_ASYMM => (scale(random), random.range(0, 255) as i32),
        TENSOR_QUANT8_ASYMM_SIGNED => (scale(random), random.range(-128, 127) as i32),
        TENSOR_QUANT8_SYMM => (scale(random), 0),
        _ => (0.0, 0),
    }
}

fn scale(random: &mut Random) -> f32 {
    random.pick(&[0.5, 0.25, 0.1, 1.0 / 128.0, 0.037, 1.0])
}

/// Fused activation `code` of a real number.
pub fn activate(code: i32, x: f64) -> f64 {
    match code {
        1 => x.max(0.0),
        2 => x.clamp(-1.0, 1.0),
        3 => x.clamp(0.0, 6.0),
        _ => x,
    }
}
