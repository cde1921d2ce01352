//! The memory plan: one place in the arena for each value whose size is known, shared by values that never live at the
//! same time; and one for those that are pieces of another, which calls then need not copy.

use super::graph::Graph;
use super::passes::{arguments, output_infos};
use super::places::{self, Life};
use super::routine::STEPS;
use super::views::{pieces, Piece};
use crate::ops::movement::moves_only;
use crate::ops::pace::Pace;
use crate::ops::scratch::{collected, filled, reserved, Scratch};
use crate::ops::sort::sort;
use crate::ops::{Args, Few, Interrupt, OpError};
use crate::tensor::TensorInfo;
use std::ops::Range;

/// Where values live.
pub struct Plan {
    /// By value: its part of the arena; `None` for constants and for values whose size only a run knows.
    pub parts: Scratch<Option<Range<usize>>>,
    /// Size of the arena.
    pub size: usize,
    /// By node: whether it has nothing to do, as what it makes lies in what it makes it from, or the other way round.
    pub in_place: Scratch<bool>,
}

/// Plans the arena for one run of `graph`, of whose nodes those in each range of `together` are done at once. `None` if it
/// would not fit the address space.
pub fn plan(
    graph: &Graph,
    together: &[Range<usize>],
    interrupt: &dyn Interrupt,
) -> Result<Option<Plan>, OpError> {
    let mut pace = Pace::of(interrupt);
    let (mut shared, in_place) = shared(graph, interrupt)?;
    let mut last_use = filled(interrupt, 0usize, graph.values.len())?;
    // What steps that are done together read and make lives until all of them are done.
    let mut ends_with = collected(interrupt, 0..graph.nodes.len())?;
    together.iter().for_each(|steps| ends_with[steps.clone()].fill(steps.end - 1));
    for (&step, node) in ends_with.iter().zip(&graph.nodes) {
        pace.spend(STEPS.saturating_add(node.inputs.len()).saturating_add(node.outputs.len()))?;
        // An output that nobody reads lives while it is written.
        node.inputs.iter().flatten().chain(&node.outputs).for_each(|&v| last_use[shared.find(v).0] = step);
    }
    graph.outputs.iter().for_each(|&o| last_use[shared.find(o).0] = usize::MAX);

    // By value: whether it is in the list already, as any that lies in it makes it live.
    let mut is_placed = filled(interrupt, false, graph.values.len())?;
    let (mut placed, mut lives) = (reserved(graph.values.len())?, reserved(graph.values.len())?);
    let inputs = graph.inputs.iter().map(|&v| (0, v));
    let made =
        graph.nodes.iter().enumerate().flat_map(|(step, node)| node.outputs.iter().map(move |&v| (step, v)));
    for (first, v) in inputs.chain(made) {
        pace.spend(STEPS)?;
        let v = shared.find(v).0;
        let value = &graph.values[v];
        let (Some(info), None, false) = (&value.resolved, &value.constant, is_placed[v]) else { continue };
        let Some(size) = info.byte_size() else { return Ok(None) };
        is_placed[v] = true;
        placed.push(v);
        lives.push(Life { size, steps: first..=last_use[v] });
    }
    let Some((starts, size)) = places::find(&lives, &mut pace)? else { return Ok(None) };
    let mut start_of = filled(interrupt, 0, graph.values.len())?;
    pace.each(placed.iter().zip(starts.iter()), 1, |(&v, &start)| start_of[v] = start)?;
    let mut parts = filled(interrupt, None, graph.values.len())?;
    for (v, part) in parts.iter_mut().enumerate() {
        pace.spend(STEPS)?;
        let (whole, start) = shared.find(v);
        if is_placed[whole] {
            let Some(size) = graph.values[v].resolved.as_ref().and_then(TensorInfo::byte_size) else {
                continue;
            };
            *part = Some(start_of[whole] + start..start_of[whole] + start + size);
        }
    }
    Ok(Some(Plan { parts, size, in_place }))
}

/// A piece of a tensor keeps all of it: of what is larger, pieces are copied, if they are not all of it.
const MOST_KEPT: usize = 64 << 10;

