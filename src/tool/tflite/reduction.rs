//! Reductions over axes.

use super::call::{options, Call, Domain, Mapped};
use super::elementwise::same_quantisation;
use super::error::Refusal;
use super::schema::OptionsRef;
use crate::ops::OperationType;

fn keep_dims(call: &Call) -> Result<bool, Refusal> {
    Ok(options!(call, Reducer(o) => o.keep_dims()?))
}

/// NNAPI's MEAN gives its output the input's quantisation. Where the file has another, the mean is taken in floats: at
/// the input's scale, a mean could be all rounding.
pub fn mean(call: &mut Call) -> Mapped {
    let keep = keep_dims(call)?;
    let domain = if same_quantisation(call)? { Domain::Own } else { Domain::Float };
    let operands = [call.ints(1)?, call.builder().int(keep.into())];
    call.emit_in(domain, OperationType::MEAN, 1, &operands)
}

/// Reductions that pick one of their inputs.
pub fn pick(call: &mut Call, ty: OperationType) -> Mapped {
    let domain = if same_quantisation(call)? { Domain::Own } else { Domain::Float };
    reduce(call, domain, ty)
}

/// Reductions that NNAPI does not have quantised.
pub fn combine(call: &mut Call, ty: OperationType) -> Mapped {
    reduce(call, Domain::Float, ty)
}

fn reduce(call: &mut Call, domain: Domain, ty: OperationType) -> Mapped {
    let keep = keep_dims(call)?;
    let operands = [call.ints(1)?, call.builder().boolean(keep)];
    call.emit_in(domain, ty, 1, &operands)
}
