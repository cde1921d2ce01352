//! Mutations of operands alone: types that there are not, scalars with dimensions; and operands taken away.

use super::mutations::{consumers, ty, Mutations};
use crate::aidl::{self, OperationType, Subgraph};
use crate::tensor::OperandType::{self, SUBGRAPH};
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
        if consumers[i] > 0 && !may_be_left_off(&main, i) {
            m.with(format!("without operand {i}"), |main| remove(main, i))?;
        }
    }
    Ok(())
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
