//! The memory plan: one place in the arena for each value whose size is known, shared by values that never live at the
//! same time, and by those that are the same bytes in other dimensions.

use super::graph::{Graph, Node};
use super::routine::STEPS;
use crate::ops::pace::Pace;
use crate::ops::{OpError, OperationType};
use std::collections::{BTreeMap, BTreeSet};
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
        pace.spend(STEPS)?;
        if place(&mut plan, &mut free, &mut ends, v).is_none() {
            return Ok(None);
        }
    }
    for (step, node) in graph.nodes.iter().enumerate() {
        for &v in &node.outputs {
            pace.spend(STEPS)?;
            if owners[v] != v {
                plan.parts[v] = plan.parts[owners[v]].clone();
            } else if place(&mut plan, &mut free, &mut ends, v).is_none() {
                return Ok(None);
            }
        }
        for v in ends.remove(&step).unwrap_or_default() {
            pace.spend(STEPS)?;
            let Some(part) = plan.parts[v].clone() else { return Ok(None) };
            free.give(part.start, (part.end - part.start).next_multiple_of(ALIGNMENT));
        }
    }
    Ok(Some(plan))
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

/// Unused parts of the arena so far. A client decides how many there are.
#[derive(Default)]
struct FreeList {
    /// Sizes by start.
    by_start: BTreeMap<usize, usize>,
    /// Size and start of each.
    by_size: BTreeSet<(usize, usize)>,
}

impl FreeList {
    /// The start of a part of `size` bytes: the smallest hole that fits, or new space at the end.
    fn take(&mut self, size: usize, arena: &mut usize) -> Option<usize> {
        if size == 0 {
            return Some(0);
        }
        if let Some(&(len, start)) = self.by_size.range((size, 0)..).next() {
            self.remove(start, len);
            if len > size {
                self.insert(start + size, len - size);
            }
            return Some(start);
        }
        // A hole at the very end is extended rather than left.
        let last = self.by_start.last_key_value().map(|(&start, &len)| (start, len));
        let start = match last.filter(|(start, len)| start + len == *arena) {
            Some((start, len)) => {
                self.remove(start, len);
                start
            }
            None => *arena,
        };
        *arena = start.checked_add(size).filter(|&end| end <= isize::MAX as usize)?;
        Some(start)
    }

    fn give(&mut self, start: usize, len: usize) {
        if len == 0 {
            return;
        }
        let (mut start, mut len) = (start, len);
        let before = self.by_start.range(..start).next_back().map(|(&start, &len)| (start, len));
        if let Some((before, size)) = before.filter(|(before, size)| before + size == start) {
            self.remove(before, size);
            (start, len) = (before, len + size);
        }
        if let Some(&size) = self.by_start.get(&(start + len)) {
            self.remove(start + len, size);
            len += size;
        }
        self.insert(start, len);
    }

    fn insert(&mut self, start: usize, len: usize) {
        self.by_start.insert(start, len);
        self.by_size.insert((len, start));
    }

    fn remove(&mut self, start: usize, len: usize) {
        self.by_start.remove(&start);
        self.by_size.remove(&(len, start));
    }
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
    fn the_smallest_hole_that_fits_is_taken_however_many_there_are() {
        // If each were looked at for each part, this would take hours.
        const HOLES: usize = if cfg!(miri) { 1 << 8 } else { 1 << 20 };
        let (mut free, mut arena) = (FreeList::default(), 0);
        let starts: Vec<usize> = (0..2 * HOLES).map(|_| free.take(64, &mut arena).unwrap()).collect();
        starts.iter().step_by(2).for_each(|&start| free.give(start, 64));
        let ends: Vec<usize> = (0..HOLES).map(|_| free.take(128, &mut arena).unwrap()).collect();
        assert_eq!((ends[0], ends[HOLES - 1], arena), (128 * HOLES, 256 * HOLES - 128, 256 * HOLES));
        assert_eq!(free.take(64, &mut arena), Some(0));
        free.give(ends[5], 128);
        assert_eq!(free.take(65, &mut arena), Some(ends[5]), "the others are too small");
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
