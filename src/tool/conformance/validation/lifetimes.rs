//! Mutations of lifetimes: against whether the operand is written, and against the lists of inputs and outputs.

use super::mutations::{size, Mutations};
use crate::aidl::{DataLocation, Model, Operand, OperandLifeTime};
use crate::client::PrepareOptions;
use crate::tool::conformance::outcome::Step;

/// No constant is made that would let a model outgrow a binder transaction.
const MAX_VALUES: usize = 32 << 10;

pub fn run(m: &mut Mutations) -> Step {
    let main = m.main();
    for (i, operand) in main.operands.iter().enumerate() {
        for to in against_writers(operand.lifetime) {
            show(m, i, operand, *to, true)?;
        }
        if let Some(to) = against_lists(operand.lifetime) {
            show(m, i, operand, to, false)?;
        }
    }
    Ok(())
}

/// Lifetimes by which an operand that is written must not be, or the other way round.
fn against_writers(lifetime: OperandLifeTime) -> &'static [OperandLifeTime] {
    use OperandLifeTime as L;
    match lifetime {
        L::SUBGRAPH_OUTPUT | L::TEMPORARY_VARIABLE => &[L::SUBGRAPH_INPUT, L::CONSTANT_COPY],
        L::CONSTANT_COPY | L::CONSTANT_POOL | L::SUBGRAPH_INPUT => {
            &[L::TEMPORARY_VARIABLE, L::SUBGRAPH_OUTPUT]
        }
        _ => &[],
    }
}

/// A lifetime that agrees with whether the operand is written, but not with the lists it stands in.
fn against_lists(lifetime: OperandLifeTime) -> Option<OperandLifeTime> {
    use OperandLifeTime as L;
    Some(match lifetime {
        L::CONSTANT_COPY | L::CONSTANT_POOL => L::SUBGRAPH_INPUT,
        L::SUBGRAPH_INPUT => L::CONSTANT_COPY,
        L::SUBGRAPH_OUTPUT => L::TEMPORARY_VARIABLE,
        L::TEMPORARY_VARIABLE => L::SUBGRAPH_OUTPUT,
        _ => return None,
    })
}

fn show(m: &mut Mutations, i: usize, operand: &Operand, to: OperandLifeTime, adjust_lists: bool) -> Step {
    let size = size(operand);
    let too_large = m.values_len().max(size) > MAX_VALUES;
    if to == OperandLifeTime::CONSTANT_COPY && (size == 0 || too_large) {
        return Ok(());
    }
    let lists = if adjust_lists { ", lists adjusted" } else { "" };
    let what = format!("operand {i} of lifetime {}, was {}{lists}", to.0, operand.lifetime.0);
    m.show(what, PrepareOptions::default(), |model| {
        if adjust_lists {
            let index = i as i32;
            model.main.inputIndexes.retain(|&input| input != index);
            model.main.outputIndexes.retain(|&output| output != index);
            match to {
                OperandLifeTime::SUBGRAPH_INPUT => model.main.inputIndexes.push(index),
                OperandLifeTime::SUBGRAPH_OUTPUT => model.main.outputIndexes.push(index),
                _ => {}
            }
        }
        become_lifetime(model, i, to, size);
    })
}

/// A new constant reads whatever stands first among the constants.
fn become_lifetime(model: &mut Model, i: usize, to: OperandLifeTime, size: usize) {
    let operand = &mut model.main.operands[i];
    operand.lifetime = to;
    operand.location = DataLocation::default();
    if to == OperandLifeTime::CONSTANT_COPY {
        operand.location.length = size as i64;
        let values = model.operandValues.len().max(size);
        model.operandValues.resize(values, 0);
    }
}
