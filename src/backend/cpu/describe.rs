//! What a program tells people of itself.

use super::arguments::Candidates;
use super::chain::{Chain, Followed, Link};
use super::routine::{Group, Merged, Place, Routine, Step};
use crate::backend::{Description, KernelName, StepDescription, SubgraphDescription, ValuePlace};
use crate::ops::pace::Pace;
use crate::ops::{work::multiply_adds, Interrupt, OpError, Run};
use crate::tensor::TensorInfo;
use std::collections::BTreeSet;

/// Elementary steps that it takes to describe a step or a value, and again for each operand of a step, about.
const EACH: usize = 256;

/// Describes a program; `candidates` are the main routine's, which is the first.
pub fn describe(
    routines: &[Routine],
    candidates: &Candidates,
    interrupt: &dyn Interrupt,
) -> Result<Description, OpError> {
    let mut pace = Pace::of(interrupt);
    let subgraphs = routines.iter().map(|routine| subgraph(routine, &mut pace));
    let mut subgraphs = subgraphs.collect::<Result<Vec<_>, _>>()?;
    if let (Some(routine), Some(main)) = (routines.first(), subgraphs.first_mut()) {
        let inputs = routine.inputs.iter().zip(&candidates.inputs);
        for (&v, _) in inputs.chain(routine.outputs.iter().zip(&candidates.outputs)).filter(|(_, &may)| may) {
            if let Some(place @ ValuePlace::Arena(_)) = main.places.get_mut(v) {
                if let ValuePlace::Arena(part) = place.clone() {
                    *place = ValuePlace::Client(part);
                }
            }
        }
    }
    Ok(Description { subgraphs })
}

fn subgraph(routine: &Routine, pace: &mut Pace) -> Result<SubgraphDescription, OpError> {
    let mut used = vec![false; routine.values.len()];
    for step in &routine.steps {
        pace.spend(work(step))?;
        step.inputs.iter().flatten().chain(&step.outputs).for_each(|&v| used[v] = true);
    }
    routine.inputs.iter().chain(&routine.outputs).for_each(|&v| used[v] = true);
    let place = |(v, value): (usize, &super::routine::Value)| match &value.place {
        Place::Constant(_, bytes) => ValuePlace::Constant(bytes.len() as u64),
        Place::Packed(info) => ValuePlace::Packed(info.byte_size().unwrap_or(0) as u64),
        Place::Arena(_, part) => ValuePlace::Arena(part.start as u64..part.end as u64),
        Place::Dynamic if used[v] => ValuePlace::Own,
        Place::Dynamic => ValuePlace::Nowhere,
    };
    let mut places = Vec::with_capacity(routine.values.len());
    pace.each(routine.values.iter().enumerate(), EACH, |value| places.push(place(value)))?;
    Ok(SubgraphDescription { steps: describe_steps(routine, pace)?, places, arena: routine.arena as u64 })
}

/// Elementary steps that it takes to describe a step, about.
fn work(step: &Step) -> usize {
    EACH.saturating_mul(step.inputs.len().saturating_add(step.outputs.len()).saturating_add(1))
}

/// Shows people steps that go together as one.
fn describe_steps(routine: &Routine, pace: &mut Pace) -> Result<Vec<StepDescription>, OpError> {
    let mut described = Vec::new();
    for (steps, group) in routine.groups() {
        let work = routine.steps[steps].iter().map(work).fold(0, usize::saturating_add);
        pace.spend(work)?;
        described.push(match group {
            Group::Chain(chain) => describe_chain(routine, chain),
            Group::Followed(followed) => describe_followed(routine, followed),
            Group::Merged(merged) => describe_merged(routine, merged),
            Group::Alone(step) => describe_step(routine, step),
        });
    }
    Ok(described)
}

fn describe_merged(routine: &Routine, merged: &Merged) -> StepDescription {
    let steps = &routine.steps[merged.steps.clone()];
    let to = steps.last().and_then(|step| step.outputs.first().copied());
    let bytes = |v: usize| Some(routine.values[v].info().byte_size()? as u64);
    StepDescription {
        operations: steps.iter().map(|step| step.index).collect(),
        multiply_adds: None,
        bytes: to.and_then(|to| Some(bytes(merged.operand)? + bytes(to)?)),
        kernel: KernelName::Fast(format!("merged: {}", merged.kernel.name())),
    }
}

