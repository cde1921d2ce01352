//! Compilations saved in a client's cache files, and prepared from them.
//!
//! What a client asked of a compilation is saved with it: a client that prepares from its cache is not asked again.

use super::content::is_idle;
use super::living::{Found, Living};
use crate::backend::{
    Artifact, Backend, BackendError, CacheFileCounts, CompileOptions, Control, Executable, Preference,
    Priority, Saved,
};
use crate::cache::{Cache, CacheError, CacheFiles, Content, Key, Origin, Reading, Reserved, Store};
use crate::memory::Counted;
use crate::ops::Interrupt;
use crate::scheduler::CallTurns;
use crate::statistics::CacheCounts;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Models of smaller constants, in bytes, are compiled as fast as they are found, or copied, and not stored.
pub const LEAST_CONSTANTS: usize = 256 << 10;

/// What a client says of where its compilation is cached.
pub struct CachePlace {
    key: Key,
    files: CacheFiles,
}

/// What was loaded from a client's cache files.
pub struct FromCache {
    pub executable: Arc<dyn Executable>,
    pub options: CompileOptions,
    /// What the store is to keep the data under, if they are large and it does not yet.
    pub to_keep: Option<Origin>,
}

/// Why a compilation was not saved, or not prepared from its cache.
#[derive(Debug, thiserror::Error)]
pub enum CachingError {
    #[error("a token of {0} bytes, expected 32")]
    Token(usize),
    #[error("{models} model and {data} data cache files, expected {} and {}", .expected.models, .expected.data)]
    Count { models: usize, data: usize, expected: CacheFileCounts },
    #[error("the saved model does not say what it was compiled for")]
    Options,
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error("its client has changed the constants since it was compiled")]
    ConstantsChanged,
    #[error("this model cannot be cached")]
    NotCacheable,
    #[error(transparent)]
    Backend(BackendError),
}

/// What is counted of both caches.
#[derive(Debug, Default)]
pub struct Counts {
    /// Counts of clients' cache files.
    pub files: CacheCounts,
    /// Counts of the driver's own store.
    pub store: CacheCounts,
}

impl CachingError {
    /// In a few words, the same whatever client and model it is of.
    pub fn reason(&self) -> &'static str {
        match self {
            CachingError::Token(_) | CachingError::Count { .. } => "wrong arguments",
            CachingError::Options | CachingError::ConstantsChanged => "changed",
            CachingError::NotCacheable => "cannot be cached",
            CachingError::Backend(_) => "of no use to the backend",
            CachingError::Cache(why) => match why {
                CacheError::NoModel | CacheError::Unknown => "unknown",
                CacheError::Count(..) | CacheError::Access(_) | CacheError::SameFile => "wrong arguments",
                CacheError::Served(_) => "served by another process",
                CacheError::Busy => "in use",
                CacheError::Changed => "changed",
                CacheError::DataChanged => "data changed",
                CacheError::TooLarge(_) => "too large",
                CacheError::Io { .. } | CacheError::Data(_) => "cannot be read or written",
                CacheError::Registry(_) => "registry cannot be used",
                CacheError::Stopped(_) | CacheError::Offline(_) => "other",
            },
        }
    }
}

impl CachePlace {
    /// Checks the token and the files of the client with this uid, of which there must be as many as `expected`.
    pub fn new<F: AsFd>(
        uid: u32,
        token: &[u8],
        (models, data): (&[F], &[F]),
        expected: CacheFileCounts,
    ) -> Result<Self, CachingError> {
        let token = token.try_into().map_err(|_| CachingError::Token(token.len()))?;
        if [models.len(), data.len()] != [expected.models, expected.data].map(|count| count as usize) {
            return Err(CachingError::Count { models: models.len(), data: data.len(), expected });
        }
        Ok(CachePlace { key: Key { uid, token }, files: CacheFiles::new(models, data)? })
    }

