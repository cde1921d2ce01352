//! What a compilation's callback is told: once, whatever happens, and never on a thread that others need.

use super::prepared_model;
use super::prepared_model::Prepared;
use super::status::ServiceError;
use crate::aidl::{ErrorStatus, IPreparedModelCallback};
use crate::scheduler::{Permit, Quotas, ThreadCache};
use binder::{DeathRecipient, Strong, WIBinder};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The threads that notify.
static NOTIFIERS: ThreadCache = ThreadCache::new("nnhal-notify", Duration::from_secs(1));

/// A notification that a client is owed. Dropped without one, it says GENERAL_FAILURE.
pub(super) struct Announcement {
    owed: Mutex<Option<Owed>>,
    _watch: Arc<Watch>,
}

struct Owed {
    callback: Strong<dyn IPreparedModelCallback>,
    _permit: Permit,
}

/// Cancels the work for a client that died.
struct Watch {
    cancelled: Arc<AtomicBool>,
}

impl DeathRecipient for Watch {
    fn binder_died(&self, _: &WIBinder) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

impl Announcement {
    /// Owes `client`, by `callback`, a notification. `cancelled` is set should it die before.
    pub fn new(
        quotas: &Quotas,
        client: u32,
        callback: &Strong<dyn IPreparedModelCallback>,
        cancelled: Arc<AtomicBool>,
    ) -> Result<Arc<Self>, ServiceError> {
        let permit = quotas.callback(client)?;
        // It starts while the model is prepared, not after that.
        NOTIFIERS.expect_one();
        let watch = Arc::new(Watch { cancelled });
        if let Err(why) = callback.link_to_death_arc(&watch) {
            // A callback of this very process cannot die, and one that is dead already shows at the notification.
            log::debug!("a callback is not watched: {why}");
        }
        let owed = Owed { callback: callback.clone(), _permit: permit };
        Ok(Arc::new(Announcement { owed: Mutex::new(Some(owed)), _watch: watch }))
    }

    /// Tells the client, unless it was told before. Does not wait for it: it may be slow, or mean to be.
    pub fn tell(&self, outcome: Result<Arc<Prepared>, ErrorStatus>) {
        let owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(owed) = owed else { return };
        let notify = move || {
            let (status, model) = match outcome {
                Ok(prepared) => (ErrorStatus::NONE, Some(prepared_model::new_binder(prepared))),
                Err(status) => (status, None),
            };
            if let Err(why) = owed.callback.notify(status, model.as_ref()) {
                log::info!("a client did not take the outcome of its compilation: {why}");
            }
        };
        if let Err(why) = NOTIFIERS.run(notify) {
            log::error!("no thread to tell a client the outcome of its compilation: {why}");
        }
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.tell(Err(ErrorStatus::GENERAL_FAILURE));
    }
}
