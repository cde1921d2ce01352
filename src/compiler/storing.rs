//! Compilations by way of the driver's own store: a model that its client has compiled before is loaded.

use super::caching::{CachingError, LEAST_CONSTANTS};
use super::content::{self, is_idle, threads, Outline, Threads};
use super::saving::StoreName;
use super::StorePlace;
use crate::backend::{Backend, BackendError, CompileOptions, Control, Executable, Saved};
use crate::cache::{CacheError, Key, Store};
use crate::memory::Counted;
use crate::model::{Lifetime, Model};
use crate::scheduler::{CallTurns, Permit};
use crate::statistics::CacheCounts;
use std::sync::Arc;
use std::thread::Builder;

/// Compiles a model, or loads what the store has of it. Gives where to store it once it has been used, if that is worth
/// while and it is to `keep` it. Constants are hashed by one of `turns`. If it gets a permit for mappings, it takes the permit, and the model is hashed only then.
pub(super) fn compile(
    store: Option<(&Arc<Store>, &CacheCounts)>,
    keep: bool,
    backend: &dyn Backend,
    (model, options): (&Model, &CompileOptions),
    mappings: &mut Option<Permit>,
    (turns, control): (&CallTurns, &Control),
) -> Result<(Arc<dyn Executable>, Option<StorePlace>), BackendError> {
    let compile = || backend.compile(model, options, control);
    // What packed constants take is about what they take themselves. Operands may name the same bytes over and over.
    let may_be_kept = |store: &Store| {
        let bytes = constants(model);
        bytes >= LEAST_CONSTANTS && bytes as u64 <= store.most_bytes()
    };
    let Some((store, counts)) = store.filter(|(store, _)| may_be_kept(store)) else {
        return Ok((compile()?, None));
    };
    let outline = Outline::new(model, options, &turns.check(control))?;
    let is_idle = |computing| is_idle(backend, turns, computing);
    let place = |name| StorePlace { store: store.clone(), uid: control.client, name };
    if !store.has_like(control.client, &outline.prefix()) {
        if !keep {
            return Ok((compile()?, None));
        }
        counts.looked(Err(CachingError::Cache(CacheError::Unknown).reason()));
        // Hashing can take longer than compiling, and nobody needs the name before the model is stored.
        let (executable, name) = match mappings.take() {
            Some(permit) => {
                let sums =
                    |most| outline.sums(Threads { most, is_idle: &|| is_idle(1) }, &turns.check(control));
                let (executable, sums) = beside(threads(options), compile, sums);
                let sums = sums?;
                let Some(counted) = Counted::take(outline.bytes() + size_of_val(&sums[..])) else {
                    return Ok((executable?, None)); // its client has no memory left for the name
                };
                (executable, StoreName::OfContent { outline, sums, _mappings: permit, _counted: counted })
            }
            None => {
                let hash =
                    |most| outline.hash(Threads { most, is_idle: &|| is_idle(1) }, &turns.check(control));
                let (executable, token) = beside(threads(options), compile, hash);
                (executable, StoreName::Token(token?))
            }
        };
        return Ok((executable?, Some(place(name))));
    }
    let all = Threads { most: threads(options), is_idle: &|| is_idle(0) };
    let token = outline.hash(all, &turns.check(control))?;
    let place = place(StoreName::Token(token));
    let loaded = load(store, Key { uid: control.client, token }, backend, options, control);
    counts.looked(loaded.as_ref().map(drop).map_err(CachingError::reason));
    match loaded {
        Ok(executable) => return Ok((executable, None)),
        Err(CachingError::Backend(why @ (BackendError::DeadlinePassed | BackendError::Cancelled))) => {
            return Err(why)
        }
        Err(CachingError::Backend(why)) => {
            log::warn!("a compiled model in the store is of no use: {why}");
        }
        Err(_) => {} // the store has said so, if there is anything to say
    }
    Ok((compile()?, Some(place).filter(|_| keep)))
}

/// Does `work` here and `other` beside it, by what is left of so many threads.
fn beside<T, U: Send>(threads: usize, work: impl FnOnce() -> T, other: impl Fn(usize) -> U + Sync) -> (T, U) {
    std::thread::scope(|scope| {
        let other = &other;
        let helper = (threads > 1).then(|| {
            Builder::new().name("nnhal-hash".into()).spawn_scoped(scope, move || other(threads - 1))
        });
        let done = work();
        let others = match helper {
            Some(Ok(helper)) => helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // One thread is all it may have, or there is none to be had.
            _ => other(1),
        };
        (done, others)
    })
}

fn load(
    store: &Store,
    key: Key,
    backend: &dyn Backend,
    options: &CompileOptions,
    control: &Control,
) -> Result<Arc<dyn Executable>, CachingError> {
    let loaded = store.load(&key)?;
    let saved = Saved { models: loaded.models, data: loaded.data };
    backend.load(saved, options, control).map_err(CachingError::Backend)
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
            let (_, place) = compile(
                Some((&store, &counts)),
                true,
                &backend,
                what,
                &mut None,
                (&turns, &Control::default()),
            )
            .unwrap();
            assert_eq!(place.is_some(), is_kept, "{times}");
        }
    }
}
