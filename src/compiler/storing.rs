//! Compilations by way of the driver's own store: a model that its client has compiled before is loaded.

use super::caching;
use super::{content, CachingError, StorePlace};
use crate::backend::{Backend, BackendError, CompileOptions, Control, Executable, Saved};
use crate::cache::{Key, Store};
use crate::model::{Lifetime, Model};
use crate::statistics::CacheCounts;
use std::sync::Arc;

/// Models of smaller constants, in bytes, are compiled as fast as they are found: at once, and not stored.
pub const LEAST_CONSTANTS: usize = 256 << 10;

/// Compiles a model, or loads what the store has of it. Gives where to store it once it has been used, if that is worth
/// while.
pub(super) fn compile(
    store: Option<(&Arc<Store>, &CacheCounts)>,
    backend: &dyn Backend,
    (model, options): (&Model, &CompileOptions),
    control: &Control,
) -> Result<(Arc<dyn Executable>, Option<StorePlace>), BackendError> {
    let small = constants(model) < LEAST_CONSTANTS;
    let place = match store {
        Some((store, counts)) if !small => {
            let token = content::hash(model, options, control)?;
            let place = StorePlace { store: store.clone(), key: Key { uid: control.client, token } };
            let loaded = load(&place, backend, options, control);
            counts.looked(loaded.as_ref().map(drop).map_err(CachingError::reason));
            match loaded {
                Ok(executable) => return Ok((executable, None)),
                Err(CachingError::Backend(why)) => {
                    log::warn!("a compiled model in the store is of no use: {why}");
                }
                Err(_) => {} // the store has said so, if there is anything to say
            }
            Some(place)
        }
        _ => None,
    };
    let executable = backend.compile(model, options, control)?;
    if small && !options.just_in_time {
        executable.finish(control)?;
    }
    Ok((executable, place))
}

fn load(
    place: &StorePlace,
    backend: &dyn Backend,
    options: &CompileOptions,
    control: &Control,
) -> Result<Arc<dyn Executable>, CachingError> {
    let loaded = place.store.load(&place.key)?;
    let saved = Saved { models: loaded.models, data: loaded.data };
    backend.load(saved, options, control).map_err(CachingError::Backend)
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
