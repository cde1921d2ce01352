//! Operators that move elements and compute nothing.

use super::call::{dims, options, Call, Domain, Mapped};
use super::graph::TensorType;
use super::schema::Options;
use crate::ops::OperationType;

/// RESHAPE, SQUEEZE and EXPAND_DIMS: all shapes are known, so that all three are a RESHAPE to the output's.
pub fn reshape(call: &mut Call) -> Mapped {
    let input = call.input(0)?;
    let output = call.output(0)?;
    call.reshape(input, output);
    Ok(())
}

/// Operators with one input of integers beside the data: TRANSPOSE, PAD, TILE, REVERSE_V2.
pub fn steered(call: &mut Call, ty: OperationType) -> Mapped {
    let steering = call.ints(1)?;
    call.emit_in(Domain::Own, ty, 1, &[steering])
}

/// PADV2: the value to pad with is a scalar in NNAPI.
pub fn pad_v2(call: &mut Call) -> Mapped {
    let paddings = call.ints(1)?;
    let tensor = call.tensor(2)?;
    let data = tensor.data.ok_or("the value to pad with must be a constant")?;
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
    let axis = call.axis(axis, dims(call.output_tensor(0)?)?.len())?;
    let axis = call.builder().int(axis);
    let count = call.operator.inputs.len();
    call.emit_in(Domain::Own, OperationType::CONCATENATION, count, &[axis])
}

/// Inputs: axis and data.
pub fn split(call: &mut Call) -> Mapped {
    let rank = dims(call.tensor(1)?)?.len();
    let axis = call.axis(call.const_int(0)?, rank)?;
    let count = call.operator.outputs.len();
    let operands = [call.input(1)?, call.builder().int(axis), call.builder().int(count as i32)];
    let outputs = (0..count).map(|i| call.output(i)).collect::<Result<Vec<_>, _>>()?;
    call.emit(OperationType::SPLIT, &operands, &outputs);
    Ok(())
}

pub fn slice(call: &mut Call) -> Mapped {
    let steering = [call.ints(1)?, call.ints(2)?];
    call.emit_in(Domain::Own, OperationType::SLICE, 1, &steering)
}

pub fn strided_slice(call: &mut Call) -> Mapped {
    let (masks, others) = options!(call, StridedSlice(o) => (
        [o.begin_mask, o.end_mask, o.shrink_axis_mask],
        (o.ellipsis_mask, o.new_axis_mask, o.offset)
    ));
    if others != (0, 0, false) {
        return Err("NNAPI has no ellipsis mask, new-axis mask or end offsets".into());
    }
    let mut steering = vec![call.ints(1)?, call.ints(2)?, call.ints(3)?];
    steering.extend(masks.map(|mask| call.builder().int(mask)));
    call.emit_in(Domain::Own, OperationType::STRIDED_SLICE, 1, &steering)
}

/// The axis comes first in NNAPI. Scalars are tensors of one element there, and stack to columns.
pub fn pack(call: &mut Call) -> Mapped {
    let axis = options!(call, Pack(o) => o.axis);
    let size = dims(call.output_tensor(0)?)?;
    let axis = call.axis(axis, size.len())?;
    let mut operands = vec![call.builder().int(axis)];
    let count = call.operator.inputs.len();
    for i in 0..count {
        operands.push(call.input(i)?);
    }
    if !call.tensor(0)?.dims.is_empty() {
        return call.emit_to_output(Domain::Own, OperationType::PACK, &operands);
    }
    call.emit_reshaped(OperationType::PACK, &operands, &[count as u32, 1])
}

/// A SPLIT into slices of one, each of which loses the axis.
pub fn unpack(call: &mut Call) -> Mapped {
    let axis = options!(call, Unpack(o) => o.axis);
    let mut slice = dims(call.tensor(0)?)?;
    let axis = call.axis(axis, slice.len())?;
    let count = call.operator.outputs.len();
    slice[axis as usize] = 1;
    let outputs = (0..count).map(|i| call.output(i)).collect::<Result<Vec<_>, _>>()?;
    let slices: Vec<_> = outputs.iter().map(|&output| call.temporary_like(output, &slice)).collect();
    let operands = [call.input(0)?, call.builder().int(axis), call.builder().int(count as i32)];
    call.emit(OperationType::SPLIT, &operands, &slices);
    slices.into_iter().zip(outputs).for_each(|(slice, output)| call.reshape(slice, output));
    Ok(())
}
