//! Rules for IF and WHILE: conditions, and that operands fit those of the subgraphs they are handed to.

use super::{Lifetime, Model, ModelError, Operand, Operation, OperationKind, Subgraph};
use crate::ops::pace::Pace;
use crate::ops::OperationType;
use crate::tensor::{OperandType, TensorInfo};

/// Checks each IF and WHILE. One that an operand of an extension's type passes through is as valid as any other, but nothing
/// that this driver runs.
pub(super) fn check(model: &mut Model, pace: &mut Pace) -> Result<(), ModelError> {
    for n in 0..=model.referenced.len() {
        for i in 0..graph(model, n).operations.len() {
            let (checked, graph) = (&*model, graph(model, n));
            let operation = &graph.operations[i];
            let OperationKind::Known { operation: known, .. } = operation.kind else { continue };
            let check = match known.ty {
                OperationType::IF => check_if,
                OperationType::WHILE => check_while,
                _ => continue,
            };
            pace.spend(steps(checked, graph, operation))?;
            check(checked, graph, operation).map_err(|why| {
                let name = n.checked_sub(1).map_or("main subgraph".into(), |n| format!("subgraph {n}"));
                ModelError::Invalid(format!("{name}, operation {i} ({}): {why}", known.ty))
            })?;
            let mut operands = operation.inputs.iter().chain(&operation.outputs);
            if let Some(operand) = operands.find(|&&operand| graph.operands[operand].extension.is_some()) {
                let why =
                    format!("operand {operand} is of an extension's type, which {} does not take", known.ty);
                let graph = n.checked_sub(1).map_or(&mut model.main, |n| &mut model.referenced[n]);
                graph.operations[i].kind = OperationKind::Unsupported(why);
            }
        }
    }
    Ok(())
}

/// The main subgraph, and then those referenced.
fn graph(model: &Model, n: usize) -> &Subgraph {
    n.checked_sub(1).map_or(&model.main, |n| &model.referenced[n])
}

/// Elementary steps that it takes to compare what is handed over, about: as many as describe the operands of both sides. Very
/// many operations may name the same.
fn steps(model: &Model, graph: &Subgraph, operation: &Operation) -> usize {
    let of = |graph: &Subgraph, operands: &[usize]| {
        operands.iter().map(|&i| graph.operands[i].steps()).fold(operands.len(), usize::saturating_add)
    };
    let inner = operation.inputs.iter().filter_map(|&input| target(model, graph, input).ok());
    let inner = inner.map(|graph| of(graph, &graph.inputs).saturating_add(of(graph, &graph.outputs)));
    let outer = of(graph, &operation.inputs).saturating_add(of(graph, &operation.outputs));
    inner.fold(outer, usize::saturating_add)
}

fn check_if(model: &Model, graph: &Subgraph, operation: &Operation) -> Result<(), String> {
    check_condition(&graph.operands[operation.inputs[0]])?;
    for (at, what) in [(1, "then"), (2, "else")] {
        let branch = target(model, graph, operation.inputs[at])?;
        hand_over(
            graph,
            &operation.inputs[3..],
            branch,
            &branch.inputs,
            &format!("input of the {what} branch"),
        )?;
        hand_over(
            graph,
            &operation.outputs,
            branch,
            &branch.outputs,
            &format!("output of the {what} branch"),
        )?;
    }
    Ok(())
}

fn check_while(model: &Model, graph: &Subgraph, operation: &Operation) -> Result<(), String> {
    let condition = target(model, graph, operation.inputs[0])?;
    let body = target(model, graph, operation.inputs[1])?;
    let values = &operation.inputs[2..];
    hand_over(graph, values, condition, &condition.inputs, "input of the condition")?;
    hand_over(graph, values, body, &body.inputs, "input of the body")?;
    let [verdict] = condition.outputs[..] else {
        return Err(format!("the condition has {} outputs, expected 1", condition.outputs.len()));
    };
    check_condition(&condition.operands[verdict])?;
    let (kept, given) = (operation.outputs.len(), body.outputs.len());
    if kept > given || given > values.len() {
        return Err(format!(
            "{kept} outputs, a body of {given} outputs and {} inputs do not fit",
            values.len()
        ));
    }
    hand_over(graph, &operation.outputs, body, &body.outputs[..kept], "output of the body")?;
    hand_over(body, &body.outputs, body, &body.inputs[..given], "next input of the body")
}

fn check_condition(operand: &Operand) -> Result<(), String> {
    let info = &operand.info;
    if operand.extension.is_some() {
        return Err("the condition is of an extension's type, expected TENSOR_BOOL8".into());
    }
    if info.ty != OperandType::TENSOR_BOOL8 || info.dims[..] != [1] {
        return Err(format!(
            "the condition is a {} of {:?}, expected TENSOR_BOOL8 of [1]",
            info.ty, info.dims
        ));
    }
    Ok(())
}

fn target<'m>(model: &'m Model, graph: &Subgraph, operand: usize) -> Result<&'m Subgraph, String> {
    match graph.operands[operand].lifetime {
        Lifetime::Subgraph(index) => {
            model.referenced.get(index).ok_or_else(|| format!("subgraph {index} does not exist"))
        }
        _ => Err(format!("operand {operand} is not a subgraph")),
    }
}

/// An operand for a message, without its scales: there may be very many.
fn shown(info: &TensorInfo) -> String {
    let TensorInfo { ty, dims, scale, zero_point, channel_quant } = info;
    let channels =
        channel_quant.as_ref().map_or(String::new(), |quant| format!(" by dimension {}", quant.dim));
    format!("{ty} of {dims:?}, scale {scale}{channels}, zero point {zero_point}")
}

/// Checks that each operand of `outer` fits the one of `inner` that it is handed to.
fn hand_over(
    outer: &Subgraph,
    from: &[usize],
    inner: &Subgraph,
    to: &[usize],
    what: &str,
) -> Result<(), String> {
    if from.len() != to.len() {
        return Err(format!("{} operands for {} of kind {what}", from.len(), to.len()));
    }
    for (i, (&from, &to)) in from.iter().zip(to).enumerate() {
        let (outer, inner) = (&outer.operands[from], &inner.operands[to]);
        let (a, b) = (&outer.info, &inner.info);
        let dims_fit = a.dims.is_empty()
            || b.dims.is_empty()
            || (a.dims.len() == b.dims.len()
                && a.dims.iter().zip(&b.dims).all(|(&a, &b)| a == b || a == 0 || b == 0));
        let same = (a.ty, a.scale, a.zero_point, &a.channel_quant)
            == (b.ty, b.scale, b.zero_point, &b.channel_quant);
        if outer.extension != inner.extension {
            return Err(format!("operand {from} does not fit {what} {i}: their types are an extension's"));
        }
        if !same || !dims_fit {
            return Err(format!("operand {from} does not fit {what} {i}: {} and {}", shown(a), shown(b)));
        }
    }
    Ok(())
}
