//! From a program to bytes.

use super::bytes::Writer;
use super::format::{kernel, made_for, place, OMITTED};
use crate::backend::cpu::routine::{is_data, Place, Routine, Step, Value};
use crate::backend::Artifact;
use crate::memory::{Weights, WEIGHTS_ALIGNMENT};
use crate::ops::{Interrupt, OpError};
use crate::tensor::TensorInfo;
use std::collections::HashMap;
use std::sync::Arc;

pub fn write(routines: &[Routine], interrupt: &dyn Interrupt) -> Result<Artifact, OpError> {
    let mut writer = Writer::new(interrupt);
    let mut data = Data::default();
    writer.bytes(made_for().as_bytes());
    writer.list(routines, |writer, routine| routine_bytes(writer, &mut data, routine));
    Ok(Artifact { models: vec![writer.end()?], data: vec![data.parts] })
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
    writer.list(&routine.values, |writer, v| value(writer, data, v));
    writer.list(&routine.inputs, |writer, &v| writer.index(v));
    writer.list(&routine.outputs, |writer, &v| writer.index(v));
    writer.u64(routine.arena as u64);
    let mut written = HashMap::new();
    let mut index = 0;
    writer.list(&routine.steps, |writer, s| {
        step(writer, s);
        let place = s.kernel.as_ref().map(|kernel| Arc::as_ptr(kernel).cast::<()>());
        match (&s.kernel, place.map(|place| *written.entry(place).or_insert(index))) {
            (Some(_), Some(first)) if first != index => {
                writer.u8(kernel::SAME);
                writer.index(first);
            }
            (Some(own), _) => {
                writer.u8(kernel::OWN);
                own.weights().into_iter().for_each(|weights| data.push(weights.clone()));
            }
            (None, _) => writer.u8(kernel::NONE),
        }
        index += 1;
    });
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

fn value(writer: &mut Writer, data: &mut Data, value: &Value) {
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
            writer.u8(place::PACKED);
            dims(writer, &info.dims);
        }
    }
}

fn step(writer: &mut Writer, step: &Step) {
    writer.u8(step.operation.ty.code() as u8);
    writer.list(&step.inputs, |writer, input| match input {
        Some(v) => writer.index(*v),
        None => writer.u32(OMITTED),
    });
    writer.list(&step.outputs, |writer, &v| writer.index(v));
    writer.list(&step.routines, |writer, &r| writer.index(r));
    writer.index(step.index);
}
