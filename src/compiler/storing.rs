//! Compilations by way of what there is already: a model that its client has, or makes just now, is that one, and a model that
//! it has compiled before is loaded from the driver's own store.

use super::caching::{CachingError, LEAST_CONSTANTS};
use super::content::{self, is_idle, threads, Outline, Sum, Threads};
use super::living::{Found, Living, Making};
use super::saving::StoreName;
use super::StorePlace;
use crate::backend::{Backend, BackendError, CompileOptions, Control, Executable, Saved};
use crate::cache::{CacheError, Key, Store};
use crate::memory::{Account, Counted};
use crate::model::{Lifetime, Model};
use crate::scheduler::{CallTurns, Permit};
use crate::statistics::CacheCounts;
use std::sync::Arc;
use std::thread::Builder;

/// What compiles, and where it looks before.
pub(super) struct By<'a> {
    pub backend: &'a dyn Backend,
    pub store: Option<(&'a Arc<Store>, &'a CacheCounts)>,
    pub living: &'a Living,
    pub turns: &'a CallTurns,
}

/// What is to be compiled, and for whom.
#[derive(Clone, Copy)]
struct What<'a> {
    model: &'a Model,
    options: &'a CompileOptions,
    outline: &'a Outline,
    control: &'a Control,
}

/// The hash of a model's content, if it was made, and the sums of its constants.
type Names = (Option<[u8; 32]>, Vec<Sum>);

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
    let bytes = constants(model);
    // To look would read the constants now, which just-in-time compilation leaves to the first execution. What packed constants
    // take is about what they take themselves: none is read of which the client cannot have so much.
    if options.just_in_time || bytes < LEAST_CONSTANTS || !Account::of_thread().may_have(bytes) {
        return Ok((by.backend.compile(model, options, control)?, None));
    }
    let Some(outline) = Outline::new(model, options, &by.turns.check(control))? else {
        return Ok((by.backend.compile(model, options, control)?, None));
    };
    let what = What { model, options, outline: &outline, control };
    let (uid, prefix) = (control.client, outline.prefix());
    // Operands may name the same bytes over and over.
    let store = by.store.filter(|(store, _)| bytes as u64 <= store.most_bytes());
    let is_stored = store.is_some_and(|(store, _)| store.has_like(uid, &prefix));
    let stored = store.filter(|_| is_stored);
    let keeps = store.filter(|_| keep);
    let is_hashed = keeps.is_some() && mappings.is_none();
    let making = if is_stored { None } else { by.living.begin(uid, prefix) };
    let (executable, names) = match making {
        Some(making) => by.compile_beside(what, is_hashed, making)?,
        None => by.find_or_make(what, stored, is_hashed)?,
    };
    // Without names it is stored, or will be by who made it, or cannot be.
    let Some((names, (store, counts))) = names.zip(keeps) else { return Ok((executable, None)) };
    if !is_stored {
        counts.looked(Err(CachingError::Cache(CacheError::Unknown).reason()));
    }
    let name = match names {
        (Some(token), _) => Some(StoreName::Token(token)),
        // None if its client has no memory left for the name.
        (None, sums) => {
            let counted = Counted::take(size_of_val(&sums[..]));
            mappings.take().zip(counted).map(|(permit, counted)| StoreName::OfContent {
                outline,
                sums,
                _mappings: permit,
                _counted: counted,
            })
        }
    };
    Ok((executable, name.map(|name| StorePlace { store: store.clone(), uid, name })))
}

