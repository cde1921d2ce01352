//! Operators that pick elements: by index, by rank or by condition; and CAST.

use super::call::{dims, options, Call, Domain, Mapped};
use super::elementwise::{float_constant, like};
use super::error::Refusal;
use super::graph::TensorType;
use super::schema::Options;
use super::shape::{self, around, product};
use super::wide;
use crate::client::builder::OperandIndex;
use crate::ops::OperationType;
use crate::tensor::{OperandType, TensorInfo};

pub fn gather(call: &mut Call) -> Mapped {
    let (axis, batch_dims) = options!(call, Gather(o) => (o.axis, o.batch_dims));
    let size = dims(call.tensor(0)?)?;
    let axis = call.axis(axis, size.len())? as usize;
    let (data, indices) = (call.input(0)?, call.ints(1)?);
    let index_dims = dims(call.tensor(1)?)?;
    let batch_dims = if batch_dims < 0 { batch_dims + call.tensor(1)?.dims.len() as i32 } else { batch_dims };
    let (before, after) = (&size[..axis], &size[axis + 1..]);
    let whole: Vec<u32> = before.iter().chain(&index_dims).chain(after).copied().collect();
    if batch_dims == 0 && whole.len() <= shape::MOST && size.len() <= shape::MOST {
        let operands = [data, call.builder().int(axis as i32), indices];
        // A scalar index is a list of one in NNAPI, which leaves a dimension of 1.
        return call.emit_reshaped(OperationType::GATHER, &operands, &whole);
    }
    let batch = usize::try_from(batch_dims).ok().filter(|&n| n <= axis && n <= index_dims.len());
    let batch = batch.ok_or_else(|| format!("{batch_dims} batch dimensions before axis {axis}"))?;
    let (batches, count) = (product(&size[..batch])?, product(&index_dims[batch..])?);
    let [before, n, after] = around(&size[batch..], axis - batch)?;
    if batches == 1 {
        let indices = call.reshaped(indices, &[count]);
        let data = call.reshaped(data, &[before, n, after]);
        let operands = [data, call.builder().int(1), indices];
        return call.emit_reshaped(OperationType::GATHER, &operands, &[before, count, after]);
    }
    if before != 1 {
        return Err("NNAPI's GATHER has no batch dimensions, and others stand before the axis here".into());
    }
    // All batches in one list: an index counts from where its batch begins.
    let indices = call.reshaped(indices, &[batches, count]);
    let starts: Vec<i32> = (0..batches).map(|i| i.wrapping_mul(n) as i32).collect();
    let operands = [indices, call.builder().ints(&[batches, 1], &starts), call.builder().int(0)];
    let placed = call.temporary_like(indices, &[batches, count]);
    call.emit(OperationType::ADD, &operands, &[placed]);
    let rows = product(&[batches, n])?;
    gather_rows(call, data, [rows, after], placed)
}

/// Gathers rows of `data`, which is looked at as `rows` of `width` elements.
fn gather_rows(call: &mut Call, data: OperandIndex, [rows, width]: [u32; 2], places: OperandIndex) -> Mapped {
    let count = product(&call.builder().info(places).dims.clone())?;
    let places = call.reshaped(places, &[count]);
    let operands = [call.reshaped(data, &[rows, width]), call.builder().int(0), places];
    call.emit_reshaped(OperationType::GATHER, &operands, &[count, width])
}

/// Each list of indices, as the place of a row.
pub fn gather_nd(call: &mut Call) -> Mapped {
    let (size, mut index_dims) = (dims(call.tensor(0)?)?, dims(call.tensor(1)?)?);
    let depth = index_dims.pop().unwrap_or(1) as usize;
    let (outer, inner) = size.split_at_checked(depth).ok_or("there are more indices than dimensions")?;
    let (count, width) = (product(&index_dims)?, product(inner)?);
    let (data, indices) = (call.input(0)?, call.ints(1)?);
    let mut places = None;
    for (axis, _) in outer.iter().enumerate() {
        let step = product(&outer[axis + 1..])? as i32;
        let list = call.reshaped(indices, &[count, depth as u32]);
        let column = call.temporary_like(list, &[count, 1]);
        let operands = [
            list,
            call.builder().ints(&[2], &[0, axis as i32]),
            call.builder().ints(&[2], &[count as i32, 1]),
        ];
        call.emit(OperationType::SLICE, &operands, &[column]);
        let (step, none) = (call.builder().ints(&[1], &[step]), call.builder().int(0));
        let scaled = call.temporary_like(column, &[count, 1]);
        call.emit(OperationType::MUL, &[column, step, none], &[scaled]);
        places = Some(match places {
            None => scaled,
            Some(so_far) => {
                let sum = call.temporary_like(column, &[count, 1]);
                call.emit(OperationType::ADD, &[so_far, scaled, none], &[sum]);
                sum
            }
        });
    }
    let places = places.ok_or("its lists of indices are empty")?;
    gather_rows(call, data, [product(outer)?, width], places)
}

