//! From a subgraph to a routine: passes, memory plan, kernels with their weights.

use super::alike;
use super::constant::Constant;
use super::dynamic;
use super::find_chains;
use super::follow;
use super::frame::{check_size, MAX_RUN_BYTES};
use super::graph::{Graph, Node};
use super::kernels;
use super::merge;
use super::packing::{Call, Known, Packer};
use super::passes;
use super::plan::plan;
use super::pool::Team;
use super::routine::{is_data, uses, Place, Routine, Step, Value, STEPS};
use super::signs;
use crate::backend::{BackendError, Control};
use crate::model::{Subgraph, SMALL};
use crate::ops::pace::Pace;
use crate::ops::scratch::{filled, Scratch};
use crate::ops::{Few, Interrupt, OpError, Run};
use crate::tensor::{OperandType, TensorInfo};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

/// Compiles a subgraph, on the threads of `team`; `may_round`: see [`dynamic`].
pub fn compile(
    subgraph: &Subgraph,
    may_round: bool,
    team: Team,
    control: &Control,
) -> Result<Routine, BackendError> {
    compile_for(subgraph, (kernels::preferred_bytes(), may_round), team, control)
}

/// The same, with 8-bit values between operations of the type `bytes`, where that matters.
pub fn compile_for(
    subgraph: &Subgraph,
    (bytes, may_round): (Option<OperandType>, bool),
    team: Team,
    control: &Control,
) -> Result<Routine, BackendError> {
    // How many operands and operations there are is the client's choice.
    let mut pace = Pace::of(control);
    let mut graph = Graph::new(subgraph, &mut pace)?;
    passes::optimise(&mut graph, control)?;
    if may_round {
        dynamic::stamp(&mut graph, &mut pace)?;
    }
    if let Some(bytes) = bytes {
        signs::change(&mut graph, bytes, &mut pace)?;
    }
    let mut steps = steps(&graph, team, control)?;
    control.yield_point()?;
    let uses = uses(graph.values.len(), &steps, &graph.outputs, &mut pace)?;
    // What is not only packed becomes private anyway. It must be so before it is found what goes together: a loaded
    // program knows the bytes of just these, and is to have the same together.
    let needed = needed_constants(&graph, &steps, &mut pace)?;
    for (value, &needed) in graph.values.iter_mut().zip(needed.iter()) {
        pace.spend(if needed { STEPS } else { 1 })?;
        if needed {
            value.make_private(control)?;
        }
    }
    let planned = |v: usize| graph.values[v].resolved.as_ref().filter(|_| graph.values[v].constant.is_none());
    let known = |v: usize| {
        let value = &graph.values[v];
        if value.constant.is_none() {
            return value.resolved.as_ref().map(merge::Known::Planned);
        }
        let info = value.resolved.as_ref().unwrap_or(&value.declared);
        let bytes = value.constant.as_ref().and_then(Constant::bytes);
        let bytes = bytes.filter(|bytes| needed[v] || !is_data(info, bytes.len()));
        bytes.map(|bytes| merge::Known::Constant(info, bytes))
    };
    let merged = merge::find(&steps, &uses, known, &mut pace)?;
    let follow = follow::Search::new(&steps, &merged, &uses, &graph.outputs, known, &mut pace)?;
    let search = find_chains::Search {
        steps: &steps,
        merged: &merged,
        planned,
        onward: |step| follow.after(step),
        large: find_chains::LARGE,
        uses: &uses,
    };
    let chains = search.find(&mut pace)?;
    let followed = follow.find(&chains, &mut pace)?;
    let together = chains.iter().map(|chain| &chain.steps).chain(merged.iter().map(|merged| &merged.steps));
    let together: Vec<_> = together.chain(followed.iter().map(|followed| &followed.steps)).cloned().collect();
    let plan = plan(&graph, &together, control)?;
    let mut plan = plan.ok_or(BackendError::TooLarge { size: u64::MAX, limit: MAX_RUN_BYTES })?;
    check_size(plan.size as u64, MAX_RUN_BYTES)?;
    steps.iter_mut().zip(plan.in_place.iter()).for_each(|(step, &in_place)| step.in_place = in_place);
    control.yield_point()?;
    // How long it takes to free them is the client's choice, too.
    for node in graph.nodes.drain(..) {
        drop(node);
        pace.spend(STEPS)?;
    }
    let values = graph.values.into_iter().zip(plan.parts.drain(..)).zip(needed.iter()).map(
        |((value, part), &needed)| {
            pace.spend(STEPS)?;
            let info = value.resolved.as_ref().unwrap_or(&value.declared);
            let place = match (value.constant, part) {
                (Some(constant), _) if needed || !is_data(info, constant.len()) => {
                    Place::Constant(info.clone(), constant.private(control)?)
                }
                (Some(_), _) => Place::Packed(info.clone()),
                (None, Some(part)) => Place::Arena(info.clone(), part),
                _ => Place::Dynamic,
            };
            Ok(Value { declared: value.declared, place })
        },
    );
    Ok(Routine {
        values: values.collect::<Result<_, BackendError>>()?,
        steps,
        inputs: graph.inputs,
        outputs: graph.outputs,
        arena: plan.size,
        chains,
        merged,
        followed,
        inferred: graph.inferred,
    })
}