impl By<'_> {
    /// A model that is like none that its client has: its constants are read beside its compilation, which reads them, too.
    fn compile_beside(
        &self,
        what: What,
        is_hashed: bool,
        making: Making,
    ) -> Result<(Arc<dyn Executable>, Option<Names>), BackendError> {
        let compile = || self.backend.compile(what.model, what.options, what.control);
        let names = |most| {
            let names = self.names(what, is_hashed, (most, 1));
            names.inspect(|(_, sums)| making.name(what.outline.name(sums)))
        };
        let (executable, names) = beside(threads(what.options), compile, names);
        let names = unless_stopped(names)?;
        let executable = executable?;
        if names.is_some() {
            making.made(&executable);
        }
        Ok((executable, names))
    }

    /// The model that its client has, or that the store has; or else a new one, with its names.
    fn find_or_make(
        &self,
        what: What,
        stored: Option<(&Arc<Store>, &CacheCounts)>,
        is_hashed: bool,
    ) -> Result<(Arc<dyn Executable>, Option<Names>), BackendError> {
        let What { model, options, outline, control } = what;
        let names = |is_hashed| self.names(what, is_hashed, (threads(options), 0));
        // A hash takes longer than sums: so it is made at once where it is likely to be of use.
        let is_alive = self.living.has_like(control.client, &outline.prefix());
        let first = unless_stopped(names((stored.is_some() || is_hashed) && !is_alive))?;
        let Some((mut token, sums)) = first else {
            return Ok((self.backend.compile(model, options, control)?, None));
        };
        let making = match self.living.find(outline.name(&sums), control)? {
            Found::Alive(executable) => return Ok((executable, None)),
            Found::Missing(making) => making,
        };
        if token.is_none() && (stored.is_some() || is_hashed) {
            token = unless_stopped(names(true))?.and_then(|(token, _)| token);
        }
        if let Some((store, token)) = stored.zip(token) {
            let key = Key { uid: control.client, token };
            if let Some(loaded) = self.load(store, &key, options, control)? {
                making.made(&loaded);
                return Ok((loaded, None));
            }
        }
        let executable = self.backend.compile(model, options, control)?;
        making.made(&executable);
        Ok((executable, Some((token, sums))))
    }

    /// The sums, and the hash if it is asked for. Constants are read by a turn, and by up to so many threads where the machine has
    /// nothing else to do than what computes for this already.
    fn names(
        &self,
        what: What,
        is_hashed: bool,
        (most, computing): (usize, usize),
    ) -> Result<Names, BackendError> {
        let is_idle = || is_idle(self.backend, self.turns, computing);
        let (threads, turn) = (Threads { most, is_idle: &is_idle }, self.turns.check(what.control));
        Ok(match is_hashed {
            true => what.outline.hash(threads, &turn).map(|(token, sums)| (Some(token), sums))?,
            false => (None, what.outline.sums(threads, &turn)?),
        })
    }

    /// What the store has; `None` if that is of no use.
    fn load(
        &self,
        (store, counts): (&Arc<Store>, &CacheCounts),
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

/// The names, if they could be made. A model whose constants cannot be read has none, and is neither shared nor stored; the backend says
/// whether it can be compiled all the same. What is to stop is not compiled without a name either.
fn unless_stopped(names: Result<Names, BackendError>) -> Result<Option<Names>, BackendError> {
    match names {
        Ok(names) => Ok(Some(names)),
        Err(why @ (BackendError::DeadlinePassed | BackendError::Cancelled)) => Err(why),
        Err(why) => {
            log::warn!("a compilation is neither shared nor stored: {why}");
            Ok(None)
        }
    }
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
    use crate::memory::{Access, Budget, ClientSlice, Mapping};
    use crate::model::{Constant, Operand};
    use crate::tensor::{OperandType, TensorInfo};
    use std::os::fd::AsFd;

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

    #[test]
    fn constants_that_their_client_has_no_memory_for_are_not_read() {
        let budget = Budget::new(2 * LEAST_CONSTANTS as u64);
        let _account = budget.on_account_of(0);
        let (backend, (turns, _), control) = (CpuBackend::new(1).unwrap(), turns(), Control::default());
        for (bytes, is_read) in [(LEAST_CONSTANTS, true), (LEAST_CONSTANTS + 1, false)] {
            let (mut model, living) = (model(), Living::default());
            model.main.operands.push(Operand {
                extension: None,
                info: TensorInfo::new(OperandType::TENSOR_QUANT8_ASYMM, &[bytes as u32]),
                lifetime: Lifetime::Constant(Constant::Client(ClientSlice::whole(Arc::new(
                    Mapping::anonymous(bytes).unwrap(),
                )))),
            });
            let by = By { backend: &backend, store: None, living: &living, turns: &turns };
            let options = CompileOptions::default();
            let _compiled = compile(&by, true, (&model, &options), &mut None, &control).unwrap();
            let prefix = Outline::new(&model, &options, &control).unwrap().unwrap().prefix();
            assert_eq!(living.has_like(0, &prefix), is_read, "{bytes}");
        }
    }

    #[test]
    fn names_that_cannot_be_made_cost_no_compilation_unless_it_is_to_stop() {
        let file = crate::memory::unnamed_file(LEAST_CONSTANTS).unwrap();
        let mapping = Mapping::new(file.as_fd(), 0, LEAST_CONSTANTS, Access::Read).unwrap();
        // No operation needs it, and it cannot be read.
        file.set_len(0).unwrap();
        let mut model = model();
        model.main.operands.push(Operand {
            extension: None,
            info: TensorInfo::new(OperandType::TENSOR_QUANT8_ASYMM, &[LEAST_CONSTANTS as u32]),
            lifetime: Lifetime::Constant(Constant::Client(ClientSlice::whole(Arc::new(mapping)))),
        });
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::new(directory.path(), "driver", 1 << 30));
        let (backend, (turns, _), counts) = (CpuBackend::new(1).unwrap(), turns(), CacheCounts::default());
        let (living, options, control) = (Living::default(), CompileOptions::default(), Control::default());
        let by = By { backend: &backend, store: Some((&store, &counts)), living: &living, turns: &turns };
        let compile = |control: &Control| compile(&by, true, (&model, &options), &mut None, control);
        let prefix = Outline::new(&model, &options, &control).unwrap().unwrap().prefix();
        let (_, place) = compile(&control).unwrap();
        assert!(place.is_none() && !living.has_like(0, &prefix));
        // Beside one that is like it, constants are read before.
        let other: Arc<dyn Executable> = compile(&control).unwrap().0;
        let mut name = [0; 32];
        name[..prefix.len()].copy_from_slice(&prefix);
        living.also(0, name, &other);
        assert!(compile(&control).unwrap().1.is_none());
        control.cancelled.set();
        assert!(matches!(compile(&control), Err(BackendError::Cancelled)));
    }
}
