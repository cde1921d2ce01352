//! Values of one 8-bit quantised tensor in the units of another, for operations that only move or compare values. Sums
//! and products are rescaled by [`super::requant`].

use super::TensorInfo;

/// Brings quantised values from one tensor's scale and zero point to another's.
///
/// Unlike [`super::requant::quantise`] this rounds once the zero point is added, as NNAPI's reference does: it decides
/// which way a half below zero goes.
#[derive(Clone, Copy, Debug)]
pub struct Rescale {
    from_scale: f32,
    from_zero: i32,
    to_scale: f64,
    to_zero: f64,
    range: (i32, i32),
}

impl Rescale {
    /// `to` must be of a quantised type; other types give zeros.
    pub fn new(from: &TensorInfo, to: &TensorInfo) -> Self {
        Rescale {
            from_scale: from.scale,
            from_zero: from.zero_point,
            to_scale: f64::from(to.scale),
            to_zero: f64::from(to.zero_point),
            range: to.ty.integer_range().unwrap_or((0, 0)),
        }
    }

    /// `q` in the other tensor's units, rounded half away from zero and clamped to its type.
    pub fn apply(&self, q: i32) -> i32 {
        let real = q.wrapping_sub(self.from_zero) as f32 * self.from_scale;
        // The cast saturates and makes NaN zero, so senseless scales do no harm.
        ((f64::from(real) / self.to_scale + self.to_zero).round() as i32).clamp(self.range.0, self.range.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::OperandType::*;

    #[test]
    fn rounds_after_the_zero_point() {
        let from = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], 0.5, 100);
        let to = TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[], 1.0, 2);
        let rescale = Rescale::new(&from, &to);
        // -0.5 + 2 rounds to 2, though -0.5 alone would to -1.
        assert_eq!([99, 101, 102, 255].map(|q| rescale.apply(q)), [2, 3, 3, 80]);
        assert_eq!(Rescale { to_scale: 0.01, ..rescale }.apply(0), -128);
        assert_eq!(Rescale { to_scale: 0.0, ..rescale }.apply(100), 0);
    }
}
