//! From bytes to a program, every part of it checked.

use super::bytes::{malformed, Reader, Unread};
use super::check;
use super::format::{kernel, made_for, place, OMITTED};
use crate::backend::cpu::alike;
use crate::backend::cpu::find_chains::with_chains;
use crate::backend::cpu::follow::with_followed;
use crate::backend::cpu::graph::check_dims;
use crate::backend::cpu::kernels::was_bytes::unstamped;
use crate::backend::cpu::kernels::{self, Source};
use crate::backend::cpu::merge::with_merged;
use crate::backend::cpu::routine::{is_data, Place, Routine, Step, Value, STEPS};
use crate::backend::cpu::views::with_views;
use crate::memory::{forget_refusals, refused, AlignedBuf, ClientSlice, Mapping, Weights, WEIGHTS_ALIGNMENT};
use crate::model::SMALL;
use crate::ops::{by_parts, in_common, Args, Interrupt, OpError, Operation, OperationType};
use crate::tensor::{ChannelQuant, OperandType, TensorInfo};
use std::sync::Arc;

/// Reads a program's routines from model bytes, which must be private, and data bytes, which need not be. It comes by yield
/// points of `interrupt`.
pub fn read(model: &[u8], data: &Arc<Mapping>, interrupt: &dyn Interrupt) -> Result<Vec<Routine>, Unread> {
    forget_refusals();
    read_all(model, data, interrupt).map_err(|why| match (why, refused()) {
        // A kernel that memory was missing for is not there, or is another one, and does not tell why.
        (Unread::Malformed(_), Some(bytes)) => OpError::OutOfMemory(bytes).into(),
        (why, _) => why,
    })
}

fn read_all(model: &[u8], data: &Arc<Mapping>, interrupt: &dyn Interrupt) -> Result<Vec<Routine>, Unread> {
    let mut reader = Reader::new(model, interrupt);
    let (found, expected) = (reader.text()?, made_for());
    if found != expected {
        return malformed(format!("it is for {found:?}, not for {expected:?}"));
    }
    let mut data = Data { mapping: data, end: 0 };
    let routines = reader.list(|reader| routine(reader, &mut data))?;
    if !reader.rest.is_empty() || data.end != data.mapping.len() {
        return malformed("there is more than the program");
    }
    check::control_flow(&routines, &mut reader.pace)?;
    Ok(routines)
}

/// The data bytes not taken yet. Each is taken once, so that no program is larger than its bytes.
struct Data<'a> {
    mapping: &'a Arc<Mapping>,
    end: usize,
}

impl Data<'_> {
    fn take(&mut self, len: usize) -> Option<Weights> {
        Weights::shared(self.next(len)?)
    }

    fn next(&mut self, len: usize) -> Option<ClientSlice> {
        let start = self.end.checked_next_multiple_of(WEIGHTS_ALIGNMENT)?;
        let slice = ClientSlice::new(self.mapping.clone(), start, len).ok()?;
        self.end = start + len;
        Some(slice)
    }
}

fn routine(reader: &mut Reader, data: &mut Data) -> Result<Routine, Unread> {
    let values = reader.list(|reader| value(reader, data))?;
    let inputs = reader.list(|reader| reader.index(values.len()))?;
    let outputs = reader.list(|reader| reader.index(values.len()))?;
    let arena = reader.size()?;
    check::arena(&values, arena, &mut reader.pace)?;
    let mut steps = Vec::new();
    reader.list(|reader| {
        let step = step(reader, &values, data, &steps)?;
        steps.push(step);
        Ok(())
    })?;
    let (chains, merged, followed) = (vec![], vec![], vec![]);
    let routine = Routine { values, steps, inputs, outputs, arena, chains, merged, followed, inferred: None };
    let pace = &mut reader.pace;
    let routine = with_followed(with_chains(with_merged(routine, pace)?, pace)?, pace)?;
    Ok(with_views(routine, pace.interrupt())?)
}

fn info(reader: &mut Reader) -> Result<TensorInfo, Unread> {
    let Some(ty) = OperandType::from_code(reader.u8()?.into()) else {
        return malformed("an operand type does not exist");
    };
    let (dims, scale, zero_point) = (reader.list(Reader::u32)?, reader.f32()?, reader.i32()?);
    let mut info = TensorInfo { ty, dims: dims.into(), scale, zero_point, channel_quant: None };
    if reader.bool()? {
        let dim = reader.u32()?;
        info.channel_quant = Some(ChannelQuant { dim, scales: reader.list(Reader::f32)?.into() });
    }
    match crate::model::check_info(&unstamped(&info)) {
        Ok(()) => Ok(info),
        Err(why) => malformed(why.to_string()),
    }
}

/// The dimensions and the size in bytes of a value whose dimensions are known.
fn resolved(reader: &mut Reader, declared: &TensorInfo) -> Result<(TensorInfo, usize), Unread> {
    let info = TensorInfo { dims: reader.list(Reader::u32)?.into(), ..declared.clone() };
    check_dims(declared, &info.dims).map_err(Unread::Malformed)?;
    match info.byte_size() {
        Some(size) => Ok((info, size)),
        None => malformed(format!("no {} of {:?} can be", info.ty, info.dims)),
    }
}

