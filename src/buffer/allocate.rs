//! The rules of allocation: which roles go together, and what operand the buffer then holds.

use super::{decode_dims, failed, invalid, BufferError, Direction, Role};
use crate::aidl;
use crate::tensor::{byte_size, combine_dims, TensorInfo};
use std::collections::HashSet;

/// Roles of one buffer, and prepared models that they are of: far beyond any use, and a bound on what a buffer costs besides its
/// bytes.
const MAX_ROLES: usize = 4096;

/// What allocation must know of a prepared model.
#[derive(Clone, Copy, Debug)]
pub struct RoleModel<'a> {
    /// See [`Role::model`].
    pub id: u64,
    pub inputs: &'a [TensorInfo],
    pub outputs: &'a [TensorInfo],
}

/// A buffer that may be allocated.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The operand; dimensions that neither the roles nor the client fix are 0, or missing altogether.
    pub info: TensorInfo,
    /// Sorted.
    pub roles: Vec<Role>,
}

/// Checks how many prepared models and roles a client lists, before anything is listed of them.
pub fn check_counts(models: usize, inputs: usize, outputs: usize) -> Result<(), BufferError> {
    if models > MAX_ROLES || inputs.saturating_add(outputs) > MAX_ROLES {
        return failed(format!("a device buffer of more than {MAX_ROLES} roles or prepared models"));
    }
    Ok(())
}

/// Checks a wish for a buffer of dimensions `dims` for roles in `models`, which are as the client listed them: the same
/// one may appear twice. [How many](check_counts) there are was checked before.
pub fn plan(
    dims: &[i32],
    models: &[RoleModel],
    inputs: &[aidl::BufferRole],
    outputs: &[aidl::BufferRole],
) -> Result<Plan, BufferError> {
    if inputs.is_empty() && outputs.is_empty() {
        return invalid("a device buffer without any role");
    }
    let mut seen = HashSet::new();
    let mut operand: Option<TensorInfo> = None;
    let all =
        inputs.iter().map(|r| (Direction::Input, r)).chain(outputs.iter().map(|r| (Direction::Output, r)));
    for (direction, wanted) in all {
        let (role, info) = role(direction, wanted, models)?;
        if !seen.insert(role) {
            return invalid(format!("{direction} {} of the same model is listed twice", role.index));
        }
        operand = Some(match operand {
            None => info.clone(),
            Some(operand) => merge(operand, info)
                .map_err(|why| BufferError::Invalid(format!("{direction} {}: {why}", role.index)))?,
        });
    }
    let Some(mut info) = operand else { return invalid("a device buffer without any role") };
    let wanted = decode_dims(dims)?;
    if info.ty.is_scalar() && !wanted.is_empty() {
        return invalid(format!("dimensions {wanted:?} for a scalar {}", info.ty));
    }
    info.dims = combine_dims(&info.dims, &wanted).ok_or_else(|| {
        BufferError::Invalid(format!("dimensions {wanted:?} for an operand of {:?}", info.dims))
    })?;
    let least: Vec<u32> = info.dims.iter().map(|&d| d.max(1)).collect();
    if byte_size(info.ty, &least).is_none() {
        return invalid(format!("dimensions {:?} of {} are too large", info.dims, info.ty));
    }
    let mut roles: Vec<Role> = seen.into_iter().collect();
    roles.sort_unstable();
    Ok(Plan { info, roles })
}

/// Checks one role and finds its operand.
fn role<'a>(
    direction: Direction,
    wanted: &aidl::BufferRole,
    models: &[RoleModel<'a>],
) -> Result<(Role, &'a TensorInfo), BufferError> {
    let model = usize::try_from(wanted.modelIndex).ok().and_then(|i| models.get(i)).ok_or_else(|| {
        BufferError::Invalid(format!(
            "model {} does not exist; {} are listed",
            wanted.modelIndex,
            models.len()
        ))
    })?;
    let operands = match direction {
        Direction::Input => model.inputs,
        Direction::Output => model.outputs,
    };
    let found = usize::try_from(wanted.ioIndex).ok().and_then(|i| operands.get(i).map(|info| (i, info)));
    let (index, info) = found.ok_or_else(|| {
        BufferError::Invalid(format!(
            "{direction} {} does not exist; the model has {}",
            wanted.ioIndex,
            operands.len()
        ))
    })?;
    if !(wanted.probability > 0.0 && wanted.probability <= 1.0) {
        return invalid(format!(
            "{direction} {index}: a probability of {}; expected above 0, at most 1",
            wanted.probability
        ));
    }
    Ok((Role { model: model.id, direction, index }, info))
}

/// The operand that is both `a` and `b`.
fn merge(a: TensorInfo, b: &TensorInfo) -> Result<TensorInfo, String> {
    let same = a.ty == b.ty
        && a.scale == b.scale
        && a.zero_point == b.zero_point
        && a.channel_quant == b.channel_quant;
    if !same {
        return Err("its type or quantisation is not that of the other roles".into());
    }
    let dims = combine_dims(&a.dims, &b.dims).ok_or_else(|| {
        format!("its dimensions {:?} do not fit those of the other roles, {:?}", b.dims, a.dims)
    })?;
    Ok(TensorInfo { dims, ..a })
}
