//! Compilations saved in a client's cache files, and prepared from them.

use crate::backend::{Backend, BackendError, Control, Executable};
use crate::cache::{Cache, CacheError, CacheFiles, Key, Written};
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

    /// Saves what is compiled so far. Of what is compiled at its first execution only, that is nothing: its place is
    /// kept, and until then there is nothing to load.
    pub fn save(&self, cache: &Cache, executable: &dyn Executable) -> Result<Written, CachingError> {
        match executable.artifact() {
            Some(artifact) => Ok(cache.save(&self.key, &self.files, &artifact.model, &artifact.data)?),
            None if executable.is_finished() => Err(CachingError::NotCacheable),
            None => Ok(cache.reserve(&self.key, &self.files)?),
        }
    }

    /// Saves it in place of what was `written` before, if that is still there.
    pub fn replace(
        &self,
        cache: &Cache,
        written: &Written,
        executable: &dyn Executable,
    ) -> Result<(), CachingError> {
        let artifact = executable.artifact().ok_or(CachingError::NotCacheable)?;
        Ok(cache.replace(&self.key, &self.files, written, &artifact.model, &artifact.data)?)
    }

    pub fn load(
        &self,
        cache: &Cache,
        backend: &dyn Backend,
        control: &Control,
    ) -> Result<(Arc<dyn Executable>, Written), CachingError> {
        let loaded = cache.load(&self.key, &self.files)?;
        let executable = backend.load(&loaded.model, loaded.data, control).map_err(CachingError::Backend)?;
        Ok((executable, loaded.written))
    }
}
