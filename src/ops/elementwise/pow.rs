//! POW: each element to the power of another, with broadcasting.

use super::walk::{broadcast_shapes, zip_floats};
use crate::ops::signature::{var, Row};
use crate::ops::{no_check, Operation, OperationType, Run, Signature};
use crate::tensor::OperandType::*;

pub static POW: Operation = Operation {
    ty: OperationType::POW,
    doc: "each element to the power of another, with broadcasting",
    signatures: &[Signature::new(
        &[Row(3, &[TENSOR_FLOAT16]), Row(3, &[TENSOR_FLOAT32])],
        &[var("base", 0), var("exponent", 0)],
        &[var("output", 0)],
    )],
    check: no_check,
    run: Run::Shaped { shapes: broadcast_shapes, eval: |args, outs| zip_floats(args, outs, f32::powf) },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call_simple, f32s};

    #[test]
    fn raises() {
        let out = call_simple::<f32>(&POW, &[f32s(&[2, 1], &[2.0, -3.0]), f32s(&[2], &[3.0, 0.5])]).unwrap();
        assert_eq!(out.0, [2, 2]);
        assert_eq!(out.1[..3], [8.0, std::f32::consts::SQRT_2, -27.0]);
        assert!(out.1[3].is_nan(), "no real root of a negative number");
    }
}
