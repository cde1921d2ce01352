//! Compilations by way of what there is already: a model that its client has, or makes just now, is that one, and a model that
//! it has compiled before is loaded from the driver's own store.

use super::caching::{CachingError, LEAST_CONSTANTS};
use super::content::{self, is_idle, threads, Outline, Sum, Threads};
use super::living::{Found, Living};
use super::saving::StoreName;
use super::StorePlace;
use crate::backend::{Backend, BackendError, CompileOptions, Control, Executable, Saved};
use crate::cache::{CacheError, Key, Store};
use crate::memory::Counted;
use crate::model::{Lifetime, Model};
use crate::scheduler::{CallTurns, Permit};
use crate::statistics::CacheCounts;
use std::sync::Arc;

/// What compiles, and where it looks before.
pub(super) struct By<'a> {
    pub backend: &'a dyn Backend,
    pub store: Option<(&'a Arc<Store>, &'a CacheCounts)>,
    pub living: &'a Living,
    pub turns: &'a CallTurns,
}

/// A model with its name among those that are alive and, if that was made, its name in the store.
struct Named<'a> {
    model: &'a Model,
    options: &'a CompileOptions,
    outline: Outline,
    sums: Vec<Sum>,
    token: Option<[u8; 32]>,
}

/// Compiles a model, unless its client has it or the store does. Gives where to store it once it has been used, if that is
/// worth while and it is to `keep` it. Constants are summed up and hashed by one of the turns. If it gets a permit for mappings,
/// it takes the permit, and the model is hashed only when it is stored.
pub(super) fn compile(
    by: &By,
    keep: bool,
    (model, options): (&Model, &CompileOptions),
    mappings: &mut Option<Permit>,
    control: &Control,
) -> Result<(Arc<dyn Executable>, Option<StorePlace>), BackendError> {
    let compile = || by.backend.compile(model, options, control);
    let bytes = constants(model);
    // To look would read the constants now, which just-in-time compilation leaves to the first execution.
    if options.just_in_time || bytes < LEAST_CONSTANTS {
        return Ok((compile()?, None));
    }
    let outline = Outline::new(model, options, &by.turns.check(control))?;
    if !outline.has_name() {
        return Ok((compile()?, None));
    }
    let (uid, prefix) = (control.client, outline.prefix());
    // What packed constants take is about what they take themselves. Operands may name the same bytes over and over.
    let store = by.store.filter(|(store, _)| bytes as u64 <= store.most_bytes());
    let is_stored = store.is_some_and(|(store, _)| store.has_like(uid, &prefix));
    // A hash takes longer than sums, and often longer than compiling: so it is made where it may be of use at once.
    let (token, sums) = if is_stored && !by.living.has_like(uid, &prefix) {
        let (token, sums) = by.read(options, control, |threads, control| outline.hash(threads, control))?;
        (Some(token), sums)
    } else {
        (None, by.read(options, control, |threads, control| outline.sums(threads, control))?)
    };
    let making = match by.living.find(outline.name(&sums), control)? {
        // It is stored by who made it.
        Found::Alive(executable) => return Ok((executable, None)),
        Found::Missing(making) => making,
    };
    let named = Named { model, options, outline, sums, token };
    let (executable, name) = match store.filter(|_| keep || is_stored) {
        Some(store) => by.load_or_compile(store, is_stored, named, mappings, control)?,
        None => (compile()?, None),
    };
    making.made(&executable);
    let name = name.filter(|_| keep);
    let place = name.zip(store).map(|(name, (store, _))| StorePlace { store: store.clone(), uid, name });
    Ok((executable, place))
}