    /// Saves a compilation. Gives what to keep its data under, if they are large.
    pub fn save(
        &self,
        caches: (&Cache, Option<&Store>),
        artifact: Artifact,
        options: &CompileOptions,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<Origin>, CachingError> {
        let parts = artifact.data.iter().flatten();
        let bytes = parts.fold(0usize, |sum, (_, part)| sum.saturating_add(part.len()));
        let artifact = with_options(artifact, options)?;
        let save = |cache: &Cache| cache.save(&self.key, &self.files, content(&artifact), interrupt);
        let origin = self.voiding(caches, save)?;
        Ok(Some(origin).filter(|_| bytes >= LEAST_CONSTANTS))
    }

    /// Keeps the place for what the first execution compiles: until then there is nothing to load.
    pub fn reserve(
        &self,
        caches: (&Cache, Option<&Store>),
        interrupt: &dyn Interrupt,
    ) -> Result<Reserved, CachingError> {
        Ok(self.voiding(caches, |cache| cache.reserve(&self.key, &self.files, interrupt))?)
    }

    /// Whether the files are in use, and who wants them has to wait for a while.
    pub(super) fn has_to_wait(&self, cache: &Cache) -> bool {
        cache.has_to_wait_for(&self.files)
    }

    /// Has the files in use, and waited for, for as long as what this gives is there.
    #[cfg(test)]
    pub(super) fn hold(&self, cache: &Cache) -> impl Sized {
        cache.hold(&self.files)
    }

    /// Does work that may void earlier compilations, and has the store forget the data of those that are void then.
    fn voiding<T>(
        &self,
        (cache, store): (&Cache, Option<&Store>),
        work: impl FnOnce(&Cache) -> Result<T, CacheError>,
    ) -> Result<T, CacheError> {
        let Some(store) = store else { return work(cache) };
        // A registry that cannot be read hinders nothing here: the store drops what is not used.
        let before = cache.hashes(&self.key).unwrap_or_default();
        let done = work(cache)?;
        if let (false, Ok(valid)) = (before.is_empty(), cache.hashes(&self.key)) {
            let void = before.into_iter().filter(|hash| !valid.contains(hash));
            void.for_each(|hash| store.forget_data(self.key.uid, hash));
        }
        Ok(done)
    }

    /// Saves a compilation in the place that was kept for it, if it still is.
    pub fn fill(
        &self,
        cache: &Cache,
        reserved: &Reserved,
        (artifact, options): (Artifact, &CompileOptions),
        interrupt: &dyn Interrupt,
    ) -> Result<(), CachingError> {
        let artifact = with_options(artifact, options)?;
        Ok(cache.fill(&self.key, &self.files, reserved, content(&artifact), interrupt)?)
    }

    /// Loads a compilation, with its data from the store if that keeps them, unless the client has it already. The files are read by
    /// one of `turns`.
    pub(super) fn load(
        &self,
        (cache, store): (&Cache, Option<&Store>),
        backend: &dyn Backend,
        living: &Living,
        (turns, control): (&CallTurns, &Control),
    ) -> Result<FromCache, CachingError> {
        let kept = |origin: &Origin| store?.data_of(self.key.uid, origin);
        let may_help = || is_idle(backend, turns, 0);
        let loaded = {
            // Whose turn ends with this: the backend has its own.
            let check = turns.check(control);
            let reading = Reading { interrupt: &check, may_help: &may_help };
            cache.load_beside(&self.key, &self.files, kept, reading)
        };
        // It is not the files' fault if there was no time to read them.
        control.check().map_err(|why| CachingError::Backend(why.into()))?;
        let mut loaded = loaded?;
        let options = loaded.models.first_mut().and_then(take_options).ok_or(CachingError::Options)?;
        let bytes = loaded.data.iter().fold(0usize, |sum, data| sum.saturating_add(data.len()));
        let saved = Saved { models: loaded.models, data: loaded.data };
        let load = || backend.load(saved, &options, control).map_err(CachingError::Backend);
        if bytes < LEAST_CONSTANTS {
            return Ok(FromCache { executable: load()?, options, to_keep: None });
        }
        let found =
            living.find(loaded.origin.hash, control).map_err(|why| CachingError::Backend(why.into()))?;
        let making = match found {
            // Who made it keeps its data.
            Found::Alive(executable) => return Ok(FromCache { executable, options, to_keep: None }),
            Found::Missing(making) => making,
        };
        let executable = load()?;
        making.made(&executable);
        let to_keep = (!loaded.kept).then_some(loaded.origin);
        Ok(FromCache { executable, options, to_keep })
    }
}

/// The compiled model as bytes, which are counted for as long as what comes with them is kept.
pub(super) fn artifact(
    executable: &dyn Executable,
    control: &Control,
) -> Result<Option<(Artifact, Counted)>, CachingError> {
    let Some(artifact) = executable.artifact(control).map_err(CachingError::Backend)? else {
        return Ok(None);
    };
    let bytes = artifact.models.iter().map(Vec::len).fold(0, usize::saturating_add);
    let counted = Counted::take(bytes).ok_or(CachingError::Backend(BackendError::OutOfMemory(bytes)))?;
    Ok(Some((artifact, counted)))
}

pub(super) fn content(artifact: &Artifact) -> Content<'_> {
    Content { models: &artifact.models, data: &artifact.data }
}

const PREFERENCES: [Preference; 3] =
    [Preference::LowPower, Preference::FastSingleAnswer, Preference::SustainedSpeed];
const PRIORITIES: [Priority; 3] = [Priority::Low, Priority::Medium, Priority::High];

/// An artifact with the options at the end of its first model file.
fn with_options(mut artifact: Artifact, options: &CompileOptions) -> Result<Artifact, CachingError> {
    let preference = PREFERENCES.iter().position(|preference| *preference == options.preference);
    let priority = PRIORITIES.iter().position(|priority| *priority == options.priority);
    if let Some(model) = artifact.models.first_mut() {
        let bytes = [preference, priority].map(|i| i.unwrap_or_default() as u8);
        let no_memory = BackendError::OutOfMemory(model.len());
        model.try_reserve(bytes.len()).map_err(|_| CachingError::Backend(no_memory))?;
        model.extend(bytes);
    }
    Ok(artifact)
}

/// Takes the options off the end of the first model file.
fn take_options(model: &mut Vec<u8>) -> Option<CompileOptions> {
    let (priority, preference) = (model.pop()?, model.pop()?);
    let preference = *PREFERENCES.get(usize::from(preference))?;
    let priority = *PRIORITIES.get(usize::from(priority))?;
    Some(CompileOptions { preference, priority, ..CompileOptions::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_asked_for_is_saved_and_nothing_else_is_taken_for_it() {
        for (preference, priority) in PREFERENCES.into_iter().zip(PRIORITIES) {
            let options = CompileOptions { preference, priority, ..CompileOptions::default() };
            let artifact = Artifact { models: vec![b"steers".to_vec()], data: Vec::new() };
            let mut model = with_options(artifact, &options).unwrap().models.remove(0);
            assert_eq!(take_options(&mut model), Some(options));
            assert_eq!(model, b"steers");
        }
        for wrong in [&[][..], &[0], &[0, 3], &[3, 0], &[255, 255]] {
            assert_eq!(take_options(&mut wrong.to_vec()), None, "{wrong:?}");
        }
    }
}
