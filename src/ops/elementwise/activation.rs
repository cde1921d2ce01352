//! Activations: RELU, RELU1, RELU6, LOGISTIC, TANH, ELU, HARD_SWISH.

use super::walk::{map, map_floats, map_reals};
use crate::ops::signature::{var, Row, Slot};
use crate::ops::{
    keeps_quantisation, no_check, same_as_first, Args, OpError, Operation, OperationType, Out, Run, Shapes,
    Signature,
};
use crate::tensor::requant::{within, Activation};
use crate::tensor::OperandType::*;

const INPUT: &[Slot] = &[var("input", 0).rank(1, 4)];
const OUTPUT: &[Slot] = &[var("output", 0)];

const SINCE_1: &[Signature] = &[Signature::new(
    &[
        Row(1, &[TENSOR_FLOAT32]),
        Row(3, &[TENSOR_FLOAT16]),
        Row(1, &[TENSOR_QUANT8_ASYMM]),
        Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    INPUT,
    OUTPUT,
)];

const fn relu_kin(
    ty: OperationType,
    doc: &'static str,
    eval: fn(&Args, &mut [Out]) -> Result<(), OpError>,
) -> Operation {
    let run = Run::Shaped { shapes: relu_shapes, eval };
    Operation { ty, doc, signatures: SINCE_1, check: no_check, run }
}

pub static RELU: Operation = relu_kin(OperationType::RELU, "each element, at least 0", |args, outs| {
    clamp(args, outs, Activation::Relu)
});

pub static RELU1: Operation =
    relu_kin(OperationType::RELU1, "each element, clamped to [-1, 1]", |args, outs| {
        clamp(args, outs, Activation::Relu1)
    });

pub static RELU6: Operation =
    relu_kin(OperationType::RELU6, "each element, clamped to [0, 6]", |args, outs| {
        clamp(args, outs, Activation::Relu6)
    });

fn relu_shapes(args: &Args) -> Shapes {
    keeps_quantisation(args, 0)?;
    same_as_first(args)
}

fn clamp(args: &Args, outs: &mut [Out], activation: Activation) -> Result<(), OpError> {
    let input = args.get(0)?;
    let (lo, hi) = activation.quantised_range(input.ty(), input.scale(), input.zero_point());
    match input.ty() {
        // The bounds are within the type's range.
        TENSOR_QUANT8_ASYMM => map(args, outs, |q: u8| q.max(lo as u8).min(hi as u8)),
        TENSOR_QUANT8_ASYMM_SIGNED => map(args, outs, |q: i8| q.max(lo as i8).min(hi as i8)),
        _ => map_floats(args, outs, |x| activation.apply(x)),
    }
}

pub static LOGISTIC: Operation = Operation {
    ty: OperationType::LOGISTIC,
    doc: "1 / (1 + e^-x) of each element",
    signatures: SINCE_1,
    check: no_check,
    run: Run::Shaped {
        shapes: |args| fixed_output(args, 1.0 / 256.0, 0),
        eval: |args, outs| map_reals(args, outs, |x| 1.0 / (1.0 + (-x).exp())),
    },
};

pub static TANH: Operation = Operation {
    ty: OperationType::TANH,
    doc: "the hyperbolic tangent of each element",
    signatures: &[Signature::new(
        &[
            Row(1, &[TENSOR_FLOAT32]),
            Row(3, &[TENSOR_FLOAT16]),
            Row(3, &[TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        INPUT,
        OUTPUT,
    )],
    check: no_check,
    run: Run::Shaped {
        shapes: |args| fixed_output(args, 1.0 / 128.0, 128),
        eval: |args, outs| map_reals(args, outs, f32::tanh),
    },
};

/// The interface fixes the units of a quantised output; `zero_point` is that of the unsigned type. That, too, is a rule
/// of execution, not of validation, in the reference.
fn fixed_output(args: &Args, scale: f32, zero_point: i32) -> Shapes {
    let output = args.output(0)?;
    let zero_point = if output.ty == TENSOR_QUANT8_ASYMM_SIGNED { zero_point - 128 } else { zero_point };
    if output.ty.is_quant8_asymm() && (output.scale, output.zero_point) != (scale, zero_point) {
        return Err(OpError::failed(format!(
            "the output's scale {} and zero point {} must be {scale} and {zero_point}",
            output.scale, output.zero_point
        )));
    }
    same_as_first(args)
}

pub static ELU: Operation = Operation {
    ty: OperationType::ELU,
    doc: "max(0, x) + min(0, alpha * (e^x - 1)) of each element",
    signatures: &[Signature::new(
        &[Row(4, &[TENSOR_FLOAT16, FLOAT16]), Row(4, &[TENSOR_FLOAT32, FLOAT32])],
        &[var("input", 0), var("alpha", 1)],
        OUTPUT,
    )],
    check: no_check,
    run: Run::Shaped {
        shapes: same_as_first,
        eval: |args, outs| {
            let alpha = args.f32(1)?;
            map_floats(args, outs, |x| x.max(0.0) + (alpha * x.exp_m1()).min(0.0))
        },
    },
};

/// Of floats: a multiplication by 1/6 stands for the division.
#[inline(always)]
pub fn hard_swish(x: f32) -> f32 {
    x * within((0.0, 6.0), x + 3.0) * (1.0 / 6.0)
}

pub static HARD_SWISH: Operation = Operation {
    ty: OperationType::HARD_SWISH,
    doc: "x * min(max(0, x + 3), 6) / 6 of each element",
    signatures: &[Signature::new(
        &[
            Row(4, &[TENSOR_FLOAT16]),
            Row(4, &[TENSOR_FLOAT32]),
            Row(4, &[TENSOR_QUANT8_ASYMM]),
            Row(4, &[TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        &[var("input", 0)],
        OUTPUT,
    )],
    check: no_check,
    run: Run::Shaped {
        shapes: same_as_first,
        eval: |args, outs| match args.get(0)?.ty().is_float() {
            // As kernels do, for which a division takes as long as all the rest.
            true => map_floats(args, outs, hard_swish),
            false => map_reals(args, outs, |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0),
        },
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{call, call_simple, f32s, float, tensor};
    use crate::tensor::{OperandType, TensorInfo};

    fn floats(operation: &Operation, values: &[f32]) -> Vec<f32> {
        call_simple::<f32>(operation, &[f32s(&[values.len() as u32], values)]).unwrap().1
    }

    /// `operation` on bytes `values` of scale 0.5 and zero point `zero`, to an output of `scale` and `out_zero`.
    fn quantised(
        operation: &Operation,
        ty: OperandType,
        zero: i32,
        values: &[u8],
        (scale, out_zero): (f32, i32),
    ) -> Result<Vec<u8>, OpError> {
        let input = tensor(TensorInfo::quantised(ty, &[values.len() as u32], 0.5, zero), values);
        let out = TensorInfo::quantised(ty, &[], scale, out_zero);
        Ok(call(operation, &[Some(input)], &[out])?.remove(0).data.to_vec())
    }

    #[test]
    fn float_activations() {
        assert_eq!(floats(&RELU, &[-1.0, 7.0]), [0.0, 7.0]);
        assert_eq!(floats(&RELU1, &[-3.0, 0.5, 2.0]), [-1.0, 0.5, 1.0]);
        assert_eq!(floats(&RELU6, &[-1.0, 5.0, 7.0]), [0.0, 5.0, 6.0]);
        assert_eq!(floats(&LOGISTIC, &[0.0, -1000.0, 1000.0]), [0.5, 0.0, 1.0]);
        assert_eq!(floats(&TANH, &[0.0, 1000.0]), [0.0, 1.0]);
        assert_eq!(floats(&HARD_SWISH, &[-4.0, -1.5, 0.0, 3.0, 10.0]), [0.0, -0.375, 0.0, 3.0, 10.0]);
    }

    #[test]
    fn elu_follows_its_formula_for_any_alpha() {
        let run =
            |alpha: f32| call_simple::<f32>(&ELU, &[f32s(&[3], &[-1.0, 0.0, 1.0]), float(alpha)]).unwrap().1;
        let e = std::f32::consts::E;
        assert_eq!(run(2.0), [2.0 * (1.0 / e - 1.0), 0.0, 1.0]);
        assert!((run(-1.0)[2] - (2.0 - e)).abs() < 1e-6, "a negative alpha counts where x is positive");
        assert!(call_simple::<f32>(&ELU, &[f32s(&[1], &[1.0])]).is_err());
    }

    #[test]
    fn quantised_relu_keeps_its_units() {
        let run = |op, out| quantised(op, TENSOR_QUANT8_ASYMM, 100, &[0, 97, 101, 255], out);
        assert_eq!(run(&RELU, (0.5, 100)), Ok(vec![100, 100, 101, 255]));
        assert_eq!(run(&RELU1, (0.5, 100)), Ok(vec![98, 98, 101, 102]));
        assert_eq!(run(&RELU6, (0.5, 100)), Ok(vec![100, 100, 101, 112]));
        assert!(run(&RELU, (0.25, 100)).is_err() && run(&RELU, (0.5, 0)).is_err());
        let signed = quantised(&RELU, TENSOR_QUANT8_ASYMM_SIGNED, -3, &[-128i8 as u8, 5], (0.5, -3));
        assert_eq!(signed, Ok(vec![-3i8 as u8, 5]));
    }

    #[test]
    fn quantised_logistic_and_tanh_have_fixed_units() {
        let run = |op, out| quantised(op, TENSOR_QUANT8_ASYMM, 100, &[0, 100, 102, 255], out);
        // logistic(1) = 0.7311 = 187.2 / 256; tanh(1) = 0.7616 = 97.5 / 128
        assert_eq!(run(&LOGISTIC, (1.0 / 256.0, 0)), Ok(vec![0, 128, 187, 255]));
        assert_eq!(run(&TANH, (1.0 / 128.0, 128)), Ok(vec![0, 128, 225, 255]));
        assert!(run(&LOGISTIC, (1.0 / 128.0, 0)).is_err() && run(&TANH, (1.0 / 128.0, 0)).is_err());
        let signed = |op, out| quantised(op, TENSOR_QUANT8_ASYMM_SIGNED, 0, &[0, 2], out);
        assert_eq!(signed(&LOGISTIC, (1.0 / 256.0, -128)), Ok(vec![0, 59]));
        assert_eq!(signed(&TANH, (1.0 / 128.0, 0)), Ok(vec![0, 97]));
    }

    #[test]
    fn quantised_hard_swish_takes_any_units() {
        let run = |out| quantised(&HARD_SWISH, TENSOR_QUANT8_ASYMM, 100, &[0, 97, 102, 200], out);
        // 0, -1.5 * 1.5 / 6 = -0.375, 1 * 4 / 6 and 50
        assert_eq!(run((0.125, 10)), Ok(vec![10, 7, 15, 255]));
        assert_eq!(run((1.0, 0)), Ok(vec![0, 0, 1, 50]));
    }
}
