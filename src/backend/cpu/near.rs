//! Brings the calls that make the left matrices of a product down to that product, from the product that they begin with: in
//! attention, models make the other matrices in between. What follows each other can go together, and what is made lives for
//! less long. It changes nothing but the order of calls.

use super::graph::{Graph, Node};
use super::routine::STEPS;
use crate::ops::pace::Pace;
use crate::ops::scratch::{filled, reserved, Scratch};
use crate::ops::{OpError, OperationType};

/// Calls that are brought down to a product, at most: they are looked for from each.
const MOST: usize = 8;

/// Brings calls near. The next call reads what such a call makes, once, and no other call does.
pub fn bring(graph: &mut Graph, pace: &mut Pace) -> Result<(), OpError> {
    let known = Known::of(graph, pace)?;
    let mut is_moved = filled(pace.interrupt(), false, graph.nodes.len())?;
    // Calls in order, with the product in front of which they come.
    let (mut moved, mut calls) = (reserved(graph.nodes.len())?, Vec::with_capacity(MOST));
    for i in 0..graph.nodes.len() {
        pace.spend(STEPS)?;
        known.calls_before(i, &mut calls);
        pace.spend(calls.len() * STEPS)?;
        // Those that lie in front of it already stay there.
        if calls.last().is_some_and(|&first| first + calls.len() < i) {
            calls.iter().for_each(|&call| is_moved[call] = true);
            moved.extend(calls.iter().rev().map(|&call| (call, i)));
        }
    }
    if moved.is_empty() {
        return Ok(());
    }
    let mut nodes = reserved(graph.nodes.len())?;
    for node in graph.nodes.drain(..) {
        pace.spend(STEPS)?;
        nodes.push(Some(node));
    }
    let mut moved = moved.iter().peekable();
    for i in 0..nodes.len() {
        pace.spend(STEPS)?;
        while let Some(&(call, _)) = moved.next_if(|&&(_, before)| before == i) {
            graph.nodes.extend(nodes[call].take());
        }
        if !is_moved[i] {
            graph.nodes.extend(nodes[i].take());
        }
    }
    Ok(())
}

/// What is known of a graph.
struct Known<'g> {
    nodes: &'g [Node],
    /// By value: how often it is read, as an output, too, and the call that makes it.
    uses: Scratch<usize>,
    makers: Scratch<Option<usize>>,
}

impl<'g> Known<'g> {
    fn of(graph: &'g Graph, pace: &mut Pace) -> Result<Self, OpError> {
        let mut uses = filled(pace.interrupt(), 0, graph.values.len())?;
        let mut makers = filled(pace.interrupt(), None, graph.values.len())?;
        for (i, node) in graph.nodes.iter().enumerate() {
            pace.spend(STEPS.saturating_add(node.inputs.len()))?;
            node.inputs.iter().flatten().for_each(|&v| uses[v] += 1);
            node.outputs.iter().for_each(|&v| makers[v] = Some(i));
        }
        graph.outputs.iter().for_each(|&v| uses[v] += 1);
        Ok(Known { nodes: &graph.nodes, uses, makers })
    }

    /// The calls that make the left matrices of product `i`, backwards, down to the product that they begin with; none if it
    /// is not one, or they do not begin with one.
    fn calls_before(&self, i: usize, calls: &mut Vec<usize>) {
        calls.clear();
        let is_product = |i: usize| self.nodes[i].operation.ty == OperationType::BATCH_MATMUL;
        let mut next = i;
        while is_product(i) && calls.len() < MOST {
            // Of several inputs, the first that no other call reads.
            let inputs = self.nodes[next].inputs.iter().take(if next == i { 1 } else { MOST });
            let alone = |&v: &usize| self.uses[v] == 1 && self.makers[v].is_some();
            let Some(call) = inputs.flatten().copied().find(alone).and_then(|v| self.makers[v]) else {
                break;
            };
            if self.nodes[call].outputs.len() != 1 {
                break;
            }
            calls.push(call);
            if is_product(call) {
                return;
            }
            next = call;
        }
        calls.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{f32_info, Build};
    use super::*;
    use crate::ops::NeverInterrupted;
    use crate::tensor::{OperandType, TensorInfo};

    /// The order of the calls of a model: two products, one of what is made of the other's, whose right matrices are made between; with
    /// the first one's as an output, too, if they are to leave.
    fn order(leaves: bool) -> Vec<usize> {
        let mut b = Build::new();
        let input = b.input(f32_info(&[2, 8, 8]));
        let [no, none] = [b.constant(TensorInfo::new(OperandType::BOOL, &[]), &[0u8]), b.ints(&[0])[0]];
        let mut call = |ty, inputs: &[usize]| b.call(ty, 0, inputs, f32_info(&[2, 8, 8]));
        let made = call(OperationType::BATCH_MATMUL, &[input, input, no, no]);
        let other = call(OperationType::ABS, &[input]);
        let sum = call(OperationType::ADD, &[other, made, none]);
        let values = call(OperationType::ABS, &[other]);
        let product = call(OperationType::BATCH_MATMUL, &[sum, values, no, no]);
        let mut subgraph = b.finish(product);
        subgraph.outputs.extend(leaves.then_some(made));
        let mut pace = Pace::of(&NeverInterrupted);
        let mut graph = Graph::new(&subgraph, &mut pace).unwrap();
        bring(&mut graph, &mut pace).unwrap();
        graph.nodes.iter().map(|node| node.index).collect()
    }

    #[test]
    fn what_a_product_reads_is_made_in_front_of_it() {
        assert_eq!(order(false), [1, 3, 0, 2, 4]);
    }

    #[test]
    fn what_somebody_else_reads_stays_where_it_is() {
        assert_eq!(order(true), [0, 1, 2, 3, 4]);
    }
}
