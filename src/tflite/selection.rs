//! Operators that pick elements: by index, by rank or by condition; and CAST.

use super::call::{dims, options, Call, Domain, Mapped};
use super::schema::Options;
use crate::ops::OperationType;

pub fn gather(call: &mut Call) -> Mapped {
    let (axis, batch_dims) = options!(call, Gather(o) => (o.axis, o.batch_dims));
    if batch_dims != 0 {
        return Err("NNAPI's GATHER has no batch dimensions".into());
    }
    let size = dims(call.tensor(0)?)?;
    let axis = call.axis(axis, size.len())?;
    let (data, indices) = (call.input(0)?, call.ints(1)?);
    let index_dims = call.builder().info(indices).dims.clone();
    let (before, after) = (&size[..axis as usize], &size[axis as usize + 1..]);
    let gathered: Vec<u32> = before.iter().chain(&index_dims).chain(after).copied().collect();
    let operands = [data, call.builder().int(axis), indices];
    // A scalar index is a list of one in NNAPI, which leaves a dimension of 1.
    call.emit_reshaped(OperationType::GATHER, &operands, &gathered)
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

pub fn top_k(call: &mut Call) -> Mapped {
    let count = call.const_int(1)?;
    let operands = [call.input(0)?, call.builder().int(count)];
    let outputs = [call.output(0)?, call.output(1)?];
    call.emit(OperationType::TOPK_V2, &operands, &outputs);
    Ok(())
}

pub fn cast(call: &mut Call) -> Mapped {
    call.emit_in(Domain::Own, OperationType::CAST, 1, &[])
}

pub fn select(call: &mut Call) -> Mapped {
    let condition = dims(call.tensor(0)?)?;
    for i in 1..3 {
        let choice = dims(call.tensor(i)?)?;
        if choice != condition {
            return Err(format!("NNAPI's SELECT does not broadcast {condition:?} and {choice:?}").into());
        }
    }
    call.emit_in(Domain::Own, OperationType::SELECT, 3, &[])
}
