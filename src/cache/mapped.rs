//! Which data caches prepared models of this process compute with, so that none is rewritten without need.
//!
//! It must not keep a mapping alive.

use super::FileId;
use crate::memory::Mapping;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

/// While a mapping lives, no other file has its numbers.
static MAPPED: LazyLock<Mutex<HashMap<FileId, Vec<Weak<Mapping>>>>> = LazyLock::new(Default::default);

fn mapped() -> MutexGuard<'static, HashMap<FileId, Vec<Weak<Mapping>>>> {
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn insert(file: FileId, mapping: &Arc<Mapping>) {
    let mut mapped = mapped();
    mapped.retain(|_, mappings| {
        mappings.retain(|mapping| mapping.strong_count() > 0);
        !mappings.is_empty()
    });
    mapped.entry(file).or_default().push(Arc::downgrade(mapping));
}

pub fn contains(file: FileId) -> bool {
    mapped().get(&file).is_some_and(|mappings| mappings.iter().any(|mapping| mapping.strong_count() > 0))
}
