//! Whether an output is what VTS accepts.

use super::corpus::{Model, Operand};
use crate::tensor::OperandType;
use half::f16;

/// Compares an output's bytes with the expected ones, with VTS's tolerance for its type. The error says what is wrong
/// first, and how often.
pub fn output(model: &Model, operand: &Operand, expected: &[u8], actual: &[u8]) -> Result<(), String> {
    let ty = operand.ty().ok_or_else(|| format!("{} is not an output type", operand.type_name))?;
    if actual.len() < expected.len() {
        return Err(format!("{} bytes, expected {}", actual.len(), expected.len()));
    }
    let (atol, rtol) = tolerance(model, ty)?;
    let expected = reals(ty, expected)?;
    let actual = reals(ty, actual)?;
    let wrong = |(a, e): (&f64, &f64)| !within((a - e).abs(), atol + rtol * e.abs());
    let mut misses = actual.iter().zip(&expected).enumerate().filter(|(_, pair)| wrong(*pair));
    let Some((i, (a, e))) = misses.next() else { return Ok(()) };
    Err(format!("element {i} is {a}, expected {e} ({} of {} wrong)", 1 + misses.count(), expected.len()))
}

/// Whether a difference is tolerable; one that is no number never is.
fn within(difference: f64, tolerance: f64) -> bool {
    difference <= tolerance
}

/// Absolute and relative tolerance for outputs of this type.
fn tolerance(model: &Model, ty: OperandType) -> Result<(f64, f64), String> {
    use OperandType::*;
    const F16: f64 = 5.0 / 1024.0;
    Ok(match ty {
        TENSOR_FLOAT32 if model.f32_tolerance == "f16" => (F16, F16),
        TENSOR_FLOAT32 => (1e-5, 5.0 * f64::from(f32::EPSILON)),
        TENSOR_FLOAT16 => (F16, F16),
        TENSOR_INT32 | INT32 | TENSOR_QUANT16_ASYMM | TENSOR_QUANT16_SYMM => (1.0, 0.0),
        TENSOR_QUANT8_ASYMM | TENSOR_QUANT8_ASYMM_SIGNED | TENSOR_QUANT8_SYMM => {
            (f64::from(model.quant8_atol), 0.0)
        }
        TENSOR_BOOL8 => (0.0, 0.0),
        _ => return Err(format!("{ty} is not an output type")),
    })
}

/// Elements as numbers, in units of the stored value.
fn reals(ty: OperandType, bytes: &[u8]) -> Result<Vec<f64>, String> {
    use OperandType::*;
    fn each<const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.chunks_exact(N).map(|c| f(c.try_into().unwrap_or([0; N]))).collect()
    }
    Ok(match ty {
        TENSOR_FLOAT32 => each(bytes, |b| f32::from_le_bytes(b).into()),
        TENSOR_FLOAT16 => each(bytes, |b| f16::from_le_bytes(b).to_f64()),
        TENSOR_INT32 | INT32 => each(bytes, |b| i32::from_le_bytes(b).into()),
        TENSOR_QUANT16_ASYMM => each(bytes, |b| u16::from_le_bytes(b).into()),
        TENSOR_QUANT16_SYMM => each(bytes, |b| i16::from_le_bytes(b).into()),
        TENSOR_QUANT8_ASYMM | TENSOR_BOOL8 => each(bytes, |b: [u8; 1]| b[0].into()),
        TENSOR_QUANT8_ASYMM_SIGNED | TENSOR_QUANT8_SYMM => {
            each(bytes, |b: [u8; 1]| i8::from_le_bytes(b).into())
        }
        _ => return Err(format!("{ty} is not an output type")),
    })
}

/// The frequency check of RANDOM_MULTINOMIAL: how often each class was drawn, against its probability. It knows one
/// batch only, as VTS does.
pub fn multinomial(model: &Model, logits: &Operand, input: &[u8], output: &[u8]) -> Result<(), String> {
    let ty = logits.ty().ok_or("the logits have no type")?;
    let logits = reals(ty, input)?;
    let draws = reals(OperandType::TENSOR_INT32, output)?;
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = logits.iter().map(|x| (x - largest).exp()).sum();
    for (class, logit) in logits.iter().enumerate() {
        let drawn = draws.iter().filter(|&&d| d == class as f64).count() as f64 / draws.len() as f64;
        let expected = (logit - largest).exp() / total;
        if !within((drawn - expected).abs(), model.multinomial_tolerance) {
            return Err(format!("class {class} was drawn with frequency {drawn}, expected {expected}"));
        }
    }
    Ok(())
}
