//! Compilations by way of the driver's own store: a model that its client has compiled before is loaded.

use super::content::{self, threads, Outline};
use super::StorePlace;
use crate::backend::{Backend, BackendError, CompileOptions, Control, Executable, Saved};
use crate::cache::{Key, Store};
use crate::model::{Lifetime, Model};
use std::sync::Arc;
use std::thread::Builder;

/// Models of smaller constants, in bytes, are compiled as fast as they are found, and not stored.
pub const LEAST_CONSTANTS: usize = 256 << 10;

/// Compiles a model, or loads what the store has of it. Gives where to store it once it has been used, if that is worth
/// while.
pub(super) fn compile(
    store: Option<&Arc<Store>>,
    backend: &dyn Backend,
    (model, options): (&Model, &CompileOptions),
    control: &Control,
) -> Result<(Arc<dyn Executable>, Option<StorePlace>), BackendError> {
    let compile = || backend.compile(model, options, control);
    let Some(store) = store.filter(|_| constants(model) >= LEAST_CONSTANTS) else {
        return Ok((compile()?, None));
    };
    let outline = Outline::new(model, options);
    let place = |token| StorePlace { store: store.clone(), key: Key { uid: control.client, token } };
    if !store.has_like(control.client, &outline.prefix()) {
        // What it will be stored as is not needed until then.
        let (executable, token) = beside(threads(options), compile, |threads| outline.hash(threads, control));
        return Ok((executable?, Some(place(token?))));
    }
    let place = place(outline.hash(threads(options), control)?);
    if let Some(loaded) = place.store.load(&place.key) {
        match backend.load(Saved { models: loaded.models, data: loaded.data }, options, control) {
            Ok(executable) => return Ok((executable, None)),
            Err(why) => log::warn!("a compiled model in the store is of no use: {why}"),
        }
    }
    Ok((compile()?, Some(place)))
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
