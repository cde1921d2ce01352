//! Operators that move elements and compute nothing.

use super::call::{dims, options, Call, Domain, Mapped};
use super::graph::TensorType;
use super::schema::Options;
use super::shape::{self, around};
use super::wide;
use crate::client::builder::OperandIndex;
use crate::ops::OperationType;

/// SQUEEZE and EXPAND_DIMS, too: all shapes are known, so that all three are a RESHAPE to the output's.
pub fn to_output(call: &mut Call) -> Mapped {
    let input = call.input(0)?;
    let output = call.output(0)?;
    call.reshape(input, output);
    Ok(())
}

/// A shape that only a run knows is checked by the run.
pub fn reshape(call: &mut Call) -> Mapped {
    // LiteRT takes no other input for a shape, and goes by the options then, which say what the output is.
    let is_list = call.has_input(1) && call.tensor(1)?.dims.len() == 1;
    if !is_list || call.tensor(1)?.is_empty() {
        return to_output(call);
    }
    if call.tensor(1)?.data.is_none() {
        let is_plain = call.tensor(0)?.dims.len().max(call.output_tensor(0)?.dims.len()) <= shape::MOST
            && call.tensor(0)?.ty != TensorType::Bool;
        return match is_plain {
            true => steered(call, OperationType::RESHAPE),
            false => Err("a shape that only a run knows, of truth values or of over four dimensions".into()),
        };
    }
    let (mut told, output) = (call.const_ints(1)?, dims(call.output_tensor(0)?)?);
    // Files of old say so that the output is a scalar.
    if told == [0] {
        told.clear();
    }
    // One may be left to be found: that the elements are as many is looked at with the RESHAPE.
    if let (Some(open), true) = (told.iter().position(|&dim| dim == -1), told.len() == output.len()) {
        told[open] = output[open] as i32;
    }
    call.check_told(0, &told)?;
    to_output(call)
}

/// Operators with one input of integers beside the data: PAD.
pub fn steered(call: &mut Call, ty: OperationType) -> Mapped {
    let steering = call.ints(1)?;
    call.emit_in(Domain::Own, ty, 1, &[steering])
}

/// NNAPI counts the axis from the front only.
pub fn reverse(call: &mut Call) -> Mapped {
    let rank = dims(call.tensor(0)?)?.len();
    let axes = call.const_ints(1)?.into_iter().map(|axis| call.axis(axis, rank));
    let axes = axes.collect::<Result<Vec<_>, _>>()?;
    let axes = call.builder().ints(&[axes.len() as u32], &axes);
    call.emit_in(Domain::Own, OperationType::REVERSE, 1, &[axes])
}

pub fn transpose(call: &mut Call) -> Mapped {
    let size = dims(call.tensor(0)?)?;
    if size.len() <= shape::MOST {
        return steered(call, OperationType::TRANSPOSE);
    }
    let order = call.const_ints(1)?;
    let mut axes = Vec::with_capacity(order.len());
    for &axis in &order {
        axes.push(call.axis(axis, size.len())? as usize);
    }
    if axes.len() != size.len() || (0..size.len()).any(|axis| !axes.contains(&axis)) {
        return Err(format!("{order:?} is no order of {} dimensions", size.len()).into());
    }
    let (data, output) = (call.input(0)?, call.output(0)?);
    wide::transpose(call, data, (size, axes), output)
}

/// Multiples that only a run knows are checked by the run.
pub fn tile(call: &mut Call) -> Mapped {
    let size = dims(call.tensor(0)?)?;
    if call.tensor(1)?.data.is_none() && !call.tensor(1)?.is_empty() && size.len() <= shape::MOST {
        return steered(call, OperationType::TILE);
    }
    if !call.tensor(0)?.dims.is_empty() {
        let times = call.const_ints(1)?;
        let told: Vec<i32> =
            size.iter().zip(&times).map(|(&dim, &times)| (dim as i32).saturating_mul(times)).collect();
        if times.len() != size.len() {
            return Err(format!("{} multiples for {size:?}", times.len()).into());
        }
        call.check_told(0, &told)?;
    }
    let data = call.input(0)?;
    repeated(call, data, &size)
}

pub fn broadcast_to(call: &mut Call) -> Mapped {
    call.check_told(0, &call.const_ints(1)?)?;
    let data = call.input(0)?;
    repeated(call, data, &dims(call.tensor(0)?)?)
}

/// Its value is repeated.
pub fn fill(call: &mut Call) -> Mapped {
    if !call.tensor(0)?.is_empty() {
        call.check_told(0, &call.const_ints(0)?)?;
    }
    let value = call.input(1)?;
    repeated(call, value, &[])
}

/// Fills the output with `data`, which has the dimensions `from`.
fn repeated(call: &mut Call, data: OperandIndex, from: &[u32]) -> Mapped {
    let size = dims(call.output_tensor(0)?)?;
    let output = call.output(0)?;
    wide::repeat_to(call, data, from, (&size, output))
}

