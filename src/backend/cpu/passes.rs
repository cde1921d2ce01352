//! Passes over a graph: shapes resolved ahead, constants folded, dead operations dropped, and others [brought near](near).
//!
//! A pass must not change what a run gives, errors included: a call that cannot succeed stays and fails when it runs. Only
//! one whose results nobody uses is gone, whatever it would have failed on: values, such as the indices of a GATHER, included.

use super::constant::Constant;
use super::graph::{Graph, Node};
use super::near;
use super::routine::STEPS;
use crate::backend::{BackendError, Control};
use crate::ops::evaluate::{run, shapes};
use crate::ops::pace::Pace;
use crate::ops::scratch::filled;
use crate::ops::{Arg, Args, Few, Interrupt, OpError, OperationType};
use crate::tensor::{Dims, TensorInfo};
use std::sync::Arc;

/// Bytes that results computed ahead may take, all of a graph's together: beyond it a model would only get larger than
/// it is.
const MAX_FOLDED: usize = 64 << 20;
/// The same of what is widened when it is packed, as weights are: nobody keeps these results.
const MAX_WIDENED: usize = 1 << 30;

/// Runs all passes.
pub fn optimise(graph: &mut Graph, control: &Control) -> Result<(), BackendError> {
    let mut pace = Pace::of(control);
    // Before as well: a result without a use may take long to compute, and leaves less of the limit to the rest.
    drop_dead(graph, &mut pace)?;
    resolve_and_fold(graph, control)?;
    drop_dead(graph, &mut pace)?;
    near::bring(graph, &mut pace)?;
    Ok(())
}

/// Walks the operations in order: settles what dimensions can be known, and evaluates what has only constant inputs.
fn resolve_and_fold(graph: &mut Graph, control: &Control) -> Result<(), BackendError> {
    let nodes = std::mem::take(&mut graph.nodes);
    let mut left = Left { folded: MAX_FOLDED, widened: MAX_WIDENED };
    for node in nodes {
        control.yield_point()?;
        let folded = match infer(graph, &node, control) {
            Ok(dims) => {
                graph.count_dims(&dims)?;
                resolve(graph, &node, &dims).and_then(|()| fold(graph, &node, control, &mut left))
            }
            Err(error) => Err(error),
        };
        match folded {
            Ok(true) => {}
            Err(error @ (OpError::DeadlinePassed | OpError::Cancelled)) => {
                return Err(error.into());
            }
            // Not known yet, or it cannot succeed: the run will tell.
            Ok(false) | Err(OpError::Unresolved | OpError::Failed(_) | OpError::OutOfMemory(_)) => {
                graph.nodes.push(node)
            }
        }
    }
    Ok(())
}

/// Bytes that results may still take.
struct Left {
    folded: usize,
    widened: usize,
}

/// What a call looks like before a run: resolved dimensions, values of constants. `None` if some dimension is unknown.
pub fn arguments<'g>(graph: &'g Graph, node: &Node) -> Option<Few<Option<Arg<'g>>>> {
    let arg = |input: &Option<usize>| match input {
        None => Some(None),
        Some(value) => {
            let value = &graph.values[*value];
            let info = value.resolved.as_ref()?;
            Some(Some(Arg { info, data: value.bytes() }))
        }
    };
    node.inputs.iter().map(arg).collect()
}

/// Declared types of a call's outputs.
pub fn output_infos<L: FromIterator<TensorInfo>>(graph: &Graph, node: &Node) -> L {
    let info = |&o: &usize| graph.values[o].resolved.as_ref().unwrap_or(&graph.values[o].declared).clone();
    node.outputs.iter().map(info).collect()
}

/// The dimensions of a call's outputs.
fn infer(graph: &Graph, node: &Node, control: &Control) -> Result<Vec<Dims>, OpError> {
    let inputs = arguments(graph, node).ok_or(OpError::Unresolved)?;
    let outputs: Few<_> = output_infos(graph, node);
    let args = Args {
        signature_index: node.signature_index,
        inputs: &inputs,
        outputs: &outputs,
        interrupt: control,
    };
    shapes(node.operation, &args)
}

fn resolve(graph: &mut Graph, node: &Node, dims: &[Dims]) -> Result<(), OpError> {
    for (&o, dims) in node.outputs.iter().zip(dims) {
        if let Err(why) = graph.values[o].resolve(dims) {
            node.outputs.iter().for_each(|&o| graph.values[o].resolved = None);
            return Err(OpError::Failed(why));
        }
    }
    Ok(())
}

