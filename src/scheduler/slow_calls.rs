//! A guard around each call of a client that says, should the call take long, what it waited for; and around work in the
//! background, should that wait for long.
//!
//! The watching thread looks for calls that last, while there are calls: one that hangs is told though no other comes. It
//! ends nothing: a slow call is either the client's own work, or a fault to be looked for.

use super::clock::boottime_ns;
use super::watcher::Watcher;
use crate::waits::{Waits, Watched};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use crate::waits::{about_to_wait, wait_for};

/// A call that takes longer is slow, and so is work that waits for longer.
const SLOW: Duration = Duration::from_millis(500);
/// How often is looked for calls that last.
const LOOK: Duration = Duration::from_millis(500);

struct Entry {
    name: &'static str,
    client: u32,
    began: Instant,
    /// Whether somebody waits for it. What is done in the background may take long, as long as it does not wait.
    is_call: bool,
    waits: Arc<Waits>,
    /// Whether it was told that this lasts.
    told: AtomicBool,
}

/// The calls of one driver that are under way.
#[derive(Default)]
pub struct Calls {
    last_key: AtomicU64,
    by_key: Mutex<HashMap<u64, Arc<Entry>>>,
    /// Who looks for those that last; nobody does without.
    watcher: Option<Arc<Watcher>>,
    /// Whether that was asked to.
    is_watched: AtomicBool,
}

/// A call under way, until dropped.
pub struct Call {
    calls: Arc<Calls>,
    key: u64,
    entry: Arc<Entry>,
    _watched: Watched,
}

impl Calls {
    /// Calls that `watcher` looks for.
    pub fn new(watcher: Arc<Watcher>) -> Arc<Self> {
        Arc::new(Calls { watcher: Some(watcher), ..Calls::default() })
    }

    /// Notes that the thread serves the call `name` of `client`.
    pub fn begin(self: &Arc<Self>, name: &'static str, client: u32) -> Call {
        self.enter(name, client, true)
    }

    /// Notes that the thread does work for `client` in the background, for which it has `waited` in line.
    pub fn begin_work(self: &Arc<Self>, name: &'static str, client: u32, waited: Duration) -> Call {
        let work = self.enter(name, client, false);
        work.entry.waits.add("its place in line", waited);
        work
    }

    fn enter(self: &Arc<Self>, name: &'static str, client: u32, is_call: bool) -> Call {
        let waits: Arc<Waits> = Arc::default();
        let told = AtomicBool::new(false);
        let entry =
            Arc::new(Entry { name, client, began: Instant::now(), is_call, waits: waits.clone(), told });
        let key = self.last_key.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(key, entry.clone());
        if !self.is_watched.load(Ordering::Relaxed) && !self.is_watched.swap(true, Ordering::Relaxed) {
            self.watch();
        }
        Call { calls: self.clone(), key, entry, _watched: waits.watch() }
    }

    /// Has the watcher look in a while, and again as long as there are calls.
    fn watch(self: &Arc<Self>) {
        let Some(watcher) = &self.watcher else { return };
        let calls = Arc::downgrade(self);
        let look = move || {
            let Some(calls) = calls.upgrade() else { return };
            calls.look(Instant::now());
            let under_way = calls.lock();
            // Under the lock: a call that begins after this finds that nobody looks.
            match under_way.is_empty() {
                true => calls.is_watched.store(false, Ordering::Relaxed),
                false => {
                    drop(under_way);
                    calls.watch();
                }
            }
        };
        watcher.at(boottime_ns().saturating_add(LOOK.as_nanos() as u64), Box::new(look));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Entry>>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of calls that last.
    fn look(&self, now: Instant) {
        let slow: Vec<_> = self.lock().values().filter(|entry| entry.is_slow(now)).cloned().collect();
        for entry in slow {
            if !entry.told.swap(true, Ordering::Relaxed) {
                log::warn!("{} (and lasts)", entry.account(now));
            }
        }
    }
}

impl Entry {
    fn took(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    fn is_slow(&self, now: Instant) -> bool {
        match self.is_call {
            true => self.took(now) > SLOW,
            false => self.waits.until(now).iter().map(|(_, time)| *time).sum::<Duration>() > SLOW,
        }
    }

    /// What took how long.
    fn account(&self, now: Instant) -> String {
        let waits = self.waits.until(now).into_iter().map(|(what, time)| (what, time.as_millis()));
        let parts: Vec<_> =
            waits.filter(|(_, ms)| *ms > 0).map(|(what, ms)| format!("{ms} ms waiting for {what}")).collect();
        let parts = if parts.is_empty() { "waiting for nobody".into() } else { parts.join(", ") };
        format!("{} of uid {} took {} ms: {parts}", self.name, self.client, self.took(now).as_millis())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let ended = self.calls.lock().remove(&self.key);
        drop(ended); // not under the lock
        let now = Instant::now();
        if self.entry.is_slow(now) {
            log::info!("{}", self.entry.account(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_waited_for_is_told() {
        let calls = Arc::new(Calls::default());
        let outer = calls.begin("outer", 7);
        drop(wait_for("a turn"));
        let inner = calls.begin("inner", 8);
        let waiting = wait_for("a file");
        let later = Instant::now() + Duration::from_secs(3);
        let account = inner.entry.account(later);
        assert!(account.starts_with("inner of uid 8 took ") && account.contains(" ms waiting for a file"));
        assert!(!outer.entry.account(later).contains("a file"), "that is another call's wait");
        drop((waiting, inner));
        // A long wait is reported once.
        calls.look(later);
        assert!(outer.entry.told.load(Ordering::Relaxed));
        drop(outer);
        assert!(calls.lock().is_empty());
    }

    #[test]
    fn work_in_the_background_is_slow_by_what_it_waits_for() {
        let calls = Arc::new(Calls::default());
        let later = Instant::now() + Duration::from_secs(3);
        let works = calls.begin_work("a compilation", 7, Duration::from_millis(1));
        assert!(!works.entry.is_slow(later), "it computes");
        let waiting = wait_for("the registry");
        assert!(works.entry.is_slow(later));
        let account = works.entry.account(later);
        assert!(account.contains(" 1 ms waiting for its place in line, "), "{account}");
        assert!(account.ends_with(" ms waiting for the registry"), "{account}");
        drop(waiting);
    }

    #[test]
    fn a_call_that_lasts_is_told_though_no_other_comes() {
        let calls = Calls::new(Arc::new(Watcher::new().unwrap()));
        for _ in 0..2 {
            let lasts = calls.begin("lasts", 7);
            let until = Instant::now() + Duration::from_secs(30);
            while !lasts.entry.told.load(Ordering::Relaxed) {
                assert!(Instant::now() < until, "nobody looks");
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(lasts);
            // Nobody looks without a call.
            while calls.is_watched.load(Ordering::Relaxed) {
                assert!(Instant::now() < until, "it is looked on");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
