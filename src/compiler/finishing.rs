//! The later stage of compilations: what has been used is finished in the background, and kept as it is then.
//!
//! What a model needs for its first run is done when it is prepared, or in that run; the rest is nobody's wait. It must
//! not begin before a model has proved used, and must not compute for a model that has been released, or whose client has
//! died. What is whole by then is kept all the same: many clients run a model once in their lives.

use super::caching::{CachePlace, CachingError};
use super::storing;
use super::{Compiler, Counts};
use crate::backend::{BackendError, CompileOptions, Control, Executable, Priority};
use crate::cache::{Cache, CacheError, Key, Store, Written};
use crate::memory::MemoryError;
use crate::scheduler::Permit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where a finished compilation is kept.
pub enum Keep {
    /// In the driver's own store.
    Stored(StorePlace),
    /// In a client's cache files, in place of what was written there before.
    Cached(Box<Rewriting>),
}

/// A client's cache files, and what they held when they were last looked at.
pub struct Rewriting {
    pub(super) cache: Arc<Cache>,
    pub(super) place: CachePlace,
    pub(super) written: Written,
    pub(super) options: CompileOptions,
    /// For their descriptors.
    pub(super) _permit: Permit,
}

/// A place in the driver's own store.
pub struct StorePlace {
    pub(super) store: Arc<Store>,
    pub(super) key: Key,
}

/// What is left to do for a prepared model, as long as that has it.
pub struct Rest {
    client: u32,
    due: Arc<Due>,
    /// Set when the prepared model is released.
    released: Arc<AtomicBool>,
}

/// When it is to be done.
struct Due {
    /// Whether there is nothing to begin: it is under way, done, or has failed for good.
    begun: AtomicBool,
    left: Mutex<Left>,
}

struct Left {
    keep: Option<Keep>,
    /// After a failure, how long to let it rest.
    not_before: Option<Instant>,
    wait: Duration,
}

/// How long to wait after the first failure that may pass; twice as long after each further one, up to the longest.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

impl Rest {
    /// Of a model of this client.
    pub fn new(client: u32, keep: Option<Keep>) -> Self {
        let left = Mutex::new(Left { keep, not_before: None, wait: FIRST_WAIT });
        Rest { client, due: Arc::new(Due { begun: AtomicBool::new(false), left }), released: Arc::default() }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.released.store(true, Ordering::Relaxed);
    }
}

impl Due {
    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the caller is to begin, as nobody else has.
    fn begin(&self) -> bool {
        // After most executions this is all.
        if self.begun.load(Ordering::Relaxed) {
            return false;
        }
        let left = self.left();
        let rests = left.not_before.is_some_and(|end| Instant::now() < end);
        !rests && !self.begun.swap(true, Ordering::Relaxed)
    }

    /// Lets a later execution begin once more: `failed` says whether this attempt has failed, rather than found no room.
    fn put_back(&self, keep: Option<Keep>, failed: bool) {
        let mut left = self.left();
        left.keep = keep;
        if failed {
            left.not_before = Some(Instant::now() + left.wait);
            left.wait = (2 * left.wait).min(LONGEST_WAIT);
        }
        self.begun.store(false, Ordering::Relaxed);
    }
}

impl Keep {
    fn save(&self, executable: &dyn Executable) -> Result<(), CachingError> {
        match self {
            Keep::Stored(StorePlace { store, key }) => storing::save(store, key, executable),
            Keep::Cached(files) => {
                files.place.replace(&files.cache, &files.written, executable, &files.options)
            }
        }
    }
}

impl CachingError {
    /// Whether what failed may well succeed in a while: there was no memory or no disk, or others used the files.
    fn may_pass(&self) -> bool {
        let memory =
            |why: &MemoryError| matches!(why, MemoryError::OutOfMemory(_) | MemoryError::Exhausted(_));
        match self {
            CachingError::Backend(BackendError::OutOfMemory(_)) => true,
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
            // Nobody has it any more, or runs do without; others use the files, or the client has done something to them.
            CachingError::Backend(_)
            | CachingError::NotCacheable
            | CachingError::Cache(CacheError::Busy | CacheError::Changed | CacheError::DataChanged) => {
                log::debug!("a compilation is not finished or not kept: {self}")
            }
            _ => log::warn!("a finished compilation is not kept: {self}"),
        }
    }
}

/// An attempt at what is left to do.
struct Attempt {
    counts: Arc<Counts>,
    executable: Arc<dyn Executable>,
    saves: Arc<Saves>,
    keep: Option<(Keep, Saving)>,
}

impl Attempt {
    fn go(&self, control: Control) -> Result<(), CachingError> {
        if !self.executable.is_finished() {
            self.finish(&control).map_err(CachingError::Backend)?;
        }
        let Some((keep, _)) = &self.keep else { return Ok(()) };
        let saved = keep.save(&*self.executable);
        let counts = match keep {
            Keep::Stored(_) => &self.counts.store,
            Keep::Cached(_) => &self.counts.files,
        };
        counts.saved(saved.as_ref().map(drop).map_err(CachingError::reason));
        saved
    }

    fn finish(&self, control: &Control) -> Result<(), BackendError> {
        if self.saves.lock().closed {
            return Err(BackendError::Cancelled);
        }
        self.executable.finish(control)
    }
}

impl Compiler {
    /// Has what is left to do for a model done, at low priority, now that it was executed. `orphaned` is set should its
    /// client die. Does nothing where it is under way, done, or has failed for good.
    ///
    /// What failed for want of memory, disk or room is tried again after a later execution, ever more rarely. Until then
    /// a model misses nothing but its being kept: runs pack whatever they need themselves.
    pub fn used(&self, rest: &Rest, executable: &Arc<dyn Executable>, orphaned: &Arc<AtomicBool>) {
        if !rest.due.begin() {
            return;
        }
        let (client, due) = (rest.client, rest.due.clone());
        let keep = due.left().keep.take();
        if keep.is_none() && executable.is_finished() {
            return;
        }
        let Ok(permit) = self.jobs.take(client, 1) else {
            return due.put_back(keep, false);
        };
        let control = Control {
            client,
            priority: Priority::Low,
            cancelled: rest.released.clone(),
            orphaned: orphaned.clone(),
            ..Control::default()
        };
        // From here on, so that a process which runs a model once, and ends, keeps it all the same.
        let keep = keep.and_then(|keep| Some((keep, self.saves.begin()?)));
        let attempt = Attempt {
            counts: self.shared.counts.clone(),
            executable: executable.clone(),
            saves: self.saves.clone(),
            keep,
        };
        let task = move || {
            if let Err(why) = attempt.go(control) {
                why.log();
                if why.may_pass() {
                    due.put_back(attempt.keep.map(|(keep, _)| keep), true);
                }
            }
            drop(permit);
        };
        self.workers.submit(client, Priority::Low, Box::new(task));
    }

    /// For a process that is about to end: lets what is whole be kept, for a while; nothing is finished, and nothing new
    /// kept, from here on.
    pub fn settle(&self) {
        self.saves.close();
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
struct Saving(Arc<Saves>);

impl Saves {
    fn lock(&self) -> MutexGuard<'_, SaveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` once there must be no more.
    fn begin(self: &Arc<Self>) -> Option<Saving> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        state.count += 1;
        Some(Saving(self.clone()))
    }

    fn close(&self) {
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