/// Evaluates a call whose inputs are all constant, or notes how, if what it gives fits the bytes that are `left`; whether it
/// did, and the call is no longer needed.
fn fold(graph: &mut Graph, node: &Node, control: &Control, left: &mut Left) -> Result<bool, OpError> {
    let constant = |input: &Option<usize>| input.is_none_or(|value| graph.values[value].constant.is_some());
    // Seeds of zero ask for other numbers in each run.
    if node.operation.ty == OperationType::RANDOM_MULTINOMIAL || !node.inputs.iter().all(constant) {
        return Ok(false);
    }
    let outputs: Few<_> = output_infos(graph, node);
    let bytes: usize = outputs.iter().filter_map(TensorInfo::byte_size).fold(0, usize::saturating_add);
    if let ([Some(input)], [output], [info]) = (&node.inputs[..], &node.outputs[..], &outputs[..]) {
        let value = &graph.values[*input];
        let from = value.resolved.as_ref().zip(value.constant.as_ref()).filter(|_| bytes <= left.widened);
        let call = (node.operation, node.signature_index);
        if let Some(widened) = from.and_then(|from| Constant::widened(call, from, info)) {
            left.widened -= bytes;
            graph.values[*output].constant = Some(widened);
            return Ok(true);
        }
    }
    if bytes > left.folded {
        return Ok(false);
    }
    for &input in node.inputs.iter().flatten() {
        graph.values[input].make_private(control).map_err(|why| match why {
            BackendError::DeadlinePassed => OpError::DeadlinePassed,
            BackendError::Cancelled => OpError::Cancelled,
            why => OpError::Failed(why.to_string()),
        })?;
    }
    let results = {
        let inputs = arguments(graph, node).ok_or(OpError::Unresolved)?;
        let args = Args {
            signature_index: node.signature_index,
            inputs: &inputs,
            outputs: &outputs,
            interrupt: control,
        };
        run(node.operation, &args)?
    };
    left.folded = results.iter().fold(left.folded, |left, result| left.saturating_sub(result.data.len()));
    for (&o, result) in node.outputs.iter().zip(results) {
        graph.values[o].constant = Some(Constant::Private(Arc::new(result.data)));
    }
    Ok(true)
}

