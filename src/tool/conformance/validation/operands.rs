//! Mutations of operands alone: types that there are not, ranks, scales, zero points; and operands taken away.

use super::mutations::{consumers, ty, Mutations};
use crate::aidl::{self, OperationType, Subgraph};
use crate::tensor::OperandType::{self, *};
use crate::tool::conformance::outcome::Step;

pub fn run(m: &mut Mutations) -> Step {
    let main = m.main();
    let consumers = consumers(&main);
    for (i, operand) in main.operands.iter().enumerate() {
        for code in [-1, OperandType::ALL.len() as i32] {
            m.with(format!("operand {i} of type {code}"), |main| {
                main.operands[i].r#type = aidl::OperandType(code)
            })?;
        }
        let Some(ty) = ty(operand.r#type) else { continue };
        if ty.is_scalar() && ty != SUBGRAPH {
            m.with(format!("operand {i} ({ty}) with a dimension"), |main| {
                main.operands[i].dimensions = vec![0]
            })?;
        }
        let scale = wrong_scale(ty);
        m.with(format!("operand {i} ({ty}) with scale {scale}"), |main| main.operands[i].scale = scale)?;
        for &zero_point in wrong_zero_points(ty) {
            m.with(format!("operand {i} ({ty}) with zero point {zero_point}"), |main| {
                main.operands[i].zeroPoint = zero_point
            })?;
        }
        if consumers[i] > 0 && !may_be_left_off(&main, i) {
            m.with(format!("without operand {i}"), |main| remove(main, i))?;
        }
    }
    Ok(())
}

/// A scale that no operand of this type may have.
fn wrong_scale(ty: OperandType) -> f32 {
    match ty {
        TENSOR_INT32 => -1.0,
        TENSOR_QUANT8_ASYMM
        | TENSOR_QUANT8_ASYMM_SIGNED
        | TENSOR_QUANT8_SYMM
        | TENSOR_QUANT16_ASYMM
        | TENSOR_QUANT16_SYMM => 0.0,
        _ => 1.0,
    }
}

/// Zero points that no operand of this type may have.
fn wrong_zero_points(ty: OperandType) -> &'static [i32] {
    match ty {
        TENSOR_QUANT8_ASYMM => &[-1, 256],
        TENSOR_QUANT8_SYMM => &[-129, -1, 1, 128],
        TENSOR_QUANT16_ASYMM => &[-1, 65536],
        TENSOR_QUANT16_SYMM => &[-32769, -1, 1, 32768],
        TENSOR_QUANT8_ASYMM_SIGNED => &[],
        _ => &[1],
    }
}

/// Whether the operation that writes the operand may be valid without it.
fn may_be_left_off(main: &Subgraph, operand: usize) -> bool {
    main.operations.iter().any(|operation| {
        let free = matches!(
            operation.r#type,
            OperationType::SPLIT
                | OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM
                | OperationType::UNIDIRECTIONAL_SEQUENCE_RNN
                | OperationType::BIDIRECTIONAL_SEQUENCE_LSTM
                | OperationType::BIDIRECTIONAL_SEQUENCE_RNN
        );
        free && operation.outputs.contains(&(operand as i32))
    })
}

/// Takes an operand out of the list and every mention of it, and no more: as VTS does it, what stood behind it is now
/// meant by indices one too high.
fn remove(main: &mut Subgraph, operand: usize) {
    main.operands.remove(operand);
    let index = operand as i32;
    for operation in &mut main.operations {
        operation.inputs.retain(|&i| i != index);
        operation.outputs.retain(|&i| i != index);
    }
    main.inputIndexes.retain(|&i| i != index);
    main.outputIndexes.retain(|&i| i != index);
}
