//! Which data caches prepared models compute with, so that none is rewritten without need.
//!
//! It must not keep a mapping alive.

use super::FileId;
use crate::memory::Mapping;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// By file. While a mapping lives, no other file has its numbers.
#[derive(Debug, Default)]
pub struct Mapped(Mutex<HashMap<FileId, Vec<Weak<Mapping>>>>);

impl Mapped {
    fn lock(&self) -> MutexGuard<'_, HashMap<FileId, Vec<Weak<Mapping>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn insert(&self, file: FileId, mapping: &Arc<Mapping>) {
        let mut mapped = self.lock();
        mapped.retain(|_, mappings| {
            mappings.retain(|mapping| mapping.strong_count() > 0);
            !mappings.is_empty()
        });
        mapped.entry(file).or_default().push(Arc::downgrade(mapping));
    }

    pub fn contains(&self, file: FileId) -> bool {
        let lives = |mapping: &Weak<Mapping>| mapping.strong_count() > 0;
        self.lock().get(&file).is_some_and(|mappings| mappings.iter().any(lives))
    }
}
