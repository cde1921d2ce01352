//! Compilations saved in a client's cache files, and prepared from them.

use crate::backend::{Backend, BackendError, Executable};
use crate::cache::{Cache, CacheError, CacheFiles, Key};
use std::os::fd::AsFd;
use std::sync::Arc;

/// What a client says of where its compilation is cached.
pub struct CachePlace {
    key: Key,
    files: CacheFiles,
}

/// Why a compilation was not saved, or not prepared from its cache.
#[derive(Debug, thiserror::Error)]
pub enum CachingError {
    #[error("a token of {0} bytes, expected 32")]
    Token(usize),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error("this model cannot be cached")]
    NotCacheable,
    #[error(transparent)]
    Backend(BackendError),
}

impl CachePlace {
    /// Checks the token and the files of the client with this uid.
    pub fn new<F: AsFd>(uid: u32, token: &[u8], models: &[F], data: &[F]) -> Result<Self, CachingError> {
        let token = token.try_into().map_err(|_| CachingError::Token(token.len()))?;
        Ok(CachePlace { key: Key { uid, token }, files: CacheFiles::new(models, data)? })
    }

    pub fn save(&self, cache: &Cache, executable: &dyn Executable) -> Result<(), CachingError> {
        let artifact = executable.artifact().ok_or(CachingError::NotCacheable)?;
        Ok(cache.save(&self.key, &self.files, &artifact.model, &artifact.data)?)
    }

    pub fn load(&self, cache: &Cache, backend: &dyn Backend) -> Result<Arc<dyn Executable>, CachingError> {
        let loaded = cache.load(&self.key, &self.files)?;
        backend.load(&loaded.model, loaded.data).map_err(CachingError::Backend)
    }
}
