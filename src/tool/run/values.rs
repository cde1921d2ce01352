//! Values of tensors: real numbers into a tensor's own type and back.

use crate::tensor::{OperandType, TensorInfo};

/// `reals` as elements of `info`'s type: quantised types take the nearest value that they have.
pub fn encode(info: &TensorInfo, reals: impl Iterator<Item = f32>) -> Result<Vec<u8>, String> {
    use OperandType::*;
    match info.ty {
        TENSOR_FLOAT32 => Ok(reals.flat_map(f32::to_le_bytes).collect()),
        TENSOR_FLOAT16 => Ok(reals.flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect()),
        TENSOR_QUANT8_ASYMM | TENSOR_QUANT8_ASYMM_SIGNED => {
            let (min, max) = info.ty.integer_range().unwrap_or((0, 0));
            let quantise = |x: f32| {
                // A float's cast to an integer saturates, and NaN becomes 0.
                let q = ((x / info.scale).round() as i32).saturating_add(info.zero_point);
                q.clamp(min, max) as u8
            };
            Ok(reals.map(quantise).collect())
        }
        ty => Err(format!("{ty} does not hold real numbers")),
    }
}

/// The elements of `bytes` as real numbers; quantised ones are dequantised.
pub fn decode(info: &TensorInfo, bytes: &[u8]) -> Vec<f32> {
    use OperandType::*;
    let real = |q: i32| (i64::from(q) - i64::from(info.zero_point)) as f32 * info.scale;
    match info.ty {
        TENSOR_FLOAT32 => {
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        }
        TENSOR_FLOAT16 => {
            bytes.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
        }
        TENSOR_INT32 => {
            bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]) as f32).collect()
        }
        TENSOR_QUANT8_ASYMM_SIGNED => bytes.iter().map(|&b| real(i32::from(b as i8))).collect(),
        TENSOR_QUANT8_ASYMM => bytes.iter().map(|&b| real(i32::from(b))).collect(),
        _ => bytes.iter().map(|&b| f32::from(b)).collect(),
    }
}

/// Values to try a model with where none are given: the same on every run, spread over what the type holds. Integers
/// are 0, as they may be indices.
pub fn arbitrary(info: &TensorInfo) -> Vec<u8> {
    let count = crate::tensor::element_count(&info.dims).unwrap_or(0);
    let mut state = 8u64;
    let mut bits = move || {
        // Knuth's linear congruential generator; the high bits are the good ones.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as u32
    };
    use OperandType::*;
    match info.ty {
        TENSOR_FLOAT32 | TENSOR_FLOAT16 => {
            let uniform = (0..count).map(|_| bits() as f32 / (1 << 23) as f32 - 1.0);
            encode(info, uniform).unwrap_or_default()
        }
        TENSOR_BOOL8 => (0..count).map(|_| (bits() & 1) as u8).collect(),
        TENSOR_QUANT8_ASYMM | TENSOR_QUANT8_ASYMM_SIGNED => (0..count).map(|_| bits() as u8).collect(),
        _ => vec![0; info.byte_size().unwrap_or(0)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantised_values_are_the_nearest_and_saturate() {
        let info = TensorInfo::quantised(OperandType::TENSOR_QUANT8_ASYMM_SIGNED, &[4], 1.0 / 255.0, -128);
        let reals = [0.0, 1.0, 0.25, -9.0, 9.0, f32::NAN, f32::INFINITY];
        let bytes = encode(&info, reals.into_iter()).unwrap();
        assert_eq!(
            bytes.iter().map(|&b| b as i8).collect::<Vec<_>>(),
            [-128, 127, -64, -128, 127, -128, 127]
        );
        assert_eq!(decode(&info, &bytes)[..2], [0.0, 1.0]);
    }

    #[test]
    fn arbitrary_values_fill_their_tensor() {
        for ty in [
            OperandType::TENSOR_FLOAT32,
            OperandType::TENSOR_FLOAT16,
            OperandType::TENSOR_INT32,
            OperandType::TENSOR_BOOL8,
            OperandType::TENSOR_QUANT8_ASYMM,
        ] {
            let info = TensorInfo::new(ty, &[3, 50]);
            let bytes = arbitrary(&info);
            assert_eq!(Some(bytes.len()), info.byte_size(), "{ty}");
            assert_eq!(bytes, arbitrary(&info), "{ty} differs from run to run");
            if ty.is_float() {
                let reals = decode(&info, &bytes);
                assert!(reals.iter().all(|x| (-1.0..=1.0).contains(x)) && reals.iter().any(|&x| x < -0.5));
            }
        }
    }
}
