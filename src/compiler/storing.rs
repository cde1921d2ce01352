//! Compilations by way of the driver's own store: a model that its client has compiled before is loaded.

use super::caching;
use super::{content, CachingError, StorePlace};
use crate::backend::{Backend, BackendError, CompileOptions, Control, Executable, Saved};
use crate::cache::{Key, Store};
use crate::model::{Lifetime, Model};
use std::sync::Arc;

/// Models of smaller constants, in bytes, are compiled as fast as they are found: at once, and not stored.
pub const LEAST_CONSTANTS: usize = 256 << 10;

/// Compiles a model, or loads what the store has of it. Gives where to store it once it has been used, if that is worth
/// while.
pub(super) fn compile(
    store: Option<&Arc<Store>>,
    backend: &dyn Backend,
    (model, options): (&Model, &CompileOptions),
    control: &Control,
) -> Result<(Arc<dyn Executable>, Option<StorePlace>), BackendError> {
    let small = constants(model) < LEAST_CONSTANTS;
    let place = match store {
        Some(store) if !small => {
            let token = content::hash(model, options, control)?;
            Some(StorePlace { store: store.clone(), key: Key { uid: control.client, token } })
        }
        _ => None,
    };
    if let Some(loaded) = place.as_ref().and_then(|place| place.store.load(&place.key)) {
        match backend.load(Saved { models: loaded.models, data: loaded.data }, options, control) {
            Ok(executable) => return Ok((executable, None)),
            Err(why) => log::warn!("a compiled model in the store is of no use: {why}"),
        }
    }
    let executable = backend.compile(model, options, control)?;
    if small && !options.just_in_time {
        executable.finish(control)?;
    }
    Ok((executable, place))
}

pub(super) fn save(store: &Store, key: &Key, executable: &dyn Executable) -> Result<(), CachingError> {
    let artifact = executable.artifact().ok_or(CachingError::NotCacheable)?;
    Ok(store.save(key, caching::content(&artifact))?)
}

/// Bytes of constants.
fn constants(model: &Model) -> usize {
    let sizes =
        content::graphs(model).flat_map(|graph| &graph.operands).map(|operand| match &operand.lifetime {
            Lifetime::Constant(constant) => constant.len(),
            _ => 0,
        });
    sizes.fold(0, usize::saturating_add)
}