/// By value: whether its bytes are needed, should it be a constant, besides by the kernels that pack it.
fn needed_constants(graph: &Graph, steps: &[Step], pace: &mut Pace) -> Result<Scratch<bool>, OpError> {
    // Without an input for which there are places planned nothing goes as planned, and constants are read by plain
    // evaluations. That is for optional inputs only: any other that is left out is an error in itself.
    let may_lack = |step: &Step, i: usize| {
        let slot = step.operation.signatures[step.signature_index].inputs.get(i);
        matches!(step.operation.run, Run::ControlFlow) || slot.is_none_or(|slot| slot.optional)
    };
    let none = |pace: &Pace| filled(pace.interrupt(), false, graph.values.len());
    let (mut needed, mut is_input) = (none(pace)?, none(pace)?);
    graph.inputs.iter().for_each(|&v| is_input[v] = true);
    graph.outputs.iter().for_each(|&o| needed[o] = true);
    for step in steps {
        pace.spend(STEPS.saturating_add(step.inputs.len()))?;
        for (i, v) in step.inputs.iter().enumerate().filter_map(|(i, v)| v.map(|v| (i, v))) {
            if is_input[v] && may_lack(step, i) {
                needed.fill(true);
                return Ok(needed);
            }
            let packed = step.kernel.as_ref().is_some_and(|kernel| kernel.packed_inputs().contains(&i));
            needed[v] |= !packed;
        }
    }
    Ok(needed)
}

/// What several threads may do together while nobody else has the turn, in bytes of constants to be packed: a millisecond or
/// two.
const TOGETHER: usize = 4 << 20;
/// What a call takes besides, and each of its inputs and outputs, in the same unit.
const CALL: usize = 4 << 10;
const OPERAND: usize = 256;

/// The calls of a graph with their kernels.
fn steps(graph: &Graph, team: Team, control: &Control) -> Result<Vec<Step>, BackendError> {
    let mut pace = Pace::of(control);
    let packer = Packer::new(graph, &mut pace)?;
    let key = |call: usize, pace: &mut Pace| {
        let node = &graph.nodes[call];
        pace.spend(operands(node).saturating_add(1).saturating_mul(STEPS))?;
        Ok(key(graph, node))
    };
    let firsts = alike::firsts(graph.nodes.len(), key, &mut pace)?;
    // None for a call that has the kernel of one before.
    let packer = |i: usize| firsts[i].is_none().then_some(&packer);
    let mut steps = Vec::new();
    let bytes = graph.nodes.len().saturating_mul(size_of::<Step>());
    steps.try_reserve_exact(graph.nodes.len()).map_err(|_| BackendError::OutOfMemory(bytes))?;
    let mut rest = &graph.nodes[..];
    while let Some(first) = rest.first() {
        control.yield_point()?;
        let mut cost = 0;
        let fits = |node: &&Node| {
            let operands = operands(node).saturating_mul(OPERAND);
            cost = [CALL, operands, constants(graph, node)].into_iter().fold(cost, usize::saturating_add);
            cost <= TOGETHER
        };
        let start = steps.len();
        // One thread looks at no call but the next.
        let count = if team.threads() == 1 { 0 } else { rest.iter().take_while(fits).count() };
        // A byte takes about a nanosecond.
        let alone = Duration::from_nanos(cost.min(TOGETHER) as u64);
        if count < 2 || team.threads_for(alone) == 1 {
            // It gives its turn up by itself.
            steps.push(step(graph, first, packer(start), control)?);
            rest = &rest[1..];
            continue;
        }
        let (nodes, behind) = rest.split_at(count);
        let made: Vec<OnceLock<Result<Step, BackendError>>> = nodes.iter().map(|_| OnceLock::new()).collect();
        let each = Each { control, owner: std::thread::current().id() };
        team.for_each(count, &|i| {
            let step = each.yield_point().map_err(BackendError::from);
            let _ = made[i].set(step.and_then(|()| self::step(graph, &nodes[i], packer(start + i), &each)));
        });
        for step in made {
            steps.extend(step.into_inner().transpose()?);
        }
        rest = behind;
    }
    for (i, &first) in firsts.iter().enumerate() {
        pace.spend(1)?;
        if let Some(first) = first {
            steps[i].kernel = steps[first].kernel.clone();
        }
    }
    Ok(steps)
}

