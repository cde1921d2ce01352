//! Mutations of operand types: each operand takes every other type, made fit for it, which its operations must refuse.

use super::mutations::Mutations;
use crate::aidl::{self, OperandExtraParams, Operation, OperationType, Subgraph, SymmPerChannelQuantParams};
use crate::tensor::OperandType::{self, *};
use crate::tool::conformance::outcome::Step;

pub fn run(m: &mut Mutations) -> Step {
    let main = m.main();
    for (i, operand) in main.operands.iter().enumerate() {
        for to in OperandType::ALL {
            if operand.r#type.0 == to.code() || may_be(&main, i as i32, to) {
                continue;
            }
            m.with(format!("operand {i} as {to}"), |main| retype(&mut main.operands[i], to))?;
        }
    }
    Ok(())
}

/// Gives the operand another type, and the dimensions, scale and zero point that go with it. For
/// TENSOR_QUANT8_ASYMM_SIGNED and SUBGRAPH VTS leaves all else as it was, and so must this: with a scale, the signed type
/// might be valid.
fn retype(operand: &mut aidl::Operand, to: OperandType) {
    operand.r#type = aidl::OperandType(to.code());
    if matches!(to, TENSOR_QUANT8_ASYMM_SIGNED | SUBGRAPH) {
        return;
    }
    if to.is_scalar() {
        operand.dimensions.clear();
    } else if operand.dimensions.is_empty() {
        operand.dimensions = vec![1];
    }
    match to {
        TENSOR_INT32 => operand.zeroPoint = 0,
        TENSOR_QUANT8_ASYMM | TENSOR_QUANT8_SYMM | TENSOR_QUANT16_ASYMM | TENSOR_QUANT16_SYMM => {
            if operand.scale == 0.0 {
                operand.scale = 1.0;
            }
        }
        _ => {
            operand.scale = 0.0;
            operand.zeroPoint = 0;
        }
    }
    if to == TENSOR_QUANT8_SYMM_PER_CHANNEL {
        let channels = operand.dimensions.first().map_or(0, |&d| d.max(0) as usize);
        let quant = SymmPerChannelQuantParams { scales: vec![1.0; channels], channelDim: 0 };
        operand.extraParams = Some(OperandExtraParams::ChannelQuant(quant));
    }
}

/// Whether some operation of the model might take the operand as this type.
fn may_be(main: &Subgraph, operand: i32, to: OperandType) -> bool {
    main.operations.iter().any(|operation| accepts(operation, operand, to))
}

fn accepts(operation: &Operation, operand: i32, to: OperandType) -> bool {
    let input = |n: usize| operation.inputs.get(n) == Some(&operand);
    let output = |n: usize| operation.outputs.get(n) == Some(&operand);
    let float = matches!(to, TENSOR_FLOAT16 | TENSOR_FLOAT32);
    match operation.r#type {
        OperationType::LSH_PROJECTION => input(1),
        OperationType::CAST | OperationType::ARGMAX | OperationType::ARGMIN => {
            float || to == TENSOR_INT32 || to.is_quant8_asymm()
        }
        OperationType::QUANTIZE => (input(0) && float) || (output(0) && to.is_quant8_asymm()),
        OperationType::RANDOM_MULTINOMIAL => input(0) && float,
        OperationType::DEQUANTIZE => {
            let quantised =
                to.is_quant8_asymm() || matches!(to, TENSOR_QUANT8_SYMM | TENSOR_QUANT8_SYMM_PER_CHANNEL);
            (input(0) && quantised) || (output(0) && float)
        }
        OperationType::CONV_2D
        | OperationType::DEPTHWISE_CONV_2D
        | OperationType::GROUPED_CONV_2D
        | OperationType::TRANSPOSE_CONV_2D => {
            input(1) && matches!(to, TENSOR_QUANT8_ASYMM | TENSOR_QUANT8_SYMM_PER_CHANNEL)
        }
        OperationType::AXIS_ALIGNED_BBOX_TRANSFORM => input(1) && to.is_quant8_asymm(),
        OperationType::RANK => input(0) && to.is_tensor(),
        _ => false,
    }
}