/// Drops operations whose results nobody uses.
fn drop_dead(graph: &mut Graph, pace: &mut Pace) -> Result<(), OpError> {
    let mut used = filled(pace.interrupt(), false, graph.values.len())?;
    graph.outputs.iter().for_each(|&o| used[o] = true);
    let mut kept = filled(pace.interrupt(), false, graph.nodes.len())?;
    for (node, kept) in graph.nodes.iter().zip(kept.iter_mut()).rev() {
        pace.spend(STEPS.saturating_add(node.inputs.len()).saturating_add(node.outputs.len()))?;
        *kept = node.outputs.iter().any(|&o| used[o]);
        if *kept {
            node.inputs.iter().flatten().for_each(|&i| used[i] = true);
        }
    }
    // To move and to free them takes time, too.
    let (mut looked, mut kept) = (Ok(()), kept.iter());
    graph.nodes.retain(|_| {
        looked = looked.clone().and_then(|()| pace.spend(STEPS));
        kept.next().is_none_or(|&kept| kept)
    });
    looked?;
    pace.each(graph.values.iter_mut().zip(used.iter()), 1, |(value, used)| {
        if !used {
            value.constant = None;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::graph::Value;
    use super::super::routine::uses;
    use super::*;
    use crate::memory::{AlignedBuf, Budget, Counted};
    use crate::ops::NeverInterrupted;
    use crate::scheduler::Yield;
    use crate::tensor::OperandType;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts how often others could have had the turn.
    #[derive(Debug)]
    struct Counting(AtomicUsize);

    impl Yield for Counting {
        fn pass(&self, _: &Control) -> Result<(), OpError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn threads(&self) -> usize {
            1
        }
    }

    /// Four operations, each of which gives a little less than half of what is allowed.
    fn fills() -> Graph {
        let constant = |ty, dims: &[u32], values: &[i32]| {
            let bytes = AlignedBuf::copy_of(bytemuck::cast_slice(values)).unwrap();
            let info = TensorInfo::new(ty, dims);
            Value {
                declared: info.clone(),
                resolved: Some(info),
                constant: Some(Constant::Private(Arc::new(bytes))),
            }
        };
        let count = (MAX_FOLDED / 2 / 4) as i32 - 1;
        let mut values = vec![
            constant(OperandType::TENSOR_INT32, &[1], &[count]),
            constant(OperandType::INT32, &[], &[7]),
        ];
        let outputs: Vec<usize> = (2..6).collect();
        values.extend(outputs.iter().map(|_| Value {
            declared: TensorInfo::new(OperandType::TENSOR_INT32, &[]),
            resolved: None,
            constant: None,
        }));
        let operation = OperationType::FILL.operation().unwrap();
        let node = |&o: &usize| Node {
            operation,
            signature_index: 0,
            inputs: vec![Some(0), Some(1)],
            outputs: vec![o],
            subgraphs: vec![],
            index: 0,
        };
        let nodes = outputs.iter().map(node).collect();
        Graph { values, nodes, inputs: vec![], outputs, inferred: None }
    }

    /// By operation of [`fills`]: whether its result is there.
    fn folded(graph: &Graph) -> Vec<bool> {
        graph.values[2..].iter().map(|value| value.constant.is_some()).collect()
    }

    #[test]
    fn results_computed_ahead_have_a_limit_together() {
        let mut graph = fills();
        let counting = Arc::new(Counting(AtomicUsize::new(0)));
        let control = Control { turn: Some(counting.clone()), ..Control::default() };
        optimise(&mut graph, &control).unwrap();
        assert!(counting.0.load(Ordering::Relaxed) >= 4, "others wait until all nodes are folded");
        assert_eq!((folded(&graph), graph.nodes.len()), (vec![true, true, false, false], 2));
    }

    #[test]
    fn what_nobody_uses_is_not_computed() {
        let mut graph = fills();
        graph.outputs.drain(..2);
        optimise(&mut graph, &Control::default()).unwrap();
        assert_eq!((folded(&graph), graph.nodes.len()), (vec![false, false, true, true], 0));
    }

    #[test]
    fn dimensions_that_one_constant_gives_very_many_outputs_are_counted_before_they_are_described() {
        const OUTPUTS: usize = 1000;
        const RANK: usize = 200;
        let graph = || {
            let value = |ty, dims: &[u32], constant| {
                let declared = TensorInfo::new(ty, dims);
                Value { resolved: Some(declared.clone()), declared, constant }
            };
            let ones = AlignedBuf::copy_of(bytemuck::cast_slice(&[1i32; RANK])).unwrap();
            let ones = Some(Constant::Private(Arc::new(ones)));
            let mut values = vec![
                value(OperandType::TENSOR_INT32, &[RANK as u32], ones),
                value(OperandType::INT32, &[], None),
            ];
            let outputs: Vec<usize> = (2..2 + OUTPUTS).collect();
            values.extend(outputs.iter().map(|_| Value {
                declared: TensorInfo::new(OperandType::TENSOR_INT32, &[]),
                resolved: None,
                constant: None,
            }));
            let node = |&o: &usize| Node {
                operation: OperationType::FILL.operation().unwrap(),
                signature_index: 0,
                inputs: vec![Some(0), Some(1)],
                outputs: vec![o],
                subgraphs: vec![],
                index: 0,
            };
            let nodes = outputs.iter().map(node).collect();
            Graph { values, nodes, inputs: vec![1], outputs, inferred: None }
        };
        let described = (2 * OUTPUTS * RANK * size_of::<u32>()) as u64;
        for (share, fits) in [(described / 2, false), (4 * described, true)] {
            let budget = Budget::new(2 * share);
            let _account = budget.on_account_of(1);
            let mut graph = graph();
            let before = budget.private().held();
            let optimised = optimise(&mut graph, &Control::default());
            assert_eq!(optimised.is_ok(), fits, "{optimised:?}");
            assert!(fits || matches!(optimised, Err(BackendError::OutOfMemory(_))));
            let described_by_now = graph.values[2..].iter().filter(|value| value.resolved.is_some()).count();
            let held = budget.private().held() - before;
            assert!(held >= (2 * described_by_now * RANK * size_of::<u32>()) as u64, "{held} bytes");
            assert_eq!(described_by_now == OUTPUTS, fits);
        }
    }

    #[test]
    fn lists_that_a_client_has_no_memory_for_are_errors() {
        const VALUES: usize = 1 << 16;
        let budget = Budget::new(8 << 20);
        let _account = budget.on_account_of(1);
        let value = || Value {
            declared: TensorInfo::new(OperandType::TENSOR_INT32, &[]),
            resolved: None,
            constant: None,
        };
        let mut graph = Graph {
            values: (0..VALUES).map(|_| value()).collect(),
            nodes: vec![],
            inputs: vec![],
            outputs: vec![0],
            inferred: None,
        };
        drop_dead(&mut graph, &mut Pace::of(&NeverInterrupted)).unwrap();
        let _most = Counted::take((4 << 20) - VALUES / 2).expect("nearly all that it may have");
        let refused = drop_dead(&mut graph, &mut Pace::of(&NeverInterrupted));
        assert_eq!(refused, Err(OpError::OutOfMemory(VALUES)));
        let refused = uses(VALUES, &[], &[], &mut Pace::of(&NeverInterrupted));
        assert_eq!(refused.map(drop), Err(OpError::OutOfMemory(VALUES * size_of::<usize>())));
    }
}