impl By<'_> {
    /// Reads constants by a turn, and by further threads where the machine has nothing else to do.
    fn read<T>(
        &self,
        options: &CompileOptions,
        control: &Control,
        read: impl FnOnce(Threads, &Control) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let is_idle = || is_idle(self.backend, self.turns, 0);
        read(Threads { most: threads(options), is_idle: &is_idle }, &self.turns.check(control))
    }

    /// The model, and what it is to be stored as if it was not.
    fn load_or_compile(
        &self,
        (store, counts): (&Arc<Store>, &CacheCounts),
        is_stored: bool,
        Named { model, options, outline, sums, mut token }: Named,
        mappings: &mut Option<Permit>,
        control: &Control,
    ) -> Result<(Arc<dyn Executable>, Option<StoreName>), BackendError> {
        if token.is_none() && (is_stored || mappings.is_none()) {
            token = Some(self.read(options, control, |threads, control| outline.hash(threads, control))?.0);
        }
        match token.filter(|_| is_stored) {
            Some(token) => {
                let key = Key { uid: control.client, token };
                if let Some(loaded) = self.load((store, counts), &key, options, control)? {
                    return Ok((loaded, None));
                }
            }
            None => counts.looked(Err(CachingError::Cache(CacheError::Unknown).reason())),
        }
        let executable = self.backend.compile(model, options, control)?;
        let name = match (token, mappings.take()) {
            (Some(token), _) => Some(StoreName::Token(token)),
            // None if its client has no memory left for the name.
            (None, permit) => permit.zip(Counted::take(outline.bytes() + size_of_val(&sums[..]))).map(
                |(permit, counted)| StoreName::OfContent {
                    outline,
                    sums,
                    _mappings: permit,
                    _counted: counted,
                },
            ),
        };
        Ok((executable, name))
    }

    /// What the store has; `None` if that is of no use.
    fn load(
        &self,
        (store, counts): (&Store, &CacheCounts),
        key: &Key,
        options: &CompileOptions,
        control: &Control,
    ) -> Result<Option<Arc<dyn Executable>>, BackendError> {
        let loaded = store.load(key).map_err(CachingError::Cache).and_then(|loaded| {
            let saved = Saved { models: loaded.models, data: loaded.data };
            self.backend.load(saved, options, control).map_err(CachingError::Backend)
        });
        counts.looked(loaded.as_ref().map(drop).map_err(CachingError::reason));
        match loaded {
            Ok(executable) => return Ok(Some(executable)),
            Err(CachingError::Backend(why @ (BackendError::DeadlinePassed | BackendError::Cancelled))) => {
                return Err(why)
            }
            Err(CachingError::Backend(why)) => {
                log::warn!("a compiled model in the store is of no use: {why}");
            }
            Err(_) => {} // the store has said so, if there is anything to say
        }
        Ok(None)
    }
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

#[cfg(test)]
mod tests {
    use super::super::tests::{model, turns};
    use super::*;
    use crate::backend::cpu::CpuBackend;
    use crate::memory::{ClientSlice, Mapping};
    use crate::model::{Constant, Operand};
    use crate::tensor::{OperandType, TensorInfo};

    #[test]
    fn constants_that_no_store_has_room_for_are_not_hashed() {
        let directory = tempfile::tempdir().unwrap();
        let most = 2 * LEAST_CONSTANTS;
        let store = Arc::new(Store::new(directory.path(), "driver", most as u64));
        let constant = ClientSlice::whole(Arc::new(Mapping::anonymous(LEAST_CONSTANTS).unwrap()));
        let (backend, (turns, _), counts) = (CpuBackend::new(1).unwrap(), turns(), CacheCounts::default());
        for (times, is_kept) in [(0, false), (1, true), (2, true), (3, false), (1000, false)] {
            let mut model = model();
            // All of them are the same bytes.
            model.main.operands.extend((0..times).map(|_| Operand {
                extension: None,
                info: TensorInfo::new(OperandType::TENSOR_QUANT8_ASYMM, &[LEAST_CONSTANTS as u32]),
                lifetime: Lifetime::Constant(Constant::Client(constant.clone())),
            }));
            let what = (&model, &CompileOptions::default());
            let by = By {
                backend: &backend,
                store: Some((&store, &counts)),
                living: &Living::default(),
                turns: &turns,
            };
            let (_, place) = compile(&by, true, what, &mut None, &Control::default()).unwrap();
            assert_eq!(place.is_some(), is_kept, "{times}");
        }
    }
}
