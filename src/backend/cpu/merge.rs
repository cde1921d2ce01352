//! Finds steps on elements and on rows that follow each other and go back to one operand: one kernel does what all of them do,
//! and what they make between is never written. It goes by what a routine says, so that a loaded one has the same as the one
//! that was saved.

use super::kernels::{is_elementwise, is_of_lanes, merge, Input, MergedCall, LONGEST_ROW};
use super::routine::{Merged, Place, Routine, Step, Value, STEPS};
use crate::memory::AlignedBuf;
use crate::ops::pace::Pace;
use crate::ops::OpError;
use crate::tensor::{OperandType, TensorInfo};
use std::sync::Arc;

/// Steps that are one, at most: a client chooses how many follow each other.
const MOST_STEPS: usize = 32;
/// What it costs to see what a step makes of each byte, in a pace's steps.
const EVALUATION: usize = 4096;

/// What is known of a value before a run.
pub enum Known<'r> {
    /// It lives in the arena.
    Planned(&'r TensorInfo),
    Constant(&'r TensorInfo, &'r Arc<AlignedBuf>),
}

impl Value {
    /// What is known of it.
    pub fn known(&self) -> Option<Known<'_>> {
        match &self.place {
            Place::Arena(info, _) => Some(Known::Planned(info)),
            Place::Constant(info, bytes) => Some(Known::Constant(info, bytes)),
            _ => None,
        }
    }
}

/// The same routine with what can be merged.
pub fn with_merged(mut routine: Routine, pace: &mut Pace) -> Result<Routine, OpError> {
    let known = |v: usize| routine.values[v].known();
    let uses = routine.uses(pace)?;
    routine.merged = find(&routine.steps, &uses, known, pace)?;
    Ok(routine)
}

/// Those among `steps`, in order; `uses` says how often each value is read.
pub fn find<'r>(
    steps: &[Step],
    uses: &[usize],
    known: impl Fn(usize) -> Option<Known<'r>>,
    pace: &mut Pace,
) -> Result<Vec<Merged>, OpError> {
    let (mut merged, mut start) = (Vec::new(), 0);
    while start < steps.len() {
        pace.spend(STEPS)?;
        let run = run(steps, start, &known);
        pace.spend(run.as_ref().map_or(0, Run::cost))?;
        let found = run.and_then(|run| run.merged(steps, start, uses));
        let end = found.as_ref().map_or(start + 1, |found| found.steps.end);
        pace.spend(found.as_ref().map_or(0, |_| (end - start) * EVALUATION))?;
        merged.extend(found);
        start = end;
    }
    Ok(merged)
}

/// Steps from one on that go back to one operand.
struct Run<'r> {
    operand: usize,
    info: &'r TensorInfo,
    calls: Vec<MergedCall<'r>>,
    made: Vec<usize>,
}

/// Those from `start` on.
fn run<'r>(steps: &[Step], start: usize, known: &impl Fn(usize) -> Option<Known<'r>>) -> Option<Run<'r>> {
    let is_operand = |v: &usize| matches!(known(*v), Some(Known::Planned(_)));
    let operand = steps[start].inputs.iter().flatten().copied().find(is_operand)?;
    let Some(Known::Planned(info)) = known(operand) else { return None };
    let (mut calls, mut made) = (Vec::new(), Vec::new());
    for step in steps[start..].iter().take(MOST_STEPS) {
        let Some(call) = call(step, (operand, info), &made, known) else { break };
        calls.push(call);
        made.push(step.outputs[0]);
    }
    Some(Run { operand, info, calls, made })
}

impl Run<'_> {
    /// What it costs to merge it, but for what its steps make of each byte: each length is tried, and all inputs are gone
    /// through for each value.
    fn cost(&self) -> usize {
        self.calls.len() * STEPS + self.calls.len().pow(3)
    }

    /// As many steps as can be merged.
    fn merged(&self, steps: &[Step], start: usize, uses: &[usize]) -> Option<Merged> {
        let Run { operand, info, ref calls, ref made } = *self;
        // As many as make nothing that others read but with their last step, which makes bytes of bytes.
        let is_whole = |&count: &usize| {
            let last = calls[count - 1].output;
            if last.ty.is_quant8_asymm() != info.ty.is_quant8_asymm() || last.dims != info.dims {
                return false;
            }
            let steps = &steps[start..start + count];
            let reads = |v: usize| {
                let inputs = steps.iter().flat_map(|step| &step.inputs);
                inputs.filter(|input| **input == Some(v)).count()
            };
            made[..count - 1].iter().all(|&v| reads(v) == uses[v])
        };
        let count = (2..=calls.len()).rev().find(is_whole)?;
        Some(Merged { steps: start..start + count, operand, kernel: merge(info, &calls[..count])?.into() })
    }
}

/// Dimensions along which rows of floats lie that can be gone through one by one, and how many elements each has.
fn row(info: &TensorInfo) -> Option<(&[u32], u32)> {
    let (&len, rows) = info.dims.split_last()?;
    let is_short = (2..=LONGEST_ROW).contains(&(len as usize));
    (info.ty == OperandType::TENSOR_FLOAT32 && !rows.is_empty() && is_short).then_some((rows, len))
}

/// A step as a call on nothing but an operand, what calls before `made` of it, and constants.
fn call<'r>(
    step: &Step,
    (operand, info): (usize, &'r TensorInfo),
    made: &[usize],
    known: &impl Fn(usize) -> Option<Known<'r>>,
) -> Option<MergedCall<'r>> {
    let &[output] = &step.outputs[..] else { return None };
    let Some(Known::Planned(output)) = known(output) else { return None };
    let is_float = output.ty == OperandType::TENSOR_FLOAT32;
    let are_alike = is_float || (info.ty.is_quant8_asymm() && output.ty.is_quant8_asymm());
    let row = row(info);
    let is_of_rows = row.is_some_and(|(rows, _)| output.dims.split_last() == Some((&1, rows)));
    let fits = is_elementwise(step.operation.ty) || (row.is_some() && is_of_lanes(step.operation.ty));
    if !fits || !are_alike || !(output.dims == info.dims || is_of_rows) {
        return None;
    }
    let is_row = |dims: &[u32]| {
        let (Some((last, others)), Some((_, len))) = (dims.split_last(), row) else { return false };
        *last == len && others.iter().all(|&dim| dim == 1)
    };
    let input = |&v: &usize| {
        if v == operand {
            return Some(Input::Operand);
        }
        if let Some(i) = made.iter().position(|&made| made == v) {
            return Some(Input::Made(i));
        }
        match known(v)? {
            Known::Constant(info, bytes) if info.dims.iter().all(|&dim| dim == 1) || is_row(&info.dims) => {
                Some(Input::Constant(info, bytes))
            }
            _ => None,
        }
    };
    let inputs = step.inputs.iter().map(|v| v.as_ref().map(input));
    let inputs =
        inputs.map(|input| input.map_or(Some(None), |input| input.map(Some))).collect::<Option<_>>()?;
    Some(MergedCall { operation: step.operation, signature_index: step.signature_index, inputs, output })
}