/// Finds what can lie in what, so that calls have nothing to do, and tells by node which those are.
fn shared(graph: &Graph, interrupt: &dyn Interrupt) -> Result<(Shared, Scratch<bool>), OpError> {
    let (mut shared, mut pace) = (Shared::new(graph.values.len(), interrupt)?, Pace::of(interrupt));
    let (mut in_place, mut wholes) = (filled(interrupt, false, graph.nodes.len())?, reserved(0)?);
    // What comes from a client or goes to one may be anywhere.
    let mut is_fixed = filled(interrupt, false, graph.values.len())?;
    graph.inputs.iter().chain(&graph.outputs).for_each(|&v| is_fixed[v] = true);
    let size = |v: usize| {
        let value = &graph.values[v];
        value.resolved.as_ref().filter(|_| value.constant.is_none())?.byte_size()
    };
    for (node, in_place) in graph.nodes.iter().zip(in_place.iter_mut()) {
        pace.spend(STEPS)?;
        if !moves_only(node.operation.ty) {
            continue;
        }
        let is_known = |&o: &usize| graph.values[o].resolved.is_some();
        let Some(inputs) = arguments(graph, node).filter(|_| node.outputs.iter().all(is_known)) else {
            continue;
        };
        let outputs: Few<_> = output_infos(graph, node);
        let args =
            Args { signature_index: node.signature_index, inputs: &inputs, outputs: &outputs, interrupt };
        let pieces = pieces(node.operation.ty, &args, &node.inputs, &node.outputs)?;
        pace.spend(pieces.len().saturating_mul(STEPS))?;
        let (mut all, mut may) = (0usize, !pieces.is_empty());
        wholes.clear();
        wholes.append(interrupt, pieces.iter().map(|piece| shared.find(piece.value).0))?;
        for (Piece { value, whole, .. }, &root) in pieces.iter().zip(wholes.iter()) {
            // What is a piece of something else already stays there, and what lies in it goes along.
            may &= size(root).is_some() && size(root) == size(*value) && size(*whole).is_some();
            may &= !is_fixed[root] && !is_fixed[*value] && !is_fixed[shared.find(*whole).0];
            all = all.saturating_add(size(root).unwrap_or(0));
        }
        sort(&mut wholes, usize::MAX, &mut pace, usize::cmp)?;
        may &= wholes.windows(2).all(|two| two[0] != two[1]);
        let kept = pieces.first().and_then(|piece| size(piece.whole)).unwrap_or(0);
        if !may || all < kept && kept > MOST_KEPT {
            continue;
        }
        pieces.iter().for_each(|piece| shared.put(piece));
        *in_place = true;
    }
    Ok((shared, in_place))
}

/// Which values lie in which others.
struct Shared {
    /// By value: what it lies in, and where; itself if in nothing.
    within: Scratch<(usize, usize)>,
}

impl Shared {
    fn new(values: usize, interrupt: &dyn Interrupt) -> Result<Self, OpError> {
        Ok(Shared { within: collected(interrupt, (0..values).map(|v| (v, 0)))? })
    }

    /// The value that has a place, and where in it `v` lies.
    fn find(&mut self, mut v: usize) -> (usize, usize) {
        let mut start = 0;
        loop {
            let (whole, at) = self.within[v];
            if whole == v {
                return (v, start);
            }
            // The next one who asks has half the way to go.
            let (next, further) = self.within[whole];
            self.within[v] = (next, at + further);
            (v, start) = (next, start + at + further);
        }
    }

    fn put(&mut self, piece: &Piece) {
        let (root, _) = self.find(piece.value);
        self.within[root] = (piece.whole, piece.start);
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::{Node, Value};
    use super::*;
    use crate::memory::{Budget, Counted};
    use crate::ops::{NeverInterrupted, OperationType};
    use crate::tensor::OperandType;

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
            inferred: None,
        }
    }

    #[test]
    fn views_have_the_place_of_what_they_are_views_of() {
        use OperationType::{ABS, RESHAPE, SQUEEZE};
        let plan = |operations: &[OperationType]| {
            plan(&chain(operations, 64), &[], &NeverInterrupted).unwrap().unwrap()
        };
        let inner = plan(&[ABS, RESHAPE, SQUEEZE, ABS]);
        assert_eq!(inner.parts[1..4], [Some(64..128), Some(64..128), Some(64..128)]);
        assert_eq!(inner.in_place[..], [false, true, true, false]);
        // The place is taken for as long as any view of it lives.
        assert_eq!(inner.parts[4], Some(0..64));
        let at_the_edges = plan(&[RESHAPE, ABS, RESHAPE]);
        assert_eq!(at_the_edges.parts[..], [Some(0..64), Some(64..128), Some(0..64), Some(64..128)]);
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
            inferred: None,
        };
        let (mut shared, in_place) = shared(&graph, &NeverInterrupted).unwrap();
        assert!((0..2 * MANY).all(|v| shared.find(v) == (v, 0)), "each has a place of its own");
        assert!(!in_place.contains(&true));
    }

    #[test]
    fn a_plan_is_made_of_memory_of_the_client() {
        const MANY: usize = 1 << 10;
        let operations = [OperationType::ABS; MANY];
        let graph = chain(&operations, 64);
        let budget = Budget::new(8 << 20);
        let _account = budget.on_account_of(1);
        let plan_within = |left: usize| {
            let _held = Counted::take((4 << 20) - left).unwrap();
            plan(&graph, &[], &NeverInterrupted).map(|plan| plan.is_some())
        };
        assert_eq!(plan_within(4 << 20), Ok(true));
        // By value: a flag or two, its last use, what it lies in, and its part.
        for left in (0..MANY * 48).step_by(MANY * 4) {
            assert!(matches!(plan_within(left), Err(OpError::OutOfMemory(_))), "{left} bytes");
        }
    }

    #[test]
    fn values_that_lie_in_one_another_a_million_deep_are_found_at_once() {
        const DEEP: usize = 1 << 20;
        let mut shared = Shared::new(DEEP, &NeverInterrupted).unwrap();
        // Each is put into the one behind, as concatenations of one another are.
        (0..DEEP - 1).for_each(|value| shared.put(&Piece { value, whole: value + 1, start: 1 }));
        for v in 0..DEEP {
            assert_eq!(shared.find(v), (DEEP - 1, DEEP - 1 - v));
        }
    }
}