fn value(reader: &mut Reader, data: &mut Data) -> Result<Value, Unread> {
    let declared = info(reader)?;
    let place = match reader.u8()? {
        place::DYNAMIC => Place::Dynamic,
        place::ARENA => {
            let ((info, size), start) = (resolved(reader, &declared)?, reader.size()?);
            let Some(end) = start.checked_add(size) else {
                return malformed("a part of the arena overflows");
            };
            Place::Arena(info, start..end)
        }
        place::IN_MODEL => {
            let ((info, size), bytes) = (resolved(reader, &declared)?, reader.bytes()?);
            if bytes.len() != size || is_data(&info, size) {
                return malformed("a constant does not fit its type");
            }
            let bytes = AlignedBuf::copy_of(bytes).ok_or(OpError::OutOfMemory(size))?;
            Place::Constant(info, Arc::new(bytes))
        }
        place::IN_DATA => {
            let (info, size) = resolved(reader, &declared)?;
            let Some(slice) = data.next(size).filter(|_| is_data(&info, size)) else {
                return malformed("a constant is not among the data");
            };
            // Plain evaluations work on private memory.
            Place::Constant(info, Arc::new(private(&slice, reader.pace.interrupt())?))
        }
        place::PACKED => Place::Packed(resolved(reader, &declared)?.0),
        other => return malformed(format!("{other} is not a kind of place")),
    };
    Ok(Value { declared, place })
}

/// The bytes of a slice, copied part by part.
fn private(slice: &ClientSlice, interrupt: &dyn Interrupt) -> Result<AlignedBuf, Unread> {
    let mut copy = AlignedBuf::zeroed(slice.len()).ok_or(OpError::OutOfMemory(slice.len()))?;
    by_parts(interrupt, slice.len(), |part| {
        let from = slice.part(part.start, part.len());
        let read = from.and_then(|from| from.read(&mut copy[part]));
        read.map_err(|why| Unread::Malformed(why.to_string()))
    })?;
    Ok(in_common(copy, interrupt)?)
}

fn step(reader: &mut Reader, values: &[Value], data: &mut Data, before: &[Step]) -> Result<Step, Unread> {
    let ty = OperationType::from_code(reader.u8()?.into());
    let Some(operation) = ty.and_then(OperationType::operation) else {
        return malformed("an operation does not exist");
    };
    let inputs = reader.list(|reader| match reader.rest.first_chunk() == Some(&OMITTED.to_le_bytes()) {
        true => reader.u32().map(|_| None),
        false => reader.index(values.len()).map(Some),
    })?;
    let outputs = reader.list(|reader| reader.index(values.len()))?;
    let routines = reader.list(|reader| reader.u32().map(|i| i as usize))?;
    let index = reader.u32()? as usize;
    let first = match reader.u8()? {
        kernel::NONE => None,
        kernel::OWN => Some(None),
        kernel::SAME => Some(Some(reader.index(before.len())?)),
        other => return malformed(format!("{other} is not a kind of kernel")),
    };
    // Each operand is looked at several times.
    reader.pace.spend(STEPS.saturating_mul(inputs.len() + outputs.len() + 1))?;
    let interrupt = reader.pace.interrupt();
    let call = check::Call { operation, inputs: &inputs, outputs: &outputs, values, interrupt };
    let signature_index = call.signature_index()?;
    let known = call.check_shapes(signature_index)?;
    let output_infos: Vec<TensorInfo> = outputs.iter().map(|&o| values[o].info().clone()).collect();
    let kernel = match first {
        None => None,
        Some(Some(first)) => {
            let first = &before[first];
            let own = key((operation, signature_index), &inputs, &output_infos, values).filter(|_| known);
            let is_alike = first.inputs.len() == inputs.len()
                && own.is_some()
                && own
                    == key(
                        (first.operation, first.signature_index),
                        &first.inputs,
                        &first.output_infos,
                        values,
                    );
            first.kernel.clone().filter(|_| is_alike)
        }
        Some(None) => call.arguments().filter(|_| known).and_then(|inputs| {
            let args = Args { signature_index, inputs: &inputs, outputs: &output_infos, interrupt };
            let mut packed = |len| data.take(len);
            kernels::select(operation, &args, &mut Source::Packed(&mut packed)).map(Arc::from)
        }),
    };
    if kernel.is_some() != first.is_some() {
        // It may have been told to stop.
        interrupt.check()?;
        return malformed(format!("operation {index} ({}) has no such kernel", operation.ty));
    }
    let in_place = false;
    Ok(Step { operation, signature_index, inputs, outputs, output_infos, routines, kernel, in_place, index })
}

/// What a call's kernel is made from.
fn key(
    call: (&Operation, usize),
    inputs: &[Option<usize>],
    outputs: &[TensorInfo],
    values: &[Value],
) -> Option<Vec<u8>> {
    let input = |v: usize| {
        Some(match &values[v].place {
            Place::Constant(info, bytes) if bytes.len() <= SMALL => alike::Input::Small(info, bytes),
            Place::Constant(..) | Place::Packed(_) => alike::Input::Large,
            Place::Arena(info, _) => alike::Input::Other(info),
            Place::Dynamic => return None,
        })
    };
    alike::key(call, inputs, outputs, input)
}
