//! Tables from the values of one 8-bit quantised tensor to those of another, for operations on single values. Sums and
//! products are rescaled by [`super::requant`].

use super::requant::quantise;
use super::{OperandType, TensorInfo};

/// The real number that each byte stands for in a tensor of an 8-bit quantised type.
fn reals(info: &TensorInfo) -> [f32; 256] {
    let signed = info.ty != OperandType::TENSOR_QUANT8_ASYMM;
    std::array::from_fn(|byte| {
        let q = if signed { i32::from(byte as u8 as i8) } else { byte as i32 };
        q.wrapping_sub(info.zero_point) as f32 * info.scale
    })
}

/// For each byte of a tensor of an 8-bit quantised type, `f` of the real number that it stands for, as an element of
/// `to`, which is of such a type too. Results are rounded as by [`quantise`].
pub fn byte_table(from: &TensorInfo, to: &TensorInfo, f: impl Fn(f32) -> f32) -> [u8; 256] {
    // The low byte of a value in the type's range is its element.
    reals(from).map(|real| quantise(f(real), to.ty, to.scale, to.zero_point) as u8)
}

/// Brings values of an 8-bit quantised type from one tensor's scale and zero point to another's. There are but 256 of
/// them, so a table answers for all.
///
/// Unlike [`super::requant::quantise`] this rounds once the zero point is added, as NNAPI's reference does: it decides
/// which way a half below zero goes.
#[derive(Clone, Debug)]
pub struct Rescale([i32; 256]);

impl Rescale {
    /// `from` must be of an 8-bit type and `to` of a quantised one.
    pub fn new(from: &TensorInfo, to: &TensorInfo) -> Self {
        let (lo, hi) = to.ty.integer_range().unwrap_or((0, 0));
        Rescale(reals(from).map(|real| {
            // The cast saturates and makes NaN zero, so senseless scales do no harm.
            ((f64::from(real) / f64::from(to.scale) + f64::from(to.zero_point)).round() as i32).clamp(lo, hi)
        }))
    }

    /// `q` in the other tensor's units, rounded half away from zero and clamped to its type.
    pub fn apply(&self, q: i32) -> i32 {
        self.0[usize::from(q as u8)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::OperandType::*;

    #[test]
    fn rounds_after_the_zero_point() {
        let from = TensorInfo::quantised(TENSOR_QUANT8_ASYMM, &[], 0.5, 100);
        let to = |scale| TensorInfo::quantised(TENSOR_QUANT8_ASYMM_SIGNED, &[], scale, 2);
        // -0.5 + 2 rounds to 2, though -0.5 alone would to -1.
        let rescale = Rescale::new(&from, &to(1.0));
        assert_eq!([99, 101, 102, 255].map(|q| rescale.apply(q)), [2, 3, 3, 80]);
        assert_eq!(Rescale::new(&from, &to(0.01)).apply(0), -128);
        assert_eq!(Rescale::new(&from, &to(0.0)).apply(100), 0);
        let back = Rescale::new(&to(1.0), &from);
        assert_eq!([2, 3, -128].map(|q| back.apply(q)), [100, 102, 0]);
    }
}
