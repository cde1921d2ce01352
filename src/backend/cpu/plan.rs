//! The memory plan: one place in the arena for each value whose size is known, shared by values that never live at the
//! same time, and by those that are the same bytes in other dimensions.

use super::graph::{Graph, Node};
use crate::ops::OperationType;
use std::collections::BTreeMap;
use std::ops::Range;

/// Every part starts at a multiple of this: a cache line, and the widest vector.
const ALIGNMENT: usize = 64;

/// Where values live.
pub struct Plan {
    /// By value: its part of the arena; `None` for constants and for values whose size only a run knows.
    pub parts: Vec<Option<Range<usize>>>,
    /// Size of the arena.
    pub size: usize,
}

/// Plans the arena for one run of `graph`, of whose nodes those in each range of `together` are done at once. `None` if it would not fit the address space.
pub fn plan(graph: &Graph, together: &[Range<usize>]) -> Option<Plan> {
    let owners = owners(graph);
    let mut last_use = vec![0usize; graph.values.len()];
    // What steps that are done together read and make lives until all of them are done.
    let mut ends_with: Vec<usize> = (0..graph.nodes.len()).collect();
    together.iter().for_each(|steps| ends_with[steps.clone()].fill(steps.end - 1));
    for (step, node) in ends_with.into_iter().zip(&graph.nodes) {
        // An output that nobody reads lives while it is written.
        node.inputs.iter().flatten().chain(&node.outputs).for_each(|&v| last_use[owners[v]] = step);
    }
    graph.outputs.iter().for_each(|&o| last_use[owners[o]] = usize::MAX);

    let mut ends: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut plan = Plan { parts: vec![None; graph.values.len()], size: 0 };
    let mut free = FreeList::default();
    let place = |plan: &mut Plan,
                 free: &mut FreeList,
                 ends: &mut BTreeMap<usize, Vec<usize>>,
                 v: usize|
     -> Option<()> {
        let value = &graph.values[v];
        let (Some(info), None) = (&value.resolved, &value.constant) else { return Some(()) };
        let size = info.byte_size()?;
        let start = free.take(size.checked_next_multiple_of(ALIGNMENT)?, &mut plan.size)?;
        plan.parts[v] = Some(start..start.checked_add(size)?);
        ends.entry(last_use[v]).or_default().push(v);
        Some(())
    };
    for &v in &graph.inputs {
        place(&mut plan, &mut free, &mut ends, v)?;
    }
    for (step, node) in graph.nodes.iter().enumerate() {
        for &v in &node.outputs {
            if owners[v] == v {
                place(&mut plan, &mut free, &mut ends, v)?;
            } else {
                plan.parts[v] = plan.parts[owners[v]].clone();
            }
        }
        for v in ends.remove(&step).unwrap_or_default() {
            let part = plan.parts[v].clone()?;
            free.give(part.start, (part.end - part.start).next_multiple_of(ALIGNMENT));
        }
    }
    Some(plan)
}

/// Whether a call gives its first input's bytes other dimensions, and does nothing else.
pub fn is_view(ty: OperationType) -> bool {
    matches!(ty, OperationType::RESHAPE | OperationType::SQUEEZE | OperationType::EXPAND_DIMS)
}

/// By value: whose place it has. Most have their own.
fn owners(graph: &Graph) -> Vec<usize> {
    let mut owners: Vec<usize> = (0..graph.values.len()).collect();
    for node in graph.nodes.iter().filter(|node| is_view(node.operation.ty)) {
        if let Some((from, to)) = shared_place(graph, node, &owners) {
            owners[to] = owners[from];
        }
    }
    owners
}

/// Input and output of a view that may have one place. What comes from a client or goes to one may be anywhere.
fn shared_place(graph: &Graph, node: &Node, owners: &[usize]) -> Option<(usize, usize)> {
    let (from, to) = ((*node.inputs.first()?)?, *node.outputs.first()?);
    let size = |v: usize| {
        let value = &graph.values[v];
        value.resolved.as_ref().filter(|_| value.constant.is_none())?.byte_size()
    };
    let inside = !graph.inputs.contains(&owners[from]) && !graph.outputs.contains(&to);
    (inside && size(from)? == size(to)?).then_some((from, to))
}

/// Unused parts of the arena so far, by start.
#[derive(Default)]
struct FreeList(BTreeMap<usize, usize>);

impl FreeList {
    /// The start of a part of `size` bytes: the smallest hole that fits, or new space at the end.
    fn take(&mut self, size: usize, arena: &mut usize) -> Option<usize> {
        if size == 0 {
            return Some(0);
        }
        let best =
            self.0.iter().filter(|(_, &len)| len >= size).min_by_key(|(_, &len)| len).map(|(&s, &l)| (s, l));
        if let Some((start, len)) = best {
            self.0.remove(&start);
            if len > size {
                self.0.insert(start + size, len - size);
            }
            return Some(start);
        }
        // A hole at the very end is extended rather than left.
        let last =
            self.0.last_key_value().map(|(&s, &l)| (s, l)).filter(|(start, len)| start + len == *arena);
        let start = last.map_or(*arena, |(start, _)| start);
        if last.is_some() {
            self.0.pop_last();
        }
        *arena = start.checked_add(size).filter(|&end| end <= isize::MAX as usize)?;
        Some(start)
    }

    fn give(&mut self, start: usize, len: usize) {
        if len == 0 {
            return;
        }
        let (mut start, mut len) = (start, len);
        if let Some((&before, &size)) = self.0.range(..start).next_back() {
            if before + size == start {
                self.0.remove(&before);
                (start, len) = (before, len + size);
            }
        }
        if let Some(size) = self.0.remove(&(start + len)) {
            len += size;
        }
        self.0.insert(start, len);
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::Value;
    use super::*;
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
        let plan = |operations: &[OperationType]| plan(&chain(operations, 64), &[]).unwrap();
        let inner = plan(&[ABS, RESHAPE, SQUEEZE, ABS]);
        assert_eq!(inner.parts[1..4], [Some(64..128), Some(64..128), Some(64..128)]);
        // The place is taken for as long as any view of it lives.
        assert_eq!(inner.parts[4], Some(0..64));
        let at_the_edges = plan(&[RESHAPE, ABS, RESHAPE]);
        assert_eq!(at_the_edges.parts, [Some(0..64), Some(64..128), Some(0..64), Some(64..128)]);
    }

    #[test]
    fn holes_are_reused_and_merged() {
        let (mut free, mut arena) = (FreeList::default(), 0);
        let a = free.take(64, &mut arena).unwrap();
        let b = free.take(128, &mut arena).unwrap();
        let c = free.take(64, &mut arena).unwrap();
        assert_eq!((a, b, c, arena), (0, 64, 192, 256));
        free.give(a, 64);
        free.give(b, 128);
        assert_eq!(free.take(192, &mut arena), Some(0), "two neighbours make one hole");
        free.give(c, 64);
        assert_eq!(free.take(128, &mut arena), Some(192), "a hole at the end is extended");
        assert_eq!(arena, 320);
    }
}