/// Where an index is the place along the axis there is one value, elsewhere the other. Inputs: indices, depth and both.
pub fn one_hot(call: &mut Call) -> Mapped {
    let axis = options!(call, OneHot(o) => o.axis);
    let size = dims(call.output_tensor(0)?)?;
    let axis = call.axis(axis, size.len())? as usize;
    let view = around(&size, axis)?;
    let [before, depth, after] = view;
    let told = call.const_int(1)?;
    if Ok(depth) != told.try_into() {
        return Err(format!("its depth is {told}, the model states {depth}").into());
    }
    let indices = call.ints(0)?;
    let places: Vec<i32> = (0..depth as i32).collect();
    let operands =
        [call.reshaped(indices, &[before, 1, after]), call.builder().ints(&[1, depth, 1], &places)];
    let is_place = call.builder().temporary(TensorInfo::new(OperandType::TENSOR_BOOL8, &view));
    call.emit(OperationType::EQUAL, &operands, &[is_place]);
    let (on, off) = (call.input(2)?, call.input(3)?);
    let operands = [is_place, repeated(call, on, &[], &view)?, repeated(call, off, &[], &view)?];
    call.emit_reshaped(OperationType::SELECT, &operands, &view)
}

/// `data`, which has the dimensions `from`, repeated to the dimensions `to`.
fn repeated(call: &mut Call, data: OperandIndex, from: &[u32], to: &[u32]) -> Result<OperandIndex, Refusal> {
    if from == to {
        return Ok(data);
    }
    let result = call.temporary_like(data, to);
    wide::repeat(call, data, from, result)?;
    Ok(result)
}

pub fn embedding_lookup(call: &mut Call) -> Mapped {
    call.emit_in(Domain::Own, OperationType::EMBEDDING_LOOKUP, 2, &[])
}

/// ARG_MAX and ARG_MIN.
pub fn arg(call: &mut Call, ty: OperationType) -> Mapped {
    let rank = dims(call.tensor(0)?)?.len();
    let axis = call.axis(call.const_int(1)?, rank)?;
    let axis = call.builder().int(axis);
    call.emit_in(Domain::Own, ty, 1, &[axis])
}

/// Of equal elements the first ones are wanted, and NNAPI takes the last: it looks at rows that are turned round.
pub fn top_k(call: &mut Call) -> Mapped {
    let count = call.const_int(1)?;
    let size = dims(call.tensor(0)?)?;
    let axis = size.len() - 1; // a scalar has one dimension
    let (data, last) = (call.input(0)?, size[axis] as i32 - 1);
    let turned = call.temporary_like(data, &size);
    let operands = [data, call.builder().ints(&[1], &[axis as i32])];
    call.emit(OperationType::REVERSE, &operands, &[turned]);
    let (values, indices) = (call.output(0)?, call.output(1)?);
    let from_end = like(call, indices);
    let operands = [turned, call.builder().int(count)];
    call.emit(OperationType::TOPK_V2, &operands, &[values, from_end]);
    let operands = [call.builder().ints(&[1], &[last]), from_end, call.activation(0)?];
    call.emit(OperationType::SUB, &operands, &[indices]);
    Ok(())
}

/// NNAPI's CAST takes no truth values.
pub fn cast(call: &mut Call) -> Mapped {
    let (from, to) = (call.tensor(0)?.ty, call.output_tensor(0)?.ty);
    let size = dims(call.output_tensor(0)?)?;
    if from == to || (from != TensorType::Bool && to != TensorType::Bool) {
        return call.emit_in(Domain::Own, OperationType::CAST, 1, &[]);
    }
    let data = call.input(0)?;
    let mut number = |ty, value: i32| match ty {
        TensorType::Float32 => Ok(float_constant(call, value as f32)),
        TensorType::Int32 => Ok(call.builder().ints(&[1], &[value])),
        other => Err(Refusal(format!("NNAPI casts no truth values to or from {other}"))),
    };
    if to == TensorType::Bool {
        let operands = [data, number(from, 0)?];
        return call.emit_to_output(Domain::Own, OperationType::NOT_EQUAL, &operands);
    }
    let (one, zero) = (number(to, 1)?, number(to, 0)?);
    let operands = [data, repeated(call, one, &[], &size)?, repeated(call, zero, &[], &size)?];
    call.emit_to_output(Domain::Own, OperationType::SELECT, &operands)
}

/// SELECT, which may also pick rows.
pub fn select(call: &mut Call) -> Mapped {
    let size = dims(call.output_tensor(0)?)?;
    for i in 0..3 {
        let own = dims(call.tensor(i)?)?;
        if own != size {
            return Err(format!("NNAPI's SELECT does not broadcast {own:?} to {size:?}").into());
        }
    }
    call.emit_in(Domain::Own, OperationType::SELECT, 3, &[])
}

/// SELECT_V2, which broadcasts as NNAPI's SELECT does not.
pub fn select_v2(call: &mut Call) -> Mapped {
    let size = dims(call.output_tensor(0)?)?;
    let mut condition = call.input(0)?;
    if dims(call.tensor(0)?)? != size {
        let info = TensorInfo::new(OperandType::TENSOR_BOOL8, &size);
        let all = call.builder().uniform(info.clone(), 1, product(&size)? as usize);
        let whole = call.builder().temporary(info);
        call.emit(OperationType::LOGICAL_AND, &[condition, all], &[whole]);
        condition = whole;
    }
    let mut operands = vec![condition];
    for i in 1..3 {
        let choice = call.input(i)?;
        operands.push(repeated(call, choice, &dims(call.tensor(i)?)?, &size)?);
    }
    call.emit_to_output(Domain::Own, OperationType::SELECT, &operands)
}
