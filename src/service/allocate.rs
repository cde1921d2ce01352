//! The rules for device memory: which roles of which prepared models may share a buffer.

use super::device::Core;
use super::prepared_model::{self, Prepared};
use super::status::ServiceError;
use crate::aidl::{BufferDesc, BufferRole, IPreparedModelParcel};
use crate::tensor::TensorInfo;
use std::collections::HashSet;
use std::sync::Arc;

/// Checks what a client wants of a buffer.
pub(super) fn check(
    core: &Arc<Core>,
    desc: &BufferDesc,
    models: &[IPreparedModelParcel],
    inputs: &[BufferRole],
    outputs: &[BufferRole],
) -> Result<(), ServiceError> {
    let models = models.iter().enumerate().map(|(i, model)| {
        let model = model.preparedModel.as_ref();
        let model = model.ok_or_else(|| ServiceError::argument(format!("prepared model {i} is null")))?;
        prepared_model::find(model, core)
            .ok_or_else(|| ServiceError::argument(format!("prepared model {i} is not of this device")))
    });
    let models = models.collect::<Result<Vec<_>, _>>()?;
    let mut seen = HashSet::new();
    let mut agreed: Option<TensorInfo> = None;
    for (what, roles) in [("input", inputs), ("output", outputs)] {
        for (i, role) in roles.iter().enumerate() {
            let within = |why: String| ServiceError::argument(format!("{what} role {i}: {why}"));
            let (model, info) = operand(&models, role, what).map_err(within)?;
            if !seen.insert((Arc::as_ptr(model), what, role.ioIndex)) {
                return Err(within(format!("{what} {} of this model is named twice", role.ioIndex)));
            }
            agreed = Some(match agreed {
                Some(agreed) => agree(&agreed, info).map_err(within)?,
                None => info.clone(),
            });
        }
    }
    let agreed = agreed.ok_or_else(|| ServiceError::argument("a buffer needs at least one role"))?;
    let dims = desc.dimensions.iter().map(|&d| u32::try_from(d)).collect::<Result<Vec<_>, _>>();
    let dims = dims.map_err(|_| ServiceError::argument("the buffer has a negative dimension"))?;
    agree(&agreed, &TensorInfo { dims, ..agreed.clone() })
        .map_err(|why| ServiceError::argument(format!("the buffer: {why}")))?;
    Ok(())
}

/// The operand that a role is about, and its model.
fn operand<'m>(
    models: &'m [Arc<Prepared>],
    role: &BufferRole,
    what: &str,
) -> Result<(&'m Arc<Prepared>, &'m TensorInfo), String> {
    let at = |index: i32, len: usize| usize::try_from(index).ok().filter(|&i| i < len);
    let model = at(role.modelIndex, models.len()).map(|i| &models[i]);
    let model = model.ok_or_else(|| format!("model {} does not exist", role.modelIndex))?;
    let interface = model.executable.interface();
    let list = if what == "input" { &interface.inputs } else { &interface.outputs };
    let info = at(role.ioIndex, list.len()).map(|i| &list[i]);
    let info = info.ok_or_else(|| format!("the model has no {what} {}", role.ioIndex))?;
    if !(role.probability > 0.0 && role.probability <= 1.0) {
        return Err(format!("probability {} is not above 0 and at most 1", role.probability));
    }
    Ok((model, info))
}

/// One operand that is both; unknown dimensions fit any.
fn agree(a: &TensorInfo, b: &TensorInfo) -> Result<TensorInfo, String> {
    let same =
        (a.ty, a.scale, a.zero_point, &a.channel_quant) == (b.ty, b.scale, b.zero_point, &b.channel_quant);
    if !same {
        return Err(format!("{a:?} and {b:?} differ in type or quantisation"));
    }
    if a.ty.is_scalar() && !b.dims.is_empty() {
        return Err("a scalar has no dimensions".into());
    }
    if a.dims.is_empty() || b.dims.is_empty() {
        let known = if a.dims.is_empty() { b } else { a };
        return Ok(known.clone());
    }
    let fit = |(&a, &b): (&u32, &u32)| match (a, b) {
        (0, known) | (known, 0) => Some(known),
        (a, b) => (a == b).then_some(a),
    };
    let dims = (a.dims.len() == b.dims.len())
        .then(|| a.dims.iter().zip(&b.dims).map(fit).collect::<Option<Vec<_>>>())
        .flatten();
    let dims = dims.ok_or_else(|| format!("dimensions {:?} and {:?} do not fit", a.dims, b.dims))?;
    Ok(TensorInfo { dims, ..a.clone() })
}