/// PADV2: the value to pad with is a scalar in NNAPI.
pub fn pad_v2(call: &mut Call) -> Mapped {
    let paddings = call.ints(1)?;
    let tensor = call.tensor(2)?;
    let data = tensor.data.as_deref().ok_or("the value to pad with must be a constant")?;
    let value = match (tensor.ty, data) {
        (TensorType::Float32, &[a, b, c, d]) => call.builder().float(f32::from_le_bytes([a, b, c, d])),
        (TensorType::Int32, &[a, b, c, d]) => call.builder().int(i32::from_le_bytes([a, b, c, d])),
        (TensorType::Int8, &[value]) => call.builder().int(i32::from(value as i8)),
        (TensorType::Uint8, &[value]) => call.builder().int(i32::from(value)),
        (ty, _) => return Err(format!("a value of type {ty} to pad with").into()),
    };
    call.emit_in(Domain::Own, OperationType::PAD_V2, 1, &[paddings, value])
}

pub fn mirror_pad(call: &mut Call) -> Mapped {
    let mode = options!(call, MirrorPad(o) => o.mode);
    let paddings = call.ints(1)?;
    let mode = call.builder().int(mode.into()); // the same codes on both sides
    call.emit_in(Domain::Own, OperationType::MIRROR_PAD, 1, &[paddings, mode])
}

pub fn concatenation(call: &mut Call) -> Mapped {
    let (axis, activation) = options!(call, Concatenation(o) => (o.axis, o.activation));
    if activation != 0 {
        return Err("NNAPI's CONCATENATION has no activation".into());
    }
    let size = dims(call.output_tensor(0)?)?;
    let axis = call.axis(axis, size.len())? as usize;
    let count = call.operator.inputs.len();
    let mut parts = (0..count).map(|i| call.input(i)).collect::<Result<Vec<_>, _>>()?;
    if size.len() <= shape::MOST {
        parts.push(call.builder().int(axis as i32));
        return call.emit_to_output(Domain::Own, OperationType::CONCATENATION, &parts);
    }
    for (i, part) in parts.iter_mut().enumerate() {
        let own = dims(call.tensor(i)?)?;
        if own.len() != size.len() {
            return Err(format!("input {i} has {} dimensions, the output {}", own.len(), size.len()).into());
        }
        *part = call.reshaped(*part, &around(&own, axis)?);
    }
    parts.push(call.builder().int(1));
    call.emit_reshaped(OperationType::CONCATENATION, &parts, &around(&size, axis)?)
}

/// Inputs: axis and data.
pub fn split(call: &mut Call) -> Mapped {
    let rank = dims(call.tensor(1)?)?.len();
    let axis = call.axis(call.const_int(0)?, rank)? as usize;
    let data = call.input(1)?;
    let mut slice = dims(call.output_tensor(0)?)?;
    if rank <= shape::MOST {
        return equal_parts(call, data, axis, &slice);
    }
    let data = call.reshaped(data, &around(&dims(call.tensor(1)?)?, axis)?);
    slice = around(&slice, axis)?.to_vec();
    equal_parts(call, data, 1, &slice)
}

/// A SPLIT into slices of one, each of which loses the axis.
pub fn unpack(call: &mut Call) -> Mapped {
    let axis = options!(call, Unpack(o) => o.axis);
    let size = dims(call.tensor(0)?)?;
    let axis = call.axis(axis, size.len())? as usize;
    let [before, _, after] = around(&size, axis)?;
    let data = call.input(0)?;
    let data = call.reshaped(data, &around(&size, axis)?);
    equal_parts(call, data, 1, &[before, 1, after])
}

/// A SPLIT of `data` along `axis` to all outputs, which are slices of the dimensions `slice`.
fn equal_parts(call: &mut Call, data: OperandIndex, axis: usize, slice: &[u32]) -> Mapped {
    let count = call.operator.outputs.len();
    let outputs = (0..count).map(|i| call.output(i)).collect::<Result<Vec<_>, _>>()?;
    let mut slices = outputs.clone();
    for part in &mut slices {
        if call.builder().info(*part).dims[..] != *slice {
            *part = call.temporary_like(*part, slice);
        }
    }
    let operands = [data, call.builder().int(axis as i32), call.builder().int(count as i32)];
    call.emit(OperationType::SPLIT, &operands, &slices);
    for (slice, output) in slices.into_iter().zip(outputs).filter(|(slice, output)| slice != output) {
        call.reshape(slice, output);
    }
    Ok(())
}

/// The axis comes first in NNAPI. Scalars are tensors of one element there, and stack to columns.
pub fn pack(call: &mut Call) -> Mapped {
    let axis = options!(call, Pack(o) => o.axis);
    let size = dims(call.output_tensor(0)?)?;
    let axis = call.axis(axis, size.len())? as usize;
    let count = call.operator.inputs.len();
    let mut parts = (0..count).map(|i| call.input(i)).collect::<Result<Vec<_>, _>>()?;
    if size.len() > shape::MOST {
        let [before, _, after] = around(&size, axis)?;
        parts = parts.into_iter().map(|part| call.reshaped(part, &[before, 1, after])).collect();
        parts.push(call.builder().int(1));
        return call.emit_reshaped(OperationType::CONCATENATION, &parts, &around(&size, axis)?);
    }
    parts.insert(0, call.builder().int(axis as i32));
    if !call.tensor(0)?.dims.is_empty() {
        return call.emit_to_output(Domain::Own, OperationType::PACK, &parts);
    }
    call.emit_reshaped(OperationType::PACK, &parts, &[count as u32, 1])
}
