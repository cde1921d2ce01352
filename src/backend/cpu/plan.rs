//! The memory plan: one place in the arena for each value whose size is known, shared by values that never live at the
//! same time, and by those that are the same bytes in other dimensions.

use super::graph::{Graph, Node};
use super::places::{self, Life};
use super::routine::STEPS;
use crate::ops::pace::Pace;
use crate::ops::{OpError, OperationType};
use std::ops::Range;

/// Where values live.
pub struct Plan {
    /// By value: its part of the arena; `None` for constants and for values whose size only a run knows.
    pub parts: Vec<Option<Range<usize>>>,
    /// Size of the arena.
    pub size: usize,
}

/// Plans the arena for one run of `graph`, of whose nodes those in each range of `together` are done at once. `None` if it
/// would not fit the address space.
pub fn plan(graph: &Graph, together: &[Range<usize>], pace: &mut Pace) -> Result<Option<Plan>, OpError> {
    let owners = owners(graph, pace)?;
    let mut last_use = vec![0usize; graph.values.len()];
    // What steps that are done together read and make lives until all of them are done.
    let mut ends_with: Vec<usize> = (0..graph.nodes.len()).collect();
    together.iter().for_each(|steps| ends_with[steps.clone()].fill(steps.end - 1));
    for (step, node) in ends_with.into_iter().zip(&graph.nodes) {
        pace.spend(STEPS.saturating_add(node.inputs.len()))?;
        // An output that nobody reads lives while it is written.
        node.inputs.iter().flatten().chain(&node.outputs).for_each(|&v| last_use[owners[v]] = step);
    }
    graph.outputs.iter().for_each(|&o| last_use[owners[o]] = usize::MAX);

    let (mut placed, mut lives) = (vec![], vec![]);
    let inputs = graph.inputs.iter().map(|&v| (0, v));
    let made =
        graph.nodes.iter().enumerate().flat_map(|(step, node)| node.outputs.iter().map(move |&v| (step, v)));
    for (first, v) in inputs.chain(made) {
        pace.spend(STEPS)?;
        let value = &graph.values[v];
        let (Some(info), None) = (value.resolved.as_ref().filter(|_| owners[v] == v), &value.constant) else {
            continue;
        };
        let Some(size) = info.byte_size() else { return Ok(None) };
        placed.push((v, size));
        lives.push(Life { size, steps: first..=last_use[v] });
    }
    let Some((starts, size)) = places::find(&lives, pace)? else { return Ok(None) };
    let mut parts = vec![None; graph.values.len()];
    for (start, (v, size)) in starts.into_iter().zip(placed) {
        pace.spend(STEPS)?;
        parts[v] = Some(start..start + size);
    }
    // Views come after what they are views of.
    for &v in graph.nodes.iter().flat_map(|node| &node.outputs) {
        pace.spend(STEPS)?;
        if owners[v] != v {
            parts[v] = parts[owners[v]].clone();
        }
    }
    Ok(Some(Plan { parts, size }))
}

/// Whether a call gives its first input's bytes other dimensions, and does nothing else.
pub fn is_view(ty: OperationType) -> bool {
    matches!(ty, OperationType::RESHAPE | OperationType::SQUEEZE | OperationType::EXPAND_DIMS)
}

/// By value: whose place it has. Most have their own.
fn owners(graph: &Graph, pace: &mut Pace) -> Result<Vec<usize>, OpError> {
    let mut owners: Vec<usize> = (0..graph.values.len()).collect();
    let at_an_edge = |list: &[usize]| {
        let mut are = vec![false; graph.values.len()];
        list.iter().for_each(|&v| are[v] = true);
        are
    };
    let (inputs, outputs) = (at_an_edge(&graph.inputs), at_an_edge(&graph.outputs));
    for node in &graph.nodes {
        pace.spend(STEPS)?;
        if !is_view(node.operation.ty) {
            continue;
        }
        // What comes from a client or goes to one may be anywhere.
        let inside = |&(from, to): &(usize, usize)| !inputs[owners[from]] && !outputs[to];
        if let Some((from, to)) = same_bytes(graph, node).filter(inside) {
            owners[to] = owners[from];
        }
    }
    Ok(owners)
}

/// Input and output of a view that are as large.
fn same_bytes(graph: &Graph, node: &Node) -> Option<(usize, usize)> {
    let (from, to) = ((*node.inputs.first()?)?, *node.outputs.first()?);
    let size = |v: usize| {
        let value = &graph.values[v];
        value.resolved.as_ref().filter(|_| value.constant.is_none())?.byte_size()
    };
    (size(from)? == size(to)?).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::super::graph::Value;
    use super::*;
    use crate::ops::NeverInterrupted;
    use crate::tensor::{OperandType, TensorInfo};

    /// A chain of operations, each on the value before, all of which have `count` bytes.
    fn chain(operations: &[OperationType], count: u32) -> Graph {
        let info = TensorInfo::new(OperandType::TENSOR_QUANT8_SYMM, &[count]);
        let value = || Value { declared: info.clone(), resolved: Some(info.clone()), constant: None };
        let node = |(i, ty): (usize, &OperationType)| Node {
            operation: ty.operation().unwrap(),
            signature_index: 0,
            inputs: vec![Some(i)],
            outputs: vec![i + 1],
            subgraphs: vec![],
            index: i,
        };
        Graph {
            values: (0..=operations.len()).map(|_| value()).collect(),
            nodes: operations.iter().enumerate().map(node).collect(),
            inputs: vec![0],
            outputs: vec![operations.len()],
        }
    }

    #[test]
    fn views_have_the_place_of_what_they_are_views_of() {
        use OperationType::{ABS, RESHAPE, SQUEEZE};
        let plan = |operations: &[OperationType]| {
            plan(&chain(operations, 64), &[], &mut Pace::of(&NeverInterrupted)).unwrap().unwrap()
        };
        let inner = plan(&[ABS, RESHAPE, SQUEEZE, ABS]);
        assert_eq!(inner.parts[1..4], [Some(64..128), Some(64..128), Some(64..128)]);
        // The place is taken for as long as any view of it lives.
        assert_eq!(inner.parts[4], Some(0..64));
        let at_the_edges = plan(&[RESHAPE, ABS, RESHAPE]);
        assert_eq!(at_the_edges.parts, [Some(0..64), Some(64..128), Some(0..64), Some(64..128)]);
    }

    #[test]
    fn views_of_many_inputs_and_to_many_outputs_are_found_at_once() {
        const MANY: usize = if cfg!(miri) { 1 << 8 } else { 1 << 20 };
        let info = TensorInfo::new(OperandType::TENSOR_QUANT8_SYMM, &[64]);
        let value = || Value { declared: info.clone(), resolved: Some(info.clone()), constant: None };
        let node = |i: usize| Node {
            operation: OperationType::RESHAPE.operation().unwrap(),
            signature_index: 0,
            inputs: vec![Some(i)],
            outputs: vec![MANY + i],
            subgraphs: vec![],
            index: i,
        };
        let graph = Graph {
            values: (0..2 * MANY).map(|_| value()).collect(),
            nodes: (0..MANY).map(node).collect(),
            inputs: (0..MANY).collect(),
            outputs: (MANY..2 * MANY).collect(),
        };
        let owners = owners(&graph, &mut Pace::of(&NeverInterrupted)).unwrap();
        assert!(owners.into_iter().eq(0..2 * MANY), "each has a place of its own");
    }
}
