//! From a program to bytes.

use super::bytes::Writer;
use super::{is_data, kernel, made_for, place, OMITTED};
use crate::backend::cpu::packing::{LateKernel, Stage};
use crate::backend::cpu::routine::{Place, Routine, Step, Value};
use crate::backend::Artifact;
use crate::memory::{Weights, WEIGHTS_ALIGNMENT};
use crate::tensor::TensorInfo;
use std::collections::HashMap;

pub fn write(routines: &[Routine]) -> Artifact {
    let mut writer = Writer::default();
    let mut data = Data::default();
    writer.bytes(made_for().as_bytes());
    writer.list(routines, |writer, routine| routine_bytes(writer, &mut data, routine));
    Artifact { models: vec![writer.0], data: vec![data.parts] }
}

/// The data bytes, in parts.
#[derive(Default)]
struct Data {
    parts: Vec<(u64, Weights)>,
    end: u64,
}

impl Data {
    fn push(&mut self, weights: Weights) {
        let start = self.end.next_multiple_of(WEIGHTS_ALIGNMENT as u64);
        self.end = start + weights.len() as u64;
        self.parts.push((start, weights));
    }
}

fn routine_bytes(writer: &mut Writer, data: &mut Data, routine: &Routine) {
    // Looked at once: a run may be packing kernels meanwhile.
    let stages: Vec<_> =
        routine.steps.iter().map(|step| step.kernel.as_ref().map(LateKernel::stage)).collect();
    let drafts = drafts(routine, &stages);
    let values: Vec<_> =
        routine.values.iter().enumerate().map(|(v, value)| (value, drafts.get(&v))).collect();
    writer.list(&values, |writer, (v, draft)| value(writer, data, v, draft.copied()));
    writer.list(&routine.inputs, |writer, &v| writer.index(v));
    writer.list(&routine.outputs, |writer, &v| writer.index(v));
    writer.u64(routine.arena as u64);
    let steps: Vec<_> = routine.steps.iter().zip(&stages).collect();
    writer.list(&steps, |writer, (s, stage)| step(writer, data, s, stage.as_ref()));
}

/// By value: the constants that kernels are yet to be packed from.
fn drafts<'s>(routine: &Routine, stages: &'s [Option<Stage>]) -> HashMap<usize, &'s Weights> {
    let mut drafts = HashMap::new();
    for (step, stage) in routine.steps.iter().zip(stages) {
        let Some(Stage::Draft(constants)) = stage else { continue };
        let by_value = constants.iter().filter_map(|(i, bytes)| Some(((*step.inputs.get(*i)?)?, bytes)));
        drafts.extend(by_value);
    }
    drafts
}

fn info(writer: &mut Writer, info: &TensorInfo) {
    writer.u8(info.ty.code() as u8);
    dims(writer, &info.dims);
    writer.u32(info.scale.to_bits());
    writer.u32(info.zero_point as u32);
    writer.u8(info.channel_quant.is_some().into());
    if let Some(quant) = &info.channel_quant {
        writer.u32(quant.dim);
        writer.list(&quant.scales, |writer, scale| writer.u32(scale.to_bits()));
    }
}

fn dims(writer: &mut Writer, dims: &[u32]) {
    writer.list(dims, |writer, &dim| writer.u32(dim));
}

fn value(writer: &mut Writer, data: &mut Data, value: &Value, draft: Option<&Weights>) {
    info(writer, &value.declared);
    match &value.place {
        Place::Dynamic => writer.u8(place::DYNAMIC),
        Place::Arena(info, part) => {
            writer.u8(place::ARENA);
            dims(writer, &info.dims);
            writer.u64(part.start as u64);
        }
        Place::Constant(info, bytes) if is_data(info, bytes.len()) => {
            writer.u8(place::IN_DATA);
            dims(writer, &info.dims);
            data.push(Weights::Private(bytes.clone()));
        }
        Place::Constant(info, bytes) => {
            writer.u8(place::IN_MODEL);
            dims(writer, &info.dims);
            writer.bytes(bytes);
        }
        Place::Packed(info) => {
            writer.u8(if draft.is_some() { place::TO_BE_PACKED } else { place::PACKED });
            dims(writer, &info.dims);
            draft.into_iter().for_each(|bytes| data.push(bytes.clone()));
        }
    }
}

fn step(writer: &mut Writer, data: &mut Data, step: &Step, stage: Option<&Stage>) {
    writer.u8(step.operation.ty.code() as u8);
    writer.list(&step.inputs, |writer, input| match input {
        Some(v) => writer.index(*v),
        None => writer.u32(OMITTED),
    });
    writer.list(&step.outputs, |writer, &v| writer.index(v));
    writer.list(&step.routines, |writer, &r| writer.index(r));
    writer.index(step.index);
    match stage {
        None => writer.u8(kernel::NONE),
        Some(Stage::Draft(_)) => writer.u8(kernel::DRAFT),
        Some(Stage::Packed(weights)) => {
            writer.u8(kernel::PACKED);
            weights.iter().for_each(|weights| data.push(weights.clone()));
        }
    }
}
