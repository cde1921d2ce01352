//! The later stage of compilations: what has been used is finished in the background, and kept as it is then.
//!
//! What a model needs for its first run is done when it is prepared, or in that run; the rest is nobody's wait. It must
//! not begin before a model has proved used, and must not compute for a model that has been released, or whose client has
//! died. What is whole by then is kept all the same: many clients run a model once in their lives.

use super::caching::{CachePlace, CachingError};
use super::storing;
use super::{Compiler, Permit};
use crate::backend::{BackendError, Control, Executable, Priority};
use crate::cache::{Cache, CacheError, Key, Store, Written};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where a finished compilation is kept.
pub enum Keep {
    /// In the driver's own store.
    Stored(StorePlace),
    /// In a client's cache files, in place of what was written there before. The permit is for their descriptors.
    Cached { cache: Arc<Cache>, place: CachePlace, written: Written, permit: Permit },
}

/// A place in the driver's own store.
pub struct StorePlace {
    pub(super) store: Arc<Store>,
    pub(super) key: Key,
}

/// What is left to do for a prepared model, as long as that has it.
pub struct Rest {
    client: u32,
    begun: AtomicBool,
    keep: Mutex<Option<Keep>>,
    /// Set when the prepared model is released.
    released: Arc<AtomicBool>,
}

impl Rest {
    /// Of a model of this client.
    pub fn new(client: u32, keep: Option<Keep>) -> Self {
        Rest { client, begun: AtomicBool::new(false), keep: Mutex::new(keep), released: Arc::default() }
    }

    fn keep(&self) -> MutexGuard<'_, Option<Keep>> {
        self.keep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.released.store(true, Ordering::Relaxed);
    }
}

impl Keep {
    fn save(&self, executable: &dyn Executable) {
        let saved = match self {
            Keep::Stored(StorePlace { store, key }) => return storing::save(store, key, executable),
            Keep::Cached { cache, place, written, .. } => place.replace(cache, written, executable),
        };
        match saved {
            Ok(()) => {}
            // Others use the files, or the client has done something to them: what they are is its affair.
            Err(CachingError::Cache(
                why @ (CacheError::Busy | CacheError::Mapped | CacheError::Changed | CacheError::DataChanged),
            )) => log::debug!("cache files stay as they are: {why}"),
            Err(why) => log::warn!("cache files are not rewritten: {why}"),
        }
    }
}

impl Compiler {
    /// Has what is left to do for a model done, at low priority, now that it was executed. `orphaned` is set should its
    /// client die. Does nothing the second time, unless there was no room for the first.
    pub fn used(&self, rest: &Rest, executable: &Arc<dyn Executable>, orphaned: &Arc<AtomicBool>) {
        if rest.begun.load(Ordering::Relaxed) || rest.begun.swap(true, Ordering::Relaxed) {
            return;
        }
        if rest.keep().is_none() && executable.is_finished() {
            return;
        }
        let client = rest.client;
        let Ok(permit) = self.jobs.take(client, 1) else {
            return rest.begun.store(false, Ordering::Relaxed);
        };
        let control = Control {
            priority: Priority::Low,
            cancelled: rest.released.clone(),
            orphaned: orphaned.clone(),
            ..Control::default()
        };
        let (keep, executable) = (rest.keep().take(), executable.clone());
        let (turns, saves) = (self.turns.clone(), self.saves.clone());
        // From here on, so that a process which runs a model once, and ends, keeps it all the same.
        let saving = keep.and_then(|keep| Some((keep, self.saves.begin()?)));
        let finish = move |mut control: Control| -> Result<(), BackendError> {
            if !executable.is_finished() {
                if saves.lock().closed {
                    return Err(BackendError::Cancelled);
                }
                control.turn = Some(Arc::new(turns.take(client, Priority::Low, &control)?));
                executable.finish(&control)?;
                // Nor does it compute any more.
                control.turn = None;
            }
            if let Some((keep, _)) = &saving {
                keep.save(&*executable);
            }
            Ok(())
        };
        let task = move || {
            if let Err(why) = finish(control) {
                log::debug!("a compilation is not finished: {why}");
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
