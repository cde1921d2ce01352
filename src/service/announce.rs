//! What a compilation's callback is told: once, whatever happens, and never on a thread that others need.

use super::death::DeathWatch;
use super::prepared::Prepared;
use super::prepared_model;
use super::status::ServiceError;
use crate::aidl::{ErrorStatus, IPreparedModelCallback};
use crate::ipc::Strong;
use crate::scheduler::{Permit, Quotas, Reserved, Stop, ThreadCache};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The threads that notify, of one driver.
pub(super) fn notifiers() -> Arc<ThreadCache> {
    Arc::new(ThreadCache::new("nnhal-notify", Duration::from_secs(1)))
}

/// A notification that a client is owed. Dropped without one, it says GENERAL_FAILURE.
pub(super) struct Announcement {
    owed: Mutex<Option<Owed>>,
}

struct Owed {
    callback: Strong<dyn IPreparedModelCallback>,
    /// Its thread, from the call on: a notification is not lost because none can be had when it is due.
    thread: Reserved,
    /// Cancels the work should the client die.
    watch: Option<DeathWatch>,
    /// The callback's place among those that have not been answered.
    permit: Permit,
}

impl Announcement {
    /// Owes `client`, by `callback`, a notification by one of `notifiers`. `cancelled` is set should it die before.
    pub fn new(
        (quotas, notifiers): (&Quotas, &Arc<ThreadCache>),
        client: u32,
        callback: &Strong<dyn IPreparedModelCallback>,
        cancelled: Arc<Stop>,
    ) -> Result<Arc<Self>, ServiceError> {
        let permit = quotas.callback(client)?;
        let thread = notifiers.reserve().map_err(|why| {
            ServiceError::Exhausted(format!("no thread for the callback: {why}; try again later"))
        })?;
        let died = move || cancelled.set();
        let watch = DeathWatch::new(callback.as_binder(), Box::new(died));
        let owed = Owed { callback: callback.clone(), thread, watch, permit };
        Ok(Arc::new(Announcement { owed: Mutex::new(Some(owed)) }))
    }

    /// Tells the client, unless it was told before. Does not wait for it: it may be slow, or mean to be.
    pub fn tell(&self, outcome: Result<Arc<Prepared>, ErrorStatus>) {
        let owed = self.owed.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Owed { callback, thread, watch, permit }) = owed else { return };
        thread.run(move || {
            drop(watch); // there is nothing left to cancel
            notify(&callback, outcome);
            drop(callback);
            // The last, and named: a closure takes along only what its body names.
            drop(permit);
        });
    }
}

fn notify(callback: &Strong<dyn IPreparedModelCallback>, outcome: Result<Arc<Prepared>, ErrorStatus>) {
    let (status, model) = match outcome {
        Ok(prepared) => (ErrorStatus::NONE, Some(prepared_model::new_binder(prepared))),
        Err(status) => (status, None),
    };
    if let Err(why) = callback.notify(status, model.as_ref()) {
        log::info!("a client did not take the outcome of its compilation: {why}");
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.tell(Err(ErrorStatus::GENERAL_FAILURE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aidl::{BnPreparedModelCallback, IPreparedModel};
    use binder::{BinderResult, Interface};
    use std::sync::mpsc::{channel, Receiver, Sender};
    use std::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Says that it was called, and returns when it is let go.
    struct Slow(Mutex<(Sender<ErrorStatus>, Receiver<()>)>);

    impl Interface for Slow {}

    impl IPreparedModelCallback for Slow {
        fn notify(&self, status: ErrorStatus, _: Option<&Strong<dyn IPreparedModel>>) -> BinderResult<()> {
            let this = self.0.lock().unwrap();
            this.0.send(status).unwrap();
            let _ = this.1.recv();
            Ok(())
        }
    }

    fn slow() -> (Strong<dyn IPreparedModelCallback>, Receiver<ErrorStatus>, Sender<()>) {
        let ((called, calls), (let_go, held)) = (channel(), channel());
        (BnPreparedModelCallback::new_binder(Slow(Mutex::new((called, held)))), calls, let_go)
    }

    #[test]
    fn a_callback_holds_its_place_until_it_has_returned() {
        const CLIENT: u32 = 7;
        let quotas = Quotas::new();
        let (callback, calls, let_go) = slow();
        let announcement =
            Announcement::new((&quotas, &notifiers()), CLIENT, &callback, Arc::default()).unwrap();
        // The rest of the client's share.
        let others: Vec<_> = std::iter::from_fn(|| quotas.callback(CLIENT).ok()).collect();
        assert!(!others.is_empty());
        announcement.tell(Err(ErrorStatus::INVALID_ARGUMENT));
        drop(announcement);
        assert_eq!(calls.recv_timeout(PATIENCE), Ok(ErrorStatus::INVALID_ARGUMENT));
        assert!(quotas.callback(CLIENT).is_err(), "it has been told, but has not returned");
        drop(let_go);
        let start = Instant::now();
        while quotas.callback(CLIENT).is_err() {
            assert!(start.elapsed() < PATIENCE, "its place is never given back");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(calls.try_recv().is_err(), "it was told twice");
    }

    #[test]
    fn who_is_forgotten_is_told_of_a_failure() {
        let quotas = Quotas::new();
        let (callback, calls, let_go) = slow();
        drop(let_go);
        drop(Announcement::new((&quotas, &notifiers()), 7, &callback, Arc::default()).unwrap());
        assert_eq!(calls.recv_timeout(PATIENCE), Ok(ErrorStatus::GENERAL_FAILURE));
    }

    #[test]
    fn where_no_thread_can_be_had_the_call_is_refused_and_who_is_owed_is_told() {
        const CLIENT: u32 = 7;
        let (quotas, notifiers) = (Quotas::new(), notifiers());
        let (callback, calls, let_go) = slow();
        drop(let_go);
        let announce = || Announcement::new((&quotas, &notifiers), CLIENT, &callback, Arc::default());
        let most = || std::iter::from_fn(|| quotas.callback(CLIENT).ok()).collect::<Vec<_>>().len();
        let owed = announce().unwrap();
        let free = most();
        notifiers.refuse(true);
        for _ in 0..2 {
            let refused = announce().err().expect("it needs a thread");
            assert!(matches!(refused, ServiceError::Exhausted(_)), "{refused}");
        }
        assert_eq!(most(), free, "what is refused has no place");
        owed.tell(Err(ErrorStatus::INVALID_ARGUMENT));
        assert_eq!(calls.recv_timeout(PATIENCE), Ok(ErrorStatus::INVALID_ARGUMENT));
        assert!(calls.try_recv().is_err(), "who was refused was told by the call");
    }
}