/// What a call's kernel is made from; `None` without a large constant, as of nearly all calls.
fn key(graph: &Graph, node: &Node) -> Option<Vec<u8>> {
    let is_large = |&v: &usize| graph.values[v].constant.as_ref().is_some_and(|bytes| bytes.len() > SMALL);
    if !node.inputs.iter().flatten().any(is_large) {
        return None;
    }
    let outputs: Few<_> = passes::output_infos(graph, node);
    let input = |v: usize| {
        let (value, info) = (&graph.values[v], graph.values[v].resolved.as_ref()?);
        Some(match &value.constant {
            None => alike::Input::Other(info),
            // To compare the bytes of what is large would take longer than to make a kernel twice.
            Some(constant) if constant.len() > SMALL => alike::Input::Large,
            Some(_) => alike::Input::Small(info, value.bytes()?),
        })
    };
    alike::key((node.operation, node.signature_index), &node.inputs, &outputs, input)
}

/// An interrupt for several threads, of which the owner alone has the turn and may pass it on.
struct Each<'a> {
    control: &'a Control,
    owner: ThreadId,
}

impl Interrupt for Each<'_> {
    fn check(&self) -> Result<(), OpError> {
        self.control.check()
    }

    fn yield_point(&self) -> Result<(), OpError> {
        match std::thread::current().id() == self.owner {
            true => self.control.yield_point(),
            false => self.check(),
        }
    }
}

/// Inputs and outputs of a call.
fn operands(node: &Node) -> usize {
    node.inputs.len().saturating_add(node.outputs.len())
}

/// Bytes of a call's constants.
fn constants(graph: &Graph, node: &Node) -> usize {
    let len = |&v: &usize| graph.values[v].constant.as_ref().map_or(0, |constant| constant.len());
    node.inputs.iter().flatten().map(len).fold(0, usize::saturating_add)
}

fn step(
    graph: &Graph,
    node: &Node,
    packer: Option<&Packer>,
    interrupt: &dyn Interrupt,
) -> Result<Step, BackendError> {
    let output_infos: Vec<_> = passes::output_infos(graph, node);
    let resolved = node.outputs.iter().all(|&o| graph.values[o].resolved.is_some());
    let call = resolved.then(|| call(graph, node, &output_infos)).flatten();
    let kernel = call.zip(packer).map(|(call, packer)| packer.kernel(&call, interrupt)).transpose();
    Ok(Step {
        operation: node.operation,
        signature_index: node.signature_index,
        inputs: node.inputs.clone(),
        outputs: node.outputs.clone(),
        output_infos,
        routines: node.subgraphs.iter().map(|subgraph| subgraph + 1).collect(),
        kernel: kernel
            .map_err(|why| why.at(format_args!("operation {} ({})", node.index, node.operation.ty)))?
            .flatten()
            .map(Arc::from),
        in_place: false,
        index: node.index,
    })
}

/// A call as it is known ahead; `None` if some dimension is not.
fn call<'g>(graph: &'g Graph, node: &Node, outputs: &'g [TensorInfo]) -> Option<Call<'g>> {
    let known = |&v: &usize| {
        let value = &graph.values[v];
        Some(Known { info: value.resolved.as_ref()?, constant: value.constant.as_ref() })
    };
    let input = |input: &Option<usize>| match input {
        Some(v) => known(v).map(Some),
        None => Some(None),
    };
    let inputs = node.inputs.iter().map(input).collect::<Option<_>>()?;
    Some(Call { operation: node.operation, signature_index: node.signature_index, inputs, outputs })
}

#[cfg(test)]
mod tests {
    use super::super::samples::{f32_info, floats, Build};
    use super::*;
    use crate::ops::{NeverInterrupted, OperationType};

    #[test]
    fn what_tells_calls_from_each_other_has_no_copies_of_large_constants() {
        const LOOKUPS: usize = 1 << 20;
        let mut b = Build::new();
        let lookups = TensorInfo::new(OperandType::TENSOR_INT32, &[LOOKUPS as u32]);
        let lookups = b.constant(lookups, &vec![0i32; LOOKUPS]);
        let values = b.constant(f32_info(&[1, 1000]), &floats(1000, 1.0));
        let found = f32_info(&[LOOKUPS as u32, 1000]);
        let found = b.call(OperationType::EMBEDDING_LOOKUP, 0, &[lookups, values], found);
        let graph = Graph::new(&b.finish(found), &mut Pace::of(&NeverInterrupted)).unwrap();
        let key = key(&graph, &graph.nodes[0]).expect("it has large constants");
        assert!(key.len() < 1000, "{} bytes", key.len());
    }
}
