//! Saves that wait until a model was executed: in the driver's own store, which is for what is used, and in client's files
//! that were reserved for what the first execution compiles.
//!
//! Nobody waits for a save: executions go on meanwhile, and a save that fails does not concern them. A model that was
//! executed once is saved even if its client is gone by then, because many clients run a model once in their lives.

use super::caching::{self, CachePlace, CachingError, Counts};
use super::content::{Outline, Sum};
use crate::backend::{Artifact, BackendError, CompileOptions, Control, Executable};
use crate::cache::{Cache, CacheError, Key, Origin, Reserved, Store};
use crate::memory::{Account, Counted, MemoryError};
use crate::ops::Interrupt;
use crate::scheduler::{CallTurns, Permit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where a compilation is to be saved.
pub enum SavePlace {
    Store(Box<StorePlace>),
    Files(Box<ReservedFiles>),
}

/// A place in the driver's own store.
pub struct StorePlace {
    pub(super) store: Arc<Store>,
    pub(super) uid: u32,
    pub(super) name: StoreName,
}

/// The name of a model in the store.
pub(super) enum StoreName {
    Token([u8; 32]),
    /// The hash of its content, if that still has these sums. The client may change its memory until then; the permit is for
    /// the mappings of that memory. They are kept until the first execution, which may never come, and are counted.
    OfContent {
        outline: Outline,
        sums: Vec<Sum>,
        _mappings: Permit,
        _counted: Counted,
    },
    /// Where its client has it: only the data are kept.
    DataOf(Origin),
}

impl StorePlace {
    fn save(&self, artifact: &Artifact, control: &Control) -> Result<(), CachingError> {
        let token = match &self.name {
            StoreName::DataOf(origin) => {
                return Ok(self.store.keep_data(self.uid, origin, &artifact.data, control)?)
            }
            StoreName::Token(token) => *token,
            StoreName::OfContent { outline, sums, .. } => {
                let hash = outline.hash_unless_changed(sums, control).map_err(CachingError::Backend)?;
                hash.ok_or(CachingError::ConstantsChanged)?
            }
        };
        // For the disk.
        control.before_waiting();
        Ok(self.store.save(&Key { uid: self.uid, token }, caching::content(artifact), control)?)
    }
}

/// A client's cache files, as they were left for this compilation.
pub struct ReservedFiles {
    pub(super) cache: Arc<Cache>,
    pub(super) place: CachePlace,
    pub(super) reserved: Reserved,
    pub(super) options: CompileOptions,
    /// For their descriptors.
    pub(super) _permit: Permit,
}

/// The save that a prepared model waits for, if it does.
pub struct Unsaved {
    client: u32,
    /// Whose memory a save takes.
    account: Account,
    state: Arc<State>,
    /// For the constants of what is compiled just in time.
    _mappings: Option<Permit>,
}

struct State {
    /// Whether there is nothing to begin: it is under way, done, or has failed for good.
    begun: AtomicBool,
    next: Mutex<Next>,
}

/// The next attempt.
struct Next {
    place: Option<SavePlace>,
    /// After a failure, when to try again.
    not_before: Option<Instant>,
    wait: Duration,
}

/// How long to wait after the first failure that may pass; twice as long after each further one, up to the longest.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

impl Unsaved {
    /// The save of a model of this client, on whose account the thread works; `mappings` is for the memories that the executable keeps for its first run.
    pub fn new(client: u32, place: Option<SavePlace>, mappings: Option<Permit>) -> Self {
        let begun = AtomicBool::new(place.is_none());
        let next = Mutex::new(Next { place, not_before: None, wait: FIRST_WAIT });
        let account = Account::of_thread();
        Unsaved { client, account, state: Arc::new(State { begun, next }), _mappings: mappings }
    }
}

impl Unsaved {
    /// Whose model it is.
    pub(super) fn client(&self) -> u32 {
        self.client
    }

    /// The attempt that the caller is to make, as nobody else does; `None` where nothing is to be done now.
    pub(super) fn begin(&self) -> Option<Attempt> {
        // After most executions this is all.
        if self.state.begun.load(Ordering::Relaxed) {
            return None;
        }
        let mut next = self.state.next();
        if next.not_before.is_some_and(|end| Instant::now() < end) {
            return None;
        }
        self.state.begun.store(true, Ordering::Relaxed);
        let (account, state) = (self.account.clone(), self.state.clone());
        Some(Attempt { place: next.place.take()?, account, state })
    }
}

impl State {
    fn next(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a later execution begin once more: `failed` says whether this attempt has failed, rather than found no room.
    fn put_back(&self, place: SavePlace, failed: bool) {
        let mut next = self.next();
        next.place = Some(place);
        if failed {
            next.not_before = Some(Instant::now() + next.wait);
            next.wait = (2 * next.wait).min(LONGEST_WAIT);
        }
        self.begun.store(false, Ordering::Relaxed);
    }
}

/// One attempt to save a model.
pub(super) struct Attempt {
    place: SavePlace,
    account: Account,
    state: Arc<State>,
}

impl Attempt {
    /// Leaves it to a later execution, as there is no room for it now.
    pub fn leave(self) {
        self.state.put_back(self.place, false);
    }

    /// Saves, within the terms of `control` and by `turns`. If that fails for want of memory, disk or room, it is tried again
    /// after a later execution, ever more rarely. Given back where the store is busy with another save, or the files are in
    /// use: that may take long, and would keep a thread.
    #[must_use]
    pub fn make(
        self,
        executable: &dyn Executable,
        (turns, control): (&CallTurns, &Control),
        counts: &Counts,
    ) -> Option<Self> {
        let in_store = match &self.place {
            SavePlace::Store(place) if place.store.is_saving() => return Some(self),
            SavePlace::Store(_) => true,
            SavePlace::Files(files) if files.place.has_to_wait(&files.cache) => return Some(self),
            SavePlace::Files(_) => false,
        };
        let saved = {
            let _account = self.account.clone().enter();
            self.place.write(executable, turns, control)
        };
        if in_store && matches!(saved, Err(CachingError::Cache(CacheError::Busy))) {
            return Some(self); // one that began meanwhile
        }
        self.place.count(&saved, counts);
        if let Err(why) = saved {
            why.log();
            if why.may_pass() {
                self.state.put_back(self.place, true);
            }
        }
        None
    }
}

impl SavePlace {
    fn count(&self, saved: &Result<(), CachingError>, counts: &Counts) {
        let counts = match self {
            SavePlace::Store(_) => &counts.store,
            SavePlace::Files(_) => &counts.files,
        };
        counts.saved(saved.as_ref().map(drop).map_err(CachingError::reason));
    }

    fn write(
        &self,
        executable: &dyn Executable,
        turns: &CallTurns,
        control: &Control,
    ) -> Result<(), CachingError> {
        let (artifact, _counted) =
            caching::artifact(executable, control)?.ok_or(CachingError::NotCacheable)?;
        let check = turns.check(control);
        match self {
            SavePlace::Store(place) => place.save(&artifact, &check),
            SavePlace::Files(files) => {
                files.place.fill(&files.cache, &files.reserved, (artifact, &files.options), &check)
            }
        }
    }
}

impl CachingError {
    /// Whether what failed may well succeed in a while: there was no memory, disk or device, others used the files, or the first
    /// execution has failed, and so compiled nothing.
    fn may_pass(&self) -> bool {
        let memory =
            |why: &MemoryError| matches!(why, MemoryError::OutOfMemory(_) | MemoryError::Exhausted(_));
        match self {
            CachingError::NotCacheable => true,
            // With a process of the backend's own, that may have ended, or had too much to do.
            CachingError::Backend(
                BackendError::OutOfMemory(_)
                | BackendError::DeviceLost(_)
                | BackendError::DeviceBusy(_)
                | BackendError::DeadlinePassed,
            ) => true,
            CachingError::Backend(BackendError::Memory { source, .. }) => memory(source),
            CachingError::Cache(CacheError::Data(source)) => memory(source),
            CachingError::Cache(why) => {
                matches!(why, CacheError::Busy | CacheError::Io { .. } | CacheError::Registry(_))
            }
            _ => false,
        }
    }

    fn log(&self) {
        match self {
            // Others use the files, or the client has done something to them.
            CachingError::Backend(_)
            | CachingError::ConstantsChanged
            | CachingError::NotCacheable
            | CachingError::Cache(CacheError::Busy | CacheError::Changed | CacheError::DataChanged) => {
                log::debug!("a compilation is not saved: {self}")
            }
            _ => log::warn!("a compilation is not saved: {self}"),
        }
    }
}

/// Saves that are due or under way in the background.
#[derive(Default)]
pub(super) struct Saves {
    state: Mutex<SaveState>,
    ended: Condvar,
}

#[derive(Default)]
struct SaveState {
    count: usize,
    closed: bool,
}

/// One of them; ends when dropped.
pub(super) struct Saving(Arc<Saves>);

impl Saves {
    fn lock(&self) -> MutexGuard<'_, SaveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` once there must be no more.
    pub fn begin(self: &Arc<Self>) -> Option<Saving> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        state.count += 1;
        Some(Saving(self.clone()))
    }

    /// Waits, not for long, for those that are due; none begins from here on.
    pub fn close(&self) {
        /// Disks can hang, and much can be due.
        const PATIENCE: Duration = Duration::from_secs(5);
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.lock();
        state.closed = true;
        while state.count > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        self.0.lock().count -= 1;
        self.0.ended.notify_all();
    }
}