fn describe_followed(routine: &Routine, followed: &Followed) -> StepDescription {
    let steps = &routine.steps[followed.steps.clone()];
    let (maker, last) = (describe_step(routine, &steps[0]), &steps[steps.len() - 1]);
    let multiplier = followed.is_multiplied.then(|| describe_step(routine, last));
    let bytes = |v: usize| Some(routine.values[v].info().byte_size()? as u64);
    // It is as large as what becomes of it, and never written as it was.
    let made = bytes(steps[0].outputs[0]);
    let other = followed.onward.iter().filter_map(|onward| onward.other).map(bytes).sum::<Option<u64>>();
    let product = multiplier.as_ref().map_or(made, |of| of.bytes?.checked_sub(made?));
    let onward = followed.onward.iter().filter_map(|onward| onward.kernel(&routine.steps, &routine.merged));
    let mut names = vec![maker.kernel.clone()];
    names.extend(onward.map(|kernel| KernelName::Fast(kernel.name())));
    names.extend(multiplier.as_ref().map(|of| of.kernel.clone()));
    let names = names.into_iter().filter_map(|name| match name {
        KernelName::Fast(name) => Some(name),
        _ => None,
    });
    let multiply_adds = [Some(&maker), multiplier.as_ref()].into_iter().flatten().map(|of| of.multiply_adds);
    StepDescription {
        operations: steps.iter().map(|step| step.index).collect(),
        multiply_adds: multiply_adds.sum(),
        bytes: maker.bytes.and_then(|all| (all + other? + product?).checked_sub(made?)),
        kernel: KernelName::Fast(names.collect::<Vec<_>>().join(", then ")),
    }
}

fn describe_chain(routine: &Routine, chain: &Chain) -> StepDescription {
    let describe = |link: &Link| match &link.onward {
        Some(followed) => describe_followed(routine, followed),
        None => describe_step(routine, &routine.steps[link.step]),
    };
    let steps: Vec<_> = chain.links.iter().map(describe).collect();
    // Each image between was counted twice, and stays near.
    let images = &chain.images[..chain.images.len() - 1];
    let between: usize = images.iter().map(|image| 2 * image.rows * image.row).sum();
    let bytes = steps.iter().map(|step| step.bytes).sum::<Option<u64>>();
    let mut names: Vec<String> = Vec::new();
    for step in &steps {
        match &step.kernel {
            KernelName::Fast(name) if !names.contains(name) => names.push(name.clone()),
            _ => {}
        }
    }
    StepDescription {
        operations: steps.iter().flat_map(|step| step.operations.clone()).collect(),
        multiply_adds: steps.iter().map(|step| step.multiply_adds).sum(),
        bytes: bytes.map(|bytes| bytes.saturating_sub(between as u64)),
        kernel: KernelName::Fast(format!("by rows: {}", names.join(", "))),
    }
}

fn describe_step(routine: &Routine, step: &Step) -> StepDescription {
    let kernel = kernel(step);
    let known = |v: usize| match &routine.values[v].place {
        Place::Dynamic => None,
        _ => Some(routine.values[v].info()),
    };
    let inputs: Vec<Option<&TensorInfo>> = step.inputs.iter().map(|v| v.and_then(known)).collect();
    let outputs: Option<Vec<&TensorInfo>> = step.outputs.iter().map(|&v| known(v)).collect();
    let complete = step.inputs.iter().zip(&inputs).all(|(v, info)| v.is_none() || info.is_some());
    let operands: BTreeSet<usize> = step.inputs.iter().flatten().chain(&step.outputs).copied().collect();
    let bytes = operands.iter().map(|&v| Some(known(v)?.byte_size()? as u64)).sum::<Option<u64>>();
    StepDescription {
        operations: vec![step.index],
        multiply_adds: outputs
            .filter(|_| complete)
            .and_then(|outputs| multiply_adds(step.operation.ty, &inputs, &outputs)),
        bytes: if kernel == KernelName::Nothing { Some(0) } else { bytes },
        kernel,
    }
}

fn kernel(step: &Step) -> KernelName {
    if step.in_place {
        return KernelName::Nothing;
    }
    match (&step.operation.run, step.kernel.as_ref().map(|kernel| kernel.name())) {
        (Run::ControlFlow, _) => KernelName::Subgraphs,
        (_, Some(name)) => KernelName::Fast(name),
        (_, None) => KernelName::Plain,
    }
}
