//! Maps one operator: finds how, and checks what became of it.

use super::call::{self, Call, State};
use super::error::Refusal;
use super::graph::{Graph, Operator};
use super::{registry, shape, verify, wide};
use crate::client::builder::Builder;

/// Maps an operator with everything that it reads given, but for constants. Gives the model that it became.
pub fn map_alone<'a>(graph: &Graph<'a>, operator: &Operator) -> Result<State<'a>, Refusal> {
    let mut state = State::new(graph, Builder::default());
    for i in operator.inputs.iter().copied().flatten() {
        let tensor = &graph.tensors[i];
        let is_given = tensor.data.is_none() && (!tensor.variable || graph.states.contains(&i));
        if is_given && !tensor.is_empty() && state.operands[i].is_none() {
            state.operands[i] = Some(state.builder.input(call::info(tensor)?));
        }
    }
    map(graph, operator, &mut state)?;
    Ok(state)
}

/// Maps one operator and checks what became of it.
pub fn map<'a>(graph: &Graph<'a>, operator: &Operator, state: &mut State<'a>) -> Result<(), Refusal> {
    let mapping = registry::find(&operator.name).ok_or_else(|| registry::why_not(&operator.name))?;
    for (what, count, allowed) in [
        ("inputs", operator.inputs.len(), &mapping.inputs),
        ("outputs", operator.outputs.len(), &mapping.outputs),
    ] {
        if !allowed.contains(&count) {
            return Err(format!("{count} {what}, expected {} to {}", allowed.start(), allowed.end()).into());
        }
    }
    let first = state.builder.operations().len();
    let mut call = Call { graph, operator, state };
    let tensors = operator.inputs.iter().flatten().chain(&operator.outputs);
    match tensors.map(|&i| graph.tensors[i].dims.len()).max() {
        Some(rank) if rank > shape::MOST => wide::map(&mut call, mapping.joined, &mapping.map)?,
        _ => (mapping.map)(&mut call)?,
    }
    verify::verify(&state.builder, first)
}
